"""Tasks of the fuzzer's processes: judge a range of programs, shrink a program, or replay it."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from hooklaw.fuzz.campaign.process import AT, SKIPPED, STEP, UNDECIDED, Channel, limit_time
from hooklaw.fuzz.draw.random_programs import from_seed
from hooklaw.fuzz.judge.judge import Difference, Judge
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay.required_capabilities import needs
from hooklaw.fuzz.replay.run import NotReplayedError
from hooklaw.fuzz.shrink import shrink

Programs = Callable[[int], tuple[int, Program]]
"""Returns the program at a place, from 0 on, and the number that users know it by."""


def of_seed(seed: int, place: int) -> tuple[int, Program]:
    """Return a program of a seed, whose number is its place."""
    return place, from_seed(seed, place)


NOT_REPLAYED = "not replayed"


class Anomaly(NamedTuple):
    """A program that differs, that raises an error where none may be raised, or that was not replayed."""

    place: int
    how: str
    """``differs``, ``error`` with the exception's type, or `NOT_REPLAYED`."""
    difference: Difference | None = None
    message: str = ""

    @property
    def flags(self) -> frozenset[str]:
        """The departures that explain it."""
        return self.difference.flags if self.difference else frozenset()


class RangeTask(NamedTuple):
    """The programs from one place to another, to be judged."""

    programs: Programs
    start: int
    stop: int
    limit: float
    """Seconds that a program may take."""
    enough: int
    """After how many programs that no flag explains the task ends."""


def judge_range(judge: Judge, channel: Channel, task: RangeTask) -> None:
    """Judge a range of programs, and send each anomaly."""
    unexplained, stop = 0, task.stop
    capabilities = frozenset(judge.backend.capabilities)
    for place in range(task.start, task.stop):
        channel.marks[AT], channel.marks[STEP] = place, 0
        program = task.programs(place)[1]
        if not needs(program) <= capabilities:
            channel.marks[SKIPPED] += 1
            continue
        limit_time(task.limit)
        anomaly = judge_program(judge, place, program)
        channel.marks[UNDECIDED] = judge.undecided
        if anomaly:
            channel.send(anomaly)
            skipped = anomaly.how == NOT_REPLAYED
            channel.marks[SKIPPED] += skipped
            unexplained += not (anomaly.flags or skipped)
        if unexplained == task.enough:
            stop = place + 1
            break
    channel.marks[AT] = stop


def judge_program(judge: Judge, place: int, program: Sequence[Instruction]) -> Anomaly | None:
    """Judge a program; an exception where the backend may raise none is an anomaly too."""
    try:
        difference = judge(program)
    except NotReplayedError as error:
        return Anomaly(place, NOT_REPLAYED, message=str(error))
    except BaseException as error:  # noqa: BLE001 - a backend may raise anything, SystemExit too
        return Anomaly(place, f"error {type(error).__name__}", message=" ".join(str(error).split()))
    return Anomaly(place, "differs", difference) if difference else None


class Tried(NamedTuple):
    """A program that the shrinker is about to try, or one with the same anomaly."""

    program: Program
    anomaly: Anomaly | None = None


class ShrinkTask(NamedTuple):
    """A program with an anomaly, to be shrunk."""

    program: Program
    anomaly: Anomaly
    refused: Collection[Program]
    """Candidates that end the process."""
    seconds: float
    limit: float
    """Seconds that a candidate may take."""


def shrink_program(judge: Judge, channel: Channel, task: ShrinkTask) -> None:
    """Send each candidate, and ever smaller programs with the same anomaly."""
    until, wanted = monotonic() + task.seconds, task.anomaly

    def fails(candidate: Program) -> bool:
        if candidate in task.refused or monotonic() > until:
            return False
        channel.send(Tried(candidate))
        limit_time(task.limit)
        anomaly = judge_program(judge, wanted.place, candidate)
        if anomaly is None or (anomaly.how, anomaly.flags) != (wanted.how, wanted.flags):
            return False
        channel.send(Tried(candidate, anomaly))
        return True

    if fails(task.program):
        shrink(task.program, fails)


def replay_program(judge: Judge, channel: Channel, program: Program, limit: float) -> None:
    """Replay a program that may end the process."""
    channel.marks[STEP] = 0
    limit_time(limit)
    with suppress(NotReplayedError):
        judge.observed(program)
