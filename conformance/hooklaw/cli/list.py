"""List the rules: id, level and statement.

Words that are given must all be in a rule: in its id, chapter, capabilities, mutants or statement.

Examples:
    hooklaw list view
    hooklaw list -k "order and MUST" --format markdown
"""

import argparse
import json
from collections.abc import Sequence

import msgspec

from hooklaw.cli import say
from hooklaw.cli.options import RULES_BY, add_selection
from hooklaw.errors import UnknownRuleError, did_you_mean
from hooklaw.law.collection import load_rules, rule_places, search_rules
from hooklaw.law.rule import Rule
from hooklaw.law.selection import Catalogue
from hooklaw.results.summary import counted
from hooklaw.results.verdict import Exit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only rules with all of these words in id, chapter, statement, ..."
    )
    add_selection(parser, f"as in `hooklaw run`: {RULES_BY}")
    parser.add_argument("--format", choices=["text", "json", "markdown"], default="text")
    parser.add_argument("--chapter", action="append", help="only rules of this chapter; repeatable")


def main(args: argparse.Namespace) -> int:
    """Print the rules."""
    rules = _wanted(args.words, args.selection)
    if args.chapter:
        _refuse_unknown(args.chapter, rules)
        rules = [rule for rule in rules if rule.chapter in args.chapter]
    say({"text": _text, "json": _json, "markdown": _markdown}[args.format](rules))
    return Exit.OK.code


def _wanted(words: Sequence[str], selection: str) -> list[Rule]:
    found = search_rules(words) if words else [*load_rules().values()]
    return [each.rule for each in Catalogue(found, rule_places).select(selection)]


def _refuse_unknown(wanted: Sequence[str], rules: Sequence[Rule]) -> None:
    chapters = sorted({rule.chapter for rule in rules})
    for chapter in wanted:
        if chapter not in chapters:
            hint = did_you_mean(chapter, chapters, f"choose from {', '.join(chapters)}")
            raise UnknownRuleError(f"no chapter has the name {chapter!r}: {hint}")


def _text(rules: Sequence[Rule]) -> str:
    lines: list[str] = []
    chapter = ""
    for rule in rules:
        if rule.chapter != chapter:
            chapter = rule.chapter
            lines += ["", chapter]
        lines.append(f"  {rule.level:6} {rule.id:52} {rule.statement}")
    chapters = counted(len({rule.chapter for rule in rules}), "chapter")
    return "\n".join(lines).lstrip("\n") + f"\n\n{counted(len(rules), 'rule')} in {chapters}\n"


def _json(rules: Sequence[Rule]) -> str:
    return json.dumps([msgspec.to_builtins(rule) for rule in rules], indent=1) + "\n"


def _markdown(rules: Sequence[Rule]) -> str:
    rows = [f"| `{rule.id}` | {rule.level} | {rule.statement.replace('|', '&#124;')} |" for rule in rules]
    return "\n".join(["| rule | level | law |", "|---|---|---|", *rows]) + "\n"
