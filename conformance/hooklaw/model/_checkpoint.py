"""Activation checkpoints: functions whose tensors are not saved but recomputed in backward.

A non-reentrant checkpoint is a pair of saved-tensor hooks: its Nodes are those of the first run; unpack recomputes.
A reentrant checkpoint is one Node, whose backward runs the function again and then a backward of its own.
"""

import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from hooklaw.model import engine
from hooklaw.model.errors import (
    CheckpointKindError,
    CheckpointMismatchError,
    CheckpointOptionError,
    CheckpointReentrantError,
)
from hooklaw.model.flags import on
from hooklaw.model.function import CustomNode, custom_function
from hooklaw.model.hooks import Gradients, Hook
from hooklaw.model.modes import (
    Pair,
    autocast,
    autocasting,
    current_pass,
    debugs,
    early_stops,
    generator,
    grad_mode,
    recomputed_here,
    recording,
    saved_tensors_hooks,
    watching,
)
from hooklaw.model.record import SavedTensor
from hooklaw.model.strided import Shape, Strided
from hooklaw.model.tensor import Tensor

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def _no_contexts() -> Contexts:
    return nullcontext(), nullcontext()


def checkpoint(  # noqa: PLR0913 - torch's own options
    fn: Hook,
    *inputs: Any,
    use_reentrant: bool | None = None,
    early_stop: bool = True,
    determinism_check: str = "default",
    context_fn: Callable[[], Contexts] = _no_contexts,
    preserve_rng_state: bool = True,
    debug: bool = False,
    **keywords: Any,
) -> Any:
    """Run `fn` now, and again in each backward that needs the tensors it would have saved."""
    if use_reentrant is None and not on("regions-are-reentrant-unless-told"):
        raise CheckpointKindError("checkpoint needs use_reentrant: pass True or False")
    around = partial(_as_now, generator().getstate() if preserve_rng_state else None, autocasting())
    if use_reentrant is not False:
        if context_fn is not _no_contexts or debug or keywords:
            raise CheckpointOptionError("a reentrant checkpoint takes no context_fn, no debug and no keywords")
        return _reentrant(fn, inputs, around)(*inputs)
    if not recording():
        return fn(*inputs, **keywords)
    first, again = context_fn()
    ran = _Operations() if debugs(debug) else None
    how = _How(again, around, early_stops(early_stop), compares=determinism_check != "none", ran=ran)
    recomputed = _Recomputed(partial(fn, **keywords), inputs, how)
    with saved_tensors_hooks(Pair(recomputed.pack, recomputed.unpack)), first, ran.noted(ran.before) if ran else _none:
        result = fn(*inputs, **keywords)
    recomputed.has_returned = True
    return result


def checkpoint_sequential(functions: Sequence[Hook], segments: int, value: Any, **how: Any) -> Any:
    """Run functions one after the other; each segment of them except the last is a checkpoint."""
    if how.get("use_reentrant") is None and not on("regions-are-reentrant-unless-told"):
        raise CheckpointKindError("checkpoint_sequential needs use_reentrant: pass True or False")
    size = len(functions) // segments
    for nr in range(segments - 1):
        value = checkpoint(partial(_in_turn, functions[nr * size : (nr + 1) * size]), value, **how)
    return _in_turn(functions[(segments - 1) * size :], value)


def _in_turn(functions: Sequence[Hook], value: Any) -> Any:
    for function in functions:
        value = function(value)
    return value


@contextmanager
def _as_now(state: Any, autocasts: bool) -> Generator[None]:  # noqa: FBT001 - it is the mode
    """Set the generator of random numbers, unless `state` is None, and autocast as they were in the first run."""
    before = generator().getstate()
    if state:
        generator().setstate(state)
    try:
        with autocast(autocasts):
            yield
    finally:
        if state:
            generator().setstate(before)


_none = nullcontext()

# --- non-reentrant checkpoints


class _Placeholder:
    """Stands in a Node for a tensor that was not saved; it dies with the graph."""


class _How(NamedTuple):
    """How a checkpoint is recomputed: inside which contexts, whether in part, whether compared with the first run."""

    context: AbstractContextManager[Any]
    around: Callable[[], AbstractContextManager[None]]
    early_stop: bool
    compares: bool
    ran: "_Operations | None"


class _Operations:
    """The names of the operations that ran in the first run and in the last one, for errors."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.again: list[str] = []

    def noted(self, names: list[str]) -> AbstractContextManager[None]:
        """Note the operations that run inside."""

        def note(name: str, data: Strided) -> Strided:
            names.append(name)
            return data

        names.clear()
        return watching(note)


class _Packed(NamedTuple):
    """Metadata of a tensor of the first run."""

    place: Callable[[], _Placeholder | None]
    shape: Shape
    dtype: str


class _EnoughError(Exception):
    """Ends a recomputation early, once every saved tensor is there."""


class _Recomputed:
    """One call of a non-reentrant checkpoint. It saves its inputs as a Node would: with the pair around it, if any."""

    def __init__(self, fn: Hook, inputs: Sequence[Any], how: _How) -> None:
        self.fn, self.how = fn, how
        self.inputs = [SavedTensor(value, None) if isinstance(value, Tensor) else value for value in inputs]
        self.packed: list[_Packed] = []
        self.has_returned = False

    def pack(self, tensor: Tensor) -> _Placeholder:
        """Drop a tensor, but note its shape and dtype for the comparison."""
        place = _Placeholder()
        self.packed.append(_Packed(weakref.ref(place), tensor.shape, tensor.dtype))
        return place

    def unpack(self, place: _Placeholder) -> Tensor:
        """Return the recomputed tensor for this place. Each pass recomputes for itself, and reads each result once."""
        memory = recomputed_here()
        if self not in memory:
            memory[self] = self._run_again()
        if place not in memory[self]:
            raise CheckpointMismatchError("a tensor of a checkpoint was read twice in one backward")
        return memory[self].pop(place)

    def _run_again(self) -> dict[_Placeholder, Tensor]:
        """Return a tensor for each placeholder that is still alive. The graph of this run is not used."""
        inputs = [value.unpack() if isinstance(value, SavedTensor) else value for value in self.inputs]
        computed = list[Tensor]()

        def pack(tensor: Tensor) -> Tensor:
            tensor = tensor.detach() if tensor.requires_grad else tensor
            self._add(computed, tensor)
            return tensor

        ran = self.how.ran
        noted = ran.noted(ran.again) if ran else _none
        try:
            with (
                saved_tensors_hooks(Pair(pack, lambda tensor: tensor)),
                grad_mode(enabled=True),
                self.how.around(),
                self.how.context,
                noted,
            ):
                self.fn(*inputs)
        except _EnoughError:
            pass
        if len(computed) < len(self.packed):
            raise self._mismatch(f"{len(computed)} tensors were recomputed, {len(self.packed)} were saved")
        return dict(self._compared(computed))

    def _add(self, computed: list[Tensor], tensor: Tensor) -> None:
        if len(computed) < len(self.packed):
            computed.append(tensor)
        elif self.has_returned:
            raise self._mismatch("the recomputation saved more tensors than the first run")
        if self.how.early_stop and len(computed) == len(self.packed):
            raise _EnoughError

    def _mismatch(self, said: str) -> CheckpointMismatchError:
        ran = self.how.ran
        more = f"; first ran {', '.join(ran.before)}; then {', '.join(ran.again)}" if ran else ""
        return CheckpointMismatchError(said + more)

    def _compared(self, computed: Sequence[Tensor]) -> Iterator[tuple[_Placeholder, Tensor]]:
        for before, tensor in zip(self.packed, computed, strict=True):
            place = before.place()
            if place and self.how.compares and (tensor.shape, tensor.dtype) != (before.shape, before.dtype):
                raise self._mismatch(f"a tensor was recomputed as {tensor.dtype}{tensor.shape}")
            if place:
                yield place, tensor


# --- reentrant checkpoints


def _reentrant(fn: Hook, inputs: Sequence[Any], around: Callable[[], AbstractContextManager[None]]) -> Hook:
    """Make a custom Function of the checkpoint: as in any Function, forward is not recorded."""
    others = [None if isinstance(value, Tensor) else value for value in inputs]

    def forward(node: CustomNode, *inputs: Any) -> Any:
        node.save_for_backward(*(value for value in inputs if isinstance(value, Tensor)))
        return fn(*inputs)

    def backward(node: CustomNode, *grads: Tensor) -> Gradients:
        if _is_limited(current_pass()):
            raise CheckpointReentrantError("a reentrant checkpoint works with backward without inputs only")
        tensors = iter([_cut(tensor) for tensor in node.saved_tensors if tensor])
        again = [
            next(tensors) if is_tensor else other for is_tensor, other in zip(node.are_tensors, others, strict=True)
        ]
        with grad_mode(enabled=True), around():
            result = fn(*again)
        outputs = result if isinstance(result, tuple) else (result,)
        given = [(output, grad) for output, grad in zip(outputs, grads, strict=False) if isinstance(output, Tensor)]
        pairs = [(output, grad) for output, grad in given if output.requires_grad]
        if not pairs:
            raise CheckpointReentrantError("no output of a reentrant checkpoint requires grad when it is run again")
        roots, seeds = zip(*pairs, strict=True)
        engine.backward(roots, seeds, None, engine.How(retain_graph=False, create_graph=False))
        return tuple(value.grad if isinstance(value, Tensor) else None for value in again)

    return custom_function(forward, backward)


def _is_limited(now: engine.Pass | None) -> bool:
    """Whether a pass executes only the Nodes on the way to some inputs."""
    outer = now.outer if now and on("passes-inside-limited-ones-are-limited") else None
    return now is not None and (not now.is_whole or (outer is not None and (outer.limits or _is_limited(outer))))


def _cut(tensor: Tensor) -> Tensor:
    """Return a leaf with the same data and the same requires_grad."""
    cut = tensor.detach()
    return cut.requires_grad_() if tensor.requires_grad else cut
