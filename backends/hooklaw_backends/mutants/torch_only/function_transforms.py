"""Mutants whose function transforms meet saved-tensor hooks: torch refuses them, the engine does not."""

from contextlib import nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, InTransform, overriding


@overriding("saved_tensors_hooks", base=InTransform)
def transforms_suspend_saved_tensor_hooks(self: InTransform, old: Hook, pack: Hook, unpack: Hook) -> Any:
    """Saved-tensor hooks in a transformed function are left out."""
    return nullcontext() if self.depth else old(pack, unpack)
