"""Mutants that read a saved tensor back with another value, shape, dtype or layout."""

from typing import Any

from hooklaw_backends.mutants.base import ChangedOnUnpack, Pair, Pairs
from hooklaw_backends.torch_eager import Hook, torch

LARGE = 65_536


class SavedTensorsRounded(ChangedOnUnpack):
    """Floats are read back with the precision of half of them."""

    def changed(self, tensor: Any) -> Any:
        return tensor.half().to(tensor.dtype) if tensor.is_floating_point() else tensor


class SavedTensorsCastToFloat32(ChangedOnUnpack):
    """Whatever is no complex number is read back as float32."""

    def changed(self, tensor: Any) -> Any:
        return tensor if tensor.is_complex() else tensor.float()


class ImaginaryPartLost(ChangedOnUnpack):
    """Complex numbers are read back as their real part."""

    def changed(self, tensor: Any) -> Any:
        return (tensor.real + 0j).to(tensor.dtype) if tensor.is_complex() else tensor


class SavedTensorsCastToComplex64(ChangedOnUnpack):
    """Complex numbers of double precision are read back in single precision."""

    def changed(self, tensor: Any) -> Any:
        return tensor.to(torch.complex64) if tensor.is_complex() else tensor


class SavedTensorsMadeContiguous(ChangedOnUnpack):
    """A saved tensor loses its strides."""

    def changed(self, tensor: Any) -> Any:
        return tensor.contiguous()


class SavedViewsReadAsTheirBase(Pairs):
    """A saved view is read back as the tensor that it is a view of."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def with_base(tensor: Any) -> Any:
            base = tensor._base  # noqa: SLF001 - there is no other name for it
            return pack(tensor), None if base is None else base.detach()

        return with_base, lambda both: unpack(both[0]) if both[1] is None else both[1]


class ExpandedTensorsSavedUnexpanded(ChangedOnUnpack):
    """A dimension that repeats its elements is read back with one of them."""

    def changed(self, tensor: Any) -> Any:
        for dimension, stride in enumerate(tensor.stride()):
            tensor = tensor if stride else tensor.narrow(dimension, 0, 1)
        return tensor


class ChannelsLastReadAsContiguous(ChangedOnUnpack):
    """The elements of a channels-last tensor are read in the order in which they lie in memory."""

    def changed(self, tensor: Any) -> Any:
        if tensor.dim() != len("NCHW") or not tensor.is_contiguous(memory_format=torch.channels_last):
            return tensor
        return tensor.as_strided((tensor.numel(),), (1,)).reshape(tensor.shape)


class PendingBitsDropped(ChangedOnUnpack):
    """A pending conjugation or negation is forgotten."""

    def changed(self, tensor: Any) -> Any:
        tensor = tensor.conj() if tensor.is_conj() else tensor
        return torch._neg_view(tensor) if tensor.is_neg() else tensor  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage] - no public way


class PendingBitsResolved(ChangedOnUnpack):
    """A pending conjugation or negation is carried out."""

    def changed(self, tensor: Any) -> Any:
        return tensor.resolve_conj().resolve_neg()


class SavedScalarsBecomeVectors(ChangedOnUnpack):
    """A tensor of no dimensions is read back with one."""

    def changed(self, tensor: Any) -> Any:
        return tensor if tensor.dim() else tensor.reshape(1)


class SavedTensorsSqueezed(ChangedOnUnpack):
    """Dimensions of size 1 are lost."""

    def changed(self, tensor: Any) -> Any:
        return tensor.squeeze()


class LargeSavedTensorsTruncated(ChangedOnUnpack):
    """Beyond 65,536 elements a saved tensor is read back as zeros."""

    def changed(self, tensor: Any) -> Any:
        if tensor.numel() <= LARGE:
            return tensor
        flat = tensor.clone().reshape(-1)
        flat[LARGE:] = 0
        return flat.reshape(tensor.shape)


class LargeSavedTensorsRounded(ChangedOnUnpack):
    """A saved tensor of more than 65,536 elements is read back as if it were bfloat16."""

    def changed(self, tensor: Any) -> Any:
        return tensor.bfloat16().to(tensor.dtype) if tensor.numel() > LARGE else tensor
