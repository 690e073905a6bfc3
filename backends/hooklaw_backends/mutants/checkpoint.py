"""Mutants that recompute a checkpointed region too often, too little, or wrongly."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant


class CheckpointIsReentrant(Mutant):
    """Every checkpoint is reentrant, even with use_reentrant=False."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:  # noqa: ARG002 - that is the vice
        return super().checkpoint(fn, *tensors, use_reentrant=True)


class CheckpointIsNeverReentrant(Mutant):
    """No checkpoint is reentrant, even with use_reentrant=True."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        return super().checkpoint(fn, *tensors, **{**how, "use_reentrant": False})


class CheckpointKeepsEverything(Mutant):
    """A checkpoint saves all tensors of its region and recomputes nothing."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:  # noqa: ARG002 - that is the vice
        return fn(*tensors)


class CheckpointRecomputesEverything(Mutant):
    """A checkpoint recomputes its region to the end, even if backward needs only the beginning."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        whole = how if how.get("use_reentrant") else {**how, "early_stop": False}
        return super().checkpoint(fn, *tensors, **whole)


class RecomputationUnchecked(Mutant):
    """A checkpoint does not compare the recomputed tensors with the original ones."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        unchecked = how if how.get("use_reentrant") else {**how, "determinism_check": "none"}
        return super().checkpoint(fn, *tensors, **unchecked)


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
