"""Mutants that confuse gradient edges."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, InGrad, Mutant, TensorHooks


class GradientEdgeOfTheFirstOutput(Mutant):
    """The gradient edge of any output of a Node is that of its first output."""

    def get_gradient_edge(self, tensor: Any) -> Any:
        edge = super().get_gradient_edge(tensor)
        return type(edge)(edge[0], 0, *edge[2:])


class GradientEdgeOfAConstantIsNone(Mutant):
    """The gradient edge of a tensor that does not require grad is None instead of an error."""

    def get_gradient_edge(self, tensor: Any) -> Any:
        return super().get_gradient_edge(tensor) if self.requires_grad(tensor) else None


class HooksSkippedForGradientEdges(TensorHooks, InGrad):
    """Tensor hooks do not run when autograd.grad is given gradient edges as inputs."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grad: hook(grad) if all(map(self.is_tensor, self.inputs)) else None


class GradientEdgeFollowsItsTensor(Mutant):
    """A gradient edge follows its tensor through later in-place changes."""

    def get_gradient_edge(self, tensor: Any) -> Any:
        super().get_gradient_edge(tensor)
        return tensor
