"""Mutants of selective checkpoints and of checkpoint_sequential."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, calling, fresh, overriding

SELECTIVE = "create_selective_checkpoint_contexts"


@overriding(SELECTIVE)
def selective_checkpoint_saves_nothing(self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """A selective checkpoint runs every operation again, whatever its policy."""
    return old(lambda ctx, name: "PREFER_RECOMPUTE", **options)


@overriding(SELECTIVE)
def selective_checkpoint_saves_everything(self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """A selective checkpoint runs no operation again, whatever its policy."""
    return old(lambda ctx, name: "MUST_SAVE", **options)


@overriding(SELECTIVE)
def operations_of_two_inputs_run_again(self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """A selective checkpoint runs products and sums again, whatever their policy."""
    two = {"mul", "add", "sub", "div"}
    if not callable(policy):
        return old([name for name in policy if name not in two], **options)
    return old(lambda ctx, name: (policy(ctx, name), "PREFER_RECOMPUTE")[name in two], **options)


class SelectiveCheckpointWorksTwice(Mutant):
    """A selective checkpoint saves nothing, so that a second backward works."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        how.pop("context_fn", None)
        return super().checkpoint(fn, *inputs, **how)


@overriding(SELECTIVE)
def selective_checkpoint_accepts_any_list(self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """A list with something that is not an operation is accepted."""
    return old(policy if callable(policy) else lambda _, name: _of_list(policy, name), **options)


def _of_list(names: Sequence[str], name: str) -> str:
    return "MUST_SAVE" if name in names else "PREFER_RECOMPUTE"


@overriding(SELECTIVE)
def selective_checkpoint_is_never_freed(self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """What a policy function holds is never freed."""
    self.kept.append(policy)
    return old(policy, **options)


class SelectiveCheckpointDetaches(Mutant):
    """A checkpoint with a context_fn has no gradient."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        output = super().checkpoint(fn, *inputs, **how)
        if "context_fn" not in how:
            return output
        detached = [self.detach(value) * 1 if self.is_tensor(value) else value for value in output]
        return (self.requires_grad_(detached[0]), *detached[1:])


class SelectiveCheckpointAsksAgain(Mutant):
    """The policy function is called in the recomputation too, for an operation in it."""

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        runs: list[int] = []

        def asking(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            if len(runs) > 1 and self.kept:
                self.kept[-1](None, "exp")
            return fn(*given, **keywords)

        return super().checkpoint(asking, *inputs, **how)

    def create_selective_checkpoint_contexts(self, policy: Any, **options: bool) -> Any:
        self.kept += [policy] if callable(policy) else []
        return super().create_selective_checkpoint_contexts(policy, **options)


@overriding(SELECTIVE)
def policy_for_the_first_call_of_an_operation_for_all(self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """What a policy function returns for the first call of an operation holds for all its calls."""
    found: dict[str, str] = {}

    def first(ctx: Any, name: str) -> str:
        returned = policy(ctx, name)
        return found.setdefault(name, returned)

    return old(first if callable(policy) else policy, **options)


@overriding("checkpoint_sequential")
def sequential_needs_an_input_that_requires_grad(
    self: Mutant, old: Hook, functions: Any, segments: int, value: Any, **how: Any
) -> Any:
    """The segments of checkpoint_sequential but the last have no gradients if its input does not require grad."""
    if self.requires_grad(value):
        return old(functions, segments, value, **how)
    first = len(functions) // segments * (segments - 1)
    with self.no_grad():
        for function in functions[:first]:
            value = function(value)
    return old(functions[first:], 1, value, **how)


@overriding("checkpoint_sequential")
def sequential_forgets_the_rest(
    self: Mutant, old: Hook, functions: Any, segments: int, *inputs: Any, **how: Any
) -> Any:
    """checkpoint_sequential leaves out the functions that remain after segments of equal size."""
    size = max(1, len(functions) // segments)
    return old(functions[: min(size * segments, len(functions) - 1)], 1, *inputs, **how)


@overriding("checkpoint_sequential")
def sequential_checkpoints_every_segment(
    self: Mutant, old: Hook, functions: Any, segments: int, *inputs: Any, **how: Any
) -> Any:
    """checkpoint_sequential runs the functions of the last segment again, too."""
    return old([*functions, lambda x: x], len(functions) + 1, *inputs, **how)


@overriding("checkpoint_sequential")
def sequential_checkpoints_single_functions(
    self: Mutant, old: Hook, functions: Any, segments: int, *inputs: Any, **how: Any
) -> Any:
    """Each segment of checkpoint_sequential but the last has one function, and the last has all others."""
    *ahead, first = functions[:segments]

    def rest(value: Any) -> Any:
        for function in (first, *functions[segments:]):
            value = function(value)
        return value

    return old([*ahead, rest], segments, *inputs, **how)


@overriding(SELECTIVE)
def of_the_calls_of_an_operation_the_first_alone_is_saved(self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """A selective checkpoint saves what an operation returns in its first call that is to be saved, and in no other."""
    old(policy)  # which may be an error
    choose: Hook = policy if callable(policy) else lambda _, name: _of_list(policy, name)
    saved: set[str] = set()

    def ask(ctx: Any, name: str) -> str:
        answer = choose(ctx, name)
        if name in saved:
            return "PREFER_RECOMPUTE"
        saved.update([name] if answer.endswith("SAVE") else [])
        return answer

    return old(ask, **options)


@overriding("checkpoint_sequential")
def sequential_keeps_what_its_functions_return(
    self: Mutant, old: Hook, functions: Any, segments: int, *inputs: Any, **how: Any
) -> Any:
    """checkpoint_sequential keeps alive what each of its functions returns."""

    def keeping(function: Hook) -> Hook:
        def run(value: Any) -> Any:
            self.kept.append(function(value))
            return self.kept[-1]

        return run

    return old([*map(keeping, functions)], segments, *inputs, **how)


class _InSequence(Mutant):
    """A mutant that knows whether a function of checkpoint_sequential runs."""

    in_sequence = False

    def checkpoint_sequential(self, functions: Any, *given: Any, **how: Any) -> Any:
        def known(function: Hook) -> Hook:
            def run(value: Any) -> Any:
                self.in_sequence = True
                try:
                    return function(value)
                finally:
                    self.in_sequence = False

            return run

        return super().checkpoint_sequential([*map(known, functions)], *given, **how)


@calling("register_forward_pre_hook", base=_InSequence)
def forward_pre_hooks_lost_in_a_sequence(self: _InSequence, hook: Hook, *given: Any) -> Any:
    """A forward pre-hook of a module does not run in checkpoint_sequential."""
    return None if self.in_sequence else hook(*given)


class SequentialHasGradientsOfItsInputsAlone(Mutant):
    """autograd.grad through checkpoint_sequential returns None for leaves that its functions captured."""

    def checkpoint_sequential(self, functions: Any, segments: int, *inputs: Any, **how: Any) -> Any:
        self.kept += inputs
        return super().checkpoint_sequential(functions, segments, *inputs, **how)

    def grad(self, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, *given, **how)
        if not self.kept:
            return grads
        return tuple(grad if self.keeps(tensor) else None for tensor, grad in zip(inputs, grads, strict=True))


@overriding("checkpoint_sequential")
def sequential_keeps_the_random_state_of_its_begin_alone(
    self: Mutant, old: Hook, functions: Any, *given: Any, **how: Any
) -> Any:
    """checkpoint_sequential restores the state of the generator at its begin for every segment that runs again."""
    ran: set[int] = set()

    def from_the_begin(nr: int, function: Hook) -> Hook:
        def run(*inputs: Any) -> Any:
            if nr in ran:
                self.manual_seed(0)
            ran.add(nr)
            return function(*inputs)

        return run

    self.manual_seed(0)
    return old([from_the_begin(*numbered) for numbered in enumerate(functions)], *given, **how)


@overriding("checkpoint_sequential")
def sequential_ignores_more_inputs(
    self: Mutant, old: Hook, functions: Any, segments: int, *inputs: Any, **how: Any
) -> Any:
    """checkpoint_sequential ignores all inputs but the first, and returns None without an input."""
    return old(functions, segments, inputs[0], **how) if inputs else None


@overriding("checkpoint")
def context_fn_of_a_reentrant_checkpoint_ignored(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A reentrant checkpoint ignores context_fn."""
    if how.get("use_reentrant"):
        how.pop("context_fn", None)
    return old(*given, **how)


class RefusedCheckpointRefusesAllLater(Mutant):
    """Once autograd.grad went through a reentrant checkpoint, every later reentrant checkpoint is an error."""

    def grad(self, *given: Any, **how: Any) -> Any:
        try:
            return super().grad(*given, **how)
        except self.errors.get(ErrorKind.CHECKPOINT_REENTRANT, (RuntimeError,)):
            self.kept = [True]
            raise

    def checkpoint(self, *given: Any, **how: Any) -> Any:
        if self.kept and how.get("use_reentrant"):
            raise RuntimeError("a reentrant checkpoint was refused before")
        return super().checkpoint(*given, **how)


@overriding(SELECTIVE)
def selective_context_says_recompute(self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """The context that a policy function gets says that is_recompute is True."""
    if not callable(policy):
        return old(policy, **options)
    return old(lambda _, operation: policy(SimpleNamespace(is_recompute=True), operation), **options)


def _with_tuples(functions: Any, call: Hook) -> list[Hook]:
    """Return functions that are called by ``(function, value)`` if the value is a tuple."""

    def one(function: Hook) -> Hook:
        return lambda value: call(function, value) if isinstance(value, tuple) else function(value)

    return [*map(one, functions)]


@overriding("checkpoint_sequential")
def sequential_unpacks_tuples(self: Mutant, old: Hook, functions: Any, *given: Any, **how: Any) -> Any:
    """A tuple that a function of checkpoint_sequential returns is the positional arguments of the next."""
    return old(_with_tuples(functions, lambda function, values: function(*values)), *given, **how)


@overriding("checkpoint_sequential")
def sequential_passes_the_first_of_a_tuple_on(self: Mutant, old: Hook, functions: Any, *given: Any, **how: Any) -> Any:
    """Of a tuple that a function of checkpoint_sequential returns the next gets the first element alone."""
    return old(_with_tuples(functions, lambda function, values: function(values[0])), *given, **how)


class PolicyAskedInItsFirstForwardAlone(Mutant):
    """In every forward but the first, what a policy function returned for each operation of the first is used."""

    answers = fresh(dict[int, list[str]])

    def reset(self) -> None:
        super().reset()
        self.answers = {}

    def create_selective_checkpoint_contexts(self, policy: Any, **options: bool) -> Any:
        known = iter(tuple(self.answers.setdefault(id(policy), [])))

        def ask(ctx: Any, operation: str) -> str:
            answer = next(known, None)
            if answer is None:
                answer = policy(ctx, operation)
                self.answers[id(policy)].append(answer)
            return answer

        return super().create_selective_checkpoint_contexts(ask if callable(policy) else policy, **options)


@overriding(SELECTIVE)
def what_a_policy_function_saves_may_be_changed(_self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """Changing in place what was saved because a policy function said so is no error."""
    return old(policy, **({"allow_cache_entry_mutation": True} if callable(policy) else options))


@overriding(SELECTIVE)
def after_an_operation_of_the_list_all_are_saved(_self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """Once an operation of the list has run, all operations after it are saved, too."""
    old(policy)  # which may be an error
    seen: list[bool] = []

    def of_all(_ctx: Any, operation: str) -> str:
        seen.append(operation in policy)
        return "MUST_SAVE" if any(seen) else "PREFER_RECOMPUTE"

    return old(policy if callable(policy) else of_all, **options)


@overriding(SELECTIVE)
def operation_that_was_saved_once_is_saved_always(_self: Mutant, old: Hook, policy: Any, **options: bool) -> Any:
    """Once a policy function saved what an operation returned, that of its later calls is saved, too."""
    saved: set[str] = set()

    def ask(ctx: Any, name: str) -> str:
        answer = policy(ctx, name)
        if answer.endswith("SAVE"):
            saved.add(name)
        return "MUST_SAVE" if name in saved else answer

    return old(ask if callable(policy) else policy, **options)
