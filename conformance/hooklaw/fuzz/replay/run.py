"""Replay: run a program on a backend, and note everything that a user could see."""

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay.facts import Noted

if TYPE_CHECKING:
    import weakref

Event = tuple[Any, ...]
"""A word or a name first, then what was seen: values as nested lists, None where there is no tensor."""
Log = Callable[[Event], object]


class PlannedError(Exception):
    """What a hook raises if its program says so."""


class NotReplayedError(Exception):
    """Raised by a backend that replays programs in its own way, and not this one; the text says why."""


class UnknownNameError(LookupError):
    """An instruction uses a name that nothing has made, or nothing is said anywhere of what it would do: skip it."""


class Replayed(NamedTuple):
    """A program as a backend has run it, which may be in another order than it was given, and what it showed."""

    program: Program
    events: list[Event]


class Names(dict[str, Any]):
    """What the program has made so far."""

    def __missing__(self, name: str) -> Any:
        raise UnknownNameError(name)


IN_INFERENCE = {
    *("leave", "mode", "leaf", "add", "sub", "mul", "scale", "shift", "sin", "cos", "exp", "sum", "clone"),
    *("view", "transpose", "scale_", "mul_", "cos_", "value"),
}
"""What is carried out in inference mode, where nothing has a gradient; the verbs of gradients are for elsewhere."""
FREES = {"backward", "grad", "forget"}
"""After which it is noted how much of what was packed is there yet, unless gradients may have graphs that keep it."""
INTERNAL = "INTERNAL ASSERT"
"""Stands in PyTorch's errors that no user can have brought about."""
FORBIDDEN = re.compile("forbidden by \\w+")
"""The message with which a program forbids saved-tensor hooks; whoever is refused must be told it."""
Operation = Callable[["Run", Instruction], None]
OPERATIONS: dict[str, Operation] = {}
"""How each instruction is carried out; the modules `values`, `hooks` and `passes` fill it."""


def operation(run: Operation) -> Operation:
    """Let a function carry out the instruction that bears its name."""
    OPERATIONS[run.__name__] = run
    return run


class Run(Noted):
    """One program on one backend: what it has made, and where it notes what it sees."""

    def __init__(self, backend: Any, log: Log) -> None:
        super().__init__()
        self.backend = backend
        self.log = log
        self.tensors, self.handles, self.modules, self.edges = Names(), Names(), Names(), Names()
        self.states, self.optimizers = Names(), Names()
        self.children: dict[int, list[Any]] = {}
        """What was registered inside of modules, by their ids: modules live as long as the run."""
        self.substitutes: list[Any] = []
        """Modules that a hook may have registered in the place of others."""
        self.boxes: list[weakref.ref[Any]] = []
        """What was packed in a box."""
        self.everywhere: list[Any] = []
        """Handles of hooks on all modules, which must not outlive the program."""
        self.kept: list[Any] = []
        """Nodes with hooks, which vanish with the last reference to them."""
        self.stacks: dict[int, list[AbstractContextManager[Any]]] = {}
        self.inferring: dict[int, int] = {}
        """Of threads in inference mode: how many contexts were open when they entered it."""
        self.thread = 0
        self.ident = 0
        """Of the operating system's thread in which the instruction runs."""
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def all(self, program: Sequence[Instruction]) -> None:
        """Run every instruction, go on after errors, and look at everything in the end."""
        try:
            for thread, together in groupby(enumerate(program), key=lambda numbered: numbered[1].thread):
                self._steps(thread, [*together])
            self.look()
        finally:
            self.close()

    def _steps(self, thread: int, numbered: Sequence[tuple[int, Instruction]]) -> None:
        """Run instructions that follow one another in the same thread."""

        def run() -> None:
            for number, one in numbered:
                self.step(number, one)

        if thread and thread not in self._pools:
            self._pools[thread] = ThreadPoolExecutor(1)
        if thread:
            self._pools[thread].submit(run).result()
        else:
            run()

    def step(self, number: int, one: Instruction) -> None:
        """Run one instruction, in its thread; an error is an event."""
        self.thread, self.ident = one.thread, threading.get_ident()
        try:
            operation = _not_now if one.thread in self.inferring and one.op not in IN_INFERENCE else OPERATIONS[one.op]
            operation(self, one)
        except UnknownNameError:
            self.skipped.add(number)
            return
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is what is to be compared
            self.log(("error", number, one.op, kind_of(error)))
        if one.made:
            self.consumed.update(one.used)
        if self.boxes and one.op in FREES and not (self.created or self.nests):
            self.log(("boxes", sum(box() is not None for box in self.boxes)))

    def look(self) -> None:
        """Note every gradient that has been accumulated or retained."""
        for name, tensor in self.tensors.items():
            if name in self.taken:
                self.log((f"{name}.value", self.seen(tensor)))
            try:
                grad = self.grad_of(tensor)
            except Exception as error:  # noqa: BLE001 - as in `_do`
                self.log(("error", name, "grad", kind_of(error)))
            else:
                if grad is not None:
                    self.log((f"{name}.grad", self.seen(grad)))
                    self._look_at_layout(name, grad)

    def _look_at_layout(self, name: str, grad: Any) -> None:
        """Note how a gradient is laid out where that may be unusual."""
        if name in self.owned and not self.created:
            self.log((f"{name}.layout", self.strides(grad)))

    def strides(self, tensor: Any) -> list[int]:
        """Return the strides that say anything."""
        sizes = zip(self.backend.shape(tensor), self.backend.stride(tensor), strict=True)
        return [stride for size, stride in sizes if size > 1]

    def grad_of(self, tensor: Any) -> Any:
        """Return the gradient of a tensor that may have one."""
        backend = self.backend
        return backend.grad_of(tensor) if backend.is_leaf(tensor) or backend.retains_grad(tensor) else None

    def seen(self, value: Any) -> Any:
        """Return what can be compared: of a tensor its values, with the dtype where it is not the usual one."""
        if value is None:
            return None
        backend = self.backend
        if backend.is_tensor(value):
            dtype, values = backend.dtype(value), backend.tolist(value)
            return values if dtype == "float64" else (dtype, values)
        if isinstance(value, (tuple, list)):
            return [self.seen(one) for one in cast("Sequence[Any]", value)]
        if isinstance(value, dict):
            return [[key, self.seen(one)] for key, one in cast("dict[Any, Any]", value).items()]
        return value if isinstance(value, (bool, float, str)) else type(value).__name__

    def standing(self, tensor: Any) -> tuple[Any, ...]:
        """Return how a tensor stands to those of the program: which it is, whose numbers it shares, its layout.

        How gradients are laid out, and views once something was changed in place, is an implementation's affair, and
        so is which gradients share their numbers, and with what replicas of a module do.
        """
        backend = self.backend
        where = self.where(tensor)
        itself = next((name for name, one in self.tensors.items() if one is tensor), None)
        beside = next((name for name, one in self.tensors.items() if self.where(one) == where), None)
        if self.replicated or (itself in self.shared and beside in self.shared):
            beside = itself
        return itself, beside, backend.requires_grad(tensor), backend.is_leaf(tensor), self._layout(tensor, beside)

    def where(self, tensor: Any) -> tuple[bool, int]:
        """Return where the numbers of a tensor are; one that has none shares nothing with others."""
        empty = 0 in self.backend.shape(tensor)
        return empty, id(tensor) if empty else self.backend.data_ptr(tensor)

    def _layout(self, tensor: Any, beside: str | None) -> list[int] | None:
        return None if self.changed or self.passes or beside in self.shared else self.strides(tensor)

    def close(self) -> None:
        """Leave what was entered, in the thread that entered it, and remove what would outlive the program."""
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
            made.clear()  # what hooks hold of the run would else be garbage in cycles, which takes time to find
        self.kept.clear()


def _not_now(_: Run, one: Instruction) -> None:
    raise UnknownNameError(one.op)


def _leave(context: AbstractContextManager[Any]) -> None:
    context.__exit__(None, None, None)


def kind_of(error: BaseException) -> str:
    """Return what is compared of an error: the program's own, a TypeError, or else any refusal.

    Of a refusal it is told who forbade it, and whether the backend says of itself that it is broken.
    """
    text = str(error)
    told = FORBIDDEN.search(text)
    if told:
        return f"refused: {told[0]}"
    if INTERNAL in text:
        return "internal"
    if isinstance(error, PlannedError):
        return "planned"
    if isinstance(error, TypeError):
        return "TypeError"
    refusals = (RuntimeError, ValueError, IndexError, AssertionError)
    return "refused" if isinstance(error, refusals) else type(error).__name__


def replay(program: Sequence[Instruction], backend: Any) -> list[Event]:
    """Return what a backend shows of a program."""
    events: list[Event] = []
    backend.reset()
    Run(backend, events.append).all(program)
    return events
