"""Which strategies are worth having: no other one takes both less time and less memory. No torch is needed here."""

from collections.abc import Iterable, Sequence

from hooklaw.results.records import Cell
from hooklaw.results.verdict import Outcome

MOST = 1.5
"""How many times the plain step a strategy may take in the sentence that answers the question."""
PLAIN = "none"
Key = tuple[str, str, str]


def groups(cells: Iterable[Cell]) -> dict[Key, list[Cell]]:
    """Return the cells that can be compared with each other: by workload, device and setting."""
    found: dict[Key, list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.workload, cell.device, cell.setting), []).append(cell)
    return found


def eligible(cell: Cell) -> bool:
    """Tell whether a cell may be recommended: it passed, and no law is known to be broken."""
    return cell.outcome is Outcome.PASS and cell.lawful is not False and cell.rounds > 0


def frontier(cells: Iterable[Cell], *, lossless: bool = False) -> list[Cell]:
    """Return the eligible cells that no other one beats in both time and memory, the fastest first."""
    chosen = [cell for cell in cells if eligible(cell) and (cell.lossless or not lossless)]
    kept: list[Cell] = []
    for cell in sorted(chosen, key=lambda one: (_time(one), one.peak, one.strategy != PLAIN)):
        if not kept or cell.peak < kept[-1].peak:
            kept.append(cell)
    return kept


def least_memory(cells: Iterable[Cell], most: float = MOST, *, lossless: bool = True) -> Cell | None:
    """Return the cell with the least memory that takes at most so many times the plain step."""
    return min(
        (cell for cell in frontier(cells, lossless=lossless) if _time(cell) <= most),
        key=lambda cell: cell.peak,
        default=None,
    )


def sentences(cells: Sequence[Cell], most: float = MOST) -> list[str]:
    """Return the answer for the cells of one group: the frontier, and the least memory at a bearable price."""
    plain = next((cell for cell in cells if cell.strategy == PLAIN and eligible(cell)), None)
    said = [_fits(cell) for cell in frontier(cells)]
    lines = [f"To fit in {'; in '.join(said)}."] if said else ["No strategy passed, so none can be recommended."]
    exact = least_memory(cells, most)
    if exact:
        lines.append(f"The least memory at {most:g} x the plain step at most: {_price(exact, plain)}.")
    lossy = least_memory(cells, most, lossless=False)
    if lossy and not lossy.lossless:
        lines.append(f"With gradients off by {lossy.error:.1g}: {_price(lossy, plain)}.")
    return lines


def size(nbytes: int) -> str:
    """Return bytes in a unit that leaves few digits."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(nbytes) >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes} B"


def _time(cell: Cell) -> float:
    """Return the price in time: the plain step costs itself, and what is faster by chance is not faster."""
    by_chance = cell.ratio < 1 <= cell.ratio_q3
    return 1.0 if cell.strategy == PLAIN or by_chance else cell.ratio


def _fits(cell: Cell) -> str:
    return f"{size(cell.peak)}: {cell.strategy} ({_time(cell):.2f} x{'' if cell.lossless else ', lossy'})"


def _price(cell: Cell, plain: Cell | None) -> str:
    of_plain = f", {cell.peak / plain.peak:.0%} of the plain step's" if plain and plain.peak > 0 else ""
    return f"{cell.strategy}, {size(cell.peak)}{of_plain}, at {_time(cell):.2f} x"
