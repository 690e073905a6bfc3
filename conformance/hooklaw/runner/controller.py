"""The side of a session that records: it outlives every worker, and imports no framework where there are workers."""

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hooklaw.errors import HooklawError
from hooklaw.results.recorder import Collected, Recorder, read_collected
from hooklaw.results.records import Result
from hooklaw.workers import watchdog

FOLDER = "hooklaw_folder"
"""Under this name a worker is told where to leave what it has to say."""
MOST_DEATHS_WHILE_LOADING = 2


class Controller:
    """The side that records: it outlives every worker, and imports no framework where there are workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        path: str | None = option(config, "--results")
        self.fault = ""
        self._deaths = 0
        self._interrupted = False
        self._session: pytest.Session | None = None
        self._made_folder = tempfile.TemporaryDirectory(prefix="hooklaw-") if isolated(config) else None
        self.recorder = Recorder(
            Path(path) if path else None,
            append=option(config, "--append-results"),
            selection=option(config, "keyword", "") or "",
            on_result=lambda spec, result: config.hook.pytest_hooklaw_result(spec=spec, result=result),
        )
        mark: Any = config.pluginmanager.getplugin("mark")
        mark.pytest_collection_modifyitems(items=[], config=config)  # refuses a malformed -k before a worker starts
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
        self._interrupted = self._interrupted or error == "keyboard-interrupt"
        if error and not self._file(node, "json").exists():
            self._deaths += 1
            if self._deaths > MOST_DEATHS_WHILE_LOADING:
                _, said, _ = watchdog.last_words(self._file(node, "txt"))
                names = ", ".join(option(self._config, "--backend"))
                self._give_up(f"backend {names!r} cannot be loaded, each time {said}")
                raise pytest.Session.Interrupted(self.fault)  # xdist would replace the worker for ever

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
        if self._session:
            self._session.shouldstop = fault

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember the session, to be able to stop it."""
        self._session = session

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Say which chapter does not import."""
        if report.failed and not self.fault:
            said = str(report.longrepr).strip().splitlines()[-1].removeprefix("E").strip()
            self._give_up(f"the chapter {report.nodeid} does not import: {said}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a result, or the end of the worker that ran the rule."""
        if found := getattr(report, "hooklaw", None):
            self.recorder.add(report.nodeid, msgspec.convert(found, Result))
        elif str(report.when) == "???" and not self._interrupted:  # xdist's word for a worker that died
            outcome, detail, where = watchdog.last_words(self._file(report.__dict__["node"], "txt"))
            self.recorder.add(report.nodeid, Result(run="", rule="", outcome=outcome, detail=detail, where=where))
            if self.recorder.complete:
                self._need_no_more_workers()

    def _need_no_more_workers(self) -> None:
        """Spare the seconds that xdist would take to replace the worker; only time depends on this."""
        scheduler = self._config.pluginmanager.getplugin("dsession")
        if hasattr(scheduler, "_max_worker_restart"):
            scheduler.__dict__["_max_worker_restart"] = 0

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


def option(config: pytest.Config, name: str, default: Any = None) -> Any:
    """Return an option's value, of the type that its declaration gives it."""
    return config.getoption(name, default)


def isolated(config: pytest.Config) -> bool:
    """Tell whether rules run in workers, and this is not one of them."""
    return bool(option(config, "tx", None)) and not hasattr(config, "workerinput")
