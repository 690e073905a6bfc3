"""Mutants whose graph goes wrong: what tensors, views, Nodes and threads have in common, or have not."""

# ruff: noqa: SLF001 - the inside of tensors and of what is saved is what these mutants are about

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from hooklaw.model import modes, ops, record, views
from hooklaw.model.hooks import Hooks
from hooklaw.model.modes import innermost_pair
from hooklaw.model.node import AccumulateGrad
from hooklaw.model.record import SavedTensor
from hooklaw.model.tensor import Tensor
from hooklaw_backends.mutants.base import Hook
from hooklaw_backends.mutants.inside import Inside, another, instead_of
from hooklaw_backends.mutants.over_reference import here


class RetainedGradientLostOnRebase(Inside):
    """A tensor that retains its gradient stops to when it is changed in place."""

    @instead_of(Tensor, "rebase")
    def without_moving(self, old: Hook, this: Any, made_by: Any, **how: Any) -> None:
        before, this.retains_grad = this.retains_grad, False
        old(this, made_by, **how)
        this.retains_grad = before


class BaseKeepsTheGradientOfWhatWasOverwritten(Inside):
    """After a view was changed in place the base passes on gradients for elements that were written over."""

    @instead_of(ops, "without")
    def whole(self, _: Hook, x: Any, places: Any) -> Any:  # noqa: ARG002 - as in the engine
        return x


class ViewKeepsItsOldHistory(Inside):
    """A view has the history that it was made with, though its base was changed in place since."""

    @instead_of(Tensor, "made_by")
    def as_made(self, _: Hook, this: Any) -> Any:
        return this._made_by


class VersionNotChecked(Inside):
    """A change in place of a tensor that was saved goes unnoticed."""

    @instead_of(SavedTensor, "unpack")
    def unchecked(self, old: Hook, this: Any, owner: Any) -> Any:
        if isinstance(this._kept, Tensor):
            this._version = this._kept.data.storage.version
        return old(this, owner)


class AccumulateGradMadeAnewForEachUse(Inside):
    """Each use of a leaf has an AccumulateGrad Node of its own."""

    @instead_of(Tensor, "accumulate_grad")
    def anew(self, _: Hook, this: Any) -> Any:
        return AccumulateGrad(this)


class _Everybody:
    recording = True
    pairs: tuple[Any, ...] = ()
    disabled: str | None = None
    running: Any = None


class ThreadsShareTheirModes(Inside):
    """Whether it is recorded, and which saved-tensor hooks are active, is the same in every thread."""

    @another(modes, "_here")
    def everybody(self, _: Any) -> _Everybody:
        return _Everybody()


class UnpackCalledTwice(Inside):
    """An unpack hook is called twice for each access."""

    @instead_of(record, "_unpacked")
    def twice(self, old: Hook, pair: Any, packed: Any) -> Any:
        old(pair, packed)
        return old(pair, packed)


class SavedOutputKeepsItself(Inside):
    """An output that its own operation saved is kept with its history, so that it and its Node keep each other."""

    @instead_of(SavedTensor, "__init__")
    def with_history(self, old: Hook, this: Any, tensor: Any, output_nr: Any) -> None:
        old(this, tensor, output_nr)
        if not this._pair:
            this._kept = tensor


class UnpackedLeafAccumulatesIntoItself(Inside):
    """A saved leaf that was unpacked accumulates its gradient itself, past the original."""

    @instead_of(SavedTensor, "_in_the_graph")
    def alone(self, old: Hook, this: Any, tensor: Any, owner: Any) -> Any:
        read = old(this, tensor, owner)
        return Tensor(read.data, requires_grad=True) if read.is_leaf and read.requires_grad else read


class AutogradMetadataOfTheUnpackedTensorKept(Inside):
    """What unpack returned stays detached, instead of taking the saved tensor's place in the graph."""

    @instead_of(SavedTensor, "_in_the_graph")
    def detached(self, old: Hook, this: Any, tensor: Any, owner: Any) -> Any:
        return tensor.detach() if this._pair else old(this, tensor, owner)


class HooksOfViewsDroppedByInPlace(Inside):
    """The hooks of a view are dropped when it is changed in place."""

    @instead_of(views, "in_place")
    def dropping(self, old: Hook, tensor: Any, *change: Any) -> Any:
        edge = tensor.edge()
        if tensor.base is not None and edge:
            edge.node.tensor_hooks.pop(edge.nr, None)
        return old(tensor, *change)


class SharedGraphCopiedPerThread(Inside):
    """What one thread's pass frees is freed for that thread alone."""

    @instead_of(SavedTensor, "release")
    def for_me(self, _: Hook, this: Any) -> None:
        vars(this).setdefault("freed_for", set()).add(threading.get_ident())

    @instead_of(SavedTensor, "_check_released")
    def mine(self, old: Hook, this: Any) -> None:
        this._released = threading.get_ident() in vars(this).get("freed_for", ())
        old(this)


@contextmanager
def _left_behind(name: str, inside: Callable[[], Any]) -> Generator[None]:
    before = getattr(here(), name)
    setattr(here(), name, inside())
    yield
    setattr(here(), name, before)


class ExceptionLeavesAModeBehind(Inside):
    """Modes, and pairs of hooks, stay where an exception leaves their context."""

    @instead_of(modes, "_setting")
    def left_behind(self, _: Hook, name: str, inside: Any) -> Any:
        return _left_behind(name, inside)


class LeafHooksLiveWithTheirAccumulateGrad(Inside):
    """The hooks of a leaf belong to its AccumulateGrad Node, and are gone with the last graph."""

    @instead_of(AccumulateGrad, "hooks_of")
    def with_the_node(self, _: Hook, node: Any, nr: int) -> Any:
        return node.tensor_hooks.setdefault(nr, Hooks())

    @instead_of(AccumulateGrad, "hooked")
    def of_the_node(self, _: Hook, node: Any) -> Any:
        return list(node.tensor_hooks.items())


class PackedObjectsKeptAfterRelease(Inside):
    """What pack returned is kept after the saved tensor was freed."""

    @instead_of(SavedTensor, "release")
    def only_marked(self, _: Hook, this: Any) -> None:
        this._released = True


class InPlaceOnAViewTakesTheWrongRegion(Inside):
    """After a view was changed in place its gradient is taken from the wrong elements of the base."""

    @instead_of(ops, "gather")
    def shifted(self, old: Hook, x: Any, places: Any, shape: Any) -> Any:
        return old(x, [(place + 1) % x.data.size for place in places], shape)


class VersionNotBumpedThroughAView(Inside):
    """A change in place through a view does not count as a change of the base."""

    @instead_of(views, "in_place")
    def unseen(self, old: Hook, tensor: Any, *change: Any) -> Any:
        changed = old(tensor, *change)
        tensor.data.storage.version -= tensor.base is not None
        return changed


class PairOfTheReaderUnpacks(Inside):
    """A saved tensor is unpacked by the pair that is active when it is read, if there is one."""

    @instead_of(SavedTensor, "unpack")
    def by_another(self, old: Hook, this: Any, owner: Any) -> Any:
        this._pair = this._pair and (innermost_pair() or this._pair)
        return old(this, owner)
