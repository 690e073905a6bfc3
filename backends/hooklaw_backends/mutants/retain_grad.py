"""Mutants that retain the gradient of a non-leaf tensor wrongly, or not at all."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Products, move_to_front


class RetainGradHasNoEffect(Mutant):
    """retain_grad has no effect."""

    def retain_grad(self, tensor: Any) -> None:
        pass


class EveryIntermediateGradientRetained(Products):
    """Every product retains its gradient, even without retain_grad."""

    def product(self, multiply: Hook, left: Any, right: Any) -> Any:
        product = multiply(left, right)
        if self.requires_grad(product):
            self.retain_grad(product)
        return product


class RetainGradOnLeafRaises(Mutant):
    """retain_grad on a leaf is an error."""

    def retain_grad(self, tensor: Any) -> None:
        if self.is_leaf(tensor):
            raise RuntimeError("retain_grad was called on a leaf")
        super().retain_grad(tensor)


class RetainGradCountsLeafTwice(Mutant):
    """After retain_grad a leaf's gradient is counted twice."""

    def retain_grad(self, tensor: Any) -> None:
        if self.is_leaf(tensor):
            self.register_hook(tensor, lambda grad: grad * 2)
        else:
            super().retain_grad(tensor)


class RetainsGradTrueForLeaf(Mutant):
    """retains_grad of a leaf is True."""

    def retains_grad(self, tensor: Any) -> bool:
        return self.is_leaf(tensor) or super().retains_grad(tensor)


class RetainsGradNeverTrue(Mutant):
    """retains_grad is always False."""

    def retains_grad(self, tensor: Any) -> bool:  # noqa: ARG002 - that is the vice
        return False


class RetainGradWithoutGradientIgnored(Mutant):
    """retain_grad on a tensor that does not require grad is not an error."""

    def retain_grad(self, tensor: Any) -> None:
        if self.requires_grad(tensor):
            super().retain_grad(tensor)


class NodeKeepsTheTensorThatRetains(Mutant):
    """A tensor that retains its gradient stays alive as long as its Node."""

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        if not self.is_leaf(tensor):
            self.node_metadata(self.grad_fn(tensor))["retains"] = tensor


class _AddsUp(Mutant):
    """A mutant that retains gradients with a hook."""

    def adding_to(self, tensor: Any) -> Hook:
        """Return a hook that adds the gradient to the tensor's .grad."""

        def add(grad: Any) -> None:
            before = self.grad_of(tensor)
            self.set_grad(tensor, self.clone(grad) if before is None else before + grad)

        return add


class RetainGradIsAnOrdinaryTensorHook(_AddsUp):
    """retain_grad acts as an ordinary tensor hook, in registration order, and misses later in-place changes."""

    def __init__(self) -> None:
        super().__init__()
        self._retaining: list[Any] = []

    def retain_grad(self, tensor: Any) -> None:
        if not self.is_leaf(tensor) and not any(tensor is retaining for retaining in self._retaining):
            self._retaining.append(tensor)
            self.register_hook(tensor, self.adding_to(tensor))


class RetainGradBeforeTensorHooks(_AddsUp):
    """The gradient is retained before all tensor hooks run."""

    def retain_grad(self, tensor: Any) -> None:
        if not self.is_leaf(tensor):
            handle = self.register_hook(tensor, self.adding_to(tensor))
            move_to_front(self.hooks_of(tensor), handle.id)


class RepeatedRetainGradAddsUp(_AddsUp):
    """Calling retain_grad twice counts the gradient twice."""

    def retain_grad(self, tensor: Any) -> None:
        if not self.is_leaf(tensor):
            self.register_hook(tensor, self.adding_to(tensor))


class _RetainedByUs(Mutant):
    """A mutant that knows which tensors retain their gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.retaining: list[Any] = []

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        self.retaining.append(tensor)

    def clear(self) -> None:
        for tensor in self.retaining:
            self.set_grad(tensor, None)


class RetainedGradientOverwritten(_RetainedByUs):
    """A retained gradient is overwritten by the next backward instead of accumulated."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.clear()
        super().backward(root, gradient, **how)


class RetainGradOnlyInBackward(_RetainedByUs):
    """autograd.grad does not fill retained gradients."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        self.clear()
        return grads
