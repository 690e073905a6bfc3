"""Mutants of the engine whose tensors, views, saved tensors or threads are connected wrongly."""

# ruff: noqa: SLF001 - these mutants replace private parts of tensors and saved tensors

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from hooklaw.model import modes, ops, record, views
from hooklaw.model.modes import innermost_pair
from hooklaw.model.node import AccumulateGrad
from hooklaw.model.record import SavedTensor
from hooklaw.model.tensor import Tensor
from hooklaw_backends.mutants.base import Hook
from hooklaw_backends.mutants.inside import Inside, another, instead_of
from hooklaw_backends.mutants.over_reference import here


class RetainedGradientLostOnRebase(Inside):
    """A tensor that retains its gradient stops retaining it after an in-place change."""

    @instead_of(Tensor, "rebase")
    def without_moving(self, old: Hook, this: Any, made_by: Any, **how: Any) -> None:
        before, this.retains_grad = this.retains_grad, False
        old(this, made_by, **how)
        this.retains_grad = before


class BaseKeepsTheGradientOfWhatWasOverwritten(Inside):
    """After a view was changed in place, the base's old history still gets gradients for the overwritten elements."""

    @instead_of(ops, "without")
    def whole(self, _: Hook, x: Any, places: Any) -> Any:  # noqa: ARG002 - the signature of the engine
        return x


class ViewKeepsItsOldHistory(Inside):
    """A view keeps its old grad_fn after its base was changed in place."""

    @instead_of(Tensor, "made_by")
    def as_made(self, _: Hook, this: Any) -> Any:
        return this._made_by


class VersionNotChecked(Inside):
    """Changing a saved tensor in place goes unnoticed."""

    @instead_of(SavedTensor, "unpack")
    def unchecked(self, old: Hook, this: Any, owner: Any) -> Any:
        if isinstance(this._kept, Tensor):
            this._version = this._kept.data.storage.version
        return old(this, owner)


class AccumulateGradMadeAnewForEachUse(Inside):
    """Each use of a leaf has its own AccumulateGrad Node."""

    @instead_of(Tensor, "accumulate_grad")
    def fresh(self, _: Hook, this: Any) -> Any:
        return AccumulateGrad(this)


class _SharedModes:
    recording = True
    pairs: tuple[Any, ...] = ()
    disabled: str | None = None
    running: Any = None


class ThreadsShareTheirModes(Inside):
    """All threads share one grad mode and the same saved-tensor hooks."""

    @another(modes, "_here")
    def shared(self, _: Any) -> _SharedModes:
        return _SharedModes()


class UnpackCalledTwice(Inside):
    """An unpack hook is called twice for each access."""

    @instead_of(record, "_unpacked")
    def twice(self, old: Hook, pair: Any, packed: Any) -> Any:
        old(pair, packed)
        return old(pair, packed)


class SavedOutputKeepsItself(Inside):
    """A saved output is kept with its history, so the output and its Node keep each other alive."""

    @instead_of(SavedTensor, "__init__")
    def with_history(self, old: Hook, this: Any, tensor: Any, output_nr: Any) -> None:
        old(this, tensor, output_nr)
        if not this._pair:
            this._kept = tensor


class UnpackedLeafAccumulatesIntoItself(Inside):
    """An unpacked leaf accumulates its gradient in itself instead of in the original leaf."""

    @instead_of(SavedTensor, "_in_the_graph")
    def alone(self, old: Hook, this: Any, tensor: Any, owner: Any) -> Any:
        read = old(this, tensor, owner)
        return Tensor(read.data, requires_grad=True) if read.is_leaf and read.requires_grad else read


class AutogradMetadataOfTheUnpackedTensorKept(Inside):
    """An unpacked tensor stays detached instead of taking the saved tensor's place in the graph."""

    @instead_of(SavedTensor, "_in_the_graph")
    def detached(self, old: Hook, this: Any, tensor: Any, owner: Any) -> Any:
        return tensor.detach() if this._pair else old(this, tensor, owner)


class HooksOfViewsDroppedByInPlace(Inside):
    """Changing a view in place drops its hooks."""

    @instead_of(views, "in_place")
    def dropping(self, old: Hook, tensor: Any, *change: Any) -> Any:
        edge = tensor.edge()
        if tensor.base is not None and edge:
            edge.node.tensor_hooks.pop(edge.nr, None)
        return old(tensor, *change)


class SharedGraphCopiedPerThread(Inside):
    """A backward in one thread frees the saved tensors for that thread only."""

    @instead_of(SavedTensor, "release")
    def for_this_thread(self, _: Hook, this: Any) -> None:
        vars(this).setdefault("freed_for", set()).add(threading.get_ident())

    @instead_of(SavedTensor, "_check_released")
    def check_this_thread(self, old: Hook, this: Any) -> None:
        this._released = threading.get_ident() in vars(this).get("freed_for", ())
        old(this)


@contextmanager
def _left_behind(name: str, inside: Callable[[], Any]) -> Generator[None]:
    before = getattr(here(), name)
    setattr(here(), name, inside())
    yield
    setattr(here(), name, before)


class ExceptionLeavesAModeBehind(Inside):
    """Grad modes and saved-tensor hooks stay active if an exception leaves their context."""

    @instead_of(modes, "_setting")
    def left_behind(self, _: Hook, name: str, inside: Any) -> Any:
        return _left_behind(name, inside)


class LeafHooksLiveWithTheirAccumulateGrad(Inside):
    """A leaf's hooks belong to its AccumulateGrad Node and disappear with the last graph."""

    @instead_of(AccumulateGrad, "__init__")
    def with_hooks_of_its_own(self, old: Hook, node: Any, leaf: Any) -> None:
        old(node, leaf)
        node.tensor_hooks = {}


class PackedObjectsKeptAfterRelease(Inside):
    """A packed object is kept after its saved tensor was freed."""

    @instead_of(SavedTensor, "release")
    def only_marked(self, _: Hook, this: Any) -> None:
        this._released = True


class InPlaceOnAViewTakesTheWrongRegion(Inside):
    """After an in-place change a view gets the gradient of the wrong elements of its base."""

    @instead_of(ops, "gather")
    def shifted(self, old: Hook, x: Any, places: Any, shape: Any) -> Any:
        return old(x, [(place + 1) % x.data.size for place in places], shape)


class VersionNotBumpedThroughAView(Inside):
    """An in-place change through a view does not increase the version of the base."""

    @instead_of(views, "in_place")
    def unseen(self, old: Hook, tensor: Any, *change: Any) -> Any:
        changed = old(tensor, *change)
        tensor.data.storage.version -= tensor.base is not None
        return changed


class PairOfTheReaderUnpacks(Inside):
    """A saved tensor is unpacked by the hooks that are active when it is read."""

    @instead_of(SavedTensor, "unpack")
    def by_another(self, old: Hook, this: Any, owner: Any) -> Any:
        this._pair = this._pair and (innermost_pair() or this._pair)
        return old(this, owner)
