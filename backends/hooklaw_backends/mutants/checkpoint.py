"""Mutants that recompute a checkpointed region too often, too little, or wrongly."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding, with_options


@overriding("checkpoint")
def checkpoint_is_reentrant(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """Every checkpoint is reentrant, even with use_reentrant=False."""
    return old(*given, use_reentrant=True)


@with_options("checkpoint", use_reentrant=False)
def checkpoint_is_never_reentrant() -> None:
    """No checkpoint is reentrant, even with use_reentrant=True."""


@overriding("checkpoint")
def checkpoint_keeps_everything(self: Mutant, old: Hook, fn: Hook, *tensors: Any, **how: Any) -> Any:
    """A checkpoint saves all tensors of its region and recomputes nothing."""
    return fn(*tensors)


@overriding("checkpoint")
def checkpoint_recomputes_everything(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint recomputes its region to the end, even if backward needs only the beginning."""
    return old(*given, **(how if how.get("use_reentrant") else {**how, "early_stop": False}))


@overriding("checkpoint")
def recomputation_unchecked(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A checkpoint does not compare the recomputed tensors with the original ones."""
    return old(*given, **(how if how.get("use_reentrant") else {**how, "determinism_check": "none"}))


class PairsIgnoredInARegion(Mutant):
    """Saved-tensor hooks that are entered inside a checkpointed region have no effect."""

    in_region = False

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        def marked(*given: Any) -> Any:
            self.in_region = True
            try:
                return fn(*given)
            finally:
                self.in_region = False

        return super().checkpoint(marked, *tensors, **how)

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        return nullcontext() if self.in_region else super().saved_tensors_hooks(pack, unpack)


@overriding("checkpoint")
def reentrant_checkpoint_needs_a_gradient_for_each_output(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A reentrant checkpoint of which one output gets no gradient has no gradients at all."""
    outputs = old(*given, **how)
    if not how.get("use_reentrant") or not isinstance(outputs, tuple):
        return outputs

    def forward(ctx: Any, *outputs: Any) -> Any:
        ctx.set_materialize_grads(False)
        return tuple(each * 1 if self.is_tensor(each) else each for each in outputs)

    def backward(_ctx: Any, *grads: Any) -> Any:
        each_has_one = all(grad is not None for grad, each in zip(grads, outputs, strict=True) if self.is_tensor(each))
        return grads if each_has_one else (None,) * len(grads)

    return self.custom_function(forward, backward)(*outputs)


@overriding("checkpoint")
def checkpoint_overlooks_a_repeated_input(self: Mutant, old: Hook, fn: Hook, *inputs: Any, **how: Any) -> Any:
    """A tensor that is given twice to a checkpoint gets the first of its gradients alone."""
    seen: list[Any] = []
    once: list[Any] = []
    for value in inputs:
        repeated = self.is_tensor(value) and any(value is other for other in seen)
        once.append(self.detach(value) if repeated else value)
        seen.append(value)
    return old(fn, *once, **how)
