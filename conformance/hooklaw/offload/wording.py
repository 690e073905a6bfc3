"""Tables and sentences of a benchmark run, for the terminal and for markdown."""

from collections.abc import Callable, Sequence

import msgspec

from hooklaw.offload.frontier import frontier, groups, sentences
from hooklaw.offload.plan import WORKLOADS
from hooklaw.results.figures import size
from hooklaw.results.records import Cell, Run
from hooklaw.results.verdict import Outcome

FORMATS = ("text", "json", "markdown")
COLUMNS = ("strategy", "step ms", "ratio [q1-q3]", "peak", "after forward", "moved", "efficiency", "error", "mark")
FAR = 1e6


def render(run: Run, form: str) -> str:
    """Return the run in one of the formats."""
    return {"text": text, "json": as_json, "markdown": markdown}[form](run)


def as_json(run: Run) -> str:
    """Return the cells and the answer as one JSON object."""
    answers = [
        {"workload": key[0], "device": key[1], "setting": key[2], "answer": sentences(cells)}
        for key, cells in groups(run.cells).items()
    ]
    best = [
        [cell.workload, cell.setting, cell.strategy] for cells in groups(run.cells).values() for cell in frontier(cells)
    ]
    found = {"run": run.header.run, "cells": run.cells, "frontier": best, "answers": answers}
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def text(run: Run) -> str:
    """Return a table and the recommendations for each workload."""
    return _each(run, "{}\n", aligned)


def markdown(run: Run) -> str:
    """Return the same as markdown."""
    return _each(run, "### {}\n\n", piped)


def table(cells: Sequence[Cell]) -> list[list[str]]:
    """Return a row of texts for each cell."""
    best = {cell.strategy for cell in frontier(cells)}
    return [row(cell, best=cell.strategy in best) for cell in cells]


def row(cell: Cell, *, best: bool = False) -> list[str]:
    """Return a cell's row."""
    if not cell.rounds:
        return [cell.strategy, *[""] * 7, f"{cell.outcome}: {cell.detail}"]
    return [
        cell.strategy,
        f"{cell.step * 1000:.1f}",
        f"{cell.ratio:.2f} [{cell.ratio_q1:.2f}-{cell.ratio_q3:.2f}]",
        size(cell.peak),
        size(cell.after_forward),
        size(cell.out + cell.back) if cell.out + cell.back else "",
        f"{cell.efficiency:.2f}",
        far(cell.error),
        mark(cell, best=best),
    ]


def mark(cell: Cell, *, best: bool = False) -> str:
    """Return why a cell is marked, or what is special about it."""
    if cell.outcome is not Outcome.PASS:
        return f"{cell.outcome}: {cell.detail}"
    said = ["frontier"] if best else []
    said += [] if cell.lossless else ["lossy"]
    said += ["breaks the law of packers"] if cell.lawful is False else []
    return ", ".join(said)


def far(error: float) -> str:
    """Return a relative error in few digits."""
    if error > FAR:
        return "not finite"
    return f"{error:.1g}" if error else "0"


def title(key: tuple[str, str, str], cells: Sequence[Cell]) -> str:
    """Return the heading of a group of cells."""
    workload, device, setting = key
    static = next((cell.static for cell in cells if cell.static), 0)
    standing = f", {size(static)} stand before the step" if static else ""
    return f"{workload}: {WORKLOADS.get(workload, 'a workload')}; {device}, {setting}{standing}"


def _each(run: Run, heading: str, lay_out: Callable[[list[list[str]]], str]) -> str:
    parts: list[str] = []
    for key, cells in groups(run.cells).items():
        said = "".join(f"{line}\n" for line in sentences(cells))
        parts.append(heading.format(title(key, cells)) + lay_out([[*COLUMNS], *table(cells)]) + "\n" + said)
    return "\n".join(parts)


def aligned(rows: list[list[str]]) -> str:
    """Return a table as text; the columns between the first and the last are figures."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines: list[str] = []
    for first, *figures, last in rows:
        words = map(str.rjust, figures, widths[1:])
        lines.append("  ".join([first.ljust(widths[0]), *words, last]).rstrip() + "\n")
    return "".join(lines)


def piped(rows: list[list[str]]) -> str:
    """Return a table as markdown."""
    lines = [f"| {' | '.join(word.replace('|', '/') for word in row)} |\n" for row in rows]
    return "".join([lines[0], "|" + "---|" * len(rows[0]) + "\n", *lines[1:]])
