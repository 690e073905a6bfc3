"""The runner: pytest with pytest-benchmark, whose own output is hidden, and a line of progress."""

import io
import os
from collections.abc import Generator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from hooklaw.errors import HooklawError, OutputError
from hooklaw.offload import bench_cells
from hooklaw.offload.bench_cells import NAME, Runner
from hooklaw.offload.benchmark import BenchmarkRun
from hooklaw.results.records import Cell, Run, replace_file
from hooklaw.results.verdict import Outcome

HERE = Path(__file__).parent
EXPECTED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)


def run(benchmark: BenchmarkRun, json: Path | None = None) -> Run:
    """Measure the cells that are left; pytest-benchmark's JSON goes to a file if one is named."""
    if not benchmark.left():
        return benchmark.finish()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        os.environ.pop(name, None)  # in a worker of xdist, pytest-benchmark would measure nothing
    keeper = _Keeper(benchmark)
    folders = TemporaryDirectory(prefix="hooklaw-") if json else nullcontext("")
    with folders as folder, redirect_stdout(io.StringIO()) as said:
        made = Path(folder, "benchmark.json")
        with redirect_stderr(io.StringIO()):
            status = pytest.main(_arguments(made if json else None), plugins=[keeper])
        done = benchmark.finish(interrupted=status == pytest.ExitCode.INTERRUPTED or len(benchmark.left()) > 0)
        if status not in EXPECTED or keeper.fault:
            last = (said.getvalue().strip().splitlines() or ["pytest said nothing"])[-1]
            raise HooklawError(keeper.fault or f"the run broke inside pytest (exit status {int(status)}): {last}")
        if json and made.exists():
            _keep(made, json)
    return done


def _arguments(json: Path | None) -> list[str]:
    wanted = [f"--benchmark-json={json}"] if json else []  # it looks at the machine, which takes a second
    return [
        *("-c", str(HERE.parent / "pytest.ini"), "-o", "addopts=--import-mode=importlib", "--rootdir", str(HERE)),
        *("--noconftest", "-q", "-p", "no:cacheprovider", "-p", "no:logging", "-p", "no:faulthandler"),
        *("-p", "pytest_benchmark.plugin", *wanted, str(Path(bench_cells.__file__))),
    ]


def _keep(made: Path, json: Path) -> None:
    try:
        replace_file(json, made.read_text(encoding="utf-8"))
    except OSError as error:
        raise OutputError(f"cannot write pytest-benchmark's JSON to {json}: {error.strerror}") from error


class BenchmarkProgress:
    """One line that is rewritten on a terminal, or one line per cell; pytest does not capture it."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
        self._live = self._stream.isatty()
        self._all = self._done = self._visits = 0

    def start(self, benchmark: BenchmarkRun) -> None:
        """Show how much there is to do."""
        plan = benchmark.plan
        self._all, self._visits = len(benchmark.cells), plan.visits
        self._done = self._all - len(benchmark.left())
        self.say(f"{self._all} cells, {plan.span} rounds each, on {plan.device}")

    def step(self, cell: Cell, visit: int) -> None:
        """Show that a cell is done or, on a terminal, that it was visited."""
        over = visit + 1 == self._visits or cell.outcome is not Outcome.PASS
        self._done += over
        came = f"{cell.ratio:.2f} x" if cell.outcome is Outcome.PASS else str(cell.outcome)
        which = "" if over else f", visit {visit + 1} of {self._visits}"
        if over or self._live:
            self.say(f"  {self._done:3}/{self._all} {cell.workload} {cell.strategy}: {came}{which}")

    def say(self, text: str) -> None:
        """Show a line."""
        self._stream.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._live and not self._stream.closed:
            self.say("")
        self._stream.close()


class _Keeper:
    """Brings the benchmark into pytest, and keeps the sentence of a fault that pytest would wrap."""

    def __init__(self, benchmark: BenchmarkRun) -> None:
        self.fault = ""
        self._benchmark = benchmark

    def pytest_configure(self, config: pytest.Config) -> None:
        """Register the benchmark under the name that the cells look for."""
        config.pluginmanager.register(Runner(self._benchmark), NAME)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: "pytest.CallInfo[None]") -> Generator[None, Any, Any]:
        """Stop if the record cannot be written."""
        if call.excinfo and isinstance(call.excinfo.value, HooklawError):
            self.fault = self.fault or str(call.excinfo.value)
            pytest.exit(self.fault)
        return (yield)
