"""Numbers in memory: a storage, and the shape, strides and offset to read it by. Nothing here knows of gradients."""

from array import array
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from hooklaw.model.modes import inferring

Shape = tuple[int, ...]
_product = cache(prod)


CODES = {"bool": "", "uint8": "B", "int16": "h", "int32": "i", "int64": "q", "float32": "f", "float64": "d"}
"""How an array stores numbers of a dtype, and so rounds them; of two dtypes the later one wins."""
WIDTH = {dtype: place for place, dtype in enumerate(CODES)}


class Storage:
    """The numbers themselves, and how often they were changed in place: the version counter."""

    def __init__(self, numbers: MutableSequence[Any], dtype: str) -> None:
        self.numbers, self.dtype = numbers, dtype
        self.version = 0
        self.for_inference = inferring()
        """Whether it was made in inference mode, as was then any look at it: its changes are not counted."""
        self.watchers: Sequence[Callable[[Strided], object]] = ()
        """Told once, before the numbers are changed, by which look that is done."""

    def count_change(self) -> None:
        """Count a change in place."""
        self.version += not self.for_inference


class Strided(NamedTuple):
    """One way to look at a storage; views and detached tensors look at the same one."""

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
        """Tell whether the elements lie row after row, without gaps."""
        return self.strides == contiguous(self.shape)

    def is_dense(self) -> bool:
        """Tell whether some order of the dimensions makes it contiguous: no gaps, no overlap."""
        if self.is_contiguous():
            return True
        expected = 1
        for stride, size in sorted((st, sz) for st, sz in zip(self.strides, self.shape, strict=True) if sz != 1):
            if stride != expected:
                return False
            expected *= size
        return True

    def layout(self) -> Shape:
        """Return the strides of what is computed from it element by element: its own, if it is dense."""
        return self.strides if self.is_dense() else contiguous(self.shape)

    def overlaps(self, other: "Strided") -> bool:
        """Tell whether two looks share some elements, and are not the same look."""
        if self.storage is not other.storage or self == other:
            return False
        return not set(self.places()).isdisjoint(other.places())

    def places(self) -> list[int]:
        """Return where in the storage each element lies, row after row."""
        return offsets(self.shape, self.strides, self.offset)

    def values(self) -> Sequence[Any]:
        """Return the elements row after row."""
        numbers = self.storage.numbers
        if self.is_contiguous():
            return numbers[self.offset : self.offset + self.size]
        return [numbers[place] for place in self.places()]

    def write(self, values: Iterable[Any]) -> None:
        """Change the elements in place, which every other look at the storage sees."""
        watchers, self.storage.watchers = self.storage.watchers, ()
        for tell in watchers:
            tell(self)
        for place, value in zip(self.places(), values, strict=True):
            self.storage.numbers[place] = value
        self.storage.count_change()

    def look(self, shape: Shape, strides: Shape, offset: int | None = None) -> "Strided":
        """Look at the same storage by another shape."""
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
    """Return where each element lies, row after row."""
    found = [start]
    for size, stride in zip(shape, strides, strict=True):
        found = [place + stride * index for place in found for index in range(size)]
    return found


def filled(values: Iterable[Any], shape: Shape, dtype: str, strides: Shape | None = None) -> Strided:
    """Put numbers into a storage of their own, row after row unless strides say otherwise."""
    made = Strided(Storage(_stored(values, dtype), dtype), shape, contiguous(shape))
    if strides is None or strides == made.strides:
        return made
    laid_out = Strided(Storage(_stored([0] * made.size, dtype), dtype), shape, strides)
    laid_out.write(made.values())
    return laid_out


def _stored(values: Iterable[Any], dtype: str) -> MutableSequence[Any]:
    return array(CODES[dtype], values) if CODES[dtype] else [bool(value) for value in values]


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
