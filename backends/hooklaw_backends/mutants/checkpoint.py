"""Mutants that recompute too much of a checkpointed region, or too little, or in the wrong way."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant


class CheckpointIsReentrant(Mutant):
    """Every checkpointed region is reentrant."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:  # noqa: ARG002 - that is the vice
        return super().checkpoint(fn, *tensors, use_reentrant=True)


class CheckpointIsNeverReentrant(Mutant):
    """No checkpointed region is reentrant."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        return super().checkpoint(fn, *tensors, **{**how, "use_reentrant": False})


class CheckpointKeepsEverything(Mutant):
    """A checkpointed region saves its tensors, and nothing is recomputed."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:  # noqa: ARG002 - that is the vice
        return fn(*tensors)


class CheckpointRecomputesEverything(Mutant):
    """A checkpointed region is recomputed to its end, whatever is needed of it."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        whole = how if how.get("use_reentrant") else {**how, "early_stop": False}
        return super().checkpoint(fn, *tensors, **whole)


class RecomputationUnchecked(Mutant):
    """What is recomputed of a checkpointed region may be anything."""

    def checkpoint(self, fn: Hook, *tensors: Any, **how: Any) -> Any:
        unchecked = how if how.get("use_reentrant") else {**how, "determinism_check": "none"}
        return super().checkpoint(fn, *tensors, **unchecked)


class PairsIgnoredInARegion(Mutant):
    """A pair of saved-tensor hooks inside a checkpointed region is ignored."""

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
