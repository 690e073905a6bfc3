"""Strided data: a storage, and the shape, strides and offset to read it by. It knows nothing of gradients."""

from collections.abc import Callable, Iterable, MutableSequence, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from hooklaw.model._numbers import stored

Shape = tuple[int, ...]
_product = cache(prod)


class Storage:
    """The numbers, and the version counter of their in-place changes."""

    def __init__(self, numbers: MutableSequence[Any], dtype: str) -> None:
        self.numbers, self.dtype = numbers, dtype
        self.version = 0
        self.for_inference: bool | None = None
        """Whether the first tensor on it was made in inference mode: then its changes are not counted."""
        self.watchers: Sequence[Callable[[Strided], object]] = ()
        """Called once, before the next in-place change, with the view that makes it."""

    def count_change(self) -> None:
        """Count an in-place change."""
        self.version += not self.for_inference


class Strided(NamedTuple):
    """A view of a storage; a tensor's views and detached tensors share its storage."""

    storage: Storage
    shape: Shape
    strides: Shape
    offset: int = 0

    @property
    def dtype(self) -> str:
        """Return the dtype's name."""
        return self.storage.dtype

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return _product(self.shape)

    def is_contiguous(self) -> bool:
        """Whether the elements lie row after row, without gaps."""
        return self.strides == contiguous(self.shape)

    def is_dense(self) -> bool:
        """Whether some order of the dimensions is contiguous: no gaps, no overlap."""
        if self.is_contiguous():
            return True
        expected = 1
        for stride, size in sorted((st, sz) for st, sz in zip(self.strides, self.shape, strict=True) if sz != 1):
            if stride != expected:
                return False
            expected *= size
        return True

    def layout(self) -> Shape:
        """Return the strides of an element-wise result: its own if it is dense."""
        return self.strides if self.is_dense() else contiguous(self.shape)

    def overlaps(self, other: "Strided") -> bool:
        """Whether two different views share elements."""
        if self.storage is not other.storage or self == other:
            return False
        return not set(self.places()).isdisjoint(other.places())

    def places(self) -> list[int]:
        """Return the offset in the storage of each element, row after row."""
        return offsets(self.shape, self.strides, self.offset)

    def values(self) -> Sequence[Any]:
        """Return the elements row after row."""
        numbers = self.storage.numbers
        if self.is_contiguous():
            return numbers[self.offset : self.offset + self.size]
        return [numbers[place] for place in self.places()]

    def write(self, values: Iterable[Any]) -> None:
        """Change the elements in place; every view of the storage sees it."""
        watchers, self.storage.watchers = self.storage.watchers, ()
        for watcher in watchers:
            watcher(self)
        for place, value in zip(self.places(), values, strict=True):
            self.storage.numbers[place] = value
        self.storage.count_change()

    def view(self, shape: Shape, strides: Shape, offset: int | None = None) -> "Strided":
        """Return a view of the same storage with another shape, strides and offset."""
        return self._replace(shape=shape, strides=strides, offset=self.offset if offset is None else offset)

    def tolist(self) -> Any:
        """Return nested lists, or one number."""
        nested: list[Any] = list(self.values())
        for size in reversed(self.shape[1:]):
            count = len(nested) // size if size else prod(self.shape[: self.shape.index(0)])
            nested = [nested[size * row : size * (row + 1)] for row in range(count)]
        return nested if self.shape else nested[0]


@cache
def contiguous(shape: Shape) -> Shape:
    """Return the strides of elements that lie row after row."""
    return tuple(prod(shape[place + 1 :]) for place in range(len(shape)))


def offsets(shape: Shape, strides: Shape, start: int = 0) -> list[int]:
    """Return the offset of each element, row after row."""
    found = [start]
    for size, stride in zip(shape, strides, strict=True):
        found = [place + stride * index for place in found for index in range(size)]
    return found


def filled(values: Iterable[Any], shape: Shape, dtype: str, strides: Shape | None = None) -> Strided:
    """Put numbers into a new storage, row after row unless `strides` are given."""
    made = Strided(Storage(stored(values, dtype), dtype), shape, contiguous(shape))
    if strides is None or strides == made.strides:
        return made
    laid_out = Strided(Storage(stored([0] * made.size, dtype), dtype), shape, strides)
    laid_out.write(made.values())
    return laid_out


def from_nested(data: Any, dtype: str) -> Strided:
    """Read nested lists."""
    shape: list[int] = []
    level = data
    while isinstance(level, list | tuple):
        shape.append(len(level))
        level = level[0] if level else None
    return filled(_flat(data), tuple(shape), dtype)


def _flat(data: Any) -> list[Any]:
    return [number for row in data for number in _flat(row)] if isinstance(data, list | tuple) else [data]
