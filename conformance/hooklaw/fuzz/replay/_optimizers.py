"""Operations on optimizers: steps, and the hooks around them."""

from collections.abc import Callable
from typing import Any

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.hooks import Action, Hook, put, put_everywhere
from hooklaw.fuzz.replay.operations import operation
from hooklaw.fuzz.replay.run import Replay, skip_if
from hooklaw.fuzz.replay.values import note_change


@operation(needs=(Capability.OPTIMIZERS,), ends_forward=True)
def sgd(run: Replay, instruction: Instruction) -> None:
    """Make an optimizer: its rate and weight decay. Views, and what may share storage unseen, are skipped."""
    rate, decay = instruction.how
    tensors = run.inputs(instruction)
    skip_if((run.views | run.handed | run.shared) & {*instruction.used})
    run.optimizers[instruction.made[0]] = run.backend.sgd(tensors, lr=rate, weight_decay=decay)


@operation(needs=(Capability.OPTIMIZERS,), ends_forward=True)
def step(run: Replay, instruction: Instruction) -> None:
    """Run a step, and look at the parameters."""
    name = instruction.used[0]
    optimizer = run.optimizers[name]
    note_change(run)
    run.backend.step(optimizer)
    run.log(("step", name, run.seen(parameters_of(optimizer))))


def parameters_of(optimizer: Any) -> list[Any]:
    """Return the parameters of an optimizer."""
    return optimizer.param_groups[0]["params"]


@operation(needs=(Capability.OPTIMIZERS,), ends_forward=True)
def zero_grad(run: Replay, instruction: Instruction) -> None:
    """Reset the gradients, with set_to_none where the program gives it."""
    named = {"set_to_none": instruction.how[0]} if instruction.how else {}
    run.backend.zero_grad(run.optimizers[instruction.used[0]], **named)


@operation(needs=(Capability.OPTIMIZERS,), hooks="step", safe=True, ends_forward=True)
def step_hook(run: Replay, instruction: Instruction) -> None:
    """Register a hook before or after the steps of an optimizer."""
    kind, action = instruction.how
    optimizer, register = run.optimizers[instruction.used[0]], getattr(run.backend, f"register_step_{kind}_hook")
    put(run, instruction.made[0], action, lambda hook: register(optimizer, _adapted(hook)), shown=_shown, more=ACTIONS)


@operation(needs=(Capability.OPTIMIZERS,), hooks="step", everywhere=True, safe=True, ends_forward=True)
def global_step_hook(run: Replay, instruction: Instruction) -> None:
    """Register a hook before or after the steps of all optimizers."""
    kind, action = instruction.how
    register = getattr(run.backend, f"register_optimizer_step_{kind}_hook")
    put_everywhere(run, instruction.made[0], action, lambda hook: register(_adapted(hook)), shown=_shown, more=ACTIONS)


def _adapted(function: Hook) -> Hook:
    return lambda optimizer, args, kwargs: function(args, kwargs, optimizer)


def _shown(arguments: Action) -> Action:
    _, kwargs, optimizer = arguments
    return parameters_of(optimizer), list(kwargs)


def _closure(run: Replay, at: Any, arguments: Action) -> Any:
    """Return the arguments with a closure, which logs whether it is called while operations are recorded."""
    args, kwargs, _ = arguments

    def closure() -> None:
        run.log((at.name, "closure", run.backend.is_grad_enabled()))

    return args, {**kwargs, "closure": closure}


ACTIONS: dict[str, Callable[..., Any]] = {"closure": _closure}
"""Further actions of hooks around a step."""
