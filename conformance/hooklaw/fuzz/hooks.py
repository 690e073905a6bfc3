"""Instructions that register hooks of every kind, and what their hooks do."""

from collections.abc import Callable
from typing import Any, NamedTuple

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay import PlannedError, Run, UnknownNameError, operation

Action = tuple[Any, ...]


class Place(NamedTuple):
    """A hook's name, and how to register one more where it is."""

    name: str
    register: Callable[[Callable[..., Any]], Any]


class Hooks:
    """The hooks of one run, each a function that notes what it sees and then acts."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def put(self, name: str, action: Action, register: Callable[[Callable[..., Any]], Any]) -> Any:
        """Register a hook that acts, under its name."""
        place = Place(name, register)

        def hook(*arguments: Any, **named: Any) -> Any:
            seen = [self.run.seen(one) for one in _what_is_seen(arguments, named)]
            self.run.log((name, *seen, self.run.backend.is_grad_enabled()))
            return ACTIONS[action[0]](self.run, place, arguments, *action[1:])

        handle = self.run.handles[name] = register(hook)
        return handle


def _what_is_seen(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    return (*arguments, *(value for _, value in sorted(named.items())))


def put(run: Run, one: Instruction, register: Callable[[Callable[..., Any]], Any]) -> None:
    """Register the hook of an instruction."""
    Hooks(run).put(one.made[0], one.how[0], register)


def node_of(run: Run, name: str) -> Any:
    """Return the Node of a tensor, kept until the end of the run.

    Those of in-place operations on views, and of views made anew after one, are an implementation's affair: unknown.
    """
    tensor = run.tensors[name]
    if run.changed and name in run.views:
        raise UnknownNameError(name)
    node = run.backend.accumulate_grad(tensor) if run.backend.is_leaf(tensor) else run.backend.grad_fn(tensor)
    if run.backend.node_name(node).endswith("CopySlices"):
        raise UnknownNameError(name)
    run.kept.append(node)
    return node


@operation
def hook(run: Run, one: Instruction) -> None:
    """Put a hook on a tensor."""
    tensor = run.tensors[one.used[0]]
    put(run, one, lambda function: run.backend.register_hook(tensor, function))


@operation
def prehook(run: Run, one: Instruction) -> None:
    """Put a hook before the Node of a tensor."""
    node = node_of(run, one.used[0])
    put(run, one, lambda function: run.backend.node_register_prehook(node, function))


@operation
def posthook(run: Run, one: Instruction) -> None:
    """Put a hook after the Node of a tensor."""
    node = node_of(run, one.used[0])
    put(run, one, lambda function: run.backend.node_register_hook(node, function))


@operation
def post_accumulate(run: Run, one: Instruction) -> None:
    """Put a post-accumulate hook on a leaf, which notes the leaf's gradient."""
    tensor = run.tensors[one.used[0]]

    def register(function: Callable[..., Any]) -> Any:
        return run.backend.register_post_accumulate_grad_hook(
            tensor, lambda leaf: function(run.backend.grad_of(leaf), leaf is tensor)
        )

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


def scaled(value: Any, number: float) -> Any:
    """Multiply a tensor, or all that are in a tuple."""
    if isinstance(value, tuple):
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
    if name not in run.handles:
        Hooks(run).put(name, ("nothing",), place.register)


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
    grad = grad[0] if isinstance(grad, tuple) else grad
    if grad is not None:
        run.tensors[name] = grad
        run.shared.add(name)


def _wrong(_run: Run, _place: Place, arguments: tuple[Any, ...]) -> Any:
    """Return what is no gradient."""
    return (1.0,) if isinstance(_replaced_by(arguments), tuple) else 1.0


def _replaced_by(arguments: tuple[Any, ...]) -> Any:
    return arguments[0]


ACTIONS: dict[str, Callable[..., Any]] = {
    "nothing": _nothing,
    "scale": _scale,
    "raise": _raise,
    "remove": _remove,
    "register": _register,
    "peek": _peek,
    "reentrant": _reentrant,
    "backward": _backward,
    "context": _context,
    "keep": _keep,
    "wrong": _wrong,
}
"""What a hook may do, by the first word of its action."""
