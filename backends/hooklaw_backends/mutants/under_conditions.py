"""Mutants that are right but for one corner: one dtype, layout, thread, kind of pass or number of passes.

Most of them break no rule as it is written. They are tried under the condition that leads into their corner.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Maker, Mutant, altering, overriding, pairs
from hooklaw_backends.mutants.situations import Knowing


class _Cornered(Knowing):
    """A backend that knows in which kind of pass it is."""

    watched = frozenset({"detect_anomaly"})
    detects = False

    @contextmanager
    def detect_anomaly(self, *, check_nan: bool = True) -> Any:
        before, self.detects = self.detects, True
        try:
            with super().detect_anomaly(check_nan=check_nan):
                yield
        finally:
            self.detects = before

    def tensors(self, given: Any) -> Iterable[Any]:
        """Yield the tensors among what a hook is registered on and given."""
        if isinstance(given, list | tuple):
            for part in given:
                yield from self.tensors(part)
        elif self.is_tensor(given):
            yield given


class Corner(NamedTuple):
    """Where a mutant is wrong."""

    condition: str
    """The condition that leads there."""
    words: str
    holds: Callable[[Any, Any], bool]
    """Says of a mutant, and of a tensor of the call if `of_tensor`, whether they are there."""
    of_tensor: bool = False

    def is_here(self, mutant: Any, given: Any) -> bool:
        """Whether a call is in the corner."""
        if self.of_tensor:
            return any(self.holds(mutant, tensor) for tensor in mutant.tensors(given))
        return self.holds(mutant, given)


def _of_dtype(dtype: str) -> Corner:
    return Corner(dtype, f"for {dtype} tensors", lambda mutant, tensor: mutant.dtype(tensor) == dtype, of_tensor=True)


def _has_gaps(mutant: Any, tensor: Any) -> bool:
    strides = [stride for size, stride in zip(mutant.shape(tensor), mutant.stride(tensor), strict=True) if size > 1]
    return bool(strides) and min(strides) > 1


def _ends_in_one(mutant: Any, tensor: Any) -> bool:
    shape = mutant.shape(tensor)
    return len(shape) > 1 and shape[-1] == 1


def _retains(mutant: Any, _: Any) -> bool:
    return bool(mutant.running("retain_graph")) and not mutant.running("create_graph")


MANY = 3
CORNERS = (
    *map(_of_dtype, ("float64", "float16", "bfloat16", "complex64")),
    Corner("strided", "for tensors with gaps in memory", _has_gaps, of_tensor=True),
    Corner("extra-dimension", "for tensors whose last size is 1", _ends_in_one, of_tensor=True),
    Corner("thread", "in other threads than the first", lambda *_: threading.current_thread() is not _FIRST),
    Corner("inside-pass", "inside another pass", lambda mutant, _: len(mutant.under_way) > 1),
    Corner("retained", "in passes that retain the graph", _retains),
    Corner("anomaly", "under anomaly detection", lambda mutant, _: mutant.detects),
    Corner("again", f"from pass {MANY} on", lambda mutant, _: mutant.passes >= MANY),
)
_FIRST = threading.main_thread()


class Fault(NamedTuple):
    """What goes wrong in a corner."""

    words: str
    chapter: str
    """How the ids of the rules begin that are tried first."""
    make: Callable[[Corner], type[Mutant]]
    in_pass: bool = True
    """Whether it goes wrong while a pass is under way, or else when a graph is made."""
    leaf_only: bool = True
    """Whether what it is given tells how a tensor lies in memory."""


def _lost(*names: str) -> Callable[[Corner], type[Mutant]]:
    """Return what makes a mutant that does not call the hooks of these verbs."""

    def make(corner: Corner) -> type[Mutant]:
        def altered(self: Any, *given: Any) -> Hook:
            hook, seen = given[-1], _seen(self, corner, given[:-1])
            return lambda *call, **named: None if seen or corner.is_here(self, call) else hook(*call, **named)

        return _made(altering(*names, base=_Cornered), altered)

    return make


def _seen(mutant: Any, corner: Corner, where: Any) -> bool:
    """Whether a hook is registered on a tensor that is in the corner; a hook must not keep its tensor alive."""
    return corner.of_tensor and corner.is_here(mutant, where)


def _ignored(corner: Corner) -> type[Mutant]:
    def altered(self: Any, tensor: Any, hook: Hook) -> Hook:
        seen = _seen(self, corner, tensor)

        def ignoring(grad: Any) -> Any:
            result = hook(grad)
            return None if seen or corner.is_here(self, grad) else result

        return ignoring

    return _made(altering("register_hook", base=_Cornered), altered)


def _doubled(corner: Corner) -> type[Mutant]:
    def unpacked(self: Any, pack: Hook, unpack: Hook) -> tuple[Hook, Hook]:
        def unpack_wrong(packed: Any) -> Any:
            tensor = unpack(packed)
            return tensor * 2 if self.is_tensor(tensor) and corner.is_here(self, tensor) else tensor

        return pack, unpack_wrong

    return _made(pairs("saved_tensors_hooks", base=_Cornered), unpacked)


def _unpacked(corner: Corner) -> type[Mutant]:
    def kept(self: Any, pack: Hook, unpack: Hook) -> tuple[Hook, Hook]:
        def keep(tensor: Any) -> Any:
            return (self.detach(tensor),) if corner.is_here(self, tensor) else [pack(tensor)]

        return keep, lambda packed: packed[0] if isinstance(packed, tuple) else unpack(packed[0])

    return _made(pairs("saved_tensors_hooks", base=_Cornered), kept)


def _returned(corner: Corner) -> type[Mutant]:
    def grad(self: Any, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any) -> Any:
        found = old(outputs, inputs, *given, **how)
        there = corner.is_here(self, inputs)
        return tuple(part * 2 if there and self.is_tensor(part) else part for part in found)

    return _made(overriding("grad", base=_Cornered), grad)


def _not_retained(corner: Corner) -> type[Mutant]:
    def retain_grad(self: Any, old: Hook, tensor: Any) -> None:
        if not corner.is_here(self, tensor):
            old(tensor)

    return _made(overriding("retain_grad", base=_Cornered), retain_grad)


def _made(maker: Maker, step: Hook) -> type[Mutant]:
    return maker(step)


FAULTS = {
    "tensor-hook-lost": Fault("A tensor hook is not called", "tensor-hook", _lost("register_hook")),
    "tensor-hook-ignored": Fault("What a tensor hook returns is ignored", "tensor-hook", _ignored),
    "post-accumulate-lost": Fault(
        "A post-accumulate hook is not called", "post-acc", _lost("register_post_accumulate_grad_hook")
    ),
    "node-hook-lost": Fault("A hook on a Node is not called", "node-hook", _lost(*verbs.NODE), leaf_only=False),
    "multi-grad-lost": Fault("A multi-grad hook is not called", "multi-grad", _lost("register_multi_grad_hook")),
    "backward-hook-lost": Fault(
        "A module's backward hook is not called", "module.full-backward", _lost(*verbs.MODULE_BACKWARD), leaf_only=False
    ),
    "unpack-doubled": Fault("Backward gets twice what unpack returns", "saved-tensor", _doubled),
    "pack-skipped": Fault("A saved tensor is not packed", "saved-tensor", _unpacked, in_pass=False),
    "retain-grad-lost": Fault("A tensor does not retain its gradient", "retain-grad", _not_retained, in_pass=False),
    "grad-doubled": Fault("autograd.grad returns twice the gradient", "grad.", _returned, in_pass=False),
}
OF_PASSES = {"retained", "anomaly"}
"""Conditions that concern passes alone."""


def _of(fault: Fault) -> list[Corner]:
    """Return the corners in which a fault can show."""
    left = set() if fault.in_pass else OF_PASSES
    left = left if fault.leaf_only else {*left, "strided"}
    there = [corner for corner in CORNERS if corner.condition not in left]
    return (
        there
        if fault.in_pass
        else [corner._replace(holds=AROUND.get(corner.condition, corner.holds)) for corner in there]
    )


AROUND = {"inside-pass": lambda mutant, _: bool(mutant.under_way)}
"""Where a fault shows that is not one of the pass itself."""


def _corner_mutants() -> dict[str, type[Mutant]]:
    found: dict[str, type[Mutant]] = {}
    for name, fault in FAULTS.items():
        for corner in _of(fault):
            made = fault.make(corner)
            made.__name__ = f"{name}-{corner.condition}".replace("-", "_")
            made.__doc__ = f"{fault.words} {corner.words}."
            made.__module__ = __name__
            made.under = corner.condition  # type: ignore[attr-defined]
            made.first = [fault.chapter]  # type: ignore[attr-defined]
            found[made.__name__] = made
    return found


vars().update(_corner_mutants())
