"""Cells of several benchmark runs, side by side: machines are told apart, and of one cell the latest run speaks."""

from collections.abc import Sequence

import msgspec

from hooklaw.results.records import Cell, Run, RunKind
from hooklaw_reports import sentences

ON_THE_PROCESSOR = "cpu"
Place = tuple[str, str, str]


class Group(msgspec.Struct):
    """The cells of one workload, device and setting."""

    title: str
    cells: list[Cell]
    notes: list[str]


class _Found(msgspec.Struct):
    cells: dict[str, tuple[Cell, Run]] = {}
    given_way: dict[tuple[str, str], int] = {}
    """How many cells of one file give way to those of another."""
    runs: list[Run] = []


def gathered(runs: Sequence[Run]) -> tuple[list[Group], list[tuple[str, Run]]]:
    """Return the groups in the order in which they were measured, and every benchmark run with where it ran."""
    measured = [run for run in runs if run.header.run_kind is RunKind.BENCHMARK]
    found: dict[Place, _Found] = {}
    for run in sorted(measured, key=lambda one: one.header.started):
        for cell in run.cells:
            place = (cell.workload, _device(cell.device, run, measured), cell.setting)
            _take(cell, run, found.setdefault(place, _Found()))
    groups = [
        Group(_title(place), [cell for cell, _ in one.cells.values()], _notes(one)) for place, one in found.items()
    ]
    return groups, [(_where(run, measured), run) for run in measured]


def _take(cell: Cell, run: Run, found: _Found) -> None:
    if run not in found.runs:
        found.runs.append(run)
    if earlier := found.cells.get(cell.strategy):
        pair = (earlier[1].file, run.file)
        found.given_way[pair] = found.given_way.get(pair, 0) + 1
    found.cells[cell.strategy] = (cell, run)


def _notes(found: _Found) -> list[str]:
    later = [
        f"measured twice, in {old} and {new}: {number} of these cells; shown is the later run, {new}"
        for (old, new), number in found.given_way.items()
    ]
    cut = [f"{run.file}: {sentences.unfinished(run)}" for run in found.runs if not run.complete]
    return later + cut


def _title(place: Place) -> str:
    workload, device, setting = place
    return f"{workload} on {device}" + (f", {setting}" if setting else "")


def _device(device: str, run: Run, measured: Sequence[Run]) -> str:
    """Return the device's name, with the processor's where the report has several of that name."""
    if device != ON_THE_PROCESSOR:
        return device
    names = {one.header.versions.get("cpu", "") for one in measured if any(cell.device == device for cell in one.cells)}
    name = run.header.versions.get("cpu") or run.file
    return f"{device} ({name})" if len(names) > 1 else device


def _where(run: Run, measured: Sequence[Run]) -> str:
    devices = dict.fromkeys(_device(cell.device, run, measured) for cell in run.cells)
    return ", ".join(devices) or run.header.device
