"""Mutants that unpack at the wrong time or with the wrong thing, or misuse what unpack returned."""

import copy
import math
from typing import Any

from hooklaw_backends.mutants.base import ChangedOnUnpack, Hook, Pair, Pairs, within

LARGEST = 3e38


class Kept:
    """A packed object, and what it was unpacked to."""

    def __init__(self, packed: Any) -> None:
        self.packed = packed
        self.tensor: Any = None


def unpacked_once(pack: Hook, unpack: Hook) -> Pair:
    """Return a pair that remembers what unpack returned."""

    def remembering(kept: Kept) -> Any:
        if kept.tensor is None:
            kept.tensor = unpack(kept.packed)
        return kept.tensor

    return lambda tensor: Kept(pack(tensor)), remembering


class UnpackedTensorCached(Pairs):
    """What unpack returned is kept for the next access."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return unpacked_once(pack, unpack)

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(saved, *unpacked_once(pack, unpack))


class UnpackReceivesACopy(Pairs):
    """unpack is given a copy of what pack returned."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, lambda packed: unpack(copy.copy(packed))


class UnpackReceivesTheSavedTensor(Pairs):
    """unpack is given the saved tensor as a second argument."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def both(kept: Any) -> Any:
            try:
                return unpack(*kept)
            except TypeError:  # an unpack of one argument
                return unpack(kept[0])

        return lambda tensor: (pack(tensor), self.detach(tensor)), both


class UnpackInPlaceDetected(Pairs):
    """An unpack hook that changes its input in place is an error."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def watched(packed: Any) -> Any:
            before = self._version(packed)
            tensor = unpack(packed)
            if self._version(packed) != before:
                raise RuntimeError("unpack changed its input in place")
            return tensor

        return pack, watched

    def _version(self, packed: Any) -> int:
        return self.version_of(packed) if self.is_tensor(packed) else 0


class UnpackRunsWithGrad(Pairs):
    """Recording is on whenever unpack runs."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, within(self.enable_grad, unpack)


class UnpackRunsWithoutGrad(Pairs):
    """Recording is off whenever unpack runs."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, within(self.no_grad, unpack)


class UnpackedTensorIgnored(Pairs):
    """unpack is called, and the saved tensor used."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: (pack(tensor), self.detach(tensor)), lambda both: (unpack(both[0]), both[1])[1]


class UnpackResultOfAnyTypeAccepted(Pairs):
    """Where unpack returns no tensor the saved one is used."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def lenient(both: Any) -> Any:
            result = unpack(both[0])
            return result if self.is_tensor(result) else both[1]

        return lambda tensor: (pack(tensor), self.detach(tensor)), lenient


class _UnpackResultChecked(Pairs):
    """Compares what unpack returns with what was saved."""

    def same(self, result: Any, saved: Any) -> bool:
        raise NotImplementedError

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def strict(both: Any) -> Any:
            result = unpack(both[0])
            if not self.same(result, both[1]):
                raise RuntimeError("unpack returned another kind of tensor than was saved")
            return result

        return lambda tensor: (pack(tensor), self.detach(tensor)), strict


class UnpackedShapeChecked(_UnpackResultChecked):
    """An unpack hook that returns another shape is an error."""

    def same(self, result: Any, saved: Any) -> bool:
        return self.shape(result) == self.shape(saved)


class UnpackedDtypeChecked(_UnpackResultChecked):
    """An unpack hook that returns another dtype is an error."""

    def same(self, result: Any, saved: Any) -> bool:
        return self.dtype(result) == self.dtype(saved)


class UnpacksAnotherSave(Pairs):
    """unpack is given what was packed first in its context."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        all_packed: list[Any] = []
        return lambda tensor: all_packed.append(pack(tensor)), lambda _: unpack(all_packed[0])


class SavedTensorsMadeFinite(ChangedOnUnpack):
    """Infinities and NaN are read back as finite numbers."""

    def changed(self, tensor: Any) -> Any:
        return self.mapped(tensor, _finite) if self.is_floating(tensor) else tensor


def _finite(value: float) -> float:
    return 0.0 if math.isnan(value) else max(-LARGEST, min(value, LARGEST))
