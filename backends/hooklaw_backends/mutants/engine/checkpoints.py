"""Mutants of the engine whose checkpoints compare or tell too little."""

from copy import copy
from math import prod
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from hooklaw.model import _checkpoint, _selective
from hooklaw.model.errors import CheckpointMismatchError
from hooklaw.model.strided import filled
from hooklaw.model.tensor import Tensor
from hooklaw_backends.mutants.base import Hook, fresh
from hooklaw_backends.mutants.inside import Inside, inside, instead_of

RECOMPUTED = vars(_checkpoint)["_Recomputed"]
CACHE = vars(_selective)["_Cache"]


@inside(RECOMPUTED, "_compared")
def unchecked_recomputation_checks_later_tensors(self: Inside, old: Hook, this: Any, computed: Any) -> Any:
    """With determinism_check="none" the first recomputed tensor alone may have another dtype."""
    for before, tensor in zip(this.packed[1:], computed[1:], strict=True):
        if before.dtype != tensor.dtype:
            raise CheckpointMismatchError("another dtype")
    return old(this, computed)


@inside(RECOMPUTED, "_compared")
def unchecked_recomputation_checks_later_shapes(self: Inside, old: Hook, this: Any, computed: Any) -> Any:
    """With determinism_check="none" the first recomputed tensor alone may have another shape."""
    for before, tensor in zip(this.packed[1:], computed[1:], strict=True):
        if before.shape != tensor.shape:
            raise CheckpointMismatchError("another shape")
    return old(this, computed)


@inside(RECOMPUTED, "_mismatch")
def debug_names_the_last_operation_of_the_recomputation(self: Inside, old: Hook, this: Any, said: str) -> Any:
    """With debug, the error of a checkpoint names the last of the operations that ran again, and no other of these."""
    if this.how.ran:
        this.how.ran.again[:-1] = []
    return old(this, said)


class LaterRecomputationsAreNotCompared(Inside):
    """Only the first recomputation of a checkpoint is compared with its forward."""

    compared = fresh(WeakSet[Any])

    @instead_of(RECOMPUTED, "_compared")
    def _unless_one_was(self, old: Hook, this: Any, computed: Any) -> Any:
        checked = _with(this, this.packed)
        checked.how = this.how._replace(compares=this.how.compares and this not in self.compared)
        self.compared.add(this)
        return old(checked, computed)


def _as_the_latest(option: str) -> type[Inside]:
    """Return a base of a mutant in which a recomputation goes by an option of the latest checkpoint."""

    class Latest(Inside):
        latest: Any = None

        @instead_of(RECOMPUTED, "__init__")
        def _noted(self, old: Hook, this: Any, fn: Hook, inputs: Any, how: Any) -> None:
            old(this, fn, inputs, how)
            self.latest = getattr(how, option)

        @instead_of(RECOMPUTED, "_run_again")
        def _as_it_is(self, old: Hook, this: Any) -> Any:
            this.how = this.how._replace(**{option: self.latest})
            return old(this)

    return Latest


class RecomputationStopsEarlyAsTheLatest(_as_the_latest("early_stop")):
    """A recomputation stops early if early_stop of the latest checkpoint is True."""


class RecomputationIsComparedAsTheLatest(_as_the_latest("compares")):
    """A recomputation is compared with its forward if determinism_check of the latest checkpoint is "default"."""


class SelectiveCheckpointsOfOnePolicyShareWhatTheySaved(Inside):
    """What a selective checkpoint saves is in the place of what an earlier one with the same policy function saved."""

    caches = fresh(WeakKeyDictionary[Any, Any])

    @instead_of(CACHE, "__init__")
    def _shared(self, old: Hook, this: Any, policy: Any, *, may_change: bool) -> None:
        old(this, policy, may_change=may_change)
        this.__dict__["_saved"] = self.caches.setdefault(policy, this.__dict__["_saved"])


class LaterRecomputationsMaySaveFewer(Inside):
    """A recomputation that saves fewer tensors than forward is an error if it is the first; others give zeros."""

    ran = fresh(WeakSet[Any])

    @instead_of(RECOMPUTED, "_run_again")
    def _unless_it_did(self, old: Hook, this: Any) -> Any:
        is_later = this in self.ran
        self.ran.add(this)
        try:
            return old(this)
        except CheckpointMismatchError as error:
            if not is_later or "tensors were recomputed" not in str(error):
                raise
        return {before.place(): _zeros(before.shape, before.dtype) for before in this.packed}


@inside(RECOMPUTED, "_run_again")
def recomputation_that_saves_one_fewer_is_no_error(self: Inside, old: Hook, this: Any) -> Any:
    """A recomputation that saves one tensor fewer than forward gives zeros for each that forward saved."""
    try:
        return old(this)
    except CheckpointMismatchError as error:
        if not str(error).startswith(f"{len(this.packed) - 1} tensors were recomputed"):
            raise
    return {before.place(): _zeros(before.shape, before.dtype) for before in this.packed}


def _zeros(shape: Any, dtype: str) -> Tensor:
    return Tensor(filled([0.0] * prod(shape), shape, dtype))


@inside(RECOMPUTED, "_compared")
def recomputation_compares_its_first_and_last_tensor_only(self: Inside, old: Hook, this: Any, computed: Any) -> Any:
    """Of the recomputed tensors those between the first and the last may have any shape and dtype."""
    ends = [place for place in range(len(computed)) if place in {0, len(computed) - 1}]
    list(old(_with(this, [this.packed[place] for place in ends]), [computed[place] for place in ends]))
    return [(place, each) for before, each in zip(this.packed, computed, strict=True) if (place := before.place())]


def _with(this: Any, packed: Any) -> Any:
    other = copy(this)
    other.packed = packed
    return other
