"""Mutants that keep the gradient of a non-leaf wrongly, or not at all."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Mutant, products_by
from hooklaw_backends.mutants.handles import hooks_of
from hooklaw_backends.torch_eager import Hook


class RetainGradHasNoEffect(Mutant):
    """retain_grad keeps no gradient."""

    def retain_grad(self, tensor: Any) -> None:
        """Do nothing."""


class EveryIntermediateGradientRetained(Mutant):
    """Non-leaf tensors keep their gradient without being told to."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def retaining(multiply: Hook, left: Any, right: Any) -> Any:
            product = multiply(left, right)
            if product.requires_grad:
                product.retain_grad()
            return product

        with products_by(retaining):
            return super().call(fn, *tensors)


class RetainGradOnLeafRaises(Mutant):
    """retain_grad refuses a leaf."""

    def retain_grad(self, tensor: Any) -> None:
        if tensor.is_leaf:
            raise RuntimeError("a leaf keeps its gradient anyway")
        super().retain_grad(tensor)


class RetainGradCountsLeafTwice(Mutant):
    """After retain_grad a leaf's gradient is counted twice."""

    def retain_grad(self, tensor: Any) -> None:
        if tensor.is_leaf:
            self.register_hook(tensor, lambda grad: grad * 2)
        else:
            super().retain_grad(tensor)


class RetainsGradTrueForLeaf(Mutant):
    """A leaf says that it retains its gradient."""

    def retains_grad(self, tensor: Any) -> bool:
        return tensor.is_leaf or super().retains_grad(tensor)


class RetainsGradNeverTrue(Mutant):
    """No tensor says that it retains its gradient."""

    def retains_grad(self, tensor: Any) -> bool:  # noqa: ARG002 - that is the vice
        return False


class RetainGradWithoutGradientIgnored(Mutant):
    """retain_grad takes a tensor that does not require grad."""

    def retain_grad(self, tensor: Any) -> None:
        if tensor.requires_grad:
            super().retain_grad(tensor)


def adding_to(tensor: Any) -> Hook:
    """Return a hook that adds what it gets to the tensor's .grad."""

    def add(grad: Any) -> None:
        tensor.grad = grad.clone() if tensor.grad is None else tensor.grad + grad

    return add


class RetainGradIsAnOrdinaryTensorHook(Mutant):
    """retain_grad takes its turn among the tensor's hooks, and stays behind when the tensor changes in place."""

    def __init__(self) -> None:
        super().__init__()
        self._retaining: list[Any] = []

    def retain_grad(self, tensor: Any) -> None:
        if not tensor.is_leaf and not any(one is tensor for one in self._retaining):
            self._retaining.append(tensor)
            self.register_hook(tensor, adding_to(tensor))


class RetainGradBeforeTensorHooks(Mutant):
    """The gradient is retained before the tensor's hooks run, whenever they were put."""

    def retain_grad(self, tensor: Any) -> None:
        if not tensor.is_leaf:
            handle = self.register_hook(tensor, adding_to(tensor))
            hooks: Any = hooks_of(tensor)
            hooks.move_to_end(handle.id, last=False)


class RepeatedRetainGradAddsUp(Mutant):
    """Calling retain_grad again adds the gradient once more."""

    def retain_grad(self, tensor: Any) -> None:
        if not tensor.is_leaf:
            self.register_hook(tensor, adding_to(tensor))


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
            tensor.grad = None


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
