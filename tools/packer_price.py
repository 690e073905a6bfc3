"""Measure what packers cost for each hooked tensor: `python tools/packer_price.py [ROUNDS]`, with torch.

Every round takes a chain of small operations three times, in changing order: without hooks, with bare hooks, and under
the packer. A price is what hooks add to the chain for each saved tensor, in processor time of the thread; its ratio is
the packer's price to that of the bare hooks. For tensors that stay, bare hooks return what they are given; for tensors
that move, they do by themselves what the packer does: copy, write, convert. Least times, since other work only adds.
"""

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from hooklaw_backends.offload.asynchronous import Async, AsyncAll
from hooklaw_backends.offload.choices import Fraction
from hooklaw_backends.offload.disk import DiskRaw, bytes_of
from hooklaw_backends.offload.lossy import Bf16
from hooklaw_backends.offload.on_cpu import CheckedCopy
from hooklaw_backends.offload.plain import HookOnly, KeepAll

Make = Callable[[], AbstractContextManager[Any]]
SMALL, LARGE = 1 << 6, 1 << 18
"""Elements of float32: 256 bytes, and 1 MiB."""


def copied() -> saved_tensors_hooks:
    """Return bare hooks that copy to the host and back."""
    return saved_tensors_hooks(lambda t: (t.device, t.to("cpu", copy=True)), lambda packed: packed[1].to(packed[0]))


def narrowed() -> saved_tensors_hooks:
    """Return bare hooks that save bfloat16."""
    return saved_tensors_hooks(lambda t: t.to(torch.bfloat16), lambda t: t.to(torch.float32))


def written() -> saved_tensors_hooks:
    """Return bare hooks that write raw bytes to one file, each in a place of its own, and read them back."""
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as the hooks
    places = [0]

    def pack(tensor: Tensor) -> tuple[int, torch.Size, torch.dtype]:
        start = places[0] % (64 * LARGE)
        places[0] += tensor.nbytes
        os.pwrite(file.fileno(), bytes_of(tensor), start)
        return start, tensor.shape, tensor.dtype

    def unpack(packed: tuple[int, torch.Size, torch.dtype]) -> Tensor:
        start, shape, dtype = packed
        back = torch.empty(shape, dtype=dtype)
        os.preadv(file.fileno(), [bytes_of(back)], start)
        return back

    return saved_tensors_hooks(pack, unpack)


PRICES: dict[str, tuple[Make, Make, int]] = {
    "keep-all": (KeepAll, HookOnly, SMALL),
    "async, below its threshold": (Async, HookOnly, SMALL),
    "disk-raw, below a threshold": (lambda: DiskRaw(min_bytes=LARGE), HookOnly, SMALL),
    "fraction:0+disk-raw": (lambda: DiskRaw(choice=Fraction(0)), HookOnly, SMALL),
    "checked-copy, moved": (CheckedCopy, copied, LARGE),
    "async, moved": (AsyncAll, copied, LARGE),
    "disk-raw, moved": (DiskRaw, written, LARGE),
    "bf16, moved": (Bf16, narrowed, LARGE),
}


def seconds(hooks: AbstractContextManager[Any], elements: int, operations: int) -> float:
    """Return the processor time of a chain for each tensor that it saves."""
    y = torch.rand(elements, requires_grad=True) + 1
    began = time.thread_time()
    with hooks:
        for _ in range(operations):
            y = y.square().sqrt()
        loss = y.sum()
    loss.backward()
    taken = time.thread_time() - began
    return taken / (2 * operations)


def price(packer: Make, bare: Make, elements: int, rounds: int) -> tuple[float, float]:
    """Return the prices of bare hooks and of a packer, in seconds."""
    hooks = (nullcontext(), bare(), packer())
    taken: list[list[float]] = [[], [], []]
    for turn in range(rounds):
        gc.collect()
        for place in range(3):
            which = (turn + place) % 3
            taken[which].append(seconds(hooks[which], elements, 25 if elements == SMALL else 5))
    plain, of_bare, own = map(min, taken)
    return of_bare - plain, own - plain


def main() -> None:
    """Print a line for each packer."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    torch.set_num_threads(1)
    gc.freeze()
    gc.disable()
    for name, (packer, bare, elements) in PRICES.items():
        of_bare, own = price(packer, bare, elements, rounds)
        sys.stdout.write(f"{name:28} {own / of_bare:5.2f} x  {own * 1e6:8.2f} us, bare {of_bare * 1e6:.2f} us\n")


if __name__ == "__main__":
    main()
