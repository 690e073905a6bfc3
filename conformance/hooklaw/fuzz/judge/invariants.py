"""Invariants of every program on any backend, which need no engine to check."""

from collections.abc import Callable, Sequence

from hooklaw.fuzz.judge.compare import same
from hooklaw.fuzz.program import Instruction, Program, action_of, text
from hooklaw.fuzz.replay.operations import having, traits_of
from hooklaw.fuzz.replay.run import Event

Show = Callable[[Program], Sequence[Event]]
"""Runs a program on a backend, and returns what that shows."""
SKIPPED = Instruction("remove", (), ("nothing of this name",))
"""Takes the place of an instruction, so that the others keep their numbers."""


class InvariantError(AssertionError):
    """Two runs that must show the same events do not."""


def leaves_nothing_behind(program: Program, other: Program, show: Show) -> None:
    """Check that a program shows the same after another program as before it."""
    before = show(program)
    show(other)
    after = show(program)
    _must_be_same("what a program shows depends on what ran before", before, after, program, other)


def is_the_same_in_other_threads(program: Program, show: Show) -> None:
    """Check that a program shows the same in any thread.

    All of it runs in the same thread: if several threads make nodes, the order of unrelated nodes is not law.
    """
    here, there = (tuple(step._replace(thread=thread) for step in program) for thread in (0, 1))
    title = "what a program shows depends on its thread"
    _must_be_same(title, show(here), show(there), here, there)


def onlookers_change_nothing(program: Program, show: Show) -> None:
    """Check that without its hooks that only look a program shows the same to the other hooks."""
    onlookers = frozenset(instruction.made[0] for instruction in program if _only_looks(instruction))
    alone = tuple(SKIPPED if onlookers.intersection(step.made) else step for step in program)
    of_hooks = having("shows_hooks")
    seen, seen_alone = ([event for event in show(each) if event[0] not in of_hooks] for each in (program, alone))
    by_others = [event for event in seen if not _seen_by(onlookers, event, program)]
    _must_be_same("hooks that do nothing change what others see", by_others, seen_alone, program, alone)


def _only_looks(instruction: Instruction) -> bool:
    """Whether an instruction registers a hook that returns nothing.

    Not counted are hooks around states and steps, since torch is known to fail where one is registered or removed
    while they run, and full backward hooks of modules, which add nodes to the graph in any case.
    """
    hooks = traits_of(instruction).hooks
    looks = hooks not in ("", "state", "step") and action_of(instruction) == ("nothing",)
    return looks and "backward" not in str(instruction.how[0])


def _seen_by(names: frozenset[str], event: Event, program: Sequence[Instruction]) -> bool:
    """Whether an event was logged by one of these hooks, or says that its registration failed."""
    refused = event[0] == "error" and isinstance(event[1], int)
    return event[0] in names or (refused and not names.isdisjoint(program[event[1]].made))


def _must_be_same(
    title: str, first: Sequence[Event], second: Sequence[Event], program: Program, other: Program
) -> None:
    if same(first, second):
        return
    pairs = zip([*first, "nothing more"], [*second, "nothing more"], strict=False)
    event, other_event = next(pair for pair in pairs if not same(*pair))
    lines = [title, text(program, "  "), f"shows {event},", "but in the other run, of", text(other, "  ")]
    raise InvariantError("\n".join([*lines, f"shows {other_event}"]))
