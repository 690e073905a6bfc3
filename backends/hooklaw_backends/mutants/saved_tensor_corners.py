"""Mutants that treat saved tensors wrongly in one corner only: one place, one dtype, one size, one moment."""

from collections.abc import Generator
from contextlib import contextmanager
from math import prod
from typing import Any

from hooklaw_backends.mutants.base import ChangedOnUnpack, Hook, Mutant, Pair, Pairs

LARGE = 65_536


class SavedInputIsCopied(Mutant):
    """Reading a saved input returns a copy; a saved output is read as it is."""

    def saved_tensors(self, node: Any) -> list[Any]:
        read = super().saved_tensors(node)
        return [tensor if self.grad_fn(tensor) == node else self.clone(tensor) for tensor in read]


class ComputedPackResultsKeepTheSavedTensor(Pairs):
    """The saved tensor is kept beside what pack returned, if that is a tensor on other data."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def keep(tensor: Any) -> Any:
            packed = pack(tensor)
            computed = self.is_tensor(packed) and self.data_ptr(packed) != self.data_ptr(tensor)
            return packed, tensor if computed else None

        return keep, lambda both: unpack(both[0])


class UnpackingToNoneMeansTheOriginal(Pairs):
    """If unpack returns None, the saved tensor is used instead of raising an error."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def read(both: Any) -> Any:
            result = unpack(both[0])
            return both[1] if result is None else result

        return lambda tensor: (pack(tensor), self.detach(tensor)), read


class PackInPlaceNotDetectedOnLeaves(Pairs):
    """pack may change a saved leaf in place, and gets a copy of it to change."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def spared(tensor: Any) -> Any:
            return pack(self.clone(self.detach(tensor)) if self.is_leaf(tensor) else tensor)

        return spared, unpack


class PackReceivesAView(Pairs):
    """pack gets a view of the saved tensor, which has a grad_fn of its own."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def viewed(tensor: Any) -> Any:
            with self.enable_grad():
                view = self.view(tensor, *self.shape(tensor))
            return pack(view)

        return viewed, unpack


class SignOfSavedIntegersLost(ChangedOnUnpack):
    """Negative numbers in a saved integer tensor come back as numbers that are not negative."""

    def changed(self, tensor: Any) -> Any:
        if "int" not in self.dtype(tensor):
            return tensor
        return self.mapped(tensor, lambda number: number if number >= 0 else ~number)


class LargeSavedTensorsShuffled(ChangedOnUnpack):
    """A saved tensor of more than 65,536 elements comes back with its rows in reverse order."""

    def changed(self, tensor: Any) -> Any:
        if prod(self.shape(tensor)) <= LARGE:
            return tensor
        return self.tensor(self.tolist(tensor)[::-1], dtype=self.dtype(tensor))


class RowsOfLargeSavedTensorsRepeated(ChangedOnUnpack):
    """A saved tensor of more than 65,536 elements comes back with its first row everywhere."""

    def changed(self, tensor: Any) -> Any:
        if prod(self.shape(tensor)) <= LARGE:
            return tensor
        rows = self.tolist(tensor)
        return self.tensor([rows[0]] * len(rows), dtype=self.dtype(tensor))


class LargeSavedTensorsScaled(ChangedOnUnpack):
    """A saved tensor of more than 65,536 elements comes back larger by four parts in a million."""

    def changed(self, tensor: Any) -> Any:
        return tensor * (1 + 4e-6) if prod(self.shape(tensor)) > LARGE else tensor


class OnlyTheFirstMutationOfATensorAllowed(Mutant):
    """Inside allow_mutation_on_saved_tensors a tensor can be changed in place once; the next change is an error."""

    changed: list[Any] | None = None

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[Any]:
        outer, self.changed = self.changed, []
        try:
            with super().allow_mutation_on_saved_tensors() as state:
                yield state
        finally:
            self.changed = outer

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.changed is not None:
            if any(tensor is before for before in self.changed):
                raise RuntimeError("this tensor was changed in place before")
            self.changed.append(tensor)
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


class ConstantsNotPacked(Pairs):
    """A saved tensor that does not require grad is kept without pack."""

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def keep(tensor: Any) -> Any:
            return (pack(tensor), None) if self.requires_grad(tensor) else (None, self.detach(tensor))

        return keep, lambda both: unpack(both[0]) if both[1] is None else both[1]


class SavesOfInPlaceOperationsNotPacked(Mutant):
    """What the cosine in place saves is kept without pack."""

    def cos_(self, tensor: Any) -> Any:
        with super().saved_tensors_hooks(self.detach, lambda kept: kept):
            return super().cos_(tensor)


class PairOfASavedTensorGivenToItsNeighbours(Mutant):
    """A pair registered on one saved tensor is also registered on the others of its Node."""

    def __init__(self) -> None:
        super().__init__()
        self._last: list[Any] = []

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        self._last = super().raw_saved_tensors(node)
        return self._last

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        for neighbour in self._last if saved in self._last else [saved]:
            super().saved_tensor_register_hooks(neighbour, pack, unpack)


class PerTensorHooksOfCustomFunctionsIgnored(Mutant):
    """A pair registered on a saved tensor of a custom Function has no effect."""

    def __init__(self) -> None:
        super().__init__()
        self._of_custom: list[Any] = []

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        found = super().raw_saved_tensors(node)
        self._of_custom = found if "Custom" in self.node_name(node) else []
        return found

    def saved_tensor_register_hooks(self, saved: Any, pack: Hook, unpack: Hook) -> None:
        if saved not in self._of_custom:
            super().saved_tensor_register_hooks(saved, pack, unpack)
