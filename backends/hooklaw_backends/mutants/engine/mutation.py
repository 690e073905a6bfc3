"""Mutants of allow_mutation_on_saved_tensors that torch, which breaks the rule, does not show."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from hooklaw_backends.mutants.base import Mutant


class RefusedMutationContextLetsLaterSavedTensorsChange(Mutant):
    """After entering allow_mutation_on_saved_tensors inside itself, changes of tensors saved later go unnoticed."""

    def allow_mutation_on_saved_tensors(self) -> Any:
        return self._allowing(super().allow_mutation_on_saved_tensors())

    @contextmanager
    def _allowing(self, context: Any) -> Generator[None]:
        with ExitStack() as later:
            self.kept.append(later)
            try:
                context.__enter__()
            except Exception:
                self.kept.pop()
                outer = self.kept[-1]
                outer.enter_context(self.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor))
                raise
            later.push(context)
            yield
