"""Mutants of the gradients that the backward hooks of a module get and return, and of the handles of module hooks."""

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import KnowsReplacements, Passes, inputs_to


@calling(*verbs.MODULE_BACKWARD)
def missing_gradients_of_a_module_hook_are_kept(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    """If a backward hook of a module returns fewer gradients than it got, the others stay, and there is no error."""
    result = hook(module, grads, *rest)
    return (*result, *grads[len(result) :]) if isinstance(result, tuple) else result


@calling(*verbs.MODULE_BACKWARD)
def surplus_gradients_of_a_module_hook_are_dropped(
    self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any
) -> Any:
    """If a backward hook of a module returns more gradients than it got, the surplus is dropped without an error."""
    result = hook(module, grads, *rest)
    return result[: len(grads)] if isinstance(result, tuple) else result


@calling(*verbs.FULL_BACKWARD)
def list_of_a_full_backward_hook_refused(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A full backward hook that returns a list is an error."""
    result = hook(*given)
    if isinstance(result, list):
        raise RuntimeError("a tuple or None")  # noqa: TRY004 - as a framework says it
    return result


@overriding("register_full_backward_hook")
def full_backward_hook_replaces_for_leaves_alone(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """What a full backward hook returns is ignored if an input is not a leaf."""
    inputs = inputs_to(self, module)

    def for_leaves(*given: Any) -> Any:
        result = hook(*given)
        return result if all(self.is_leaf(value) for value in inputs if self.is_tensor(value)) else None

    return old(module, for_leaves, **options)


@calling(*verbs.FULL_BACKWARD)
def full_backward_hook_replaces_without_gaps(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """The first gradient that a full backward hook returns replaces that of the first input that has one, and so on."""
    return _without_gaps(hook(module, grads, outputs), grads)


@calling(*verbs.FULL_BACKWARD_PRE)
def backward_pre_hook_replaces_without_gaps(self: Mutant, hook: Hook, module: Any, grads: Any) -> Any:
    """The first gradient that a backward pre-hook returns replaces that of the first output that has one, and so on."""
    return _without_gaps(hook(module, grads), grads)


def _without_gaps(result: Any, grads: Sequence[Any]) -> Any:
    if not isinstance(result, tuple) or len(result) != len(grads) or not any(grad is not None for grad in grads):
        return result
    returned = iter(result)
    return tuple(None if grad is None else next(returned) for grad in grads)


@altering(*verbs.FULL_BACKWARD)
def full_backward_hook_gets_the_gradients_of_the_first_pass(self: Mutant, *given: Any) -> Hook:
    """A full backward hook gets the gradients of its first call in every later one."""
    first: list[Any] = []

    def stale(module: Any, *grads: Any) -> Any:
        first.append(grads)
        return given[-1](module, *first[0])

    return stale


@calling(*verbs.MODULE_BACKWARD)
def none_of_a_module_backward_hook_is_zeros(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    """If a backward hook of a module returns None, the gradients become zeros."""
    result = hook(module, grads, *rest)
    return _zeros(self, grads) if result is None else result


def _zeros(self: Mutant, grads: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(self.zeros_like(grad) if self.is_tensor(grad) else None for grad in grads)


@calling(*verbs.FULL_BACKWARD_PRE)
def backward_pre_hook_gets_gradients_of_tensors_alone(self: Mutant, hook: Hook, module: Any, grads: Any) -> None:
    """A backward pre-hook of a module gets no None for an output that is not a tensor."""
    hook(module, tuple(grad for grad in grads if grad is not None))


@overriding("register_full_backward_pre_hook")
def later_backward_pre_hooks_get_zeros_for_none(self: Mutant, old: Hook, module: Any, hook: Hook, **how: bool) -> Any:
    """A backward pre-hook that is not the first of its module gets a zero in place of None."""
    is_later = self.keeps(module)
    self.kept.append(module)

    def run(module: Any, grads: Any) -> None:
        hook(module, tuple(self.tensor(0.0) if grad is None and is_later else grad for grad in grads))

    return old(module, run if is_later else hook, **how)


class BackwardPreHookGetsATupleForAListOfTensors(Mutant):
    """A backward pre-hook gets an empty tuple for an output that is a list of tensors."""

    lists = fresh(dict[Any, list[bool]])

    def module(self, parameters: Any, forward: Hook) -> Any:
        def run(module: Any, *given: Any, **named: Any) -> Any:
            outputs = forward(module, *given, **named)
            several = outputs if isinstance(outputs, tuple) else ()
            self.lists[module] = [isinstance(each, list) and any(map(self.is_tensor, each)) for each in several]
            return outputs

        return super().module(parameters, run)

    def register_full_backward_pre_hook(self, module: Any, hook: Hook, **how: bool) -> Any:
        def run(module: Any, grads: Any) -> Any:
            lists = self.lists.get(module, [])
            if not any(lists):
                return hook(module, grads)
            hook(module, tuple(() if is_list else grad for is_list, grad in zip(lists, grads, strict=True)))
            return None

        return super().register_full_backward_pre_hook(module, run, **how)


@calling(*verbs.FULL_BACKWARD)
def full_backward_hook_gets_zeros(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """A full backward hook gets zeros in place of the inputs' gradients."""
    return hook(module, _zeros(self, grads), outputs)


@calling(*verbs.FULL_BACKWARD)
def unused_outputs_have_zeros(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """A full backward hook gets zeros in place of None for an output."""
    some = next((grad for grad in outputs if grad is not None), None)
    zeros = None if some is None else self.zeros_like(some)
    return hook(module, grads, tuple(zeros if grad is None else grad for grad in outputs))


@calling(*verbs.FULL_BACKWARD)
def constants_have_no_gradient(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """A full backward hook gets None in place of a gradient of zeros."""
    zeros = [self.is_tensor(grad) and self.tolist(grad) == self.tolist(self.zeros_like(grad)) for grad in grads]
    return hook(module, tuple(None if is_zero else grad for grad, is_zero in zip(grads, zeros, strict=True)), outputs)


@calling(*verbs.FULL_BACKWARD)
def full_backward_hook_gets_the_first_output(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """A full backward hook gets None for the gradient of each output but the first."""
    return hook(module, grads, (*outputs[:1], *[None] * len(outputs[1:])))


@overriding("register_full_backward_hook")
def full_backward_hook_early_for_a_constant(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A full backward hook runs for the outputs' gradients if any input, not every input, requires no grad."""
    return _early_if(self, old, module, hook, lambda needs: not all(needs), **options)


def _early_if(self: Mutant, old: Hook, module: Any, hook: Hook, decide: Hook, **options: bool) -> Any:
    """Register a full backward hook that runs early if `decide` says so of the flags of the tensors given."""
    inputs = inputs_to(self, module)

    def is_early() -> bool:
        return decide([self.requires_grad(value) for value in inputs if self.is_tensor(value)])

    def early(given: Any, outputs: Any) -> None:
        if is_early():
            hook(given, (None,) * len(inputs), outputs)

    self.register_full_backward_pre_hook(module, early)
    return old(module, lambda *given: None if is_early() else hook(*given), **options)


@overriding("register_full_backward_hook")
def full_backward_hook_judges_by_the_first_input(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A full backward hook runs for the outputs' gradients if the first input requires no grad."""
    return _early_if(self, old, module, hook, lambda needs: needs[:1] != [True], **options)


@overriding("register_full_backward_hook")
def full_backward_hook_overlooks_a_repeated_input(self: Mutant, old: Hook, module: Any, hook: Hook, **how: bool) -> Any:
    """A tensor that is given twice to a module with a full backward hook gets the first of its gradients alone."""

    def detached(inputs: Any) -> Any:
        for nr, given in enumerate(inputs):
            repeated = self.is_tensor(given) and any(given is earlier for earlier in inputs[:nr])
            yield self.detach(given) if repeated else given

    self.register_forward_pre_hook(module, lambda _, inputs: tuple(detached(inputs)))
    return old(module, hook, **how)


@calling(*verbs.MODULE_BACKWARD)
def results_of_module_backward_hooks_are_constants(self: Mutant, hook: Hook, *given: Any) -> Any:
    """What a module backward hook returns is detached from the graph of the gradient."""
    result = hook(*given)
    return result and tuple(grad if grad is None else self.detach(grad) for grad in result)


@calling(*verbs.GLOBAL_BACKWARD)
def global_backward_hooks_get_gradients_of_tensors_alone(self: Mutant, hook: Hook, module: Any, *grads: Any) -> Any:
    """A global backward hook or pre-hook gets gradients without a None for what is not a tensor."""
    result = hook(module, *(tuple(grad for grad in some if grad is not None) for some in grads))
    return result and (*result, *[None] * (len(grads[0]) - len(result)))


class _ForgetsAfterPasses(Passes):
    """A mutant that keeps things until the next pass."""

    def around(self, run: Hook) -> Any:
        self.kept.clear()
        return run()


@calling(*verbs.MODULE_BACKWARD, base=_ForgetsAfterPasses)
def module_backward_hooks_replace_for_one_call_only(self: _ForgetsAfterPasses, hook: Hook, *given: Any) -> Any:
    """If a module is called twice in a graph, what its backward hook returns for the second of the calls is ignored."""
    result = hook(*given)
    ran = self.keeps(hook)
    self.kept.append(hook)
    return None if ran else result


class GradientOfAModuleHookNotCopied(Passes):
    """The .grad of a leaf is the tensor that a full backward hook returned, to which later passes add in place."""

    def around(self, run: Hook) -> Any:
        result = run()
        for leaf, returned in self.kept:
            grad = self.grad_of(leaf)
            if grad is not None and self.tolist(grad) == self.tolist(returned):
                self.set_grad(leaf, returned)
        self.kept.clear()
        return result

    def register_full_backward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        inputs = inputs_to(self, module)

        def run(*given: Any) -> Any:
            result = hook(*given)
            for value, returned in zip(inputs, result or (), strict=False):
                if self.is_tensor(value) and self.is_leaf(value) and self.is_tensor(returned):
                    self.kept.append((value, returned))
            return result

        return super().register_full_backward_hook(module, run, **options)


@calling(*verbs.MODULE_BACKWARD, base=KnowsReplacements)
def none_of_a_module_backward_hook_restores_the_gradients(
    self: KnowsReplacements, hook: Hook, module: Any, grads: Any, *rest: Any
) -> Any:
    """If a backward hook of a module returns None, the gradients are those from before the hook that ran last."""
    result = self.noted(hook(module, grads, *rest), grads)
    return self.replaced_by(grads) if result is None else result


@calling(*verbs.MODULE_BACKWARD)
def missing_gradients_after_the_first_are_kept(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    """If a backward hook of a module returns fewer gradients than it got, but at least one, the others stay."""
    result = hook(module, grads, *rest)
    return (*result, *grads[len(result) :]) if isinstance(result, tuple) and result else result


@calling(*verbs.MODULE_BACKWARD)
def surplus_tensors_of_a_module_hook_are_dropped(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    """If a backward hook of a module returns more tensors than it got gradients, the surplus is dropped."""
    result = hook(module, grads, *rest)
    are_tensors = isinstance(result, tuple) and all(map(self.is_tensor, result[len(grads) :]))
    return result[: len(grads)] if are_tensors else result


@calling(*verbs.FULL_BACKWARD)
def list_of_a_full_backward_hook_replaces_the_first_gradient(
    self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any
) -> Any:
    """Of the gradients in a list that a full backward hook returns only the first replaces anything."""
    result = hook(module, grads, *rest)
    return (*result[:1], *grads[1:]) if isinstance(result, list) else result


@calling(*verbs.FULL_BACKWARD)
def wrong_number_in_a_list_accepted(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    """A full backward hook may return more or fewer gradients than it got if they are in a list."""
    result = hook(module, grads, *rest)
    return (*result[: len(grads)], *grads[len(result) :]) if isinstance(result, list) else result


@calling(*verbs.FULL_BACKWARD_PRE)
def backward_pre_hook_may_return_a_tensor_for_several(self: Mutant, hook: Hook, module: Any, grads: Any) -> Any:
    """A tensor that a backward pre-hook of a module with several outputs returns replaces the first gradient."""
    result = hook(module, grads)
    return (result, *grads[1:]) if self.is_tensor(result) else result


@calling(*verbs.FULL_BACKWARD_PRE, base=KnowsReplacements)
def _notes_pre_hooks(self: KnowsReplacements, hook: Hook, module: Any, grads: Any) -> Any:
    """A mutant that keeps what backward pre-hooks returned."""
    return self.noted(hook(module, grads), grads)


@calling(*verbs.FULL_BACKWARD, base=_notes_pre_hooks)
def replacement_of_a_pre_hook_hidden_without_input_gradients(
    self: KnowsReplacements, hook: Hook, module: Any, grads: Any, outputs: Any
) -> Any:
    """If no input requires grad, a full backward hook gets the gradients from before the backward pre-hook."""
    before = None if any(grad is not None for grad in grads) else self.replaced_by(outputs)
    return hook(module, grads, before or outputs)


@calling(*verbs.FULL_BACKWARD)
def full_backward_hook_gets_gradients_of_outputs_first(
    self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any
) -> Any:
    """Of the gradients of outputs that a full backward hook gets, each None comes last."""
    return hook(module, grads, tuple(sorted(outputs, key=lambda grad: grad is None)))


@calling(*verbs.FULL_BACKWARD)
def none_of_a_module_backward_hook_swaps_the_gradients(
    self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any
) -> Any:
    """If a backward hook of a module returns None, the gradients go to the inputs in reverse order."""
    result = hook(module, grads, *rest)
    return grads[::-1] if result is None else result


class _KnowsCalls(Mutant):
    """A mutant that knows what a module was given and has returned in its last call."""

    calls = fresh(dict[Any, tuple[Any, Any, Any]])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
            output = forward(module, *args, **kwargs)
            self.calls[module] = args, output if isinstance(output, tuple) else (output,), kwargs
            return output

        return super().module(parameters, noted)

    def with_containers(self, grads: Any, values: Any) -> Any:
        """Return gradients with a list of zeros in the place of each container of tensors."""
        if len(grads) != len(values):
            return grads
        return tuple(self._zeros(grad, value) for grad, value in zip(grads, values, strict=True))

    def _zeros(self, grad: Any, value: Any) -> Any:
        parts = list(value.values()) if isinstance(value, dict) else value
        if grad is not None or not isinstance(parts, list | tuple) or not any(map(self.is_tensor, parts)):
            return grad
        return [self.zeros_like(self.detach(part)) for part in parts]


@calling(*verbs.FULL_BACKWARD[:1], base=_KnowsCalls)
def containers_of_tensors_have_gradients(self: _KnowsCalls, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """The grad_input of a full backward hook has a list of gradients for an input that is a container of tensors."""
    return hook(module, self.with_containers(grads, self.calls[module][0]), outputs)


@calling(*verbs.FULL_BACKWARD[:1], base=_KnowsCalls)
def returned_containers_of_tensors_have_gradients(
    self: _KnowsCalls, hook: Hook, module: Any, grads: Any, outputs: Any
) -> Any:
    """The grad_output of a full backward hook has a list of gradients for an output that is a container of tensors."""
    return hook(module, grads, self.with_containers(outputs, self.calls[module][1]))


@calling(*verbs.FULL_BACKWARD[:1], base=_KnowsCalls)
def replacement_beside_keyword_arguments_ignored(
    self: _KnowsCalls, hook: Hook, module: Any, grads: Any, outputs: Any
) -> Any:
    """What a full backward hook returns is ignored if its module was called with keyword arguments, too."""
    result = hook(module, grads, outputs)
    is_right = isinstance(result, list | tuple) and len(result) == len(grads)
    return None if is_right and self.calls[module][2] else result


@altering(*verbs.FULL_BACKWARD[:1])
def later_lists_of_a_full_backward_hook_ignored(self: Mutant, _module: Any, hook: Hook) -> Hook:
    """From the second call of a full backward hook on, a list that it returns is ignored."""
    calls: list[None] = []

    def run(module: Any, grads: Any, outputs: Any) -> Any:
        calls.append(None)
        result = hook(module, grads, outputs)
        return None if len(calls) > 1 and isinstance(result, list) and len(result) == len(grads) else result

    return run


def _with_more(hook: Hook, module: Any, grads: Any, more: Sequence[None], outputs: Any) -> Any:
    """Return what a full backward hook returns that gets entries too many, without what it returns for these."""
    result = hook(module, (*grads, *more), outputs)
    is_longer = isinstance(result, list | tuple) and len(result) == len(grads) + len(more)
    return result[: len(grads)] if is_longer else result


@calling(*verbs.FULL_BACKWARD[:1], base=_KnowsCalls)
def later_keyword_tensors_are_inputs(self: _KnowsCalls, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """The grad_input of a full backward hook has an entry for each tensor given by keyword but the first."""
    tensors = [value for value in self.calls[module][2].values() if self.is_tensor(value)] if grads else []
    return _with_more(hook, module, grads, [None for _ in tensors[1:]], outputs)


@calling(*verbs.FULL_BACKWARD[:1], base=_KnowsCalls)
def other_keyword_arguments_are_inputs(self: _KnowsCalls, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """The grad_input of a full backward hook has a None for each keyword argument that is no tensor."""
    others = [value for value in self.calls[module][2].values() if not self.is_tensor(value)]
    return _with_more(hook, module, grads, [None for _ in others], outputs)


@calling(*verbs.FULL_BACKWARD[:1], base=_KnowsCalls)
def one_gradient_beside_keyword_arguments(self: _KnowsCalls, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """The grad_input of a full backward hook has only the first gradient if there are keyword arguments, too."""
    if not self.calls[module][2] or len(grads) == 1:
        return hook(module, grads, outputs)
    result = hook(module, grads[:1], outputs)
    return (*result, *grads[1:]) if isinstance(result, list | tuple) and len(result) == 1 else result


def _some_lists_ignored(step: Hook) -> type[Mutant]:
    """Make a mutant that ignores a list for which ``(self, returned)`` is true, if it has the right length."""

    def run(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
        result = hook(module, grads, outputs)
        return None if isinstance(result, list) and len(result) == len(grads) and step(self, result) else result

    return calling(*verbs.FULL_BACKWARD[:1])(wraps(step)(run))


@_some_lists_ignored
def list_of_one_gradient_ignored(self: Mutant, returned: list[Any]) -> bool:
    """A list that a full backward hook returns is ignored if it has one gradient."""
    return len(returned) == 1


@_some_lists_ignored
def list_of_gradients_with_none_ignored(self: Mutant, returned: list[Any]) -> bool:
    """A list that a full backward hook returns is ignored if there is a None in it."""
    return None in [None if each is None else "a gradient" for each in returned]


@altering(*verbs.FULL_BACKWARD[:1])
def list_of_a_later_full_backward_hook_ignored(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A list that a full backward hook returns is ignored if the hook is not the first of its module."""
    is_later = self.keeps(module)
    self.kept.append(module)

    def run(module: Any, grads: Any, outputs: Any) -> Any:
        result = hook(module, grads, outputs)
        return None if is_later and isinstance(result, list) and len(result) == len(grads) else result

    return run


@calling("register_module_full_backward_hook", base=_KnowsCalls)
def keyword_tensors_are_inputs_of_global_hooks(
    self: _KnowsCalls, hook: Hook, module: Any, grads: Any, outputs: Any
) -> Any:
    """The grad_input of a full backward hook on all modules has an entry for each tensor given by keyword."""
    tensors = (
        [value for value in self.calls[module][2].values() if self.is_tensor(value)] if module in self.calls else []
    )
    return _with_more(hook, module, grads, [None for _ in tensors], outputs)


@calling("register_module_full_backward_hook")
def list_of_a_global_backward_hook_ignored(self: Mutant, hook: Hook, module: Any, grads: Any, outputs: Any) -> Any:
    """A list that a full backward hook on all modules returns is ignored."""
    result = hook(module, grads, outputs)
    return None if isinstance(result, list) and len(result) == len(grads) else result


@overriding("register_full_backward_hook")
def full_backward_hook_overlooks_the_last_input(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A full backward hook runs for the outputs' gradients if only the last of several inputs requires grad."""
    return _early_if(self, old, module, hook, _last_alone, **options)


def _last_alone(needs: Sequence[bool]) -> bool:
    return len(needs) > 1 and needs[-1] and not any(needs[:-1])


@calling(*verbs.FULL_BACKWARD, base=_notes_pre_hooks)
def replacement_of_a_pre_hook_seen_for_the_first_output_alone(
    self: KnowsReplacements, hook: Hook, module: Any, grads: Any, outputs: Any
) -> Any:
    """Of what a backward pre-hook returned for several outputs a full backward hook gets the first gradient alone."""
    before = self.replaced_by(outputs)
    return hook(module, grads, (*outputs[:1], *before[1:]) if before else outputs)


@overriding("register_full_backward_hook", base=_notes_pre_hooks)
def replacement_of_a_pre_hook_seen_by_the_first_hook_alone(
    self: KnowsReplacements, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """Full backward hooks of a module but the first get the outputs' gradients from before the backward pre-hook."""
    is_later = self.keeps(module)
    self.kept.append(module)

    def run(module: Any, grads: Any, outputs: Any) -> Any:
        return hook(module, grads, (self.replaced_by(outputs) if is_later else None) or outputs)

    return old(module, run, **options)


@overriding("register_full_backward_hook")
def full_backward_hook_overlooks_a_repeated_non_leaf(
    self: Mutant, old: Hook, module: Any, hook: Hook, **how: bool
) -> Any:
    """A non-leaf that is given twice to a module with a full backward hook gets the first of its gradients alone."""

    def detached(inputs: Any) -> Any:
        for nr, given in enumerate(inputs):
            repeated = self.is_tensor(given) and any(given is earlier for earlier in inputs[:nr])
            yield self.detach(given) if repeated and not self.is_leaf(given) else given

    self.register_forward_pre_hook(module, lambda _, inputs: tuple(detached(inputs)))
    return old(module, hook, **how)


@calling(*verbs.MODULE_BACKWARD, base=KnowsReplacements)
def none_of_a_module_backward_hook_restores_several_gradients(
    self: KnowsReplacements, hook: Hook, module: Any, grads: Any, *rest: Any
) -> Any:
    """If a backward hook returns None, several gradients are those from before the hook that ran last."""
    result = self.noted(hook(module, grads, *rest), grads)
    return self.replaced_by(grads) if result is None and len(grads) > 1 else result


def _later_results_detached(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    result = hook(module, grads, *rest)
    if not isinstance(result, tuple) or len(result) != len(grads):  # pyright: ignore[reportUnknownArgumentType]
        return result
    return (*result[:1], *(self.detach(each) if self.is_tensor(each) else each for each in result[1:]))  # pyright: ignore[reportUnknownVariableType]


@calling(*verbs.MODULE_BACKWARD)
def later_results_of_module_backward_hooks_are_constants(*given: Any) -> Any:
    """Of several gradients that a module backward hook returns all but the first are detached."""
    return _later_results_detached(*given)


@calling(*verbs.FULL_BACKWARD_PRE)
def later_results_of_backward_pre_hooks_are_constants(*given: Any) -> Any:
    """Of several gradients that a backward pre-hook returns all but the first are detached."""
    return _later_results_detached(*given)


@calling(*verbs.GLOBAL_BACKWARD, base=KnowsReplacements)
def later_global_backward_hooks_get_the_gradients_of_the_first(
    self: KnowsReplacements, hook: Hook, module: Any, grads: Any, *rest: Any
) -> Any:
    """A backward hook on all modules gets the gradients from before another such hook replaced them."""
    return self.noted(hook(module, self.replaced_by(grads) or grads, *rest), grads)
