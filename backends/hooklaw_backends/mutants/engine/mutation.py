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


class ChangesOfAWholeUnnoticedInItsParts(Mutant):
    """Inside allow_mutation_on_saved_tensors a change of a tensor that was split goes unnoticed in its saved parts."""

    is_open = False

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[Any]:
        self.kept, self.is_open = [], True
        try:
            with super().allow_mutation_on_saved_tensors() as state:
                yield state
        finally:
            self.is_open = False

    def split(self, tensor: Any, size: int) -> Any:
        self.kept += [tensor] * self.is_open
        return super().split(tensor, size)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not self.is_open or not self.keeps(tensor):
            return super().mul_(tensor, factor)
        self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor
