"""Mutants that keep the gradient of a non-leaf wrongly, or not at all."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, move_to_front


class RetainGradHasNoEffect(Mutant):
    """retain_grad keeps no gradient."""

    def retain_grad(self, tensor: Any) -> None:
        """Do nothing."""


class EveryIntermediateGradientRetained(Mutant):
    """Non-leaf tensors keep their gradient without being told to."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def retaining(multiply: Hook, left: Any, right: Any) -> Any:
            product = multiply(left, right)
            if self.requires_grad(product):
                self.retain_grad(product)
            return product

        with self.products_by(retaining):
            return super().call(fn, *tensors)


class RetainGradOnLeafRaises(Mutant):
    """retain_grad refuses a leaf."""

    def retain_grad(self, tensor: Any) -> None:
        if self.is_leaf(tensor):
            raise RuntimeError("a leaf keeps its gradient anyway")
        super().retain_grad(tensor)


class RetainGradCountsLeafTwice(Mutant):
    """After retain_grad a leaf's gradient is counted twice."""

    def retain_grad(self, tensor: Any) -> None:
        if self.is_leaf(tensor):
            self.register_hook(tensor, lambda grad: grad * 2)
        else:
            super().retain_grad(tensor)


class RetainsGradTrueForLeaf(Mutant):
    """A leaf says that it retains its gradient."""

    def retains_grad(self, tensor: Any) -> bool:
        return self.is_leaf(tensor) or super().retains_grad(tensor)


class RetainsGradNeverTrue(Mutant):
    """No tensor says that it retains its gradient."""

    def retains_grad(self, tensor: Any) -> bool:  # noqa: ARG002 - that is the vice
        return False


class RetainGradWithoutGradientIgnored(Mutant):
    """retain_grad takes a tensor that does not require grad."""

    def retain_grad(self, tensor: Any) -> None:
        if self.requires_grad(tensor):
            super().retain_grad(tensor)


class NodeKeepsTheTensorThatRetains(Mutant):
    """A tensor that retains its gradient lives as long as its Node."""

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        if not self.is_leaf(tensor):
            self.node_metadata(self.grad_fn(tensor))["retains"] = tensor


class _AddsUp(Mutant):
    """Can keep a gradient by a hook."""

    def adding_to(self, tensor: Any) -> Hook:
        """Return a hook that adds what it gets to the tensor's .grad."""

        def add(grad: Any) -> None:
            before = self.grad_of(tensor)
            self.set_grad(tensor, self.clone(grad) if before is None else before + grad)

        return add


class RetainGradIsAnOrdinaryTensorHook(_AddsUp):
    """retain_grad takes its turn among the tensor's hooks, and stays behind when the tensor changes in place."""

    def __init__(self) -> None:
        super().__init__()
        self._retaining: list[Any] = []

    def retain_grad(self, tensor: Any) -> None:
        if not self.is_leaf(tensor) and not any(one is tensor for one in self._retaining):
            self._retaining.append(tensor)
            self.register_hook(tensor, self.adding_to(tensor))


class RetainGradBeforeTensorHooks(_AddsUp):
    """The gradient is retained before the tensor's hooks run, whenever they were put."""

    def retain_grad(self, tensor: Any) -> None:
        if not self.is_leaf(tensor):
            handle = self.register_hook(tensor, self.adding_to(tensor))
            move_to_front(self.hooks_of(tensor), handle.id)


class RepeatedRetainGradAddsUp(_AddsUp):
    """Calling retain_grad again adds the gradient once more."""

    def retain_grad(self, tensor: Any) -> None:
        if not self.is_leaf(tensor):
            self.register_hook(tensor, self.adding_to(tensor))


class _RetainedByUs(Mutant):
    """Knows the tensors that retain their gradient."""

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
    """A retained gradient is that of the last pass alone."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.clear()
        super().backward(root, gradient, **how)


class RetainGradOnlyInBackward(_RetainedByUs):
    """autograd.grad fills no retained gradient."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        self.clear()
        return grads
