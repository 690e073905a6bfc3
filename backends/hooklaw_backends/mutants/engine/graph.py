"""Mutants of the engine whose tensors, views, saved tensors or threads are connected wrongly."""

# ruff: noqa: SLF001 - these mutants replace private parts of tensors and saved tensors

import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any
from unittest.mock import ANY

from hooklaw.model import _mutation, _selective, modes, ops, record, views
from hooklaw.model.modes import innermost_pair
from hooklaw.model.node import AccumulateGrad
from hooklaw.model.record import SavedTensor
from hooklaw.model.tensor import Tensor
from hooklaw_backends.mutants.base import Hook
from hooklaw_backends.mutants.inside import Inside, another, inside, instead_of
from hooklaw_backends.mutants.over_reference import here

CACHE: Any = vars(_selective)["_Cache"]


@inside(Tensor, "rebase")
def retained_gradient_lost_on_rebase(self: Inside, old: Hook, this: Any, made_by: Any, **how: Any) -> None:
    """A tensor that retains its gradient stops retaining it after an in-place change."""
    before, this.retains_grad = this.retains_grad, False
    old(this, made_by, **how)
    this.retains_grad = before


@inside(ops, "without")
def base_keeps_the_gradient_of_what_was_overwritten(self: Inside, _: Hook, x: Any, places: Any) -> Any:
    """After a view was changed in place, the base's old history still gets gradients for the overwritten elements."""
    return x


@inside(Tensor, "made_by")
def view_keeps_its_old_history(self: Inside, _: Hook, this: Any) -> Any:
    """A view keeps its old grad_fn after its base was changed in place."""
    return this._made_by


@inside(SavedTensor, "unpack")
def version_not_checked(self: Inside, old: Hook, this: Any, owner: Any) -> Any:
    """Changing a saved tensor in place goes unnoticed."""
    if isinstance(this._kept, Tensor):
        this._version = this._kept.data.storage.version
    return old(this, owner)


@inside(SavedTensor, "unpack")
def version_not_checked_in_autograd_grad(self: Inside, old: Hook, this: Any, owner: Any) -> Any:
    """Changing a saved tensor in place goes unnoticed in autograd.grad."""
    running: Any = modes.current_pass()
    if running and running._captures and isinstance(this._kept, Tensor):
        this._version = this._kept.data.storage.version
    return old(this, owner)


@inside(SavedTensor, "unpack")
def versions_of_saved_inputs_not_checked(self: Inside, old: Hook, this: Any, owner: Any) -> Any:
    """Changing a saved input in place goes unnoticed; a saved output is checked."""
    if isinstance(this._kept, Tensor) and this._output_nr is None:
        this._version = this._kept.data.storage.version
    return old(this, owner)


@inside(Tensor, "accumulate_grad")
def accumulate_grad_made_anew_for_each_use(self: Inside, _: Hook, this: Any) -> Any:
    """Each use of a leaf has its own AccumulateGrad Node."""
    return AccumulateGrad(this)


class ThreadsShareTheirModes(Inside):
    """All threads share one grad mode and the same saved-tensor hooks."""

    @another(modes, "_here")
    def shared(self, here: Any) -> Any:
        initial = {name: value for name, value in vars(type(here)).items() if not name.startswith("__")}
        return type("SharedModes", (), initial)()


@inside(record, "_unpacked")
def unpack_called_twice(self: Inside, old: Hook, pair: Any, packed: Any) -> Any:
    """An unpack hook is called twice for each access."""
    old(pair, packed)
    return old(pair, packed)


@inside(SavedTensor, "__init__")
def saved_output_keeps_itself(self: Inside, old: Hook, this: Any, tensor: Any, output_nr: Any) -> None:
    """A saved output is kept with its history, so the output and its Node keep each other alive."""
    old(this, tensor, output_nr)
    if not this._pair:
        this._kept = tensor


@inside(SavedTensor, "_in_the_graph")
def unpacked_leaf_accumulates_into_itself(self: Inside, old: Hook, this: Any, tensor: Any, owner: Any) -> Any:
    """An unpacked leaf accumulates its gradient in itself instead of in the original leaf."""
    read = old(this, tensor, owner)
    return Tensor(read.data, requires_grad=True) if read.is_leaf and read.requires_grad else read


@inside(SavedTensor, "_in_the_graph")
def autograd_metadata_of_the_unpacked_tensor_kept(self: Inside, old: Hook, this: Any, tensor: Any, owner: Any) -> Any:
    """An unpacked tensor stays detached instead of taking the saved tensor's place in the graph."""
    return tensor.detach() if this._pair else old(this, tensor, owner)


@inside(SavedTensor, "_in_the_graph")
def unpacked_outputs_stay_detached(self: Inside, old: Hook, this: Any, tensor: Any, owner: Any) -> Any:
    """An unpacked output stays detached instead of taking the saved output's place in the graph."""
    return tensor.detach() if this._pair and this._output_nr is not None else old(this, tensor, owner)


@inside(SavedTensor, "_in_the_graph")
def history_of_an_unpacked_constant_kept(self: Inside, old: Hook, this: Any, tensor: Any, owner: Any) -> Any:
    """What unpack returns keeps its history where the saved tensor does not require grad."""
    return tensor if this._edge is None and this._output_nr is None else old(this, tensor, owner)


@inside(views, "in_place")
def hooks_of_views_dropped_by_in_place(self: Inside, old: Hook, tensor: Any, *change: Any) -> Any:
    """Changing a view in place drops its hooks."""
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


@inside(modes, "_setting")
def exception_leaves_a_mode_behind(self: Inside, _: Hook, name: str, inside: Any) -> Any:
    """Grad modes and saved-tensor hooks stay active if an exception leaves their context."""
    return _left_behind(name, inside)


class LeafHooksLiveWithTheirAccumulateGrad(Inside):
    """A leaf's hooks belong to its AccumulateGrad Node and disappear with the last graph."""

    @instead_of(AccumulateGrad, "__init__")
    def with_hooks_of_its_own(self, old: Hook, node: Any, leaf: Any) -> None:
        old(node, leaf)
        node.tensor_hooks = {}


@inside(SavedTensor, "release")
def packed_objects_kept_after_release(self: Inside, _: Hook, this: Any) -> None:
    """A packed object is kept after its saved tensor was freed."""
    this._released = True


@inside(ops, "gather")
def in_place_on_a_view_takes_the_wrong_region(self: Inside, old: Hook, x: Any, places: Any, shape: Any) -> Any:
    """After an in-place change a view gets the gradient of the wrong elements of its base."""
    return old(x, [(place + 1) % x.data.size for place in places], shape)


@inside(views, "in_place")
def version_not_bumped_through_a_view(self: Inside, old: Hook, tensor: Any, *change: Any) -> Any:
    """An in-place change through a view does not increase the version of the base."""
    changed = old(tensor, *change)
    tensor.data.storage.version -= tensor.base is not None
    return changed


@inside(SavedTensor, "unpack")
def pair_of_the_reader_unpacks(self: Inside, old: Hook, this: Any, owner: Any) -> Any:
    """A saved tensor is unpacked by the hooks that are active when it is read."""
    this._pair = this._pair and (innermost_pair() or this._pair)
    return old(this, owner)


def _trust(cache: Any, places: Iterable[int]) -> None:
    """Let the outputs in these places of a selective checkpoint's cache never count as changed from now on."""
    for place in places:
        cache._saved[place] = cache._saved[place][0], ANY


@inside(CACHE, "filled")
@contextmanager
def changes_of_later_selected_tensors_undetected(self: Inside, old: Hook, this: Any) -> Generator[None]:
    """Of the saved outputs of a selective checkpoint, only a change of the first in place is an error."""
    with old(this):
        yield
    _trust(this, list(this._saved)[1:])


@inside(CACHE, "filled")
@contextmanager
def changes_of_selected_tensors_after_forward_undetected(self: Inside, old: Hook, this: Any) -> Generator[None]:
    """A saved output of a selective checkpoint can be changed in place once the checkpoint's function has returned."""
    with old(this):
        yield
    _trust(this, [place for place, (data, version) in this._saved.items() if data.storage.version == version])


@inside(vars(_mutation)["_Allowance"], "close")
def mutation_context_left_by_an_exception_is_not_cleared(self: Inside, old: Hook, this: Any) -> None:
    """What was saved inside allow_mutation_on_saved_tensors stays there if an exception ends the context."""
    if sys.exc_info()[0] is None:
        old(this)
