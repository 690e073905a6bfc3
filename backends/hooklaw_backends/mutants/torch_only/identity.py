"""Mutants that lose part of a complex number, or a lazy conjugate or negative bit."""

from typing import Any

from hooklaw_backends.mutants.base import Mutant, changing_unpacked
from hooklaw_backends.torch_eager import torch


@changing_unpacked
def imaginary_part_lost(self: Mutant, tensor: Any) -> Any:
    """A saved complex tensor loses its imaginary part."""
    return (tensor.real + 0j).to(tensor.dtype) if tensor.is_complex() else tensor


@changing_unpacked
def saved_tensors_cast_to_complex64(self: Mutant, tensor: Any) -> Any:
    """A saved complex128 tensor comes back as complex64."""
    return tensor.to(torch.complex64) if tensor.is_complex() else tensor


@changing_unpacked
def pending_bits_dropped(self: Mutant, tensor: Any) -> Any:
    """A saved tensor loses its lazy conjugation or negation."""
    tensor = tensor.conj() if tensor.is_conj() else tensor
    return torch._neg_view(tensor) if tensor.is_neg() else tensor  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage] - there is no public API


@changing_unpacked
def pending_bits_resolved(self: Mutant, tensor: Any) -> Any:
    """A saved tensor comes back with its lazy conjugation or negation resolved."""
    return tensor.resolve_conj().resolve_neg()
