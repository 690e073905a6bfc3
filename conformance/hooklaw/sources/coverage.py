"""Coverage: where each sentence of a version of the documentation stands towards the rules."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum

import msgspec

from hooklaw.sources.answers import Answer, Answers
from hooklaw.sources.fingerprints import fingerprint
from hooklaw.sources.sentences import sentences


class Status(StrEnum):
    """Where a sentence stands."""

    COVERED = "covered"
    NO_RULE = "no rule"
    UNCOVERED = "uncovered"
    VANISHED = "vanished"


class Sentence(msgspec.Struct, frozen=True):
    """A sentence of a source: in the version that was read or, if it has vanished, in the kept table."""

    source: str
    ordinal: int
    status: Status
    rules: tuple[str, ...] = ()
    """The rules that answer it; of an uncovered sentence those of the one whose place it took."""
    reason: str = ""
    """The class of the reason why it has no rule, or a reason of its own."""
    kept: int = 0
    """Its ordinal in the kept table, 0 if it is not there."""
    instead_of: int = 0
    """The ordinal in the kept table of the sentence whose place it took, or 0."""
    text: str = ""
    """Its words in the version that was read, which are not kept."""


class Drift(StrEnum):
    """What became of a sentence since the version of the kept table."""

    NEW = "new"
    CHANGED = "changed"
    GONE = "gone"


class Read(msgspec.Struct, frozen=True):
    """A sentence that was read: its fingerprint, and its words where they are at hand."""

    mark: str
    text: str = ""


def read_text(text: str) -> list[Read]:
    """Return the sentences of a docstring or of a section."""
    return [Read(fingerprint(sentence), sentence) for sentence in sentences(text)]


def standings(read: Mapping[str, Sequence[Read]], kept: Mapping[str, Sequence[str]], said: Answers) -> list[Sentence]:
    """Return each sentence that was read, and each of the kept table that has vanished, by the key of the source."""
    return [
        sentence
        for key in sorted({*read, *kept})
        for sentence in _source(key, read.get(key, []), kept.get(key, []), said.get(key, []))
    ]


def drift(found: Iterable[Sentence]) -> list[tuple[Drift, Sentence]]:
    """Return what is new, changed or gone; of a changed sentence only what stands in its place now."""
    each = [*found]
    taken = {(one.source, one.instead_of) for one in each if one.instead_of}
    return [
        (_what(one), one)
        for one in each
        if (one.status is Status.UNCOVERED and not one.kept)
        or (one.status is Status.VANISHED and (one.source, one.kept) not in taken)
    ]


def _what(one: Sentence) -> Drift:
    if one.status is Status.VANISHED:
        return Drift.GONE
    return Drift.CHANGED if one.instead_of else Drift.NEW


def _source(key: str, read: Sequence[Read], kept: Sequence[str], said: Sequence[Answer]) -> Iterator[Sentence]:
    same, instead = _aligned(kept, [each.mark for each in read])
    for ordinal, each in enumerate(read, start=1):
        if ordinal in same:
            yield _known(key, ordinal, same[ordinal], said[same[ordinal] - 1], each.text)
        else:
            was = instead.get(ordinal, 0)
            rules = tuple(said[was - 1].rules) if was else ()
            yield Sentence(key, ordinal, Status.UNCOVERED, rules, instead_of=was, text=each.text)
    gone = {*range(1, len(kept) + 1)} - {*same.values()}
    for at in sorted(gone):
        yield Sentence(key, at, Status.VANISHED, tuple(said[at - 1].rules), "; ".join(said[at - 1].reasons), at)


def _known(key: str, ordinal: int, kept: int, answer: Answer, text: str) -> Sentence:
    status = Status.COVERED if answer.rules else Status.NO_RULE if answer.known else Status.UNCOVERED
    return Sentence(key, ordinal, status, tuple(answer.rules), "; ".join(answer.reasons), kept, text=text)


def _aligned(kept: Sequence[str], found: Sequence[str]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the ordinals found by which the same sentence is kept, and those that took the place of a kept one."""
    same: dict[int, int] = {}
    instead: dict[int, int] = {}
    for what, i1, i2, j1, j2 in SequenceMatcher(None, kept, found, autojunk=False).get_opcodes():
        pairs = zip(range(j1 + 1, j2 + 1), range(i1 + 1, i2 + 1), strict=False)
        if what == "equal":
            same.update(pairs)
        elif what == "replace":
            instead.update(pairs)
    left = {at + 1: mark for at, mark in enumerate(kept) if at + 1 not in same.values()}
    for at, mark in enumerate(found, start=1):  # a sentence that moved is the same
        was = next((ordinal for ordinal, other in left.items() if at not in same and other == mark), 0)
        if was:
            same[at] = was
            del left[was]
    return same, {at: was for at, was in instead.items() if at not in same and was in left}
