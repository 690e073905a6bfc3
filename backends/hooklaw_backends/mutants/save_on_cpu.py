"""Mutants of save_on_cpu."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


@overriding("save_on_cpu")
def save_on_cpu_reads_before_the_copy(self: Mutant, old: Hook, *, pin_memory: bool = False) -> Any:
    """save_on_cpu with pin_memory=True reads a saved tensor before its data has arrived."""
    return self.saved_tensors_hooks(self.detach, lambda kept: kept * 0 if pin_memory else kept)


@overriding("save_on_cpu")
def save_on_cpu_always_copies(self: Mutant, *_: Any, **how: bool) -> Any:
    """save_on_cpu copies a tensor that is already on the CPU."""
    return self.saved_tensors_hooks(lambda tensor: self.clone(self.detach(tensor)), lambda kept: kept)
