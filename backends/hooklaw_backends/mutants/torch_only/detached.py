"""Mutants of torch whose detached tensors share less than they should."""

from typing import Any

from hooklaw_backends.mutants.base import Mutant


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
