"""Random programs: each instruction is drawn from those that make sense after the instructions so far.

Every program has a theme, whose instructions are more likely: most bugs need several instructions of a theme.
"""

from hooklaw.fuzz.draw._hooks import action
from hooklaw.fuzz.draw._themes import APART, STEPS, THEMES
from hooklaw.fuzz.draw._values import leaf
from hooklaw.fuzz.draw.builder import FLOAT, Choices, ProgramDraft, RandomChoices, TensorKind
from hooklaw.fuzz.program import Program


def program(choices: Choices, longest: int = 13) -> Program:
    """Draw a program: leaves, instructions of every kind, and a backward at the end."""
    draft = ProgramDraft(choices)
    theme = draft.one_of(THEMES)
    if theme is APART or draft.below(40) == 0:
        draft.threads = 2 + draft.below(2)
    for _ in range(1 + draft.below(2)):
        leaf(draft)
    for step in theme.first:
        step(draft)
    for _ in range(3 + draft.below(longest - 3)):
        if draft.threads > 1 and draft.below(2):
            draft.thread = draft.below(draft.threads)
        draft.one_of(theme.often if draft.below(3) else STEPS)(draft)
    for step in theme.last:
        step(draft)
    return tuple(draft.done)


def from_seed(seed: int, number: int) -> Program:
    """Return the program of a seed with this number, the same everywhere."""
    return program(RandomChoices(seed, number))


def wide(choices: Choices) -> Program:
    """Draw a program in which several nodes with hooks are ready at once, so that the order of nodes shows."""
    draft = ProgramDraft(choices)
    kind = TensorKind((2,), FLOAT, leaf=True)
    for _ in range(2 + draft.below(2)):
        draft.leaf(kind.shape)
    made = [draft.new("mul", (draft.one_of([*draft.tensors]), draft.one_of([*draft.tensors])), kind) for _ in range(3)]
    for name in draft.tensors:
        acts = action(draft, "scale", "raise", "remove", "peek")
        draft.hook(draft.one_of(("hook", "prehook", "posthook")), (name,), acts)
    root = made[0]
    for name in made[1:]:
        root = draft.new("add", (root, name), kind)
    draft.add("backward", (), (root,), (1.0, True, False))
    return tuple(draft.done)
