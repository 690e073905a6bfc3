"""The link of a CUDA device: a stream for each direction, exactly pinned memory, and events that order the copies."""

from typing import Any

import torch
from torch import Tensor

from hooklaw_backends.offload.arena import Arena, pinned
from hooklaw_backends.offload.link import Copy, Link


class CudaLink(Link):
    """Two copy streams next to the stream of the computation.

    A copy begins after what the computing stream was given so far. That makes the source complete, and on the way back
    it makes the target safe to write: its memory may have belonged to something that is still being computed.
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda, arena: Arena | None = None) -> None:
        self.arena = arena or Arena(pinned)
        self._device = device
        self._cuda = cuda
        self._out = cuda.Stream(device)
        self._back = cuda.Stream(device)

    def close(self) -> None:
        self._out.synchronize()
        self._back.synchronize()
        self.arena.close()

    def copy(self, target: Tensor, source: Tensor, *, out: bool) -> Copy:
        stream, on_device = (self._out, source) if out else (self._back, target)
        home = self._cuda.current_stream(self._device)
        stream.wait_stream(home)
        with self._cuda.stream(stream):
            target.copy_(source, non_blocking=True)
            event = stream.record_event()
        return CudaCopy(self._cuda, event, home, on_device)


class CudaCopy(Copy):
    """A copy that the computing stream waits for, on the device: the host goes on.

    The stream that owns the memory on the device is the one that asked for the copy, so it waits as well as the
    caller's: memory given back to it must not be written again before the copy is over.
    """

    def __init__(self, cuda: Any, event: Any, home: Any, on_device: Tensor) -> None:
        self._cuda = cuda
        self._event = event
        self._home = home
        self._on_device: Tensor | None = on_device

    def done(self) -> bool:
        return self._event.query()

    def wait(self) -> None:
        self._home.wait_event(self._event)
        here = self._cuda.current_stream(self._home.device)
        if self._on_device is not None and here != self._home:
            here.wait_event(self._event)
            self._on_device.record_stream(here)
        self._on_device = None
