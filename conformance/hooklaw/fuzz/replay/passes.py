"""Instructions that run backward, and that enter and leave contexts."""

import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import node_of
from hooklaw.fuzz.replay.run import PlannedError, Run, UnknownNameError, operation
from hooklaw.fuzz.replay.values import evenly

BOXED = frozenset({"boxed", "requiring"})
"""Pairs that pack into a box."""
SINGLE = "single"
"""In the place of a number: one element, whatever the shape of the root."""
FAILING, PINNED = "failing", "pinned"
"""How a context is left by an exception, and where save_on_cpu keeps tensors."""
UNSAID, REFUSED, MATERIALIZED = "unsaid", "refused", "materialized"
"""What autograd.grad is told of unused inputs."""


def _seed(run: Run, root: Any, number: Any) -> Any:
    """Return a gradient for the root: the same number everywhere, or none at all, or one of the wrong shape."""
    if number is None:
        return None
    if number == SINGLE:
        return run.backend.tensor(1, dtype=run.backend.dtype(root))
    dtype = run.backend.dtype(root)
    number = int(number) if dtype.startswith("int") else number
    return run.backend.tensor(evenly(run.backend.shape(root), number), dtype=dtype)


@contextmanager
def _passing(run: Run, *, creates: bool) -> Generator[None]:
    run.passes += 1
    run.created |= creates
    try:
        yield
    finally:
        run.passes -= 1


@operation
def backward(run: Run, one: Instruction) -> None:
    """Run backward from a tensor, limited to inputs if some are named; then look at all gradients."""
    root, *inputs = [run.tensors[name] for name in one.used]
    if inputs and run.changed:
        raise UnknownNameError(one.used[1])  # which of an in-place operation's Nodes are executed is not said
    number, _, create = one.how
    limited = {"inputs": inputs} if inputs else {}
    try:
        seed = _seed(run, root, number)
        with _passing(run, creates=create):
            run.backend.backward(root, seed, **_of_graphs(one), **limited)
    finally:
        run.look()


def _of_graphs(one: Instruction) -> dict[str, bool]:
    """Return what a pass is told of graphs; where the program says nothing of retaining, nothing."""
    _, retain, create = one.how[:3]
    return {"create_graph": create} if retain is None else {"create_graph": create, "retain_graph": retain}


def of_unused(words: Sequence[str]) -> dict[str, bool]:
    """Return what autograd.grad is told of unused inputs: that they are allowed, if the program says nothing of it."""
    allowed: dict[str, bool] = {} if UNSAID in words else {"allow_unused": REFUSED not in words}
    return allowed | ({"materialize_grads": True} if MATERIALIZED in words else {})


@operation
def grad(run: Run, one: Instruction) -> None:
    """Make tensors of the gradients with respect to the named inputs."""
    root = run.tensors[one.used[0]]
    inputs = [run.edges[name] if name in run.edges else run.tensors[name] for name in one.used[1:]]
    number, _, create, *words = one.how
    seed = _seed(run, root, number)
    with _passing(run, creates=create):
        grads = run.backend.grad(root, inputs, seed, **_of_graphs(one), **of_unused(words))
    run.log((*one.made, *(run.seen(value) for value in grads)))
    run.shared.update(one.made)
    run.tensors.update({name: value for name, value in zip(one.made, grads, strict=True) if value is not None})


def pair_of(run: Run, name: str, kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return hooks that note what they are given, by the name of their context."""
    packer, unpacker = PACKERS[kind]

    def pack(tensor: Any) -> Any:
        run.log((f"{name}.pack", run.seen(tensor), *run.standing(tensor), run.backend.is_grad_enabled()))
        packed = packer(run.backend, tensor)
        if isinstance(packed, Box):
            run.boxes.append(weakref.ref(packed))
        return packed

    def unpack(packed: Any, *more: Any) -> Any:
        if more:
            run.log((f"{name}.unpack", "is given more than what was packed"))
        tensor = unpacker(run.backend, packed)
        run.log((f"{name}.unpack", run.seen(tensor), run.backend.is_grad_enabled()))
        if kind == "requiring" and run.backend.requires_grad(tensor):
            run.backend.register_hook(tensor, lambda grad: run.log((f"{name}.leaf", run.seen(grad))))
        return tensor

    return pack, unpack


def _raise(_backend: Any, _value: Any) -> Any:
    raise PlannedError


def _itself(_backend: Any, value: Any) -> Any:
    return value


def _listed(backend: Any, tensor: Any) -> list[Any]:
    packed = [backend.tolist(tensor), backend.dtype(tensor)]
    packed.append(id(packed))
    return packed


def _unlisted(backend: Any, packed: Any) -> Any:
    values, dtype, itself = packed
    _must_be_it(itself, packed)
    return backend.tensor(values, dtype=dtype)


def _must_be_it(itself: int, packed: Any) -> None:
    if itself != id(packed):
        raise LookupError("this is another object than was packed")


class Box:
    """What a tensor may be packed into: its values, in a box that knows which one it is, and that may be watched."""

    def __init__(self, backend: Any, tensor: Any) -> None:
        self._backend, self._values, self._dtype = backend, backend.tolist(tensor), backend.dtype(tensor)
        self._itself = id(self)

    def unpack(self, *, requires_grad: bool = False) -> Any:
        """Return a tensor of the values, a leaf that requires grad if it can; LookupError where the box is a copy."""
        _must_be_it(self._itself, self)
        requires_grad &= self._dtype.startswith("float")
        return self._backend.tensor(self._values, dtype=self._dtype, requires_grad=requires_grad)


PACKERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "itself": (_itself, _itself),
    "detach": (lambda backend, tensor: backend.detach(tensor), _itself),
    "clone": (lambda backend, tensor: backend.clone(tensor), _itself),
    "listed": (_listed, _unlisted),
    "boxed": (Box, lambda _, packed: packed.unpack()),
    "requiring": (Box, lambda _, packed: packed.unpack(requires_grad=True)),
    "growing": (lambda backend, tensor: backend.clone(tensor), lambda backend, packed: backend.mul_(packed, 2)),
    "doubled": (lambda backend, tensor: backend.detach(tensor), lambda _, packed: packed * 2),
    "pack-raises": (_raise, _itself),
    "unpack-raises": (lambda backend, tensor: backend.detach(tensor), _raise),
    "wrong": (_itself, lambda _backend, _packed: 1.0),
    "changes": (lambda backend, tensor: backend.mul_(tensor, 2), _itself),
}
"""Pairs of saved-tensor hooks."""


def _enter(run: Run, context: AbstractContextManager[Any]) -> None:
    context.__enter__()
    run.stacks.setdefault(run.thread, []).append(context)


@operation
def saved_hooks(run: Run, one: Instruction) -> None:
    """Enter a context with saved-tensor hooks, unless replicas may save anything in it."""
    if run.replicated:
        raise UnknownNameError(one.op)
    _enter(run, run.backend.saved_tensors_hooks(*pair_of(run, one.made[0], one.how[0])))


@operation
def no_grad(run: Run, _: Instruction) -> None:
    """Stop recording."""
    _enter(run, run.backend.no_grad())


@operation
def enable_grad(run: Run, _: Instruction) -> None:
    """Record again."""
    _enter(run, run.backend.enable_grad())


@operation
def inference_mode(run: Run, one: Instruction) -> None:
    """Enter inference mode; where saved tensors may be changed in place torch can make no tensor in it."""
    if run.mutable:
        raise UnknownNameError(one.op)
    _enter(run, run.backend.inference_mode())
    run.inferring.setdefault(one.thread, len(run.stacks[one.thread]))


@operation
def detect_anomaly(run: Run, one: Instruction) -> None:
    """Look for gradients that are no numbers: in all threads, so that two must not enter and leave it by turns."""
    if one.thread:
        raise UnknownNameError(one.op)
    _enter(run, run.backend.detect_anomaly())


@operation
def mode(run: Run, _: Instruction) -> None:
    """Note whether operations are recorded."""
    run.log(("mode", run.backend.is_grad_enabled()))


@operation
def disable_saved_hooks(run: Run, one: Instruction) -> None:
    """Forbid saved-tensor hooks, in words that tell who did."""
    _enter(run, run.backend.disable_saved_tensors_hooks(forbidden(one)))


def forbidden(one: Instruction) -> str:
    """Return the message with which an instruction forbids saved-tensor hooks."""
    return f"forbidden by {one.made[0] if one.made else 'nobody'}"


@operation
def save_on_cpu(run: Run, one: Instruction) -> None:
    """Keep saved tensors on the CPU, in pinned memory if the program says so."""
    _enter(run, run.backend.save_on_cpu(pin_memory=PINNED in one.how))


@operation
def allow_mutation(run: Run, one: Instruction) -> None:
    """Let saved tensors be changed in place, in no thread that is in inference mode."""
    if run.inferring:
        raise UnknownNameError(one.op)
    run.mutable = True
    _enter(run, run.backend.allow_mutation_on_saved_tensors())


@operation
def leave(run: Run, one: Instruction) -> None:
    """Leave the innermost context of this thread, as an exception does if the program says so."""
    stack = run.stacks.get(run.thread)
    if not stack:
        raise UnknownNameError(one.op)
    if run.inferring.get(run.thread) == len(stack):
        del run.inferring[run.thread]
    error = PlannedError() if FAILING in one.how else None
    stack.pop().__exit__(error and type(error), error, None)


@operation
def saved_pair(run: Run, one: Instruction) -> None:
    """Give the first saved tensor of the Node that made a tensor a pair of hooks of its own."""
    name = one.used[0]
    if name not in run.savers:
        raise UnknownNameError(name)
    raw = run.backend.raw_saved_tensors(node_of(run, name))
    run.backend.saved_tensor_register_hooks(raw[0], *pair_of(run, one.made[0], one.how[0]))


@operation
def read_saved(run: Run, one: Instruction) -> None:
    """Read what the Node that made a tensor has saved."""
    name = one.used[0]
    if name not in run.savers:
        raise UnknownNameError(name)
    saved = run.backend.saved_tensors(node_of(run, name))
    run.log((f"{name}.saved", run.seen(saved), *[run.standing(kept) for kept in saved]))
