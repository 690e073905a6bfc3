"""Operations that run backward, and that enter and leave contexts."""

import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import node_of
from hooklaw.fuzz.replay.operations import operation
from hooklaw.fuzz.replay.run import PlannedError, Replay, skip_if
from hooklaw.fuzz.replay.values import evenly

BOXED = frozenset({"boxed", "requiring"})
"""Pairs that pack into a box."""
SINGLE = "single"
"""Stands for a gradient of one element, whatever the shape of the root."""
FAILING, PINNED = "failing", "pinned"
"""How a context is left by an exception, and where save_on_cpu keeps tensors."""
UNSAID, REFUSED, MATERIALIZED = "unsaid", "refused", "materialized"
"""What autograd.grad is given for unused inputs: nothing, allow_unused=False, materialize_grads=True."""


def _seed(run: Replay, root: Any, number: Any) -> Any:
    """Return a gradient for the root: a number everywhere, None, or one element of perhaps the wrong shape."""
    if number is None:
        return None
    if number == SINGLE:
        return run.backend.tensor(1, dtype=run.backend.dtype(root))
    dtype = run.backend.dtype(root)
    number = int(number) if dtype.startswith("int") else number
    return run.backend.tensor(evenly(run.backend.shape(root), number), dtype=dtype)


@contextmanager
def _passing(run: Replay, *, creates: bool) -> Generator[None]:
    run.passes += 1
    run.created |= creates
    try:
        yield
    finally:
        run.passes -= 1


def _of_pass(instruction: Instruction) -> Generator[Capability]:
    _, retain, create = instruction.how[:3]
    if MATERIALIZED in instruction.how:
        yield Capability.MATERIALIZE_GRADS
    if retain:
        yield Capability.RETAIN_GRAPH
    if create:
        yield Capability.CREATE_GRAPH if instruction.op == "grad" else Capability.BACKWARD_CREATE_GRAPH
    if instruction.op == "backward" and len(instruction.used) > 1:
        yield Capability.BACKWARD_INPUTS


@operation(also_needs=_of_pass, frees=True, ends_forward=True)
def backward(run: Replay, instruction: Instruction) -> None:
    """Run backward from a tensor, limited to inputs if the program names some; then look at all gradients."""
    root, *inputs = run.inputs(instruction)
    skip_if(inputs and run.changed)  # which nodes of an in-place operation then run is unspecified
    number, _, create = instruction.how
    limited = {"inputs": inputs} if inputs else {}
    try:
        seed = _seed(run, root, number)
        with _passing(run, creates=create):
            run.backend.backward(root, seed, **_graph_options(instruction), **limited)
    finally:
        run.look()


def _graph_options(instruction: Instruction) -> dict[str, bool]:
    """Return what a pass is given about graphs; retain_graph only where the program gives it."""
    _, retain, create = instruction.how[:3]
    return {"create_graph": create} if retain is None else {"create_graph": create, "retain_graph": retain}


def of_unused(words: Sequence[str]) -> dict[str, bool]:
    """Return what autograd.grad is given for unused inputs: allow_unused=True by default."""
    allowed: dict[str, bool] = {} if UNSAID in words else {"allow_unused": REFUSED not in words}
    return allowed | ({"materialize_grads": True} if MATERIALIZED in words else {})


@operation(
    needs=(Capability.AUTOGRAD_GRAD,), also_needs=_of_pass, frees=True, simplifies_to="backward", ends_forward=True
)
def grad(run: Replay, instruction: Instruction) -> None:
    """Make tensors of the gradients with respect to the named inputs."""
    root, made = run.input(instruction), instruction.made
    inputs = [run.edges[name] if name in run.edges else run.tensors[name] for name in instruction.used[1:]]
    number, _, create, *words = instruction.how
    seed = _seed(run, root, number)
    with _passing(run, creates=create):
        grads = run.backend.grad(root, inputs, seed, **_graph_options(instruction), **of_unused(words))
    run.log((*made, *map(run.seen, grads)))
    run.shared.update(made)
    run.tensors.update({name: value for name, value in zip(made, grads, strict=True) if value is not None})


def pair_of(run: Replay, name: str, kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a pair of saved-tensor hooks that log what they are given, by the name of their context."""
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
    _must_be_itself(itself, packed)
    return backend.tensor(values, dtype=dtype)


def _must_be_itself(itself: int, packed: Any) -> None:
    if itself != id(packed):
        raise LookupError("this is not the object that was packed")


class Box:
    """An object that a tensor may be packed into: it has the values, is weakly referable, and detects copies."""

    def __init__(self, backend: Any, tensor: Any) -> None:
        self._backend, self._values, self._dtype = backend, backend.tolist(tensor), backend.dtype(tensor)
        self._itself = id(self)

    def unpack(self, *, requires_grad: bool = False) -> Any:
        """Return a tensor of the values, which requires grad if it can; LookupError where the box is a copy."""
        _must_be_itself(self._itself, self)
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
"""Pairs of saved-tensor hooks, by name."""


def _enter(run: Replay, context: AbstractContextManager[Any]) -> None:
    context.__enter__()
    run.stacks.setdefault(run.thread, []).append(context)


@operation(needs=(Capability.SAVED_TENSOR_HOOKS,), enters=True)
def saved_hooks(run: Replay, instruction: Instruction) -> None:
    """Enter a context with saved-tensor hooks; skipped after replicas, whose saving is unspecified."""
    skip_if(run.replicated)
    _enter(run, run.backend.saved_tensors_hooks(*pair_of(run, instruction.made[0], instruction.how[0])))


@operation(enters=True, safe=True)
def no_grad(run: Replay, _: Instruction) -> None:
    """Stop recording."""
    _enter(run, run.backend.no_grad())


@operation(enters=True, safe=True)
def enable_grad(run: Replay, _: Instruction) -> None:
    """Record again."""
    _enter(run, run.backend.enable_grad())


@operation(needs=(Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS), enters=True, safe=True, ends_forward=True)
def inference_mode(run: Replay, instruction: Instruction) -> None:
    """Enter inference mode; skipped where saved tensors may be changed, since torch can make no tensor in it then."""
    skip_if(run.mutable)
    _enter(run, run.backend.inference_mode())
    run.inferring.setdefault(instruction.thread, len(run.stacks[instruction.thread]))


@operation(needs=(Capability.ANOMALY,), enters=True, safe=True, ends_forward=True)
def detect_anomaly(run: Replay, instruction: Instruction) -> None:
    """Detect NaN gradients; it holds for all threads, so only the main thread enters and leaves it."""
    skip_if(instruction.thread)
    _enter(run, run.backend.detect_anomaly())


@operation(in_inference=True, safe=True, ends_forward=True)
def mode(run: Replay, _: Instruction) -> None:
    """Log whether operations are recorded."""
    run.log(("mode", run.backend.is_grad_enabled()))


@operation(needs=(Capability.DISABLE_SAVED_TENSOR_HOOKS,), enters=True, refuses=True)
def disable_saved_hooks(run: Replay, instruction: Instruction) -> None:
    """Forbid saved-tensor hooks, with a message that names the instruction."""
    _enter(run, run.backend.disable_saved_tensors_hooks(forbidden(instruction)))


def forbidden(instruction: Instruction) -> str:
    """Return the message with which an instruction forbids saved-tensor hooks."""
    return f"forbidden by {instruction.made[0] if instruction.made else 'nobody'}"


@operation(needs=(Capability.SAVE_ON_CPU,), enters=True)
def save_on_cpu(run: Replay, instruction: Instruction) -> None:
    """Keep saved tensors on the CPU, in pinned memory where the program says so."""
    _enter(run, run.backend.save_on_cpu(pin_memory=PINNED in instruction.how))


@operation(needs=(Capability.ALLOW_MUTATION,), enters=True, refuses=True, ends_forward=True)
def allow_mutation(run: Replay, _: Instruction) -> None:
    """Allow in-place changes of saved tensors, while no thread is in inference mode."""
    skip_if(run.inferring)
    run.mutable = True
    _enter(run, run.backend.allow_mutation_on_saved_tensors())


@operation(in_inference=True, safe=True, ends_forward=True)
def leave(run: Replay, instruction: Instruction) -> None:
    """Leave the innermost context of this thread, by an exception where the program says so."""
    stack = run.stacks.get(run.thread, [])
    skip_if(not stack)
    if run.inferring.get(run.thread) == len(stack):
        del run.inferring[run.thread]
    error = PlannedError() if FAILING in instruction.how else None
    stack.pop().__exit__(error and type(error), error, None)


def _saving_node(run: Replay, instruction: Instruction) -> Any:
    """Return the node that made a tensor, if it has saved tensors."""
    name = instruction.used[0]
    skip_if(name not in run.savers)
    return node_of(run, name)


@operation(needs=(Capability.NODES, Capability.SAVED_TENSOR_REGISTER), ends_forward=True)
def saved_pair(run: Replay, instruction: Instruction) -> None:
    """Register a pair of hooks on the first saved tensor of the node that made a tensor."""
    first, *_ = run.backend.raw_saved_tensors(_saving_node(run, instruction))
    run.backend.saved_tensor_register_hooks(first, *pair_of(run, instruction.made[0], instruction.how[0]))


@operation(needs=(Capability.NODES, Capability.SAVED_TENSOR_ACCESS), ends_forward=True)
def read_saved(run: Replay, instruction: Instruction) -> None:
    """Read what the node that made a tensor has saved."""
    saved = run.backend.saved_tensors(_saving_node(run, instruction))
    run.log((f"{instruction.used[0]}.saved", run.seen(saved), *map(run.standing, saved)))
