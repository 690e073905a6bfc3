"""Instructions about what modules register, and about the states of modules and optimizers."""

from collections.abc import Callable
from typing import Any

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import Hooks
from hooklaw.fuzz.replay.run import Run, UnknownNameError, operation

Arguments = tuple[Any, ...]
Shown = Callable[[Arguments], Arguments]
MORE = "more"
"""The key that hooks add to a state."""


def changes_in_place(run: Run) -> None:
    """Note that parameters are about to be changed in place."""
    run.savers.clear()
    run.changed = True


@operation
def add_module(run: Run, one: Instruction) -> None:
    """Register a module inside another one, unless that may then be inside itself: such a state has no end."""
    outer, inner = (run.modules[name] for name in one.used)
    if any(outer is one or outer in _inside(run, one) for one in (inner, *run.substitutes)):
        raise UnknownNameError(one.used[1])
    run.backend.add_module(outer, one.how[0], inner)
    child = getattr(outer, one.how[0])
    run.children.setdefault(id(outer), []).append(child)
    run.log(("registered", one.how[0], run.seen(child.weight)))


def _inside(run: Run, module: Any) -> list[Any]:
    """Return the modules that have ever been registered in a module, or in those."""
    found = run.children.get(id(module), [])
    return [*found, *(one for child in found for one in _inside(run, child))]


@operation
def register_buffer(run: Run, one: Instruction) -> None:
    """Register a copy of a tensor as a buffer."""
    module, tensor = run.modules[one.used[0]], run.tensors[one.used[1]]
    run.backend.register_buffer(module, one.how[0], run.backend.clone(run.backend.detach(tensor)))
    run.log(("registered", one.how[0], run.seen(getattr(module, one.how[0]))))


@operation
def registration_hook(run: Run, one: Instruction) -> None:
    """Put a hook on all registrations of a kind; it may return another leaf or module, which the program names."""
    kind, action = one.how
    register = getattr(run.backend, f"register_module_{kind}_registration_hook")
    other = _other(run, one.used[0], kind) if one.used else None

    if kind == "module" and one.used:
        run.substitutes.append(other)

    def add(function: Callable[..., Any]) -> Any:
        handle = register(lambda _, name, value: function(value, name, other))
        run.everywhere.append(handle)
        return handle

    def shown(arguments: Arguments) -> Arguments:
        value, name, _ = arguments
        return (value.weight if kind == "module" else value, name)

    Hooks(run, {"instead": _instead}).put(one.made[0], action, add, shown)


def _other(run: Run, name: str, kind: str) -> Any:
    """Return what a hook puts in the place of what is registered: no view, nor what else may share its numbers."""
    if kind == "module":
        return run.modules[name]
    tensor = run.tensors[name]
    if name in run.views | run.handed | run.shared or not run.backend.is_leaf(tensor):
        raise UnknownNameError(name)
    return tensor


def _instead(_run: Run, _place: Any, arguments: Arguments) -> Any:
    return arguments[2]


@operation
def state_dict(run: Run, one: Instruction) -> None:
    """Take the state of a module or an optimizer."""
    owner = one.used[0]
    state = run.backend.state_dict(owner_of(run, owner))
    run.states[one.made[0]] = state
    run.log(("state", one.made[0], *_seen(run, owner, state)))


@operation
def load_state_dict(run: Run, one: Instruction) -> None:
    """Load a state, and look whether the caller's own was changed."""
    name, state = one.used[0], run.states[one.used[1]]
    owner = owner_of(run, name)
    if (name in run.optimizers) != ("state" in state and "param_groups" in state):
        raise UnknownNameError(name)
    if name in run.modules:
        changes_in_place(run)
    run.backend.load_state_dict(owner, state)
    now = rate_of(owner) if name in run.optimizers else owner.weight
    run.log(("load", name, *_seen(run, name, state), run.seen(now)))


def owner_of(run: Run, name: str) -> Any:
    """Return a module or an optimizer."""
    return run.optimizers[name] if name in run.optimizers else run.modules[name]


def _seen(run: Run, owner: str, state: Any) -> tuple[Any, ...]:
    shown = (list(state), rates_in(state)) if owner in run.optimizers else (state,)
    return tuple(map(run.seen, shown))


def rate_of(optimizer: Any) -> Any:
    """Return the learning rate that an optimizer has now."""
    return optimizer.param_groups[0]["lr"]


def rates_in(state: Any) -> list[Any]:
    """Return the learning rates in the state of an optimizer."""
    return [group["lr"] for group in state.get("param_groups", [])]


STATE_HOOKS = ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")


@operation
def state_hook(run: Run, one: Instruction) -> None:
    """Put a hook around the saving or the loading of a state: its kind, what it does, and options."""
    kind, action, options = one.how
    name = one.used[0]
    owner, register = owner_of(run, name), getattr(run.backend, f"register_{kind}_hook")
    of_optimizer = name in run.optimizers
    adapted, shown = (_of_optimizer if of_optimizer else _of_module)(kind)
    named = dict.fromkeys(options, True)
    Hooks(run, ACTIONS).put(one.made[0], action, lambda function: register(owner, adapted(function), **named), shown)


Adapted = Callable[[Callable[..., Any]], Callable[..., Any]]


def _of_module(kind: str) -> tuple[Adapted, Shown]:
    """Return how a hook is called with what it may change and with the prefix, and what of it is shown."""
    if kind == "state_dict_pre":
        return lambda hook: lambda _, prefix, keep_vars: hook(None, prefix, keep_vars), lambda given: given[:0:-1]
    if kind == "load_state_dict_post":
        return lambda hook: lambda _, keys: hook(keys, ""), lambda given: (*given[0],)
    if kind == "state_dict_post":
        return lambda hook: lambda _, state, prefix, __: hook(state, prefix), lambda given: given
    return lambda hook: lambda _, state, prefix, *rest: hook(state, prefix, *rest[2:4]), lambda given: given


def _of_optimizer(kind: str) -> tuple[Adapted, Shown]:
    if kind in ("state_dict_pre", "load_state_dict_post"):
        return lambda hook: lambda optimizer: hook(None, "", rate_of(optimizer)), lambda given: given[2:]
    return lambda hook: lambda _, state: hook(state, ""), lambda given: (list(given[0]), rates_in(given[0]))


def _add(_run: Run, _place: Any, arguments: Arguments) -> None:
    """Add something to a state, or to the keys that are missing."""
    target, prefix, *_ = arguments
    if isinstance(target, dict):
        target[f"{prefix}{MORE}"] = 1.0
    elif target:
        target.missing_keys.append(f"{prefix}{MORE}")


def _clear(_run: Run, _place: Any, arguments: Arguments) -> None:
    """Take everything out of a state, or let all keys be as they should."""
    target = arguments[0]
    if isinstance(target, dict):
        target.clear()  # type: ignore[misc]
    elif target:
        for keys in target:
            keys.clear()


def _another(_run: Run, _place: Any, arguments: Arguments) -> Any:
    """Return another state, that of an optimizer with twice the rate."""
    target = arguments[0]
    if not isinstance(target, dict):
        return None
    groups = [{**group, "lr": group["lr"] * 2} for group in target.get("param_groups", [])]  # type: ignore[misc]
    return {**target, MORE: 1.0, "param_groups": groups} if groups else {**target}


ACTIONS: dict[str, Callable[..., Any]] = {"add": _add, "clear": _clear, "another": _another}
"""What a hook around a state may do besides what every hook may."""
