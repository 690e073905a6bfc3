"""What holds of every program on any backend, whatever the law says of it: no engine is needed to see it broken."""

from collections.abc import Callable, Sequence

from hooklaw.fuzz.judge.compare import same
from hooklaw.fuzz.program import Instruction, Program, text
from hooklaw.fuzz.replay.run import Event

Show = Callable[[Program], Sequence[Event]]
"""Runs a program on a backend, and returns what that shows."""
SKIPPED = Instruction("remove", (), ("nothing of this name",))
"""Takes the place of an instruction, so that the others keep their numbers."""
OF_HOOKS = {"forget", "save"}
"""Events that tell of hooks themselves: a tensor lives as long as a hook that knows it, and saving warns of hooks."""

OF_KINDS = {"module_hook", "global_hook", "registration_hook"}
"""Instructions that say of which kind a hook is, before they say what it does.

Those on states and steps are no onlookers: torch is known to fail where one is registered or removed meanwhile.
"""


class InvariantError(AssertionError):
    """Two runs that must show the same show something else."""


def leaves_nothing_behind(program: Program, other: Program, show: Show) -> None:
    """Check that a program shows the same after another one as before it."""
    before = show(program)
    show(other)
    after = show(program)
    _must_be_same("what a program shows depends on what ran before", before, after, program, other)


def is_the_same_in_other_threads(program: Program, show: Show) -> None:
    """Check that it does not matter in which thread a program runs.

    It is run in one thread: where several make Nodes, which of two unrelated ones runs first is no law.
    """
    here, there = (tuple(one._replace(thread=thread) for one in program) for thread in (0, 1))
    title = "what a program shows depends on its thread"
    _must_be_same(title, show(here), show(there), here, there)


def onlookers_change_nothing(program: Program, show: Show) -> None:
    """Check that without its hooks that do nothing but look a program shows the same to the others."""
    looking = frozenset(one.made[0] for one in program if _only_looks(one))
    alone = tuple(SKIPPED if looking.intersection(one.made) else one for one in program)
    seen = [[one for one in show(each) if one[0] not in OF_HOOKS] for each in (program, alone)]
    by_others = [event for event in seen[0] if not _seen_by(looking, event, program)]
    _must_be_same("hooks that do nothing change what others see", by_others, seen[1], program, alone)


def _only_looks(one: Instruction) -> bool:
    """Tell of hooks that return nothing; a full backward hook of a module adds Nodes to the graph even so."""
    kind, action = one.how[:2] if one.op in OF_KINDS else ("", one.how[:1])
    return one.made[:1] != () and one.made[0][0] == "h" and "nothing" in str(action) and "backward" not in kind


def _seen_by(names: frozenset[str], event: Event, program: Sequence[Instruction]) -> bool:
    """Tell whether an event is what a hook noted, or that it could not be registered."""
    refused = event[0] == "error" and isinstance(event[1], int)
    return event[0] in names or (refused and not names.isdisjoint(program[event[1]].made))


def _must_be_same(
    title: str, first: Sequence[Event], second: Sequence[Event], program: Program, other: Program
) -> None:
    if same(first, second):
        return
    pairs = zip([*first, "nothing more"], [*second, "nothing more"], strict=False)
    once, again = next((one, two) for one, two in pairs if not same(one, two))
    lines = [title, _indented(program), f"shows {once},", "yet otherwise, where the other program is", _indented(other)]
    raise InvariantError("\n".join([*lines, f"shows {again}"]))


def _indented(program: Program) -> str:
    return "\n".join(f"  {line}" for line in text(program).splitlines())
