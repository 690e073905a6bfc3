"""Mutants that bypass torch's version counter, or put their own Function into its graph."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Products
from hooklaw_backends.torch_eager import torch


class VersionNotChecked(Mutant):
    """Changing a saved tensor in place goes unnoticed."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        tensor.data.mul_(factor)
        return tensor


class DetachedProduct(torch.autograd.Function):
    """A product whose backward detaches its saved tensors."""

    @staticmethod
    def forward(ctx: Any, left: Any, right: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - the signature that torch requires
        ctx.save_for_backward(left, right)
        return torch.mul(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - the signature that torch requires
        left, right = (tensor.detach() for tensor in ctx.saved_tensors)
        return grad.mul(right), grad.mul(left)


class AutogradMetadataOfTheUnpackedTensorKept(Products):
    """An unpacked tensor stays detached instead of taking the saved tensor's place in the graph."""

    def product(self, multiply: Hook, left: Any, right: Any) -> Any:
        return DetachedProduct.apply(left, right) if isinstance(right, torch.Tensor) else multiply(left, right)
