"""Operations that register hooks on tensors and nodes, and the actions: what the hooks of every kind do."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.operations import operation
from hooklaw.fuzz.replay.run import PlannedError, Replay, skip_if
from hooklaw.fuzz.replay.values import evenly, note_change

Action = tuple[Any, ...]
Hook = Callable[..., Any]
Register = Callable[[Hook], Any]
Shown = Callable[[Action], Action]
"""Returns what a hook logs of its arguments."""
UNSERIALIZABLE = "unserializable"
"""Marks a hook so that serializing its tensor does not warn."""
LOOSE = "loose"
"""Marks a node hook whose node is not kept alive; the hook is lost with the node."""


class Registration(NamedTuple):
    """A hook as it was registered."""

    name: str
    register: Register | None
    """Registers another hook in the same place; None unless the action does that, since it keeps the place alive."""
    shown: Shown


def put(  # noqa: PLR0913 - the rest has names
    run: Replay,
    name: str,
    action: Action,
    register: Register,
    *,
    shown: Shown = lambda arguments: arguments,
    more: Mapping[str, Callable[..., Any]] | None = None,
) -> None:
    """Register a hook under a name; it logs what is shown of its arguments, then acts; `more` has further actions."""
    word, *rest = action
    registration = Registration(name, register if word == "register" else None, shown)
    act = (more or {}).get(word) or ACTIONS[word]
    must_be_here = Capability.CALLER_THREAD in run.backend.capabilities

    def hook(*arguments: Any, **named: Any) -> Any:
        seen = (*shown(arguments), *(value for _, value in sorted(named.items())))
        run.log((name, *map(run.seen, seen), run.backend.is_grad_enabled()))
        if must_be_here and threading.get_ident() != run.ident:
            run.log((name, "in another thread"))
        return act(run, registration, arguments, *rest)

    run.handles[name] = register(hook)


def put_everywhere(run: Replay, name: str, action: Action, register: Register, **options: Any) -> None:
    """Register a hook for the whole process, which is removed when the program ends."""

    def add(hook: Hook) -> Any:
        handle = register(hook)
        run.everywhere.append(handle)
        return handle

    put(run, name, action, add, **options)


def node_of(run: Replay, name: str, *, keep: bool = True) -> Any:
    """Return the node of a tensor, kept until the end of the replay by default.

    Skipped are the nodes of in-place operations on views, and of views that were rebuilt after one: unspecified.
    """
    tensor = run.tensors[name]
    skip_if(run.changed and name in run.views)
    node = run.backend.accumulate_grad(tensor) if run.backend.is_leaf(tensor) else run.backend.grad_fn(tensor)
    skip_if(run.backend.node_name(node).endswith("CopySlices"))
    if keep:
        run.kept.append(node)
    return node


def _serialization(instruction: Instruction) -> tuple[Capability, ...]:
    return (Capability.SERIALIZATION,) if UNSERIALIZABLE in instruction.how else ()


@operation(needs=(Capability.TENSOR_HOOKS,), also_needs=_serialization, hooks="tensor")
def hook(run: Replay, instruction: Instruction) -> None:
    """Register a hook on a tensor."""
    tensor, backend = run.input(instruction), run.backend
    marked = backend.unserializable_hook if UNSERIALIZABLE in instruction.how else lambda function: function
    put(run, instruction.made[0], instruction.how[0], lambda hook: backend.register_hook(tensor, marked(hook)))


@operation(needs=(Capability.NODES, Capability.NODE_HOOKS), hooks="node")
def prehook(run: Replay, instruction: Instruction) -> None:
    """Register a pre-hook on the node of a tensor."""
    _on_node(run, instruction, run.backend.node_register_prehook)


@operation(needs=(Capability.NODES, Capability.NODE_HOOKS), hooks="node")
def posthook(run: Replay, instruction: Instruction) -> None:
    """Register a hook on the node of a tensor."""
    _on_node(run, instruction, run.backend.node_register_hook)


def keeps(instruction: Instruction) -> bool:
    """Whether a node hook keeps its node, as a hook must that registers another one there."""
    return LOOSE not in instruction.how or instruction.how[0][0] == "register"


def _on_node(run: Replay, instruction: Instruction, register: Callable[..., Any]) -> None:
    node = node_of(run, instruction.used[0], keep=keeps(instruction))
    put(run, instruction.made[0], instruction.how[0], lambda hook: register(node, hook))


@operation(needs=(Capability.POST_ACCUMULATE,), hooks="tensor")
def post_accumulate(run: Replay, instruction: Instruction) -> None:
    """Register a post-accumulate hook on a leaf, which logs the leaf's gradient."""
    tensor = run.input(instruction)

    def register(function: Hook) -> Any:
        def hook(leaf: Any) -> Any:
            grad = run.backend.grad_of(leaf)
            result = function(grad, leaf is tensor)
            return leaf if result is grad else result

        return run.backend.register_post_accumulate_grad_hook(tensor, hook)

    put(run, instruction.made[0], instruction.how[0], register)


@operation(needs=(Capability.MULTI_GRAD,), hooks="tensor")
def multi_grad(run: Replay, instruction: Instruction) -> None:
    """Register a hook on several tensors."""
    tensors = run.inputs(instruction)
    action, mode = instruction.how
    register = run.backend.register_multi_grad_hook
    put(run, instruction.made[0], action, lambda hook: register(tensors, hook, mode=mode))


@operation(needs=(Capability.RETAIN_GRAD,))
def retain_grad(run: Replay, instruction: Instruction) -> None:
    """Retain the gradient of a tensor."""
    run.backend.retain_grad(run.input(instruction))


@operation(safe=True, ends_forward=True)
def remove(run: Replay, instruction: Instruction) -> None:
    """Remove a hook."""
    run.handles[instruction.used[0]].remove()


def _nothing(_run: Replay, _at: Registration, _arguments: Action) -> None:
    return None


def scaled(value: Any, number: float) -> Any:
    """Return a tensor, or those in a tuple or a list, times a number."""
    if isinstance(value, tuple | list):
        return tuple(scaled(part, number) for part in value)  # type: ignore[misc]
    return value if value is None else value * number


def _raise(_run: Replay, _at: Registration, _arguments: Action) -> None:
    raise PlannedError


def _remove(run: Replay, at: Registration, _arguments: Action, name: str = "") -> None:
    """Remove another hook, or itself."""
    handle = run.handles.get(name or at.name)
    if handle is not None:
        handle.remove()


def _register(run: Replay, at: Registration, _arguments: Action) -> None:
    """Register another hook in the same place, once."""
    name = f"{at.name}+"
    if at.register and name not in run.handles:
        put(run, name, ("nothing",), at.register, shown=at.shown)


def _peek(run: Replay, at: Registration, _arguments: Action, name: str) -> None:
    """Log the gradient that a tensor has accumulated so far."""
    if name in run.tensors:
        run.log((at.name, f"{name}.grad", run.seen(run.grad_of(run.tensors[name]))))


def _reentrant(run: Replay, at: Registration, _arguments: Action) -> None:
    """Run a backward over a graph of its own, with a hook and a saved tensor."""
    backend = run.backend
    inner = backend.tensor([2.0], requires_grad=True, dtype="float64")
    backend.register_hook(inner, lambda grad: run.log((at.name, "inner", run.seen(grad))))
    with backend.enable_grad():
        backend.backward(backend.sum(inner * inner))


def _backward(run: Replay, at: Registration, _arguments: Action, name: str) -> None:
    """Run a backward over a part of the program's own graph, once."""
    again = f"{at.name}.backward"
    if again not in run.handles and name in run.tensors:
        run.handles[again] = None
        tensor = run.tensors[name]
        with run.backend.enable_grad():
            run.backend.backward(run.backend.sum(tensor), retain_graph=True)


def _drop(run: Replay, _at: Registration, _arguments: Action, name: str) -> None:
    """Set the gradient of a tensor to None."""
    if name in run.tensors:
        run.backend.set_grad(run.tensors[name], None)


def _step(run: Replay, at: Registration, _arguments: Action, name: str) -> None:
    """Run a step of an optimizer, and reset its gradients."""
    if name in run.optimizers:
        optimizer = run.optimizers[name]
        note_change(run)
        run.backend.step(optimizer)
        run.log((at.name, "step", run.seen(optimizer.param_groups[0]["params"])))
        run.backend.zero_grad(optimizer)


def _context(run: Replay, at: Registration, _arguments: Action) -> None:
    """Save a tensor in a context that the hook enters."""
    backend = run.backend
    inner = backend.tensor([2.0], requires_grad=True, dtype="float64")

    def pack(tensor: Any) -> Any:
        run.log((at.name, "pack", run.seen(tensor)))
        return tensor

    with backend.enable_grad(), backend.saved_tensors_hooks(pack, lambda packed: packed):
        backend.sin(inner)


def _keep(run: Replay, _at: Registration, arguments: Action, name: str) -> None:
    """Keep the gradient as a tensor of the program."""
    grad = arguments[0]
    grad = cast("Sequence[Any]", grad)[0] if isinstance(grad, tuple | list) else grad
    if grad is not None:
        run.tensors[name] = grad
        run.shared.add(name)


def _wrong(run: Replay, _at: Registration, arguments: Action, what: str = "type") -> Any:
    """Return what is not a gradient: a number, another dtype or shape; for a tuple one too many, or a bare one."""
    value = arguments[0]
    if isinstance(value, tuple | list):
        many = cast("Sequence[Any]", value)
        if what == "bare":
            return many[0] if many else 1.0
        return (*many, None) if what == "count" else tuple(_no_gradient(run, grad, what) for grad in many)
    return _no_gradient(run, value, what)


def _no_gradient(run: Replay, grad: Any, what: str) -> Any:
    if what not in ("dtype", "shape") or grad is None:
        return 1.0
    shape, dtype = run.backend.shape(grad), run.backend.dtype(grad)
    if what == "shape":
        return run.backend.tensor(evenly((), 1.0) if shape else [1.0], dtype=dtype)
    return run.backend.tensor(evenly(shape, 1.0), dtype="float32" if dtype == "float64" else "float64")


ACTIONS: dict[str, Callable[..., Any]] = {
    "nothing": _nothing,
    "scale": lambda _, __, arguments, number: scaled(arguments[0], number),
    "nan": lambda _, __, arguments: scaled(arguments[0], float("nan")),
    "raise": _raise,
    "remove": _remove,
    "register": _register,
    "peek": _peek,
    "reentrant": _reentrant,
    "backward": _backward,
    "drop": _drop,
    "step": _step,
    "context": _context,
    "keep": _keep,
    "same": lambda _, __, arguments: arguments[0],
    "wrong": _wrong,
}
"""What a hook may do, by the first word of its action; `scale`, `nan` and `same` return their first argument."""
NEEDED_BY_ACTIONS = {
    "reentrant": (Capability.TENSOR_HOOKS,),
    "context": (Capability.SAVED_TENSOR_HOOKS, Capability.SIN_COS),
}
"""Capabilities that actions need."""
