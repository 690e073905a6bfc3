"""Mutants that lose part of a complex number, or a bit that is pending."""

from typing import Any

from hooklaw_backends.mutants.base import ChangedOnUnpack
from hooklaw_backends.torch_eager import torch


class ImaginaryPartLost(ChangedOnUnpack):
    """Complex numbers are read back as their real part."""

    def changed(self, tensor: Any) -> Any:
        return (tensor.real + 0j).to(tensor.dtype) if tensor.is_complex() else tensor


class SavedTensorsCastToComplex64(ChangedOnUnpack):
    """Complex numbers of double precision are read back in single precision."""

    def changed(self, tensor: Any) -> Any:
        return tensor.to(torch.complex64) if tensor.is_complex() else tensor


class PendingBitsDropped(ChangedOnUnpack):
    """A pending conjugation or negation is forgotten."""

    def changed(self, tensor: Any) -> Any:
        tensor = tensor.conj() if tensor.is_conj() else tensor
        return torch._neg_view(tensor) if tensor.is_neg() else tensor  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage] - no public way


class PendingBitsResolved(ChangedOnUnpack):
    """A pending conjugation or negation is carried out."""

    def changed(self, tensor: Any) -> Any:
        return tensor.resolve_conj().resolve_neg()
