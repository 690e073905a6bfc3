"""Mutants that unpack at the wrong time or with the wrong thing, or misuse what unpack returned."""

import copy
from typing import Any

from hooklaw_backends.mutants.base import ChangedOnUnpack, Mutant, Pair, Pairs, products_by
from hooklaw_backends.torch_eager import Hook, torch


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

        return lambda tensor: (pack(tensor), tensor.detach()), both


class UnpackInPlaceDetected(Pairs):
    """An unpack hook that changes its input in place is an error."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def watched(packed: Any) -> Any:
            before = getattr(packed, "_version", 0)
            tensor = unpack(packed)
            if getattr(packed, "_version", 0) != before:
                raise RuntimeError("unpack changed its input in place")
            return tensor

        return pack, watched


class UnpackRunsWithGrad(Pairs):
    """Recording is on whenever unpack runs."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, torch.enable_grad()(unpack)


class UnpackRunsWithoutGrad(Pairs):
    """Recording is off whenever unpack runs."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return pack, torch.no_grad()(unpack)


class UnpackedTensorIgnored(Pairs):
    """unpack is called, and the saved tensor used."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: (pack(tensor), tensor.detach()), lambda both: (unpack(both[0]), both[1])[1]


class UnpackResultOfAnyTypeAccepted(Pairs):
    """Where unpack returns no tensor the saved one is used."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def lenient(both: Any) -> Any:
            result = unpack(both[0])
            return result if isinstance(result, torch.Tensor) else both[1]

        return lambda tensor: (pack(tensor), tensor.detach()), lenient


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

        return lambda tensor: (pack(tensor), tensor.detach()), strict


class UnpackedShapeChecked(_UnpackResultChecked):
    """An unpack hook that returns another shape is an error."""

    def same(self, result: Any, saved: Any) -> bool:
        return result.shape == saved.shape


class UnpackedDtypeChecked(_UnpackResultChecked):
    """An unpack hook that returns another dtype is an error."""

    def same(self, result: Any, saved: Any) -> bool:
        return result.dtype == saved.dtype


class UnpacksAnotherSave(Pairs):
    """unpack is given what was packed first in its context."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        all_packed: list[Any] = []
        return lambda tensor: all_packed.append(pack(tensor)), lambda _: unpack(all_packed[0])


class DetachedProduct(torch.autograd.Function):
    """A product that takes what it unpacks as it is, without a place in the graph."""

    @staticmethod
    def forward(ctx: Any, left: Any, right: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - as torch asks
        ctx.save_for_backward(left, right)
        return torch.mul(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - as torch asks
        left, right = (tensor.detach() for tensor in ctx.saved_tensors)
        return grad.mul(right), grad.mul(left)


class AutogradMetadataOfTheUnpackedTensorKept(Mutant):
    """What unpack returned stays detached, instead of taking the saved tensor's place in the graph."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def product(multiply: Hook, left: Any, right: Any) -> Any:
            return DetachedProduct.apply(left, right) if isinstance(right, torch.Tensor) else multiply(left, right)

        with products_by(product):
            return super().call(fn, *tensors)


class SavedTensorsMadeFinite(ChangedOnUnpack):
    """Infinities and NaN are read back as finite numbers."""

    def changed(self, tensor: Any) -> Any:
        return torch.nan_to_num(tensor) if tensor.is_floating_point() else tensor
