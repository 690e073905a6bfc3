"""Steps of an optimizer: what the rules on hooks around them share."""

from collections.abc import Callable
from typing import Any

from hooklaw import Backend, Trace
from hooklaw.rules.hooks import fail_once, removed_alone


def sgd(backend: Backend) -> Any:
    """Make an optimizer of one parameter, with a learning rate of 1."""
    return backend.sgd([backend.tensor([5.0], requires_grad=True)], lr=1.0)


def prepared(backend: Backend) -> tuple[Any, Any]:
    """Make a parameter with a gradient of ones, and an optimizer that subtracts the gradient."""
    x = backend.tensor([5.0], requires_grad=True)
    backend.set_grad(x, backend.tensor([1.0]))
    return x, backend.sgd([x], lr=1.0)


def as_given(_optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Be a step pre-hook that returns the arguments as it got them."""
    return args, kwargs


def expect_modifies(
    backend: Backend, trace: Trace, optimizer: Any, register: Callable[..., Any], hook: Callable[..., Any]
) -> None:
    """Expect that a step pre-hook among others gives its closure to each step, and after a step that failed too.

    It takes the place of a closure of the caller.
    """

    def closure() -> Any:
        trace.log("closure of the caller")
        return backend.tensor(0.0)

    handles = [register(each) for each in (as_given, as_given, hook, as_given)]
    for arguments in ({}, {"closure": closure}, {}):
        backend.step(optimizer, **arguments)

        trace.expect("closure of the hook")
        fail_once(trace, register, lambda: backend.step(optimizer))
    for handle in handles:
        handle.remove()


def passing(closure: Callable[[], Any]) -> list[Callable[..., Any]]:
    """Return step pre-hooks that give the step a closure, by keyword and by position."""
    return [
        lambda _, args, kwargs: (args, {**kwargs, "closure": closure}),
        lambda _, args, _kwargs: ((*args, closure), {}),
    ]


def expect_removes(backend: Backend, trace: Trace, places: dict[str, Callable[[Any], Any]], *optimizers: Any) -> None:
    """Expect the handles of step hooks to remove their own hook alone, from steps without gradients, too."""

    def steps() -> None:
        for optimizer in optimizers:
            backend.step(optimizer)
            backend.zero_grad(optimizer)

    removed_alone(trace, places, steps)
