"""Mutants of the engine's save_on_cpu that do what torch does."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


@overriding("save_on_cpu")
def save_on_cpu_copies_to_pinned_memory(self: Mutant, old: Hook, *, pin_memory: bool = False) -> Any:
    """save_on_cpu with pin_memory=True copies a tensor that is already on the CPU."""

    def copied(tensor: Any) -> Any:
        return self.clone(self.detach(tensor)) if pin_memory else self.detach(tensor)

    return self.saved_tensors_hooks(copied, lambda kept: kept)


@overriding("save_on_cpu")
def save_on_cpu_leaks(self: Mutant, *_: Any, **how: bool) -> Any:
    """Tensors saved under save_on_cpu are never freed."""

    def keep(tensor: Any) -> Any:
        self.kept.append(tensor)
        return tensor

    return self.saved_tensors_hooks(keep, lambda packed: packed)


@overriding("save_on_cpu")
def save_on_cpu_leaks_what_it_pins(self: Mutant, old: Hook, *, pin_memory: bool = False) -> Any:
    """Tensors saved under save_on_cpu with pin_memory=True are never freed."""

    def keep(tensor: Any) -> Any:
        self.kept.append(tensor)
        return self.detach(tensor)

    return self.saved_tensors_hooks(keep, lambda packed: packed) if pin_memory else old()
