"""How sure a ratio is, and so whether a cell gets further rounds."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

SURE = 0.012
"""A ratio whose standard error is a smaller part of it is sure: two runs then differ by less than a twentieth."""
SECONDS = 0.04
"""So much time each cell adds for further rounds, to what those before it have left: a run stays bounded as a whole."""
OF_MEDIAN = 0.93
"""A median's standard error through the distance of the quartiles, times the root of how many numbers there are."""


class Times(NamedTuple):
    """Seconds of one step."""

    step: float
    forward: float

    @property
    def backward(self) -> float:
        """Return what was not forward."""
        return self.step - self.forward


class Taken(msgspec.Struct):
    """What visits of a cell leave to the next one."""

    rounds: list[tuple[Times, Times]]
    """The plain step and the strategy's own."""
    moved: tuple[int, int]
    """Bytes that go out, and that come back."""
    ceiling: tuple[float, float] | None
    """Bytes a second that the medium takes, and gives back."""

    @property
    def ratios(self) -> list[float]:
        """Return the strategy's step through the plain one, round by round."""
        return [own.step / plain.step for plain, own in self.rounds]


def quartiles(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    first, middle, third = statistics.quantiles(ratios, n=4, method="inclusive")
    return first, middle, third


def needed(ratios: Sequence[float]) -> int:
    """Return how many rounds that disagree as these do make their median one to be trusted."""
    first, middle, third = quartiles(ratios)
    return math.ceil((OF_MEDIAN * (third - first) / (SURE * middle)) ** 2)
