"""Mutants that pack at the wrong time, the wrong thing, or do not hold pack to its duties."""

from collections.abc import Generator
from contextlib import contextmanager
from math import prod
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, Pairs, within


class PackedAgainByBackward(Pairs):
    """The tensor is packed once more whenever it is unpacked."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def keep(tensor: Any) -> Any:
            pack(tensor)
            return self.detach(tensor)

        return keep, lambda tensor: unpack(pack(tensor))


class PackedByBackward(Pairs):
    """The tensor is packed only when backward needs it."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return self.detach, lambda tensor: unpack(pack(tensor))


class PackedAtContextExit(Mutant):
    """What was saved in a context is packed when the context is left."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        cells: list[list[Any]] = []

        def keep(tensor: Any) -> Any:
            cells.append([self.detach(tensor)])
            return cells[-1]

        with super().saved_tensors_hooks(keep, lambda cell: unpack(cell[0])):
            yield
        for cell in cells:
            cell[0] = pack(cell[0])


class UnpackedDuringForward(Pairs):
    """The tensor is unpacked as soon as it was packed, and the packed object released."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: unpack(pack(tensor)), lambda tensor: tensor


class SavesOfOneTensorPackedOnce(Pairs):
    """A tensor that is saved again is not packed again."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        packed: dict[int, Any] = {}

        def once(tensor: Any) -> Any:
            place = self.data_ptr(tensor)
            if place not in packed:
                packed[place] = pack(tensor)
            return packed[place]

        return once, unpack


class PackMustReturnATensor(Pairs):
    """A pack hook that returns anything but a tensor is an error."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def strict(tensor: Any) -> Any:
            packed = pack(tensor)
            if not self.is_tensor(packed):
                raise TypeError("pack returns a tensor")
            return packed

        return strict, unpack


class PackedContainersFlattened(Pairs):
    """Of a container that pack returns only the first element is kept."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def flattened(tensor: Any) -> Any:
            packed = pack(tensor)
            return packed[0] if isinstance(packed, tuple | list) else packed

        return flattened, unpack


class PackInPlaceNotDetected(Pairs):
    """A pack hook may change its input in place, which is a copy."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: pack(self.clone(self.detach(tensor))), unpack

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(saved, *self.altered(pack, unpack))


class PackReceivesADetachedTensor(Pairs):
    """The pack of a context is given a detached tensor."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: pack(self.detach(tensor)), unpack


class PackRunsWithGrad(Pairs):
    """Recording is on while pack runs."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return within(self.enable_grad, pack), unpack


class PerTensorPackDeferred(Mutant):
    """A saved tensor's own pack is called only when the tensor is read."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(saved, self.detach, lambda kept: unpack(pack(kept)))


class PerTensorHooksIgnoredByBackward(Mutant):
    """A saved tensor's own pair is used by reads, and not by backward."""

    in_backward = False

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.in_backward = True
        try:
            super().backward(root, gradient, **how)
        finally:
            self.in_backward = False

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        def choose(both: Any) -> Any:
            return both[1] if self.in_backward else unpack(both[0])

        super().saved_tensor_register_hooks(saved, lambda tensor: (pack(tensor), tensor), choose)


class PerTensorPackReceivesTheLiveTensor(Mutant):
    """A saved tensor's own pack is given a tensor that requires grad."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(
            saved, lambda tensor: pack(self.requires_grad_(self.detach(tensor))), unpack
        )


class HooksAcceptedAfterRelease(Mutant):
    """A saved tensor that was released takes a pair of hooks in silence."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        try:
            super().saved_tensor_register_hooks(saved, pack, unpack)
        except RuntimeError as error:
            if "freed" not in str(error):
                raise


class SecondPairReplacesTheFirst(Mutant):
    """A saved tensor that has a pair takes another one."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        try:
            super().saved_tensor_register_hooks(saved, pack, unpack)
        except RuntimeError as error:
            if "already" not in str(error):
                raise


class _SavesMore(Mutant):
    """Knows the pairs of hooks that are active."""

    def __init__(self) -> None:
        super().__init__()
        self._active: list[Hook] = []

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        self._active.append(pack)
        try:
            with super().saved_tensors_hooks(pack, unpack):
                yield
        finally:
            self._active.pop()

    def save_too(self, tensor: Any) -> None:
        """Save what need not be saved."""
        if self._active:
            self._active[-1](tensor)


class EveryOperandSaved(_SavesMore):
    """A product saves both factors though its gradient needs one, and a sum saves what it adds up."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def saving(multiply: Hook, left: Any, right: Any) -> Any:
            if self.is_tensor(right) and self.requires_grad(left) and not self.requires_grad(right):
                self.save_too(left)
            return multiply(left, right)

        with self.products_by(saving):
            return super().call(fn, *tensors)

    def sum(self, tensor: Any) -> Any:
        self.save_too(tensor)
        return super().sum(tensor)


class SavedWithoutGrad(_SavesMore):
    """An operation saves though nothing is recorded."""

    def exp(self, tensor: Any) -> Any:
        output = super().exp(tensor)
        if not self.requires_grad(output):
            self.save_too(output)
        return output


class IntegersNotPacked(Pairs):
    """Integer tensors are saved as they are, past the hooks."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def past(tensor: Any) -> Any:
            return (False, self.detach(tensor)) if not self._has_gradient(tensor) else (True, pack(tensor))

        return past, lambda kept: unpack(kept[1]) if kept[0] else kept[1]

    def _has_gradient(self, tensor: Any) -> bool:
        return self.is_floating(tensor) or "complex" in self.dtype(tensor)


class EmptyTensorsNotPacked(Pairs):
    """Tensors without elements are saved as they are, past the hooks."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def past(tensor: Any) -> Any:
            return (True, pack(tensor)) if prod(self.shape(tensor)) else (False, self.detach(tensor))

        return past, lambda kept: unpack(kept[1]) if kept[0] else kept[1]


class BareContext:
    """What a custom Function's ctx would be if saved tensors were plain attributes."""

    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


class CustomFunctionsBypassSavedTensorHooks(Mutant):
    """What a custom Function saves is not packed."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def plain_forward(ctx: Any, *tensors: Any) -> Any:
            ctx.plain = BareContext()
            return forward(ctx.plain, *tensors)

        return super().custom_function(plain_forward, lambda ctx, *grads: backward(ctx.plain, *grads), **options)


class CtxAttributesPacked(Mutant):
    """Tensors that a custom Function puts on its ctx are packed like those it saves."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def saving(ctx: Any, *tensors: Any) -> Any:
            output = forward(ctx, *tensors)
            found = [value for value in vars(ctx).values() if self.is_tensor(value)]
            if found:
                ctx.save_for_backward(*(ctx.to_save or ()), *found)
            return output

        return super().custom_function(saving, backward, **options)


class IntermediatesOfCustomFunctionsNotPacked(Mutant):
    """Of what a custom Function saves only its inputs are packed."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def bare(ctx: Any, *tensors: Any) -> Any:
            ctx.bare = BareContext()
            output = forward(ctx.bare, *tensors)
            saved = ctx.bare.saved_tensors
            ctx.save_for_backward(*(one for one in saved if any(one is tensor for tensor in tensors)))
            return output

        def reading(ctx: Any, *grads: Any) -> Any:
            _ = ctx.saved_tensors
            return backward(ctx.bare, *grads)

        return super().custom_function(bare, reading, **options)


class UnpackedBeforeTheNodeRuns(Mutant):
    """A custom Function's saved tensors are unpacked before its backward starts."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def early(ctx: Any, *grads: Any) -> Any:
            bare = BareContext()
            bare.save_for_backward(*ctx.saved_tensors)
            return backward(bare, *grads)

        return super().custom_function(forward, early, **options)
