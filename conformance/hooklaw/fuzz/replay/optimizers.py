"""Instructions about optimizers: steps, and the hooks around them."""

from collections.abc import Callable
from typing import Any

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import Hooks
from hooklaw.fuzz.replay.run import Run, UnknownNameError, operation
from hooklaw.fuzz.replay.state import changes_in_place

Arguments = tuple[Any, ...]


@operation
def sgd(run: Run, one: Instruction) -> None:
    """Make an optimizer: its rate and weight decay. What is a view, or shares numbers unseen, is left alone."""
    rate, decay = one.how
    tensors = [run.tensors[name] for name in one.used]
    if (run.views | run.handed | run.shared) & {*one.used}:
        raise UnknownNameError(one.used[0])
    run.optimizers[one.made[0]] = run.backend.sgd(tensors, lr=rate, weight_decay=decay)


@operation
def step(run: Run, one: Instruction) -> None:
    """Make a step, and look at the parameters."""
    optimizer = run.optimizers[one.used[0]]
    changes_in_place(run)
    run.backend.step(optimizer)
    run.log(("step", one.used[0], run.seen(parameters_of(optimizer))))


def parameters_of(optimizer: Any) -> list[Any]:
    """Return what an optimizer changes."""
    return optimizer.param_groups[0]["params"]


@operation
def zero_grad(run: Run, one: Instruction) -> None:
    """Reset the gradients, with what the program says of None."""
    named = {"set_to_none": one.how[0]} if one.how else {}
    run.backend.zero_grad(run.optimizers[one.used[0]], **named)


@operation
def step_hook(run: Run, one: Instruction) -> None:
    """Put a hook before or after the steps of an optimizer."""
    kind, action = one.how
    optimizer, register = run.optimizers[one.used[0]], getattr(run.backend, f"register_step_{kind}_hook")
    _put(run, one.made[0], action, lambda hook: register(optimizer, hook))


@operation
def global_step_hook(run: Run, one: Instruction) -> None:
    """Put a hook before or after the steps of all optimizers."""
    kind, action = one.how
    register = getattr(run.backend, f"register_optimizer_step_{kind}_hook")

    def add(hook: Callable[..., Any]) -> Any:
        handle = register(hook)
        run.everywhere.append(handle)
        return handle

    _put(run, one.made[0], action, add)


def _put(run: Run, name: str, action: Arguments, register: Callable[..., Any]) -> None:
    def add(function: Callable[..., Any]) -> Any:
        return register(lambda optimizer, args, kwargs: function(args, kwargs, optimizer))

    def shown(given: Arguments) -> Arguments:
        _, kwargs, optimizer = given
        return parameters_of(optimizer), list(kwargs)

    Hooks(run, ACTIONS).put(name, action, add, shown)


def _closure(run: Run, place: Any, arguments: Arguments) -> Any:
    """Return the arguments with a closure, which notes whether it is called while operations are recorded."""
    args, kwargs, _ = arguments

    def closure() -> None:
        run.log((place.name, "closure", run.backend.is_grad_enabled()))

    return args, {**kwargs, "closure": closure}


ACTIONS: dict[str, Callable[..., Any]] = {"closure": _closure}
"""What a hook around a step may do besides what every hook may."""
