"""Distances of gradients from those of the plain step."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hooklaw.offload.steps import Stepper
from hooklaw.offload.workloads import Workload

NOWHERE = 1e300
"""The distance of a gradient that is missing or not finite."""
NOISE = 4
"""A lossless strategy may be off by so many times the noise of the plain step, which is 0 on one CPU thread."""
Gradients = Sequence[Tensor | None]


class Plain(NamedTuple):
    """The plain step's results from the model's initial state."""

    gradients: Gradients
    buffers: list[Tensor]
    exact: Gradients
    """In float64."""
    error64: float
    noise: float


def plain(workload: Workload, precision: str) -> Plain:
    """Take the plain step twice, and once in float64."""
    first, second = _once(workload, precision), _once(workload, precision)
    stepper = Stepper(workload.double(), "fp32")
    stepper.step()
    gradients, exactly = first.gradients(), stepper.gradients()
    noise = distance(second.gradients(), gradients)
    return Plain(gradients, first.buffers(), exactly, distance(gradients, exactly), noise)


def distance(seen: Gradients, expected: Gradients) -> float:
    """Return the norm of the difference divided by the norm, of all gradients together."""
    difference = norm = 0.0
    for own, other in zip(seen, expected, strict=True):
        if own is None or other is None or own.shape != other.shape:
            if own is not other:
                return NOWHERE
            continue
        difference += float((own.double() - other.double()).square().sum())
        norm += float(other.double().square().sum())
    found = (difference / norm) ** 0.5 if norm else float(difference > 0)
    return min(NOWHERE, found)  # in this order: a NaN is not below it


def complaint(error: float, *, lossless: bool, tolerance: float, noise: float) -> str:
    """Return what is wrong with the gradients, or nothing."""
    allowed = NOISE * noise if lossless else tolerance
    if error <= allowed:
        return ""
    if error >= NOWHERE:
        return "wrong gradients: one is missing, has another shape, or is not finite"
    why = "it claims to be lossless" if lossless else f"it claims {tolerance:g} at most"
    return f"wrong gradients: off by {error:.2g}, and {why}"


def same(found: list[Tensor], expected: list[Tensor], allowed: float) -> bool:
    """Return whether buffers are equal, up to the noise of the plain step."""
    if len(found) != len(expected):
        return False
    pairs = zip(found, expected, strict=True)
    return all(a.shape == b.shape and (torch.equal(a, b) or distance([a], [b]) <= allowed) for a, b in pairs)


def _once(workload: Workload, precision: str) -> Stepper:
    stepper = Stepper(workload.copied(), precision)
    torch.manual_seed(1)
    stepper.step()
    return stepper
