"""Mutants that unpack a saved tensor with another value, shape, dtype or layout."""

import struct
from itertools import count
from math import prod
from typing import Any

from hooklaw.model.strided import contiguous
from hooklaw_backends.mutants.base import ChangedOnUnpack, Hook, Pair, Pairs

LARGE = 65_536


def half(value: float) -> float:
    """Round a number to float16; return a number beyond its range unchanged."""
    try:
        return struct.unpack("e", struct.pack("e", value))[0]
    except OverflowError:
        return value


def bfloat16(value: float) -> float:
    """Round a number to bfloat16."""
    (bits,) = struct.unpack("I", struct.pack("f", value))
    return struct.unpack("f", struct.pack("I", bits & 0xFFFF_0000))[0]


class SavedTensorsRounded(ChangedOnUnpack):
    """Saved floating-point tensors are rounded to float16."""

    def changed(self, tensor: Any) -> Any:
        return self.mapped(tensor, half) if self.is_floating(tensor) else tensor


class SavedTensorsCastToFloat32(ChangedOnUnpack):
    """Saved tensors that are not complex come back as float32."""

    def changed(self, tensor: Any) -> Any:
        return tensor if "complex" in self.dtype(tensor) else self.cast(tensor, "float32")


class SavedTensorsMadeContiguous(ChangedOnUnpack):
    """Saved tensors come back contiguous."""

    def changed(self, tensor: Any) -> Any:
        return self.contiguous(tensor)


class SavedViewsReadAsTheirBase(Pairs):
    """A saved view comes back as its base."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def with_base(tensor: Any) -> Any:
            base = self.base_of(tensor)
            return pack(tensor), None if base is None else self.detach(base)

        return with_base, lambda both: unpack(both[0]) if both[1] is None else both[1]


class ExpandedTensorsSavedUnexpanded(ChangedOnUnpack):
    """A saved tensor comes back with its expanded dimensions at size 1."""

    def changed(self, tensor: Any) -> Any:
        strides = self.stride(tensor)
        sizes = zip(self.shape(tensor), strides, strict=True)
        return self.strided(tensor, tuple(size if stride else min(size, 1) for size, stride in sizes), strides)


class ChannelsLastReadAsContiguous(ChangedOnUnpack):
    """A saved channels-last tensor comes back with its elements in memory order."""

    def changed(self, tensor: Any) -> Any:
        shape = self.shape(tensor)
        if len(shape) != len("NCHW") or self.stride(tensor) != (prod(shape[1:]), 1, shape[1] * shape[3], shape[1]):
            return tensor
        return self.strided(tensor, shape, contiguous(shape))


class SavedScalarsBecomeVectors(ChangedOnUnpack):
    """A saved 0-d tensor comes back as a 1-d tensor."""

    def changed(self, tensor: Any) -> Any:
        return tensor if self.shape(tensor) else self.strided(tensor, (1,), (1,))


class SavedTensorsSqueezed(ChangedOnUnpack):
    """Saved tensors lose their dimensions of size 1."""

    def changed(self, tensor: Any) -> Any:
        kept = [pair for pair in zip(self.shape(tensor), self.stride(tensor), strict=True) if pair[0] != 1]
        return self.strided(tensor, tuple(size for size, _ in kept), tuple(stride for _, stride in kept))


class LargeSavedTensorsTruncated(ChangedOnUnpack):
    """A saved tensor is zero after its first 65,536 elements."""

    def changed(self, tensor: Any) -> Any:
        if prod(self.shape(tensor)) <= LARGE:
            return tensor
        place = count()
        return self.mapped(tensor, lambda value: value if next(place) < LARGE else 0)


class LargeSavedTensorsRounded(ChangedOnUnpack):
    """A saved tensor of more than 65,536 elements is rounded to bfloat16."""

    def changed(self, tensor: Any) -> Any:
        return self.mapped(tensor, bfloat16) if prod(self.shape(tensor)) > LARGE else tensor
