"""The columns of a benchmark's table, and the further figures of an opened row."""

from collections.abc import Callable

import msgspec

from hooklaw.results.records import Cell
from hooklaw.results.verdict import Outcome
from hooklaw_reports.answers import PLAIN
from hooklaw_reports.figures import ABSENT, DIVIDED, TIMES, error, rate, seconds, size, size_up, times


class Figure(msgspec.Struct, frozen=True):
    """One figure of a cell: its heading, what it sorts by, and its text."""

    head: str
    value: Callable[[Cell], float | None]
    text: Callable[[Cell], str]
    long: str = ""
    """The heading where there is room for it."""


def _spread(cell: Cell) -> str:
    return f"{times(cell.ratio_q1)} to {times(cell.ratio_q3)}" if cell.ratio else ABSENT


def _efficiency(cell: Cell) -> str:
    return f"{cell.efficiency:.0%}" if cell.efficiency else ABSENT


def _error(cell: Cell) -> str:
    return error(cell.error) if cell.outcome in {Outcome.PASS, Outcome.FAIL} else ABSENT


def _sized(head: str, value: Callable[[Cell], int], long: str = "") -> Figure:
    return Figure(head, lambda cell: value(cell) or None, lambda cell: size(value(cell)), long)


def _timed(head: str, value: Callable[[Cell], float], long: str = "") -> Figure:
    return Figure(head, lambda cell: value(cell) or None, lambda cell: seconds(value(cell)), long)


CHARTED = [
    Figure(
        f"{TIMES} plain",
        lambda cell: cell.ratio or None,
        lambda cell: times(cell.ratio),
        "Time relative to the plain step",
    ),
    Figure("quartiles", lambda cell: cell.ratio_q1 or None, _spread, "Quartiles of the ratio"),
    Figure("peak", lambda cell: cell.peak or None, lambda cell: size_up(cell.peak), "Peak memory"),
]
"""The figures of the chart, first in the table; state and packer law follow."""

COLUMNS = [
    Figure("efficiency", lambda cell: cell.efficiency or None, _efficiency, f"Efficiency (floor {DIVIDED} step)"),
    Figure("error", lambda cell: cell.error if _error(cell) != ABSENT else None, _error, "Gradient error"),
    _timed("step", lambda cell: cell.step),
    _timed("forward", lambda cell: cell.forward),
    _timed("backward", lambda cell: cell.backward),
    _sized("after forward", lambda cell: cell.after_forward, "Held after forward"),
    _sized("host", lambda cell: cell.host, "Host memory or file"),
    _sized("moved out", lambda cell: cell.out),
]
"""The other columns of the table."""

FURTHER = [
    _sized("moved back", lambda cell: cell.back),
    _sized("packed", lambda cell: cell.packed, "Packed by autograd"),
    Figure("packs", lambda cell: cell.packs or None, lambda cell: str(cell.packs)),
    _sized("deduplicated", lambda cell: cell.deduplicated),
    Figure("rate", lambda cell: cell.rate or None, lambda cell: rate(cell.rate), "Rate, both ways"),
    Figure("ceiling", lambda cell: cell.ceiling or None, lambda cell: rate(cell.ceiling), "Ceiling of the medium"),
    _timed("floor", lambda cell: cell.floor, "Floor of the step"),
    _sized("static", lambda cell: cell.static, "Memory held before the step"),
    _sized("reserved", lambda cell: cell.reserved, "Reserved by CUDA"),
    Figure("error64", lambda cell: cell.error64 or None, lambda cell: error(cell.error64), "Error against float64"),
    Figure(
        "plain64",
        lambda cell: cell.plain_error64 or None,
        lambda cell: error(cell.plain_error64),
        "Error of the plain step against float64",
    ),
    Figure("rounds", lambda cell: cell.rounds or None, lambda cell: str(cell.rounds)),
]
"""What an opened row shows besides."""


def facts(cell: Cell) -> list[tuple[str, str]]:
    """Return every figure of a cell that was measured, by its long heading."""
    shown = [
        ((figure.long or figure.head[0].upper() + figure.head[1:]), figure.text(cell))
        for figure in (*CHARTED, *COLUMNS, *FURTHER)
        if figure.value(cell) is not None
    ]
    unequal = [] if cell.buffers_equal or cell.strategy == PLAIN else [("Buffers", "differ from the plain step's")]
    return shown + unequal
