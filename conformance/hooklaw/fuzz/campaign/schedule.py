"""The schedule of a campaign: workers judge ranges of programs, and their results come in order of the programs."""

from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from time import monotonic
from typing import NamedTuple

from hooklaw.fuzz.campaign.process import AT, COMPARING, SKIPPED, STEP, UNDECIDED, Ending, Target, Worker
from hooklaw.fuzz.campaign.tasks import Anomaly, Programs, RangeTask, judge_range

RANGE = 2000
"""How many programs a worker judges, so that its start takes no time to speak of."""
SHORT_RANGE = 20
"""The same where the backend replays programs in its own way, which takes longer."""
LONG_RANGE = 5000
"""The same where each worker must load the backend again."""
WAIT = 0.5
"""Seconds between two looks at the clock."""


class ChildDeath(NamedTuple):
    """The program and the instruction at which a worker died, and how."""

    place: int
    step: int
    ending: Ending


class RangeResult(NamedTuple):
    """What a worker found in the programs from one place to another."""

    start: int
    stop: int
    anomalies: list[Anomaly]
    death: ChildDeath | None
    undecided: int
    skipped: int


class Campaign(NamedTuple):
    """What is judged, and how far."""

    target: Target
    programs: Programs
    total: int
    jobs: int
    limit: float
    """Seconds that a program may take."""
    enough: int = 20
    """After how many programs that no flag explains a worker ends, so that a wrong backend is soon known."""
    until: float = float("inf")
    """The time by `monotonic` at which to stop."""
    tick: Callable[[int], None] = lambda _: None
    """Called now and then with the number of programs that are done."""

    def results(self) -> Iterator[RangeResult]:
        """Yield the results, in order of the programs' places."""
        ranges: deque[_Range] = deque()
        start, done = 0, 0
        forked = self.target.forked
        if forked:
            self.target.import_early(self.programs(place)[1] for place in range(min(self.total, RANGE)))
        size = SHORT_RANGE if self.target.judge.own_way else RANGE if forked else LONG_RANGE
        try:
            while ranges or start < self.total:
                while start < self.total and sum(part.worker is not None for part in ranges) < self.jobs:
                    ranges.append(_Range(self, start, min(start + size, self.total)))
                    start += size
                in_time = self._wait(ranges, done)
                for result in _in_order(ranges):
                    done = result.stop
                    yield result
                if not in_time:
                    yield from (result for part in ranges for result in part.cut())
                    return
        finally:
            for part in ranges:
                part.end()

    def _wait(self, ranges: "deque[_Range]", done: int) -> bool:
        """Read answers of workers until the next look at the clock; return whether time is left."""
        ready = {part.worker.answers: part for part in ranges if part.worker}
        for answers in wait(list(ready), timeout=min(WAIT, max(0.0, self.until - monotonic()))):
            ready[answers].read()  # type: ignore[index]
        self.tick(done + sum(part.done for part in ranges))
        return monotonic() < self.until


class _Range:
    """A range of programs, judged by one worker after another: each death needs a new worker."""

    def __init__(self, campaign: Campaign, start: int, stop: int) -> None:
        self._campaign = campaign
        self._start, self._stop = start, stop
        self.results: deque[RangeResult] = deque()
        self.worker: Worker | None = None
        self._anomalies: list[Anomaly] = []
        self._begin()

    @property
    def done(self) -> int:
        """How many programs the worker has done."""
        return max(0, self.worker.marks[AT] - self._start) if self.worker else 0

    def _begin(self) -> None:
        self._anomalies = []
        if self._start < self._stop:
            campaign = self._campaign
            task = RangeTask(campaign.programs, self._start, self._stop, campaign.limit, campaign.enough)
            self.worker = Worker(campaign.target, judge_range, task, at=self._start)

    def read(self) -> None:
        """Read an answer of the worker; where it has ended, start another behind the program at which it died."""
        worker = self.worker
        if worker is None:
            return
        anomaly = worker.answer()
        if anomaly is not None:
            self._anomalies.append(anomaly)
            return
        ending = worker.ending()
        place, step = worker.marks[AT], worker.marks[STEP]
        compared = ending is not None and ending.kind == "hang" and step == COMPARING
        death = None if ending is None or compared else ChildDeath(place, step, ending)
        self._add(worker, place + (ending is not None), death, undecided=compared)
        self.worker = None
        self._begin()

    def _add(self, worker: Worker, stop: int, death: ChildDeath | None = None, *, undecided: bool = False) -> None:
        marks = worker.marks
        result = RangeResult(self._start, stop, self._anomalies, death, marks[UNDECIDED] + undecided, marks[SKIPPED])
        self._start = stop
        self.results.append(result)

    def cut(self) -> list[RangeResult]:
        """End the worker, and return the results so far."""
        if self.worker:
            worker, self.worker = self.worker, None
            worker.end()
            self._add(worker, worker.marks[AT])
        return [*self.results]

    def end(self) -> None:
        """End the worker."""
        if self.worker:
            self.worker.end()


def _in_order(ranges: "deque[_Range]") -> Iterator[RangeResult]:
    """Take the next results in order, range by range."""
    while ranges:
        while ranges[0].results:
            yield ranges[0].results.popleft()
        if ranges[0].worker:
            return
        ranges.popleft()
