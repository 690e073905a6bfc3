"""The columns of a benchmark's table, and the further figures of an opened row."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from hooklaw.offload.plan import PLAIN
from hooklaw.results.figures import ABSENT, DIVIDED, TIMES, error, percent, rate, seconds, size, size_up, times
from hooklaw.results.records import Cell
from hooklaw.results.verdict import Outcome


class Figure(msgspec.Struct, frozen=True):
    """One figure of a cell: its heading, the amount that it sorts by, and how that is written."""

    head: str
    amount: str
    unit: Callable[[Any], str]
    title: str = ""
    """The heading where there is room for it."""

    def value(self, cell: Cell) -> float | None:
        """Return the amount, or None if it was not measured; an error of 0 is a result."""
        if self.amount == "error":
            return cell.error if cell.outcome in {Outcome.PASS, Outcome.FAIL} else None
        return attrgetter(self.amount)(cell) or None

    def text(self, cell: Cell) -> str:
        """Return the amount with its unit."""
        value = self.value(cell)
        if self.amount == "ratio_q1" and value:
            return f"{times(cell.ratio_q1)} to {times(cell.ratio_q3)}"
        return ABSENT if value is None else self.unit(value)

    @property
    def name(self) -> str:
        """The heading in an opened row."""
        return self.title or self.head[0].upper() + self.head[1:]


CHARTED = [
    Figure(f"{TIMES} plain", "ratio", times, "Time relative to the plain step"),
    Figure("quartiles", "ratio_q1", times, "Quartiles of the ratio"),
    Figure("peak", "peak", size_up, "Peak memory"),
]
"""The figures of the chart, first in the table; state and packer law follow."""

COLUMNS = [
    Figure("efficiency", "efficiency", "{:.0%}".format, f"Efficiency (floor {DIVIDED} step)"),
    Figure("error", "error", error, "Gradient error"),
    Figure("step", "step", seconds),
    Figure("forward", "forward", seconds),
    Figure("backward", "backward", seconds),
    Figure("after forward", "after_forward", size, "Held after forward"),
    Figure("host", "host", size, "Host memory or file"),
    Figure("moved out", "out", size),
]
"""The other columns of the table."""

FURTHER = [
    Figure("moved back", "back", size),
    Figure("packed", "packed", size, "Packed by autograd"),
    Figure("packs", "packs", str),
    Figure("deduplicated", "deduplicated", size),
    Figure("rate", "rate", rate, "Rate, both ways"),
    Figure("ceiling", "ceiling", rate, "Ceiling of the medium"),
    Figure("copies", "copy_rate", rate, "Rate while it copied"),
    Figure("hidden", "hidden", percent, "Copies behind computation"),
    Figure("floor", "floor", seconds, "Floor of the step"),
    Figure("static", "static", size, "Memory held before the step"),
    Figure("reserved", "reserved", size, "Reserved by CUDA"),
    Figure("error64", "error64", error, "Error against float64"),
    Figure("plain64", "plain_error64", error, "Error of the plain step against float64"),
    Figure("rounds", "rounds", str),
]
"""The further figures of an opened row."""

ALL = [*CHARTED, *COLUMNS, *FURTHER]


def facts(cell: Cell) -> list[tuple[str, str]]:
    """Return every figure of a cell that was measured, by its long heading."""
    shown = [(figure.name, figure.text(cell)) for figure in ALL if figure.value(cell) is not None]
    unequal = [] if cell.buffers_equal or cell.strategy == PLAIN else [("Buffers", "differ from the plain step's")]
    return shown + unequal
