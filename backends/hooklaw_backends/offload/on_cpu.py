"""torch's own save_on_cpu, plain and pinned, as the anchor that the others are measured against."""

from typing import Any

import torch
from torch import Tensor

from hooklaw_backends.offload.handles import Handle, Kept, check_version, version_of
from hooklaw_backends.offload.layout import flatten
from hooklaw_backends.offload.packer import Packer, is_plain


class SaveOnCpu(Packer):
    """`torch.autograd.graph.save_on_cpu`: every pack is a copy of its own on the stream of the computation.

    What it lacks to be lossless is added. A tensor that is on the CPU already is not copied by it, and could be changed
    in place unseen: its version is checked. The pinned copy drops the strides: it is given the elements as they lie,
    and the strides are put back. Sparse tensors and subclasses stay. Parameters it copies, and so does this.
    """

    name = "save-on-cpu"
    medium = "cpu"
    pin_memory = False

    def __init__(self) -> None:
        super().__init__()
        self._torch = torch.autograd.graph.save_on_cpu(pin_memory=self.pin_memory)

    def pack(self, tensor: Tensor) -> Handle:
        if not is_plain(tensor) or not tensor.numel():
            return super().pack(tensor)
        self._count(packs=1, bytes_packed=tensor.nbytes)
        handle = _OnCpu(self._torch, tensor)
        self._count(**{"kept": 1} if handle.stayed else {"sent": handle.nbytes})
        return handle

    def unpack(self, handle: Any) -> Tensor:
        self._count(fetched=0 if isinstance(handle, Kept) or handle.stayed else handle.nbytes)
        return super().unpack(handle)

    def counters(self) -> dict[str, int]:
        with self._lock:
            moved = {"bytes_out": self._counts["sent"], "bytes_back": self._counts["fetched"]}
        return {**super().counters(), **moved}


class SaveOnCpuPinned(SaveOnCpu):
    """The same with pinned host memory where there is an accelerator; on the CPU alone it makes a clone."""

    name = "save-on-cpu-pinned"
    pin_memory = True


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
