"""Mutants that treat what a custom Function saves otherwise than what an operation saves."""

import copy
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from itertools import count
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, calling, overriding, packing, pairs
from hooklaw_backends.mutants.custom_functions import Context
from hooklaw_backends.mutants.shared import enter_for_good, falsy_means_saved


class _InFunction(Mutant):
    """A mutant that knows whether a custom Function is being applied, and to which inputs."""

    applying = False
    inputs: tuple[Any, ...] = ()

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        made = super().custom_function(forward, backward, **options)

        def apply(*inputs: Any) -> Any:
            self.applying, self.inputs = True, inputs
            try:
                return made(*inputs)
            finally:
                self.applying, self.inputs = False, ()

        return apply


@packing("saved_tensors_hooks", base=_InFunction)
def pack_receives_a_detached_tensor_in_custom_functions(self: _InFunction, pack: Hook, tensor: Any) -> Any:
    """pack gets a detached tensor if a custom Function saves it."""
    return pack(self.detach(tensor) if self.applying else tensor)


@packing("saved_tensors_hooks", base=_InFunction)
def outputs_of_custom_functions_packed_detached(self: _InFunction, pack: Hook, tensor: Any) -> Any:
    """pack gets a detached tensor if a custom Function saves its own output."""
    is_output = self.applying and not any(tensor is given for given in self.inputs)
    return pack(self.detach(tensor) if is_output else tensor)


class NonePackedByACustomFunctionIsNotUnpacked(_InFunction):
    """If pack returns None for a tensor of a custom Function, the saved tensor is used without unpack."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        def keep(tensor: Any) -> Any:
            packed = pack(tensor)
            return packed, self.detach(tensor) if packed is None and self.applying else None

        return super().saved_tensors_hooks(keep, lambda both: unpack(both[0]) if both[1] is None else both[1])


@packing("saved_tensors_hooks", base=_InFunction)
def pack_runs_with_grad_in_custom_functions(self: _InFunction, pack: Hook, tensor: Any) -> Any:
    """Grad mode is on while pack runs for a tensor that a custom Function saves."""
    if not self.applying:
        return pack(tensor)
    with self.enable_grad():
        return pack(tensor)


@packing("saved_tensors_hooks", base=_InFunction)
def pack_exception_wrapped_in_custom_functions(self: _InFunction, pack: Hook, tensor: Any) -> Any:
    """An exception in pack becomes a RuntimeError if a custom Function saves the tensor."""
    try:
        return pack(tensor)
    except Exception as error:
        if self.applying:
            raise RuntimeError(str(error)) from error
        raise


class PackInPlaceNotDetectedInCustomFunctions(_InFunction):
    """A pack hook may change in place what a custom Function saves."""

    unnoticed = False

    def is_unnoticed(self, tensor: Any, calls: int) -> bool:
        """Whether a pair that has packed so many tensors, this one too, may change it in place."""
        return self.applying

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        calls = count(1)

        def keep(tensor: Any) -> Any:
            self.unnoticed = self.is_unnoticed(tensor, next(calls))
            try:
                return pack(tensor)
            finally:
                self.unnoticed = False

        return super().saved_tensors_hooks(keep, unpack)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not self.unnoticed:
            return super().mul_(tensor, factor)
        self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor


class PackInPlaceNotDetectedOnOutputsOfCustomFunctions(PackInPlaceNotDetectedInCustomFunctions):
    """A pack hook may change in place what a custom Function saves beside its inputs."""

    def is_unnoticed(self, tensor: Any, calls: int) -> bool:
        return self.applying and not any(tensor is given for given in self.inputs)


class PackInPlaceDetectedInTheFirstCallAlone(PackInPlaceNotDetectedInCustomFunctions):
    """A pack hook may change its input in place unless it is the first tensor that its context packs."""

    def is_unnoticed(self, tensor: Any, calls: int) -> bool:
        return calls > 1


class UnpackResultOfAnyTypeAcceptedInCustomFunctions(_InFunction):
    """If unpack does not return a tensor, a custom Function gets the original instead of an error."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        def keep(tensor: Any) -> Any:
            return pack(tensor), self.detach(tensor) if self.applying else None

        def read(both: Any) -> Any:
            result = unpack(both[0])
            return result if self.is_tensor(result) or both[1] is None else both[1]

        return super().saved_tensors_hooks(keep, read)


@overriding("custom_function")
def saves_of_one_tensor_by_a_custom_function_packed_once(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """A tensor that a custom Function saves twice is packed only once."""

    def saving(ctx: Any, *inputs: Any) -> Any:
        def save(*tensors: Any) -> None:
            ids = [id(tensor) for tensor in tensors]
            firsts = [place for place, each in enumerate(ids) if ids.index(each) == place]
            ctx.places = [firsts.index(ids.index(each)) for each in ids]
            ctx.save_for_backward(*(tensors[place] for place in firsts))

        return forward(Context(ctx, save_for_backward=lambda: save), *inputs)

    def reading(ctx: Any, *grads: Any) -> Any:
        def read() -> tuple[Any, ...]:
            saved = ctx.saved_tensors
            return tuple(saved[place] for place in ctx.places)

        return backward(Context(ctx, saved_tensors=read), *grads)

    return old(saving, reading, **options)


class _PacksUnrecorded(Mutant):
    """A mutant that also packs what some custom Functions save though it is no tensor or they are not recorded."""

    recording = True

    def packs(self, inputs: tuple[Any, ...], saved: Any) -> bool:
        """Whether it packs this, which a custom Function saves that was given these inputs."""
        raise NotImplementedError

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        self.kept.append(pack)
        try:
            with super().saved_tensors_hooks(pack, unpack):
                yield
        finally:
            self.kept.pop()

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def saving(ctx: Any, *inputs: Any) -> Any:
            def save(*tensors: Any) -> None:
                for tensor in tensors if self.kept else ():
                    if self.packs(inputs, tensor):
                        self.kept[-1](tensor)
                ctx.save_for_backward(*tensors)

            return forward(Context(ctx, save_for_backward=lambda: save), *inputs)

        made = super().custom_function(saving, backward, **options)

        def apply(*inputs: Any) -> Any:
            self.recording = self.is_grad_enabled()
            return made(*inputs)

        return apply


class CustomFunctionsPackWithoutGrad(_PacksUnrecorded):
    """What a custom Function saves is packed even if none of its inputs require grad."""

    def packs(self, inputs: tuple[Any, ...], saved: Any) -> bool:
        return not any(self.is_tensor(each) and self.requires_grad(each) for each in inputs)


class NoneSavedByAFunctionIsPacked(_PacksUnrecorded):
    """A None that a custom Function saves is packed."""

    def packs(self, inputs: tuple[Any, ...], saved: Any) -> bool:
        return saved is None and self.recording


class CustomFunctionsPackInNoGrad(_PacksUnrecorded):
    """What a custom Function saves is packed in no_grad, too."""

    def packs(self, inputs: tuple[Any, ...], saved: Any) -> bool:
        return not self.recording and any(self.is_tensor(each) and self.requires_grad(each) for each in inputs)


@pairs("saved_tensors_hooks", base=_InFunction)
def unpack_of_custom_functions_only_in_the_packing_thread(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """A backward in another thread uses what a custom Function saved without calling unpack."""
    here = threading.get_ident()

    def keep(tensor: Any) -> Any:
        return pack(tensor), self.detach(tensor) if self.applying else None

    return keep, lambda both: unpack(both[0]) if both[1] is None or threading.get_ident() == here else both[1]


class LaterSavedTensorsOfFunctionsReleasedLate(_InFunction):
    """Of the tensors that a custom Function saves all but the first are freed only at the end of the backward."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        calls: list[None] = []

        def keep(tensor: Any) -> Any:
            calls.append(None)
            return pack(tensor), self.applying and len(calls) > 1

        def read(both: Any) -> Any:
            self.kept += [both] * both[1]
            return unpack(both[0])

        return super().saved_tensors_hooks(keep, read)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        self.kept = []


@pairs("saved_tensors_hooks", base=_InFunction)
def falsy_packed_by_functions_is_not_unpacked(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """If pack returns 0, False or something empty for a tensor of a custom Function, the saved tensor is used."""
    return falsy_means_saved(self, pack, unpack, lambda packed: self.applying and packed is not None)


@packing("saved_tensors_hooks", base=_InFunction)
def containers_packed_by_functions_flattened(self: _InFunction, pack: Hook, tensor: Any) -> Any:
    """If pack returns a list or tuple for a tensor of a custom Function, only its first element is kept."""
    packed = pack(tensor)
    return packed[0] if self.applying and isinstance(packed, tuple | list) and packed else packed


@packing("saved_tensors_hooks", base=_InFunction)
def containers_packed_of_the_output_of_a_function_flattened(self: _InFunction, pack: Hook, tensor: Any) -> Any:
    """If pack returns a list or tuple for a custom Function's output, only its first element is kept."""
    packed = pack(tensor)
    data = self.data_ptr(tensor)
    is_output = self.applying and all(self.data_ptr(each) != data for each in self.inputs if self.is_tensor(each))
    return packed[0] if is_output and isinstance(packed, tuple | list) and packed else packed


@pairs("saved_tensors_hooks", base=_InFunction)
def constants_of_custom_functions_not_packed(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """A floating-point input of a custom Function that does not require grad is kept without pack."""

    def keep(tensor: Any) -> Any:
        is_input = any(tensor is given for given in self.inputs)
        is_kept = is_input and self.is_floating(tensor) and not self.requires_grad(tensor)
        return (None, self.detach(tensor)) if is_kept else (pack(tensor), None)

    return keep, lambda both: unpack(both[0]) if both[1] is None else both[1]


class _Counting(_InFunction):
    """A mutant that knows whether the custom Function that is being applied has saved a tensor before."""

    _last: tuple[Any, ...] = ()

    def has_saved(self) -> bool:
        """Whether a pair was called for the same inputs before."""
        before, self._last = self._last, self.inputs
        return self.applying and before is self.inputs


@pairs("saved_tensors_hooks", base=_Counting)
def falsy_packed_by_functions_after_another_is_not_unpacked(self: _Counting, pack: Hook, unpack: Hook) -> Pair:
    """If pack returns None, 0 or something empty for a custom Function's second tensor, the saved tensor is used."""
    return falsy_means_saved(self, pack, unpack, lambda _: self.has_saved())


class _Inferring(Mutant):
    """A mutant that knows whether inference mode is on; it changes nothing."""

    inferring = 0

    @contextmanager
    def inference_mode(self, *given: Any, **how: Any) -> Generator[None]:
        self.inferring += 1
        try:
            with super().inference_mode(*given, **how):
                yield
        finally:
            self.inferring -= 1


class PairEnteredInInferenceModePacks(_Inferring):
    """A pair that is entered in inference mode packs the output of an operation that is not recorded."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        self.kept.append(pack if self.inferring else None)
        try:
            with super().saved_tensors_hooks(pack, unpack):
                yield
        finally:
            self.kept.pop()

    def exp(self, tensor: Any) -> Any:
        output = super().exp(tensor)
        if self.kept and self.kept[-1]:
            self.kept[-1](output)
        return output


@pairs("saved_tensors_hooks", base=_InFunction)
def unpack_of_functions_receives_a_copy(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """unpack gets a copy of what pack returned for a tensor of a custom Function."""
    return (
        lambda tensor: (pack(tensor), self.applying),
        lambda both: unpack(copy.copy(both[0]) if both[1] else both[0]),
    )


@pairs("saved_tensors_hooks", base=_InFunction)
def unpack_exception_wrapped_in_functions(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """An exception in unpack becomes a RuntimeError if a custom Function reads the tensor."""

    def read(both: Any) -> Any:
        try:
            return unpack(both[0])
        except Exception as error:
            if both[1]:
                raise RuntimeError(str(error)) from error
            raise

    return lambda tensor: (pack(tensor), self.applying), read


class FunctionsPackInInferenceMode(_Inferring, _PacksUnrecorded):
    """What a custom Function saves is packed in inference mode, too."""

    def packs(self, inputs: tuple[Any, ...], saved: Any) -> bool:
        return bool(self.inferring)


class _UnderHooks(Mutant):
    """A mutant that knows how many pairs are open."""

    open_pairs = 0

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        with super().saved_tensors_hooks(pack, unpack):
            self.open_pairs += 1
            try:
                yield
            finally:
                self.open_pairs -= 1


class FunctionsReadDetachedTensorsUnderHooks(_UnderHooks):
    """What a custom Function saved under hooks is read detached."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def saving(ctx: Any, *inputs: Any) -> Any:
            ctx.under_hooks = self.open_pairs > 0
            return forward(ctx, *inputs)

        def reading(ctx: Any, *grads: Any) -> Any:
            if not ctx.under_hooks:
                return backward(ctx, *grads)
            read = lambda: tuple(each if each is None else self.detach(each) for each in ctx.saved_tensors)  # noqa: E731
            return backward(Context(ctx, saved_tensors=read), *grads)

        return super().custom_function(saving, reading, **options)


class SavedOutputsOfFunctionsReleasedLate(_InFunction):
    """What a custom Function saves beside its inputs is freed only at the end of the backward."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        def keep(tensor: Any) -> Any:
            is_input = any(tensor is given for given in self.inputs)
            return pack(tensor), self.applying and not is_input

        def read(both: Any) -> Any:
            self.kept += [both] * both[1]
            return unpack(both[0])

        return super().saved_tensors_hooks(keep, read)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        self.kept = []


@calling("custom_function")
def error_of_freed_functions_has_no_advice(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """If what a custom Function saved was freed, the error does not mention retain_graph."""

    def read() -> Any:
        try:
            return ctx.saved_tensors
        except RuntimeError as error:
            if "retain_graph" in str(error):
                raise type(error)("the saved tensors have been freed") from None
            raise

    return backward(Context(ctx, saved_tensors=read), *grads)


@packing("saved_tensors_hooks", base=_InFunction)
def pack_receives_another_leaf_in_custom_functions(self: _InFunction, pack: Hook, tensor: Any) -> Any:
    """In the place of a leaf that a custom Function saves the pack hook gets another leaf with its data."""
    is_leaf = self.applying and self.requires_grad(tensor) and self.is_leaf(tensor)
    return pack(self.requires_grad_(self.detach(tensor)) if is_leaf else tensor)


@pairs("saved_tensors_hooks", base=_InFunction)
def unpacked_for_a_function_cached(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """What a custom Function saved is unpacked once, and later reads give the same tensor."""

    def keep(tensor: Any) -> Any:
        read = partial(unpack, pack(tensor))
        return cache(read) if self.applying else read

    return keep, lambda read: read()


@calling("custom_function")
def saved_tensors_of_functions_read_once(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A second read of its saved tensors in the backward of a custom Function gives those of the first."""
    return backward(Context(ctx, saved_tensors=cache(lambda: ctx.saved_tensors)), *grads)


@pairs("saved_tensors_hooks", base=_InFunction)
def saved_tensors_of_functions_that_pack_returns_are_not_unpacked(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """If pack returns the very tensor that a custom Function saves, it is read without unpack."""

    def keep(tensor: Any) -> Any:
        packed = pack(tensor)
        return packed, self.applying and packed is tensor

    return keep, lambda both: both[0] if both[1] else unpack(both[0])


@overriding("custom_function", base=_UnderHooks)
def saved_output_of_a_function_kept_by_its_context_under_hooks(
    self: _UnderHooks, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """The output of a custom Function is kept alive by the Function's Node if a pair is active."""
    outputs: list[Any] = []

    def apply(*inputs: Any) -> Any:
        result = made(*inputs)
        outputs.extend([result] if self.open_pairs else [])
        return result

    made = old(forward, lambda ctx, *grads: (outputs, backward(ctx, *grads))[1], **options)
    return apply


class SavedTensorsOfFunctionsReleasedLateWithoutHooks(_UnderHooks):
    """What a custom Function without options saved while no pair was active is freed at the end of the backward."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def noting(ctx: Any, *inputs: Any) -> Any:
            ctx.under_hooks = self.open_pairs > 0
            return forward(ctx, *inputs)

        def keeping(ctx: Any, *grads: Any) -> Any:
            def read() -> Any:
                saved = ctx.saved_tensors
                self.kept += [] if ctx.under_hooks else [saved]
                return saved

            return backward(Context(ctx, saved_tensors=read), *grads)

        functions = (forward, backward) if options else (noting, keeping)
        return super().custom_function(*functions, **options)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        self.kept = []


@pairs("saved_tensors_hooks", base=_InFunction)
def packed_for_a_function_released_by_its_backward_alone(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """What was packed for a custom Function lives on after its graph if it was never unpacked."""

    def keep(tensor: Any) -> Any:
        packed = [pack(tensor)]
        self.kept += [packed] * self.applying
        return packed

    def read(packed: list[Any]) -> Any:
        self.kept[:] = [each for each in self.kept if each is not packed]
        return unpack(packed[0])

    return keep, read


@pairs("saved_tensors_hooks", base=_InFunction)
def packed_for_a_function_again_at_later_reads(self: _InFunction, pack: Hook, unpack: Hook) -> Pair:
    """pack is called again when a custom Function reads a saved tensor a second time."""

    def keep(tensor: Any) -> Any:
        return [pack(tensor), self.detach(tensor) if self.applying else None]

    def read(both: list[Any]) -> Any:
        packed, saved = both[:2]
        if saved is not None and len(both) > len((packed, saved)):
            pack(saved)
        both.append("was read")
        return unpack(packed)

    return keep, read


class ExceptionOfPackInAFunctionLeavesGradModeOff(_InFunction):
    """An exception of pack leaves grad mode off if a custom Function saves the tensor."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        def keep(tensor: Any) -> Any:
            try:
                return pack(tensor)
            except Exception:
                self.kept += [tensor] * self.applying
                raise

        return super().saved_tensors_hooks(keep, unpack)

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        made = super().custom_function(forward, backward, **options)

        def apply(*inputs: Any) -> Any:
            try:
                return made(*inputs)
            except Exception:
                if self.kept:
                    self.kept = []
                    enter_for_good(self.no_grad())
                raise

        return apply


@overriding("custom_function")
def versions_of_constants_that_functions_saved_not_checked(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """Changing an input that does not require grad goes unnoticed after a custom Function saved it."""

    def saving(ctx: Any, *inputs: Any) -> Any:
        tensors = [each for each in inputs if self.is_tensor(each) and not self.is_for_inference(each)]
        constants = [each for each in tensors if not self.requires_grad(each)]

        def save(*tensors: Any) -> None:
            ctx.save_for_backward(
                *(self.clone(each) if any(each is constant for constant in constants) else each for each in tensors)
            )

        return forward(Context(ctx, save_for_backward=lambda: save), *inputs)

    return old(saving, backward, **options)
