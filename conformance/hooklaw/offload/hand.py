"""Workers from outside: orders go in, figures come out, and whatever ends a worker costs one cell."""

import os
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Self

import msgspec

from hooklaw.errors import BenchError
from hooklaw.offload.plan import Order, Wanted
from hooklaw.offload.rounds import Taken
from hooklaw.offload.worker import Answer, Broke, Done, Fault, Finish, Hello, Open, Start, Take, Word
from hooklaw.results.verdict import Outcome
from hooklaw.workers.watchdog import last_words

MEMORY = Path("/proc/meminfo")
KEEPS = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
"""Has the C library keep what a worker frees. Otherwise it may give memory back to the system, a step that finds it
gone takes up to a tenth longer, and whether and which step that is depends on all that the worker did before."""


class BrokenError(Exception):
    """A strategy raised, or ended its worker."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class Hand:
    """One worker after another: a new one takes over where a cell ended the last, or left it in a doubtful state."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._worker = _Worker()
        self._fit = False
        self.hello = self._greeted()

    def open(self, order: Order, earlier: Taken | None) -> None:
        """Begin with a cell, or go on with it."""
        if not self._fit:
            self._worker.end()
            self._worker = _Worker()
            self._greeted()
        self._ask(Open(order, earlier))

    def take(self, which: str) -> float:
        """Have a step taken, and return its seconds."""
        return self._ask(Take(which)).figures["seconds"]

    def finish(self, warm_ups: int) -> Done:
        """Have the visit ended, and return what came of it."""
        done = self._ask(Finish(warm_ups))
        self._fit = not self._wanted.device.startswith("cuda")  # which gives pinned memory back at the end only
        return done

    def close(self) -> None:
        """End the worker and what it left in its folder."""
        self._worker.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _greeted(self) -> Hello:
        wanted = self._wanted
        memory = 0 if wanted.device.startswith("cuda") else _free_memory()
        start = Start(wanted.module, wanted.strategies, wanted.device, wanted.limit, memory)
        try:
            answer = self._worker.ask(start)
        except BrokenError as error:
            self._worker.end()
            raise BenchError(f"the strategies cannot be loaded: {error.detail}") from error
        if not isinstance(answer, Hello):
            self._worker.end()
            raise BenchError(answer.why if isinstance(answer, Fault) else f"a worker began with {answer!r}")
        self._fit = True
        return answer

    def _ask(self, word: Word) -> Done:
        try:
            answer = self._worker.ask(word)
        except BrokenError:
            self._fit = False
            raise
        if isinstance(answer, Done):
            return answer
        self._fit = False
        raise BrokenError(Outcome.ERROR, answer.detail if isinstance(answer, Broke) else repr(answer))


class _Worker:
    """A process with a folder of its own, which is gone when the process is."""

    def __init__(self) -> None:
        self._made_folder = TemporaryDirectory(prefix="hooklaw-", ignore_cleanup_errors=True)
        self._folder = Path(self._made_folder.name)
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "hooklaw.offload.worker", str(self._words)],
            stdin=pipe,
            stdout=pipe,
            stderr=quiet,
            text=True,
            start_new_session=True,  # whoever interrupts the run interrupts no strategy in the middle of a cell
            env=environment(self._folder),
        )

    @property
    def _words(self) -> Path:
        return self._folder / "words"

    def ask(self, word: Word) -> Answer:
        """Return the answer; BrokenError where there is none."""
        try:
            stdin = _pipe(self._process.stdin)
            stdin.write(msgspec.json.encode(word).decode() + "\n")
            stdin.flush()
            text = _pipe(self._process.stdout).readline()
        except OSError:
            text = ""
        try:
            return msgspec.json.decode(text, type=Answer)
        except msgspec.MsgspecError as error:
            raise self._end_of_words(text) from error

    def _end_of_words(self, text: str) -> BrokenError:
        if text.endswith("\n"):
            return BrokenError(Outcome.ERROR, f"a worker answered {text[:80]!r}, which is no result")
        code = self._process.wait()
        outcome, said, _ = last_words(self._words)
        signal = f"the process died of signal {-code}" if code < 0 and "without a word" in said else ""
        return BrokenError(outcome, signal or said)

    def end(self) -> None:
        """Let the process go; it is killed where it does not go by itself."""
        with suppress(OSError):
            _pipe(self._process.stdin).close()
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()
        self._made_folder.cleanup()


def environment(folder: Path) -> dict[str, str]:
    """Return what a worker finds around it: a temporary folder of its own, and memory that stays."""
    here = {"TMPDIR": str(folder), "HOOKLAW_TMPDIR": str(folder)}
    return {"KINETO_LOG_LEVEL": "5", **KEEPS, **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **here}


def kept() -> str:
    """Return in words what workers do with memory that is freed."""
    if os.environ.keys() & KEEPS:
        return "as the environment says"
    return "keeps what is freed" if platform.libc_ver()[0] == "glibc" else "as the C library does"


def _free_memory() -> int:
    try:
        lines = MEMORY.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    free = next((line.split()[1] for line in lines if line.startswith("MemAvailable")), "0")
    return int(free) * 1024


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # noqa: S101 - every worker is started with pipes
    return stream
