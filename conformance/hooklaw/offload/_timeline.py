"""When a CUDA device computed and when it copied during one step, from torch's profiler."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

LANES = {"Memcpy DtoH": "out", "Memcpy HtoD": "back"}
"""What copies to the host and back are called; all else that the device does is computation."""
MERGED = 1000
"""Gaps shorter than this part of the step are not shown."""
Span = tuple[float, float]


def timeline(step: Callable[[], object]) -> dict[str, list[Span]]:
    """Take a step, and return when the device computed (`compute`) and copied to the host (`out`) and `back`.

    The spans are seconds since the first of them began. The profiler makes the step a little longer.
    """
    profiler: Any = torch.autograd.profiler  # torch.profiler's own class imports a compiler, which takes a second
    with profiler.profile(use_cpu=False, use_kineto=True, use_device="cuda") as profile:
        step()
        torch.cuda.synchronize()
    return lanes(event for event in profile.kineto_results.events() if "CUDA" in str(event.device_type()))


def lanes(events: Iterable[Any]) -> dict[str, list[Span]]:
    """Return the spans of each lane that has any."""
    spans: dict[str, list[Span]] = {}
    for event in events:
        lane = LANES.get(event.name()[: len("Memcpy DtoH")], "compute")
        began = event.start_ns() / 1e9
        spans.setdefault(lane, []).append((began, began + event.duration_ns() / 1e9))
    everything = [span for lane in spans.values() for span in lane]
    first, last = min((span[0] for span in everything), default=0.0), max((span[1] for span in everything), default=0.0)
    gap = (last - first) / MERGED
    return {
        lane: [(round(start - first, 6), round(end - first, 6)) for start, end in merged(found, gap)]
        for lane, found in spans.items()
    }


def merged(spans: Iterable[Span], gap: float) -> list[Span]:
    """Return the spans in order, joined where the gap between two is no longer than `gap`."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
