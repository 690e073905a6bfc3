"""Programs and commands in processes of their own, each forked off one that has imported torch already.

The workers of a command are forked off it too. Where the process is the point, start one with `subprocess`.
"""

import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from helpers import ran
from hooklaw.cli import VERBS, main
from hooklaw.workers import _server, supervisor

FORKS = multiprocessing.get_context("forkserver")
IMPORTED = [
    "torch",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "hooklaw.plugin",
    *(module for module, _ in VERBS.values()),
    "forked",
]
FORKS.set_forkserver_preload(IMPORTED)
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""The environment of a process that is forked often: a heap in huge pages has few page tables to copy.

A fork of a process that has imported torch, and its end, take 9 ms instead of 15.
"""
LIMIT = 120
TESTS = Path(__file__).parent


def run(program, folder):
    """Run a program in a folder, and return its exit code, its output and its errors."""
    return _finished(LIMIT, _execute, program, folder)


def hooklaw(*words, cwd, environment, timeout=LIMIT):
    """Run the command in a folder and an environment, and return what it did in the shape of a finished process."""
    return ran(*_finished(timeout, _command, [*map(str, words)], cwd, environment))


def session(*words, cwd, environment, timeout=LIMIT):
    """Run pytest in a folder and an environment, and return what it did in the shape of a finished process."""
    return ran(*_finished(timeout, _session, [*map(str, words)], cwd, environment))


def _finished(limit, work, *args):
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        with patch.dict(os.environ, HUGE_PAGES):
            forkserver.ensure_running()
        process = FORKS.Process(target=_with_outputs, args=(outputs, work, *args))
        process.start()
        process.join(limit)
        process.kill()
        process.join()
        return process.exitcode, *(each.read_text() for each in outputs)


def _with_outputs(outputs, work, *args):
    gc.freeze()  # or the first collection would copy all of torch's objects into this process
    for descriptor, path in enumerate(outputs, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    for name in HUGE_PAGES:
        os.environ.pop(name, None)
    work(*args)
    sys.stdout.flush()


def _execute(program, folder):
    os.chdir(folder)
    warnings.simplefilter("ignore")
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the documentation's own


def _command(words, folder, environment):
    _begin("hooklaw", words, folder, environment)
    raise SystemExit(main(words))


def _session(words, folder, environment):
    _begin("pytest", words, folder, environment)
    loaded = ["-W", "ignore:Module already imported so cannot be rewritten"]
    raise SystemExit(pytest.main([*words, *loaded]))


def _begin(name, words, folder, environment):
    os.chdir(folder)
    _enter(environment)
    sys.argv = [name, *words]
    sys.path[:] = [str(folder), *environment["PYTHONPATH"].split(os.pathsep), *_not_of_the_tests(sys.path)]
    supervisor.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": _worker})


def _enter(environment):
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None


def _not_of_the_tests(path):
    """Return the folders of a path without those that pytest has added for the tests."""
    ours = TESTS, TESTS.parent / "tools"
    return [each for each in path if not any(Path(each).is_relative_to(folder) for folder in ours)]


def _worker(command, **how):
    """Fork a worker, where no thread of this process could hold what the worker needs."""
    return subprocess.Popen(command, **how) if threading.active_count() > 1 else Worker(**how)


class Worker:
    """A worker that is forked off this process: what `subprocess.Popen` is where it is started."""

    def __init__(self, *, stderr, env, **_how):
        (requests, self.stdin), (self.stdout, replies) = (_pipe(), _pipe())
        self._process = multiprocessing.get_context("fork").Process(
            target=_serve, args=((requests, replies, stderr), env), daemon=True
        )
        self._process.start()
        self.pid = self._process.pid
        requests.close()
        replies.close()

    def poll(self):
        """Return the exit code, or None while the worker lives."""
        return self._process.exitcode

    def wait(self, timeout=None):
        """Wait for the worker to end, and return its exit code."""
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("worker", timeout)
        return self.poll()


def _pipe():
    read, write = os.pipe()
    return open(read, "rb", buffering=0), open(write, "wb", buffering=0)  # noqa: PTH123 - descriptors


def _serve(streams, environment):
    os.setsid()
    _enter(environment)
    for descriptor, stream in enumerate(streams):
        os.dup2(stream.fileno(), descriptor)
    os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
    modes = enumerate("rww")
    sys.stdin, sys.stdout, sys.stderr = (open(place, mode, closefd=False) for place, mode in modes)  # noqa: SIM115 - to the end
    raise SystemExit(_server.main())
