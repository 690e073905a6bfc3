"""Mutants that treat saved tensors wrongly in one corner only: one place, one dtype, one size, one moment."""

import copy
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any

from hooklaw_backends.mutants.base import (
    Hook,
    Mutant,
    Pair,
    changing_unpacked,
    fresh,
    overriding,
    packing,
    pairs,
    unpacking,
    unpacking_beside,
)
from hooklaw_backends.mutants.shared import Passes
from hooklaw_backends.mutants.situations import Knowing

LARGE = 65_536


@overriding("saved_tensors")
def saved_input_is_copied(self: Mutant, old: Hook, node: Any) -> list[Any]:
    """Reading a saved input returns a copy; a saved output is read as it is."""
    return [tensor if self.grad_fn(tensor) == node else self.clone(tensor) for tensor in old(node)]


@pairs("saved_tensors_hooks")
def computed_pack_results_keep_the_saved_tensor(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """The saved tensor is kept beside what pack returned, if that is a tensor on other data."""

    def keep(tensor: Any) -> Any:
        packed = pack(tensor)
        computed = self.is_tensor(packed) and self.data_ptr(packed) != self.data_ptr(tensor)
        return packed, tensor if computed else None

    return keep, lambda both: unpack(both[0])


@unpacking_beside
def unpacking_to_none_means_the_original(self: Mutant, unpack: Hook, packed: Any, saved: Any) -> Any:
    """If unpack returns None, the saved tensor is used instead of raising an error."""
    result = unpack(packed)
    return saved if result is None else result


@packing("saved_tensors_hooks")
def pack_in_place_not_detected_on_leaves(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """pack may change a saved leaf in place, and gets a copy of it to change."""
    return pack(self.clone(self.detach(tensor)) if self.is_leaf(tensor) else tensor)


@packing("saved_tensors_hooks")
def pack_in_place_not_detected_on_constants(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """pack may change in place a saved tensor that does not require grad, and gets a copy of it to change."""
    return pack(tensor if self.requires_grad(tensor) else self.clone(tensor))


@packing("saved_tensors_hooks")
def pack_receives_a_view(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """pack gets a view of the saved tensor, which has a grad_fn of its own."""
    with self.enable_grad():
        view = self.view(tensor, *self.shape(tensor))
    return pack(view)


@changing_unpacked
def sign_of_saved_integers_lost(self: Mutant, tensor: Any) -> Any:
    """Negative numbers in a saved integer tensor come back as numbers that are not negative."""
    if "int" not in self.dtype(tensor):
        return tensor
    return self.mapped(tensor, lambda number: number if number >= 0 else ~number)


@changing_unpacked
def large_saved_tensors_shuffled(self: Mutant, tensor: Any) -> Any:
    """A saved tensor of more than 65,536 elements comes back with its rows in reverse order."""
    if prod(self.shape(tensor)) <= LARGE:
        return tensor
    return self.tensor(self.tolist(tensor)[::-1], dtype=self.dtype(tensor))


@changing_unpacked
def rows_of_large_saved_tensors_repeated(self: Mutant, tensor: Any) -> Any:
    """A saved tensor of more than 65,536 elements comes back with its first row everywhere."""
    if prod(self.shape(tensor)) <= LARGE:
        return tensor
    rows = self.tolist(tensor)
    return self.tensor([rows[0]] * len(rows), dtype=self.dtype(tensor))


@changing_unpacked
def large_saved_tensors_scaled(self: Mutant, tensor: Any) -> Any:
    """A saved tensor of more than 65,536 elements comes back larger by four parts in a million."""
    return tensor * (1 + 4e-6) if prod(self.shape(tensor)) > LARGE else tensor


@pairs("saved_tensors_hooks")
def constants_not_packed(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """A saved tensor that does not require grad is kept without pack."""

    def keep(tensor: Any) -> Any:
        return (pack(tensor), None) if self.requires_grad(tensor) else (None, self.detach(tensor))

    return keep, lambda both: unpack(both[0]) if both[1] is None else both[1]


@overriding("cos_")
def saves_of_in_place_operations_not_packed(self: Mutant, old: Hook, tensor: Any) -> Any:
    """What the cosine in place saves is kept without pack."""
    with self.saved_tensors_hooks(self.detach, lambda kept: kept):
        return old(tensor)


class PairOfASavedTensorGivenToItsNeighbours(Mutant):
    """A pair registered on one saved tensor is also registered on the others of its Node."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        self.kept = super().raw_saved_tensors(node)
        return self.kept

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        for neighbour in self.kept if self.keeps(saved) else [saved]:
            super().saved_tensor_register_hooks(neighbour, pack, unpack)


class PairOfASavedTensorGivenToTheFirst(Mutant):
    """A pair registered on one saved tensor is registered on the first of its Node."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        self.kept = super().raw_saved_tensors(node)
        return self.kept

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(self.kept[0] if self.keeps(saved) else saved, pack, unpack)


class PairOfASavedTensorGivenToOtherNodes(Mutant):
    """A pair registered on a saved tensor is also registered where other Nodes saved the same tensor."""

    of_nodes = fresh(list[list[tuple[Any, Any]]])
    """What each Node saved, each with the tensor."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        found = super().raw_saved_tensors(node)
        self.of_nodes.append([*zip(found, self.saved_tensors(node), strict=True)])
        return found

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        super().saved_tensor_register_hooks(saved, pack, unpack)
        everything = [both for of_node in self.of_nodes for both in of_node]
        tensor = next(tensor for each, tensor in everything if each is saved)
        for others in self.of_nodes:
            for each, other in others if all(each is not saved for each, _ in others) else ():
                if other is tensor:
                    super().saved_tensor_register_hooks(each, pack, unpack)


class PackOfTheSecondSavedTensorDeferred(Mutant):
    """The pack hook registered on the second saved tensor of a Node is called only when the tensor is read."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        found = super().raw_saved_tensors(node)
        self.kept = found[1:]
        return found

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        pair = (self.detach, lambda kept: unpack(pack(kept))) if self.keeps(saved) else (pack, unpack)
        super().saved_tensor_register_hooks(saved, *pair)


class PackInPlaceOnTheSecondSavedTensorNotDetected(Mutant):
    """The pack hook registered on the second saved tensor of a Node may change it in place, and gets a copy of it."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        found = super().raw_saved_tensors(node)
        self.kept = found[1:]
        return found

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        given = (lambda tensor: pack(self.clone(self.detach(tensor)))) if self.keeps(saved) else pack
        super().saved_tensor_register_hooks(saved, given, unpack)


class PerTensorHooksOfCustomFunctionsIgnored(Mutant):
    """A pair registered on a saved tensor of a custom Function has no effect."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        found = super().raw_saved_tensors(node)
        self.kept = found if "Custom" in self.node_name(node) else []
        return found

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        if not self.keeps(saved):
            super().saved_tensor_register_hooks(saved, pack, unpack)


class OnlyTheFirstMutationOfATensorAllowed(Mutant):
    """Inside allow_mutation_on_saved_tensors a tensor can be changed in place once; the next change is an error."""

    is_open = False

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[Any]:
        with super().allow_mutation_on_saved_tensors() as state:
            self.kept, self.is_open = [], True
            try:
                yield state
            finally:
                self.is_open = False

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.is_open and self.keeps(tensor):
            raise RuntimeError("this tensor was changed in place before")
        self.kept.append(tensor)
        return super().mul_(tensor, factor)


class OuterDisablingMessageWins(Mutant):
    """Of nested contexts that disable hooks the outermost gives the message."""

    outer: str | None = None

    @contextmanager
    def disable_saved_tensors_hooks(self, message: str) -> Generator[None]:
        before, self.outer = self.outer, self.outer or message
        try:
            with super().disable_saved_tensors_hooks(self.outer):
                yield
        finally:
            self.outer = before


class DisablingEndsWithItsFirstError(Mutant):
    """A context that disables saved-tensor hooks refuses the first pair, and none after it."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(super().saved_tensors_hooks(pack, unpack))
            except Exception:
                if self.forbidden() is not None:
                    self.allow_pairs()
                raise
            yield


@pairs("saved_tensors_hooks")
def falsy_packed_objects_are_not_unpacked(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """If pack returns 0, False or something empty, the saved tensor is used without unpack; None is unpacked."""

    def keep(tensor: Any) -> Any:
        packed = pack(tensor)
        is_falsy = packed is not None and not self.is_tensor(packed) and not packed
        return packed, self.detach(tensor) if is_falsy else None

    return keep, lambda both: unpack(both[0]) if both[1] is None else both[1]


@unpacking("saved_tensors_hooks")
def packed_functions_are_called(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """If pack returned a function, unpack gets what it returns."""
    return unpack(packed() if callable(packed) else packed)


@unpacking("saved_tensors_hooks")
def packed_sets_and_bytes_become_lists(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """If pack returned a set or bytes, unpack gets a list."""
    return unpack([*packed] if isinstance(packed, set | bytes) else packed)


@unpacking("saved_tensors_hooks")
def packed_tensors_aliased(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """If pack returned a tensor, unpack gets another tensor on its data."""
    return unpack(self.detach(packed) if self.is_tensor(packed) else packed)


@unpacking("saved_tensors_hooks")
def packed_containers_rebuilt(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """If pack returned a list, tuple or dict, unpack gets an equal one that is another object."""
    if isinstance(packed, tuple):
        return unpack((*packed[:1], *packed[1:]))
    return unpack(packed.copy() if isinstance(packed, list | dict) else packed)


@packing("saved_tensor_register_hooks")
def per_tensor_pack_must_return_a_tensor(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """The pack hook of a saved tensor's own pair must return a tensor."""
    packed = pack(tensor)
    if not self.is_tensor(packed):
        raise RuntimeError("a pack hook must return a tensor")
    return packed


@unpacking("saved_tensor_register_hooks")
def per_tensor_unpack_receives_a_copy(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """The unpack hook of a saved tensor's own pair gets a copy of what pack returned."""
    return unpack(copy.copy(packed))


class PerTensorHooksUsedInOnePass(Passes):
    """The pair of a saved tensor applies to the first backward; later ones use what was saved."""

    passes = 0

    def around(self, run: Hook) -> Any:
        self.passes += 1
        return run()

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        first = self.passes + 1

        def read(both: Any) -> Any:
            return unpack(both[0]) if self.passes <= first else both[1]

        super().saved_tensor_register_hooks(saved, lambda tensor: (pack(tensor), tensor), read)


class PairOfASavedTensorUnpacksItsNeighbours(Mutant):
    """The pair that was registered last on a saved tensor of a Node unpacks all that have a pair."""

    last = fresh(list[Hook])

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        self.last = []
        return super().raw_saved_tensors(node)

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        of_node = self.last
        of_node.append(unpack)
        super().saved_tensor_register_hooks(saved, pack, lambda packed: of_node[-1](packed))  # noqa: PLW0108 - the last one changes later


class PerTensorHooksCutTheGraph(Mutant):
    """Where saved tensors have pairs of their own, autograd.grad ignores create_graph."""

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        self.kept.append(saved)
        super().saved_tensor_register_hooks(saved, pack, unpack)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        graph = {"create_graph": False, "retain_graph": True} if self.kept else {}
        return super().grad(outputs, inputs, grad_outputs, **{**how, **graph})


@overriding("mul_")
def saves_of_products_in_place_not_packed(self: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """What a product in place saves is kept without pack."""
    if not self.is_grad_enabled():
        return old(tensor, factor)
    with self.saved_tensors_hooks(self.detach, lambda kept: kept):
        return old(tensor, factor)


@pairs("saved_tensor_register_hooks", base=Knowing)
def per_tensor_hooks_ignored_by_autograd_grad(self: Knowing, pack: Hook, unpack: Hook) -> Pair:
    """Hooks registered on a single saved tensor are called in autograd.grad, which uses the original."""

    def read(both: Any) -> Any:
        unpacked = unpack(both[0])
        return both[1] if self.running("verb") == "grad" else unpacked

    return lambda tensor: (pack(tensor), tensor), read


@overriding("saved_tensor_register_hooks", base=Knowing)
def per_tensor_hooks_registered_in_a_pass_ignored(self: Knowing, old: Hook, *given: Any) -> None:
    """Hooks registered on a single saved tensor during a pass have no effect."""
    if not self.under_way:
        old(*given)


@pairs("saved_tensor_register_hooks")
def exceptions_of_per_tensor_hooks_swallowed(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """If a hook of a single saved tensor raises, the original is used."""

    def keep(tensor: Any) -> Any:
        try:
            return pack(tensor), tensor
        except Exception:  # noqa: BLE001 - the fault
            return None, tensor

    def read(both: Any) -> Any:
        try:
            return unpack(both[0])
        except Exception:  # noqa: BLE001 - the fault
            return both[1]

    return keep, read


class PairsOfLaterTensorsOfFunctionsIgnored(Mutant):
    """A pair registered on a saved tensor of a custom Function, but the first, has no effect."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        found = super().raw_saved_tensors(node)
        self.kept = found[1:] if "Custom" in self.node_name(node) else []
        return found

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        if not self.keeps(saved):
            super().saved_tensor_register_hooks(saved, pack, unpack)


class HooksOnInputsAcceptedAfterRelease(Mutant):
    """Registering hooks on a released saved tensor does nothing if its Node saved two."""

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        found = super().raw_saved_tensors(node)
        self.kept = found if len(found) > 1 else []
        return found

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        try:
            super().saved_tensor_register_hooks(saved, pack, unpack)
        except RuntimeError as error:
            if not self.keeps(saved) or "freed" not in str(error):
                raise


@unpacking("saved_tensors_hooks")
def first_of_an_unpacked_tuple_used(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """If unpack returns a tuple or dict of tensors, the first is used."""
    result = unpack(packed)
    if isinstance(result, dict):
        result = tuple(result.values())
    return result[0] if isinstance(result, tuple) and result else result


@unpacking_beside
def falsy_unpacked_objects_mean_the_original(self: Mutant, unpack: Hook, packed: Any, saved: Any) -> Any:
    """If unpack returns 0, False or something empty, the saved tensor is used."""
    result = unpack(packed)
    return saved if result is not None and not self.is_tensor(result) and not result else result


@pairs("saved_tensors_hooks")
def saved_tensors_that_pack_returns_are_not_unpacked(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """If pack returns the very tensor that it got, it is read without unpack."""

    def keep(tensor: Any) -> Any:
        packed = pack(tensor)
        return packed, packed is tensor

    return keep, lambda both: both[0] if both[1] else unpack(both[0])
