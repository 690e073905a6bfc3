"""One benchmark a cell, for pytest-benchmark: ``pytest --pyargs hooklaw.offload.bench_cells --benchmark-json=FILE``.

pytest-benchmark runs the rounds and keeps the statistics, while the steps themselves are taken in a worker: a
strategy that ends its process then ends nothing else. A cell that is visited more than once is a benchmark each time,
whose `extra_info` has the figures of all rounds so far. The plain step of a round belongs to its set-up or its
tear-down, as the coin falls. The times that pytest-benchmark sees contain the way to the worker, about 0.1 ms; those
in `extra_info`, and in our records, were taken inside.
"""

from typing import Any

import msgspec
import pytest

from hooklaw.offload.hand import BrokenError
from hooklaw.offload.plan import Order, Wanted, quick
from hooklaw.offload.session import Session
from hooklaw.results.verdict import Outcome

NAME = "hooklaw-offload"


class Runner:
    """The plugin that holds the session; `hooklaw bench` brings its own, plain pytest gets a quick one."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Add all cells to the JSON: pytest-benchmark leaves out what failed."""
        output_json["hooklaw"] = {"cells": msgspec.to_builtins(self.session.run.cells)}


def session_of(config: pytest.Config) -> Session:
    """Return the session of this pytest run."""
    runner: Any = config.pluginmanager.getplugin(NAME)
    if runner is None:
        runner = Runner(Session(quick(Wanted())))
        config.pluginmanager.register(runner, NAME)
        config.add_cleanup(runner.session.close)
    return runner.session


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a benchmark of every cell."""
    if "order" in metafunc.fixturenames:
        visits = session_of(metafunc.config).visits()
        metafunc.parametrize(("order", "visit"), visits, ids=[_name(*one) for one in visits])


def _name(order: Order, visit: int) -> str:
    return f"{order.name}-{order.precision}" + (f"-again{visit}" if visit else "")


def test_cell(benchmark: Any, order: Order, visit: int, request: pytest.FixtureRequest) -> None:
    """A cell is measured, or marked with what kept it from being."""
    session = session_of(request.config)
    benchmark.group = order.workload
    if visit and (known := session.find(order)) and known.outcome is not Outcome.PASS:
        pytest.skip("the cell is marked already")
    cell = session.begin(order, visit)
    try:
        cell.open()
        benchmark.pedantic(
            cell.step,
            setup=cell.before,
            teardown=cell.after,
            rounds=cell.rounds,
            warmup_rounds=session.warm_ups,
        )
        made = cell.close()
    except BrokenError as error:
        benchmark.has_error = True
        made = cell.broken(error)
    benchmark.extra_info.update(msgspec.to_builtins(made))
    if made.detail:
        pytest.fail(made.detail, pytrace=False)
