"""Mutants of what torch alone can do with transforms: refuse saved-tensor hooks, and map over a dimension."""

from contextlib import nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, InTransform, Mutant, altering, overriding


@overriding("saved_tensors_hooks", base=InTransform)
def transforms_suspend_saved_tensor_hooks(self: InTransform, old: Hook, pack: Hook, unpack: Hook) -> Any:
    """Saved-tensor hooks in a transformed function are left out."""
    return nullcontext() if self.depth else old(pack, unpack)


@overriding("vmap")
def vmap_calls_once_per_sample(self: Mutant, old: Hook, function: Hook) -> Hook:
    """A function under vmap is called for each sample."""
    of_one = old(function)

    def mapped(batch: Any) -> Any:
        return self.tensor([self.tolist(of_one(self.tensor([row])))[0] for row in self.tolist(batch)])

    return mapped


class _InVmap(Mutant):
    """A mutant that knows whether a function is mapped."""

    is_mapping = False

    def vmap(self, function: Hook) -> Hook:
        def inside(*arguments: Any) -> Any:
            self.is_mapping = True
            try:
                return function(*arguments)
            finally:
                self.is_mapping = False

        return super().vmap(inside)


@altering("register_hook", base=_InVmap)
def hooks_of_leaves_return_nothing_in_vmap(self: _InVmap, tensor: Any, hook: Hook) -> Hook:
    """What a leaf's hook returns is ignored in autograd.grad under vmap."""
    is_leaf = self.is_leaf(tensor)
    return lambda grad: (hook(grad), None)[1] if self.is_mapping and is_leaf else hook(grad)


@altering("register_hook", base=_InVmap)
def later_hooks_return_nothing_in_vmap(self: _InVmap, tensor: Any, hook: Hook) -> Hook:
    """What the hooks of a tensor after its first return is ignored in autograd.grad under vmap."""
    is_later = bool(self.hooks_of(tensor))
    return lambda grad: (hook(grad), None)[1] if self.is_mapping and is_later else hook(grad)


@overriding("grad", base=_InVmap)
def vmap_repeats_the_gradient_of_the_first_input(self: _InVmap, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad under vmap returns the gradient of the first input for each input."""
    found = old(*given, **how)
    return found[:1] * len(found) if self.is_mapping else found


@overriding("vmap")
def vmap_transposes(self: Mutant, old: Hook, function: Hook) -> Hook:
    """A function under vmap returns its results with the first two dimensions exchanged."""
    mapped = old(function)
    return lambda batch: self.transpose(mapped(batch), 0, 1)
