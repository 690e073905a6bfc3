"""Mutants whose saved tensors have the wrong identity or lifetime."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import ref

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, fresh, overriding, packing, pairs, unpacking
from hooklaw_backends.mutants.situations import Knowing


@overriding("saved_tensors")
def saved_input_is_a_fresh_alias(self: Mutant, old: Hook, node: Any) -> list[Any]:
    """Without hooks a saved input comes back as another object."""
    return [self.detach(tensor) for tensor in old(node)]


class SavedOutputIsItself(Mutant):
    """A saved output comes back as the very same object instead of a new one."""

    _outputs = fresh(dict[Any, Any])

    def exp(self, tensor: Any) -> Any:
        output = super().exp(tensor)
        self._outputs[self.grad_fn(output)] = output
        return output

    def saved_tensors(self, node: Any) -> list[Any]:
        read = super().saved_tensors(node)
        return [self._outputs[node]] if node in self._outputs else read


class _KnowsSaved(Mutant):
    """A mutant whose saved tensors are those that it knows."""

    known = fresh(dict[int, Any])

    def saved_tensors(self, node: Any) -> list[Any]:
        return [self.known.get(self.data_ptr(tensor), tensor) for tensor in super().saved_tensors(node)]


@packing("saved_tensors_hooks", base=_KnowsSaved)
def saved_input_is_itself_under_hooks(self: _KnowsSaved, pack: Hook, tensor: Any) -> Any:
    """With saved-tensor hooks a saved tensor comes back as the original object."""
    self.known.setdefault(self.data_ptr(tensor), tensor)
    return pack(tensor)


class _ReadsOneObject(Mutant):
    """A mutant whose reads of the same data give one object, if a pack hook returned the tensor that it got."""

    read = fresh(dict[int, Any])

    def saved_tensors(self, node: Any) -> list[Any]:
        return [self.one_for(self.data_ptr(tensor), tensor) for tensor in super().saved_tensors(node)]

    def one_for(self, data: int, tensor: Any) -> Any:
        """Return the tensor that was read of the data first, if it is alive."""
        if data not in self.read:
            return tensor
        found = self.read[data]()
        if found is None:
            self.read[data] = ref(tensor)
        return tensor if found is None else found


@packing("saved_tensors_hooks", base=_ReadsOneObject)
def identity_pair_makes_no_new_objects(self: _ReadsOneObject, pack: Hook, tensor: Any) -> Any:
    """If pack returns its input, reads of two saved tensors of the same data give one object."""
    packed = pack(tensor)
    if packed is tensor:
        self.read.setdefault(self.data_ptr(tensor), lambda: None)
    return packed


@unpacking("saved_tensors_hooks")
def saved_tensors_copied_under_hooks(self: Mutant, unpack: Hook, packed: Any) -> Any:
    """With saved-tensor hooks a saved tensor comes back as a copy of what unpack returned."""
    return self.clone(unpack(packed))


@pairs("saved_tensors_hooks")
def packed_tensor_keeps_the_saved_one(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """A packed tensor keeps the original tensor alive."""
    return lambda tensor: (pack(tensor), tensor), lambda both: unpack(both[0])


@packing("saved_tensors_hooks")
def identity_pack_makes_no_cycle(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """If pack returns its input, a detached tensor is kept instead."""
    packed = pack(tensor)
    return self.detach(tensor) if packed is tensor else packed


@packing("saved_tensors_hooks")
def packed_objects_outlive_the_graph(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """Packed objects are never released."""
    self.kept.append(pack(tensor))
    return self.kept[-1]


@pairs("saved_tensors_hooks", base=Knowing)
def packed_objects_outlive_autograd_grad(self: Knowing, pack: Hook, unpack: Hook) -> Pair:
    """Packed objects are never released if autograd.grad has used them."""

    def read(packed: list[Any]) -> Any:
        self.kept += [packed] * (self.running("verb") == "grad")
        return unpack(packed[0])

    return lambda tensor: [pack(tensor)], read


class _NumbersPairs(Mutant):
    """A mutant that knows how many pairs of hooks there were so far, and how many are open."""

    pairs = open = 0
    has_nested = False
    """Whether the latest pair was inside another."""

    def reset(self) -> None:
        super().reset()
        self.pairs, self.open, self.has_nested = 0, 0, False


def keeping(step: Hook) -> type[Mutant]:
    """Make a mutant that never releases what is packed of a tensor if ``(self, tensor, number)`` says so.

    It is given how many tensors the pair of hooks has packed before.
    """

    @contextmanager
    @wraps(step)
    def hooks(self: _NumbersPairs, old: Hook, pack: Hook, unpack: Hook) -> Generator[None]:
        numbers: list[None] = []

        def packing(tensor: Any) -> Any:
            packed = pack(tensor)
            self.kept += [packed] if step(self, tensor, len(numbers)) else []
            numbers.append(None)
            return packed

        with old(packing, unpack):
            self.pairs += 1
            self.open += 1
            self.has_nested = self.open > 1
            try:
                yield
            finally:
                self.open -= 1

    return overriding("saved_tensors_hooks", base=_NumbersPairs)(hooks)


@keeping
def packed_objects_of_later_pairs_outlive_the_graph(self: _NumbersPairs, _tensor: Any, _number: int) -> bool:
    """What is packed under the third pair of hooks or a later one is never released."""
    return self.pairs > 2  # noqa: PLR2004 - the third


@keeping
def later_packed_objects_of_a_pair_outlive_the_graph(_self: _NumbersPairs, _tensor: Any, number: int) -> bool:
    """What a pair of hooks packs after its first two tensors is never released."""
    return number > 1


@keeping
def packed_objects_of_inner_pairs_outlive_the_graph(self: _NumbersPairs, _tensor: Any, _number: int) -> bool:
    """What is packed under a pair of hooks inside another is never released."""
    return self.open > 1


@keeping
def packed_objects_after_an_inner_pair_outlive_the_graph(self: _NumbersPairs, _tensor: Any, _number: int) -> bool:
    """What is packed under a pair of hooks after another inside it is never released."""
    return self.open == 1 and self.has_nested


@keeping
def packed_constants_outlive_the_graph(self: _NumbersPairs, tensor: Any, _number: int) -> bool:
    """What is packed of a tensor that does not require grad is never released."""
    return not self.requires_grad(tensor)


@keeping
def packed_scalars_outlive_the_graph(self: _NumbersPairs, tensor: Any, _number: int) -> bool:
    """What is packed of a 0-d tensor is never released."""
    return self.shape(tensor) == ()
