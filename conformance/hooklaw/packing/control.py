"""A correct packer, which tests the properties themselves."""

from typing import Any, cast

import torch
from torch.autograd.graph import saved_tensors_hooks


class Right(saved_tensors_hooks):
    """Keeps a copy of each tensor, with its layout; keeps a parameter itself, and refuses in-place changes of it."""

    def __init__(self) -> None:
        super().__init__(_pack, _unpack)


def _pack(tensor: torch.Tensor) -> tuple[Any, ...]:
    base = tensor if tensor._base is None else tensor._base  # noqa: SLF001 - its only name
    if isinstance(base, torch.nn.Parameter):
        return tensor.detach(), tensor._version, None  # noqa: SLF001 - its only name
    repeated = tensor.layout == torch.strided and 0 in tensor.stride()
    kept = tensor.detach()
    if repeated:
        for place, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            kept = kept.narrow(place, 0, 1) if stride == 0 and size > 1 else kept
    lazy = tensor.layout == torch.strided and (tensor.is_conj() or tensor.is_neg())
    return (_lazily_copied(kept) if lazy else kept.clone()), None, tensor.shape if repeated else None


def _lazily_copied(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.conj() if tensor.is_conj() else tensor
    plain = _negated(plain) if plain.is_neg() else plain
    copy = plain.clone()
    copy = _negated(copy) if tensor.is_neg() else copy
    return copy.conj() if tensor.is_conj() else copy


def _negated(tensor: torch.Tensor) -> torch.Tensor:
    return cast("Any", torch)._neg_view(tensor)  # noqa: SLF001 - torch has no public name for a lazy negation


def _unpack(packed: tuple[Any, ...]) -> torch.Tensor:
    tensor, version, shape = packed
    if version is not None and tensor._version != version:  # noqa: SLF001 - its only name
        raise RuntimeError("a parameter that backward needs was changed in place after it was saved")
    return tensor if shape is None else tensor.expand(shape)
