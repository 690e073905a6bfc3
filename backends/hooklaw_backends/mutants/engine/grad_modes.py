"""Mutants of views under no_grad and in inference mode that torch, which breaks the rules, does not show."""

from contextlib import nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


@overriding("view", "transpose", "expand")
def views_of_views_recorded_under_no_grad(self: Mutant, old: Hook, tensor: Any, *how: int) -> Any:
    """A view of a view is recorded even under no_grad."""
    with self.enable_grad() if self.base_of(tensor) is not None else nullcontext():
        return old(tensor, *how)


@overriding("view", "transpose", "expand")
def views_in_inference_mode_require_grad(self: Mutant, old: Hook, tensor: Any, *how: int) -> Any:
    """A view of a tensor that requires grad requires grad, even in inference mode."""
    view = old(tensor, *how)
    is_inside = self.requires_grad(tensor) and self.is_for_inference(self.tensor([0.0]))
    return self.requires_grad_(view) if is_inside else view
