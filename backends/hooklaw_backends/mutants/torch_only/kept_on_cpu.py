"""Mutants of save_on_cpu, and of the check of a recomputation, that need torch's own dtypes and modules."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any
from unittest.mock import patch

from hooklaw_backends.mutants.base import Hook, Mutant
from hooklaw_backends.torch_eager import torch

CHECKS: dict[str, Callable[[Any], Any]] = import_module("torch.utils.checkpoint")._allowed_determinism_checks_to_fns  # noqa: SLF001 - there is no public API


class SaveOnCpuWidensHalfPrecision(Mutant):
    """save_on_cpu gives float16 and bfloat16 tensors back as float32."""

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - part of the verb
        halves = (torch.float16, torch.bfloat16)
        return self.saved_tensors_hooks(
            lambda tensor: tensor.detach().float() if tensor.dtype in halves else tensor.detach(), lambda kept: kept
        )


class SaveOnCpuLosesImaginaryParts(Mutant):
    """save_on_cpu drops the imaginary part of a complex tensor."""

    def save_on_cpu(self, *, pin_memory: bool = False) -> AbstractContextManager[Any]:  # noqa: ARG002 - part of the verb
        def kept(tensor: Any) -> Any:
            return (tensor.detach().real + 0j).to(tensor.dtype) if tensor.is_complex() else tensor.detach()

        return self.saved_tensors_hooks(kept, lambda packed: packed)


class RecomputationComparesShapesOnly(Mutant):
    """A checkpoint compares the shapes of the recomputed tensors, but not their dtypes."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        with patch.dict(CHECKS, default=lambda tensor: {"shape": tensor.shape}):
            return super().checkpoint(fn, *inputs, **how)
