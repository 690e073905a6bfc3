"""The supervisor of a worker: it starts the process, asks it with a limit, and replaces it when it has died.

A worker runs in a session of its own, so Ctrl-C reaches its supervisor alone. Its folder holds what it wrote to
stderr and what its watchdog left, and goes with it; its environment is that of the supervisor plus what is given.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Generic, NoReturn, Self, TypeVar

import msgspec

from hooklaw import errors
from hooklaw.errors import WorkerError
from hooklaw.results.verdict import Outcome
from hooklaw.workers._messages import Answer, Fault, Reply, Request, Start, raw
from hooklaw.workers.watchdog import GRACE, LOADING_LIMIT, WORDS, last_words, late

ATTEMPTS = 3
"""So many workers may die while they load."""
LOOK = 1.0
"""Seconds after which a supervisor that waits looks whether the worker still lives."""
TAIL_LINES = 20
TAIL_BYTES = 4000

Hello = TypeVar("Hello")
Result = TypeVar("Result")


class Death(msgspec.Struct, frozen=True):
    """How a worker died: what of it goes into a record, and the process's exit code (negative: a signal)."""

    outcome: Outcome
    detail: str
    where: str
    stderr: str
    code: int


class WorkerDiedError(Exception):
    """The worker died of a request, or was killed because it did not answer."""

    def __init__(self, death: Death) -> None:
        super().__init__(death.detail)
        self.death = death


class Supervisor(Generic[Hello, Result]):
    """Keeps one worker, and replaces it when it has died or was declared unfit."""

    def __init__(  # noqa: PLR0913 - each is a choice of its own, by keyword
        self,
        service: str,
        settings: object,
        *,
        name: str,
        hello: type[Hello],
        answer: type[Result] | Any,
        environment: Mapping[str, str] = {},
        temporary_folder: bool = False,
        memory: int = 0,
    ) -> None:
        """Prepare a worker for a service named ``module:attribute``.

        `name` says in a sentence what the service loads, e.g. "backend 'paddle'"; `hello` and `answer` are the types
        of what it says. With `temporary_folder` the worker's TMPDIR is its own folder. `memory` bounds its data.
        """
        self._command = (service, raw(settings), memory)
        self._name, self._hello, self._answer = name, hello, answer
        self._environment, self._temporary_folder = environment, temporary_folder
        self._process: _Process | None = None
        self._greeting: Hello | None = None

    def start(self) -> None:
        """Start a worker if there is none, and do not wait until it has loaded."""
        if self._process is None:
            self._process = _Process(*self._command, self._environment, temporary_folder=self._temporary_folder)

    def hello(self) -> Hello:
        """Wait until a worker has loaded, and return its hello.

        Raises what the service raised while it started, or WorkerError where every worker died.
        """
        said = ""
        for _ in range(ATTEMPTS):
            if self._greeting is not None:
                return self._greeting
            try:
                self.start()
                self._greeting = self._read(self._hello, LOADING_LIMIT, None)
            except WorkerDiedError as died:
                death = died.death
                said = "\n".join([death.detail, *(f"  {line}" for line in death.stderr.splitlines())])
                if death.outcome is Outcome.TIMEOUT:  # minutes have passed, and would again
                    place = f" [{death.where}]" if death.where else ""
                    raise WorkerError(f"{self._name} cannot be loaded: {death.detail}{place}") from died
            except BaseException:
                self.retire()
                raise
        if self._greeting is None:
            raise WorkerError(f"{self._name} cannot be loaded, each time {said}")
        return self._greeting

    def ask(self, request: object, limit: float, on_note: Callable[[bytes], None] | None = None) -> Result:
        """Return the answer to a request that may take so many seconds.

        Raises WorkerDiedError where the worker died of it, or what the service raised.
        """
        if self._process and self._process.is_dead():
            self.retire()  # it was no request that ended it
        self.hello()
        if self._process:
            self._process.send(Request(raw(request), limit))
        return self._read(self._answer, limit, on_note)

    def retire(self) -> None:
        """Declare the worker unfit: it is ended, and the next request starts another."""
        process, self._process, self._greeting = self._process, None, None
        if process:
            process.end()

    close = retire

    def interrupt(self) -> None:
        """Kill the worker: a thread that waits for its answer hears that it died."""
        if process := self._process:
            process.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, kind: Any, limit: float, on_note: Callable[[bytes], None] | None) -> Any:
        process = self._process
        assert process is not None  # noqa: S101 - the callers have started it
        deadline = time.monotonic() + limit + GRACE
        while True:
            try:
                reply = process.read(deadline)
            except (EOFError, TimeoutError) as error:
                death = process.death(limit if isinstance(error, TimeoutError) else None)
                self.retire()
                raise WorkerDiedError(death) from error
            if isinstance(reply, Answer):
                return msgspec.json.decode(reply.body, type=kind)
            if isinstance(reply, Fault):
                _raise(reply)
            if on_note:
                on_note(bytes(reply.body))


def _raise(fault: Fault) -> NoReturn:
    raise getattr(errors, fault.kind)(fault.text)


class _Process:
    """One worker process and its folder."""

    def __init__(
        self,
        service: str,
        settings: msgspec.Raw,
        memory: int,
        environment: Mapping[str, str],
        *,
        temporary_folder: bool,
    ) -> None:
        self._made_folder = TemporaryDirectory(prefix="hooklaw-", ignore_cleanup_errors=True)
        folder = Path(self._made_folder.name)
        self._words, self._unread = folder / WORDS, b""
        self._stderr = (folder / "stderr").open("a+b")  # append: it is emptied while the worker writes
        own = {"TMPDIR": str(folder)} if temporary_folder else {}
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-u", "-m", "hooklaw.workers._server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment, **own},
            start_new_session=True,
        )
        self.send(Start(service, settings, str(folder), memory, LOADING_LIMIT))

    def is_dead(self) -> bool:
        """Return whether the process has ended."""
        return self._popen.poll() is not None

    def send(self, message: Start | Request) -> None:
        """Write a message; where the worker is gone, reading will say so."""
        os.ftruncate(self._stderr.fileno(), 0)
        with suppress(BrokenPipeError):
            _pipe(self._popen.stdin).write(msgspec.json.encode(message) + b"\n")

    def read(self, deadline: float) -> Reply:
        """Return the next reply; EOFError where the worker is gone, TimeoutError where it is late."""
        pipe = _pipe(self._popen.stdout).fileno()
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if select.select([pipe], [], [], min(LOOK, max(0.0, left)))[0]:
                chunk = os.read(pipe, 1 << 16)
                if not chunk:
                    raise EOFError
                self._unread += chunk
            elif self.is_dead():  # and a child of it holds the pipe
                raise EOFError
            elif left <= 0:
                raise TimeoutError
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return msgspec.json.decode(line, type=Reply)
        except msgspec.MsgspecError as error:
            raise WorkerError(f"a worker answered {line[:80]!r}, which is not a reply") from error

    def death(self, limit: float | None) -> Death:
        """End the process and return how it died; `limit` is given where it did not answer within it."""
        if limit is not None:
            self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(GRACE)
        self.kill()
        outcome, detail, where = last_words(self._words)
        if limit is not None and outcome is not Outcome.TIMEOUT:
            outcome, detail, where = Outcome.TIMEOUT, late(limit), ""
        return Death(outcome, detail, where, self._tail(), self._popen.wait())

    def end(self) -> None:
        """Kill the process and remove its folder."""
        self.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout, self._stderr):
            _pipe(stream).close()
        self._made_folder.cleanup()

    def kill(self) -> None:
        """Kill the process, with what it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    def _tail(self) -> str:
        end = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, end - TAIL_BYTES))
        lines = self._stderr.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - every worker is started with pipes
    return stream
