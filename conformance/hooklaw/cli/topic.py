"""What `hooklaw explain` prints of what is not one rule: a question, a chapter, a capability, or some words."""

import json
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hooklaw.backend.capabilities import Capability
from hooklaw.cli.questions import Page, find_pages
from hooklaw.errors import UnknownRuleError
from hooklaw.law.collection import load_rules, search_rules
from hooklaw.law.rule import Registered, Rule

MOST = 20
"""How many rules are printed of those that words find; a chapter is printed whole."""


class Topic(NamedTuple):
    """What was found: one rule, or pages and rules under a heading."""

    asked: str
    heading: str
    rules: list[Rule]
    pages: list[Page]
    rule: Registered | None = None

    def as_json(self) -> str:
        """Return the pages and rules as JSON."""
        found = {
            "asked": self.asked,
            "pages": [{"page": page.name, "question": page.question, "rules": page.rules} for page in self.pages],
            "rules": msgspec.to_builtins(self.rules),
        }
        return json.dumps(found, indent=1) + "\n"

    def as_text(self) -> str:
        """Return the answer of each page, then the rules."""
        lines = [line for page in self.pages for line in _page(page)]
        shown = self.rules if self.heading.startswith("chapter") else self.rules[:MOST]
        lines += [self.heading, *map(_line, shown)] if shown else []
        if len(shown) < len(self.rules):
            lines.append(f"  and {len(self.rules) - len(shown)} more: hooklaw list {self.asked}")
        return "\n".join([*lines, "", "`hooklaw explain ID` prints a rule whole and runs it"]) + "\n"


def find_topic(words: Sequence[str]) -> Topic:
    """Return what the words name: a rule, a chapter, a capability or a mutant, or what has all of the words.

    UnknownRuleError suggests what was meant if there is neither a page nor a rule.
    """
    asked = " ".join(words)
    known = load_rules()
    if asked in known:
        return Topic(asked, "", [], [], known[asked])
    pages = find_pages(words)
    heading, named = _named(asked, [found.rule for found in known.values()])
    if named:
        return Topic(asked, heading, named, pages)
    try:
        found = search_rules(words)
    except UnknownRuleError:
        if not pages:
            raise
        found = []
    if len(found) == 1 and not pages:
        return Topic(asked, "", [], [], found[0])
    rules = [known[name].rule for page in pages for name in page.rules if name in known] or [
        each.rule for each in found
    ]
    return Topic(asked, "the rules:" if pages else f"{len(rules)} rules have {asked!r}:", rules, pages)


def _named(name: str, rules: Sequence[Rule]) -> tuple[str, list[Rule]]:
    """Return the rules of the chapter, the capability or the mutant of this name, with a heading."""
    if chapter := [rule for rule in rules if rule.chapter == name]:
        return f"chapter {name}: {len(chapter)} rules", chapter
    if needing := [rule for rule in rules if name in rule.needs]:
        return f"capability {name}: {Capability(name).promise}; {len(needing)} rules need it:", needing
    catching = [rule for rule in rules if name in rule.mutants]
    return f"mutant {name}: {len(catching)} rules catch it, `hooklaw mutants -k {name}` runs them:", catching


def _page(page: Page) -> list[str]:
    whole = f"  `hooklaw docs {page.name}` prints this page with a program and what it prints."
    return [page.question, "", *textwrap.indent(page.answer, "  ").splitlines(), "", whole, ""]


def _line(rule: Rule) -> str:
    return f"  {rule.level:6} {rule.id:52} {rule.statement}"
