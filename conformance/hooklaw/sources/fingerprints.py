"""Fingerprints of sentences, by which a sentence is found again without keeping its text."""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256

from hooklaw.sources.sentences import sentences

DIGITS = 10
"""Hexadecimal digits of a fingerprint: of ten thousand sentences, two agree by chance once in 20,000 tables."""


class Standing(StrEnum):
    """Where a sentence of the kept table stands in another version of its source."""

    SAME = "same"
    MOVED = "moved"
    GONE = "changed or gone"


def fingerprint(sentence: str) -> str:
    """Return the fingerprint of a sentence as `sentences` returns it."""
    return sha256(" ".join(sentence.split()).encode()).hexdigest()[:DIGITS]


def fingerprints(text: str) -> list[str]:
    """Return the fingerprints of the sentences of a text, in their order."""
    return [fingerprint(sentence) for sentence in sentences(text)]


def standing(ordinal: int, kept: Sequence[str], found: Sequence[str]) -> tuple[Standing, int]:
    """Return where the sentence of this ordinal stands among the fingerprints found, and its ordinal there or 0."""
    mark = kept[ordinal - 1]
    if found[ordinal - 1 : ordinal] == [mark]:
        return Standing.SAME, ordinal
    return (Standing.MOVED, found.index(mark) + 1) if mark in found else (Standing.GONE, 0)
