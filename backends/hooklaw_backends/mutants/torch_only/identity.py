"""Mutants that lose part of a complex number, or a lazy conjugate or negative bit."""

from typing import Any

from hooklaw_backends.mutants.base import ChangedOnUnpack
from hooklaw_backends.torch_eager import torch


class ImaginaryPartLost(ChangedOnUnpack):
    """A saved complex tensor loses its imaginary part."""

    def changed(self, tensor: Any) -> Any:
        return (tensor.real + 0j).to(tensor.dtype) if tensor.is_complex() else tensor


class SavedTensorsCastToComplex64(ChangedOnUnpack):
    """A saved complex128 tensor comes back as complex64."""

    def changed(self, tensor: Any) -> Any:
        return tensor.to(torch.complex64) if tensor.is_complex() else tensor


class PendingBitsDropped(ChangedOnUnpack):
    """A saved tensor loses its lazy conjugation or negation."""

    def changed(self, tensor: Any) -> Any:
        tensor = tensor.conj() if tensor.is_conj() else tensor
        return torch._neg_view(tensor) if tensor.is_neg() else tensor  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage] - there is no public API


class PendingBitsResolved(ChangedOnUnpack):
    """A saved tensor comes back with its lazy conjugation or negation resolved."""

    def changed(self, tensor: Any) -> Any:
        return tensor.resolve_conj().resolve_neg()
