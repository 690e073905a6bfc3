"""The worker's side of a session: loads the backends, lets each rule run on them, and makes its result."""

import gc
import os
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from hooklaw.backend import loading
from hooklaw.backend.protocol import Backend
from hooklaw.errors import HooklawError, NotRunError
from hooklaw.law import hypothesis_settings
from hooklaw.law.rule import Rule, load_rules, registered
from hooklaw.law.trace import Trace
from hooklaw.results import expectations
from hooklaw.results.recorder import DIED, Collected, Subject
from hooklaw.results.records import Result
from hooklaw.results.verdict import HOLDS_THOUGH_DENIED, Expectation, Outcome, Stale, Verdict, judge
from hooklaw.runner import classify
from hooklaw.runner.controller import FOLDER, Controller, isolated, option
from hooklaw.workers import watchdog

Entry = TypeVar("Entry", Expectation, Stale)
TRACE = pytest.StashKey[Trace]()
BEFORE = pytest.StashKey[tuple[Outcome, str]]()
SECONDS = pytest.StashKey[float]()
DENIED = pytest.StashKey[str]()


class _SkippedError(pytest.skip.Exception):
    """A rule that does not run, because of what the backend declared or this machine lacks."""


class Bench:
    """Where the backends stand: in the worker, or in the only process there is."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._searches = config.getoption("hypothesis_profile", None) is None
        self.backends: dict[str, Backend] = {}
        self.subjects: dict[str, Subject] = {}
        self._folder = _worker_folder(config)
        self._watchdog = watchdog.Watchdog(self._folder / _worker_file("txt")) if self._folder else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Load the backends once it is known what there is to run; a fault leaves nothing to run."""
        if not self._folder and isolated(self._config):
            return
        only = option(self._config, "--only-rule")
        if only:
            items[:] = [
                item for item in items if (rule := rule_of(getattr(item, "function", None))) and rule.id == only
            ]
        found = self._collect(items)
        if found.fault:
            items.clear()
        if self._folder:
            found.write(self._folder / _worker_file("json"))
        else:
            _controller(self._config).collected(found)
        gc.collect()
        gc.freeze()  # a rule that collects garbage need not look at a whole framework

    def _collect(self, items: list[pytest.Item]) -> Collected:
        ours = [(item, rule) for item in items if (rule := rule_of(getattr(item, "function", None)))]
        found = Collected(rules=[one.rule for one in registered()])
        if self._watchdog:
            self._watchdog.start(watchdog.LOADING_LIMIT)
        try:
            for module in option(self._config, "imports"):
                loading.import_module(module)
            for spec in option(self._config, "--backend"):
                self.subjects[spec] = self._load(spec)
        except HooklawError as error:
            found.fault = str(error)
        finally:
            if self._watchdog:
                self._watchdog.stop()
        found.subjects = self.subjects
        if found.fault:
            return found
        items.sort(key=self._ends_process)  # a worker that dies last need not be replaced
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
        given: str | None = option(self._config, "--expectations")
        path = given or made.expectations
        if path:
            known = expectations.read(Path(path), load_rules(), made.versions)
            subject.known = {rule: _without_folders(one) for rule, one in known.known.items()}
            subject.stale = [_without_folders(one) for one in known.stale]
        return subject

    def pytest_internalerror(self) -> bool:
        """In a worker, leave it to the controller to say so, once."""
        return bool(self._folder)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Watch a rule."""
        if not self._watchdog:
            return (yield)
        self._watchdog.start(option(item.config, "--limit"))
        try:
            return (yield)
        finally:
            self._watchdog.stop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Let a rule run only where the backend declares what it needs."""
        rule = rule_of(getattr(item, "function", None))
        if not rule:
            return
        spec = _spec_of(item)
        if self.subjects[spec].not_run:
            self._skip(item, Outcome.NOT_RUN, self.subjects[spec].not_run)
        if not self._watchdog and self._ends_process(item):
            self._skip(item, Outcome.NOT_RUN, "known to end the process, and nothing contains it here (--in-process)")
        made = self.backends[spec]
        denied = [need for need in rule.needs if need not in made.capabilities]
        if denied:
            item.stash[DENIED] = _why_denied(made, denied)
        if denied and not option(item.config, "--probe-unsupported"):
            self._skip(item, Outcome.UNSUPPORTED, item.stash[DENIED])
        if self._searches:
            hypothesis_settings.load(getattr(made, "examples", hypothesis_settings.EXAMPLES))
        if callable(reset := getattr(made, "reset", None)):
            reset()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[Any]:
        """Time the rule, then collect its garbage: what crashes only then is this rule's doing, not a later one's.

        Where nothing contains a crash, nobody is left to be blamed for it, and the time is saved.
        """
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            item.stash[SECONDS] = time.perf_counter() - began
            if self._watchdog:
                gc.collect(1)  # what a rule made is young; the old generation would cost ten times as much

    def _ends_process(self, item: pytest.Item) -> bool:
        rule = rule_of(getattr(item, "function", None))
        known = self.subjects[_spec_of(item)].known.get(rule.id) if rule else None
        return bool(known and DIED.intersection(known.outcome))

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
        rule = rule_of(getattr(item, "function", None))
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
            outcome, detail, where = classify.classify(call.excinfo.value, self.backends[_spec_of(item)])
        if denied := item.stash.get(DENIED, ""):
            word = HOLDS_THOUGH_DENIED if outcome is Outcome.PASS else "denied, and it does not hold: "
            outcome, detail, where = Outcome.UNSUPPORTED, word + denied, ""
        seen = item.stash.get(TRACE, None)
        lanes: dict[str, Any] = {}
        if seen:
            lanes = {one: getattr(seen, one) for one in ("expected", "observed", "checks", "difference")}
        duration = round(item.stash.get(SECONDS, 0.0), 5)
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


def rule_of(function: Any) -> Rule | None:
    """Return the rule that a test function tries, if it is one."""
    return getattr(function, "hooklaw_rule", None)


def _texts(mapping: Mapping[str, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in mapping.items()}


def _without_folders(entry: Entry) -> Entry:
    """Name the entry's file as a record may: not in whose home it lies."""
    return msgspec.structs.replace(entry, file="/".join(Path(entry.file).parts[-3:]))


def _place(item: pytest.Item) -> str:
    file, line, _ = item.location
    return f"{file}:{(line or 0) + 1}"


def _spec_of(item: pytest.Item) -> str:
    return item.callspec.params["backend"]  # type: ignore[attr-defined]


def _why_denied(made: Backend, denied: list[str]) -> str:
    reasons = [str(made.lacks.get(need, "not declared")) for need in denied]  # type: ignore[call-overload]
    return "; ".join(f"{need}: {why}" for need, why in zip(denied, reasons, strict=True))


def _controller(config: pytest.Config) -> Controller:
    return config.pluginmanager.getplugin("hooklaw-controller")  # type: ignore[return-value]


def _worker_folder(config: pytest.Config) -> Path | None:
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    return Path(worker[FOLDER]) if FOLDER in worker else None


def _worker_file(ending: str) -> str:
    return f"{os.environ['PYTEST_XDIST_WORKER']}.{ending}"
