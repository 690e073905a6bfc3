"""Mutants that accumulate gradients wrongly, or give them the wrong memory layout."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class GradientOverwritten(Mutant):
    """A backward overwrites a leaf's .grad instead of adding to it."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        for leaf in self.leaves_of(root):
            self.set_grad(leaf, None)
        super().backward(root, gradient, **how)


class GradientStartsAsZeros(Mutant):
    """Before any backward a tensor's .grad is zeros instead of None."""

    def grad_of(self, tensor: Any) -> Any:
        grad = super().grad_of(tensor)
        return self.detach(tensor) * 0 if grad is None else grad


class GradientKeptAsideOfGrad(Mutant):
    """Setting .grad does not reset the sum that later gradients are added to."""

    def __init__(self) -> None:
        super().__init__()
        self._aside: list[tuple[Any, Any]] = []

    def set_grad(self, tensor: Any, value: Any) -> None:
        before = super().grad_of(tensor)
        if before is not None:
            self._aside.append((tensor, before))
        super().set_grad(tensor, value)

    def grad_of(self, tensor: Any) -> Any:
        grad = super().grad_of(tensor)
        return grad if grad is None else sum((old for owner, old in self._aside if owner is tensor), grad)


class AutogradGradAccumulates(Mutant):
    """autograd.grad also adds to the .grad of its inputs."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        for tensor, grad in zip(inputs, grads, strict=True):
            if self.is_leaf(tensor):
                before = self.grad_of(tensor)
                self.set_grad(tensor, grad if before is None else before + grad)
        return grads


class GradientReplacedWhenAccumulated(Mutant):
    """A backward stores the sum in a new tensor instead of adding to the existing .grad in place."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        for leaf in self.leaves_of(root):
            grad = self.grad_of(leaf)
            self.set_grad(leaf, None if grad is None else self.clone(grad))
        super().backward(root, gradient, **how)


class GradientAlwaysContiguous(Mutant):
    """A leaf's .grad is contiguous, even if the leaf has other strides."""

    def grad_of(self, tensor: Any) -> Any:
        grad = super().grad_of(tensor)
        return None if grad is None else self.contiguous(grad)


class GradientKeepsOverlappingStrides(Mutant):
    """The .grad of a leaf with overlapping memory has the leaf's overlapping strides."""

    def grad_of(self, tensor: Any) -> Any:
        grad = super().grad_of(tensor)
        if grad is None or 0 not in self.stride(tensor):
            return grad
        return self.strided(grad, self.shape(tensor), self.stride(tensor))


class GradientLaidOutAnew(Mutant):
    """A backward gives every .grad the strides of its leaf, even a .grad that the user set."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        leaves = list(self.leaves_of(root))
        super().backward(root, gradient, **how)
        for leaf in leaves:
            grad = self.grad_of(leaf)
            if grad is not None and self.stride(grad) != self.stride(leaf):
                self.set_grad(leaf, self.laid_out_like(grad, leaf))


class CreateGraphAccumulatesInPlace(Mutant):
    """A backward with create_graph=True adds to the existing .grad in place."""

    def backward(self, root: Any, gradient: Any = None, *, create_graph: bool = False, **how: Any) -> None:  # noqa: ARG002 - that is the vice
        super().backward(root, gradient, **how)
