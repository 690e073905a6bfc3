"""Print what a backend breaks today: each rule that does not hold, with what was seen and a script that shows it.

`--format issue` writes each finding as a report to the framework: program, expected, observed, versions, source.

Examples:
    hooklaw findings -k retain-grad
    hooklaw findings -k retain-grad.vs-node-prehook --format issue
"""

import argparse
import json
from collections.abc import Callable, Sequence

import msgspec

from hooklaw.backend import loading
from hooklaw.cli import say
from hooklaw.cli.options import RULES_BY, add_imports, add_selection
from hooklaw.errors import HooklawError
from hooklaw.law.rule import Level, Rule
from hooklaw.law.trace import show
from hooklaw.results.records import Result, Run
from hooklaw.results.summary import counted
from hooklaw.results.verdict import JUDGED, Outcome
from hooklaw.runner.session import Wanted, judge


class Finding(msgspec.Struct, frozen=True):
    """A rule that does not hold; an object of the JSON."""

    rule: str
    level: str
    statement: str
    outcome: str
    detail: str
    reason: str
    """The reason in the expectation file, if the divergence is known."""
    issue: str
    sources: list[str]
    versions: dict[str, str]
    program: str
    """A script in the framework's own calls that shows it."""
    expected: list[str]
    observed: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_selection(parser, f"only rules with {RULES_BY}")
    parser.add_argument("--backend", default="torch-eager", metavar="NAME[:ARG]", help="default torch-eager")
    parser.add_argument("--format", choices=[*FORMATS], default="text")
    add_imports(parser)


def main(args: argparse.Namespace) -> int:
    """Judge the rules, and print those that do not hold; the exit code is that of the run."""
    loading.resolve(args.backend)
    (session,) = judge(Wanted(backend=args.backend, imports=args.imports, selection=args.selection))
    run = session.run
    if run is None or run.interrupted:
        raise KeyboardInterrupt
    if run.header.not_run:
        raise HooklawError(f"{args.backend} was not run: {run.header.not_run}")
    say(FORMATS[args.format](run, findings_of(run)))
    return session.exit.code


def findings_of(run: Run) -> list[Finding]:
    """Return the rules that were judged and do not hold; a MAY that differs is none."""
    judged = [(rule, run.results[rule.id]) for rule in run.header.rules if rule.id in run.results]
    return [
        _finding(rule, result, run)
        for rule, result in judged
        if result.outcome in JUDGED and result.outcome is not Outcome.PASS and rule.level is not Level.MAY
    ]


def _finding(rule: Rule, result: Result, run: Run) -> Finding:
    entry = result.expectation
    return Finding(
        rule.id,
        str(rule.level),
        rule.statement,
        str(result.outcome),
        result.detail,
        entry.reason if entry else "",
        entry.issue if entry else "",
        [f"{source} {source.url}".rstrip() for source in rule.sources],
        run.header.versions,
        result.program,
        [*map(show, result.expected), *(f"{check.label}: {check.expected}" for check in result.checks)],
        [*map(show, result.observed), *(f"{check.label}: {check.observed}" for check in result.checks)],
    )


def _text(run: Run, found: Sequence[Finding]) -> str:
    lines: list[str] = []
    for each in found:
        lines += [f"{each.rule} ({each.level}): {each.statement}", f"  {each.outcome}: {each.detail}"]
        lines += (
            [f"  known: {each.reason} {each.issue}".rstrip()] if each.reason else ["  known to no expectation file"]
        )
    name = run.header.backend
    lines.append(f"{counted(len(found), 'finding')} on {name} ({run.header.version})")
    hint = [f"`hooklaw findings --backend {name} --format issue -k RULE` writes one for its framework"] if found else []
    return "\n".join([*lines, *hint, ""])


def _as_json(run: Run, found: Sequence[Finding]) -> str:
    del run  # each finding has the versions
    return json.dumps([msgspec.to_builtins(each) for each in found], indent=1) + "\n"


def _issues(run: Run, found: Sequence[Finding]) -> str:
    if not found:
        return f"every rule that was judged holds on {run.header.backend} ({run.header.version})\n"
    return "\n---\n\n".join(_as_issue(each) for each in found)


def _as_issue(each: Finding) -> str:
    """Return a report that a maintainer of the framework can read without knowing hooklaw."""
    versions = [f"- {name} {version}" for name, version in each.versions.items()]
    parts = [
        [f"# {_title(each)}"],
        ["## The documentation", "", each.statement, "", *(f"- {source}" for source in each.sources)],
        ["## Program", "", "```python", each.program.rstrip() or "# no script can be written", "```"],
        ["## Expected", "", *_fenced(each.expected)],
        ["## Observed", "", *_fenced([*each.observed, f"{each.outcome}: {each.detail}"])],
        ["## Why", "", f"{each.reason[:1].upper()}{each.reason[1:]}."] if each.reason else [],
        ["## Known as", "", each.issue] if each.issue else [],
        ["## Versions", "", *versions],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _title(each: Finding) -> str:
    text = each.statement.rstrip(".")
    return f"This does not hold: {text[:1].lower()}{text[1:]}" if text[1:2].islower() else f"This does not hold: {text}"


def _fenced(lines: Sequence[str]) -> list[str]:
    return ["```", *lines, "```"]


FORMATS: dict[str, Callable[[Run, Sequence[Finding]], str]] = {"text": _text, "json": _as_json, "issue": _issues}
