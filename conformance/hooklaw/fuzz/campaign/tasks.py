"""What the fuzzer's processes do: judge a range of programs, or look for a smaller one that differs in the same way."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from time import monotonic
from typing import NamedTuple, Protocol

from hooklaw.fuzz.campaign.process import AT, SKIPPED, STEP, UNDECIDED, Line, watch
from hooklaw.fuzz.draw.random_programs import from_seed
from hooklaw.fuzz.judge.judge import Difference, Judge
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay.required_capabilities import needs
from hooklaw.fuzz.replay.run import NotReplayedError
from hooklaw.fuzz.shrink import shrink


class Programs(Protocol):
    """Where programs come from; each has a place from 0 on, and a number by which it is known."""

    def at(self, place: int) -> tuple[int, Program]:
        """Return the number and the program."""
        ...


class Random(NamedTuple):
    """Programs of a seed."""

    seed: int

    def at(self, place: int) -> tuple[int, Program]:
        """Return the program of that number."""
        return place, from_seed(self.seed, place)


class Given(NamedTuple):
    """Programs out of a file, each by the number of its line."""

    lines: list[tuple[int, Program]]

    def at(self, place: int) -> tuple[int, Program]:
        """Return one of them."""
        return self.lines[place]


NOT_REPLAYED = "not replayed"


class Found(NamedTuple):
    """A program that differs."""

    place: int
    how: str
    """``differs``, ``error`` with the type where looking at the backend raised one, or `NOT_REPLAYED`."""
    difference: Difference | None = None
    said: str = ""

    @property
    def flags(self) -> frozenset[str]:
        """The departures that explain it."""
        return self.difference.flags if self.difference else frozenset()


def judge_range(  # noqa: PLR0913, PLR0917 - what a process is given
    judge: Judge, line: Line, programs: Programs, start: int, stop: int, limit: float, many: int
) -> None:
    """Judge the programs from one place to another, and tell each that differs; stop where many do anew."""
    news = 0
    capabilities = frozenset(judge.backend.capabilities)
    for place in range(start, stop):
        line.marks[AT], line.marks[STEP] = place, 0
        program = programs.at(place)[1]
        if not needs(program) <= capabilities:
            line.marks[SKIPPED] += 1
            continue
        watch(limit)
        found = judged(judge, place, program)
        line.marks[UNDECIDED] = judge.undecided
        if found:
            line.tell(found)
            skipped = found.how == NOT_REPLAYED
            line.marks[SKIPPED] += skipped
            news += not (found.flags or skipped)
        if news == many:
            stop = place + 1
            break
    line.marks[AT] = stop


def judged(judge: Judge, place: int, program: Sequence[Instruction]) -> Found | None:
    """Judge one program; what a backend raises where nothing may be raised is found, too."""
    try:
        difference = judge(program)
    except NotReplayedError as error:
        return Found(place, NOT_REPLAYED, said=str(error))
    except BaseException as error:  # noqa: BLE001 - a backend may raise anything, SystemExit too
        return Found(place, f"error {type(error).__name__}", said=" ".join(str(error).split()))
    return Found(place, "differs", difference) if difference else None


class Try(NamedTuple):
    """A program that is about to be tried."""

    program: Program


class Smaller(NamedTuple):
    """A program that is found in the same way."""

    program: Program
    found: Found


def shrink_one(  # noqa: PLR0913, PLR0917 - what a process is given
    judge: Judge,
    line: Line,
    program: Program,
    wanted: Found,
    refused: Collection[Program],
    seconds: float,
    limit: float,
) -> None:
    """Tell ever smaller programs that are found as the wanted one was."""
    until = monotonic() + seconds

    def fails(candidate: Program) -> bool:
        if candidate in refused or monotonic() > until:
            return False
        line.tell(Try(candidate))
        watch(limit)
        found = judged(judge, wanted.place, candidate)
        if found is None or (found.how, found.flags) != (wanted.how, wanted.flags):
            return False
        line.tell(Smaller(candidate, found))
        return True

    if fails(program):
        shrink(program, fails)


def replay_one(judge: Judge, line: Line, program: Program, limit: float) -> None:
    """Replay a program that may end the process."""
    line.marks[STEP] = 0
    watch(limit)
    with suppress(NotReplayedError):
        judge.observed(program)
