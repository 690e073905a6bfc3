"""Copies on the host for each pack: torch's own save_on_cpu with pinned memory, and a packer that repairs it."""

from typing import Any

import torch
from torch import Tensor

from hooklaw_backends.offload.handles import Moved, Parcel
from hooklaw_backends.offload.layout import flatten
from hooklaw_backends.offload.packer import Handle, Medium, Packer, is_plain


class TorchPinned(torch.autograd.graph.save_on_cpu):
    """`torch.autograd.graph.save_on_cpu(pin_memory=True)`."""

    def __init__(self) -> None:
        super().__init__(pin_memory=True)


class CheckedCopy(Packer):
    """torch's pinned `save_on_cpu` with what it lacks to be lossless.

    A tensor that it does not copy is checked for changes in place. A copy gets back the strides that it drops. Sparse
    tensors and subclasses stay. Every pack is a copy of its own, on the stream of the computation; parameters too.
    """

    medium = "cpu"

    def __init__(self) -> None:
        super().__init__(_Host())

    def _must_stay(self, tensor: Tensor) -> bool:
        return not is_plain(tensor) or not tensor.numel()

    def _move(self, tensor: Tensor, medium: Medium) -> Handle:
        flat, layout = flatten(tensor)
        return Moved(medium.put(flat), layout)


class _Host(Medium):
    """Host memory, by torch's own hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks = TorchPinned()

    def put(self, flat: Tensor) -> Parcel:
        self.moved(out=flat.nbytes)
        return _OnHost(self, self.hooks.pack_hook(flat))


class _OnHost(Parcel):
    def __init__(self, host: _Host, packed: Any) -> None:
        self._host = host
        self._packed = packed

    def get(self, handle: Any) -> Tensor:  # noqa: ARG002 - nobody is waited for
        self._host.moved(back=self._packed[1].nbytes)
        return self._host.hooks.unpack_hook(self._packed)
