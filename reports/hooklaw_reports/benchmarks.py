"""Benchmark runs side by side: machines are told apart, and for a cell measured twice the latest run counts."""

from collections.abc import Sequence

import msgspec

from hooklaw.results.records import Cell, Run
from hooklaw_reports.runs import unfinished

PROCESSOR = "cpu"
Place = tuple[str, str, str]


class Group(msgspec.Struct):
    """The cells of one workload, device and setting."""

    title: str
    cells: list[Cell]
    notes: list[str]


class _Found(msgspec.Struct):
    cells: dict[str, tuple[Cell, Run]] = {}
    replaced: dict[tuple[str, str], int] = {}
    """How many cells of one file are replaced by those of another."""
    runs: list[Run] = []


def groups(runs: Sequence[Run]) -> list[Group]:
    """Return the groups in the order in which they were measured."""
    found: dict[Place, _Found] = {}
    for run in sorted(runs, key=lambda run: run.header.started):
        for cell in run.cells:
            place = (cell.workload, _device(cell.device, run, runs), cell.setting)
            _take(cell, run, found.setdefault(place, _Found()))
    return [
        Group(_title(place), [cell for cell, _ in group.cells.values()], _notes(group))
        for place, group in found.items()
    ]


def devices(run: Run, runs: Sequence[Run]) -> str:
    """Return where a run measured."""
    return ", ".join(dict.fromkeys(_device(cell.device, run, runs) for cell in run.cells)) or run.header.device


def _take(cell: Cell, run: Run, found: _Found) -> None:
    if run not in found.runs:
        found.runs.append(run)
    if earlier := found.cells.get(cell.strategy):
        pair = (earlier[1].file, run.file)
        found.replaced[pair] = found.replaced.get(pair, 0) + 1
    found.cells[cell.strategy] = (cell, run)


def _notes(found: _Found) -> list[str]:
    later = [
        f"measured twice, in {old} and {new}: {number} of these cells; shown is the later run, {new}"
        for (old, new), number in found.replaced.items()
    ]
    return later + [f"{run.file}: {unfinished(run)}" for run in found.runs if not run.complete]


def _title(place: Place) -> str:
    workload, device, setting = place
    return f"{workload} on {device}" + (f", {setting}" if setting else "")


def _device(device: str, run: Run, runs: Sequence[Run]) -> str:
    """Return the device's name, with the processor's where the report has several of that name."""
    if device != PROCESSOR:
        return device
    found = {
        other.header.versions.get("cpu", "") for other in runs if any(cell.device == device for cell in other.cells)
    }
    return f"{device} ({run.header.versions.get('cpu') or run.file})" if len(found) > 1 else device
