"""Mutants of torch's own check of a recomputation."""

from collections.abc import Callable
from importlib import import_module
from itertools import count
from typing import Any
from unittest.mock import ANY, patch

from hooklaw_backends.mutants.base import Hook, Mutant, overriding

CHECKS: dict[str, Callable[[Any], Any]] = import_module("torch.utils.checkpoint")._allowed_determinism_checks_to_fns  # noqa: SLF001 - there is no public API


@overriding("checkpoint")
def recomputation_compares_shapes_only(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint compares the shapes of the recomputed tensors, but not their dtypes."""
    with patch.dict(CHECKS, default=lambda tensor: {"shape": tensor.shape}):
        return old(*given, **how)


@overriding("checkpoint")
def recomputation_compares_its_first_tensor_only(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """Of the recomputed tensors of a checkpoint only the first is compared."""
    numbers, in_forward, default = count(), [True], CHECKS["default"]
    first = lambda tensor: ANY if in_forward and next(numbers) else default(tensor)  # noqa: E731 - a def is no shorter
    with patch.dict(CHECKS, default=first):
        output = old(*given, **how)
    in_forward.clear()
    return output


@overriding("checkpoint")
def recomputation_compares_the_dtype_of_its_first_tensor_only(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """Of the recomputed tensors of a checkpoint all shapes are compared, and the dtype of the first."""
    numbers, in_forward, default = count(), [True], CHECKS["default"]
    first = lambda tensor: {**default(tensor), **({"dtype": ANY} if in_forward and next(numbers) else {})}  # noqa: E731 - a def is no shorter
    with patch.dict(CHECKS, default=first):
        output = old(*given, **how)
    in_forward.clear()
    return output
