"""Operations on what modules register, and on the states of modules and optimizers."""

from collections.abc import Callable
from typing import Any

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import Action, Hook, Shown, put, put_everywhere
from hooklaw.fuzz.replay.operations import operation
from hooklaw.fuzz.replay.run import Replay, skip_if
from hooklaw.fuzz.replay.values import note_change

MORE = "more"
"""The key that hooks add to a state."""


@operation(needs=(Capability.MODULES, Capability.STATE_DICT), ends_forward=True)
def add_module(run: Replay, instruction: Instruction) -> None:
    """Register a module inside another; skipped where it may then be inside itself, since such a state has no end."""
    outer, inner = (run.modules[name] for name in instruction.used)
    (name,) = instruction.how
    skip_if(any(outer is module or outer in _inside(run, module) for module in (inner, *run.substitutes)))
    run.backend.add_module(outer, name, inner)
    child = getattr(outer, name)
    run.children.setdefault(id(outer), []).append(child)
    run.log(("registered", name, run.seen(child.weight)))


def _inside(run: Replay, module: Any) -> list[Any]:
    """Return the modules that have ever been registered in a module, directly or not."""
    children = run.children.get(id(module), [])
    return [*children, *(below for child in children for below in _inside(run, child))]


@operation(needs=(Capability.MODULES, Capability.REGISTRATION_HOOKS), ends_forward=True)
def register_buffer(run: Replay, instruction: Instruction) -> None:
    """Register a copy of a tensor as a buffer."""
    (name,) = instruction.how
    module, tensor = run.modules[instruction.used[0]], run.tensors[instruction.used[1]]
    run.backend.register_buffer(module, name, run.backend.clone(run.backend.detach(tensor)))
    run.log(("registered", name, run.seen(getattr(module, name))))


@operation(
    needs=(Capability.MODULES, Capability.REGISTRATION_HOOKS),
    hooks="registration",
    everywhere=True,
    safe=True,
    ends_forward=True,
)
def registration_hook(run: Replay, instruction: Instruction) -> None:
    """Register a hook on all registrations of a kind; it may return another leaf or module, which the program names."""
    kind, action = instruction.how
    register = getattr(run.backend, f"register_module_{kind}_registration_hook")
    other = _substitute(run, instruction.used[0], kind) if instruction.used else None

    def add(function: Hook) -> Any:
        return register(lambda _, name, value: function(value, name, other))

    def shown(arguments: Action) -> Action:
        value, name, _ = arguments
        return (value.weight if kind == "module" else value, name)

    put_everywhere(run, instruction.made[0], action, add, shown=shown, more={"instead": _instead})


def _substitute(run: Replay, name: str, kind: str) -> Any:
    """Return what a hook returns instead of what is registered: neither a view nor what may share storage unseen."""
    if kind == "module":
        run.substitutes.append(run.modules[name])
        return run.modules[name]
    tensor = run.tensors[name]
    skip_if(name in run.views | run.handed | run.shared or not run.backend.is_leaf(tensor))
    return tensor


def _instead(_run: Replay, _at: Any, arguments: Action) -> Any:
    return arguments[2]


@operation(needs=(Capability.STATE_DICT,), ends_forward=True)
def state_dict(run: Replay, instruction: Instruction) -> None:
    """Take the state of a module or an optimizer."""
    (name,), (owner,) = instruction.made, instruction.used
    state = run.states[name] = run.backend.state_dict(owner_of(run, owner))
    run.log(("state", name, *_seen(run, owner, state)))


@operation(needs=(Capability.STATE_DICT,), ends_forward=True)
def load_state_dict(run: Replay, instruction: Instruction) -> None:
    """Load a state, and look whether the caller's own copy was changed."""
    name, state = instruction.used[0], run.states[instruction.used[1]]
    owner = owner_of(run, name)
    skip_if((name in run.optimizers) != ("state" in state and "param_groups" in state))
    if name in run.modules:
        note_change(run)
    run.backend.load_state_dict(owner, state)
    now = rate_of(owner) if name in run.optimizers else owner.weight
    run.log(("load", name, *_seen(run, name, state), run.seen(now)))


def owner_of(run: Replay, name: str) -> Any:
    """Return a module or an optimizer."""
    return run.optimizers[name] if name in run.optimizers else run.modules[name]


def _seen(run: Replay, owner: str, state: Any) -> Action:
    shown = (list(state), rates_in(state)) if owner in run.optimizers else (state,)
    return tuple(map(run.seen, shown))


def rate_of(optimizer: Any) -> Any:
    """Return the learning rate that an optimizer has now."""
    return optimizer.param_groups[0]["lr"]


def rates_in(state: Any) -> list[Any]:
    """Return the learning rates in the state of an optimizer."""
    return [group["lr"] for group in state.get("param_groups", [])]


STATE_HOOKS = ("state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")


@operation(needs=(Capability.STATE_DICT,), hooks="state", safe=True, ends_forward=True)
def state_hook(run: Replay, instruction: Instruction) -> None:
    """Register a hook around the saving or the loading of a state: its kind, its action, and options."""
    (kind, action, options), (name,) = instruction.how, instruction.used
    owner, register = owner_of(run, name), getattr(run.backend, f"register_{kind}_hook")
    adapted, shown = (_of_optimizer if name in run.optimizers else _of_module)(kind)
    named = dict.fromkeys(options, True)

    def add(function: Hook) -> Any:
        return register(owner, adapted(function), **named)

    put(run, instruction.made[0], action, add, shown=shown, more=ACTIONS)


Adapted = Callable[[Hook], Hook]


def _of_module(kind: str) -> tuple[Adapted, Shown]:
    """Return how the program's hook is called, with what it may change and the prefix, and what of that is logged."""
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


def _add(_run: Replay, _at: Any, arguments: Action) -> None:
    """Add a key to a state, or to the missing keys."""
    target, prefix, *_ = arguments
    if isinstance(target, dict):
        target[f"{prefix}{MORE}"] = 1.0
    elif target:
        target.missing_keys.append(f"{prefix}{MORE}")


def _clear(_run: Replay, _at: Any, arguments: Action) -> None:
    """Clear a state, or the missing and unexpected keys."""
    target = arguments[0]
    if isinstance(target, dict):
        target.clear()  # type: ignore[misc]
    elif target:
        for keys in target:
            keys.clear()


def another(state: Any) -> Any:
    """Return another state; for an optimizer one with twice the rate."""
    groups = [{**group, "lr": group["lr"] * 2} for group in state.get("param_groups", [])]
    return {**state, MORE: 1.0, "param_groups": groups} if groups else {**state}


def _another(_run: Replay, _at: Any, arguments: Action) -> Any:
    """Return another state, if it is a state that was given."""
    return another(arguments[0]) if isinstance(arguments[0], dict) else None


ACTIONS: dict[str, Callable[..., Any]] = {"add": _add, "clear": _clear, "another": _another}
"""Further actions of hooks around a state."""
