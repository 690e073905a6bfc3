"""Emulation of overlap in real time: ``python -m hooklaw_backends.offload.emulation`` prints it.

The computation is emulated too, by sleeping, so that a busy machine does not slow it down; the copies are real.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hooklaw.offload.formula import StepCost
from hooklaw_backends.offload.asynchronous import Async
from hooklaw_backends.offload.link import Clock, EmulatedLane, Lane, LaneLink, VirtualLane

LAYERS = 40
NBYTES = 1 << 18
FORWARD, BACKWARD = 0.01, 0.02  # seconds a layer
CAP = 8 * NBYTES
ROUNDS = 5
Sleep = Callable[[float], object]


class Sleeping(torch.autograd.Function):
    """An operation that saves its input and takes a set time each way."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        x, sleep, seconds = inputs
        ctx.save_for_backward(x)
        ctx.sleep, ctx.seconds = sleep, seconds
        sleep(seconds[0])
        return x + 1

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        _ = ctx.saved_tensors
        ctx.sleep(ctx.seconds[1])
        return gradients[0], None, None


def in_real_time(rate: float) -> float:
    """Return the seconds of a step, the best of a few, since a busy machine sleeps too long."""
    return min(_seconds(EmulatedLane(rate), EmulatedLane(rate), time.sleep, time.perf_counter) for _ in range(ROUNDS))


def on_a_virtual_clock(rate: float) -> float:
    """Return the seconds of the same step on a virtual clock."""
    clock = Clock()
    return _seconds(VirtualLane(clock, rate), VirtualLane(clock, rate), clock.sleep, lambda: clock.now)


def _seconds(out: Lane, back: Lane, sleep: Sleep, now: Callable[[], float]) -> float:
    packer = Async(cap=CAP, window=CAP, min_bytes=0, link=lambda _: LaneLink(out, back))
    y = torch.ones(NBYTES // 4, requires_grad=True) * 1
    began = now()
    with packer:
        for _ in range(LAYERS):
            y: Tensor = Sleeping.apply(y, sleep, (FORWARD, BACKWARD))  # pyright: ignore[reportAssignmentType]
    y.sum().backward()
    ended = now()
    packer.close()
    return ended - began


def measured(speed: float) -> dict[str, float]:
    """Return the times of the step on a link `speed` times as fast as forward needs."""
    rate = speed * NBYTES / FORWARD
    step = StepCost(forward=LAYERS * FORWARD, backward=LAYERS * BACKWARD, out_rate=rate, back_rate=rate)
    floor, virtual, real = step.floor(LAYERS * NBYTES, resident=CAP), on_a_virtual_clock(rate), in_real_time(rate)
    return {
        "speed": speed,
        "plain": step.plain(),
        "synchronous": step.synchronous(LAYERS * NBYTES),
        "floor": floor,
        "measured": real,
        "efficiency": floor / real,
        "efficiency on a virtual clock": floor / virtual,
    }


def main() -> None:
    """Print a line of JSON for each speed of the link."""
    torch.set_num_threads(1)
    for speed in (0.25, 0.5, 1.0, 2.0, 4.0):
        sys.stdout.write(json.dumps({name: round(value, 4) for name, value in measured(speed).items()}) + "\n")


if __name__ == "__main__":
    main()
