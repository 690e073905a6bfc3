"""Print one rule: the law, its source, the program, what really happens on a backend, and what else is known of it.

Of a property of packers (its id begins with "packer.") the law and the program are printed; `hooklaw packer` judges.
Of a chapter, a capability, a mutant or some words the rules are listed, and of a question its page is shown.

Examples:
    hooklaw explain tensor-hook.order.registration
    hooklaw explain in which order do my hooks fire
    hooklaw explain order
"""

import argparse
import inspect
import json
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import msgspec

from hooklaw.backend import loading
from hooklaw.cli import complain, say
from hooklaw.cli.lesson import Lesson, lesson, wrapped
from hooklaw.cli.options import add_imports
from hooklaw.cli.topic import Topic, find_topic
from hooklaw.errors import HooklawError
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Registered, Rule, Source
from hooklaw.law.trace import Event, show
from hooklaw.packing.example import PREFIX, shown
from hooklaw.results.records import Result, Run
from hooklaw.results.text import printable
from hooklaw.results.verdict import Exit, Verdict, as_known, describe, worst
from hooklaw.runner.session import Session, Wanted, judge
from hooklaw.sources import load_table
from hooklaw.sources.quoting import quoted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="RULE",
        help="the id of a rule or of a property of packers, a chapter, a capability, or the words of a question",
    )
    parser.add_argument("--backend", action="append", metavar="NAME[:ARG]", help="repeatable; default torch-eager")
    add_imports(parser)
    parser.add_argument("--expectations", default="", metavar="FILE", help="instead of the backend's own file")
    parser.add_argument("--format", choices=["text", "json"], default="text")


def main(args: argparse.Namespace) -> int:
    """Print the law, run it, print what was seen; the exit code is that of a run of this one rule.

    What is no rule alone is explained by its page, or by a list of its rules, and nothing is run.
    """
    if len(args.words) == 1 and args.words[0].startswith(PREFIX):
        return _property(args.words[0], args)
    topic = find_topic(args.words)
    if topic.rule is None:
        return _topic(topic, args)
    found = topic.rule
    specs: list[str] = args.backend or ["torch-eager"]
    for spec in specs:
        loading.resolve(spec)
    sessions = [_try(spec, found, args) for spec in specs]
    runs = [session.run for session in sessions if session.run]
    known = lesson(found, [each.rule for each in load_rules().values()])
    say(_json(found.rule, runs, known) if args.format == "json" else _text(found, runs, known))
    return worst(session.exit for session in sessions).code


def _topic(topic: Topic, args: argparse.Namespace) -> int:
    if args.backend or args.imports:
        raise HooklawError(f"{topic.asked!r} is not one rule: leave {_option(args)} out, or name one of its rules")
    say(topic.as_json() if args.format == "json" else topic.as_text())
    return Exit.OK.code


def _option(args: argparse.Namespace) -> str:
    """Return the option that a rule alone has."""
    return "--backend" if args.backend else "--import"


def _property(property_id: str, args: argparse.Namespace) -> int:
    if args.backend or args.imports:
        said = f"leave {_option(args)} out, `hooklaw packer -k` judges it"
        raise HooklawError(f"{property_id} is a property of packers: {said}")
    rule, program = shown(property_id)
    if args.format == "json":
        text = json.dumps({**msgspec.to_builtins(rule), "program": program}, indent=1)
    else:
        lines = [*_law(rule, "nothing in particular"), *textwrap.indent(program, " " * 4).splitlines()]
        text = "\n".join(lines)
    say(text + "\n")
    return Exit.OK.code


def _try(spec: str, found: Registered, args: argparse.Namespace) -> Session:
    file = args.expectations and str(Path(args.expectations).absolute())
    wanted = Wanted(backend=spec, imports=args.imports, expectations=file, only=found.rule.id, allow_not_run=True)
    try:
        (session,) = judge(wanted)
    except HooklawError as error:
        complain(error)
        return Session(None, Exit.BROKEN)
    if session.run and session.run.header.not_run:  # a rule that is unsupported is explained, this one is not
        return Session(session.run, Exit.BROKEN)
    return session


def _json(rule: Rule, runs: list[Run], known: Lesson) -> str:
    results = {run.header.backend: msgspec.to_builtins(run.results[rule.id]) for run in runs if rule.id in run.results}
    return json.dumps({**msgspec.to_builtins(rule), **known.as_builtins(), "results": results}, indent=1) + "\n"


def _text(found: Registered, runs: list[Run], known: Lesson) -> str:
    law = [*_law(found.rule, "nothing beyond the core verbs", known.why, known.matters), *_program(found)]
    happened = (printable(line) for run in runs for line in _happened(found.rule, run))
    return "\n".join([*law, *happened, *known.as_text()]) + "\n"


def _law(rule: Rule, no_needs: str, why: str = "", matters: str = "") -> list[str]:
    lines = [f"{rule.id}  ({rule.level}, {rule.basis}, chapter {rule.chapter})", ""]
    lines += [*wrapped(rule.statement, "  "), *wrapped(why, "  ")]
    lines += ["", "  why it matters", *wrapped(matters, "    ")] if matters else []
    lines += ["", "  stated in", *(line for source in rule.sources for line in _source(source))]
    lines += _how_to_count(rule)
    lines += ["  needs", "    " + (", ".join(rule.needs) or no_needs)]
    lines += ["  catches", "    " + ", ".join(rule.mutants)] if rule.mutants else []
    lines += ["  not tried under"] if rule.except_under else []
    lines += [f"    {condition}: {reason}" for condition, reason in rule.except_under.items()]
    return [*lines, "  as a program"]


def _source(source: Source) -> Iterator[str]:
    """Yield the place, and of the installed torch's docstring the sentences themselves, of which no text is kept."""
    yield f"    {source}  {source.url}".rstrip()
    for words in quoted(source).values():
        yield from wrapped(f'"{words}"', "      ")


def _how_to_count(rule: Rule) -> list[str]:
    """Return where a reader can see which sentence of a docstring is meant: the text itself is not kept."""
    named = (source for source in rule.sources if source.sentences and source.kind == "docstring")
    names = [source.name for source in named if not quoted(source)]
    version = load_table().torch
    return (
        [f"    `python -m hooklaw.sources {' '.join(names)}` numbers them; torch {version} is meant"] if names else []
    )


def _program(found: Registered) -> list[str]:
    function = inspect.unwrap(found.function)
    source = textwrap.dedent(inspect.getsource(function)).splitlines()
    start = next(number for number, line in enumerate(source) if line.startswith("def "))
    return [f"    {line}".rstrip() for line in source[start:]]


def _happened(rule: Rule, run: Run) -> list[str]:
    result = run.results.get(rule.id)
    head = run.header
    lines = ["", f"  on {head.backend} ({head.version})"]
    if not result:
        return [*lines, "    the result was lost"]
    word = describe(result.outcome, rule.level, run.verdict(rule), result.expectation)
    lines.append(f"    {word}" + (f": {result.detail}" if result.detail else ""))
    if result.expectation:
        entry = result.expectation
        another = run.verdict(rule) is Verdict.REGRESSION
        lines.append(
            f"    known: {as_known(entry)}" if another else f"    known since: {entry.reason} {entry.issue}".rstrip()
        )
    return [*lines, *_lanes(result), *_checks(result)]


def _lanes(result: Result) -> list[str]:
    pairs = list(zip_longest(result.expected, result.observed))
    if not pairs:
        return []
    wide = max(len(_shown(expected)) for expected, _ in pairs)
    lines = [f"    {'expected':{max(wide, 8)}}  observed"]
    for place, (expected, got) in enumerate(pairs):
        mark = "   <-- differs" if place == result.difference else ""
        lines.append(f"    {_shown(expected):{max(wide, 8)}}  {_shown(got)}{mark}")
    return lines


def _shown(event: Event | None) -> str:
    return show(event) if event else "-"


def _checks(result: Result) -> list[str]:
    return [
        f"    {check.label}: {check.observed}" + ("" if check.held else f"   <-- should be {check.expected}")
        for check in result.checks
    ]
