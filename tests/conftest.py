"""What the tests share: running the program as its user does."""

import compileall
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from helpers import DATA, TOY_RULES, ran
from hooklaw.cli import main
from hooklaw.model import flags
from hooklaw.results import records

ROOT = Path(__file__).parent.parent
SOURCES = ["conformance", "backends", "reports"]
collect_ignore = ["data"]
pytest.register_assert_rewrite("scripted")
LONGEST = [
    "long/test_repro_compiled.py",
    "long/test_mutants.py",
    "command/test_fuzz_cli.py",
    "long/test_repro.py",
    "command/test_bench.py",
]
"""The files that take a minute or more, which begin before all others."""


def pytest_configure(config):
    """Prepare what the tests start: hundreds of processes that import this tree, and that Ctrl-C must reach.

    PYTHONDONTWRITEBYTECODE would have each of them compile it.
    A shell that runs pytest in the background lets it ignore Ctrl-C.
    """
    if not hasattr(config, "workerinput"):
        for folder in (*(ROOT / name for name in SOURCES), DATA):
            compileall.compile_dir(folder, quiet=2)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Begin with the longest files, since one that a process of the tests begins last leaves the others idle."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get("/".join(item.path.parts[-2:]), len(LONGEST)))


def environment_with(path):
    """Return the environment in which this tree, and these folders, can be imported."""
    roots = [*(ROOT / name for name in SOURCES), *path]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return {**own, "PYTHONPATH": os.pathsep.join(map(str, roots))}


def run_hooklaw(*args, path=(), cwd=None, timeout=120, apart=False):
    """Run the command in a process of its own, from this tree: a fork, unless it is to start and import by itself."""
    environment = environment_with(path)
    if not apart:
        return forked.hooklaw(*args, cwd=cwd, environment=environment, timeout=timeout)
    command = [sys.executable, "-m", "hooklaw", *map(str, args)]
    return subprocess.run(
        command, cwd=cwd, env=environment, timeout=timeout, capture_output=True, text=True, check=False
    )


@pytest.fixture(autouse=True)
def _engine_as_documented():
    """Leave the engine of this process as documented, whatever a test had it play."""
    yield
    flags.use(())


@pytest.fixture(scope="session")
def hooklaw_command(tmp_path_factory):
    """Return the command as a function, at home in an empty folder."""
    folder = tmp_path_factory.mktemp("cwd")

    def run(*args, cwd=folder, **how):
        return run_hooklaw(*args, cwd=cwd, **how)

    return run


@pytest.fixture(scope="session")
def whole_run(hooklaw_command, tmp_path_factory):
    """Return a function of a backend: its run by every rule, made once for all processes of the tests."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def run(spec):
        results = shared / f"whole-{spec.replace(':', '-')}.jsonl"
        with (shared / "whole.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not results.exists():
                unfinished = results.with_suffix(".part")
                words = ("run", "--backend", spec, "--limit=120", f"--results={unfinished}")
                done = hooklaw_command(*words, timeout=1200)
                assert done.returncode == 0, done.stdout + done.stderr
                unfinished.rename(results)
        (found,) = records.read(results)
        return found

    return run


@pytest.fixture
def hooklaw(tmp_path):
    """Return the command as a function, at home in the test's own folder."""

    def run(*args, cwd=tmp_path, **how):
        return run_hooklaw(*args, cwd=cwd, **how)

    return run


@pytest.fixture(scope="session")
def environment():
    """Return the environment in which the command finds the toy."""
    return environment_with([DATA])


@pytest.fixture
def judge(hooklaw):
    """Return `hooklaw run` as a function: on the toy and its few rules, unless others are named."""

    def run(*args, backend="toy:backend", rules=TOY_RULES, **how):
        return hooklaw("run", "--backend", backend, "--rules", rules, *args, path=[DATA], **how)

    return run


@pytest.fixture
def verb(tmp_path, monkeypatch, capsys):
    """Return the verbs that start no session as a function in this process, at home in the test's own folder."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        try:
            code = main([str(one) for one in args])
        except SystemExit as leave:
            code = leave.code
        return ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def adapter(tmp_path):
    """Return a function that writes a module `broken` beside the test, with the toy at hand."""

    def write(text):
        (tmp_path / "broken.py").write_text(f"from toy import Toy, backend\n{text}")

    return write
