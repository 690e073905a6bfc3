"""Offload strategies for the tensors that autograd saves, one file for each family.

`find` makes a strategy from its name: shipped, parts joined by ``+``, or a user's ``module:attribute``.
"""

from dataclasses import dataclass

from hooklaw.errors import StrategyError
from hooklaw.offload.steps import Strategy
from hooklaw_backends.offload.naming import find

__all__ = ["STRATEGIES", "Shipped", "Strategy", "StrategyError", "find"]


@dataclass(frozen=True, slots=True)
class Shipped:
    """A strategy that the benchmark runs by default; a call makes a new instance."""

    spec: str
    text: str

    def __call__(self) -> Strategy:
        return find(self.spec)


TEXTS = {
    "none": "the plain step: no hooks",
    "hook-only": "hooks that return what they are given: what hooks cost by themselves",
    "keep-all": "a packer that keeps every tensor and checks it for changes in place: what packers add to hooks",
    "save-on-cpu": "torch's save_on_cpu: a copy on the host for each pack, on the stream of the computation",
    "checked-copy": "torch's pinned save_on_cpu, repaired: changes in place are an error, strides come back",
    "disk-raw": "raw bytes in an unnamed file, each stretch once",
    "disk-save": "the same file by torch.save and torch.load, as in PyTorch's tutorial",
    "bf16": "LOSSY: float32 saved as bfloat16",
    "int8": "LOSSY: floats saved as int8 by blocks of 256",
    "async": "copies on streams of their own, fetched ahead in backward",
    "checkpoint": "segments computed again in backward, their boundaries kept",
    "checkpoint+disk-raw": "segments computed again, their boundaries on disk",
    "checkpoint+async": "segments computed again, their boundaries offloaded asynchronously",
    "checkpoint+bf16": "LOSSY: segments computed again from boundaries saved as bfloat16",
    "fraction:0.5+disk-raw": "half of the bytes on disk, spread over forward",
    "fraction:0.3+async": "three tenths of the bytes offloaded asynchronously",
}
STRATEGIES: dict[str, Shipped] = {name: Shipped(name, text) for name, text in TEXTS.items()}
