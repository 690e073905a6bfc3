"""Hypothesis as the source of a generator's choices: a strategy of programs, and of what may be added to one."""

from collections.abc import Callable

from hypothesis import strategies as st

from hooklaw.fuzz.draw.builder import Draft
from hooklaw.fuzz.draw.themes import STEPS
from hooklaw.fuzz.program import Instruction, text

KINDS: dict[str, Callable[[Draft], None]] = {step.__name__.strip("_"): step for step in STEPS}
"""What the generator can add to a program, by name."""


class Choices:
    """Choices that Hypothesis makes, and makes again while it shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def below(self, bound: int) -> int:
        """Return a number from 0 on, less than the bound.

        The generator's rare choices are at 0, so that what Hypothesis shrinks to is 1.
        """
        return (self._draw(_NUMBERS[bound]) + 1) % bound if bound > 1 else 0


class _Numbers(dict[int, st.SearchStrategy[int]]):
    """A strategy for each bound, made once."""

    def __missing__(self, bound: int) -> st.SearchStrategy[int]:
        made = self[bound] = st.integers(0, bound - 1)
        return made


_NUMBERS = _Numbers()


class Lines(tuple[Instruction, ...]):
    """Instructions that Hypothesis prints as lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return text(self)


@st.composite
def added(draw: st.DrawFn, draft: Draft, step: Callable[[Draft], None] | None = None) -> Lines:
    """Add an instruction to a draft, of any kind unless one is named, and return what was added."""
    choices = draft.source = Choices(draw)
    if draft.threads > 1:
        draft.thread = choices.below(draft.threads)
    before = len(draft.done)
    (step or draw(_STEPS))(draft)
    return Lines(draft.done[before:])


_STEPS = st.sampled_from(STEPS)


@st.composite
def programs(draw: st.DrawFn, *, longest: int = 16) -> Lines:
    """Return a strategy of programs: leaves, up to so many instructions of every kind, and a backward in the end.

    Each instruction is an element of a list, which Hypothesis knows how to leave out.
    """
    draft = started(draw)
    least = draw(st.sampled_from((1, max(1, longest // 2))))  # or most would be short
    draw(st.lists(added(draft), min_size=least, max_size=longest))
    draw(added(draft, KINDS["backward"]))
    return Lines(draft.done)


def started(draw: st.DrawFn) -> Draft:
    """Return a draft with a leaf, mostly for one thread."""
    choices = Choices(draw)
    draft = Draft(choices)
    if choices.below(12) == 0:
        draft.threads = 2 + choices.below(2)
    KINDS["leaf"](draft)
    return draft
