"""The pytest plugin: gives rules their backend and trace, and turns what happened into records.

It is loaded by name (``-p hooklaw.plugin``), by `hooklaw run` or by hand, never by being installed.
"""

from typing import Any

import pytest

from hooklaw.backend.protocol import Backend
from hooklaw.law import hypothesis_settings
from hooklaw.law.trace import Trace
from hooklaw.results.recorder import Collected
from hooklaw.results.records import Result
from hooklaw.runner.bench import TRACE, Bench, rule_of
from hooklaw.runner.controller import Controller, option
from hooklaw.workers import watchdog


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare our options; those that take a path are to be written with ``=``."""
    group = parser.getgroup("hooklaw", "the law of autograd hooks")
    group.addoption(
        "--backend", action="append", default=[], metavar="NAME[:ARG]", help="a backend to judge; repeatable"
    )
    group.addoption("--import", dest="imports", action="append", default=[], metavar="MODULE", help="import first")
    group.addoption("--results", metavar="FILE", help="write the records there (write --results=FILE)")
    group.addoption("--append-results", action="store_true", help="add to the results file")
    group.addoption("--expectations", metavar="FILE", help="use this expectation file (write --expectations=FILE)")
    group.addoption("--limit", type=float, default=watchdog.RULE_LIMIT, metavar="SECONDS", help="limit of one rule")
    group.addoption("--only-rule", metavar="ID", help="judge this one rule alone")
    group.addoption("--probe-unsupported", action="store_true", help="run what the backend denies, too")


def pytest_configure(config: pytest.Config) -> None:
    """Take part in a session that judges a backend."""
    config.addinivalue_line("markers", "rule: a rule of the law (set by @rule)")
    if config.getoption("hypothesis_profile", None) is None:
        hypothesis_settings.load()
    if not config.getoption("--backend"):
        return
    worker = getattr(config, "workerinput", None)
    config.pluginmanager.register(Bench(config), "hooklaw-bench")
    if worker is None:
        config.pluginmanager.register(Controller(config), "hooklaw-controller")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try every rule on every backend."""
    if rule_of(metafunc.function) and "backend" in metafunc.fixturenames:
        specs: list[str] = option(metafunc.config, "--backend")
        if not specs:
            raise pytest.UsageError(
                "rules are judged on a backend: name one with --backend, e.g. --backend torch-eager"
            )
        metafunc.parametrize("backend", specs, indirect=True, scope="session", ids=specs)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let -k select by id, chapter and level too."""
    rule = rule_of(getattr(item, "function", None))
    if rule:
        item.extra_keyword_matches.update((rule.id, rule.chapter, str(rule.level)))


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Any:
    """Return the backend under judgement."""
    bench: Any = request.config.pluginmanager.getplugin("hooklaw-bench")
    return bench.backends[request.param]


@pytest.fixture
def trace(request: pytest.FixtureRequest, backend: Backend) -> Trace:
    """Return a new trace for this rule."""
    made = Trace(backend)
    request.node.stash[TRACE] = made
    return made


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Name our outcomes in pytest's own terminal."""
    word = getattr(report, "hooklaw_word", None)
    return (word, word[0], word.upper()) if word in ("unsupported", "not-run") else None


class Hooks:
    """What `hooklaw run` listens to."""

    @staticmethod
    def pytest_hooklaw_collected(collected: Collected) -> None:
        """Tell what will be judged."""

    @staticmethod
    def pytest_hooklaw_result(spec: str, result: Result) -> None:
        """Tell of each result as it comes."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare our hooks."""
    pluginmanager.add_hookspecs(Hooks)
