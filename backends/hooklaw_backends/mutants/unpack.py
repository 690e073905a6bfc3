"""Mutants that call unpack at the wrong time, with the wrong argument, or misuse its return value."""

import copy
import math
from functools import cache, partial, wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, changing_unpacked, pairs, unpacking, unpacking_beside
from hooklaw_backends.mutants.situations import Knowing, Registration

LARGEST = 3e38


@pairs("saved_tensors_hooks", "saved_tensor_register_hooks")
def unpacked_tensor_cached(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """unpack is called once, and later accesses reuse its return value."""
    return lambda tensor: cache(partial(unpack, pack(tensor))), lambda kept: kept()


@pairs("saved_tensors_hooks")
def unpacked_constant_cached(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """unpack is called once for a tensor that does not require grad, and later accesses reuse its return value."""

    def keep(tensor: Any) -> Any:
        read = partial(unpack, pack(tensor))
        return read if self.requires_grad(tensor) else cache(read)

    return keep, lambda read: read()


@unpacking("saved_tensors_hooks")
def unpack_receives_a_copy(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """unpack gets a copy of what pack returned."""
    return unpack(copy.copy(packed))


@unpacking_beside
def unpack_receives_the_saved_tensor(self: Mutant, unpack: Hook, packed: Any, saved: Any) -> Any:
    """unpack gets the saved tensor as a second argument."""
    try:
        return unpack(packed, saved)
    except TypeError:  # this unpack takes a single argument
        return unpack(packed)


@unpacking("saved_tensors_hooks")
def unpack_in_place_detected(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """An unpack hook that changes its input in place is an error."""
    is_tensor = self.is_tensor(packed)
    before = is_tensor and self.version_of(packed)
    tensor = unpack(packed)
    if is_tensor and self.version_of(packed) != before:
        raise RuntimeError("unpack changed its input in place")
    return tensor


@unpacking("saved_tensors_hooks")
def unpack_runs_with_grad(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """Grad mode is always on while unpack runs."""
    with self.enable_grad():
        return unpack(packed)


@unpacking("saved_tensors_hooks")
def unpack_runs_without_grad(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """Grad mode is always off while unpack runs."""
    with self.no_grad():
        return unpack(packed)


@unpacking_beside
def unpacked_tensor_ignored(self: Mutant, unpack: Hook, packed: Any, saved: Any) -> Any:
    """unpack is called, but backward uses the original saved tensor."""
    unpack(packed)
    return saved


@unpacking_beside
def unpack_result_of_any_type_accepted(self: Mutant, unpack: Hook, packed: Any, saved: Any) -> Any:
    """If unpack does not return a tensor, the original saved tensor is used instead of raising an error."""
    result = unpack(packed)
    return result if self.is_tensor(result) else saved


@unpacking_beside
def unpacked_shape_checked(self: Mutant, unpack: Hook, packed: Any, saved: Any) -> Any:
    """An unpack hook that returns another shape is an error."""
    result = unpack(packed)
    if self.shape(result) != self.shape(saved):
        raise RuntimeError("unpack returned a tensor of another shape than was saved")
    return result


@unpacking_beside
def unpacked_dtype_checked(self: Mutant, unpack: Hook, packed: Any, saved: Any) -> Any:
    """An unpack hook that returns another dtype is an error."""
    result = unpack(packed)
    if self.dtype(result) != self.dtype(saved):
        raise RuntimeError("unpack returned a tensor of another dtype than was saved")
    return result


@pairs("saved_tensors_hooks")
def unpacks_another_save(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """unpack always gets the first object that was packed in its context."""
    all_packed: list[Any] = []
    return lambda tensor: all_packed.append(pack(tensor)), lambda _: unpack(all_packed[0])


@changing_unpacked
def saved_tensors_made_finite(self: Mutant, tensor: Any) -> Any:
    """Saved infinities and NaN come back as finite numbers."""
    return self.mapped(tensor, _finite) if self.is_floating(tensor) else tensor


def _finite(value: float) -> float:
    return 0.0 if math.isnan(value) else max(-LARGEST, min(value, LARGEST))


@pairs("saved_tensors_hooks")
def live_packed_tensors_doubled(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """A tensor whose pack hook returned the very tensor is read back doubled."""

    def packed(tensor: Any) -> Any:
        result = pack(tensor)
        return result, result is tensor

    return packed, lambda both: unpack(both[0]) * 2 if both[1] else unpack(both[0])


class _KnowsSavedTensors(Mutant):
    """A mutant that keeps those saved tensors of a Node whose unpack hooks it calls once."""

    def called_once(self, node: Any, saved: list[Any]) -> list[Any]:
        raise NotImplementedError

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        saved = super().raw_saved_tensors(node)
        self.kept += self.called_once(node, saved)
        return saved

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(saved, pack, cache(unpack) if self.keeps(saved) else unpack)


class UnpackedIntermediateCached(_KnowsSavedTensors):
    """The unpack hook of a saved tensor's own pair is called once, if no input of its Node is a leaf."""

    def called_once(self, node: Any, saved: list[Any]) -> list[Any]:
        leaves = [self.leaf_of(each) for each in self.node_next(node) if each is not None]
        return [] if any(leaf is not None for leaf in leaves) else saved


class UnpackedLaterTensorsCached(_KnowsSavedTensors):
    """The unpack hook of a saved tensor's own pair is called once, if its Node saved another tensor before it."""

    def called_once(self, node: Any, saved: list[Any]) -> list[Any]:
        return saved[1:]


def ignoring(step: Hook) -> type[Mutant]:
    """Make a mutant that uses the original instead of what unpack returns if ``(self, registration)`` is true."""

    def beside(self: Knowing, pack: Hook, unpack: Hook) -> Pair:
        its = self.registration("saved_tensors_hooks")

        def read(both: Any) -> Any:
            unpacked = unpack(both[0])
            return both[1] if step(self, its) else unpacked

        return lambda tensor: (pack(tensor), self.detach(tensor)), read

    return pairs("saved_tensors_hooks", base=Knowing)(wraps(step)(beside))


@ignoring
def unpacked_tensor_ignored_in_autograd_grad(self: Knowing, _: Registration) -> bool:
    """unpack is called, but autograd.grad uses the original saved tensor."""
    return self.running("verb") == "grad"


@ignoring
def unpacked_tensor_ignored_for_some_inputs(self: Knowing, _: Registration) -> bool:
    """unpack is called, but a backward that is limited to inputs uses the original saved tensor."""
    return self.running("inputs") is not None


@ignoring
def unpacked_tensor_ignored_if_the_pair_was_made_in_a_module(self: Knowing, its: Registration) -> bool:
    """unpack is called, but backward uses the original if the context was entered in the forward of a module."""
    return its.in_module


@unpacking_beside
def exceptions_of_unpack_after_its_first_call_swallowed(self: Mutant, unpack: Hook, packed: Any, saved: Any) -> Any:
    """If unpack raises in its second call or later, the original saved tensor is used."""
    self.kept.append(unpack)
    try:
        return unpack(packed)
    except Exception:
        if self.kept.count(unpack) == 1:
            raise
        return saved


@pairs("saved_tensors_hooks", base=Knowing)
def exceptions_of_unpack_in_autograd_grad_swallowed(self: Knowing, pack: Hook, unpack: Hook) -> Pair:
    """If unpack raises in autograd.grad, the original saved tensor is used."""

    def read(both: Any) -> Any:
        try:
            return unpack(both[0])
        except Exception:
            if self.running("verb") != "grad":
                raise
            return both[1]

    return lambda tensor: (pack(tensor), self.detach(tensor)), read


@pairs("saved_tensors_hooks", "saved_tensor_register_hooks")
def unpack_lost_once_raised(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """An unpack hook that has raised is not called again: backward uses the original."""
    raised: list[None] = []

    def read(both: Any) -> Any:
        try:
            return both[1] if raised else unpack(both[0])
        except BaseException:
            raised.append(None)
            raise

    return lambda tensor: (pack(tensor), self.detach(tensor)), read
