"""Mutants that bypass torch's version counter, or put their own Function into its graph."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding, products
from hooklaw_backends.torch_eager import torch


@overriding("mul_")
def version_not_checked(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """Changing a saved tensor in place goes unnoticed."""
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


@products
def autograd_metadata_of_the_unpacked_tensor_kept(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """An unpacked tensor stays detached instead of taking the saved tensor's place in the graph."""
    return DetachedProduct.apply(left, right) if isinstance(right, torch.Tensor) else multiply(left, right)
