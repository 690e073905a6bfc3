"""A pytest session over the rules, started from the command line with settings of its own."""

import gc
import io
import os
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hooklaw.errors import HooklawError, UnknownRuleError
from hooklaw.law.rule import RULES_PACKAGE
from hooklaw.results import records
from hooklaw.results.recorder import Collected
from hooklaw.results.records import Result, Run
from hooklaw.results.summary import exit_of_run
from hooklaw.results.verdict import Exit

HERE = Path(__file__).parents[1]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is to do: judge one backend."""

    backend: str
    selection: str = ""
    only: str = ""
    """A rule's id, where one rule alone is asked for."""
    rules: str = RULES_PACKAGE
    imports: list[str] = []
    expectations: str = ""
    limit: float = 0.0
    in_process: bool = False
    append: bool = False
    probe_unsupported: bool = False


class Listener:
    """Passes on what happens while it happens."""

    def __init__(self, on_collected: Callable[[Collected], None], on_result: Callable[[str, Result], None]) -> None:
        self._on_collected, self._on_result = on_collected, on_result
        self.collected = False

    def pytest_hooklaw_collected(self, collected: Collected) -> None:
        """Pass on what will be judged."""
        self.collected = True
        self._on_collected(collected)

    def pytest_hooklaw_result(self, spec: str, result: Result) -> None:
        """Pass on a result."""
        self._on_result(spec, result)


class Session(msgspec.Struct):
    """How a session ended."""

    run: Run | None
    exit: Exit
    fault: str = ""


def judge(
    wanted: Wanted,
    results: Path,
    *,
    on_collected: Callable[[Collected], None] = lambda _: None,
    on_result: Callable[[str, Result], None] = lambda *_: None,
) -> Session:
    """Judge one backend, append its run to the results file, and read it back.

    Raises HooklawError with the one sentence that says why nothing could be judged, or KeyboardInterrupt.
    """
    _refuse_unknown(wanted.rules)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", _cache())
    keeper, listener = _Keeper(), Listener(on_collected, on_result)
    with redirect_stderr(io.StringIO()) as said:
        status = pytest.main(_arguments(wanted, results), plugins=[listener, keeper])
    if keeper.fault:
        raise HooklawError(keeper.fault)
    if status == pytest.ExitCode.USAGE_ERROR:
        raise HooklawError(said.getvalue().strip().removeprefix("ERROR: "))
    if status == pytest.ExitCode.INTERRUPTED and not listener.collected:
        raise KeyboardInterrupt
    if status == pytest.ExitCode.INTERNAL_ERROR or not listener.collected:
        raise HooklawError(
            f"the run broke inside pytest (exit status {int(status)}): {keeper.said or 'no more is known'}"
        )
    run = records.read(results, incomplete=True)[-1]
    return Session(run, _exit(run, interrupted=status == pytest.ExitCode.INTERRUPTED))


def _cache() -> str:
    """Return a folder for what Hypothesis keeps: not one in the folder that happens to be the current one."""
    user = getattr(os, "getuid", lambda: "user")()
    return str(Path(tempfile.gettempdir(), f"hooklaw-{user}"))


def _refuse_unknown(rules: str) -> None:
    try:
        found = Path(rules).exists() or find_spec(rules)
    except (ImportError, ValueError):
        found = None
    if not found:
        raise UnknownRuleError(f"no rules are at {rules!r}: name a folder or a package that holds test_*.py")


def _exit(run: Run, *, interrupted: bool) -> Exit:
    found = Exit.BROKEN if interrupted else exit_of_run(run)
    lost = len(run.results) < run.header.collected
    return Exit.REGRESSION if lost and found in (Exit.OK, Exit.FIXED_OR_STALE) else found


def _arguments(wanted: Wanted, results: Path) -> list[str]:
    named = {
        "--results": str(results.absolute()),
        "--expectations": wanted.expectations and str(Path(wanted.expectations).absolute()),
        "--limit": wanted.limit and str(wanted.limit),
    }
    return [
        *("-c", str(HERE / "pytest.ini"), "--rootdir", str(HERE), "--noconftest"),
        *("-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:logging", "-p", "no:faulthandler"),
        *(() if wanted.in_process else ("-p", "xdist", "-n1", "--max-worker-restart=9999")),
        *("--backend", wanted.backend),
        *(("--append-results",) if wanted.append else ()),
        *(f"{name}={value}" for name, value in named.items() if value),
        *(word for module in wanted.imports for word in ("--import", module)),
        *(("--probe-unsupported",) if wanted.probe_unsupported else ()),
        *(("-k", wanted.selection) if wanted.selection else ()),
        *(("--only-rule", wanted.only) if wanted.only else ()),
        *("--pyargs", wanted.rules),
    ]


class _Keeper:
    """Keeps what pytest would have printed of a broken session."""

    def __init__(self) -> None:
        self.fault = ""
        self.said = ""
        self._config: pytest.Config | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config
        config.option.tbstyle = "line"  # nobody prints it, and a long one takes longer than most rules

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        gc.freeze()  # pytest collects garbage five times in the end, to report what nobody would read
        controller: Any = self._config and self._config.pluginmanager.getplugin("hooklaw-controller")
        self.fault = self.fault or (controller.fault if controller else "")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        if isinstance(excinfo.value, HooklawError):
            self.fault = self.fault or str(excinfo.value)
        said = str(excinfo.value).removesuffix("assert False").strip().splitlines() or [""]  # a worker's has it all
        self.said = self.said or (said[-1].strip() if len(said) > 1 else f"{excinfo.typename}: {said[0]}")
        return True  # said once, in our sentence


def scratch() -> Path:
    """Return a path for results that nobody asked to keep."""
    handle, name = tempfile.mkstemp(prefix="hooklaw-", suffix=".jsonl")
    os.close(handle)
    Path(name).unlink()
    return Path(name)
