"""Instructions that register hooks of every kind, and what their hooks do."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import PlannedError, Run, UnknownNameError, operation
from hooklaw.fuzz.replay.values import evenly

Action = tuple[Any, ...]
UNSERIALIZABLE = "unserializable"
"""Marks a hook so that serializing its tensor does not warn."""
LOOSE = "loose"
"""Of a hook on a Node: that the program does not keep the Node, with which the hook goes."""


class Place(NamedTuple):
    """A hook's name, how to register one more there, if it does that: it keeps the place alive; and what it notes."""

    name: str
    register: Callable[[Callable[..., Any]], Any] | None
    shown: Callable[[Action], Action]


class Hooks:
    """The hooks of one run, each a function that notes what it sees and then acts."""

    def __init__(self, run: Run, more: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.run = run
        self._actions = {**ACTIONS, **(more or {})}
        self._must_be_here = Capability.CALLER_THREAD in run.backend.capabilities

    def put(
        self,
        name: str,
        action: Action,
        register: Callable[[Callable[..., Any]], Any],
        shown: Callable[[Action], Action] = lambda arguments: arguments,
    ) -> Any:
        """Register a hook that acts, under its name, and notes what is shown of its arguments."""
        place = Place(name, register if action[0] == "register" else None, shown)

        def hook(*arguments: Any, **named: Any) -> Any:
            seen = [self.run.seen(one) for one in _what_is_seen(shown(arguments), named)]
            self.run.log((name, *seen, self.run.backend.is_grad_enabled()))
            if self._must_be_here and threading.get_ident() != self.run.ident:
                self.run.log((name, "in another thread"))
            return self._actions[action[0]](self.run, place, arguments, *action[1:])

        handle = self.run.handles[name] = register(hook)
        return handle


def _what_is_seen(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    return (*arguments, *(value for _, value in sorted(named.items())))


def put(run: Run, one: Instruction, register: Callable[[Callable[..., Any]], Any]) -> None:
    """Register the hook of an instruction."""
    Hooks(run).put(one.made[0], one.how[0], register)


def node_of(run: Run, name: str, *, keep: bool = True) -> Any:
    """Return the Node of a tensor, kept until the end of the run unless told otherwise.

    Those of in-place operations on views, and of views made anew after one, are an implementation's affair: unknown.
    """
    tensor = run.tensors[name]
    if run.changed and name in run.views:
        raise UnknownNameError(name)
    node = run.backend.accumulate_grad(tensor) if run.backend.is_leaf(tensor) else run.backend.grad_fn(tensor)
    if run.backend.node_name(node).endswith("CopySlices"):
        raise UnknownNameError(name)
    if keep:
        run.kept.append(node)
    return node


@operation
def hook(run: Run, one: Instruction) -> None:
    """Put a hook on a tensor."""
    tensor, backend = run.tensors[one.used[0]], run.backend
    marked = backend.unserializable_hook if UNSERIALIZABLE in one.how else lambda function: function
    put(run, one, lambda function: backend.register_hook(tensor, marked(function)))


@operation
def prehook(run: Run, one: Instruction) -> None:
    """Put a hook before the Node of a tensor."""
    _on_node(run, one, run.backend.node_register_prehook)


@operation
def posthook(run: Run, one: Instruction) -> None:
    """Put a hook after the Node of a tensor."""
    _on_node(run, one, run.backend.node_register_hook)


def keeps(one: Instruction) -> bool:
    """Tell whether an instruction that puts a hook on a Node keeps the Node, as a hook does that puts another there."""
    return LOOSE not in one.how or one.how[0][0] == "register"


def _on_node(run: Run, one: Instruction, register: Callable[..., Any]) -> None:
    node = node_of(run, one.used[0], keep=keeps(one))
    put(run, one, lambda function: register(node, function))


@operation
def post_accumulate(run: Run, one: Instruction) -> None:
    """Put a post-accumulate hook on a leaf, which notes the leaf's gradient."""
    tensor = run.tensors[one.used[0]]

    def register(function: Callable[..., Any]) -> Any:
        def hook(leaf: Any) -> Any:
            grad = run.backend.grad_of(leaf)
            result = function(grad, leaf is tensor)
            return leaf if result is grad else result

        return run.backend.register_post_accumulate_grad_hook(tensor, hook)

    put(run, one, register)


@operation
def multi_grad(run: Run, one: Instruction) -> None:
    """Put a hook on several tensors."""
    tensors = [run.tensors[name] for name in one.used]
    action, mode = one.how
    Hooks(run).put(
        one.made[0], action, lambda function: run.backend.register_multi_grad_hook(tensors, function, mode=mode)
    )


@operation
def retain_grad(run: Run, one: Instruction) -> None:
    """Keep the gradient of a tensor."""
    run.backend.retain_grad(run.tensors[one.used[0]])


@operation
def remove(run: Run, one: Instruction) -> None:
    """Remove a hook."""
    run.handles[one.used[0]].remove()


def _nothing(_run: Run, _place: Place, _arguments: tuple[Any, ...]) -> None:
    return None


def _scale(_run: Run, _place: Place, arguments: tuple[Any, ...], number: float) -> Any:
    """Return what is replaced, times a number: a tuple where a tuple was given."""
    return scaled(_replaced_by(arguments), number)


def _nan(_run: Run, _place: Place, arguments: tuple[Any, ...]) -> Any:
    """Return what is no number."""
    return scaled(_replaced_by(arguments), float("nan"))


def scaled(value: Any, number: float) -> Any:
    """Multiply a tensor, or all that are in a tuple or a list."""
    if isinstance(value, tuple | list):
        return tuple(scaled(one, number) for one in value)  # type: ignore[misc]
    return value if value is None else value * number


def _raise(_run: Run, _place: Place, _arguments: tuple[Any, ...]) -> None:
    raise PlannedError


def _remove(run: Run, place: Place, _arguments: tuple[Any, ...], name: str = "") -> None:
    """Remove another hook, or itself."""
    handle = run.handles.get(name or place.name)
    if handle is not None:
        handle.remove()


def _register(run: Run, place: Place, _arguments: tuple[Any, ...]) -> None:
    """Register one more hook where this one is, once."""
    name = f"{place.name}+"
    if place.register and name not in run.handles:
        Hooks(run).put(name, ("nothing",), place.register, place.shown)


def _peek(run: Run, place: Place, _arguments: tuple[Any, ...], name: str) -> None:
    """Look at the gradient that a tensor has accumulated so far."""
    if name in run.tensors:
        run.log((place.name, f"{name}.grad", run.seen(run.grad_of(run.tensors[name]))))


def _reentrant(run: Run, place: Place, _arguments: tuple[Any, ...]) -> None:
    """Run a backward of its own, with a hook and something saved."""
    backend = run.backend
    inner = backend.tensor([2.0], requires_grad=True, dtype="float64")
    backend.register_hook(inner, lambda grad: run.log((place.name, "inner", run.seen(grad))))
    with backend.enable_grad():
        backend.backward(backend.sum(inner * inner))


def _backward(run: Run, place: Place, _arguments: tuple[Any, ...], name: str) -> None:
    """Run a backward over a part of the program's own graph, once."""
    again = f"{place.name}.backward"
    if again not in run.handles and name in run.tensors:
        run.handles[again] = None
        tensor = run.tensors[name]
        with run.backend.enable_grad():
            run.backend.backward(run.backend.sum(tensor), retain_graph=True)


def _drop(run: Run, _place: Place, _arguments: tuple[Any, ...], name: str) -> None:
    """Set the gradient of a tensor to None."""
    if name in run.tensors:
        run.backend.set_grad(run.tensors[name], None)


def _step(run: Run, place: Place, _arguments: tuple[Any, ...], name: str) -> None:
    """Make a step of an optimizer, and reset its gradients."""
    if name in run.optimizers:
        optimizer = run.optimizers[name]
        run.savers.clear()
        run.changed = True
        run.backend.step(optimizer)
        run.log((place.name, "step", run.seen(optimizer.param_groups[0]["params"])))
        run.backend.zero_grad(optimizer)


def _context(run: Run, place: Place, _arguments: tuple[Any, ...]) -> None:
    """Save something in a context entered by the hook."""
    backend = run.backend
    inner = backend.tensor([2.0], requires_grad=True, dtype="float64")

    def pack(tensor: Any) -> Any:
        run.log((place.name, "pack", run.seen(tensor)))
        return tensor

    with backend.enable_grad(), backend.saved_tensors_hooks(pack, lambda packed: packed):
        backend.sin(inner)


def _keep(run: Run, _place: Place, arguments: tuple[Any, ...], name: str) -> None:
    """Keep the gradient as a tensor of the program."""
    grad = _replaced_by(arguments)
    grad = cast("Sequence[Any]", grad)[0] if isinstance(grad, tuple | list) else grad
    if grad is not None:
        run.tensors[name] = grad
        run.shared.add(name)


def _same(_run: Run, _place: Place, arguments: tuple[Any, ...]) -> Any:
    """Return what was given, as it is; a post-accumulate hook its leaf."""
    return _replaced_by(arguments)


def _wrong(run: Run, _place: Place, arguments: tuple[Any, ...], what: str = "type") -> Any:
    """Return what is no gradient: a number, a gradient of another dtype or shape; of a tuple one too many, or none."""
    value = _replaced_by(arguments)
    if isinstance(value, tuple | list):
        many = cast("Sequence[Any]", value)
        if what == "bare":
            return many[0] if many else 1.0
        return (*many, None) if what == "count" else tuple(_no_gradient(run, one, what) for one in many)
    return _no_gradient(run, value, what)


def _no_gradient(run: Run, grad: Any, what: str) -> Any:
    if what not in ("dtype", "shape") or grad is None:
        return 1.0
    shape, dtype = run.backend.shape(grad), run.backend.dtype(grad)
    if what == "shape":
        return run.backend.tensor(evenly((), 1.0) if shape else [1.0], dtype=dtype)
    return run.backend.tensor(evenly(shape, 1.0), dtype="float32" if dtype == "float64" else "float64")


def _replaced_by(arguments: tuple[Any, ...]) -> Any:
    return arguments[0]


ACTIONS: dict[str, Callable[..., Any]] = {
    "nothing": _nothing,
    "scale": _scale,
    "nan": _nan,
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
    "same": _same,
    "wrong": _wrong,
}
"""What a hook may do, by the first word of its action."""
