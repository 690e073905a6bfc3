"""Containment: programs run in processes of their own, and one that dies or hangs names the program it was at.

A process counts in shared memory where it is, and tells its answers through a pipe, which keeps what was told before
a crash. The kernel's timer ends a process that hangs, so that none outlives its limit, whatever becomes of its parent.
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
"""The same on a backend that replays programs in its own way, since it may compile them."""
AT, STEP, UNDECIDED, SKIPPED = range(4)
"""What stands in the shared memory: the program and its instruction, and what was counted so far."""
COMPARING = -1
"""Stands for an instruction while the engine runs."""
DONE = "done"


class Ending(NamedTuple):
    """How a process died."""

    kind: str
    """``crash`` or ``hang``."""
    how: str
    """Of which signal, or with which exit code."""

    def __str__(self) -> str:
        return f"{self.kind} {self.how}" if self.how else self.kind


class Fault(NamedTuple):
    """What kept a process from doing its work, which is no finding."""

    why: str


class Held:
    """A backend with its judge: a forked process has it from its parent, a spawned one loads it again."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._judge: Judge | None = None

    def __reduce__(self) -> Any:
        return Held, (self.spec,)

    @property
    def judge(self) -> Judge:
        """The judge of the backend.

        Raises HooklawError where the backend cannot be loaded.
        """
        if self._judge is None:
            try:
                self._judge = Judge(loading.load(self.spec))
            except NotRunError as error:
                raise HooklawError(f"{self.spec}: not run: {error}") from error
        return self._judge

    @property
    def backend(self) -> Any:
        """The backend."""
        return self.judge.backend

    def import_early(self, programs: Iterable[Sequence[Instruction]]) -> None:
        """Import before any process is forked what programs would have each of them import, where that takes long."""
        late: dict[Capability, str] = dict(getattr(self.backend, "imports_late", {}))
        for program in programs:
            if not late:
                return
            for need in needs(program) & late.keys():
                importlib.import_module(late.pop(need))

    @property
    def limit(self) -> float:
        """How many seconds a program may take, if nobody says it."""
        return LONG_LIMIT if self.judge.own_way else LIMIT

    @property
    def forked(self) -> bool:
        """Whether a process may inherit the backend; a device's must be opened anew in each."""
        return Capability.HOST in self.backend.capabilities


def spare_collections() -> None:
    """Let the collector pass over all there is, and look less often at what programs leave, most of which is freed."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class Line:
    """A process's way to tell its parent what it found, and where it is."""

    def __init__(self, pipe: Connection, marks: Any) -> None:
        self.tell = pipe.send
        self.marks = marks


class Child:
    """A process that works on a backend, contained: `work(judge, line, *given)`."""

    def __init__(self, held: Held, work: Callable[..., None], *given: Any, at: int = 0) -> None:
        context: Any = multiprocessing.get_context("fork" if held.forked else "spawn")
        self.marks: Any = context.RawArray("q", 4)
        self.marks[AT] = at
        self.answers, far = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(held, work, far, self.marks, given), daemon=True)
        self._done = False
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what forks would swallow it
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that threads of a library may be lost in the child
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
        far.close()

    def answer(self) -> Any:
        """Return the next thing it tells, waiting for it, or None where it has ended.

        Raises HooklawError where it could not work at all.
        """
        try:
            told = self.answers.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return None
        if isinstance(told, Fault):
            raise HooklawError(told.why)
        self._done = told == DONE
        return self.answer() if self._done else told

    def ending(self) -> Ending | None:
        """Return how it died, once it told all; None where it came to its end."""
        self._process.join()
        code = self._process.exitcode or 0
        self.end()
        if self._done:
            return None
        if code >= 0:
            return Ending("crash", f"exit {code}")
        return Ending("hang", "") if -code == signal.SIGALRM else Ending("crash", signal.Signals(-code).name)

    def end(self) -> None:
        """End it, wherever it is."""
        self._process.kill()
        self._process.join()
        self.answers.close()


def watch(seconds: float) -> None:
    """Let the kernel end this process unless it is told otherwise within so many seconds; 0 is never."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _run(held: Held, work: Callable[..., None], pipe: Connection, marks: Any, given: tuple[Any, ...]) -> None:
    _be_quiet()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        judge = held.judge
        _note_steps(judge, marks)
        spare_collections()
        work(judge, Line(pipe, marks), *given)
        watch(0)
        pipe.send(DONE)
    except BrokenPipeError:
        pass  # the parent is gone
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent says it
        pipe.send(Fault(f"{held.spec}: a process of the fuzzer failed: {type(error).__name__}: {error}"))
    pipe.close()
    os._exit(0)  # nothing of what a program left behind may run any more


def _be_quiet() -> None:
    """Let a backend's last words and warnings not mix with the output, and no crash leave a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = os.fdopen(null, "w", encoding="utf-8")
    warnings.simplefilter("ignore")


def _note_steps(judge: Judge, marks: Any) -> None:
    step, law = Replay.step, type(engine(()))

    def noted(self: Replay, number: int, one: Instruction) -> None:
        compares = self.backend is not judge.backend and isinstance(self.backend, law)
        marks[STEP] = COMPARING if compares else number
        step(self, number, one)

    Replay.step = noted
