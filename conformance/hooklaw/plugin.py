"""The pytest plugin: gives rules their backend and trace, and turns what happened into records.

It is loaded by name (``-p hooklaw.plugin``), by `hooklaw run` or by hand, never by being installed.
"""

import gc
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings

from hooklaw import blame, expectations, isolation, loading
from hooklaw.backend import Backend
from hooklaw.errors import HooklawError, NotRunError
from hooklaw.outcome import Outcome, Verdict, judge
from hooklaw.recorder import Collected, Recorder, Subject, read_collected
from hooklaw.records import Result
from hooklaw.spec import Rule, load_rules, registered
from hooklaw.trace import Trace

TRACE = pytest.StashKey[Trace]()
BEFORE = pytest.StashKey[tuple[Outcome, str]]()
FOLDER = "hooklaw_folder"
MOST_DEATHS_WHILE_LOADING = 2

settings.register_profile(
    "hooklaw",
    settings(
        max_examples=25,
        deadline=None,
        derandomize=True,  # every backend gets the same examples
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    ),
)


class _SkippedError(pytest.skip.Exception):
    """A rule that does not run, because of what the backend declared or this machine lacks."""


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
    group.addoption("--limit", type=float, default=isolation.LIMIT, metavar="SECONDS", help="limit of one rule")
    group.addoption("--only-rule", metavar="ID", help="judge this one rule alone")
    group.addoption("--probe-unsupported", action="store_true", help="run what the backend denies, too")


def pytest_configure(config: pytest.Config) -> None:
    """Take part in a session that judges a backend."""
    config.addinivalue_line("markers", "rule: a rule of the law (set by @rule)")
    if config.getoption("hypothesis_profile", None) is None:
        settings.load_profile("hooklaw")
    if not config.getoption("--backend"):
        return
    worker = getattr(config, "workerinput", None)
    config.pluginmanager.register(Bench(config), "hooklaw-bench")
    if worker is None:
        config.pluginmanager.register(Controller(config), "hooklaw-controller")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try every rule on every backend."""
    if _rule_of(metafunc.function) and "backend" in metafunc.fixturenames:
        specs: list[str] = metafunc.config.getoption("--backend")
        if not specs:
            raise pytest.UsageError(
                "rules are judged on a backend: name one with --backend, e.g. --backend torch-eager"
            )
        metafunc.parametrize("backend", specs, indirect=True, scope="session", ids=specs)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let -k select by id, chapter and level too."""
    rule = _rule_of(getattr(item, "function", None))
    if rule:
        item.extra_keyword_matches.update((rule.id, rule.chapter, str(rule.level)))


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Any:
    """Return the backend under judgement."""
    return _bench(request.config).backends[request.param]


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


class Bench:
    """Where the backends stand: in the worker, or in the only process there is."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.backends: dict[str, Backend] = {}
        self.subjects: dict[str, Subject] = {}
        self._folder = _worker_folder(config)
        self._watchdog = isolation.Watchdog(self._folder / _words(config)) if self._folder else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Load the backends once it is known what there is to run; a fault leaves nothing to run."""
        if not self._folder and _isolated(self._config):
            return
        only = self._config.getoption("--only-rule")
        if only:
            items[:] = [
                item for item in items if (rule := _rule_of(getattr(item, "function", None))) and rule.id == only
            ]
        found = self._collect(items)
        if found.fault:
            items.clear()
        if self._folder:
            found.write(self._folder / _collection(self._config))
        else:
            _controller(self._config).collected(found)
        gc.collect()
        gc.freeze()  # a rule that collects garbage need not look at a whole framework

    def _collect(self, items: list[pytest.Item]) -> Collected:
        ours = [(item, rule) for item in items if (rule := _rule_of(getattr(item, "function", None)))]
        found = Collected(rules=[one.rule for one in registered()])
        if self._watchdog:
            self._watchdog.start(isolation.LOADING_LIMIT)
        try:
            for module in self._config.getoption("imports"):
                loading.import_module(module)
            for spec in self._config.getoption("--backend"):
                self.subjects[spec] = self._load(spec)
        except HooklawError as error:
            found.fault = str(error)
        finally:
            if self._watchdog:
                self._watchdog.stop()
        found.subjects = self.subjects
        found.items = {item.nodeid: (rule.id, _spec_of(item)) for item, rule in ours}
        found.places = {item.nodeid: _place(item) for item, _ in ours}
        return found

    def _load(self, spec: str) -> Subject:
        try:
            made = loading.load(spec)
        except NotRunError as reason:
            return Subject(spec, not_run=str(reason))
        self.backends[spec] = made
        subject = Subject(spec, _texts(made.versions), _texts(made.notes))
        given: str | None = self._config.getoption("--expectations")
        path = Path(given) if given else made.expectations
        if path:
            known = expectations.read(path, load_rules(), made.versions)
            subject.known, subject.stale = known.known, known.stale
        return subject

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Watch a rule."""
        if not self._watchdog:
            return (yield)
        self._watchdog.start(item.config.getoption("--limit"))
        try:
            return (yield)
        finally:
            self._watchdog.stop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Let a rule run only where the backend declares what it needs."""
        rule = _rule_of(getattr(item, "function", None))
        if not rule:
            return
        spec = _spec_of(item)
        if self.subjects[spec].not_run:
            self._skip(item, Outcome.NOT_RUN, self.subjects[spec].not_run)
        made = self.backends[spec]
        denied = [need for need in rule.needs if need not in made.capabilities]
        if denied and not item.config.getoption("--probe-unsupported"):
            self._skip(item, Outcome.UNSUPPORTED, _why_denied(made, denied))
        if callable(reset := getattr(made, "reset", None)):
            reset()

    @staticmethod
    def _skip(item: pytest.Item, outcome: Outcome, why: str) -> None:
        item.stash[BEFORE] = (outcome, why)
        raise _SkippedError(why)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the result to the report, and let pytest's own outcome follow the verdict."""
        report = yield
        rule = _rule_of(getattr(item, "function", None))
        if rule and (call.when == "call" or (call.when == "setup" and call.excinfo)):
            result = self._result(item, rule, call)
            report.__dict__["hooklaw"] = msgspec.to_builtins(result)
            self._dress(report, rule, result, _spec_of(item))
        return report

    def _result(self, item: pytest.Item, rule: Rule, call: pytest.CallInfo[Any]) -> Result:
        before = item.stash.get(BEFORE, None)
        if before:
            return Result(run="", rule=rule.id, outcome=before[0], detail=before[1])
        outcome, detail, where = Outcome.PASS, "", ""
        if call.excinfo:
            outcome, detail, where = blame.classify(call.excinfo.value, self.backends[_spec_of(item)])
        seen = item.stash.get(TRACE, None)
        lanes: dict[str, Any] = {}
        if seen:
            lanes = {"expected": seen.expected, "observed": seen.observed, "checks": seen.checks}
        duration = round(call.duration, 5)
        return Result(run="", rule=rule.id, outcome=outcome, detail=detail, where=where, duration=duration, **lanes)

    def _dress(self, report: pytest.TestReport, rule: Rule, result: Result, spec: str) -> None:
        known = self.subjects[spec].known.get(rule.id)
        verdict = judge(result.outcome, rule.level, known)
        report.__dict__["hooklaw_word"] = str(result.outcome)
        if verdict is Verdict.FIXED:
            report.outcome = "failed"
            report.longrepr = (
                f"[fixed] expected to {'/'.join(known.outcome if known else [])}, and passes: drop the entry"
            )
        elif verdict is Verdict.AS_EXPECTED and report.outcome == "failed":
            report.outcome = "skipped"
            report.wasxfail = known.reason if known else "a MAY rule is allowed to differ"


class Controller:
    """The side that records: it outlives every worker, and imports no framework where there are workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        path: str | None = config.getoption("--results")
        self.fault = ""
        self.lost: list[str] = []
        self._deaths = 0
        self._made_folder = tempfile.TemporaryDirectory(prefix="hooklaw-") if _isolated(config) else None
        self.recorder = Recorder(
            Path(path) if path else None,
            append=config.getoption("--append-results"),
            selection=config.getoption("keyword", "") or "",
            on_result=lambda spec, result: config.hook.pytest_hooklaw_result(spec=spec, result=result),
        )
        try:
            self.recorder.open()
        except HooklawError as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to leave what it has to say."""
        if self._made_folder:
            node.workerinput[FOLDER] = self._made_folder.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Take over what a worker found."""
        found = read_collected(self._file(node, "json"))
        if found:
            self.collected(found)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Give up on a backend that ends every worker before its first rule."""
        if error and not self._file(node, "json").exists():
            self._deaths += 1
            if self._deaths > MOST_DEATHS_WHILE_LOADING:
                _, said, _ = isolation.last_words(self._file(node, "txt"))
                names = ", ".join(self._config.getoption("--backend"))
                self._give_up(f"backend {names!r} cannot be loaded, each time {said}")

    def collected(self, found: Collected) -> None:
        """Start the record, or give up."""
        if found.fault:
            self._give_up(found.fault)
        elif not found.items:
            self._give_up("the selection matches no rule: `hooklaw list` shows all ids, chapters and levels")
        elif not self.recorder.collected:
            self.recorder.start(found)
            self._config.hook.pytest_hooklaw_collected(collected=found)

    def _give_up(self, fault: str) -> None:
        self.fault = self.fault or fault
        session = self._config.pluginmanager.getplugin("session")
        if session:
            session.shouldstop = fault

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember the session, to be able to stop it."""
        if not self._config.pluginmanager.has_plugin("session"):
            self._config.pluginmanager.register(session, "session")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Say which chapter does not import."""
        if report.failed and not self.fault:
            said = str(report.longrepr).strip().splitlines()[-1]
            self._give_up(f"the chapter {report.nodeid} does not import: {said}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a result, or the end of the worker that ran the rule."""
        if found := getattr(report, "hooklaw", None):
            self.recorder.add(report.nodeid, msgspec.convert(found, Result))
        elif report.when == "???":  # xdist's word for a worker that died
            outcome, detail, where = isolation.last_words(self._file(report.node, "txt"))
            self.recorder.add(report.nodeid, Result(run="", rule="", outcome=outcome, detail=detail, where=where))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Close the record."""
        self.recorder.finish(interrupted=exitstatus == pytest.ExitCode.INTERRUPTED or bool(self.fault))
        if self._made_folder:
            self._made_folder.cleanup()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say in plain pytest what ended the run."""
        if self.fault:
            terminalreporter.write_line(f"hooklaw: {self.fault}", red=True)

    def _file(self, node: Any, ending: str) -> Path:
        folder = self._made_folder.name if self._made_folder else ""
        return Path(folder) / f"{node.workerinput['workerid']}.{ending}"


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


def _place(item: pytest.Item) -> str:
    file, line, _ = item.location
    return f"{file}:{(line or 0) + 1}"


def _texts(mapping: Mapping[str, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in mapping.items()}


def _rule_of(function: Any) -> Rule | None:
    return getattr(function, "hooklaw_rule", None)


def _spec_of(item: pytest.Item) -> str:
    return item.callspec.params["backend"]  # type: ignore[attr-defined]


def _why_denied(made: Backend, denied: list[str]) -> str:
    reasons = [str(made.lacks.get(need, "not declared")) for need in denied]  # type: ignore[call-overload]
    return "; ".join(f"{need}: {why}" for need, why in zip(denied, reasons, strict=True))


def _bench(config: pytest.Config) -> Bench:
    return config.pluginmanager.getplugin("hooklaw-bench")  # type: ignore[return-value]


def _controller(config: pytest.Config) -> Controller:
    return config.pluginmanager.getplugin("hooklaw-controller")  # type: ignore[return-value]


def _isolated(config: pytest.Config) -> bool:
    return bool(config.getoption("tx", None)) and not hasattr(config, "workerinput")


def _worker_folder(config: pytest.Config) -> Path | None:
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    return Path(worker[FOLDER]) if FOLDER in worker else None


def _collection(config: pytest.Config) -> str:
    return f"{os.environ['PYTEST_XDIST_WORKER']}.json"


def _words(config: pytest.Config) -> str:
    return f"{os.environ['PYTEST_XDIST_WORKER']}.txt"
