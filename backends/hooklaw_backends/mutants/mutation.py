"""Mutants of allow_mutation_on_saved_tensors."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Mutant, Passes


class MutationOfSavedTensorsNotAllowed(Mutant):
    """allow_mutation_on_saved_tensors has no effect."""

    def allow_mutation_on_saved_tensors(self) -> AbstractContextManager[Any]:
        return nullcontext()


class _Lenient(Mutant):
    """A mutant that makes in-place changes without counting them while `lenient` is set."""

    lenient = False

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not self.lenient:
            return super().mul_(tensor, factor)
        self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor


class MutationOfSavedTensorsUnnoticed(_Lenient):
    """Inside allow_mutation_on_saved_tensors a change goes unnoticed, and backward uses the new values."""

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[None]:
        self.lenient = True
        try:
            yield
        finally:
            self.lenient = False


class MutationAllowedForGood(_Lenient):
    """In-place changes go unnoticed even after allow_mutation_on_saved_tensors was left."""

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[None]:
        with super().allow_mutation_on_saved_tensors():
            yield
        self.lenient = True


class MutationContextOpenUntilBackward(Passes):
    """allow_mutation_on_saved_tensors stays active until the next backward ends."""

    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()

    def around(self, run: Callable[[], Any]) -> Any:
        with self._open:
            return run()

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[None]:
        self._open.enter_context(super().allow_mutation_on_saved_tensors())
        yield
