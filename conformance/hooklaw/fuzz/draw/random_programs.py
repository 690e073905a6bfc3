"""Random programs: each instruction is drawn among those that make sense after what is there already.

Every program has a theme, instructions of which it is more likely to have: what goes wrong mostly takes several of one.
"""

from hooklaw.fuzz.draw.builder import FLOAT, Draft, Kind, RandomSource, Source
from hooklaw.fuzz.draw.hooks import action
from hooklaw.fuzz.draw.themes import APART, STEPS, THEMES
from hooklaw.fuzz.draw.values import leaf
from hooklaw.fuzz.program import Program


def program(source: Source, longest: int = 13) -> Program:
    """Draw a program: leaves, then instructions of every kind, and a backward in the end."""
    draft = Draft(source)
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
    return program(RandomSource(seed, number))


def wide(source: Source) -> Program:
    """Draw a program in which several Nodes are ready at once, each with hooks: what the order of Nodes shows in."""
    draft = Draft(source)
    kind = Kind((2,), FLOAT, leaf=True)
    for _ in range(2 + draft.below(2)):
        name = draft.name("x")
        draft.add("leaf", (name,), (), (kind.shape, kind.dtype, True))
        draft.tensors[name] = kind
    made = [draft.new("mul", (draft.one_of([*draft.tensors]), draft.one_of([*draft.tensors])), kind) for _ in range(3)]
    for name in draft.tensors:
        acts = action(draft, "scale", "raise", "remove", "peek")
        draft.add(draft.one_of(("hook", "prehook", "posthook")), (draft.name("h"),), (name,), (acts,))
        draft.hooks.append(f"h{draft.names}")
    root = made[0]
    for name in made[1:]:
        root = draft.new("add", (root, name), kind)
    draft.add("backward", (), (root,), (1.0, True, False))
    return tuple(draft.done)
