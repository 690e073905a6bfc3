"""Running a matrix of mutants: workers side by side, and what a dead one was at belongs to its mutant."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import IO

import msgspec

from hooklaw.errors import BackendImportError, HooklawError, NotRunError, UnknownMutantError
from hooklaw.mutation.worker import LIMIT, Begun, Done, Farewell, Fault, Finished, Hello, Line, Order
from hooklaw.results.verdict import Outcome
from hooklaw.workers.watchdog import last_words

WORKERS = 2
ORIGINALS = ("torch-eager", "reference")
"""The backends that mutants are made of."""

Choose = Callable[[Sequence[str]], Sequence[str]]


class Matrix(msgspec.Struct):
    """What every mutant of a backend made of every rule that the backend itself keeps; what passed is left out."""

    of: str
    hello: Hello
    results: dict[str, dict[str, Done]]


class Matrices(msgspec.Struct):
    """One matrix a backend, and why there is none of others."""

    found: list[Matrix]
    absent: dict[str, str]


def run(module: str, of: Sequence[str], choose: Choose, limit: float = LIMIT) -> Matrices:
    """Run the mutants of a module that are chosen: those of some backends, or of all that are installed.

    Raises BackendImportError where the module or a backend cannot be used, and what choosing raises.
    """
    with TemporaryDirectory(prefix="hooklaw-") as folder:
        first = {one: _Hand(module, one, Path(folder) / one) for one in of or ORIGINALS}
        try:
            hellos, absent = _hellos(first)
            if absent and (of or not hellos):
                raise BackendImportError("; ".join(f"no mutants of {one}: {why}" for one, why in absent.items()))
            chosen = set(choose(list(dict.fromkeys(name for hello in hellos.values() for name in hello.vices))))
            found = [_matrix(hello, first[one], chosen, limit) for one, hello in hellos.items() if hello.vices]
        finally:
            for hand in first.values():
                hand.end()
    return Matrices(found, absent)


def _hellos(hands: Mapping[str, "_Hand"]) -> tuple[dict[str, Hello], dict[str, str]]:
    hellos: dict[str, Hello] = {}
    absent: dict[str, str] = {}
    for one, hand in hands.items():
        try:
            hellos[one] = hand.hello()
        except NotRunError as error:
            absent[one] = str(error)
    return hellos, absent


def _matrix(hello: Hello, first: "_Hand", chosen: AbstractSet[str], limit: float) -> Matrix:
    matrix = Matrix(first.of, hello, {name: {} for name in hello.vices if name in chosen})
    waiting: SimpleQueue[str] = SimpleQueue()
    for name in matrix.results:
        waiting.put(name)
    further = range(1, min(WORKERS, len(matrix.results)))
    _work([first, *(first.another(place) for place in further)], waiting, matrix, limit)
    return matrix


def choose_by(parts: Sequence[str]) -> Choose:
    """Return what chooses the names that contain one of these parts, or all where there are none."""

    def choose(names: Sequence[str]) -> Sequence[str]:
        for part in parts:
            if not any(part in name for name in names):
                raise UnknownMutantError(f"no mutant has {part!r} in its name: `hooklaw mutants` shows them all")
        return [name for name in names if not parts or any(part in name for part in parts)]

    return choose


def _work(hands: Sequence["_Hand"], waiting: "SimpleQueue[str]", matrix: Matrix, limit: float) -> None:
    faults: list[HooklawError] = []

    def serve(hand: _Hand) -> None:
        try:
            while True:
                name = waiting.get_nowait()
                matrix.results[name] = {done.rule: done for done in hand.run(Order(name, limit))}
        except Empty:
            hand.finish(faults)
        except HooklawError as fault:
            faults.append(fault)
        finally:
            hand.end()

    threads = [threading.Thread(target=serve, args=(hand,), daemon=True) for hand in hands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fault in faults:
        raise fault


class _Hand:
    """One worker after another: a new one takes over where a mutant ended the last."""

    def __init__(self, module: str, of: str, file: Path) -> None:
        self._module, self.of, self._file = module, of, file
        self._process = self._start()

    def another(self, place: int) -> "_Hand":
        """Return one more for the same mutants."""
        return _Hand(self._module, self.of, self._file.with_name(f"{self._file.name}-{place}"))

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-P", "-m", "hooklaw.mutation.worker", self._module, self.of, str(self._file)]
        here = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}  # the workers share the cores
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        environment = {**os.environ, **here}
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, env=environment)  # noqa: S603 - our own

    def hello(self) -> Hello:
        """Return what the worker found.

        Raises NotRunError where this machine does not have the backend.
        """
        for line in self._lines():
            if isinstance(line, Hello):
                return line
            if isinstance(line, Fault):
                raise (NotRunError if line.absent else BackendImportError)(line.why)
        raise BackendImportError(f"the mutants in {self._module} do not load: {last_words(self._file)[1]}")

    def run(self, order: Order) -> Iterator[Done]:
        """Yield what a mutant fails; a rule that ends the worker is its last, for it is killed then."""
        at = ""
        for line in self._answers(order):
            match line:
                case Begun(at):
                    pass
                case Done() if line.outcome is not Outcome.PASS:
                    yield line
                case Finished():
                    return
                case Fault(why):
                    raise BackendImportError(why)
                case _:
                    pass
        outcome, detail, _ = last_words(self._file)
        self.end()
        if not at:
            raise BackendImportError(f"the worker for the mutant {order.mutant!r} does not load: {detail}")
        self._process = self._start()
        yield Done(at, outcome, detail)

    def finish(self, faults: list[HooklawError]) -> None:
        """Let the worker try the original once more; what a mutant spoilt for those after it makes all worthless."""
        _stdin(self._process).close()
        for line in self._lines():
            if isinstance(line, Farewell) and line.spoilt:
                spoilt = ", ".join(line.spoilt)
                faults.append(HooklawError(f"a mutant left something behind in its process that breaks {spoilt}"))

    def end(self) -> None:
        """End the worker."""
        self._process.kill()
        with suppress(BrokenPipeError), self._process:  # which closes its pipes
            pass

    def _answers(self, order: Order) -> Iterator[Line]:
        stdin = _stdin(self._process)
        try:
            stdin.write(msgspec.json.encode(order).decode() + "\n")
            stdin.flush()
        except BrokenPipeError:
            return
        yield from self._lines()

    def _lines(self) -> Iterator[Line]:
        if self._process.stdout:
            for text in self._process.stdout:
                try:
                    yield msgspec.json.decode(text, type=Line)
                except msgspec.DecodeError:  # half a line, of a worker that is no more
                    return


def _stdin(process: "subprocess.Popen[str]") -> IO[str]:
    if not process.stdin:
        raise HooklawError("the worker has no input")
    return process.stdin
