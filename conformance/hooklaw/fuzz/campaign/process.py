"""Worker processes that contain crashes and hangs, and name the program at which they died.

A worker keeps its place in shared memory, and sends its answers through a pipe, which keeps what was sent before a
crash. The kernel's timer ends a worker that hangs, even if its parent is gone.
"""

import faulthandler
import gc
import importlib
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from hooklaw.backend import loading
from hooklaw.backend.protocol import Capability
from hooklaw.errors import HooklawError, NotRunError
from hooklaw.fuzz.judge.judge import Judge, engine
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.required_capabilities import needs
from hooklaw.fuzz.replay.run import Replay

LIMIT = 10.0
"""Seconds that a program may take, its comparison included."""
LONG_LIMIT = 60.0
"""The same for a backend that replays programs in its own way, since it may compile them."""
AT, STEP, UNDECIDED, SKIPPED = range(4)
"""Places in the shared memory: the program and its instruction, and how many programs were undecided or skipped."""
COMPARING = -1
"""The instruction while the engine runs."""
DONE = "done"


class Ending(NamedTuple):
    """How a worker died."""

    kind: str
    """``crash`` or ``hang``."""
    how: str
    """The signal or the exit code."""

    def __str__(self) -> str:
        return f"{self.kind} {self.how}" if self.how else self.kind


class Failure(NamedTuple):
    """Why a worker could not do its task, which is not a finding."""

    reason: str


class Target:
    """A backend with its judge: a forked worker inherits it, a spawned worker loads it again."""

    def __init__(self, spec: str, imports: Sequence[str] = ()) -> None:
        self.spec, self._imports = spec, imports
        self._judge: Judge | None = None

    def __reduce__(self) -> Any:
        return Target, (self.spec, self._imports)

    @property
    def judge(self) -> Judge:
        """The judge of the backend.

        Raises HooklawError where the backend cannot be loaded.
        """
        if self._judge is None:
            try:
                self._judge = Judge(loading.load(self.spec, self._imports))
            except NotRunError as error:
                raise HooklawError(f"{self.spec}: not run: {error}") from error
        return self._judge

    @property
    def backend(self) -> Any:
        """The backend."""
        return self.judge.backend

    def import_early(self, programs: Iterable[Sequence[Instruction]]) -> None:
        """Import what programs need and takes long to import, before workers are forked."""
        late: dict[Capability, str] = dict(getattr(self.backend, "imports_late", {}))
        for program in programs:
            if not late:
                return
            for module in {late[need] for need in needs(program) & late.keys()}:
                importlib.import_module(module)
                late = {need: other for need, other in late.items() if other != module}

    @property
    def limit(self) -> float:
        """How many seconds a program may take by default."""
        return LONG_LIMIT if self.judge.own_way else LIMIT

    @property
    def forked(self) -> bool:
        """Whether workers may inherit the backend; each worker must open a device again."""
        return Capability.HOST in self.backend.capabilities


def spare_collections() -> None:
    """Keep the garbage collector off what exists now, and run it less often, since programs leave little garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class Channel:
    """A worker's way to send answers to its parent, and to note its place."""

    def __init__(self, pipe: Connection, marks: Any) -> None:
        self.send = pipe.send
        self.marks = marks


class Worker:
    """A process that does a task on a backend: `task(judge, channel, *arguments)`."""

    def __init__(self, target: Target, task: Callable[..., None], *arguments: Any, at: int = 0) -> None:
        context: Any = multiprocessing.get_context("fork" if target.forked else "spawn")
        self.marks: Any = context.RawArray("q", 4)
        self.marks[AT] = at
        self.answers, far = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(target, task, far, self.marks, arguments), daemon=True)
        self._done = False
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # or callbacks of the fork swallow it
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that threads of a library may be lost in the worker
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        far.close()

    def answer(self) -> Any:
        """Wait for the next answer and return it, None where the worker has ended.

        Raises HooklawError where the worker could not do its task.
        """
        try:
            answer = self.answers.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return None
        if isinstance(answer, Failure):
            raise HooklawError(answer.reason)
        self._done = answer == DONE
        return self.answer() if self._done else answer

    def ending(self) -> Ending | None:
        """Return how the worker died, once all its answers are read; None where it finished its task."""
        self._process.join()
        code = self._process.exitcode or 0
        self.end()
        if self._done:
            return None
        if code >= 0:
            return Ending("crash", f"exit {code}")
        return Ending("hang", "") if -code == signal.SIGALRM else Ending("crash", signal.Signals(-code).name)

    def end(self) -> None:
        """End the worker."""
        self._process.kill()
        self._process.join()
        self.answers.close()


def limit_time(seconds: float) -> None:
    """Let the kernel end this process after so many seconds, unless the limit is set again; 0 is no limit."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _run(target: Target, task: Callable[..., None], pipe: Connection, marks: Any, arguments: tuple[Any, ...]) -> None:
    _be_quiet()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    for each in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)
    try:
        judge = target.judge
        _note_steps(judge, marks)
        spare_collections()
        task(judge, Channel(pipe, marks), *arguments)
        limit_time(0)
        pipe.send(DONE)
    except BrokenPipeError:
        pass  # the parent is gone
    except Exception as error:  # noqa: BLE001 - the parent reports every error
        pipe.send(Failure(f"{target.spec}: a process of the fuzzer failed: {type(error).__name__}: {error}"))
    pipe.close()
    os._exit(0)  # nothing that a program left behind may run now


def _be_quiet() -> None:
    """Keep the output of a backend out of ours, and let no crash leave a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = os.fdopen(null, "w", encoding="utf-8")
    warnings.simplefilter("ignore")


def _note_steps(judge: Judge, marks: Any) -> None:
    step, law = Replay.step, type(engine(()))

    def noted(self: Replay, number: int, instruction: Instruction) -> None:
        compares = self.backend is not judge.backend and isinstance(self.backend, law)
        marks[STEP] = COMPARING if compares else number
        step(self, number, instruction)

    Replay.step = noted
