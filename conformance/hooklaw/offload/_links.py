"""The ceiling of a medium, measured in the same run: the rate of one long copy each way."""

import statistics
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import torch

from hooklaw.offload.steps import Clock

TIMES = 3
MOST = 1 << 30
"""Longer copies are no faster."""


class Ceiling(NamedTuple):
    """Bytes a second."""

    out: float
    back: float


def ceiling(medium: str, nbytes: int, device: torch.device, rate: float, clock: Clock) -> Ceiling:
    """Return the rates of a medium; an emulated link has the rate that it was set to."""
    if rate:
        return Ceiling(rate, rate)
    size = max(1, min(nbytes, MOST))
    if medium.startswith("disk"):
        return disk(size, clock)
    return memory(size, device, clock)


def disk(nbytes: int, clock: Clock) -> Ceiling:
    """Write and read a file, through the page cache."""
    data = bytearray(nbytes)
    with tempfile.TemporaryFile(prefix="hooklaw-", buffering=0) as file:

        def write() -> None:
            file.seek(0)
            file.write(data)

        def read() -> None:
            file.seek(0)
            file.readinto(data)

        return Ceiling(nbytes / _seconds(write, clock), nbytes / _seconds(read, clock))


def memory(nbytes: int, device: torch.device, clock: Clock) -> Ceiling:
    """Copy to host memory, pinned where there is a device, and back."""
    cuda = device.type == "cuda"
    there = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    host = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=cuda)

    def copy(target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)
        if cuda:
            torch.cuda.synchronize(device)

    return Ceiling(
        nbytes / _seconds(lambda: copy(host, there), clock),
        nbytes / _seconds(lambda: copy(there, host), clock),
    )


def _seconds(action: Callable[[], object], clock: Clock) -> float:
    action()
    taken: list[float] = []
    for _ in range(TIMES):
        began = clock()
        action()
        taken.append(clock() - began)
    return max(statistics.median(taken), 1e-9)
