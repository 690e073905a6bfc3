"""Mutants that take the place where a gradient is computed for another one."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, TensorHooks


class GradientEdgeOfTheFirstOutput(Mutant):
    """The gradient edge of every output of a Node is that of the first one."""

    def get_gradient_edge(self, tensor: Any) -> Any:
        edge = super().get_gradient_edge(tensor)
        return type(edge)(edge[0], 0, *edge[2:])


class GradientEdgeOfAConstantIsNone(Mutant):
    """To ask for the gradient edge of a tensor that does not require grad is no error."""

    def get_gradient_edge(self, tensor: Any) -> Any:
        return super().get_gradient_edge(tensor) if self.requires_grad(tensor) else None


class HooksSkippedForGradientEdges(TensorHooks):
    """The hooks of tensors do not run where autograd.grad is given gradient edges."""

    at_edges = False

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self.at_edges = not all(self.is_tensor(one) for one in inputs)
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self.at_edges = False

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - the same for all
        return lambda grad: None if self.at_edges else hook(grad)


class GradientEdgeFollowsItsTensor(Mutant):
    """A gradient edge is that of its tensor as it is when the gradient is taken."""

    def get_gradient_edge(self, tensor: Any) -> Any:
        super().get_gradient_edge(tensor)
        return tensor
