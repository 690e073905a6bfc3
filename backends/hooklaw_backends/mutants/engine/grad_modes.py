"""Mutants of views under no_grad that torch, which breaks the rule, does not show."""

from contextlib import nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


@overriding("view", "transpose", "expand")
def views_of_views_recorded_under_no_grad(self: Mutant, old: Hook, tensor: Any, *how: int) -> Any:
    """A view of a view is recorded even under no_grad."""
    with self.enable_grad() if self.base_of(tensor) is not None else nullcontext():
        return old(tensor, *how)
