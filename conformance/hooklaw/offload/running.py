"""The runner: pytest with pytest-benchmark, whose own output is hidden."""

import io
import os
from collections.abc import Generator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from hooklaw.errors import HooklawError
from hooklaw.offload import bench_cells
from hooklaw.offload.bench_cells import NAME, Runner
from hooklaw.offload.benchmark import BenchmarkRun
from hooklaw.results.output import output_errors, replace_file
from hooklaw.results.records import Run

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
    with output_errors(f"write pytest-benchmark's JSON to {json}"):
        replace_file(json, made.read_text(encoding="utf-8"))


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
