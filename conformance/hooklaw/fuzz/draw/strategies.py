"""Hypothesis strategies of programs, and of the instructions that may be added to a program."""

from collections.abc import Callable

from hypothesis import strategies as st

from hooklaw.fuzz.draw._themes import STEPS
from hooklaw.fuzz.draw.builder import ProgramDraft
from hooklaw.fuzz.program import Instruction, text

STEPS_BY_NAME: dict[str, Callable[[ProgramDraft], None]] = {step.__name__.strip("_"): step for step in STEPS}
"""What can be added to a program, by name."""


class HypothesisChoices:
    """Choices that Hypothesis makes, and repeats while it shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def below(self, bound: int) -> int:
        """Return a number of at least 0 and less than the bound.

        Rare choices are at 0, so Hypothesis must shrink to 1.
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
def added(draw: st.DrawFn, draft: ProgramDraft, step: Callable[[ProgramDraft], None] | None = None) -> Lines:
    """Add an instruction to a draft, of any kind unless a step is given, and return what was added."""
    choices = draft.choices = HypothesisChoices(draw)
    if draft.threads > 1:
        draft.thread = choices.below(draft.threads)
    before = len(draft.done)
    (step or draw(_STEPS))(draft)
    return Lines(draft.done[before:])


_STEPS = st.sampled_from(STEPS)


@st.composite
def programs(draw: st.DrawFn, *, longest: int = 16) -> Lines:
    """Return a strategy of programs: a leaf, up to so many instructions of every kind, and a backward at the end.

    Each instruction is an element of a list, which Hypothesis can delete.
    """
    draft = started(draw)
    least = draw(st.sampled_from((1, max(1, longest // 2))))  # or most programs would be short
    draw(st.lists(added(draft), min_size=least, max_size=longest))
    draw(added(draft, STEPS_BY_NAME["backward"]))
    return Lines(draft.done)


def started(draw: st.DrawFn) -> ProgramDraft:
    """Return a draft with a leaf, mostly of one thread."""
    choices = HypothesisChoices(draw)
    draft = ProgramDraft(choices)
    if choices.below(12) == 0:
        draft.threads = 2 + choices.below(2)
    STEPS_BY_NAME["leaf"](draft)
    return draft
