"""Verdicts of the packer law on the strategies of a benchmark, from the packer runs in the same report."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from hooklaw.offload.plan import PLAIN
from hooklaw.results.figures import ABSENT
from hooklaw.results.records import Cell
from hooklaw.results.summary import count, counted, words
from hooklaw.results.verdict import JUDGED, Outcome
from hooklaw_reports.runs import date
from hooklaw_reports.sheet import Column

SHIPPED = {
    "disk-raw": "hooklaw_backends.offload.disk:DiskRaw",
    "disk-save": "hooklaw_backends.offload.disk:DiskSave",
    "async": "hooklaw_backends.offload.asynchronous:Async",
}
"""The packers of shipped strategies, for records whose cells do not name theirs."""


class StrategyVerdict(msgspec.Struct, frozen=True):
    """What is known of a strategy's packer."""

    lawful: bool | None
    text: str
    source: str = ""
    """Which run judged it."""
    address: str = ""
    """Where the report shows that run."""


def verdict_of(cell: Cell, packers: Sequence[Column]) -> StrategyVerdict:
    """Return the verdict on a cell's packer: a broken law counts, whether the cell or a packer run says so."""
    fitting = [column for column in packers if column.run.header.backend in _packers_of(cell)]
    if not fitting:
        unknown = ABSENT if cell.strategy == PLAIN else "not judged"
        text = {True: "kept", False: "broken", None: unknown}[cell.lawful]
        return StrategyVerdict(cell.lawful, text, "" if cell.lawful is None else "the benchmark's own judgement")
    column = max(fitting, key=lambda column: (_same_device(column, cell), column.run.header.started))
    lawful = cell.lawful is not False and not column.regressions
    source = f"the run of {column.run.header.backend} on {column.run.header.device}, {date(column.run)}"
    return StrategyVerdict(lawful, _text(column, lawful=lawful), source, _address(column))


def judged(cells: Iterable[Cell], packers: Sequence[Column]) -> list[Cell]:
    """Return the cells with the verdicts on their packers."""
    return [replace(cell, lawful=verdict_of(cell, packers).lawful) for cell in cells]


def _packers_of(cell: Cell) -> set[str]:
    if cell.packer:
        return {cell.packer}
    return {*cell.strategy.split("+"), *(SHIPPED.get(part, "") for part in re.split(r"[+:]", cell.strategy))}


def _same_device(column: Column, cell: Cell) -> bool:
    return (column.run.header.device == "cpu") == (cell.device == "cpu")


def _text(column: Column, *, lawful: bool) -> str:
    if column.regressions:
        return f"{counted(len(column.regressions), 'MUST')} broken"
    known = count(column.run).known
    kept = f"kept, {counted(known, 'SHOULD')} broken" if known else "kept"
    return kept if lawful else "broken"


def _address(column: Column) -> str:
    run = column.run
    broken = {word for rule, word in words(run).items() if run.outcome(rule) in JUDGED - {Outcome.PASS}}
    outcomes = [("outcome", word) for word in sorted(broken)]
    return "#" + urlencode([("page", "packers"), ("on", column.name), *outcomes], safe=":")
