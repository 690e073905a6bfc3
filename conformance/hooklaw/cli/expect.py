"""Check an expectation file, or rewrite it from what a run found.

`check` reads the file of each named backend (or any file with --file) and says what is stale or unexplained.
`update` takes result files and rewrites only what has results: a divergence that is new gets an entry whose reason
a person has yet to write, unless other versions show the same; one that is gone loses its entry, which stays for the
other versions in its range; every other line stays as it is.
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
    check = todo.add_parser("check", help="say what is malformed, stale or unexplained")
    check.add_argument("--backend", action="append", default=[], metavar="NAME[:ARG]", help="default torch-eager")
    check.add_argument("--file", type=Path, action="append", default=[], metavar="FILE", help="any file, no backend")
    update = todo.add_parser("update", help="rewrite a file from results")
    update.add_argument(
        "results", type=Path, nargs="+", metavar="RESULTS", help="files of `hooklaw run --results=FILE`"
    )
    update.add_argument("--file", type=Path, metavar="FILE", help="default: the backend's own file")


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
        unexplained = [one for one in found.known.values() if one.reason.startswith(expectations.UNEXPLAINED)]
        stale = stale or bool(found.stale)
        for one in found.stale:
            sys.stdout.write(f"{one.file}:{one.line}: stale: the entry for {one.rule!r} {one.why}\n")
        for one in unexplained:
            sys.stdout.write(f"{one.file}:{one.line}: unexplained: say why {one.rule!r} does not hold\n")
        sys.stdout.write(f"{path}: {len(found.known)} entries apply, {len(found.stale)} are stale\n")
    return (Exit.FIXED_OR_STALE if stale else Exit.OK).code


def _file_of(spec: str) -> tuple[Path, dict[str, str]]:
    try:
        made = loading.load(spec)
    except NotRunError as reason:
        raise ExpectationFileError(f"{spec}: {reason}; check its file without it, by --file") from reason
    if made.expectations is None:
        raise ExpectationFileError(f"backend {spec!r} names no expectation file: give one with --file")
    return Path(made.expectations), {name: str(version) for name, version in made.versions.items()}


def _update(args: argparse.Namespace) -> int:
    for run in records.read_all(args.results):
        if run.header.not_run:
            sys.stdout.write(f"{run.header.backend}: not run, nothing to update\n")
            continue
        path = args.file or _file_of(run.header.backend)[0]
        text, told = updated(path, run)
        if told:
            _replace(path, text)
        sys.stdout.write("".join(f"{path}: {line}\n" for line in told) or f"{path}: nothing to change\n")
    return Exit.OK.code


def updated(path: Path, run: Run) -> tuple[str, list[str]]:
    """Return the file's new text and what was changed, in words.

    What counts as known is what stands in the file now, not what stood there when the run was made.
    """
    entries = expectations.parse(path) if path.exists() else []
    known = {one.rule: one for one in entries if expectations.applies(one, run.header.versions)}
    held = [known[rule.id] for rule in run.header.rules if rule.id in known and _holds(run, rule)]
    left = {one.line: expectations.without(one, run.header.versions) for one in held}
    gone = [one for one in held if not left[one.line]]
    text = _without(path.read_text(encoding="utf-8") if path.exists() else "", [one.line for one in gone])
    document, fresh = tomlkit.parse(text), tomlkit.aot()
    tables = document.get("expect", fresh)
    told = [_narrow(tables, one, left[one.line]) for one in held if left[one.line]]
    fails = [run.results[rule.id] for rule in run.header.rules if _fails(run, rule)]
    told += [_other(tables, known[one.rule], one) for one in fails if one.rule in known]
    told += [_add(fresh, one, run.header.versions, entries) for one in fails if one.rule not in known]
    told = [one for one in told if one]
    text = tomlkit.dumps(document) if told else text
    return _joined(text, fresh), [f"{one.rule} holds now: entry removed" for one in gone] + told


def _joined(text: str, fresh: AoT) -> str:
    if not fresh:
        return text
    gap = "\n" if text.endswith("\n") else "\n\n" * bool(text)
    return text + gap + tomlkit.dumps({"expect": fresh})


def _holds(run: Run, rule: Rule) -> bool:
    return run.results[rule.id].outcome is Outcome.PASS


def _without(text: str, entries: Sequence[int]) -> str:
    """Take out the entries that begin in these lines, by lines: a TOML library would take comments along."""
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
    """Add an entry for this version, explained as one is that speaks of the same outcome in other versions."""
    elsewhere = [one for one in entries if one.rule == result.rule and result.outcome in one.outcome]
    fresh.append(_entry(result, versions, elsewhere))
    why = f"with the reason of line {elsewhere[0].line}" if elsewhere else "its reason is yours to write"
    return f"{result.rule}: entry added, {why}"


def _table(tables: AoT, known: Expectation) -> Table:
    return next(one for one in tables if (one.get("rule"), one.get("when", "")) == (known.rule, known.when))


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
