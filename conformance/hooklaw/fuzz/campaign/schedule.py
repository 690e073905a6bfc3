"""The hunt: ranges of programs handed to processes, and what these found put in order of the programs' numbers."""

from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from time import monotonic
from typing import NamedTuple

from hooklaw.fuzz.campaign.process import AT, COMPARING, SKIPPED, STEP, UNDECIDED, Child, Ending, Held
from hooklaw.fuzz.campaign.tasks import Found, Programs, judge_range

RANGE = 2000
"""How many programs a process judges before another takes over: beside them its start costs nothing."""
SHORT_RANGE = 20
"""The same where a program takes so long that the start costs nothing beside a few."""
LONG_RANGE = 5000
"""The same where each process must load the backend again."""
WAIT = 0.5
"""Seconds between two looks at the clock."""


class Death(NamedTuple):
    """Where and how a process died."""

    place: int
    step: int
    ending: Ending


class Piece(NamedTuple):
    """What one process made of the programs from one place to another."""

    start: int
    stop: int
    found: list[Found]
    death: Death | None
    undecided: int
    skipped: int


class Hunt(NamedTuple):
    """What is hunted, and how far."""

    held: Held
    programs: Programs
    total: int
    jobs: int
    limit: float
    many: int = 20
    """After so many programs that no flag explains a process stops, so that a wrong backend is known at once."""
    until: float = float("inf")
    """The time by `monotonic` at which to stop."""
    tick: Callable[[int], None] = lambda _: None
    """Called now and then with how many programs are done."""

    def pieces(self) -> Iterator[Piece]:
        """Yield what was found, in order of the programs' places."""
        lanes: deque[_Lane] = deque()
        start, done = 0, 0
        if self.held.forked:
            self.held.import_early(self.programs.at(place)[1] for place in range(min(self.total, RANGE)))
        size = SHORT_RANGE if self.held.judge.own_way else RANGE if self.held.forked else LONG_RANGE
        try:
            while lanes or start < self.total:
                while start < self.total and sum(lane.busy for lane in lanes) < self.jobs:
                    lanes.append(_Lane(self, start, min(start + size, self.total)))
                    start += size
                in_time = self._wait(lanes, done)
                for piece in _in_order(lanes):
                    done = piece.stop
                    yield piece
                if not in_time:
                    yield from (piece for lane in lanes for piece in lane.cut())
                    return
        finally:
            for lane in lanes:
                lane.end()

    def _wait(self, lanes: "deque[_Lane]", done: int) -> bool:
        """Read what processes tell, until the clock is to be looked at; tell whether there is time left."""
        children = {lane.child.answers: lane for lane in lanes if lane.child}
        for ready in wait(list(children), timeout=min(WAIT, max(0.0, self.until - monotonic()))):
            children[ready].read()  # type: ignore[index]
        self.tick(done + sum(lane.so_far for lane in lanes))
        return monotonic() < self.until


class _Lane:
    """A range of programs, judged by one process after another: each death needs a new one."""

    def __init__(self, hunt: Hunt, start: int, stop: int) -> None:
        self._hunt = hunt
        self._start, self._stop = start, stop
        self.pieces: deque[Piece] = deque()
        self.child: Child | None = None
        self._found: list[Found] = []
        self._next()

    @property
    def busy(self) -> bool:
        """Whether a process is at work."""
        return self.child is not None

    @property
    def so_far(self) -> int:
        """How many programs the process at work has done."""
        return max(0, self.child.marks[AT] - self._start) if self.child else 0

    def _next(self) -> None:
        self._found = []
        if self._start < self._stop:
            hunt = self._hunt
            given = (hunt.programs, self._start, self._stop, hunt.limit, hunt.many)
            self.child = Child(hunt.held, judge_range, *given, at=self._start)

    def read(self) -> None:
        """Take what the process tells; where it has ended, let another go on behind."""
        child = self.child
        if child is None:
            return
        told = child.answer()
        if told is not None:
            self._found.append(told)
            return
        self.child = None
        ending = child.ending()
        place, step = child.marks[AT], child.marks[STEP]
        compared = ending is not None and ending.kind == "hang" and step == COMPARING
        death = None if ending is None or compared else Death(place, step, ending)
        self._add(child, place + (ending is not None), death, undecided=compared)
        self._next()

    def _add(self, child: Child, stop: int, death: Death | None = None, *, undecided: bool = False) -> None:
        marks = child.marks
        piece = Piece(self._start, stop, self._found, death, marks[UNDECIDED] + undecided, marks[SKIPPED])
        self._start = stop
        self.pieces.append(piece)

    def cut(self) -> list[Piece]:
        """Return what is there, and go no further."""
        if self.child:
            child, self.child = self.child, None
            child.end()
            self._add(child, child.marks[AT])
        return [*self.pieces]

    def end(self) -> None:
        """End the process at work."""
        if self.child:
            self.child.end()


def _in_order(lanes: "deque[_Lane]") -> Iterator[Piece]:
    """Take what is next in order, range by range."""
    while lanes:
        while lanes[0].pieces:
            yield lanes[0].pieces.popleft()
        if lanes[0].busy:
            return
        lanes.popleft()
