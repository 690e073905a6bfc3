"""Readings: for each sentence of the documentation the rules that follow from it, or why there is none."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Literal, TypeVar

import msgspec

from hooklaw.errors import DocumentationError

FOLDER = files("hooklaw.sources") / "readings"
REASONS = "reasons.toml"
ALL: Literal["all"] = "all"
Kind = TypeVar("Kind")
_RANGE = re.compile(r"(\d+)-(\d+)")


class Implied(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence that follows from rules, though none of them states it alone."""

    sentence: int
    rules: list[str]


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The readings of one source's sentences, beyond those that rules name themselves."""

    implied: list[Implied] = []
    no_rule: dict[str, list[int | str] | Literal["all"]] = {}
    """Ordinals, or ranges such as ``"3-9"``, by the class of the reason; ``"all"`` is every sentence that is left."""
    because: dict[int, str] = {}
    """A reason of its own by ordinal."""

    def reasons(self) -> Iterator[tuple[int, str]]:
        """Yield each ordinal that is said to have no rule, with its class or its own reason."""
        for name, ordinals in self.no_rule.items():
            if ordinals != ALL:
                yield from ((ordinal, name) for ordinal in _ordinals(ordinals))
        yield from self.because.items()

    @property
    def rest(self) -> str:
        """The class of the sentences that have no other reading, or an empty string."""
        return next((name for name, ordinals in self.no_rule.items() if ordinals == ALL), "")


class Reasons(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a sentence, or an object, has no rule."""

    classes: dict[str, str]
    """The sentence that explains a class of reasons, by its name."""
    elsewhere: dict[str, str] = {}
    """Beginnings of names of objects whose docstrings mean something else by these words, each with the reason."""


class Readings(msgspec.Struct, frozen=True):
    """All readings by the key of their source, and the classes of reasons."""

    sources: dict[str, Reading]
    reasons: Reasons

    def elsewhere(self, name: str) -> str:
        """Return why an object is not counted, or an empty string."""
        return next((why for start, why in self.reasons.elsewhere.items() if name.startswith(start)), "")


@cache
def load_readings() -> Readings:
    """Return the readings that come with hooklaw."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir() if file.name.endswith(".toml")}
    return parse(texts)


def parse(texts: Mapping[str, str]) -> Readings:
    """Return the readings of files by their names; DocumentationError says what is wrong in which file."""
    reasons = _convert(REASONS, texts.get(REASONS, ""), Reasons)
    sources: dict[str, Reading] = {}
    for name in sorted({*texts} - {REASONS}):
        for key, reading in _convert(name, texts[name], dict[str, Reading]).items():
            if key in sources:
                raise DocumentationError(f"readings/{name}: {key!r} has readings in another file too: keep one of them")
            sources[key] = _checked(reading, f"readings/{name}: {key}")
    return Readings(sources, reasons)


def _convert(name: str, text: str, kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(tomllib.loads(text), kind, str_keys=True)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise DocumentationError(
            f"readings/{name}: {error}; `hooklaw docs coverage` shows how one is written"
        ) from error


def _checked(reading: Reading, where: str) -> Reading:
    for name, ordinals in reading.no_rule.items():
        for each in () if ordinals == ALL else ordinals:
            if isinstance(each, str) and not _RANGE.fullmatch(each):
                raise DocumentationError(f'{where}: {name} has {each!r}: write an ordinal, or a range such as "3-9"')
    for each in reading.implied:
        if not each.rules:
            raise DocumentationError(f"{where}: sentence {each.sentence} is implied by no rule: name one or more")
    return reading


def _ordinals(written: list[int | str]) -> Iterator[int]:
    for each in written:
        first, _, last = str(each).partition("-")
        yield from range(int(first), int(last or first) + 1)
