"""Shrinking what was found, contained: a candidate that ends its process is passed over, or is what is looked for."""

from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from hooklaw.fuzz.campaign.process import STEP, Child, Ending, Held
from hooklaw.fuzz.campaign.schedule import Death
from hooklaw.fuzz.campaign.tasks import Found, Smaller, Try, replay_one, shrink_one
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.shrink import shrink

SECONDS = 30.0
"""How long one finding is shrunk at most."""
RESTARTS = 5
"""How many candidates may end the process before what there is must do."""
PATIENCE = 1.0
"""Seconds after which a candidate is taken to hang, if the program did."""


class Least(NamedTuple):
    """The least program that was found to do the same."""

    program: Program
    again: bool
    """Whether the program did it again when it was run by itself."""
    found: Found | None = None
    step: int = 0
    """Of one that dies, the instruction at which it does."""


def of_found(held: Held, program: Program, found: Found, limit: float) -> Least:
    """Return the least program that is found in the same way."""
    until = monotonic() + SECONDS
    best = Least(program, again=False, found=found)
    refused: set[Program] = set()
    for _ in range(RESTARTS):
        seconds = until - monotonic()
        child = Child(held, shrink_one, best.program, found, refused, seconds, limit)
        try:
            best, tried = _followed(child, best)
            ended = child.ending()
        finally:
            child.end()
        if ended is None or seconds <= 0:
            break
        refused.add(tried)
    return best


def _followed(child: Child, best: Least) -> tuple[Least, Program]:
    """Return the best that a process tells of until its end, and what it tried last."""
    tried = best.program
    while (told := child.answer()) is not None:
        match told:
            case Try(program):
                tried = program
            case Smaller(program, found):
                best = Least(program, again=True, found=found)
            case _:
                pass
    return best, tried


def of_death(held: Held, program: Program, death: Death, limit: float) -> Least:
    """Return the least program that ends its process in the same way, each candidate in a process of its own."""
    hangs = death.ending.kind == "hang"
    until = monotonic() + SECONDS
    steps: dict[Program, int] = {}

    def dies(candidate: Program) -> bool:
        if monotonic() > until:
            return False
        ending, step = _tried(held, candidate, min(limit, PATIENCE) if hangs else limit)
        steps[candidate] = step
        return ending == death.ending

    if not dies(program):
        return Least(program, again=False, step=death.step)
    cut = program[: death.step + 1]
    least = shrink(cut if len(cut) < len(program) and dies(cut) else program, dies)
    return Least(least, again=True, step=steps[least])


def _tried(held: Held, program: Sequence[Instruction], limit: float) -> tuple[Ending | None, int]:
    child = Child(held, replay_one, program, limit)
    try:
        child.answer()
        return child.ending(), child.marks[STEP]
    finally:
        child.end()
