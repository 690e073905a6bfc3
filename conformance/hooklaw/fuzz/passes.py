"""Instructions that run backward, and that enter and leave contexts."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from hooklaw.fuzz.hooks import node_of
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay import PlannedError, Run, UnknownNameError, operation
from hooklaw.fuzz.values import filled


def _seed(run: Run, root: Any, number: float | None) -> Any:
    """Return a gradient for the root: the same number everywhere, or none at all."""
    if number is None:
        return None
    ones = filled("", run.backend.shape(root))
    return run.backend.tensor(_all(ones, number), dtype=run.backend.dtype(root))


def _all(values: Any, number: float) -> Any:
    return [_all(one, number) for one in values] if isinstance(values, list) else number


@contextmanager
def _passing(run: Run) -> Generator[None]:
    run.passes += 1
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
    number, retain, create = one.how
    limited = {"inputs": inputs} if inputs else {}
    try:
        seed = _seed(run, root, number)
        with _passing(run):
            run.backend.backward(root, seed, retain_graph=retain, create_graph=create, **limited)
    finally:
        run.look()


@operation
def grad(run: Run, one: Instruction) -> None:
    """Make tensors of the gradients with respect to the named inputs."""
    root, *inputs = [run.tensors[name] for name in one.used]
    number, retain, create = one.how
    seed = _seed(run, root, number)
    with _passing(run):
        grads = run.backend.grad(root, inputs, seed, retain_graph=retain, create_graph=create, allow_unused=True)
    run.log((*one.made, *(run.seen(value) for value in grads)))
    run.shared.update(one.made)
    run.tensors.update({name: value for name, value in zip(one.made, grads, strict=True) if value is not None})


def _pair(run: Run, name: str, kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return hooks that note what they are given, by the name of their context."""
    packer, unpacker = PACKERS[kind]

    def pack(tensor: Any) -> Any:
        run.log((f"{name}.pack", run.seen(tensor), *run.standing(tensor), run.backend.is_grad_enabled()))
        return packer(run.backend, tensor)

    def unpack(packed: Any) -> Any:
        tensor = unpacker(run.backend, packed)
        run.log((f"{name}.unpack", run.seen(tensor), run.backend.is_grad_enabled()))
        return tensor

    return pack, unpack


def _raise(_backend: Any, _value: Any) -> Any:
    raise PlannedError


def _itself(_backend: Any, value: Any) -> Any:
    return value


def _boxed(backend: Any, tensor: Any) -> Any:
    return [backend.tolist(tensor), backend.dtype(tensor)]


PACKERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "itself": (_itself, _itself),
    "detach": (lambda backend, tensor: backend.detach(tensor), _itself),
    "clone": (lambda backend, tensor: backend.clone(tensor), _itself),
    "boxed": (_boxed, lambda backend, packed: backend.tensor(packed[0], dtype=packed[1])),
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
    """Enter a context with saved-tensor hooks."""
    _enter(run, run.backend.saved_tensors_hooks(*_pair(run, one.made[0], one.how[0])))


@operation
def no_grad(run: Run, _: Instruction) -> None:
    """Stop recording."""
    _enter(run, run.backend.no_grad())


@operation
def enable_grad(run: Run, _: Instruction) -> None:
    """Record again."""
    _enter(run, run.backend.enable_grad())


@operation
def disable_saved_hooks(run: Run, _: Instruction) -> None:
    """Forbid saved-tensor hooks."""
    _enter(run, run.backend.disable_saved_tensors_hooks("forbidden"))


@operation
def save_on_cpu(run: Run, _: Instruction) -> None:
    """Keep saved tensors on the CPU."""
    _enter(run, run.backend.save_on_cpu())


@operation
def leave(run: Run, one: Instruction) -> None:
    """Leave the innermost context of this thread."""
    stack = run.stacks.get(run.thread)
    if not stack:
        raise UnknownNameError(one.op)
    stack.pop().__exit__(None, None, None)


@operation
def saved_pair(run: Run, one: Instruction) -> None:
    """Give the first saved tensor of the Node that made a tensor a pair of hooks of its own."""
    name = one.used[0]
    if name not in run.savers:
        raise UnknownNameError(name)
    raw = run.backend.raw_saved_tensors(node_of(run, name))
    run.backend.saved_tensor_register_hooks(raw[0], *_pair(run, one.made[0], one.how[0]))


@operation
def read_saved(run: Run, one: Instruction) -> None:
    """Read what the Node that made a tensor has saved."""
    name = one.used[0]
    if name not in run.savers:
        raise UnknownNameError(name)
    saved = run.backend.saved_tensors(node_of(run, name))
    run.log((f"{name}.saved", run.seen(saved), *[run.standing(kept) for kept in saved]))
