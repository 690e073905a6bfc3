"""Mutants that miscount in-place changes, or refuse the wrong ones."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Products


class LeafChangedInPlace(Mutant):
    """A leaf that requires grad can be changed in place, and the change is not recorded."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not (self.is_leaf(tensor) and self.requires_grad(tensor)):
            return super().mul_(tensor, factor)
        with self.no_grad():
            return super().mul_(tensor, factor)


class ChangeToTheSameValuesGoesUncounted(Mutant):
    """An in-place operation that leaves the values equal does not increase the version."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        return tensor if factor == 1 else super().mul_(tensor, factor)


class EveryOperationCountsAsAChange(Products):
    """A product increases the version of its first factor."""

    def product(self, multiply: Hook, left: Any, right: Any) -> Any:
        made = multiply(left, right)
        self.overwrite(self.detach(left), self.clone(self.detach(left)))
        return made


class EveryChangeInPlaceRefused(Mutant):
    """Every in-place change of a tensor that requires grad is an error."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.requires_grad(tensor):
            raise RuntimeError("a tensor that requires grad must not be changed in place")
        return super().mul_(tensor, factor)


class VersionNeverIncremented(Mutant):
    """increment_version does nothing."""

    def increment_version(self, tensors: Any) -> None:
        pass
