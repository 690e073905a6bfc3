"""Layouts: a tensor as a flat run of elements, and what restores its strides and lazy bits."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

flip_negative: Any = torch._neg_view  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
# the bit of a real tensor has no public name


class Layout(NamedTuple):
    """What is lost when a tensor becomes a flat run of its elements."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    gaps: bool = False
    conjugate: bool = False
    negative: bool = False
    contiguous: bool = False

    def restore(self, flat: Tensor) -> Tensor:
        """Return a tensor over the flat run, with the strides and bits that the flattened tensor had."""
        if self.contiguous:
            return flat.view(self.size)
        tensor = self._spread(flat) if self.gaps else flat.as_strided(self.size, self.stride, flat.storage_offset())
        tensor = tensor.conj() if self.conjugate else tensor
        return flip_negative(tensor) if self.negative else tensor

    def _spread(self, flat: Tensor) -> Tensor:
        made = torch.empty_strided(self.size, self.stride, dtype=flat.dtype, device=flat.device)
        return made.copy_(flat.view(self.size))


def flatten(tensor: Tensor) -> tuple[Tensor, Layout]:
    """Return the elements of a dense tensor as one flat run, and the layout that restores it.

    The run is an alias wherever it is no longer than the tensor: permuted, overlapping or expanded tensors are not
    copied, and an expanded one stays as short as it is. Only where the strides leave gaps is a copy made without them.
    """
    conjugate, negative = tensor.is_conj(), tensor.is_neg()
    if tensor.is_contiguous() and not (conjugate or negative):
        return tensor.detach().view(-1), Layout(tuple(tensor.shape), tensor.stride(), contiguous=True)
    plain = flip_negative(tensor.detach()) if negative else tensor.detach()
    plain = plain.conj() if conjugate else plain
    size, stride = tuple(plain.shape), plain.stride()
    span = 1 + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    gaps = span > plain.numel() and not _overlaps(size, stride)
    flat = plain.contiguous().view(-1) if gaps else plain.as_strided((span,), (1,), plain.storage_offset())
    return flat, Layout(size, stride, gaps, conjugate, negative)


def _overlaps(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    reach = 0
    for step, extent in sorted((step, extent) for step, extent in zip(stride, size, strict=True) if extent > 1):
        if step <= reach:
            return True
        reach += step * (extent - 1)
    return False
