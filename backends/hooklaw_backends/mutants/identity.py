"""Mutants that unpack a saved tensor with another value, shape, dtype or layout."""

import struct
from itertools import count
from math import prod
from typing import Any

from hooklaw.model.strided import contiguous
from hooklaw_backends.mutants.base import Hook, Mutant, Pair, changing_unpacked, pairs

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


@changing_unpacked
def saved_tensors_rounded(self: Mutant, tensor: Any) -> Any:
    """Saved floating-point tensors are rounded to float16."""
    return self.mapped(tensor, half) if self.is_floating(tensor) else tensor


@pairs("saved_tensors_hooks")
def saved_intermediates_rounded(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """Saved floating-point tensors that are not leaves are rounded to whole numbers."""

    def read(both: Any) -> Any:
        tensor, is_leaf = unpack(both[0]), both[1]
        return tensor if is_leaf or not self.is_floating(tensor) else self.mapped(tensor, round)

    return lambda tensor: (pack(tensor), self.is_leaf(tensor)), read


@changing_unpacked
def saved_tensors_cast_to_float32(self: Mutant, tensor: Any) -> Any:
    """Saved tensors that are not complex come back as float32."""
    return tensor if "complex" in self.dtype(tensor) else self.cast(tensor, "float32")


@changing_unpacked
def saved_tensors_made_contiguous(self: Mutant, tensor: Any) -> Any:
    """Saved tensors come back contiguous."""
    return self.contiguous(tensor)


@pairs("saved_tensors_hooks")
def saved_views_read_as_their_base(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """A saved view comes back as its base."""

    def with_base(tensor: Any) -> Any:
        base = self.base_of(tensor)
        return pack(tensor), None if base is None else self.detach(base)

    return with_base, lambda both: unpack(both[0]) if both[1] is None else both[1]


@changing_unpacked
def expanded_tensors_saved_unexpanded(self: Mutant, tensor: Any) -> Any:
    """A saved tensor comes back with its expanded dimensions at size 1."""
    strides = self.stride(tensor)
    sizes = zip(self.shape(tensor), strides, strict=True)
    return self.strided(tensor, tuple(size if stride else min(size, 1) for size, stride in sizes), strides)


@changing_unpacked
def channels_last_read_as_contiguous(self: Mutant, tensor: Any) -> Any:
    """A saved channels-last tensor comes back with its elements in memory order."""
    shape = self.shape(tensor)
    if len(shape) != len("NCHW") or self.stride(tensor) != (prod(shape[1:]), 1, shape[1] * shape[3], shape[1]):
        return tensor
    return self.strided(tensor, shape, contiguous(shape))


@changing_unpacked
def saved_scalars_become_vectors(self: Mutant, tensor: Any) -> Any:
    """A saved 0-d tensor comes back as a 1-d tensor."""
    return tensor if self.shape(tensor) else self.strided(tensor, (1,), (1,))


@changing_unpacked
def saved_tensors_squeezed(self: Mutant, tensor: Any) -> Any:
    """Saved tensors lose their dimensions of size 1."""
    kept = [pair for pair in zip(self.shape(tensor), self.stride(tensor), strict=True) if pair[0] != 1]
    return self.strided(tensor, tuple(size for size, _ in kept), tuple(stride for _, stride in kept))


@changing_unpacked
def large_saved_tensors_truncated(self: Mutant, tensor: Any) -> Any:
    """A saved tensor is zero after its first 65,536 elements."""
    if prod(self.shape(tensor)) <= LARGE:
        return tensor
    place = count()
    return self.mapped(tensor, lambda value: value if next(place) < LARGE else 0)


@changing_unpacked
def large_saved_tensors_rounded(self: Mutant, tensor: Any) -> Any:
    """A saved tensor of more than 65,536 elements is rounded to bfloat16."""
    return self.mapped(tensor, bfloat16) if prod(self.shape(tensor)) > LARGE else tensor
