"""Rounds of a cell: how many a visit takes, and the figures that they come to."""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from hooklaw.offload.formula import StepCost
from hooklaw.offload.plan import Plan

SURE = 0.012
"""A ratio is sure if its standard error is a smaller part of it: two runs then differ by less than a twentieth."""
SECONDS = 0.04
"""Seconds that each visit adds to the budget for further rounds."""
OF_MEDIAN = 0.93
"""The ratio of a median's standard error to the distance of the quartiles, times the root of the count."""


class Times(NamedTuple):
    """Seconds of one step."""

    step: float
    forward: float

    @property
    def backward(self) -> float:
        """Return what was not forward."""
        return self.step - self.forward


class Round(NamedTuple):
    """The plain step and the strategy's, taken one after the other."""

    plain: Times
    own: Times

    @property
    def seconds(self) -> float:
        """Return how long both took."""
        return self.plain.step + self.own.step


def quartiles(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    first, middle, third = statistics.quantiles(ratios, n=4, method="inclusive")
    return first, middle, third


def needed(ratios: Sequence[float]) -> int:
    """Return how many rounds with this spread make their median sure."""
    first, middle, third = quartiles(ratios)
    return math.ceil((OF_MEDIAN * (third - first) / (SURE * middle)) ** 2)


def further(plan: Plan, visit: int, rounds: Sequence[Round], seconds: float) -> int:
    """Return how many rounds a visit takes beyond its usual ones.

    Where the ratio of the rounds so far is unsure, each visit takes an equal share of what is missing, as far as the
    seconds allow and no more than half of the cell's limit is used.
    """
    if not rounds:
        return 0
    wanted = min(needed(ratios(rounds)), plan.most)
    missing = wanted - len(rounds) - (plan.rounds - plan.planned(visit - 1))
    share = math.ceil(missing / (plan.visits - visit))
    each = statistics.median(pair.seconds for pair in rounds)
    affordable = int(min(seconds, plan.limit / 2 - plan.usual(visit) * each) / each)
    return max(0, min(share, affordable))


def ratios(rounds: Sequence[Round]) -> list[float]:
    """Return the ratio of the strategy's step to the plain one, round by round."""
    return [own.step / plain.step for plain, own in rounds]


def figures(
    rounds: Sequence[Round], moved: tuple[int, int], ceiling: tuple[float, float] | None, *, recomputes: bool
) -> dict[str, Any]:
    """Return the times of a cell; `moved` are its bytes and `ceiling` its medium's bytes a second, each way."""
    plain, own = _median([pair.plain for pair in rounds]), _median([pair.own for pair in rounds])
    first, middle, third = quartiles(ratios(rounds))
    floor = plain.step + (plain.forward if recomputes else 0.0)
    if ceiling:
        link = StepCost(
            forward=plain.forward, backward=floor - plain.forward, out_rate=ceiling[0], back_rate=ceiling[1]
        )
        out, back = moved
        floor = link.floor(out, resident=max(0, out - back))
    return {
        "rounds": len(rounds),
        "step": own.step,
        "forward": own.forward,
        "backward": own.backward,
        "ratio": middle,
        "ratio_q1": first,
        "ratio_q3": third,
        "rate": sum(moved) / own.step,
        "ceiling": 2 / (1 / ceiling[0] + 1 / ceiling[1]) if ceiling else 0.0,
        "floor": floor,
        "efficiency": floor / own.step,
    }


def _median(times: list[Times]) -> Times:
    return Times(statistics.median(time.step for time in times), statistics.median(time.forward for time in times))
