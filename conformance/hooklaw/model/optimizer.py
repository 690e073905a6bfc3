"""An optimizer: plain gradient descent, with hooks around its step and around the saving and loading of its state."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from hooklaw.model.errors import StepHookError
from hooklaw.model.hooks import Hook, Hooks
from hooklaw.model.modes import grad_mode
from hooklaw.model.registry import called
from hooklaw.model.state import State, Stateful
from hooklaw.model.tensor import Tensor

every_optimizer = {"pre": Hooks(), "post": Hooks()}
"""Hooks before and after the step of any optimizer."""


class SGD(Stateful):
    """Gradient descent, without momentum."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__()
        given = list(parameters)
        if not given or not all(one.is_leaf or one.retains_grad for one in given):
            raise ValueError("an optimizer takes leaves, or what retains its gradient, and at least one")
        self.param_groups: list[State] = [{"params": given, "lr": lr, "weight_decay": weight_decay}]
        self.step_hooks = {"pre": Hooks(), "post": Hooks()}

    def parameters(self) -> list[Tensor]:
        """Return what the optimizer changes."""
        return [one for group in self.param_groups for one in group["params"]]

    def step(self) -> None:
        """Make a step between the hooks; those of all optimizers are the outermost."""
        args: tuple[Any, ...] = (self,)
        kwargs: dict[str, Any] = {}
        for hooks in (every_optimizer["pre"], self.step_hooks["pre"]):
            for hook in called(hooks):
                args, kwargs = _replaced(hook(self, args, kwargs), args, kwargs)
        SGD.descend(*args, **kwargs)
        for hooks in (self.step_hooks["post"], every_optimizer["post"]):
            for hook in called(hooks):
                hook(self, args, kwargs)

    def descend(self, closure: Hook | None = None) -> None:
        """Change each parameter that has a gradient, in place and unrecorded, after the closure has made gradients."""
        if closure:
            with grad_mode(enabled=True):
                closure()
        with grad_mode(enabled=False):
            for group in self.param_groups:
                for one in group["params"]:
                    if one.grad is not None:
                        slope = one.grad + one * group["weight_decay"] if group["weight_decay"] else one.grad
                        one.data.write((one - slope * group["lr"]).data.values())

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Drop the gradients, or write zeros over them and drop their histories: the next step tells the difference."""
        for one in self.parameters():
            if set_to_none or one.grad is None:
                one.grad = None
            else:
                one.grad.detach_()
                one.grad.data.write([0] * one.grad.data.size)

    def state_dict(self) -> State:
        """Return the options, with numbers for the parameters; a hook may return another state."""
        for hook in called(self.state_hooks["save_pre"]):
            hook(self)
        groups = [{**group, "params": [*range(len(group["params"]))]} for group in self.param_groups]
        state: State = {"state": {}, "param_groups": groups}
        for hook in called(self.state_hooks["save_post"]):
            state = _or(hook(self, state), state)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over options from a state, of which hooks are given a copy, or from that which one of them returns."""
        state = dict(state)
        for hook in called(self.state_hooks["load_pre"]):
            state = _or(hook(self, state), state)
        sizes = [len(group["params"]) for group in state["param_groups"]]
        if sizes != [len(group["params"]) for group in self.param_groups]:
            raise ValueError("this is the state of an optimizer of more parameters, or of fewer")
        pairs = zip(self.param_groups, state["param_groups"], strict=True)
        self.param_groups = [{**loaded, "params": group["params"]} for group, loaded in pairs]
        for hook in called(self.state_hooks["load_post"]):
            hook(self)


def _or(result: Any, before: State) -> State:
    return before if result is None else result


def _replaced(result: Any, args: Any, kwargs: Any) -> Any:
    """Return the arguments of the step after a hook, which may have returned both kinds."""
    if result is None:
        return args, kwargs
    if not isinstance(result, tuple) or len(cast("tuple[Any, ...]", result)) != 2:  # noqa: PLR2004 - it is a pair
        raise StepHookError("a hook before the step must return None or a pair of args and kwargs")
    return result
