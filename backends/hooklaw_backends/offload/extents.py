"""Free stretches of an arena or of a spill file."""

from collections import deque
from typing import Any


class Extents:
    """A space of bytes, whose stretches are taken and given back.

    Stretches are given back by finalizers, which the garbage collector may start in the middle of anything:
    so `give` only notes, without a lock, and the next `take` does the work.
    """

    def __init__(self, length: int = 0, *, grows: bool = False) -> None:
        self.length = length
        self._grows = grows
        self._free = [(0, length)] if length else []
        self._given: deque[tuple[int, int]] = deque()

    def give(self, start: int, size: int) -> None:
        """Give a stretch back; safe anywhere, any time."""
        self._given.append((start, size))

    def hole(self, size: int) -> int | None:
        """Return the size of the smallest free stretch that fits."""
        self._settle()
        return min((free for _, free in self._free if free >= size), default=None)

    def take(self, size: int) -> int | None:
        """Return where a new stretch of this size begins, or None if there is no room and the space does not grow."""
        hole = self.hole(size)
        if hole is None:
            return self._grow(size) if self._grows else None
        place = next(at for at, (_, free) in enumerate(self._free) if free == hole)
        start, _ = self._free.pop(place)
        if hole > size:
            self._free.insert(place, (start + size, hole - size))
        return start

    def is_empty(self) -> bool:
        """Return whether everything was given back."""
        self._settle()
        return sum(size for _, size in self._free) == self.length

    def _grow(self, size: int) -> int:
        start, self.length = self.length, self.length + size
        return start

    def _settle(self) -> None:
        if not self._given:
            return
        while self._given:
            self._free.append(self._given.popleft())
        self._free = _merged(sorted(self._free))


class Stretch:
    """A stretch of a space, in use as long as this object lives."""

    __slots__ = ("__weakref__", "nbytes", "space", "start")

    def __init__(self, space: Any, start: int, nbytes: int) -> None:
        """Hold what was taken; `space.give` takes it back."""
        self.space = space
        self.start = start
        self.nbytes = nbytes

    def __del__(self) -> None:
        self.space.give(self.start, self.nbytes)


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, size in stretches:
        if merged and sum(merged[-1]) == start:
            merged[-1] = (merged[-1][0], merged[-1][1] + size)
        else:
            merged.append((start, size))
    return merged
