"""Mutants that count changes in place wrongly, or refuse the wrong ones."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant


class LeafChangedInPlace(Mutant):
    """A leaf that requires grad is changed in place, and nothing is recorded."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not (self.is_leaf(tensor) and self.requires_grad(tensor)):
            return super().mul_(tensor, factor)
        with self.no_grad():
            return super().mul_(tensor, factor)


class ChangeToTheSameValuesGoesUncounted(Mutant):
    """An operation in place that leaves the values as they were is no change."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        return tensor if factor == 1 else super().mul_(tensor, factor)


class EveryOperationCountsAsAChange(Mutant):
    """A product counts as a change of its first factor."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def product(multiply: Hook, left: Any, right: Any) -> Any:
            made = multiply(left, right)
            self.overwrite(self.detach(left), self.clone(self.detach(left)))
            return made

        with self.products_by(product):
            return super().call(fn, *tensors)


class EveryChangeInPlaceRefused(Mutant):
    """What requires grad cannot be changed in place."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.requires_grad(tensor):
            raise RuntimeError("a tensor that requires grad was to be changed in place")
        return super().mul_(tensor, factor)


class VersionNeverIncremented(Mutant):
    """To make a change known does nothing."""

    def increment_version(self, tensors: Any) -> None:
        pass
