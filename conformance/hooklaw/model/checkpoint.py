"""Activation checkpoints: regions that save nothing for backward, which runs them again to have what it needs.

A region of one kind is a pair of saved-tensor hooks: its Nodes are those of the first run, and unpacking runs it again.
A reentrant region is one Node, whose backward runs it again and then runs a backward inside the other one.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from hooklaw.model import engine
from hooklaw.model.errors import CheckpointKindError, CheckpointMismatchError, CheckpointReentrantError
from hooklaw.model.flags import on
from hooklaw.model.function import CustomNode, custom_function
from hooklaw.model.hooks import Gradients, Hook
from hooklaw.model.modes import Pair, current_pass, grad_mode, recording, saved_tensors_hooks
from hooklaw.model.record import SavedTensor
from hooklaw.model.strided import Shape
from hooklaw.model.tensor import Tensor


def checkpoint(
    fn: Hook,
    *tensors: Tensor,
    use_reentrant: bool | None = None,
    early_stop: bool = True,
    determinism_check: str = "default",
) -> Any:
    """Run a region now, and again in each backward that needs what it would have saved."""
    if use_reentrant is None and not on("regions-are-reentrant-unless-told"):
        raise CheckpointKindError("a checkpoint must be told of which kind it is: pass use_reentrant")
    if use_reentrant is not False:
        return _reentrant(fn)(*tensors)
    if not recording():
        return fn(*tensors)
    region = _Region(fn, tensors, early_stop=early_stop, compares=determinism_check != "none")
    with saved_tensors_hooks(Pair(region.pack, region.unpack)):
        result = fn(*tensors)
    region.has_returned = True
    return result


# --- regions that are not reentrant


class _Place:
    """What a Node of the region keeps in the place of a tensor: it goes with the graph."""


class _Packed(NamedTuple):
    """What is known of a tensor of the first run."""

    place: Callable[[], _Place | None]
    shape: Shape
    dtype: str


class _EnoughError(Exception):
    """Ends a run that has computed all that is needed."""


class _Region:
    """One call of a checkpoint. It saves its inputs as a Node would: with the pair around it, if there is one."""

    def __init__(self, fn: Hook, tensors: Sequence[Tensor], *, early_stop: bool, compares: bool) -> None:
        self.fn, self.early_stop, self.compares = fn, early_stop, compares
        self.inputs = [SavedTensor(one, None) for one in tensors]
        self.packed: list[_Packed] = []
        self.has_returned = False

    def pack(self, tensor: Tensor) -> _Place:
        """Let go of a tensor; note where it was, and how the next run's must look."""
        place = _Place()
        self.packed.append(_Packed(weakref.ref(place), tensor.shape, tensor.dtype))
        return place

    def unpack(self, place: _Place) -> Tensor:
        """Return what was computed again in this place. Each pass has a run of its own, whose results are read once."""
        now = current_pass()
        memory: dict[object, Any] = now.memory if now else {}
        if self not in memory:
            memory[self] = self._run_again()
        if place not in memory[self]:
            raise CheckpointMismatchError("a tensor of a checkpoint was read twice in one backward")
        return memory[self].pop(place)

    def _run_again(self) -> dict[_Place, Tensor]:
        """Return what each place is to have that is still there. The graph of this run is left alone."""
        tensors, computed = [one.unpack() for one in self.inputs], list[Tensor]()

        def pack(tensor: Tensor) -> Tensor:
            tensor = tensor.detach() if tensor.requires_grad else tensor
            self._add(computed, tensor)
            return tensor

        try:
            with saved_tensors_hooks(Pair(pack, lambda tensor: tensor)), grad_mode(enabled=True):
                self.fn(*tensors)
        except _EnoughError:
            pass
        if len(computed) < len(self.packed):
            raise CheckpointMismatchError(f"{len(computed)} tensors were saved again of {len(self.packed)}")
        return dict(self._compared(computed))

    def _add(self, computed: list[Tensor], tensor: Tensor) -> None:
        if len(computed) < len(self.packed):
            computed.append(tensor)
        elif self.has_returned:
            raise CheckpointMismatchError("more tensors were saved again than at first")
        if self.early_stop and len(computed) == len(self.packed):
            raise _EnoughError

    def _compared(self, computed: Sequence[Tensor]) -> Iterator[tuple[_Place, Tensor]]:
        for before, tensor in zip(self.packed, computed, strict=True):
            place = before.place()
            if place and self.compares and (tensor.shape, tensor.dtype) != (before.shape, before.dtype):
                raise CheckpointMismatchError(f"a tensor was saved again as {tensor.dtype}{tensor.shape}")
            if place:
                yield place, tensor


# --- reentrant regions


def _reentrant(fn: Hook) -> Hook:
    """Make a custom Function of a region: its first run is not recorded, as that of any Function is not."""

    def forward(node: CustomNode, *tensors: Tensor) -> Any:
        node.save_for_backward(*tensors)
        return fn(*tensors)

    def backward(node: CustomNode, *grads: Tensor) -> Gradients:
        if _is_limited(current_pass()):
            raise CheckpointReentrantError("a reentrant checkpoint is for backward alone, not for grad or inputs")
        tensors = [_cut(one) for one in node.saved_tensors if one]
        with grad_mode(enabled=True):
            result = fn(*tensors)
        outputs = result if isinstance(result, tuple) else (result,)
        pairs = [(one, grad) for one, grad in zip(outputs, grads, strict=False) if one.requires_grad]
        if not pairs:
            raise RuntimeError("no output of a reentrant checkpoint requires grad when it is run again")
        roots, seeds = zip(*pairs, strict=True)
        engine.backward(roots, seeds, None, engine.How(retain_graph=False, create_graph=False))
        return tuple(one.grad for one in tensors)

    return custom_function(forward, backward)


def _is_limited(now: engine.Pass | None) -> bool:
    """Tell whether a pass executes what is on the way to some inputs alone."""
    outer = now.outer if now and on("passes-inside-limited-ones-are-limited") else None
    return now is not None and (not now.is_whole or (outer is not None and (outer.limits or _is_limited(outer))))


def _cut(tensor: Tensor) -> Tensor:
    """Return a leaf on the same numbers, that requires grad if the tensor does."""
    cut = tensor.detach()
    return cut.requires_grad_() if tensor.requires_grad else cut
