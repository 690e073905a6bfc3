"""Mutants of requires_grad and detach_: leaves that stay frozen, results that are not detached."""

import weakref
from functools import wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding


class _CountsFreezings(Mutant):
    """A mutant that counts how often requires_grad of a leaf was set to False."""

    known = fresh(list[tuple[weakref.ref[Any], list[None]]])

    def freezings_of(self, leaf: Any) -> list[None]:
        """Return a list with one element for each freezing of a leaf."""
        for alive, freezings in self.known:
            if alive() is leaf:
                return freezings
        self.known.append((weakref.ref(leaf), []))
        return self.known[-1][1]


def staying_frozen(step: Hook) -> type[Mutant]:
    """Make a mutant in which a leaf that is to be thawed stays frozen if ``(self, leaf, freezings)`` says so."""

    @wraps(step)
    def freeze(self: _CountsFreezings, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
        freezings = self.freezings_of(tensor)
        freezings += [] if requires_grad else [None]
        if not (requires_grad and freezings and step(self, tensor, freezings)):
            old(tensor, requires_grad=requires_grad)

    return overriding("set_requires_grad", base=_CountsFreezings)(freeze)


@staying_frozen
def frozen_for_good_by_the_third_time(_self: Mutant, _leaf: Any, freezings: list[None]) -> bool:
    """requires_grad of a leaf that was set to False three times cannot be set to True again."""
    return len(freezings) > 2  # noqa: PLR2004 - the third


@staying_frozen
def each_freezing_needs_a_thawing(_self: Mutant, _leaf: Any, freezings: list[None]) -> bool:
    """requires_grad of a leaf that was set to False twice must be set to True twice."""
    freezings.pop()
    return bool(freezings)


@staying_frozen
def zeros_are_frozen_for_good(self: Mutant, leaf: Any, _freezings: list[None]) -> bool:
    """requires_grad of a leaf that has no elements, or a single 0, cannot be set to True again."""
    return self.tolist(leaf) in (0.0, [0.0], [])


class FrozenForGoodOnceUsed(Mutant):
    """requires_grad of a leaf that was used while it was False cannot be set to True again."""

    used = fresh(list[weakref.ref[Any]])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        self.used += [weakref.ref(each) for each in tensors if self.is_tensor(each) and not self.requires_grad(each)]
        return super().call(fn, *tensors)

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        if not requires_grad or all(used() is not tensor for used in self.used):
            super().set_requires_grad(tensor, requires_grad=requires_grad)


class GraphsFromBeforeAFreezingMissTheirLeaf(Mutant):
    """A leaf that was frozen and thawed gets no gradient from a root that was computed before."""

    roots = fresh(list[weakref.ref[Any]])
    missed = fresh(list[tuple[weakref.ref[Any], list[weakref.ref[Any]]]])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        made = super().call(fn, *tensors)
        self.roots += [weakref.ref(made)] if self.is_tensor(made) else []
        return made

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        super().set_requires_grad(tensor, requires_grad=requires_grad)
        self.missed += [] if requires_grad else [(weakref.ref(tensor), [*self.roots])]

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        missing = [leaf() for leaf, roots in self.missed if any(each() is root for each in roots)]
        before = [(leaf, self.grad_of(leaf)) for leaf in missing if leaf is not None]
        super().backward(root, gradient, **how)
        for leaf, grad in before:
            self.set_grad(leaf, grad)


@overriding("set_requires_grad")
def requires_grad_set_again_is_switched(self: Mutant, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """Setting requires_grad of a leaf that requires grad to True sets it to False."""
    is_set_again = requires_grad and self.is_leaf(tensor) and self.requires_grad(tensor)
    old(tensor, requires_grad=requires_grad and not is_set_again)


class RequiresGradOfAFrozenLeafDoesNothing(Mutant):
    """requires_grad_ does nothing to a leaf whose requires_grad was set to False."""

    frozen = fresh(list[weakref.ref[Any]])

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        super().set_requires_grad(tensor, requires_grad=requires_grad)
        self.frozen += [] if requires_grad else [weakref.ref(tensor)]

    def requires_grad_(self, tensor: Any) -> Any:
        return tensor if any(each() is tensor for each in self.frozen) else super().requires_grad_(tensor)


class DetachOfWhatWasUsedDoesNothing(Mutant):
    """detach_ does nothing to what an operation made and another used."""

    used = fresh(list[weakref.ref[Any]])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        self.used += [weakref.ref(each) for each in tensors if self.is_tensor(each) and not self.is_leaf(each)]
        return super().call(fn, *tensors)

    def detach_(self, tensor: Any) -> Any:
        return tensor if any(each() is tensor for each in self.used) else super().detach_(tensor)


@overriding("detach_")
def detach_of_what_has_hooks_does_nothing(self: Mutant, old: Hook, tensor: Any) -> Any:
    """detach_ does nothing to a tensor that has hooks."""
    return tensor if self.hooks_of(tensor) else old(tensor)


@overriding("detach_")
def detach_of_zeros_does_nothing(self: Mutant, old: Hook, tensor: Any) -> Any:
    """detach_ does nothing to a tensor that has no elements, or a single 0."""
    return tensor if self.tolist(tensor) in (0.0, [0.0], []) else old(tensor)
