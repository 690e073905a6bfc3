"""Mutants that call pack at the wrong time or on the wrong tensor, or do not check it."""

from collections.abc import Generator
from contextlib import contextmanager
from math import prod
from typing import Any

from hooklaw_backends.mutants.base import Hook, InBackward, Mutant, Pair, Pairs, Products, within


class PackedAgainByBackward(Pairs):
    """pack is called again each time the tensor is unpacked."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def keep(tensor: Any) -> Any:
            pack(tensor)
            return self.detach(tensor)

        return keep, lambda tensor: unpack(pack(tensor))


class PackedByBackward(Pairs):
    """pack is called during backward instead of when the tensor is saved."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return self.detach, lambda tensor: unpack(pack(tensor))


class PackedAtContextExit(Mutant):
    """pack is called when the context is left instead of when the tensor is saved."""

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
    """unpack is called right after pack, and the packed object is released."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: unpack(pack(tensor)), lambda tensor: tensor


class SavesOfOneTensorPackedOnce(Pairs):
    """A tensor that is saved twice is packed only once."""

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
                raise TypeError("a pack hook must return a tensor")
            return packed

        return strict, unpack


class PackedContainersFlattened(Pairs):
    """If pack returns a list or tuple, only its first element is kept."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def flattened(tensor: Any) -> Any:
            packed = pack(tensor)
            return packed[0] if isinstance(packed, tuple | list) else packed

        return flattened, unpack


class PackInPlaceNotDetected(Pairs):
    """A pack hook that changes its input in place is not an error, because the input is a copy."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: pack(self.clone(self.detach(tensor))), unpack

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(saved, *self.altered(pack, unpack))


class PackReceivesADetachedTensor(Pairs):
    """The pack hook of a context gets a detached tensor."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return lambda tensor: pack(self.detach(tensor)), unpack


class PackRunsWithGrad(Pairs):
    """Grad mode is on while pack runs."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        return within(self.enable_grad, pack), unpack


class PerTensorPackDeferred(Mutant):
    """The pack hook registered on a single saved tensor is called only when the tensor is read."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(saved, self.detach, lambda kept: unpack(pack(kept)))


class PerTensorHooksIgnoredByBackward(InBackward):
    """Hooks registered on a single saved tensor are used by reads but not by backward."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        def choose(both: Any) -> Any:
            return unpack(both[0]) if self.root is None else both[1]

        super().saved_tensor_register_hooks(saved, lambda tensor: (pack(tensor), tensor), choose)


class PerTensorPackReceivesTheLiveTensor(Mutant):
    """The pack hook registered on a single saved tensor gets a tensor that requires grad."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(
            saved, lambda tensor: pack(self.requires_grad_(self.detach(tensor))), unpack
        )


class HooksAcceptedAfterRelease(Mutant):
    """Registering hooks on a released saved tensor does nothing instead of raising an error."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        try:
            super().saved_tensor_register_hooks(saved, pack, unpack)
        except RuntimeError as error:
            if "freed" not in str(error):
                raise


class SecondPairReplacesTheFirst(Mutant):
    """Registering hooks twice on a saved tensor is not an error."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        try:
            super().saved_tensor_register_hooks(saved, pack, unpack)
        except RuntimeError as error:
            if "already" not in str(error):
                raise


class _SavesMore(Mutant):
    """A mutant that knows which saved-tensor hooks are active."""

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
        """Pack a tensor that need not be saved."""
        if self._active:
            self._active[-1](tensor)


class EveryOperandSaved(_SavesMore, Products):
    """A product also saves a factor that backward does not need, and a sum saves its input."""

    def product(self, multiply: Hook, left: Any, right: Any) -> Any:
        if self.is_tensor(right) and self.requires_grad(left) and not self.requires_grad(right):
            self.save_too(left)
        return multiply(left, right)

    def sum(self, tensor: Any) -> Any:
        self.save_too(tensor)
        return super().sum(tensor)


class SavedWithoutGrad(_SavesMore):
    """An operation saves its output even if nothing requires grad."""

    def exp(self, tensor: Any) -> Any:
        output = super().exp(tensor)
        if not self.requires_grad(output):
            self.save_too(output)
        return output


class _PacksSome(Pairs):
    """A mutant that packs only some tensors."""

    def packs(self, tensor: Any) -> bool:
        raise NotImplementedError

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def some(tensor: Any) -> Any:
            return (True, pack(tensor)) if self.packs(tensor) else (False, self.detach(tensor))

        return some, lambda kept: unpack(kept[1]) if kept[0] else kept[1]


class IntegersNotPacked(_PacksSome):
    """Saved integer tensors are not packed."""

    def packs(self, tensor: Any) -> bool:
        return self.is_floating(tensor) or "complex" in self.dtype(tensor)


class EmptyTensorsNotPacked(_PacksSome):
    """Saved tensors without elements are not packed."""

    def packs(self, tensor: Any) -> bool:
        return prod(self.shape(tensor)) > 0


class BareContext:
    """A ctx of a custom Function that keeps saved tensors as a plain attribute."""

    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


class CustomFunctionsBypassSavedTensorHooks(Mutant):
    """Tensors that a custom Function saves are not packed."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def plain_forward(ctx: Any, *tensors: Any) -> Any:
            ctx.plain = BareContext()
            return forward(ctx.plain, *tensors)

        return super().custom_function(plain_forward, lambda ctx, *grads: backward(ctx.plain, *grads), **options)


class CtxAttributesPacked(Mutant):
    """Tensors that a custom Function stores as attributes of ctx are packed."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def saving(ctx: Any, *tensors: Any) -> Any:
            output = forward(ctx, *tensors)
            found = [value for value in vars(ctx).values() if self.is_tensor(value)]
            if found:
                ctx.save_for_backward(*(ctx.to_save or ()), *found)
            return output

        return super().custom_function(saving, backward, **options)


class IntermediatesOfCustomFunctionsNotPacked(Mutant):
    """Only the inputs among the tensors that a custom Function saves are packed."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def bare(ctx: Any, *tensors: Any) -> Any:
            ctx.bare = BareContext()
            output = forward(ctx.bare, *tensors)
            saved = ctx.bare.saved_tensors
            ctx.save_for_backward(*(kept for kept in saved if any(kept is tensor for tensor in tensors)))
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
