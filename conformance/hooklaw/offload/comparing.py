"""Two runs of the benchmark side by side: what got worse by more than its own spread."""

import json
from pathlib import Path
from typing import Any

import msgspec

from hooklaw.errors import BenchError, RecordFileError
from hooklaw.offload.wording import aligned, piped
from hooklaw.results import records
from hooklaw.results.records import Cell, key_of
from hooklaw.results.verdict import Outcome

TOLERANCE = 0.1
MACHINE = ("cpu", "device", "torch", "python")


class Measured(msgspec.Struct, frozen=True):
    """The cells of a file, and where they were measured."""

    cells: list[Cell]
    versions: dict[str, str]


class CellPair(msgspec.Struct, frozen=True):
    """A cell of two runs."""

    workload: str
    setting: str
    strategy: str
    old: float
    new: float
    old_peak: int
    new_peak: int
    change: str
    """Empty, or what changed beyond the quartiles, in words."""
    worse: bool = False


class Comparison(msgspec.Struct, frozen=True):
    """Two runs side by side."""

    pairs: list[CellPair]
    warning: str = ""

    @property
    def worse(self) -> list[CellPair]:
        """Return the cells that got worse or were lost."""
        return [pair for pair in self.pairs if pair.worse]


def load(path: Path) -> Measured:
    """Read a record of hooklaw or pytest-benchmark's JSON with its cells; RecordFileError if the file is neither."""
    if found := _benchmark_json(path):
        return found
    cells = {key_of(cell): (cell, run) for run in records.read(path) for cell in run.cells}
    if not cells:
        raise RecordFileError(f"{path} holds no cells: give a file that `hooklaw bench --results=FILE` wrote")
    versions = {name: value for _, run in cells.values() for name, value in run.header.versions.items()}
    return Measured([cell for cell, _ in cells.values()], versions)


def compare(old: Measured, new: Measured, tolerance: float = TOLERANCE) -> Comparison:
    """Compare each cell of the old run with the new run's; BenchError if they have no cell in common."""
    later = {key_of(cell): cell for cell in new.cells}
    earlier = {key_of(cell): cell for cell in old.cells}
    if not later.keys() & earlier.keys():
        raise BenchError("the two files have no cell in common: nothing can be compared")
    pairs = [_pair(cell, later.get(key), tolerance) for key, cell in earlier.items()]
    pairs += [
        CellPair(cell.workload, cell.setting, cell.strategy, 0.0, cell.ratio, 0, cell.peak, "new")
        for key, cell in later.items()
        if key not in earlier
    ]
    return Comparison(pairs, _warning(old.versions, new.versions))


def _pair(old: Cell, new: Cell | None, tolerance: float) -> CellPair:
    ratio, peak = (new.ratio, new.peak) if new else (0.0, 0)
    change, worse = _change(old, new, tolerance) if new else ("lost", True)
    return CellPair(old.workload, old.setting, old.strategy, old.ratio, ratio, old.peak, peak, change, worse)


def _change(old: Cell, new: Cell, tolerance: float) -> tuple[str, bool]:
    if old.outcome is not new.outcome:
        return f"was {old.outcome}, is {new.outcome}: {new.detail}".removesuffix(": "), new.outcome is not Outcome.PASS
    said: list[str] = []
    slower = new.ratio_q1 > old.ratio_q3
    if slower or new.ratio_q3 < old.ratio_q1:
        said.append(f"time {_percent(old.ratio, new.ratio)}")
    if new.peak != old.peak:
        said.append(f"memory {_percent(old.peak, new.peak)}")
    worse = (slower and new.ratio > old.ratio * (1 + tolerance)) or new.peak > old.peak * (1 + tolerance)
    return ", ".join(said) + (" WORSE" if worse else ""), worse


def _percent(old: float, new: float) -> str:
    return f"{(new / old - 1) * 100:+.0f} %" if old else "new"


def _warning(old: dict[str, str], new: dict[str, str]) -> str:
    names = [name for name in MACHINE if old.get(name) and new.get(name) and old[name] != new[name]]
    changed = ", ".join(f"{name} {old[name]} and {new[name]}" for name in names)
    return f"the runs come from different machines or software ({changed}): ratios may differ" if names else ""


def render(found: Comparison, form: str) -> str:
    """Return the comparison in one of the formats."""
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
    rows = [["workload", "setting", "strategy", "old ratio", "new ratio", "change"]]
    rows += [
        [pair.workload, pair.setting, pair.strategy, _ratio(pair.old), _ratio(pair.new), pair.change]
        for pair in found.pairs
    ]
    table = piped(rows) if form == "markdown" else aligned(rows)
    return f"{table}\n{len(found.pairs)} cells, {len(found.worse)} worse or lost\n"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value else ""


def _benchmark_json(path: Path) -> Measured | None:
    try:
        data: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None  # reading it as a record says what is wrong
    if not isinstance(data, dict) or "benchmarks" not in data:
        return None
    ours: Any = data.get("hooklaw", {})  # pyright: ignore[reportUnknownMemberType]
    try:
        cells = msgspec.convert(ours["cells"], list[Cell])
    except (KeyError, TypeError, msgspec.MsgspecError) as error:
        raise RecordFileError(f"{path}: pytest-benchmark's JSON without figures of hooklaw: {error}") from error
    info: Any = data.get("machine_info", {})  # pyright: ignore[reportUnknownMemberType]
    return Measured(
        cells, {"cpu": str(info.get("cpu", {}).get("brand_raw", "")), "python": info.get("python_version", "")}
    )
