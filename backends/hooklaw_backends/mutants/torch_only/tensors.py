"""Mutants of torch: tensors that share or say less than they should."""

from typing import Any
from warnings import catch_warnings, warn

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


class DetachedTensorHasItsOwnVersion(Mutant):
    """A change of a tensor goes unnoticed by operations that saved one detached from it; the reverse is noticed."""

    def detach(self, tensor: Any) -> Any:
        detached = tensor.data
        self.kept.append((detached, tensor))
        return detached

    def mul_(self, tensor: Any, factor: Any) -> Any:
        for detached, original in self.kept:
            if tensor is detached:
                self.increment_version(original)
        return super().mul_(tensor, factor)


class ReadingAGradientNeverWarns(Mutant):
    """Reading the gradient of a non-leaf that does not retain it does not warn."""

    def grad_of(self, tensor: Any) -> Any:
        with catch_warnings(action="ignore"):
            return super().grad_of(tensor)


@overriding("grad_of")
def reading_the_gradient_of_a_constant_warns(self: Mutant, old: Hook, tensor: Any) -> Any:
    """Reading the gradient of a tensor that does not require grad warns."""
    if not self.requires_grad(tensor):
        warn("a tensor that does not require grad has no gradient", stacklevel=1)
    return old(tensor)
