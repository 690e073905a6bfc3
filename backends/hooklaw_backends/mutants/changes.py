"""Mutants that miscount in-place changes, or refuse the wrong ones."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding, products


@overriding("mul_")
def leaf_changed_in_place(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A leaf that requires grad can be changed in place, and the change is not recorded."""
    if not (self.is_leaf(tensor) and self.requires_grad(tensor)):
        return old(tensor, factor)
    with self.no_grad():
        return old(tensor, factor)


@overriding("mul_")
def change_to_the_same_values_goes_uncounted(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """An in-place operation that leaves the values equal does not increase the version."""
    return tensor if factor == 1 else old(tensor, factor)


@products
def every_operation_counts_as_a_change(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A product increases the version of its first factor."""
    made = multiply(left, right)
    self.overwrite(self.detach(left), self.clone(self.detach(left)))
    return made


@overriding("mul_")
def every_change_in_place_refused(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """Every in-place change of a tensor that requires grad is an error."""
    if self.requires_grad(tensor):
        raise RuntimeError("a tensor that requires grad must not be changed in place")
    return old(tensor, factor)


@overriding("increment_version")
def version_never_incremented(self: Mutant, old: Hook, tensors: Any) -> None:
    """increment_version does nothing."""
