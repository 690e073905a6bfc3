"""Marks: what happened in a word, with a sign and a tone, so that no meaning hangs on a colour alone."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from hooklaw.results.records import Run, RunKind
from hooklaw.results.summary import exit_of_run
from hooklaw.results.verdict import FAILS_DIFFERENTLY, Exit


class Mark(msgspec.Struct, frozen=True):
    """A word, its sign, and the style sheet's class that colours both."""

    tone: str
    glyph: str
    word: str

    @property
    def quiet(self) -> bool:
        """Whether the matrix shows the sign alone: the style sheet draws it, which keeps a large matrix fast."""
        return self.tone in {"pass", "out", "unrun"}

    @property
    def alarming(self) -> bool:
        """Whether a person should look."""
        return self.tone in {"worst", "bad", "good"}

    @property
    def letter(self) -> str:
        """One letter for an outcome; the page filters by it."""
        return "abcdefghijklmnopqrstuvwxyz"[list(OUTCOMES).index(self.word)]


OUTCOMES = {
    word: Mark(tone, glyph, word)
    for word, tone, glyph in (
        ("crash", "worst", "!"),
        ("timeout", "worst", "…"),
        ("error", "worst", "!"),
        ("fail", "bad", "✗"),
        (FAILS_DIFFERENTLY, "bad", "✗"),
        ("fixed", "good", "↑"),
        ("known crash", "known", "~"),
        ("known timeout", "known", "~"),
        ("known error", "known", "~"),
        ("known fail", "known", "~"),
        ("differs", "open", "≠"),
        ("pass", "pass", "✓"),
        ("unsupported", "out", "\u2013"),
        ("not-run", "unrun", "·"),
    )
}
"""The mark of each outcome, worst first."""

NOT_RUN = Mark("unrun", "·", "not run")
BROKEN = Mark("worst", "!", "broken")
RULES = {
    Exit.OK: Mark("pass", "✓", "as expected"),
    Exit.REGRESSION: Mark("bad", "✗", "not expected"),
    Exit.FIXED_OR_STALE: Mark("good", "↑", "fixed or stale"),
    Exit.BROKEN: BROKEN,
}
SAFE = Mark("pass", "✓", "safe")
EXCEPTIONS = Mark("known", "~", "safe with exceptions")
PACKERS = RULES | {Exit.OK: SAFE, Exit.REGRESSION: Mark("bad", "✗", "unsafe")}

WORST_FIRST = ("worst", "bad", "good", "known", "open", "unrun", "pass")
"""The tones of runs."""


def of_run(run: Run) -> Mark:
    """Return the mark of a run that judged rules or a packer."""
    if run.header.not_run:
        return NOT_RUN
    end = exit_of_run(run, allow_not_run=True)
    if run.header.run_kind is not RunKind.PACKER:
        return RULES[end]
    passed, judged = run.count()
    return EXCEPTIONS if end is Exit.OK and passed < judged else PACKERS[end]


def severity(mark: Mark) -> int:
    """Return the place of a run's mark among all, the worst first."""
    return WORST_FIRST.index(mark.tone)


def tally(marks: Iterable[Mark]) -> str:
    """Return how many runs have each mark, e.g. ``2 safe, 6 unsafe``."""
    counts = Counter(marks)
    return ", ".join(f"{counts[mark]} {mark.word}" for mark in sorted(counts, key=severity, reverse=True))


def worst(marks: Iterable[Mark]) -> Mark:
    """Return the worst mark with its count, e.g. ``6 unsafe``."""
    counts = Counter(marks)
    mark = min(counts, key=severity)
    return Mark(mark.tone, mark.glyph, f"{counts[mark]} {mark.word}")
