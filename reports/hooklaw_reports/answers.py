"""Answers: which strategy fits in so many bytes and what it costs, one sentence for each budget that changes it."""

from collections.abc import Sequence

import msgspec

from hooklaw.results.records import Cell
from hooklaw.results.verdict import Outcome
from hooklaw_reports.figures import TIMES, size_up, times

PLAIN = "none"


class Answer(msgspec.Struct, frozen=True):
    """The answer from this many bytes on; the budget itself stands between `before` and `after`."""

    least: int
    before: str
    after: str
    strategy: str = ""

    def sentence(self, budget: str) -> str:
        """Return the answer for a budget."""
        return f"{self.before}{budget}{self.after}"


def answers(cells: Sequence[Cell], where: str) -> list[Answer]:
    """Return the answers by ascending budget; the first is for budgets in which nothing fits."""
    passing = [cell for cell in cells if cell.outcome is Outcome.PASS and cell.ratio]
    steps = sorted({cell.peak for cell in passing})
    found = [_nothing(passing, where)]
    for step in steps:
        answer = _answer(step, passing, where)
        if answer.after != found[-1].after:
            found.append(answer)
    return found


def pick(found: Sequence[Answer], budget: float) -> Answer:
    """Return the answer for this many bytes."""
    return [answer for answer in found if answer.least <= budget][-1]


def _nothing(passing: Sequence[Cell], where: str) -> Answer:
    least = min(passing, key=lambda cell: (cell.peak, cell.ratio), default=None)
    if not least:
        return Answer(0, "In ", f", nothing can be said of {where}: no strategy came through.")
    return Answer(0, "Nothing here fits in ", f" for {where}; the least is {_cost(least)}{_but(least)}.")


def _answer(budget: int, passing: Sequence[Cell], where: str) -> Answer:
    fitting = [cell for cell in passing if cell.peak <= budget]
    plain = next((cell for cell in fitting if cell.strategy == PLAIN), None)
    if plain:
        said = f", {where} fits as it is: the plain step needs {size_up(plain.peak)}.{_faster(fitting)}"
        return Answer(budget, "In ", said, PLAIN)
    chosen = min(fitting, key=_preference)
    needs = next((size_up(cell.peak) for cell in passing if cell.strategy == PLAIN), "")
    ends = f"; the plain step needs {needs}." if needs else "."
    runs = f", {where} runs with {_cost(chosen)}{_but(chosen)}{ends}"
    return Answer(budget, "In ", runs + _lossy(chosen, fitting), chosen.strategy)


def _cost(cell: Cell, of: str = " the plain step's time") -> str:
    quartiles = f"quartiles {times(cell.ratio_q1)} and {times(cell.ratio_q3)}"
    return f"{cell.strategy} at {times(cell.ratio)} {TIMES}{of} ({quartiles}) in {size_up(cell.peak)}"


def _but(cell: Cell) -> str:
    if not _is_lawful(cell):
        return ", though it breaks the packer law"
    return "" if cell.lossless else ", though it is lossy"


def _faster(fitting: Sequence[Cell]) -> str:
    best = _cheapest([cell for cell in fitting if _is_safe(cell)])
    if not best or best.strategy == PLAIN or best.ratio_q3 >= 1:
        return ""
    return f" Another is faster still: {_cost(best, '')}."


def _lossy(chosen: Cell, fitting: Sequence[Cell]) -> str:
    other = _cheapest([cell for cell in fitting if not cell.lossless and _is_lawful(cell)])
    if not chosen.lossless or not other or other.ratio >= chosen.ratio:
        return ""
    return f" A lossy one is cheaper: {_cost(other, '')}."


def _is_lawful(cell: Cell) -> bool:
    return cell.lawful is not False


def _preference(cell: Cell) -> tuple[bool, bool, float, int]:
    return not _is_lawful(cell), not cell.lossless, cell.ratio, cell.peak


def _is_safe(cell: Cell) -> bool:
    return cell.lossless and _is_lawful(cell)


def _cheapest(cells: Sequence[Cell]) -> Cell | None:
    return min(cells, key=lambda cell: (cell.ratio, cell.peak), default=None)
