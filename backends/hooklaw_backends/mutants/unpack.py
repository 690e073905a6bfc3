"""Mutants that call unpack at the wrong time, with the wrong argument, or misuse its return value."""

import copy
import math
from typing import Any

from hooklaw_backends.mutants.base import ChangedOnUnpack, Hook, Pair, Pairs, within

LARGEST = 3e38


class Kept:
    """A packed object, and the tensor it was unpacked to."""

    def __init__(self, packed: Any) -> None:
        self.packed = packed
        self.tensor: Any = None


def unpacked_once(pack: Hook, unpack: Hook) -> Pair:
    """Return a pair whose unpack hook is called once for each packed object."""

    def remembering(kept: Kept) -> Any:
        if kept.tensor is None:
            kept.tensor = unpack(kept.packed)
        return kept.tensor

    return lambda tensor: Kept(pack(tensor)), remembering


class UnpackedTensorCached(Pairs):
    """unpack is called once, and later accesses reuse its return value."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return unpacked_once(pack, unpack)

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(saved, *unpacked_once(pack, unpack))


class UnpackReceivesACopy(Pairs):
    """unpack gets a copy of what pack returned."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, lambda packed: unpack(copy.copy(packed))


class _KeepsTheSavedTensor(Pairs):
    """A mutant that keeps each saved tensor together with its packed object."""

    def read(self, unpack: Hook, packed: Any, saved: Any) -> Any:
        raise NotImplementedError

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: (pack(tensor), self.detach(tensor)), lambda both: self.read(unpack, *both)


class UnpackReceivesTheSavedTensor(_KeepsTheSavedTensor):
    """unpack gets the saved tensor as a second argument."""

    def read(self, unpack: Hook, packed: Any, saved: Any) -> Any:
        try:
            return unpack(packed, saved)
        except TypeError:  # this unpack takes a single argument
            return unpack(packed)


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
    """Grad mode is always on while unpack runs."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, within(self.enable_grad, unpack)


class UnpackRunsWithoutGrad(Pairs):
    """Grad mode is always off while unpack runs."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, within(self.no_grad, unpack)


class UnpackedTensorIgnored(_KeepsTheSavedTensor):
    """unpack is called, but backward uses the original saved tensor."""

    def read(self, unpack: Hook, packed: Any, saved: Any) -> Any:
        unpack(packed)
        return saved


class UnpackResultOfAnyTypeAccepted(_KeepsTheSavedTensor):
    """If unpack does not return a tensor, the original saved tensor is used instead of raising an error."""

    def read(self, unpack: Hook, packed: Any, saved: Any) -> Any:
        result = unpack(packed)
        return result if self.is_tensor(result) else saved


class _UnpackResultChecked(_KeepsTheSavedTensor):
    """A mutant that compares what unpack returns with the saved tensor."""

    def same(self, result: Any, saved: Any) -> bool:
        raise NotImplementedError

    def read(self, unpack: Hook, packed: Any, saved: Any) -> Any:
        result = unpack(packed)
        if not self.same(result, saved):
            raise RuntimeError("unpack returned a tensor of another shape or dtype than was saved")
        return result


class UnpackedShapeChecked(_UnpackResultChecked):
    """An unpack hook that returns another shape is an error."""

    def same(self, result: Any, saved: Any) -> bool:
        return self.shape(result) == self.shape(saved)


class UnpackedDtypeChecked(_UnpackResultChecked):
    """An unpack hook that returns another dtype is an error."""

    def same(self, result: Any, saved: Any) -> bool:
        return self.dtype(result) == self.dtype(saved)


class UnpacksAnotherSave(Pairs):
    """unpack always gets the first object that was packed in its context."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        all_packed: list[Any] = []
        return lambda tensor: all_packed.append(pack(tensor)), lambda _: unpack(all_packed[0])


class SavedTensorsMadeFinite(ChangedOnUnpack):
    """Saved infinities and NaN come back as finite numbers."""

    def changed(self, tensor: Any) -> Any:
        return self.mapped(tensor, _finite) if self.is_floating(tensor) else tensor


def _finite(value: float) -> float:
    return 0.0 if math.isnan(value) else max(-LARGEST, min(value, LARGEST))
