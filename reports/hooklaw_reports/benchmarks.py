"""Benchmark runs side by side: machines are told apart, and for a cell measured twice the latest run counts."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

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


Measured = dict[str, list[tuple[Cell, Run]]]
"""By strategy, its cells with their runs, the latest last."""


def groups(runs: Sequence[Run]) -> list[Group]:
    """Return the groups in the order in which they were measured."""
    found: dict[Place, Measured] = {}
    for run in sorted(runs, key=lambda run: run.header.started):
        for cell in run.cells:
            place = (cell.workload, _device(cell.device, run, runs), cell.setting)
            found.setdefault(place, {}).setdefault(cell.strategy, []).append((cell, run))
    return [
        Group(_title(place), [cells[-1][0] for cells in measured.values()], _notes(measured))
        for place, measured in found.items()
    ]


def devices(run: Run, runs: Sequence[Run]) -> str:
    """Return where a run measured."""
    return ", ".join(dict.fromkeys(_device(cell.device, run, runs) for cell in run.cells)) or run.header.device


def _notes(measured: Measured) -> list[str]:
    pairs = Counter((old.file, new.file) for its in measured.values() for (_, old), (_, new) in pairwise(its))
    runs = {run.file: run for its in measured.values() for _, run in its}
    later = [
        f"measured twice, in {old} and {new}: {number} of these cells; shown is the later run, {new}"
        for (old, new), number in pairs.items()
    ]
    return later + [f"{file}: {unfinished(run)}" for file, run in runs.items() if not run.complete]


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
