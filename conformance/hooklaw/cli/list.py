"""List the rules: id, level and statement."""

import argparse
import json
import sys
from collections.abc import Sequence

import msgspec

from hooklaw.errors import UnknownRuleError
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Rule
from hooklaw.results.verdict import Exit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--format", choices=["text", "json", "markdown"], default="text")
    parser.add_argument("--chapter", action="append", help="only rules of this chapter; repeatable")


def main(args: argparse.Namespace) -> int:
    """Print the rules."""
    rules = [found.rule for found in load_rules().values()]
    if args.chapter:
        _refuse_unknown(args.chapter, rules)
        rules = [rule for rule in rules if rule.chapter in args.chapter]
    sys.stdout.write({"text": _text, "json": _json, "markdown": _markdown}[args.format](rules))
    return Exit.OK.code


def _refuse_unknown(wanted: Sequence[str], rules: Sequence[Rule]) -> None:
    chapters = sorted({rule.chapter for rule in rules})
    for chapter in wanted:
        if chapter not in chapters:
            raise UnknownRuleError(f"no chapter has the name {chapter!r}: choose from {', '.join(chapters)}")


def _text(rules: Sequence[Rule]) -> str:
    lines: list[str] = []
    chapter = ""
    for rule in rules:
        if rule.chapter != chapter:
            chapter = rule.chapter
            lines += ["", chapter]
        lines.append(f"  {rule.level:6} {rule.id:52} {rule.statement}")
    chapters = len({rule.chapter for rule in rules})
    return "\n".join(lines).lstrip("\n") + f"\n\n{len(rules)} rules in {chapters} chapters\n"


def _json(rules: Sequence[Rule]) -> str:
    return json.dumps([msgspec.to_builtins(rule) for rule in rules], indent=1) + "\n"


def _markdown(rules: Sequence[Rule]) -> str:
    rows = [f"| `{rule.id}` | {rule.level} | {rule.statement.replace('|', '&#124;')} |" for rule in rules]
    return "\n".join(["| rule | level | law |", "|---|---|---|", *rows]) + "\n"
