"""Replay: runs a program on a backend, and logs everything that a user could see."""

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay._facts import Facts
from hooklaw.fuzz.replay.operations import OPERATIONS

if TYPE_CHECKING:
    import weakref

Event = tuple[Any, ...]
"""A word or a name first, then what was seen: values as nested lists, None where there is no tensor."""
Log = Callable[[Event], object]


class PlannedError(Exception):
    """Raised by a hook where its program says so."""


class NotReplayedError(Exception):
    """Raised by a backend that replays programs in its own way and cannot replay this program; the text says why."""


class SkippedError(LookupError):
    """An instruction is skipped: it uses a name that does not exist, or its behaviour is unspecified."""


def skip_if(unspecified: object) -> None:
    """Skip the instruction that is running where this is true."""
    if unspecified:
        raise SkippedError


class Replayed(NamedTuple):
    """A program in the order in which a backend has run it, and the events that it showed."""

    program: Program
    events: list[Event]


class Namespace(dict[str, Any]):
    """What the program has made so far, by name."""

    def __missing__(self, _: str) -> Any:
        raise SkippedError


INTERNAL = "INTERNAL ASSERT"
"""Marks those errors of PyTorch that no user should be able to cause."""
FORBIDDEN = re.compile("forbidden by \\w+")
"""The message with which a program forbids saved-tensor hooks, which every refusal must repeat."""


class Replay(Facts):
    """One program on one backend: what it has made so far, and the log of what it sees."""

    def __init__(self, backend: Any, log: Log) -> None:
        super().__init__()
        self.backend = backend
        self.log = log
        self.tensors, self.handles, self.modules, self.edges = Namespace(), Namespace(), Namespace(), Namespace()
        self.states, self.optimizers = Namespace(), Namespace()
        self.children: dict[int, list[Any]] = {}
        """What was registered inside modules, by their ids: modules live as long as the replay."""
        self.substitutes: list[Any] = []
        """Modules that a hook may have registered in the place of others."""
        self.boxes: list[weakref.ref[Any]] = []
        """What was packed in a box."""
        self.everywhere: list[Any] = []
        """Handles of hooks for the whole process, which must not outlive the program."""
        self.kept: list[Any] = []
        """Nodes with hooks, which vanish with the last reference to them."""
        self.stacks: dict[int, list[AbstractContextManager[Any]]] = {}
        """The open contexts of each thread."""
        self.inferring: dict[int, int] = {}
        """Threads in inference mode: how many contexts were open when they entered it."""
        self.thread = 0
        self.ident = 0
        """The operating system's thread in which the instruction runs."""
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def input(self, instruction: Instruction) -> Any:
        """Return the first tensor that an instruction uses."""
        return self.tensors[instruction.used[0]]

    def inputs(self, instruction: Instruction) -> list[Any]:
        """Return all tensors that an instruction uses."""
        return [self.tensors[name] for name in instruction.used]

    def all(self, program: Sequence[Instruction]) -> None:
        """Run every instruction, go on after errors, and look at all gradients in the end."""
        try:
            for thread, together in groupby(enumerate(program), key=lambda numbered: numbered[1].thread):
                self._steps(thread, [*together])
            self.look()
        finally:
            self.close()

    def _steps(self, thread: int, numbered: Sequence[tuple[int, Instruction]]) -> None:
        """Run consecutive instructions of one thread."""

        def run() -> None:
            for number, instruction in numbered:
                self.step(number, instruction)

        if thread and thread not in self._pools:
            self._pools[thread] = ThreadPoolExecutor(1)
        if thread:
            self._pools[thread].submit(run).result()
        else:
            run()

    def step(self, number: int, instruction: Instruction, /) -> None:
        """Run an instruction, in its thread; an error is an event."""
        self.thread, self.ident = instruction.thread, threading.get_ident()
        execute, traits = OPERATIONS[instruction.op]
        try:
            if self.inferring:
                skip_if(self.thread in self.inferring and not traits.in_inference)
            execute(self, instruction)
        except SkippedError:
            self.skipped.add(number)
            return
        except Exception as error:  # noqa: BLE001 - every error of a backend is compared
            self.log(("error", number, instruction.op, kind_of(error)))
        if instruction.made:
            self.consumed.update(instruction.used)
        if self.boxes and traits.frees and not (self.created or self.nests):
            self.log(("boxes", sum(box() is not None for box in self.boxes)))

    def look(self) -> None:
        """Log every gradient that has been accumulated or retained."""
        for name, tensor in self.tensors.items():
            if name in self.taken:
                self.log((f"{name}.value", self.seen(tensor)))
            try:
                grad = self.grad_of(tensor)
            except Exception as error:  # noqa: BLE001 - as in `step`
                self.log(("error", name, "grad", kind_of(error)))
            else:
                if grad is not None:
                    self.log((f"{name}.grad", self.seen(grad)))
                    self._look_at_layout(name, grad)

    def _look_at_layout(self, name: str, grad: Any) -> None:
        """Log the layout of a gradient where it may be unusual."""
        if name in self.owned and not self.created:
            self.log((f"{name}.layout", self.strides(grad)))

    def strides(self, tensor: Any) -> list[int]:
        """Return the strides of a tensor, without those of dimensions of size 1."""
        sizes = zip(self.backend.shape(tensor), self.backend.stride(tensor), strict=True)
        return [stride for size, stride in sizes if size > 1]

    def grad_of(self, tensor: Any) -> Any:
        """Return the gradient of a tensor that may have one."""
        backend = self.backend
        return backend.grad_of(tensor) if backend.is_leaf(tensor) or backend.retains_grad(tensor) else None

    def seen(self, value: Any) -> Any:
        """Return a value as it is compared: a tensor as its values, with its dtype unless that is float64."""
        if value is None:
            return None
        backend = self.backend
        if backend.is_tensor(value):
            dtype, values = backend.dtype(value), backend.tolist(value)
            return values if dtype == "float64" else (dtype, values)
        if isinstance(value, (tuple, list)):
            return [self.seen(part) for part in cast("Sequence[Any]", value)]
        if isinstance(value, dict):
            return [[key, self.seen(part)] for key, part in cast("dict[Any, Any]", value).items()]
        return value if isinstance(value, (bool, float, str)) else type(value).__name__

    def standing(self, tensor: Any) -> tuple[Any, ...]:
        """Return how a tensor relates to those of the program: which it is, whose storage it shares, its layout.

        Unspecified are the layout of gradients, the layout of views once anything was changed in place, which
        gradients share storage, and with what the replicas of a module share theirs.
        """
        backend = self.backend
        where = self.where(tensor)
        itself = next((name for name, other in self.tensors.items() if other is tensor), None)
        beside = next((name for name, other in self.tensors.items() if self.where(other) == where), None)
        if self.replicated or (itself in self.shared and beside in self.shared):
            beside = itself
        return itself, beside, backend.requires_grad(tensor), backend.is_leaf(tensor), self._layout(tensor, beside)

    def where(self, tensor: Any) -> tuple[bool, int]:
        """Return where the storage of a tensor is; an empty tensor shares none."""
        empty = 0 in self.backend.shape(tensor)
        return empty, id(tensor) if empty else self.backend.data_ptr(tensor)

    def _layout(self, tensor: Any, beside: str | None) -> list[int] | None:
        return None if self.changed or self.passes or beside in self.shared else self.strides(tensor)

    def close(self) -> None:
        """Leave the open contexts, each in its own thread, and remove what would outlive the program."""
        for thread, stack in self.stacks.items():
            pool = self._pools.get(thread)
            for context in reversed(stack):
                with suppress(Exception):
                    _leave(context) if pool is None else pool.submit(_leave, context).result()
        for handle in self.everywhere:
            handle.remove()
        for pool in self._pools.values():
            pool.shutdown()
        for made in (self.tensors, self.handles, self.modules, self.edges, self.states, self.optimizers):
            made.clear()  # or what hooks hold would be garbage in cycles, which takes time to find
        self.kept.clear()


def _leave(context: AbstractContextManager[Any]) -> None:
    context.__exit__(None, None, None)


def kind_of(error: BaseException) -> str:
    """Return what is compared of an error: that the program planned it, that it is a TypeError, or any refusal.

    A refusal says which instruction forbade it; an internal error of the backend is a kind of its own.
    """
    text = str(error)
    forbidden = FORBIDDEN.search(text)
    if forbidden:
        return f"refused: {forbidden[0]}"
    if INTERNAL in text:
        return "internal"
    if isinstance(error, PlannedError):
        return "planned"
    if isinstance(error, TypeError):
        return "TypeError"
    refusals = (RuntimeError, ValueError, IndexError, AssertionError)
    return "refused" if isinstance(error, refusals) else type(error).__name__


def replay(program: Sequence[Instruction], backend: Any) -> list[Event]:
    """Return the events that a backend shows when it runs a program."""
    events: list[Event] = []
    backend.reset()
    with getattr(backend, "surroundings", nullcontext)():
        Replay(backend, events.append).all(program)
    return events
