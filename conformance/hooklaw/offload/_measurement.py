"""A visit of a cell: pytest-benchmark takes the rounds, a worker takes the steps."""

import random
from typing import Any, NamedTuple

from hooklaw.offload._cell_worker import CellWorker
from hooklaw.offload._sampling import Round, Times
from hooklaw.offload._worker import Closed
from hooklaw.offload.plan import CellPlan, warm_ups


class StepClock:
    """The timer of pytest-benchmark: between two looks at it, the seconds of the worker's last step have passed."""

    now = 0.0
    """Seconds since the round began."""

    def __call__(self) -> float:
        return self.now


CLOCK = StepClock()


class Measurement(NamedTuple):
    """What a visit found."""

    rounds: list[Round]
    closed: Closed


def measure(  # noqa: PLR0913 - a visit's three values are keywords
    benchmark: Any, worker: CellWorker, cell: CellPlan, *, visit: int, rounds: int, account: bool
) -> Measurement:
    """Visit a cell; BrokenCellError where the strategy raises or ends the worker.

    Each round takes the plain step and the strategy's, in shuffled order: one is the round's target, the other belongs
    to its setup or its teardown.
    """
    pairs = _Pairs(worker, random.Random(f"{cell.name} {visit}"))  # noqa: S311 - an order of steps is no secret
    worker.open(cell)
    benchmark.pedantic(
        pairs.own, setup=pairs.before, teardown=pairs.after, rounds=rounds, warmup_rounds=warm_ups(cell.device)
    )
    closed = worker.close_cell(account=account)
    counted = [] if benchmark.stats is None else benchmark.stats.stats.data  # None under --benchmark-disable
    pairs.taken = pairs.taken[len(pairs.taken) - len(counted) :]
    timed = zip(counted, pairs.taken, strict=True)
    return Measurement([Round(plain, Times(step, own.forward)) for step, (plain, own) in timed], closed)


class _Pairs:
    """The two steps of each round."""

    def __init__(self, worker: CellWorker, coin: random.Random) -> None:
        self._worker, self._coin = worker, coin
        self._plain: Times | None = None
        self._own = Times(0.0, 0.0)
        self.taken: list[Round] = []

    def before(self) -> None:
        """Begin a round, with the plain step if the coin says so."""
        CLOCK.now = 0.0
        self._plain = self._worker.take(plain=True) if self._coin.random() < 0.5 else None  # noqa: PLR2004 - a coin

    def own(self) -> None:
        """Take the strategy's step."""
        self._own = self._worker.take(plain=False)
        CLOCK.now = self._own.step

    def after(self) -> None:
        """End a round, with the plain step if it has not been taken."""
        self.taken.append(Round(self._plain or self._worker.take(plain=True), self._own))
