"""How sure a ratio is, and so whether a cell gets further rounds."""

import statistics
from collections.abc import Sequence

SURE = 0.015
"""A ratio whose standard error is a smaller part of it is sure: two runs then differ by less than a twentieth."""
SECONDS = 0.35
"""So much time each cell adds for further rounds, to what those before it have left: a run stays bounded as a whole."""
OF_MEDIAN = 0.93
"""A median's standard error through the distance of the quartiles, times the root of how many numbers there are."""


def quartiles(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    first, middle, third = statistics.quantiles(ratios, n=4, method="inclusive")
    return first, middle, third


def unsure(ratios: Sequence[float]) -> bool:
    """Tell whether the rounds so far disagree too much for their median to be trusted."""
    first, middle, third = quartiles(ratios)
    return OF_MEDIAN * (third - first) > SURE * middle * len(ratios) ** 0.5
