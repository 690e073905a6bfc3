"""An arena of host memory in blocks of exactly the requested size, pinned if there is a CUDA device."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hooklaw_backends.offload.extents import Extents, Stretch

PAGE = 4096
Allocate = Callable[[int], Tensor]


class Slot(Stretch):
    """A block of an arena."""

    def tensor(self, dtype: torch.dtype, length: int) -> Tensor:
        """Return the first bytes as a tensor."""
        return self.space.memory[self.start : self.start + length * dtype.itemsize].view(dtype)


class Arena:
    """Blocks rounded up to a page and not, as torch's own pinned memory is, to a power of two.

    Repeated steps allocate nothing after the first: each block finds the hole of its size. An arena that does not keep
    its memory, since a new allocation costs nothing, frees each block with its slot.
    """

    def __init__(self, allocate: Allocate, *, keeps: bool = True) -> None:
        self._allocate = allocate
        self._keeps = keeps
        self._chunks: list[_Chunk] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Slot:
        """Return a block of at least this size, from the smallest hole that fits."""
        size = _rounded(nbytes)
        with self._lock:
            holes = [(hole, place) for place, chunk in enumerate(self._chunks) if (hole := chunk.hole(size))]
            chunk = self._chunks[min(holes)[1]] if holes else _Chunk(self._allocate(size))
            if self._keeps and not holes:
                self._chunks.append(chunk)
            return Slot(chunk, chunk.take(size) or 0, size)

    def nbytes(self) -> int:
        """Return how much host memory is held."""
        return sum(chunk.length for chunk in self._chunks)

    def close(self) -> None:
        """Release the memory; each chunk stays until its last slot is gone."""
        with self._lock:
            self._chunks.clear()


class _Chunk(Extents):
    def __init__(self, memory: Tensor) -> None:
        super().__init__(memory.numel())
        self.memory = memory


def pageable(nbytes: int) -> Tensor:
    """Return ordinary host memory."""
    return torch.empty(nbytes, dtype=torch.uint8)


def pinned(nbytes: int, runtime: Any = None) -> Tensor:
    """Return host memory of exactly this size that the CUDA driver has pinned; unpinned when the last view goes.

    It begins with a page, so that no page of it is also part of another block, which would be pinned twice.
    """
    cudart: Any = runtime or torch.cuda.cudart()
    memory = torch.empty(nbytes + PAGE, dtype=torch.uint8)
    memory = memory[-memory.data_ptr() % PAGE :][:nbytes]
    code = int(cudart.cudaHostRegister(memory.data_ptr(), nbytes, 0))
    if code:
        raise RuntimeError(f"CUDA did not pin {nbytes} bytes of host memory (cudaHostRegister returned {code})")
    weakref.finalize(memory.untyped_storage(), cudart.cudaHostUnregister, memory.data_ptr()).atexit = False
    return memory


def _rounded(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE
