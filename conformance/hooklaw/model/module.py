"""Modules: hooks around forward, and hooks on the gradients that pass through."""

from collections.abc import Callable, Mapping
from typing import Any

from hooklaw.model.hooks import Gradients, Hooks
from hooklaw.model.modes import recording
from hooklaw.model.node import Node
from hooklaw.model.record import attach
from hooklaw.model.tensor import Tensor, edge_of


class Module:
    """A forward function with parameters as attributes."""

    def __init__(self, parameters: Mapping[str, Tensor], forward: Callable[..., Any]) -> None:
        self.forward = forward
        self.forward_pre_hooks, self.forward_hooks, self.backward_hooks = Hooks(), Hooks(), Hooks()
        for name, value in parameters.items():
            setattr(self, name, value.detach().requires_grad_())

    def __call__(self, *inputs: Any) -> Any:
        """Run the pre-hooks, forward and the hooks; what a hook returns takes the place of what it was given."""
        for hook in self.forward_pre_hooks.now():
            result = hook(self, inputs)
            inputs = inputs if result is None else _tuple(result)
        return self._between_hooks(inputs) if self.backward_hooks else self._forward(inputs)

    def _forward(self, inputs: tuple[Any, ...]) -> Any:
        output = self.forward(self, *inputs)
        for hook in self.forward_hooks.now():
            result = hook(self, inputs, output)
            output = output if result is None else result
        return output

    def _between_hooks(self, inputs: tuple[Any, ...]) -> Any:
        """Run forward between two Nodes that change nothing: what goes through them is what the hooks are given."""
        received: list[Gradients] = []

        def after_inputs(grad_inputs: Gradients, _: Gradients) -> Gradients:
            grad_outputs = received.pop()
            for hook in self.backward_hooks.now():
                result = hook(self, grad_inputs, grad_outputs)
                grad_inputs = grad_inputs if result is None else result
            return grad_inputs

        first, inputs = _through(inputs)
        output = self._forward(inputs)
        last, outputs = _through(_tuple(output))
        if first and last:
            first.post_hooks.add(after_inputs)
            last.pre_hooks.add(received.append)
        return outputs if isinstance(output, tuple) else outputs[0]


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _through(tensors: tuple[Any, ...]) -> tuple[Node | None, tuple[Any, ...]]:
    edges = [edge_of(one) for one in tensors] if recording() else []
    if not any(edges):
        return None, tensors
    node = Node("BackwardHookFunctionBackward", edges, lambda *grads: grads)
    made = tuple(one.detach() for one in tensors)
    attach(node, made)
    return node, made
