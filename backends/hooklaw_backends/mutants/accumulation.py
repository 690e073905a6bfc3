"""Mutants that add up gradients wrongly, or lay them out wrongly."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Mutant, leaves_of
from hooklaw_backends.torch_eager import torch


class GradientOverwritten(Mutant):
    """A leaf's .grad is that of the last backward alone."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        for leaf in leaves_of(root):
            leaf.grad = None
        super().backward(root, gradient, **how)


class GradientStartsAsZeros(Mutant):
    """A tensor has a .grad of zeros before any backward."""

    def grad_of(self, tensor: Any) -> Any:
        return torch.zeros_like(tensor) if tensor.grad is None else super().grad_of(tensor)


class GradientKeptAsideOfGrad(Mutant):
    """Setting .grad does not reset what later gradients are added to."""

    def __init__(self) -> None:
        super().__init__()
        self._aside: list[tuple[Any, Any]] = []

    def set_grad(self, tensor: Any, value: Any) -> None:
        if tensor.grad is not None:
            self._aside.append((tensor, tensor.grad))
        super().set_grad(tensor, value)

    def grad_of(self, tensor: Any) -> Any:
        grad = super().grad_of(tensor)
        return grad if grad is None else sum((old for one, old in self._aside if one is tensor), grad)


class AutogradGradAccumulates(Mutant):
    """autograd.grad fills the .grad of its inputs too."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        for tensor, grad in zip(inputs, grads, strict=True):
            if tensor.is_leaf:
                tensor.grad = grad if tensor.grad is None else tensor.grad + grad
        return grads


class GradientReplacedWhenAccumulated(Mutant):
    """Backward puts the sum in a new .grad."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        for leaf in leaves_of(root):
            leaf.grad = None if leaf.grad is None else leaf.grad.clone()
        super().backward(root, gradient, **how)


class GradientAlwaysContiguous(Mutant):
    """The .grad of a leaf is contiguous, whatever the leaf's strides."""

    def grad_of(self, tensor: Any) -> Any:
        return None if tensor.grad is None else tensor.grad.contiguous()


class GradientKeepsOverlappingStrides(Mutant):
    """The .grad of a leaf whose memory overlaps has the leaf's strides."""

    def grad_of(self, tensor: Any) -> Any:
        grad = super().grad_of(tensor)
        if grad is None or 0 not in tensor.stride():
            return grad
        return grad.as_strided(tensor.shape, tensor.stride())


class GradientLaidOutAnew(Mutant):
    """After backward every .grad has the strides of its leaf, whoever made it."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        leaves = list(leaves_of(root))
        super().backward(root, gradient, **how)
        for leaf in leaves:
            if leaf.grad is not None and leaf.grad.stride() != leaf.stride():
                leaf.grad = torch.empty_like(leaf).copy_(leaf.grad)


class CreateGraphAccumulatesInPlace(Mutant):
    """A backward that creates a graph adds to the old .grad in place."""

    def backward(self, root: Any, gradient: Any = None, *, create_graph: bool = False, **how: Any) -> None:  # noqa: ARG002 - that is the vice
        super().backward(root, gradient, **how)
