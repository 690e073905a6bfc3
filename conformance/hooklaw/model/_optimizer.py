"""SGD without momentum, with hooks around its step and around saving and loading its state."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from hooklaw.model._registry import called
from hooklaw.model._state import StateDict, Stateful
from hooklaw.model._switches import zero_grad
from hooklaw.model.errors import StepHookError
from hooklaw.model.hooks import Hook, Hooks
from hooklaw.model.modes import grad_mode
from hooklaw.model.tensor import Tensor

every_optimizer = {"pre": Hooks(), "post": Hooks()}
"""Global hooks, called for the step of any optimizer."""


class SGD(Stateful):
    """The optimizer, with ``lr`` and ``weight_decay``."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__()
        given = list(parameters)
        if not given or not all(tensor.is_leaf or tensor.retains_grad for tensor in given):
            raise ValueError("an optimizer needs at least one tensor, and only leaves or tensors that retain grad")
        self.param_groups: list[StateDict] = [{"params": given, "lr": lr, "weight_decay": weight_decay}]
        self.step_hooks = {"pre": Hooks(), "post": Hooks()}

    def parameters(self) -> list[Tensor]:
        """Return the parameters of all groups."""
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def step(self, **kwargs: Any) -> None:
        """Make a step with the hooks around it; the global hooks are outermost."""
        args: tuple[Any, ...] = (self,)
        for hooks in (every_optimizer["pre"], self.step_hooks["pre"]):
            for hook in called(hooks):
                args, kwargs = _replaced(hook(self, args, kwargs), args, kwargs)
        SGD.descend(*args, **kwargs)
        for hooks in (self.step_hooks["post"], every_optimizer["post"]):
            for hook in called(hooks):
                hook(self, args, kwargs)

    def descend(self, closure: Hook | None = None) -> None:
        """Call the closure, then change each parameter that has a gradient, in place and unrecorded."""
        if closure:
            with grad_mode(enabled=True):
                closure()
        with grad_mode(enabled=False):
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        decay = group["weight_decay"]
                        slope = parameter.grad + parameter * decay if decay else parameter.grad
                        parameter.data.write((parameter - slope * group["lr"]).data.values())

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Set the gradients to None, or fill them with zeros and detach them."""
        zero_grad(self.parameters(), set_to_none=set_to_none)

    def state_dict(self) -> StateDict:
        """Return the options, with indices for the parameters; a hook may return another state."""
        for hook in called(self.state_hooks["save_pre"]):
            hook(self)
        groups = [{**group, "params": [*range(len(group["params"]))]} for group in self.param_groups]
        state: StateDict = {"state": {}, "param_groups": groups}
        for hook in called(self.state_hooks["save_post"]):
            state = _or(hook(self, state), state)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load options from a copy of the state; a hook may change the copy or return another state."""
        state = dict(state)
        for hook in called(self.state_hooks["load_pre"]):
            state = _or(hook(self, state), state)
        sizes = [len(group["params"]) for group in state["param_groups"]]
        if sizes != [len(group["params"]) for group in self.param_groups]:
            raise ValueError("the state is of an optimizer with another number of parameters")
        pairs = zip(self.param_groups, state["param_groups"], strict=True)
        self.param_groups = [{**loaded, "params": group["params"]} for group, loaded in pairs]
        for hook in called(self.state_hooks["load_post"]):
            hook(self)


def _or(result: Any, before: StateDict) -> StateDict:
    return before if result is None else result


def _replaced(result: Any, args: Any, kwargs: Any) -> Any:
    """Return the step's args and kwargs after a pre-hook, which may have returned both."""
    if result is None:
        return args, kwargs
    if not isinstance(result, tuple) or len(cast("tuple[Any, ...]", result)) != 2:  # noqa: PLR2004 - it is a pair
        raise StepHookError("a hook before the step must return None or a pair of args and kwargs")
    return result
