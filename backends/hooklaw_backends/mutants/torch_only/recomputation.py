"""Mutants of torch's own check of a recomputation."""

from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest.mock import patch

from hooklaw_backends.mutants.base import Hook, Mutant, overriding

CHECKS: dict[str, Callable[[Any], Any]] = import_module("torch.utils.checkpoint")._allowed_determinism_checks_to_fns  # noqa: SLF001 - there is no public API


@overriding("checkpoint")
def recomputation_compares_shapes_only(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint compares the shapes of the recomputed tensors, but not their dtypes."""
    with patch.dict(CHECKS, default=lambda tensor: {"shape": tensor.shape}):
        return old(*given, **how)
