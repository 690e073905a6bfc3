"""Check an expectation file, or update it from results.

`check` reads the file of each named backend, or any file with --file, and lists the stale entries: those that match no
rule, have expired, are unexplained, or do not say what is seen.
`update` reads result files and changes only entries of rules that have results. A new divergence gets an entry with
`saw`, what is seen, and the reason of another version's entry if that looks alike, else a reason for you to write. A
rule that fails in another way than its entry says gets that way too, and its reason is yours to check. A rule that now
holds loses its entry, or only this version in the entry's range. Every other line stays as it is. A file that lies over
another gets entries only for what differs from it, and the lower file is not changed. A new file is laid over the
shipped file that judged the run. A file of an installed package is never changed.
A rule that shares its entry with others, which did not change alike, gets an entry of its own at the end.

Examples:
    hooklaw expect check --backend torch-eager
    hooklaw run --backend reference -k order --results=order.jsonl
    hooklaw expect update --file mine.toml order.jsonl
"""

import argparse
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from hooklaw.backend import loading
from hooklaw.cli import say
from hooklaw.cli.options import add_imports
from hooklaw.errors import ExpectationFileError, NotRunError
from hooklaw.law.collection import load_rules
from hooklaw.results import expectations, host, records, when
from hooklaw.results.expectation_update import updated
from hooklaw.results.output import output_errors, replace_file
from hooklaw.results.summary import counted
from hooklaw.results.text import name, printable
from hooklaw.results.verdict import Exit, unclear


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    todo = parser.add_subparsers(dest="todo", required=True, metavar="check|update", parser_class=type(parser))
    check = todo.add_parser("check", help="list malformed, stale and unexplained entries")
    check.add_argument("--backend", action="append", default=[], metavar="NAME[:ARG]", help="default: torch-eager")
    check.add_argument("--file", type=Path, action="append", default=[], metavar="FILE", help="a file to check")
    add_imports(check)
    update = todo.add_parser("update", help="update a file from results")
    update.add_argument(
        "results", type=Path, nargs="+", metavar="RESULTS", help="files of `hooklaw run --results=FILE`"
    )
    update.add_argument("--file", type=Path, metavar="FILE", help="the file to update; default: the backend's own")
    add_imports(update)


def main(args: argparse.Namespace) -> int:
    """Check or update."""
    return _check(args) if args.todo == "check" else _update(args)


def _check(args: argparse.Namespace) -> int:
    rules = set(load_rules())
    read = [(path, expectations.read(path, rules, None)) for path in args.file]
    for spec in args.backend or ([] if args.file else ["torch-eager"]):
        path, versions = _file_of(spec, args.imports)
        read.append((path, expectations.read(path, rules, versions)))
    stale = False
    for path, found in read:
        under = [entry for known in found.known_under for entry in unclear(known)]
        entries = sorted([*found.stale, *found.unclear, *under], key=lambda entry: (entry.file, entry.line))
        stale = stale or bool(entries)
        for entry in entries:
            said = f"{entry.file}:{entry.line}: stale: the entry for {entry.rule!r} {entry.why}"
            say(f"{printable(said)}\n")
        applying = len(found.known) + len(found.known_under)
        say(f"{path}: {applying} entries apply, {len(entries)} are stale\n")
    return (Exit.FIXED_OR_STALE if stale else Exit.OK).code


def _file_of(spec: str, imports: Sequence[str]) -> tuple[Path, dict[str, str]]:
    try:
        made = loading.load(spec, imports)
    except NotRunError as reason:
        raise ExpectationFileError(f"{spec}: {reason}; check its file without it, with --file") from reason
    if made.expectations is None:
        raise ExpectationFileError(f"backend {spec!r} names no expectation file: give one with --file")
    versions = {name: str(version) for name, version in made.versions.items()}
    return Path(made.expectations), when.facts({**versions, **host.versions()}, loading.device_of(made))


def _update(args: argparse.Namespace) -> int:
    for run in records.read_all(args.results):
        if run.header.not_run:
            say(f"{name(run.header.backend)}: not run, nothing to update\n")
            continue
        path = args.file or _file_of(run.header.backend, args.imports)[0]
        _refuse_installed(path)
        text, changes = updated(path, run)
        if changes:
            with output_errors(f"write {path}", "; name another file with --file"):
                replace_file(path, text)
        said = [*changes, f"written, {counted(len(changes), 'change')}"] if changes else ["nothing to change"]
        say("".join(f"{printable(str(path))}: {printable(line)}\n" for line in said))
    return Exit.OK.code


def _refuse_installed(path: Path) -> None:
    """Raise ExpectationFileError for a file of an installed package: the next upgrade would take the change away."""
    for folder in path.resolve().parents:
        for owner in distributions(path=[str(folder)]):
            record = owner.read_text("RECORD") or ""  # an editable install does not list the file
            if f"\n{path.resolve().relative_to(folder).as_posix()}," in f"\n{record}":
                raise ExpectationFileError(
                    f"{path} belongs to the installed package {owner.name} {owner.version}, which an update would not "
                    "survive: name a file of your own with --file; a new one is laid over the shipped one"
                )
