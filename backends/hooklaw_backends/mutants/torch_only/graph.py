"""Mutants that go past torch's version counter, or put a Function of their own into its graph."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant
from hooklaw_backends.torch_eager import torch


class VersionNotChecked(Mutant):
    """A change in place of a tensor that was saved goes unnoticed."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        tensor.data.mul_(factor)
        return tensor


class DetachedProduct(torch.autograd.Function):
    """A product that takes what it unpacks as it is, without a place in the graph."""

    @staticmethod
    def forward(ctx: Any, left: Any, right: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - as torch asks
        ctx.save_for_backward(left, right)
        return torch.mul(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - as torch asks
        left, right = (tensor.detach() for tensor in ctx.saved_tensors)
        return grad.mul(right), grad.mul(left)


class AutogradMetadataOfTheUnpackedTensorKept(Mutant):
    """What unpack returned stays detached, instead of taking the saved tensor's place in the graph."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def product(multiply: Hook, left: Any, right: Any) -> Any:
            return DetachedProduct.apply(left, right) if isinstance(right, torch.Tensor) else multiply(left, right)

        with self.products_by(product):
            return super().call(fn, *tensors)
