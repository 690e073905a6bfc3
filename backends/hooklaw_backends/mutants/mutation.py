"""Mutants of the context in which saved tensors may be changed in place."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from hooklaw_backends.mutants.base import Mutant, Passes


class MutationOfSavedTensorsNotAllowed(Mutant):
    """The context changes nothing."""

    def allow_mutation_on_saved_tensors(self) -> AbstractContextManager[Any]:
        return nullcontext()


class _Lenient(Mutant):
    """Changes tensors in place without counting it, where it is told to."""

    lenient = False

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not self.lenient:
            return super().mul_(tensor, factor)
        self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor


class MutationOfSavedTensorsUnnoticed(_Lenient):
    """The context lets a change in place go unnoticed, and backward compute with the new values."""

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[None]:
        self.lenient = True
        try:
            yield
        finally:
            self.lenient = False


class MutationAllowedForGood(_Lenient):
    """After the context changes in place go unnoticed."""

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[None]:
        with super().allow_mutation_on_saved_tensors():
            yield
        self.lenient = True


class MutationContextOpenUntilBackward(Passes):
    """The context is open until the next backward is over."""

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
