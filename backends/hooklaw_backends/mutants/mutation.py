"""Mutants of allow_mutation_on_saved_tensors."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.shared import Passes


@overriding("allow_mutation_on_saved_tensors")
def mutation_of_saved_tensors_not_allowed(*_: Any) -> Any:
    """allow_mutation_on_saved_tensors has no effect."""
    return nullcontext()


class _Lenient(Mutant):
    """A mutant that makes in-place changes without counting them while `lenient` is set."""

    lenient = False

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if not self.lenient:
            return super().mul_(tensor, factor)
        self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor


@overriding("allow_mutation_on_saved_tensors", base=_Lenient)
@contextmanager
def mutation_of_saved_tensors_unnoticed(self: _Lenient, old: Hook) -> Generator[None]:
    """Inside allow_mutation_on_saved_tensors a change goes unnoticed, and backward uses the new values."""
    self.lenient = True
    try:
        yield
    finally:
        self.lenient = False


@overriding("allow_mutation_on_saved_tensors", base=_Lenient)
@contextmanager
def mutation_allowed_for_good(self: _Lenient, old: Hook) -> Generator[None]:
    """In-place changes go unnoticed even after allow_mutation_on_saved_tensors was left."""
    with old():
        yield
    self.lenient = True


@overriding("allow_mutation_on_saved_tensors", base=_Lenient)
@contextmanager
def mutation_allowed_for_good_after_an_error(self: _Lenient, old: Hook) -> Generator[None]:
    """In-place changes go unnoticed once an exception has left allow_mutation_on_saved_tensors."""
    try:
        with old():
            yield
    except Exception:
        self.lenient = True
        raise


class _KnowsTheContext(Mutant):
    """A mutant that knows whether allow_mutation_on_saved_tensors is active."""

    is_open = False

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[Any]:
        with super().allow_mutation_on_saved_tensors() as state:
            self.is_open = True
            try:
                yield state
            finally:
                self.is_open = False


@overriding("cos_", base=_KnowsTheContext)
def cosine_in_place_of_a_saved_tensor_refused(self: _KnowsTheContext, old: Hook, tensor: Any) -> Any:
    """Inside allow_mutation_on_saved_tensors the cosine in place is an error."""
    if self.is_open:
        raise self.errors.get(ErrorKind.SAVED_TENSOR_MODIFIED, (RuntimeError,))[0]("modified by an inplace operation")
    return old(tensor)


class MutationOfWhatFunctionsSavedUnnoticed(_KnowsTheContext):
    """Inside allow_mutation_on_saved_tensors a custom Function reads what it saved with later changes."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        made = super().custom_function(forward, backward, **options)

        def apply(*inputs: Any) -> Any:
            if not self.is_open:
                return made(*inputs)
            with self.saved_tensors_hooks(self.detach, lambda kept: kept):
                return made(*inputs)

        return apply


class MutationOfOutputsThatFunctionsSavedUnnoticed(_KnowsTheContext):
    """Inside allow_mutation_on_saved_tensors a custom Function reads an output that it saved with later changes."""

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        made = super().custom_function(forward, backward, **options)

        def apply(*inputs: Any) -> Any:
            def keep(tensor: Any) -> Any:
                is_input = any(tensor is given for given in inputs)
                return self.clone(tensor) if is_input else self.detach(tensor)

            with self.saved_tensors_hooks(keep, lambda kept: kept) if self.is_open else nullcontext():
                return made(*inputs)

        return apply


class TensorsChangedInsideMayChangeForGood(_KnowsTheContext):
    """Changes of a tensor that was changed inside allow_mutation_on_saved_tensors go unnoticed after the context."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.is_open or not self.keeps(tensor):
            self.kept += [tensor] * self.is_open
            return super().mul_(tensor, factor)
        self.overwrite_unseen(tensor, self.detach(tensor) * factor)
        return tensor


@overriding("exp", base=_KnowsTheContext)
def mutation_context_keeps_saved_outputs(self: _KnowsTheContext, old: Hook, tensor: Any) -> Any:
    """An output that was saved inside allow_mutation_on_saved_tensors lives on after the context."""
    made = old(tensor)
    self.kept += [made] * self.is_open
    return made


class MutationContextOpenUntilBackward(Passes):
    """allow_mutation_on_saved_tensors stays active until the next backward ends."""

    _open = fresh(ExitStack)

    def around(self, run: Callable[[], Any]) -> Any:
        with self._open:
            return run()

    @contextmanager
    def allow_mutation_on_saved_tensors(self) -> Generator[None]:
        self._open.enter_context(super().allow_mutation_on_saved_tensors())
        yield


class ChangedTensorsLiveOn(_KnowsTheContext):
    """A tensor that was changed inside allow_mutation_on_saved_tensors lives on after the context."""

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.is_open:
            self.kept.append(tensor)
        return super().mul_(tensor, factor)


@overriding("exp", base=_KnowsTheContext)
def outputs_of_a_mutation_context_are_read_after_it(self: _KnowsTheContext, old: Hook, tensor: Any) -> Any:
    """An output that was saved inside allow_mutation_on_saved_tensors can be read after the context."""
    if not self.is_open:
        return old(tensor)
    with self.saved_tensors_hooks(self.clone, lambda kept: kept):
        return old(tensor)
