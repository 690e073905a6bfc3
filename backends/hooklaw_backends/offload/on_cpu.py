"""Copies on the host for each pack: torch's own save_on_cpu with pinned memory, and a packer that repairs it."""

from typing import Any

import torch
from torch import Tensor

from hooklaw_backends.offload.handles import Handle, check_version, version_of
from hooklaw_backends.offload.layout import flatten
from hooklaw_backends.offload.packer import Packer, is_plain


class TorchPinned(torch.autograd.graph.save_on_cpu):
    """`torch.autograd.graph.save_on_cpu(pin_memory=True)`."""

    def __init__(self) -> None:
        super().__init__(pin_memory=True)


class CheckedCopy(Packer):
    """torch's pinned `save_on_cpu` with what it lacks to be lossless.

    A tensor that it does not copy is checked for changes in place. A copy gets back the strides that it drops. Sparse
    tensors and subclasses stay. Every pack is a copy of its own, on the stream of the computation; parameters too.
    """

    name = "checked-copy"
    medium = "cpu"

    def __init__(self) -> None:
        super().__init__()
        self._torch = TorchPinned()

    def pack(self, tensor: Tensor) -> Handle:
        if not is_plain(tensor) or not tensor.numel():
            return super().pack(tensor)
        handle = _OnCpu(self._torch, tensor)
        if self._counts is not None:
            moved = {"kept": 1} if handle.stayed else {"sent": handle.nbytes}
            self._count(packs=1, bytes_packed=tensor.nbytes, **moved)
        return handle

    def unpack(self, handle: Any) -> Tensor:
        if self._counts is not None and isinstance(handle, _OnCpu) and not handle.stayed:
            self._count(fetched=handle.nbytes)
        return super().unpack(handle)

    def counters(self) -> dict[str, int]:
        found, counts = super().counters(), self._counts or {}
        with self._lock:
            return {**found, "bytes_out": counts.get("sent", 0), "bytes_back": counts.get("fetched", 0)}


class _OnCpu:
    __slots__ = ("__weakref__", "_hooks", "_layout", "_packed", "_source", "nbytes", "stayed")

    def __init__(self, hooks: Any, tensor: Tensor) -> None:
        source, self._layout = flatten(tensor)
        self._hooks = hooks
        self._packed = hooks.pack_hook(source)
        self.stayed = self._packed[1].is_set_to(source)
        self.nbytes = source.nbytes
        self._source = (source, version_of(source)) if self.stayed else None

    def get(self) -> Tensor:
        if self._source:
            check_version(*self._source)
        return self._layout.restore(self._hooks.unpack_hook(self._packed))
