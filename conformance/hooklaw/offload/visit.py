"""One visit of a cell: its rounds, and further ones where they disagree."""

import math
import random
import time
from typing import TYPE_CHECKING

from hooklaw.offload.hand import BrokenError, Hand
from hooklaw.offload.plan import Order
from hooklaw.offload.rounds import SECONDS, needed
from hooklaw.offload.worker import Done
from hooklaw.results.records import Cell

if TYPE_CHECKING:
    from hooklaw.offload.session import Session


class Measurement:
    """A cell while it is visited: each round takes the plain step and the strategy's, in shuffled order."""

    def __init__(self, session: "Session", hand: Hand, order: Order, visit: int) -> None:
        self._session, self._hand = session, hand
        self._order, self._visit = order, visit
        self._random = random.Random(f"{order.name} {visit}")  # noqa: S311 - an order of steps is no secret
        self._plain_first = True
        self._earlier = session.earlier(order)
        self._taken: dict[str, list[float]] = {"plain": [], "own": []}
        self._began = time.perf_counter()

    @property
    def rounds(self) -> int:
        """Return how many rounds this visit takes at least."""
        wanted = self._session.wanted
        return wanted.planned(self._visit) - (wanted.planned(self._visit - 1) if self._visit else 0)

    def open(self) -> None:
        """Load the workload and check the gradients."""
        self._hand.open(self._order, self._earlier)

    def before(self) -> None:
        """Begin a round."""
        self._plain_first = self._random.random() < 0.5  # noqa: PLR2004 - a coin
        if self._plain_first:
            self._take("plain")

    def step(self) -> float:
        """Take the strategy's step."""
        return self._take("own")

    def after(self) -> None:
        """End a round."""
        if not self._plain_first:
            self._take("plain")

    def round(self) -> None:
        """Take a round."""
        self.before()
        self.step()
        self.after()

    def close(self) -> Cell:
        """Take this visit's share of further rounds where the ratio is unsure, and return the figures."""
        wanted, now = self._session.wanted, time.perf_counter()
        end = min(now + self._session.spare + SECONDS, self._began + wanted.limit / 2)
        most = len(self._ratios) + self._share()
        while len(self._ratios) < most and self._share() and time.perf_counter() < end:
            self.round()
        self._session.spare += SECONDS - (time.perf_counter() - now)
        return self._session.add(self._order, self._visit, self._hand.finish(self._session.warm_ups))

    def _share(self) -> int:
        """Return how many further rounds the ratio needs, in equal parts from this visit on."""
        wanted, ratios = self._session.wanted, self._ratios
        later = wanted.rounds - wanted.planned(self._visit)
        missing = min(needed(ratios), wanted.most) - len(ratios) - later
        return max(0, math.ceil(missing / (wanted.visits - self._visit)))

    @property
    def _ratios(self) -> list[float]:
        pairs = zip(self._taken["own"], self._taken["plain"], strict=True)
        here = [own / plain for own, plain in pairs][self._session.warm_ups :]
        return [*(self._earlier.ratios if self._earlier else []), *here]

    def _take(self, which: str) -> float:
        seconds = self._hand.take(which)
        self._taken[which].append(seconds)
        return seconds

    def broken(self, error: BrokenError) -> Cell:
        """Return a marked cell instead."""
        return self._session.add(self._order, self._visit, Done({"outcome": error.outcome, "detail": error.detail}))
