"""Minimizing in workers: a candidate that ends its worker is refused, unless that is what the program does."""

from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from hooklaw.fuzz.campaign.process import STEP, Ending, Target, Worker
from hooklaw.fuzz.campaign.schedule import ChildDeath
from hooklaw.fuzz.campaign.tasks import Anomaly, ShrinkTask, replay_program, shrink_program
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.shrink import shrink

SECONDS = 30.0
"""How long a program is shrunk at most."""
RESTARTS = 5
"""How many candidates may end their worker before shrinking stops."""
PATIENCE = 1.0
"""Seconds after which a candidate counts as hanging, if the program did hang."""


class Minimized(NamedTuple):
    """The smallest program that was found to do the same."""

    program: Program
    reproduced: bool
    """Whether the program did it again when it was run by itself."""
    anomaly: Anomaly | None = None
    step: int = 0
    """The instruction at which a program dies."""


def differing(target: Target, program: Program, anomaly: Anomaly, limit: float) -> Minimized:
    """Return the smallest program with the same anomaly."""
    until = monotonic() + SECONDS
    best = Minimized(program, reproduced=False, anomaly=anomaly)
    refused: set[Program] = set()
    for _ in range(RESTARTS):
        seconds = until - monotonic()
        worker = Worker(target, shrink_program, ShrinkTask(best.program, anomaly, refused, seconds, limit))
        try:
            best, tried = _followed(worker, best)
            ended = worker.ending()
        finally:
            worker.end()
        if ended is None or seconds <= 0:
            break
        refused.add(tried)
    return best


def _followed(worker: Worker, best: Minimized) -> tuple[Minimized, Program]:
    """Return the best program that a worker sends until its end, and what it tried last."""
    tried = best.program
    while (answer := worker.answer()) is not None:
        tried, anomaly = answer
        best = Minimized(tried, reproduced=True, anomaly=anomaly) if anomaly else best
    return best, tried


def dying(target: Target, program: Program, death: ChildDeath, limit: float) -> Minimized:
    """Return the smallest program that ends its worker in the same way; each candidate has a worker of its own."""
    hangs = death.ending.kind == "hang"
    until = monotonic() + SECONDS
    steps: dict[Program, int] = {}

    def dies(candidate: Program) -> bool:
        if monotonic() > until:
            return False
        ending, steps[candidate] = _tried(target, candidate, min(limit, PATIENCE) if hangs else limit)
        return ending == death.ending

    if not dies(program):
        return Minimized(program, reproduced=False, step=death.step)
    cut = program[: death.step + 1]
    smallest = shrink(cut if len(cut) < len(program) and dies(cut) else program, dies)
    return Minimized(smallest, reproduced=True, step=steps[smallest])


def _tried(target: Target, program: Sequence[Instruction], limit: float) -> tuple[Ending | None, int]:
    worker = Worker(target, replay_program, program, limit)
    try:
        worker.answer()
        return worker.ending(), worker.marks[STEP]
    finally:
        worker.end()
