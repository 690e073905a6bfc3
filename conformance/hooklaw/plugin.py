"""The pytest plugin: each rule is an item, which a supervised worker executes and this process records.

It is loaded by name (``-p hooklaw.plugin``), never by being installed.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hooklaw.backend import loading
from hooklaw.errors import HooklawError
from hooklaw.law import hypothesis_settings
from hooklaw.law.rule import Rule
from hooklaw.results.recorder import Recorder, Subject
from hooklaw.results.records import Execution, Writer
from hooklaw.results.text import printable
from hooklaw.results.verdict import Exit, Expectation, Outcome, Verdict, as_known, judge
from hooklaw.runner.executor import Executor, executor, keep_hypothesis_out_of_here, keep_threads_from_spinning
from hooklaw.runner.worker import Listed, RuleSettings
from hooklaw.workers.signals import ending_signals_interrupt
from hooklaw.workers.watchdog import RULE_LIMIT

WITHOUT_VERDICT = frozenset({Outcome.UNSUPPORTED, Outcome.NOT_RUN})
RUNNER = pytest.StashKey["RuleRunner"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare our options; write those that take a path as --option=PATH."""
    group = parser.getgroup("hooklaw", "the law of autograd hooks")
    group.addoption(
        "--backend", action="append", default=[], metavar="NAME[:ARG]", help="a backend to judge; repeatable"
    )
    group.addoption("--import", dest="imports", action="append", default=[], metavar="MODULE", help="import first")
    group.addoption("--results", metavar="FILE", help="write the records there (write --results=FILE)")
    group.addoption("--expectations", metavar="FILE", help="use this expectation file (write --expectations=FILE)")
    group.addoption("--limit", type=float, default=RULE_LIMIT, metavar="SECONDS", help="limit of one rule")
    group.addoption("--in-process", action="store_true", help="no containment: for --pdb; ends at a crash")
    group.addoption("--allow-not-run", action="store_true", help="skip what this machine lacks; else it is an error")
    group.addoption("--probe-unsupported", action="store_true", help="run what the backend denies, too")


def pytest_configure(config: pytest.Config) -> None:
    """Take part in a session that judges a backend."""
    keep_hypothesis_out_of_here()
    keep_threads_from_spinning()
    if config.getoption("hypothesis_profile", None) is None:
        hypothesis_settings.load()
    if not config.getoption("--backend") or config.getoption("collectonly"):
        return
    _refuse_unknown(_option(config, "--backend"))
    config.stash[RUNNER] = runner = RuleRunner(config)
    config.pluginmanager.register(runner, "hooklaw-runner")
    if not hasattr(config, "workerinput"):  # in a worker of xdist its controller records
        signals = ExitStack()
        signals.enter_context(ending_signals_interrupt())
        config.add_cleanup(signals.close)
        config.pluginmanager.register(Records(config), "hooklaw-records")


def _refuse_unknown(specs: Sequence[str]) -> None:
    """Raise UsageError for a name that no backend has."""
    try:
        for spec in specs:
            loading.resolve(spec)
    except HooklawError as error:
        raise pytest.UsageError(f"hooklaw: {error}") from error


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> "list[RuleItem] | None":
    """Make an item of a rule for each backend."""
    rule = getattr(obj, "hooklaw_rule", None)
    if not isinstance(rule, Rule):
        return None
    specs: list[str] = _option(collector.config, "--backend")
    if not specs:
        raise pytest.UsageError("rules are judged on a backend: name one with --backend, e.g. --backend torch-eager")
    if runner := collector.config.stash.get(RUNNER, None):
        runner.start()
    return [_item(collector, f"{rule.id}[{spec}]", rule=rule, function=obj, spec=spec) for spec in specs]


def _item(collector: pytest.Collector, name: str, **parts: Any) -> "RuleItem":
    nodeid = f"{collector.nodeid}::{name}"  # as a text, so that pytest knows its parameter: --lf compares it
    return RuleItem.from_parent(collector, name=name, nodeid=nodeid, **parts)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Name our outcomes in pytest's own terminal."""
    word = getattr(report, "hooklaw", {}).get("execution", {}).get("outcome")
    return (word, word[0], word.upper()) if word in WITHOUT_VERDICT else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach to the report what the process that records has to know: xdist passes it on."""
    report = yield
    if isinstance(item, RuleItem) and call.when == "call" and item.done:
        report.__dict__["hooklaw"] = msgspec.to_builtins(item.config.stash[RUNNER].message(item, item.done))
    if isinstance(item, UnjudgedItem):
        report.__dict__["hooklaw_unjudged"] = True
    return report


class BrokenRuleError(Exception):
    """A rule is not kept, or is kept though it was expected not to be; the text is what a person is shown."""


class RuleItem(pytest.Item):
    """A rule on a backend."""

    def __init__(self, *, rule: Rule, function: Callable[..., Any], spec: str, **how: Any) -> None:
        super().__init__(**how)
        self.rule, self.spec = rule, spec
        self.done: Execution | None = None
        self._line = function.__code__.co_firstlineno - 1
        sources = [("source", " ".join(filter(None, [str(source), source.url]))) for source in rule.sources]
        self.user_properties += [("rule", rule.id), ("level", str(rule.level)), *sources]
        self.extra_keyword_matches.update((rule.chapter, str(rule.level), function.__name__))

    def runtest(self) -> None:
        """Execute the rule, and turn its verdict into pytest's words."""
        runner = self.config.stash[RUNNER]
        done = self.done = runner.execute(self)
        known = runner.subjects[self.spec].known.get(self.rule.id)
        verdict = judge(done.outcome, self.rule.level, known, done.seen)
        if done.outcome in WITHOUT_VERDICT:
            pytest.skip(done.detail)
        if verdict is Verdict.AS_EXPECTED and done.outcome is not Outcome.PASS:
            pytest.xfail(known.reason if known else "a MAY rule is allowed to differ")
        if verdict is not Verdict.AS_EXPECTED:
            raise runner.error(self.spec) or BrokenRuleError(_text(done, verdict, known))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what is shown of a failure."""
        known = isinstance(excinfo.value, (BrokenRuleError, HooklawError))
        return str(excinfo.value) if known else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the rule stands."""
        return self.path, self._line, self.name


class UnjudgedItem(pytest.Item):
    """A backend that cannot be judged."""

    def __init__(self, *, why: str, **how: Any) -> None:
        super().__init__(**how)
        self._why = why

    def runtest(self) -> None:
        """Fail with the reason."""
        raise BrokenRuleError(self._why)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return the reason alone."""
        del excinfo, style
        return f"hooklaw: {printable(self._why)}"


def _text(done: Execution, verdict: Verdict, known: Expectation | None) -> str:
    if verdict is Verdict.FIXED:
        return f"[fixed] expected to {'/'.join(known.outcome if known else [])}, and passes: drop the entry"
    stderr = ["the last lines of its stderr:", *done.stderr.splitlines()] if done.stderr else []
    expected = [f"known: {as_known(known)}"] if known else []
    return "\n  ".join([f"[{done.outcome}] {done.detail}  [{done.where}]", *expected, *stderr])


class Message(msgspec.Struct):
    """What a report carries to the process that records; the first of a backend says what is judged."""

    spec: str
    execution: Execution
    subject: Subject | None = None
    rules: list[Rule] = []


class RuleRunner:
    """Executes the rules, on each backend in a worker of its own."""

    def __init__(self, config: pytest.Config) -> None:
        self._executors = {spec: _executor(config, spec) for spec in _option(config, "--backend")}
        self._listed: dict[tuple[str, str], Listed] = {}
        self._untold: dict[str, list[Rule]] = {}
        self._allow_not_run: bool = _option(config, "--allow-not-run")
        self.subjects: dict[str, Subject] = {}

    def start(self) -> None:
        """Let the workers import their frameworks while pytest collects."""
        for each in self._executors.values():
            each.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Prepare the rules, and put last what is known to end the process, so that no worker is replaced for it.

        In the place of the rules of a backend that cannot be loaded there is an item that fails; also beside those of
        a backend that this machine lacks, unless that is allowed.
        """
        ours = [item for item in items if isinstance(item, RuleItem)]
        files = [*dict.fromkeys(str(item.path) for item in ours)]
        unjudged = {spec: self._prepare(spec, files) for spec in dict.fromkeys(item.spec for item in ours)}
        items[:] = [item for item in items if not isinstance(item, RuleItem) or item.spec in self.subjects]
        items.sort(key=lambda item: isinstance(item, RuleItem) and self.subjects[item.spec].ends_process(item.rule.id))
        items += [_unjudged(session, spec, why) for spec, why in unjudged.items() if why]

    def _prepare(self, spec: str, files: Sequence[str]) -> str:
        """Load a backend and its rules; return why it cannot be judged, or an empty text."""
        try:
            self.subjects[spec], found = self._executors[spec].collect(files)
        except HooklawError as error:
            return str(error)
        self._listed |= {(spec, listed.rule.id): listed for listed in found}
        why = "" if self._allow_not_run else self.subjects[spec].not_run
        return why and f"{spec} cannot be judged here: {why}; if that is as it should be, say --allow-not-run"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember what will be judged."""
        for item in session.items:
            if isinstance(item, RuleItem):
                self._untold.setdefault(item.spec, []).append(item.rule)

    def execute(self, item: RuleItem) -> Execution:
        """Execute the rule of an item."""
        return self._executors[item.spec].execute(self._listed[item.spec, item.rule.id])

    def error(self, spec: str) -> BaseException | None:
        """Return what the last rule raised, if it was raised in this process."""
        return self._executors[spec].error

    def message(self, item: RuleItem, done: Execution) -> Message:
        """Return what the process that records has to know of an item."""
        rules = self._untold.pop(item.spec, [])
        return Message(item.spec, done, self.subjects[item.spec] if rules else None, rules)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the entries of expectation files that are stale; pytest's exit code does not speak of them."""
        stale = {spec: subject.stale for spec, subject in self.subjects.items() if subject.stale}
        if stale:
            terminalreporter.section("stale expectations, for which `hooklaw run` exits with 2")
        for spec, entries in stale.items():
            for each in entries:
                said = f"{spec}: {each.file}:{each.line}: the entry for {each.rule!r} {each.why}"
                terminalreporter.line(printable(said))

    def pytest_unconfigure(self) -> None:
        """End the workers."""
        for each in self._executors.values():
            each.close()


def _unjudged(session: pytest.Session, spec: str, why: str) -> UnjudgedItem:
    name = f"hooklaw[{spec}]"
    return UnjudgedItem.from_parent(session, name=name, nodeid=name, why=why)


def _executor(config: pytest.Config, spec: str) -> Executor:
    settings = RuleSettings(
        backend=spec,
        imports=_option(config, "imports"),
        expectations=_option(config, "--expectations") or "",
        probe_unsupported=_option(config, "--probe-unsupported"),
        contained=not _option(config, "--in-process"),
    )
    return executor(settings, _option(config, "--limit"))


def _option(config: pytest.Config, name: str) -> Any:
    """Return an option's value, whose type is that of its declaration."""
    return config.getoption(name)


class Records:
    """Records what came of the rules: one run for each backend."""

    def __init__(self, config: pytest.Config) -> None:
        path: str | None = config.getoption("--results")
        self._selection: str = config.getoption("keyword") or ""
        self._recorders: dict[str, Recorder] = {}
        self._unjudged = False
        try:
            self._writer = Writer(Path(path)) if path else None
        except HooklawError as error:
            raise pytest.UsageError(str(error)) from error

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a result."""
        self._unjudged |= hasattr(report, "hooklaw_unjudged")
        if not hasattr(report, "hooklaw"):
            return
        message = msgspec.convert(report.__dict__["hooklaw"], Message)
        recorder = self._recorders.get(message.spec)
        if recorder is None and message.subject:
            recorder = Recorder(message.subject, message.rules, writer=self._writer, selection=self._selection)
            self._recorders[message.spec] = recorder
        if recorder and message.execution.rule not in recorder.run.results:  # a plugin may run an item again
            recorder.add(message.execution)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Close the records; end as `hooklaw run` does where a backend could not be judged."""
        for recorder in self._recorders.values():
            recorder.finish(interrupted=exitstatus == pytest.ExitCode.INTERRUPTED)
        if self._writer:
            self._writer.close()
        if self._unjudged and exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = Exit.BROKEN.code
