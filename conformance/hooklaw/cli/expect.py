"""Check an expectation file, or update it from results.

`check` reads the file of each named backend, or any file with --file, and lists stale and unexplained entries.
`update` reads result files and changes only entries of rules that have results. A new divergence gets an entry, with
the reason of another version's entry if there is one, else with a reason for you to write. A rule that now holds
loses its entry, or only this version in the entry's range. Every other line stays as it is. A file that lies over
another gets entries only for what differs from it, and the lower file is not changed.
A rule that shares its entry with others, which did not change alike, gets an entry of its own at the end.

Examples:
    hooklaw expect check --backend torch-eager
    hooklaw run --backend reference -k order --results=order.jsonl
    hooklaw expect update --file mine.toml order.jsonl
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from hooklaw.backend import loading
from hooklaw.cli.options import add_imports
from hooklaw.errors import ExpectationFileError, NotRunError
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Level, Rule
from hooklaw.results import expectation_text, expectations, records
from hooklaw.results.expectations import HOLDS, ExpectationFile
from hooklaw.results.output import output_errors, replace_file
from hooklaw.results.records import Header, Result, Run
from hooklaw.results.verdict import Exit, Expectation, Outcome


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
        entries = [*found.known.values(), *found.known_under, *found.holding]
        unexplained = [entry for entry in entries if entry.reason.startswith(expectations.UNEXPLAINED)]
        stale = stale or bool(found.stale)
        for entry in found.stale:
            sys.stdout.write(f"{entry.file}:{entry.line}: stale: the entry for {entry.rule!r} {entry.why}\n")
        for entry in unexplained:
            sys.stdout.write(f"{entry.file}:{entry.line}: unexplained: write why {entry.rule!r} does not hold\n")
        applying = len(found.known) + len(found.known_under)
        sys.stdout.write(f"{path}: {applying} entries apply, {len(found.stale)} are stale\n")
    return (Exit.FIXED_OR_STALE if stale else Exit.OK).code


def _file_of(spec: str, imports: Sequence[str]) -> tuple[Path, dict[str, str]]:
    try:
        made = loading.load(spec, imports)
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
        path = args.file or _file_of(run.header.backend, args.imports)[0]
        text, changes = updated(path, run)
        if changes:
            with output_errors(f"write {path}", "; name another file with --file"):
                replace_file(path, text)
        sys.stdout.write("".join(f"{path}: {line}\n" for line in changes) or f"{path}: nothing to change\n")
    return Exit.OK.code


def updated(path: Path, run: Run) -> tuple[str, list[str]]:
    """Return the file's new text, and a line of text for each change.

    Known divergences are those in the file now, not those at the time of the run.
    """
    file = expectations.load(path) if path.exists() else ExpectationFile()
    rules, versions = run.header.rules, run.header.versions
    own = [entry for entry in file.entries if _concerns(entry, run)]
    known = {entry.rule: entry for entry in own if expectations.applies(entry, versions)}
    pairs = [(known[rule.id], _after(known[rule.id], run, rule)) for rule in rules if rule.id in known]
    expected = _expected(file, run)
    left = [new for _, new in pairs if new and _concerns(new, run) and expectations.applies(new, versions)]
    expected |= {entry.rule: entry for entry in left}
    new = [run.results[rule.id] for rule in rules if _is_new(run, rule, expected.get(rule.id))]
    elsewhere = [_elsewhere(own, result) for result in new]
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    text, apart = expectation_text.changed(text, file.entries, pairs)
    fresh = [_new(result, other, run.header) for result, other in zip(new, elsewhere, strict=True)]
    text = expectation_text.extended(text, [*apart, *fresh], file.shared)
    return text, list(filter(None, map(_said, pairs))) + list(map(_added, new, elsewhere))


def _concerns(entry: Expectation, run: Run) -> bool:
    """Return whether an entry is for runs under this run's condition, or for those without one if it has none."""
    return (run.header.condition or None) in (entry.condition or [None])


def _expected(file: ExpectationFile, run: Run) -> dict[str, Expectation]:
    """Return the entries of lower files, and under a condition those that concern the run without one.

    Under a condition a rule may hold that is known to be broken without it.
    """
    rules, versions, condition = [rule.id for rule in run.header.rules], run.header.versions, run.header.condition
    lower = expectations.inherited(file, rules, versions)
    if not condition:
        return lower.known
    found = lower.known | {
        entry.rule: entry for entry in file.entries if not entry.condition and expectations.applies(entry, versions)
    }
    inherited = {rule: entry for rule, entry in found.items() if run.outcome(rule) is not Outcome.PASS}
    return inherited | {entry.rule: entry for entry in lower.known_under if _concerns(entry, run)}


def _after(entry: Expectation, run: Run, rule: Rule) -> Expectation | None:
    """Return what an entry is after a run, or None if no other version is left for it."""
    outcome, fails = run.results[rule.id].outcome, _fails(run, rule)
    if (fails and entry.outcome == HOLDS) or (outcome is Outcome.PASS and entry.outcome != HOLDS):
        if len(entry.condition) > 1:
            left = [name for name in entry.condition if name != run.header.condition]
            return msgspec.structs.replace(entry, condition=left)
        when = expectations.without(entry, run.header.versions)
        return msgspec.structs.replace(entry, when=when) if when else None
    if fails and outcome not in entry.outcome:
        return msgspec.structs.replace(entry, outcome=[*entry.outcome, str(outcome)])
    return entry


def _is_new(run: Run, rule: Rule, expected: Expectation | None) -> bool:
    """Return whether a result is neither what an entry expects nor, without an entry, what the law demands."""
    outcome = run.results[rule.id].outcome
    judged = outcome is Outcome.PASS or _fails(run, rule)
    return judged and outcome not in (expected.outcome if expected else HOLDS)


def _fails(run: Run, rule: Rule) -> bool:
    outcome = run.results[rule.id].outcome
    return outcome in expectations.EXPECTABLE and (outcome is not Outcome.FAIL or rule.level is not Level.MAY)


def _said(pair: tuple[Expectation, Expectation | None]) -> str:
    before, after = pair
    now = "fails" if before.outcome == HOLDS else "holds"
    if after is None:
        return f"{before.rule} {now} now: entry removed"
    if after.condition != before.condition:
        return f"{before.rule} {now} now: entry kept under {', '.join(after.condition)}"
    if after.when != before.when:
        return f"{before.rule} {now} now: entry kept for {after.when}"
    return f"{before.rule}: outcome {after.outcome[-1]} added" if after != before else ""


def _elsewhere(entries: Iterable[Expectation], result: Result) -> Expectation | None:
    """Return the entry for the same outcome in other versions."""
    return next((entry for entry in entries if entry.rule == result.rule and result.outcome in entry.outcome), None)


def _new(result: Result, other: Expectation | None, header: Header) -> Expectation:
    name, version = next(iter(header.versions.items()))
    seen = result.detail[:200] or "the rule holds, though a lower file says that it does not"
    when = f"{name}=={version.partition('+')[0]}"
    return Expectation(
        result.rule,
        [str(result.outcome)],
        other.reason if other else expectations.UNEXPLAINED + seen,
        other.issue if other else "",
        when if expectations.is_range(when) else "",
        condition=[header.condition] if header.condition else [],
    )


def _added(result: Result, other: Expectation | None) -> str:
    return f"{result.rule}: entry added, " + (f"with the reason of line {other.line}" if other else "write its reason")
