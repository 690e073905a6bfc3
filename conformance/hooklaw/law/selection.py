"""Finding rules, properties and mutants by an expression or by words: the same for every verb.

An expression has the grammar of pytest's -k: the grammar of Python's own and, or, not.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import log
from typing import Generic, NamedTuple, TypeVar

from hooklaw.errors import HooklawError, UnknownRuleError, did_you_mean
from hooklaw.law.rule import Rule

Item = TypeVar("Item")
Places = Sequence[Sequence[str]]
"""Where a word is looked for: groups of texts, of which an earlier group counts before a later one."""

NEAR = 0.7
"""What is rated less, against the best, is not near."""
_WORD = re.compile(r"[\w:+\-.\[\]\\/]+")
_OPERATORS = {"and", "or", "not"}
_GRAMMAR = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Name, ast.Load)
_SHORT = 3
"""The letters of a word that is too short to have lost anything in its plural, or to be suggested."""


def places(rule: Rule, *names: str) -> Places:
    """Return where a word is looked for in a rule: in its names, its capabilities, then its mutants and statement."""
    return [rule.id, rule.chapter, str(rule.level), *names], rule.needs, [*rule.mutants, rule.statement]


class Kind(NamedTuple):
    """What is looked for, in the words of an error."""

    noun: str
    listed_by: str
    error: type[HooklawError] = UnknownRuleError


RULES = Kind("rule", "`hooklaw list` shows all ids, chapters and levels")


class Catalogue(Generic[Item]):
    """Rules, properties or mutants, and where a word is looked for in each."""

    def __init__(self, items: Iterable[Item], where: Callable[[Item], Places], kind: Kind = RULES) -> None:
        """Read the places of each item; the last of all are its names without hyphens, to find DataParallel."""
        self.items = [*items]
        groups = [where(item) for item in self.items]
        self._texts = {text for each in groups for texts in each for text in texts}
        self._groups = [[*map(_lowered, each), [_squeezed(name) for name in each[0]]] for each in groups]
        self._kind = kind

    def select(self, *expressions: str) -> list[Item]:
        """Return the items that one of the expressions matches, or all items if there is no expression.

        A word matches the items that have it in a name; if no item has, those that have it in a capability; and if
        none has, those that have it in a mutant's name or in the statement. Raises the kind's error, with a
        suggestion, for a word that is nowhere, and UnknownRuleError for a malformed expression.
        """
        wanted = [Expression(text) for text in expressions if text.strip()]
        found = {word: self._first(word) for each in wanted for word in each.words}
        chosen = (each.matching(found, set(range(len(self.items)))) for each in wanted)
        return self._at(set[int]().union(*chosen)) if wanted else self.items

    def search(self, words: Iterable[str]) -> list[Item]:
        """Return the items in which all of the words are, wherever; raise the kind's error if there are none."""
        found = {word: self._anywhere(word) for word in words}
        nowhere = [word for word, where in found.items() if not where]
        if nowhere:
            raise self.unknown(nowhere[0])
        both = set.intersection(*found.values()) if found else set[int]()
        if not both:
            raise self._kind.error(f"no {self._kind.noun} has all of the words {', '.join(found)}: leave some out")
        return self._at(both)

    def nearest(self, words: Iterable[str]) -> list[Item]:
        """Return the items that have most of these words, the best first; a word that few items have counts more."""
        rates, counts = defaultdict[int, float](float), Counter[int]()
        for word in words:
            found = self._anywhere(word)
            counts.update(found)
            for number in found:
                rates[number] += log(len(self.items) / len(found))
        best = max(rates.values(), default=0)
        near = [number for number, rate in rates.items() if counts[number] > 1 and rate > best * NEAR]
        return [self.items[number] for number in sorted(near, key=lambda number: -rates[number])]

    def unknown(self, word: str) -> HooklawError:
        """Return the error for a word that is nowhere."""
        parts = {part for text in self._texts for part in [text, *re.split(r"[^\w-]+", text)] if len(part) > _SHORT}
        what = "has the id" if "." in word else "matches"
        hint = did_you_mean(word, sorted(parts), self._kind.listed_by)
        return self._kind.error(f"no {self._kind.noun} {what} {word!r}: {hint}")

    def _first(self, word: str) -> set[int]:
        """Return the numbers of the items that have a word in the first group of places that has it at all."""
        found = next(filter(None, self._by_group(word)), None)
        if found is None:
            raise self.unknown(word)
        return found

    def _anywhere(self, word: str) -> set[int]:
        return set[int]().union(*self._by_group(_singular(word)))

    def _by_group(self, word: str) -> list[set[int]]:
        """Return for each group of places the numbers of the items that have a word there."""
        low, last = word.lower(), len(self._groups[0]) - 1 if self._groups else -1
        forms = [low] * last + [_squeezed(word)]
        return [
            {number for number, each in enumerate(self._groups) if any(form in text for text in each[group])}
            for group, form in enumerate(forms)
        ]

    def _at(self, numbers: set[int]) -> list[Item]:
        return [item for number, item in enumerate(self.items) if number in numbers]


class Expression:
    """Words that are joined by and, or, not and parentheses."""

    def __init__(self, text: str) -> None:
        """Read the expression; UnknownRuleError if it is malformed."""
        self.words: list[str] = []
        named = _WORD.sub(self._as_name, text).strip()
        try:
            tree = ast.parse(named, mode="eval").body
        except SyntaxError:
            tree = None
        if tree is None or not all(isinstance(part, _GRAMMAR) for part in ast.walk(tree)):
            raise UnknownRuleError(
                f"Wrong expression passed to '-k': {text}: join words by 'and', 'or', 'not' and parentheses"
            )
        self._tree = tree

    def _as_name(self, found: re.Match[str]) -> str:
        if found[0] in _OPERATORS:
            return found[0]
        self.words.append(found[0])
        return f"_{len(self.words) - 1}"

    def matching(self, found: dict[str, set[int]], everything: set[int]) -> set[int]:
        """Return the numbers that match, given those of each word."""

        def of(tree: ast.expr) -> set[int]:
            match tree:
                case ast.BoolOp(ast.And(), values):
                    return set.intersection(*map(of, values))
                case ast.BoolOp(_, values):
                    return set.union(*map(of, values))
                case ast.UnaryOp(_, operand):
                    return everything - of(operand)
                case ast.Name(name):
                    return found[self.words[int(name[1:])]]
                case _:
                    raise TypeError(tree)

        return of(self._tree)


def _lowered(texts: Iterable[str]) -> list[str]:
    return [text.lower() for text in texts]


def _squeezed(text: str) -> str:
    return re.sub("[-_]", "", text.lower())


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > _SHORT and not word.endswith("ss") else word
