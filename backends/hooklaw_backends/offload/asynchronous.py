"""Offloading during the computation: separate streams on CUDA, an emulated link elsewhere."""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from hooklaw_backends.offload.cuda_link import CudaLink
from hooklaw_backends.offload.handles import Parcel
from hooklaw_backends.offload.link import Lane, LaneLink, Link
from hooklaw_backends.offload.packer import Medium, Options, Packer
from hooklaw_backends.offload.scheduler import Scheduler

MIB = 1 << 20
GIB = 1 << 30
MakeLink = Callable[[torch.device], Link]


def link_of(device: torch.device) -> Link:
    """Return the link of a device; a copy from the CPU to itself is complete at once."""
    return CudaLink(device) if device.type == "cuda" else LaneLink(Lane(), Lane())


class Links(Medium):
    """A scheduler for each device that tensors come from."""

    def __init__(self, link: MakeLink, *, cap: int, window: int) -> None:
        super().__init__()
        self._made = lambda device: Scheduler(link(device), self.moved, cap=cap, window=window)
        self._schedulers: dict[torch.device, Scheduler] = {}

    def put(self, flat: Tensor) -> Parcel:
        return self.scheduler(flat.device).put(flat)

    def scheduler(self, device: torch.device) -> Scheduler:
        """Return the scheduler of a device, made when first asked for."""
        with self._lock:
            if device not in self._schedulers:
                self._schedulers[device] = self._made(device)
            return self._schedulers[device]

    def close(self) -> None:
        for scheduler in self._schedulers.values():
            scheduler.close()


class Async(Packer):
    """Copies out and back during the computation.

    At most `cap` bytes are on their way out, up to `window` bytes are fetched ahead in backward, tensors of less than
    `min_bytes` stay, and host memory is pinned in exactly the sizes needed. A tensor that is changed in place while its
    copy is under way is an error in backward, as it is without hooks.
    """

    medium = "cpu"

    def __init__(
        self, *, cap: int = GIB, window: int = GIB, link: MakeLink = link_of, **options: Unpack[Options]
    ) -> None:
        self.links = Links(link, cap=cap, window=window)
        super().__init__(self.links, **{"min_bytes": MIB, **options})


class AsyncAll(Async):
    """The same without a threshold, so that small tensors show what it does."""

    def __init__(self) -> None:
        super().__init__(min_bytes=0)
