"""Check an expectation file, or update it from results.

`check` reads the file of each named backend, or any file with --file, and lists stale and unexplained entries.
`update` reads result files and changes only entries of rules that have results. A new divergence gets an entry, with
the reason of another version's entry if there is one, else with a reason for you to write. A rule that now holds
loses its entry, or only this version in the entry's range. Every other line stays as it is.
"""

import argparse
import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import tomlkit
from tomlkit.items import AoT, Table

from hooklaw.backend import loading
from hooklaw.errors import ExpectationFileError, NotRunError, OutputError
from hooklaw.law.rule import Level, Rule, load_rules
from hooklaw.results import expectations, records
from hooklaw.results.records import Result, Run
from hooklaw.results.verdict import Exit, Expectation, Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    todo = parser.add_subparsers(dest="todo", required=True, metavar="check|update", parser_class=type(parser))
    check = todo.add_parser("check", help="list malformed, stale and unexplained entries")
    check.add_argument("--backend", action="append", default=[], metavar="NAME[:ARG]", help="default: torch-eager")
    check.add_argument("--file", type=Path, action="append", default=[], metavar="FILE", help="a file to check")
    update = todo.add_parser("update", help="update a file from results")
    update.add_argument(
        "results", type=Path, nargs="+", metavar="RESULTS", help="files of `hooklaw run --results=FILE`"
    )
    update.add_argument("--file", type=Path, metavar="FILE", help="the file to update; default: the backend's own")


def main(args: argparse.Namespace) -> int:
    """Check or update."""
    return _check(args) if args.todo == "check" else _update(args)


def _check(args: argparse.Namespace) -> int:
    rules = set(load_rules())
    read = [(path, expectations.read(path, rules, None)) for path in args.file]
    for spec in args.backend or ([] if args.file else ["torch-eager"]):
        path, versions = _file_of(spec)
        read.append((path, expectations.read(path, rules, versions)))
    stale = False
    for path, found in read:
        unexplained = [entry for entry in found.known.values() if entry.reason.startswith(expectations.UNEXPLAINED)]
        stale = stale or bool(found.stale)
        for entry in found.stale:
            sys.stdout.write(f"{entry.file}:{entry.line}: stale: the entry for {entry.rule!r} {entry.why}\n")
        for entry in unexplained:
            sys.stdout.write(f"{entry.file}:{entry.line}: unexplained: write why {entry.rule!r} does not hold\n")
        sys.stdout.write(f"{path}: {len(found.known)} entries apply, {len(found.stale)} are stale\n")
    return (Exit.FIXED_OR_STALE if stale else Exit.OK).code


def _file_of(spec: str) -> tuple[Path, dict[str, str]]:
    try:
        made = loading.load(spec)
    except NotRunError as reason:
        raise ExpectationFileError(f"{spec}: {reason}; check its file without it, with --file") from reason
    if made.expectations is None:
        raise ExpectationFileError(f"backend {spec!r} names no expectation file: give one with --file")
    return Path(made.expectations), {name: str(version) for name, version in made.versions.items()}


def _update(args: argparse.Namespace) -> int:
    for run in records.read_all(args.results):
        if run.header.not_run:
            sys.stdout.write(f"{run.header.backend}: not run, nothing to update\n")
            continue
        path = args.file or _file_of(run.header.backend)[0]
        text, changes = updated(path, run)
        if changes:
            _replace(path, text)
        sys.stdout.write("".join(f"{path}: {line}\n" for line in changes) or f"{path}: nothing to change\n")
    return Exit.OK.code


def updated(path: Path, run: Run) -> tuple[str, list[str]]:
    """Return the file's new text, and a line of text for each change.

    Known divergences are those in the file now, not those at the time of the run.
    """
    entries = expectations.parse(path) if path.exists() else []
    known = {entry.rule: entry for entry in entries if expectations.applies(entry, run.header.versions)}
    held = [known[rule.id] for rule in run.header.rules if rule.id in known and _holds(run, rule)]
    left = {entry.line: expectations.without(entry, run.header.versions) for entry in held}
    gone = [entry for entry in held if not left[entry.line]]
    text = _without(path.read_text(encoding="utf-8") if path.exists() else "", [entry.line for entry in gone])
    document, fresh = tomlkit.parse(text), tomlkit.aot()
    tables = document.get("expect", fresh)
    changes = [_narrow(tables, entry, left[entry.line]) for entry in held if left[entry.line]]
    fails = [run.results[rule.id] for rule in run.header.rules if _fails(run, rule)]
    changes += [_other(tables, known[result.rule], result) for result in fails if result.rule in known]
    changes += [_add(fresh, result, run.header.versions, entries) for result in fails if result.rule not in known]
    changes = list(filter(None, changes))
    text = tomlkit.dumps(document) if changes else text
    return _joined(text, fresh), [f"{entry.rule} holds now: entry removed" for entry in gone] + changes


def _joined(text: str, fresh: AoT) -> str:
    if not fresh:
        return text
    gap = "\n" if text.endswith("\n") else "\n\n" * bool(text)
    return text + gap + tomlkit.dumps({"expect": fresh})


def _holds(run: Run, rule: Rule) -> bool:
    return run.results[rule.id].outcome is Outcome.PASS


def _without(text: str, entries: Sequence[int]) -> str:
    """Remove the entries that begin in these lines, as text: a TOML library would remove comments too."""
    lines = text.splitlines(keepends=True)
    for start in sorted(entries, reverse=True):
        after = [place for place, line in enumerate(lines) if place >= start and line.lstrip().startswith("[[")]
        inside = range(start, after[0] if after else len(lines))
        end = max(place for place in inside if lines[place].strip() and not lines[place].lstrip().startswith("#")) + 1
        while end < len(lines) and not lines[end].strip():
            end += 1
        del lines[start - 1 : end]
    return "".join(lines)


def _fails(run: Run, rule: Rule) -> bool:
    outcome = run.results[rule.id].outcome
    return outcome in expectations.EXPECTABLE and (outcome is not Outcome.FAIL or rule.level is not Level.MAY)


def _narrow(tables: AoT, known: Expectation, when: str) -> str:
    _table(tables, known)["when"] = when
    return f"{known.rule} holds now: entry kept for {when}"


def _other(tables: AoT, known: Expectation, result: Result) -> str:
    if result.outcome in known.outcome:
        return ""
    _table(tables, known)["outcome"] = [*known.outcome, str(result.outcome)]
    return f"{result.rule}: outcome {result.outcome} added"


def _add(fresh: AoT, result: Result, versions: Mapping[str, str], entries: Sequence[Expectation]) -> str:
    """Add an entry for this version, with the reason of an entry for the same outcome in other versions."""
    elsewhere = [entry for entry in entries if entry.rule == result.rule and result.outcome in entry.outcome]
    fresh.append(_entry(result, versions, elsewhere))
    why = f"with the reason of line {elsewhere[0].line}" if elsewhere else "write its reason"
    return f"{result.rule}: entry added, {why}"


def _table(tables: AoT, known: Expectation) -> Table:
    return next(table for table in tables if (table.get("rule"), table.get("when", "")) == (known.rule, known.when))


def _entry(result: Result, versions: Mapping[str, str], elsewhere: Sequence[Expectation]) -> Table:
    made = tomlkit.table()
    made.add("rule", tomlkit.string(result.rule).comment(f"seen {dt.datetime.now(tz=dt.UTC).date()}"))
    made["outcome"] = str(result.outcome)
    made["reason"] = elsewhere[0].reason if elsewhere else expectations.UNEXPLAINED + result.detail[:200]
    if elsewhere and elsewhere[0].issue:
        made["issue"] = elsewhere[0].issue
    name, version = next(iter(versions.items()))
    when = f"{name}=={version.partition('+')[0]}"
    if expectations.is_range(when):
        made["when"] = when
    return made


def _replace(path: Path, text: str) -> None:
    try:
        records.replace_file(path, text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; name another file with --file") from error
