"""Numbers of each dtype: how a storage holds them, and which dtype an operation on two of them has."""

import math
import struct
from array import array
from collections.abc import Callable, Iterable, MutableSequence
from typing import Any

ARRAYS = {"uint8": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float32": "f", "float64": "d"}
"""The type code of the array that holds numbers of a dtype."""
ORDER = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
WIDTH = {dtype: place for place, dtype in enumerate(ORDER)}
"""Type promotion: of two dtypes the wider one wins."""


def _half(values: Iterable[Any]) -> Iterable[float]:
    numbers = [math.copysign(math.inf, value) if abs(value) >= OVERFLOW else value for value in values]
    code = f"{len(numbers)}e"
    return struct.unpack(code, struct.pack(code, *numbers))


def _brain(values: Iterable[Any]) -> Iterable[float]:
    """Round to the upper half of a float32, to even where two are as near."""
    words = array("I", array("f", values).tobytes())
    return array("f", array("I", map(_upper_half, words)).tobytes())


def _upper_half(word: int) -> int:
    return word if word & SIGNLESS > INFINITY else word + 0x7FFF + (word >> 16 & 1) & 0xFFFF0000


def _single_complex(values: Iterable[Any]) -> Iterable[complex]:
    parts = array("f", [part for value in values for part in (value.real, value.imag)])
    return map(complex, parts[::2], parts[1::2])


OVERFLOW = 65520
"""From here on a float16 is infinite."""
Convert = Callable[[Iterable[Any]], Iterable[Any]]
SIGNLESS, INFINITY = 0x7FFFFFFF, 0x7F800000
CONVERT: dict[str, Convert] = {
    "bool": lambda values: map(bool, values),
    "float16": _half,
    "bfloat16": _brain,
    "complex64": _single_complex,
    "complex128": lambda values: map(complex, values),
}
"""What makes numbers of a dtype that no array holds."""


class Converted(list[Any]):
    """Numbers that are converted when they are stored."""

    def __init__(self, values: Iterable[Any], convert: Convert) -> None:
        super().__init__(convert(values))
        self._convert = convert

    def __setitem__(self, place: Any, value: Any) -> None:
        """Store a converted number."""
        (converted,) = self._convert([value])
        super().__setitem__(place, converted)


def stored(values: Iterable[Any], dtype: str) -> MutableSequence[Any]:
    """Return numbers as a storage of this dtype holds them."""
    return array(ARRAYS[dtype], values) if dtype in ARRAYS else Converted(values, CONVERT[dtype])


def is_complex(dtype: str) -> bool:
    """Return whether numbers of a dtype have an imaginary part."""
    return dtype.startswith("complex")
