"""The worker: ``python -m hooklaw.offload.worker FILE`` reads orders and answers in JSON lines, nothing but JSON.

The first line read is a `Start`, answered by a `Hello` or a `Fault`; then come `Open`, `Take` and `Finish`. A worker
that hangs is ended by its watchdog, which writes to FILE. What a strategy leaves in TMPDIR goes with the worker.
"""

import errno
import gc
import os
import shutil
import sys
from pathlib import Path
from typing import Any, TextIO

import msgspec

from hooklaw.errors import BenchError, HooklawError
from hooklaw.offload.plan import Order
from hooklaw.offload.rounds import Taken
from hooklaw.workers.watchdog import LOADING_LIMIT, Watchdog


class Start(msgspec.Struct, tag=True):
    """What is said first."""

    module: str
    strategies: tuple[str, ...]
    device: str
    limit: float
    memory: int
    """Bytes that the worker may take; 0 for as many as there are."""


class Open(msgspec.Struct, tag=True):
    """Begin with a cell."""

    order: Order
    earlier: Taken | None = None
    """What earlier visits took: then its memory is known."""


class Take(msgspec.Struct, tag=True):
    """Take a step: ``plain`` or ``own``."""

    which: str


class Finish(msgspec.Struct, tag=True):
    """End the cell."""

    warm_ups: int


class Hello(msgspec.Struct, tag=True):
    """What a worker found."""

    strategies: dict[str, str]
    versions: dict[str, str]
    device: str
    packers: dict[str, str]
    """The packer of a strategy as module:attribute, for those that have one."""


class Fault(msgspec.Struct, tag=True):
    """Why nothing can be measured."""

    why: str


class Broke(msgspec.Struct, tag=True):
    """What a strategy raised."""

    detail: str


class Done(msgspec.Struct, tag=True):
    """What came of an order."""

    figures: dict[str, Any] = {}
    taken: Taken | None = None


Word = Start | Open | Take | Finish
Answer = Hello | Fault | Broke | Done


def hello(start: Start) -> Hello:
    """Look at what there is; BenchError says what is missing."""
    try:
        import torch  # noqa: PLC0415 - its absence is a sentence
    except ImportError as error:
        raise BenchError(f"strategies are measured with torch, which does not import: {error}") from error
    torch.set_num_threads(1)
    try:
        torch.zeros(1, device=start.device)
    except (RuntimeError, AssertionError) as error:
        raise BenchError(f"--device {start.device}: {str(error).splitlines()[0]}") from error
    from hooklaw.offload.trial import Bench  # noqa: PLC0415 - it needs torch

    known = _known(start.module)
    bench = Bench(start.module)
    packers = {spec: _packer(bench.find(spec)) for spec in start.strategies or known}
    cuda = start.device.startswith("cuda")
    name = torch.cuda.get_device_name(start.device) if cuda else start.device
    return Hello(known, {"torch": str(torch.__version__)}, name, packers)


def _known(module: str) -> dict[str, str]:
    import importlib  # noqa: PLC0415 - named here alone

    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise BenchError(f"the strategies' module {module} does not import: {error}") from error
    return {name: one.text for name, one in found.STRATEGIES.items()}


def _packer(strategy: Any) -> str:
    kind = type(strategy.context())
    strategy.close()
    return f"{kind.__module__}:{kind.__qualname__}" if hasattr(kind, "pack") else ""


class Server:
    """Serves one order after the other."""

    def __init__(self, start: Start, watchdog: Watchdog) -> None:
        from hooklaw.offload.trial import Bench  # noqa: PLC0415 - it needs torch

        self._bench = Bench(start.module)
        self._limit = start.limit
        self._watchdog = watchdog
        self._trial: Any = None

    def serve(self, word: Word) -> Done:
        """Do as told."""
        from hooklaw.offload.trial import Trial  # noqa: PLC0415 - it needs torch

        if isinstance(word, Open):
            self._watchdog.start(self._limit)  # of the whole cell
            self._trial = None
            gc.collect()
            gc.freeze()  # collecting a cell's garbage need not look at a whole framework
            self._trial = Trial(self._bench, word.order, word.earlier)
            return Done()
        if isinstance(word, Take):
            return Done({"seconds": self._trial.take(word.which)})
        assert isinstance(word, Finish)  # noqa: S101 - there is no fourth
        figures, taken = self._trial.finish(word.warm_ups)
        self._watchdog.stop()
        return Done(figures, taken)


def main() -> int:
    """Serve until there is no further order."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what a strategy prints is no answer
    watchdog = Watchdog(Path(sys.argv[1]))
    watchdog.start(LOADING_LIMIT)
    try:
        start = msgspec.json.decode(sys.stdin.readline(), type=Start)
        _bound(start.memory)
        _answer(answers, hello(start))
        watchdog.stop()
        _serve(Server(start, watchdog), answers)
    except HooklawError as error:
        _answer(answers, Fault(str(error)))
        return 1
    finally:
        shutil.rmtree(os.environ.get("HOOKLAW_TMPDIR", ""), ignore_errors=True)
    return 0


def _serve(server: Server, answers: TextIO) -> None:
    for line in sys.stdin:
        try:
            answer: Answer = server.serve(msgspec.json.decode(line, type=Word))
        except BaseException as error:  # noqa: BLE001 - whatever a strategy raises marks its own cell
            answer = Broke(_said(error))
        _answer(answers, answer)


def _bound(memory: int) -> None:
    """Let a strategy that eats all memory hear of it, before the machine does."""
    if memory:
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _said(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0]
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full: {text}"
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
        return f"out of memory: {text or type(error).__name__}"
    return f"{type(error).__name__}: {text}"


def _answer(answers: TextIO, line: Answer) -> None:
    answers.write(msgspec.json.encode(line).decode() + "\n")
    answers.flush()


if __name__ == "__main__":
    raise SystemExit(main())
