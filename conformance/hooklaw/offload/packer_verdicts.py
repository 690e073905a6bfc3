"""Verdicts of the law of packers on the packers of strategies: judged now, or read from a results file."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from hooklaw.errors import BenchError, PackerError, WorkerError
from hooklaw.packing.judge import PackerOptions, judge
from hooklaw.results import records
from hooklaw.results.records import Run, RunKind
from hooklaw.results.summary import exit_of_run
from hooklaw.results.verdict import Exit


def verdicts(packers: Mapping[str, str], file: str, say: Callable[[str], object]) -> dict[str, bool]:
    """Return for each packer, named module:attribute, whether it keeps every MUST."""
    if file:
        return _read(Path(file))
    found: dict[str, bool] = {}
    for packer in dict.fromkeys(packers.values()):
        with suppress(PackerError, WorkerError):  # one that cannot be made without its strategy has no verdict
            found[packer] = _judged(packer, say)
    return found


def _read(path: Path) -> dict[str, bool]:
    runs = [run for run in records.read(path) if run.header.run_kind is RunKind.PACKER]
    if not runs:
        raise BenchError(f"{path} judges no packer: give a file that `hooklaw packer --results=FILE` wrote")
    found: dict[str, bool] = {}
    for run in runs:
        name = run.header.backend
        found[name] = found.get(name, True) and _holds(run)
    return found


def _judged(packer: str, say: Callable[[str], object]) -> bool:
    say(f"the law of packers on {packer}")
    return _holds(judge(PackerOptions(packer=packer, device="cpu")).run)


def _holds(run: Run) -> bool:
    return exit_of_run(run) in (Exit.OK, Exit.FIXED_OR_STALE)
