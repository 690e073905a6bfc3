"""Offloading during the computation: separate streams on CUDA, an emulated link elsewhere."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from hooklaw_backends.offload.cuda_link import CudaLink
from hooklaw_backends.offload.handles import Parcel
from hooklaw_backends.offload.link import InstantLane, LaneLink, Link
from hooklaw_backends.offload.packer import Choice, Codec, Packer
from hooklaw_backends.offload.scheduler import Scheduler

MIB = 1 << 20
GIB = 1 << 30
MakeLink = Callable[[torch.device], Link]


def link_of(device: torch.device) -> Link:
    """Return the link of a device; a copy from the CPU to itself is complete at once."""
    return CudaLink(device) if device.type == "cuda" else LaneLink(InstantLane(), InstantLane())


class Links:
    """A scheduler for each device that tensors come from."""

    def __init__(self, make: MakeLink, *, cap: int, window: int) -> None:
        self._make = make
        self._cap = cap
        self._window = window
        self._schedulers: dict[torch.device, Scheduler] = {}
        self._lock = threading.Lock()

    @property
    def bytes_out(self) -> int:
        return sum(scheduler.bytes_out for scheduler in self._schedulers.values())

    @property
    def bytes_back(self) -> int:
        return sum(scheduler.bytes_back for scheduler in self._schedulers.values())

    def put(self, flat: Tensor) -> Parcel:
        return self.scheduler(flat.device).put(flat)

    def scheduler(self, device: torch.device) -> Scheduler:
        """Return the scheduler of a device, made when first asked for."""
        with self._lock:
            if device not in self._schedulers:
                self._schedulers[device] = Scheduler(self._make(device), cap=self._cap, window=self._window)
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

    name = "async"
    medium = "cpu"

    def __init__(  # noqa: PLR0913 - each is a figure that the measurements vary, and all are keywords
        self,
        *,
        cap: int = GIB,
        window: int = GIB,
        min_bytes: int = MIB,
        link: MakeLink = link_of,
        codec: Codec | None = None,
        choice: Choice | None = None,
    ) -> None:
        self.links = Links(link, cap=cap, window=window)
        super().__init__(self.links, codec=codec, choice=choice, min_bytes=min_bytes)


class AsyncAll(Async):
    """The same without a threshold, so that small tensors show what it does."""

    def __init__(self) -> None:
        super().__init__(min_bytes=0)
