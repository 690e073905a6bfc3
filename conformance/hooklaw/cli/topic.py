"""What `hooklaw explain` prints of what is not one rule: a question, a chapter, a capability, or some words."""

import json
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hooklaw.backend.capabilities import Capability
from hooklaw.cli.questions import Page, find_pages, telling
from hooklaw.errors import UnknownRuleError
from hooklaw.law.collection import catalogue, load_rules, search_rules
from hooklaw.law.rule import Registered, Rule
from hooklaw.packing.example import PREFIX

QUESTION = 3
"""How many telling words make a question; where there are fewer, a word that is nowhere is a mistake."""
NEAREST = 8
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
        properties = [name for page in self.pages for name in page.rules if name.startswith(PREFIX)]
        lines += ["properties of packers:", *(f"  {name}" for name in properties)] if properties else []
        if len(shown) < len(self.rules):
            lines.append(f"  and {len(self.rules) - len(shown)} more: hooklaw list {self.asked}")
        return "\n".join([*lines, "", "`hooklaw explain ID` prints a rule whole and runs it"]) + "\n"


def find_topic(words: Sequence[str]) -> Topic:
    """Return what the words name: a rule, a chapter, a capability or a mutant, or what has all of the words.

    UnknownRuleError suggests what was meant if there is neither a page nor a rule.
    """
    words = " ".join(words).split()
    asked = " ".join(words)
    known = load_rules()
    if asked in known:
        return Topic(asked, "", [], [], known[asked])
    pages = find_pages(words)
    heading, named = _named(asked, [found.rule for found in known.values()])
    if named:
        return Topic(asked, heading, named, pages)
    if pages:
        return Topic(asked, "the rules:", [known[name].rule for name in pages[0].rules if name in known], pages)
    asking = telling(words) or words
    heading, found = _found(asking)
    return Topic(" ".join(asking), heading, [each.rule for each in found], [], found[0] if len(found) == 1 else None)


def _found(asking: Sequence[str]) -> tuple[str, list[Registered]]:
    """Return the rules that have all of the words, or of a question the most, with a heading."""
    try:
        found = search_rules(asking)
    except UnknownRuleError:
        found = catalogue().nearest(asking) if len(asking) >= QUESTION else []
        if not found:
            raise
        return "no rule has all of these words; the nearest:", found[:NEAREST]
    return f"{len(found)} rules have {' '.join(asking)!r}:", found


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
