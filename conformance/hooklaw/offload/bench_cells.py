"""One benchmark for each visit of a cell: ``pytest --pyargs hooklaw.offload.bench_cells --benchmark-json=FILE``.

pytest-benchmark takes the rounds and keeps the statistics, and our records hold the same rounds. Its timer shows the
seconds that a step took inside a worker, so that a strategy that ends its process ends nothing else. `extra_info` has
the figures of all rounds of the cell so far, and under ``plain`` the plain steps of this visit.
"""

from typing import Any

import msgspec
import pytest

from hooklaw.offload._cell_worker import BrokenCellError
from hooklaw.offload._measurement import CLOCK, measure
from hooklaw.offload.benchmark import BenchmarkRun
from hooklaw.offload.plan import CellPlan, Plan, quick

NAME = "hooklaw-offload"


class Runner:
    """The plugin that holds the benchmark; `hooklaw bench` brings its own, plain pytest gets a quick one."""

    def __init__(self, run: BenchmarkRun) -> None:
        self.run = run

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Add all cells to the JSON: pytest-benchmark leaves out what failed."""
        output_json["hooklaw"] = {"cells": msgspec.to_builtins(self.run.run.cells)}


def benchmark_of(config: pytest.Config) -> BenchmarkRun:
    """Return the benchmark of this pytest run."""
    runner: Any = config.pluginmanager.getplugin(NAME)
    if runner is None:
        runner = Runner(BenchmarkRun(quick(Plan())))
        config.pluginmanager.register(runner, NAME)
        config.add_cleanup(runner.run.close)
    return runner.run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a benchmark of every visit."""
    if "cell" in metafunc.fixturenames:
        visits = benchmark_of(metafunc.config).visits()
        metafunc.parametrize(("cell", "visit"), visits, ids=[_name(*pair) for pair in visits])


def _name(cell: CellPlan, visit: int) -> str:
    return f"{cell.name}-{cell.precision}" + (f"-again{visit}" if visit else "")


@pytest.mark.benchmark(timer=CLOCK)
def test_cell(benchmark: Any, cell: CellPlan, visit: int, request: pytest.FixtureRequest) -> None:
    """A cell is measured, or marked with what kept it from being measured."""
    run = benchmark_of(request.config)
    benchmark.group = cell.workload
    rounds = run.rounds(cell, visit)
    if not rounds:
        pytest.skip("the cell needs no further rounds, is marked already, or the time is over")
    try:
        found = measure(benchmark, run.worker, cell, visit=visit, rounds=rounds, account=run.needs_account(cell))
        made = run.add(cell, visit, found)
        benchmark.extra_info["plain"] = [plain.step for plain, _ in found.rounds]
    except BrokenCellError as error:
        benchmark.has_error = True
        made = run.mark(cell, visit, error)
    benchmark.extra_info.update(msgspec.to_builtins(made))
    if made.detail:
        pytest.fail(made.detail, pytrace=False)
