"""Mutants of what torch alone can do with transforms: refuse saved-tensor hooks, and map over a dimension."""

from contextlib import nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, InTransform, Mutant, overriding


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


@overriding("vmap")
def vmap_transposes(self: Mutant, old: Hook, function: Hook) -> Hook:
    """A function under vmap returns its results with the first two dimensions exchanged."""
    mapped = old(function)
    return lambda batch: self.transpose(mapped(batch), 0, 1)
