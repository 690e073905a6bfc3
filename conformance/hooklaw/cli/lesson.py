"""What `hooklaw explain` teaches beyond the law: why it matters, neighbours, known divergences, and folklore."""

import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from hooklaw.folklore import Claim, about
from hooklaw.law.rule import Registered, Rule, Source
from hooklaw.results.expectations import everywhere
from hooklaw.results.verdict import Expectation

NEAREST = 6
"""How many neighbours are shown."""
WIDE = 100


class Lesson(NamedTuple):
    """What is known about a rule."""

    matters: str
    """Why the rules of its chapter matter: what goes wrong where they do not hold; empty for a rule of one's own."""
    why: str
    """The second paragraph of its docstring: the step from the sentence to the law, or the reading that was taken."""
    neighbours: list[Rule]
    """Rules of the same sentence, then of the same source, then of the same chapter."""
    divergences: dict[str, list[Expectation]]
    """The known divergences by backend."""
    folklore: list[Claim]
    """What people say and the rule decides."""

    def as_text(self) -> list[str]:
        """Return the lines that follow what happened."""
        return [*_neighbours(self.neighbours), *_divergences(self.divergences), *_folklore(self.folklore)]

    def as_builtins(self) -> dict[str, object]:
        """Return the lesson as JSON has it."""
        return {
            "matters": self.matters,
            "why": self.why,
            "neighbours": [rule.id for rule in self.neighbours],
            "divergences": {name: msgspec.to_builtins(entries) for name, entries in self.divergences.items()},
            "folklore": [{"id": claim.id, "verdict": claim.verdict, "claim": claim.claim} for claim in self.folklore],
        }


def lesson(found: Registered, rules: Sequence[Rule]) -> Lesson:
    """Return what is known about a rule; its neighbours are among these rules."""
    paragraphs = inspect.cleandoc(found.function.__doc__ or "").split("\n\n")[1:]
    why = " ".join(" ".join(paragraphs).split())
    matters = why_chapters_matter().get(found.rule.chapter, "")
    near, known = neighbours(found.rule, rules), everywhere(found.rule.id)
    return Lesson(matters, why, near, known, about(found.rule.id))


@cache
def why_chapters_matter() -> dict[str, str]:
    """Return why the rules of each chapter matter, in a sentence."""
    return tomllib.loads((files("hooklaw.rules") / "why.toml").read_text(encoding="utf-8"))


def neighbours(rule: Rule, rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that are nearest to a rule, the nearest first."""
    near = {other.id: _nearness(rule, other) for other in rules if other.id != rule.id}
    others = [other for other in rules if near.get(other.id, (0, 0))[0]]
    return sorted(others, key=lambda other: near[other.id], reverse=True)[:NEAREST]


def _nearness(rule: Rule, other: Rule) -> tuple[int, int]:
    """Return how much rules share of their sources, and of their ids; zeros if they are strangers."""
    shared = _shared(rule, other)
    return (shared, len({*re.split(r"[.-]", rule.id)} & {*re.split(r"[.-]", other.id)})) if shared else (0, 0)


def _shared(rule: Rule, other: Rule) -> int:
    pairs = [(one, two) for one in rule.sources for two in other.sources if _place(one) == _place(two)]
    if any({*one.sentences} & {*two.sentences} for one, two in pairs):
        return 3
    return 2 if pairs else int(rule.chapter == other.chapter)


def _place(source: Source) -> tuple[str, str, str]:
    return source.kind, source.name, source.section


def _neighbours(rules: Iterable[Rule]) -> Iterator[str]:
    for number, rule in enumerate(rules):
        yield from ["", "  neighbours"] if number == 0 else []
        yield f"    {rule.id}: {rule.statement}"


def _divergences(by_backend: dict[str, list[Expectation]]) -> Iterator[str]:
    yield from ["", "  known divergences"] if by_backend else []
    for name, entries in by_backend.items():
        for entry in entries:
            where = ", ".join(filter(None, [entry.when, *(f"under {each}" for each in entry.condition)]))
            said = f"{name}{f' ({where})' if where else ''}: {'/'.join(entry.outcome)}: {entry.reason} {entry.issue}"
            yield from wrapped(said.rstrip())


def _folklore(claims: Iterable[Claim]) -> Iterator[str]:
    for number, claim in enumerate(claims):
        yield from ["", "  what people say"] if number == 0 else []
        yield from wrapped(f"{claim.verdict}: {claim.claim}  ({claim.id}, {claim.source})")
        yield from wrapped(claim.answer, "      ") if claim.verdict.refutes and claim.answer else []


def wrapped(text: str, indent: str = "    ") -> list[str]:
    """Return a text in indented lines that are not too wide."""
    return textwrap.wrap(
        text, WIDE, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
