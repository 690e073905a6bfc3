"""What the tests share: running the program as its user does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
collect_ignore = ["data"]


def run_hooklaw(*args, path=(), cwd=None, timeout=120):
    """Run the command in a process of its own, from this tree."""
    roots = [ROOT / "conformance", ROOT / "backends", ROOT / "reports", *path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
    command = [sys.executable, "-m", "hooklaw", *map(str, args)]
    return subprocess.run(
        command, cwd=cwd, env=environment, timeout=timeout, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="session")
def hooklaw_command(tmp_path_factory):
    """Return the command as a function, at home in an empty folder."""
    folder = tmp_path_factory.mktemp("cwd")

    def run(*args, cwd=folder, **how):
        return run_hooklaw(*args, cwd=cwd, **how)

    return run


@pytest.fixture
def hooklaw(tmp_path):
    """Return the command as a function, at home in the test's own folder."""

    def run(*args, cwd=tmp_path, **how):
        return run_hooklaw(*args, cwd=cwd, **how)

    return run
