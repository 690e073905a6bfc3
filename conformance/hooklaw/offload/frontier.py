"""Recommendations: the frontier of time and memory, and the strategy that a budget of bytes calls for.

The terminal and the report both ask here. No torch is needed.
"""

from collections.abc import Iterable, Sequence

from hooklaw.offload.plan import PLAIN
from hooklaw.results.figures import size
from hooklaw.results.records import Cell
from hooklaw.results.verdict import Outcome

MOST = 1.5
"""The ratio to the plain step that counts as bearable."""
Key = tuple[str, str, str]


def groups(cells: Iterable[Cell]) -> dict[Key, list[Cell]]:
    """Return the cells that can be compared with each other: by workload, device and setting."""
    found: dict[Key, list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.workload, cell.device, cell.setting), []).append(cell)
    return found


def passed(cell: Cell) -> bool:
    """Return whether a cell has figures that are right."""
    return cell.outcome is Outcome.PASS and cell.rounds > 0


def lawful(cell: Cell) -> bool:
    """Return whether no packer law is known to be broken."""
    return cell.lawful is not False


def price(cell: Cell) -> float:
    """Return the ratio to the plain step that counts: 1 for the plain step, and for what is faster only by chance."""
    by_chance = cell.ratio < 1 <= cell.ratio_q3
    return 1.0 if cell.strategy == PLAIN or by_chance else cell.ratio


def beats(cell: Cell, other: Cell) -> bool:
    """Return whether a cell is at least as exact, as small and as fast as another."""
    return cell.lossless >= other.lossless and cell.peak <= other.peak and price(cell) <= price(other)


def frontier(cells: Iterable[Cell], *, lossless: bool = False) -> list[Cell]:
    """Return the cells that may be recommended and that no other beats in both time and memory, the fastest first."""
    chosen = [cell for cell in cells if passed(cell) and lawful(cell) and (cell.lossless or not lossless)]
    kept: list[Cell] = []
    for cell in sorted(chosen, key=lambda cell: (price(cell), cell.peak, cell.strategy != PLAIN)):
        if not kept or cell.peak < kept[-1].peak:
            kept.append(cell)
    return kept


def within(cells: Iterable[Cell], budget: int) -> Cell | None:
    """Return the cell for so many bytes, or None if nothing fits.

    The plain step is best if it fits; then a lawful cell, then a lossless one, then the fastest.
    """
    fitting = [cell for cell in cells if passed(cell) and cell.peak <= budget]
    return min(
        fitting,
        key=lambda cell: (cell.strategy != PLAIN, not lawful(cell), not cell.lossless, price(cell), cell.peak),
        default=None,
    )


def least_memory(cells: Iterable[Cell], most: float = MOST, *, lossless: bool = True) -> Cell | None:
    """Return the cell with the least memory whose ratio to the plain step is bearable."""
    bearable = [cell for cell in frontier(cells, lossless=lossless) if price(cell) <= most]
    return min(bearable, key=lambda cell: cell.peak, default=None)


def sentences(cells: Sequence[Cell], most: float = MOST) -> list[str]:
    """Return the answer for the cells of one group: what fits in how much, and the least memory at a bearable price."""
    allowed = [cell for cell in cells if passed(cell) and lawful(cell)]
    budgets = sorted({cell.peak for cell in allowed}, reverse=True)
    answers = dict.fromkeys(cell.strategy for budget in budgets if (cell := within(allowed, budget)))
    chosen = [_fits(cell) for name in answers for cell in allowed if cell.strategy == name]
    lines = [f"To fit in {'; in '.join(chosen)}."] if chosen else ["No strategy passed, so none can be recommended."]
    plain = next((cell for cell in allowed if cell.strategy == PLAIN), None)
    exact, lossy = (least_memory(cells, most, lossless=lossless) for lossless in (True, False))
    if exact:
        lines.append(f"The least memory at up to {most:g} x the plain step: {_price(exact, plain)}.")
    if lossy and not lossy.lossless:
        lines.append(f"With gradients off by {lossy.error:.1g}: {_price(lossy, plain)}.")
    return lines


def _fits(cell: Cell) -> str:
    return f"{size(cell.peak)}: {cell.strategy} ({price(cell):.2f} x{'' if cell.lossless else ', lossy'})"


def _price(cell: Cell, plain: Cell | None) -> str:
    of_plain = f", {cell.peak / plain.peak:.0%} of the plain step's" if plain and plain.peak > 0 else ""
    return f"{cell.strategy}, {size(cell.peak)}{of_plain}, at {price(cell):.2f} x"
