"""Answers: which strategy fits in so many bytes and what it costs, one sentence for each budget that changes it."""

from collections.abc import Sequence

import msgspec

from hooklaw.offload.frontier import lawful, passed, price, within
from hooklaw.offload.plan import PLAIN
from hooklaw.results.figures import TIMES, size_up, times
from hooklaw.results.records import Cell


class BudgetAnswer(msgspec.Struct, frozen=True):
    """The answer from this many bytes on; the budget itself stands between `before` and `after`."""

    least: int
    before: str
    after: str
    strategy: str = ""

    def sentence(self, budget: str) -> str:
        """Return the answer for a budget."""
        return f"{self.before}{budget}{self.after}"


def answers(cells: Sequence[Cell], where: str) -> list[BudgetAnswer]:
    """Return the answers by ascending budget; the first is for budgets in which nothing fits."""
    passing = [cell for cell in cells if passed(cell)]
    steps = sorted({cell.peak for cell in passing})
    found = [_nothing(passing, where)]
    for step in steps:
        answer = _answer(step, passing, where)
        if answer.after != found[-1].after:
            found.append(answer)
    return found


def pick(found: Sequence[BudgetAnswer], budget: float) -> BudgetAnswer:
    """Return the answer for this many bytes."""
    return [answer for answer in found if answer.least <= budget][-1]


def _nothing(passing: Sequence[Cell], where: str) -> BudgetAnswer:
    least = min(passing, key=lambda cell: (cell.peak, price(cell)), default=None)
    if not least:
        return BudgetAnswer(0, "In ", f", nothing can be said of {where}: no strategy came through.")
    return BudgetAnswer(0, "Nothing here fits in ", f" for {where}; the least is {_cost(least)}{_but(least)}.")


def _answer(budget: int, passing: Sequence[Cell], where: str) -> BudgetAnswer:
    fitting = [cell for cell in passing if cell.peak <= budget]
    chosen = within(fitting, budget) or fitting[0]
    if chosen.strategy == PLAIN:
        said = f", {where} fits as it is: the plain step needs {size_up(chosen.peak)}.{_faster(fitting)}"
        return BudgetAnswer(budget, "In ", said, PLAIN)
    needs = next((size_up(cell.peak) for cell in passing if cell.strategy == PLAIN), "")
    ends = f"; the plain step needs {needs}." if needs else "."
    runs = f", {where} runs with {_cost(chosen)}{_but(chosen)}{ends}"
    return BudgetAnswer(budget, "In ", runs + _lossy(chosen, fitting), chosen.strategy)


def _cost(cell: Cell, of: str = " the plain step's time") -> str:
    quartiles = f"quartiles {times(cell.ratio_q1)} and {times(cell.ratio_q3)}"
    return f"{cell.strategy} at {times(cell.ratio)} {TIMES}{of} ({quartiles}) in {size_up(cell.peak)}"


def _but(cell: Cell) -> str:
    if not lawful(cell):
        return ", though it breaks the packer law"
    return "" if cell.lossless else ", though it is lossy"


def _faster(fitting: Sequence[Cell]) -> str:
    best = _cheapest([cell for cell in fitting if cell.lossless and lawful(cell)])
    if not best or best.strategy == PLAIN or price(best) >= 1:
        return ""
    return f" Another is faster still: {_cost(best, '')}."


def _lossy(chosen: Cell, fitting: Sequence[Cell]) -> str:
    other = _cheapest([cell for cell in fitting if not cell.lossless and lawful(cell)])
    if not chosen.lossless or not other or price(other) >= price(chosen):
        return ""
    return f" A lossy one is cheaper: {_cost(other, '')}."


def _cheapest(cells: Sequence[Cell]) -> Cell | None:
    return min(cells, key=lambda cell: (price(cell), cell.peak), default=None)
