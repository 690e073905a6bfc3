"""Mutants whose module hooks run in the wrong order, for the wrong calls, or not at all."""

import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from threading import current_thread, main_thread
from typing import Any
from weakref import WeakKeyDictionary

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, InGrad, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import (
    CallsTheRest,
    Deferring,
    Handle,
    handle_of,
    inputs_to,
    once,
    without_input_gradients,
)


@overriding(*verbs.ON_ONE_MODULE)
def module_hooks_run_in_reverse_order(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """Module hooks run in reverse order of registration."""
    return old(module, hook, **{**options, "prepend": not options.get("prepend", False)})


class _KnowsPrepended(Mutant):
    """A mutant that keeps how to register each prepended hook, by verb and module, and its handles."""

    prepended = fresh(dict[Any, tuple[list[Hook], list[Any]]])


@overriding(*verbs.ON_ONE_MODULE, base=_KnowsPrepended)
def prepended_hooks_as_registered(self: _KnowsPrepended, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """Of two hooks registered on a module with prepend=True, the first registered runs first."""
    if not options.get("prepend"):
        return old(module, hook, **options)
    again, handles = self.prepended.setdefault((old, module), ([], []))
    again.insert(0, partial(old, module, hook, **options))
    for handle in handles:
        handle.remove()
    handles[:] = [register() for register in again]
    return Handle()


class _Made(Mutant):
    """A mutant that keeps the modules that the user created."""

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        self.kept.append(super().module(parameters, forward))
        return self.kept[-1]


class GlobalModuleHooksRunLast(_Made):
    """A global module hook runs after the hooks of the module itself."""

    def register_module_forward_pre_hook(self, hook: Hook) -> Any:
        return handle_of([self.register_forward_pre_hook(module, hook) for module in self.kept])

    def register_module_forward_hook(self, hook: Hook, **options: bool) -> Any:
        return handle_of([self.register_forward_hook(module, hook, **options) for module in self.kept])

    def register_module_full_backward_pre_hook(self, hook: Hook) -> Any:
        return handle_of([self.register_full_backward_pre_hook(module, hook) for module in self.kept])

    def register_module_full_backward_hook(self, hook: Hook) -> Any:
        return handle_of([self.register_full_backward_hook(module, hook) for module in self.kept])


class ThirdForwardPreHookGetsWhatTheFirstReturned(Mutant):
    """A module's third forward pre-hook and later ones get what its first one returned, if none gets keywords."""

    returned = fresh(WeakKeyDictionary[Any, list[Any]])

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        if options:
            return super().register_forward_pre_hook(module, hook, **options)
        returned = self.returned.setdefault(module, [])
        number = len(returned)
        returned.append(None)

        def call(module: Any, args: Any) -> Any:
            first = returned[0] if number > 1 else None
            result = hook(module, args if first is None else first)
            returned[number] = result if result is None or isinstance(result, tuple) else (result,)
            return result

        return super().register_forward_pre_hook(module, call)


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def _wrong_return_of_a_pre_hook_accepted(self: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any) -> Any:
    """A forward pre-hook's return value of the wrong type or length is ignored instead of raising an error."""
    return _fitting(hook(module, args, kwargs), args, 2)


@calling(*verbs.MODULE_BACKWARD, base=_wrong_return_of_a_pre_hook_accepted)
def wrong_return_of_a_module_hook_accepted(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    """A module hook's return value of the wrong type or length is ignored instead of raising an error."""
    return _fitting(hook(module, grads, *rest), grads, len(grads))


def _fitting(result: Any, given: Any, length: int) -> Any:
    fits = isinstance(result, tuple) and len(result) == length
    return result if fits and any(grad is not None for grad in given) else None


@overriding("register_full_backward_hook")
def full_backward_hook_at_the_outputs(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A full backward hook runs on the gradients of the outputs, and its return value replaces them."""
    return self.register_full_backward_pre_hook(module, lambda module, grads: hook(module, grads, grads), **options)


@calling(*verbs.FULL_BACKWARD)
def gradients_of_a_module_swapped(self: Mutant, hook: Hook, module: Any, inputs: Any, outputs: Any) -> Any:
    """A full backward hook gets grad_input and grad_output swapped."""
    return hook(module, outputs, inputs)


@calling(*verbs.FULL_BACKWARD)
def full_backward_hook_has_one_gradient_too_many(
    self: Mutant, hook: Hook, module: Any, inputs: Any, outputs: Any
) -> Any:
    """The grad_input of a full backward hook has one entry too many."""
    result = hook(module, (*inputs, None), outputs)
    return result and result[: len(inputs)]


@calling(*verbs.FULL_BACKWARD)
def module_hooks_get_gradients_of_tensors_alone(self: Mutant, hook: Hook, module: Any, *grads: Any) -> None:
    """A full backward hook gets gradients without a None for each non-tensor argument."""
    hook(module, *(tuple(grad for grad in some if grad is not None) for some in grads))


@calling(*verbs.MODULE_BACKWARD, base=Deferring)
def module_backward_hooks_deferred_to_the_end(self: Deferring, hook: Hook, *given: Any) -> None:
    """Module backward hooks run only after the whole backward."""
    self.later(hook, *given)


class BackwardHookWaitsForItsParameters(Mutant):
    """If no input requires grad, a full backward hook runs when the gradient of a parameter has been computed."""

    pending = fresh(list[Hook])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        for name in parameters:
            super().register_hook(getattr(made, name), self._run)
        return made

    def _run(self, _: Any) -> None:
        while self.pending:
            self.pending.pop(0)()

    def register_full_backward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        given = inputs_to(self, module)

        def wait(*call: Any) -> Any:
            if any(self.requires_grad(each) for each in given if self.is_tensor(each)):
                return hook(*call)
            self.pending.append(lambda: hook(*call))
            return None

        return super().register_full_backward_hook(module, wait, **options)


@altering(*verbs.FULL_BACKWARD, base=CallsTheRest)
def module_backward_hooks_called_for_nothing(self: CallsTheRest, *given: Any) -> Hook:
    """After a backward, each full backward hook that did not run is called with None gradients."""
    return self.waiting_for(given[-1], None, (None,), (None,))


@altering("register_full_backward_pre_hook", "register_full_backward_hook")
def module_hooks_silent_without_input_gradients(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A module's backward hooks do not run if none of its inputs requires grad."""
    given = inputs_to(self, module)
    return lambda *call: (
        hook(*call) if any(self.requires_grad(each) for each in given if self.is_tensor(each)) else None
    )


@without_input_gradients("register_full_backward_hook")
def full_backward_hook_runs_once_without_input_gradients(_self: Mutant, _module: Any, hook: Hook) -> Hook:
    """A full backward hook runs once for all calls of its module whose inputs do not require grad."""
    return once(hook)


def _in_one_pass(self: Mutant, module: Any, hook: Hook) -> Hook:
    ran: list[None] = []
    self.register_forward_pre_hook(module, lambda *_: ran.clear())
    return lambda *given: None if ran else (ran.append(None), hook(*given))[1]


@without_input_gradients("register_full_backward_hook")
def full_backward_hook_runs_in_one_pass_without_input_gradients(*given: Any) -> Hook:
    """If no input of a module requires grad, its full backward hook runs in the first pass through a call alone."""
    return _in_one_pass(*given)


@without_input_gradients("register_full_backward_pre_hook")
def backward_pre_hook_runs_in_one_pass_without_input_gradients(*given: Any) -> Hook:
    """If no input of a module requires grad, its backward pre-hook runs in the first pass through a call alone."""
    return _in_one_pass(*given)


@without_input_gradients("register_full_backward_hook")
def full_backward_hook_swallowed_without_input_gradients(_self: Mutant, _module: Any, hook: Hook) -> Hook:
    """If no input of a module requires grad, an error of its full backward hook is ignored."""

    def run(*given: Any) -> Any:
        with suppress(Exception):
            return hook(*given)

    return run


@without_input_gradients("register_full_backward_pre_hook")
def results_of_backward_pre_hooks_are_constants_without_input_gradients(self: Mutant, _module: Any, hook: Hook) -> Hook:
    """If no input of a module requires grad, the gradients that its backward pre-hook returns are detached."""

    def run(*given: Any) -> Any:
        result = hook(*given)
        if not isinstance(result, tuple):
            return result
        return tuple(self.detach(each) if self.is_tensor(each) else each for each in result)  # pyright: ignore[reportUnknownVariableType]

    return run


def _from_an_earlier_pass(self: Mutant, module: Any, hook: Hook, place: int) -> Hook:
    """Return a hook that gets the gradients of its call before, since its module was called, for those that lack."""
    before: list[Any] = []
    self.register_forward_pre_hook(module, lambda *_: before.clear())

    def run(*given: Any) -> Any:
        numbers = [None if grad is None else self.tolist(grad) for grad in given[place]]
        lack = [grad is None or self.tolist(grad) == self.tolist(self.zeros_like(grad)) for grad in given[place]]
        kept = zip(given[place], lack, before or numbers, strict=True)
        grads = tuple(self.tensor(then) if lacks and then is not None else grad for grad, lacks, then in kept)
        before[:] = numbers
        return hook(*given[:place], grads, *given[place + 1 :])

    return run


@altering("register_full_backward_hook")
def full_backward_hook_gets_gradients_of_inputs_from_an_earlier_pass(*given: Any) -> Hook:
    """A full backward hook gets the gradient of the pass before for an input that a pass does not reach."""
    return _from_an_earlier_pass(*given, place=1)


@altering("register_full_backward_hook")
def full_backward_hook_gets_gradients_of_outputs_from_an_earlier_pass(*given: Any) -> Hook:
    """A full backward hook gets the gradient of the pass before for an output that a pass does not reach."""
    return _from_an_earlier_pass(*given, place=2)


@altering("register_full_backward_pre_hook")
def backward_pre_hook_gets_gradients_from_an_earlier_pass(*given: Any) -> Hook:
    """A backward pre-hook gets the gradient of the pass before for an output that a pass does not reach."""
    return _from_an_earlier_pass(*given, place=1)


@without_input_gradients("register_full_backward_hook", base=InGrad)
def full_backward_hook_not_in_autograd_grad_without_input_gradients(self: InGrad, _module: Any, hook: Hook) -> Hook:
    """If no input of a module requires grad, its full backward hook does not run in autograd.grad."""
    return lambda *given: None if self.inputs else hook(*given)


@altering("register_full_backward_hook")
def module_hooks_without_inputs_get_the_first_output_alone(self: Mutant, module: Any, hook: Hook) -> Hook:
    """The backward hook of a module that is called without inputs gets None for each output but the first."""
    given = inputs_to(self, module)
    return lambda owner, inputs, outputs: hook(
        owner, inputs, outputs if given else (*outputs[:1], *(None for _ in outputs[1:]))
    )


@altering("register_full_backward_hook")
def module_hooks_without_inputs_run_for_each_output(self: Mutant, module: Any, hook: Hook) -> Hook:
    """The backward hook of a module that is called without inputs runs once for each of its outputs."""
    given = inputs_to(self, module)

    def run(owner: Any, inputs: Any, outputs: Any) -> Any:
        for _ in () if given else outputs[1:]:
            hook(owner, inputs, outputs)
        return hook(owner, inputs, outputs)

    return run


class BackwardHooksOfAModuleLookedUpLate(Mutant):
    """A module's full backward hooks are looked up during backward instead of at the forward call."""

    _hooks = fresh(dict[Any, list[Hook]])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        made = super().module(parameters, forward)
        self._hooks[made] = []
        super().register_full_backward_hook(made, _in_turn(self._hooks[made]))
        return made

    def register_full_backward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        if module not in self._hooks:
            return super().register_full_backward_hook(module, hook, **options)
        hooks = self._hooks[module]
        hooks.insert(0 if options.get("prepend") else len(hooks), hook)
        return Handle(lambda: hooks.remove(hook))


def _in_turn(hooks: Sequence[Hook]) -> Hook:
    def run(module: Any, inputs: Any, outputs: Any) -> Any:
        for hook in hooks:
            result = hook(module, inputs, outputs)
            inputs = inputs if result is None else result
        return inputs

    return run


@calling(*verbs.MODULE)
def module_hooks_only_in_the_main_thread(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A module hook does not run in a thread other than the main thread."""
    return hook(*given) if current_thread() is main_thread() else None


@calling("module")
def module_with_backward_hooks_records(self: Mutant, forward: Hook, *args: Any, **kwargs: Any) -> Any:
    """A module's forward is recorded even under no_grad."""
    with self.enable_grad():
        return forward(*args, **kwargs)


@overriding("mul_")
def changes_in_place_around_modules_accepted(_: Mutant, old: Hook, tensor: Any, factor: Any) -> Any:
    """A forbidden in-place change is made on a new tensor instead of raising an error."""
    try:
        return old(tensor, factor)
    except RuntimeError:
        return tensor * factor


@calling("module")
def changes_of_later_inputs_in_place_accepted(
    self: Mutant, forward: Hook, module: Any, *inputs: Any, **named: Any
) -> Any:
    """Only the first input of a module must not be changed in place; forward gets copies of the others."""
    copies = (self.clone(value) if self.is_tensor(value) else value for value in inputs[1:])
    return forward(module, *inputs[:1], *copies, **named)


@calling("module")
def changes_of_an_only_input_accepted(self: Mutant, forward: Hook, module: Any, *inputs: Any, **named: Any) -> Any:
    """The input of a module may be changed in place if it is the only one; forward gets a copy of it."""
    copies = (self.clone(value) if self.is_tensor(value) else value for value in inputs)
    return forward(module, *(copies if len(inputs) == 1 else inputs), **named)


@calling(*verbs.FULL_BACKWARD)
def later_gradients_for_constant_inputs_accepted(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    """Of what a full backward hook returns for inputs that do not require grad, only the first is looked at."""
    result = hook(module, grads, *rest)
    if result is None or self.is_tensor(result) or any(grad is not None for grad in grads):
        return result
    return (*result[:1], *[None] * (len(result) - 1))


@calling(*verbs.FULL_BACKWARD)
def bare_gradients_for_constant_inputs_accepted(self: Mutant, hook: Hook, module: Any, grads: Any, *rest: Any) -> Any:
    """If no input requires grad, a gradient that a full backward hook returns in no tuple is ignored."""
    result = hook(module, grads, *rest)
    return None if self.is_tensor(result) and all(grad is None for grad in grads) else result


@overriding(*verbs.FULL_BACKWARD)
def later_full_backward_hooks_may_return_gradients(self: Mutant, old: Hook, *given: Any, **how: bool) -> Any:
    """If no input requires grad, only what the first full backward hook returns is looked at."""
    first, hook = not self.keeps(given[0]), given[-1]
    self.kept.append(given[0])

    def run(module: Any, grads: Any, outputs: Any) -> Any:
        result = hook(module, grads, outputs)
        return result if first or any(grad is not None for grad in grads) else None

    return old(*given[:-1], run, **how)


def _tuples_of_global_pre_hooks(step: Hook) -> type[Mutant]:
    """Make a mutant in which ``(self, returned, args)`` takes the place of a tuple that a global pre-hook returns."""

    def run(self: Mutant, hook: Hook, module: Any, args: Any) -> Any:
        result = hook(module, args)
        return step(self, result, args) if isinstance(result, tuple) else result

    return calling("register_module_forward_pre_hook")(wraps(step)(run))


@_tuples_of_global_pre_hooks
def short_tuple_of_a_global_pre_hook_is_filled_up(self: Mutant, returned: tuple[Any, ...], args: Any) -> Any:
    """If a global forward pre-hook returns a tuple of fewer arguments, the others stay those of the caller."""
    return (*returned, *args[len(returned) :])


@_tuples_of_global_pre_hooks
def long_tuple_of_a_global_pre_hook_is_cut(self: Mutant, returned: tuple[Any, ...], args: Any) -> Any:
    """If a global forward pre-hook returns a tuple of more arguments, forward gets as many as the caller gave."""
    return returned[: len(args)]


def _staying(option: str, handle: Any, options: dict[str, bool]) -> Any:
    return Handle() if options.get(option) else handle


@overriding(*verbs.ON_ONE_MODULE)
def prepended_module_hooks_stay(_: Mutant, old: Hook, *given: Any, **options: bool) -> Any:
    """The handle of a module hook that was registered with prepend=True removes nothing."""
    return _staying("prepend", old(*given, **options), options)


@overriding(*verbs.ON_ONE_MODULE)
def first_module_hook_with_options_stays(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """The handle of the first of several hooks that a module has with some options removes nothing."""
    handle = old(module, hook, **options)
    is_first = all(known() is not module or others != options for known, others in self.kept)
    self.kept.append((weakref.ref(module), options))
    return Handle() if options and is_first else handle


@overriding(*verbs.ON_ONE_MODULE)
def module_hooks_with_kwargs_stay(_: Mutant, old: Hook, *given: Any, **options: bool) -> Any:
    """The handle of a module hook that was registered with with_kwargs=True removes nothing."""
    return _staying("with_kwargs", old(*given, **options), options)


@overriding(*verbs.ON_ONE_MODULE)
def always_called_hooks_stay(_: Mutant, old: Hook, *given: Any, **options: bool) -> Any:
    """The handle of a module hook that was registered with always_call=True removes nothing."""
    return _staying("always_call", old(*given, **options), options)


@overriding(*verbs.ON_ONE_MODULE)
def handles_remove_equal_hooks_of_other_modules(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """The handle of a module hook also removes the same function from all other modules."""
    own = old(module, hook, **options)
    self.kept.append((module, hook, own))

    def remove() -> None:
        for handle in [handle for of, other, handle in self.kept if other is hook and of is not module]:
            handle.remove()
        own.remove()

    return Handle(remove)


class _LookingUpLate(Mutant):
    """A mutant that keeps the backward hooks of each module, and how many of them it had in its last call."""

    registered = fresh(WeakKeyDictionary[Any, list[Hook]])
    called_with = fresh(WeakKeyDictionary[Any, int])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            if module in self.registered:  # a replica is not
                self.called_with[module] = len(self.registered[module])
            return forward(module, *args, **kwargs)

        return super().module(parameters, run)

    def registering(self, register: Hook, module: Any, hook: Hook, **options: bool) -> Handle:
        """Register a hook; the first of a module also runs those that were registered since its last call."""
        hooks = self.registered.setdefault(module, [])
        is_first = not hooks
        hooks.append(hook)

        def run(module: Any, grads: Any, *outputs: Any) -> Any:
            result = hook(module, grads, *outputs)
            for late in hooks[self.called_with.get(module, len(hooks)) :]:
                new = late(module, grads if result is None else result, *outputs)
                result = result if new is None else new
            return result

        handle = register(module, run if is_first else hook, **options)
        return Handle(lambda: (hook in hooks and hooks.remove(hook), handle.remove(), None)[-1])


@overriding("register_full_backward_hook", base=_LookingUpLate)
def later_backward_hooks_of_a_module_looked_up_late(
    self: _LookingUpLate, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A full backward hook that a module gets after a call runs for that call if the module had another then."""
    return self.registering(old, module, hook, **options)


class ChangesOfAnOnlyInputAcceptedBesidePreHooks(Mutant):
    """The only input of a module with a backward pre-hook may be changed in place; forward gets a copy of it."""

    def register_full_backward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        self.kept.append(module)
        return super().register_full_backward_pre_hook(module, hook, **options)

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(module: Any, *inputs: Any, **named: Any) -> Any:
            is_alone = self.keeps(module) and len(inputs) == 1 and self.is_tensor(inputs[0])
            return forward(module, *([self.clone(inputs[0])] if is_alone else inputs), **named)

        return super().module(parameters, run)


class GlobalForwardPreHooksRunAfterLaterOnes(Mutant):
    """A forward pre-hook that a module gets without options after a global one runs before it."""

    everywhere = fresh(list[Any])

    def register_module_forward_pre_hook(self, hook: Hook) -> Any:
        entry: list[Any] = [hook, super().register_module_forward_pre_hook(hook)]
        self.everywhere.append(entry)
        return Handle(lambda: (entry in self.everywhere and self.everywhere.remove(entry), entry[1].remove(), None)[-1])

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        if options or not self.everywhere:
            return super().register_forward_pre_hook(module, hook, **options)
        for _, handle in self.everywhere:
            handle.remove()
        own = super().register_module_forward_pre_hook(
            lambda given, args: hook(given, args) if given is module else None
        )
        for entry in self.everywhere:
            entry[1] = super().register_module_forward_pre_hook(entry[0])
        return own


@overriding("register_full_backward_pre_hook", base=_LookingUpLate)
def later_backward_pre_hooks_of_a_module_looked_up_late(
    self: _LookingUpLate, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A backward pre-hook that a module gets after a call runs for that call if the module had another then."""
    return self.registering(old, module, hook, **options)
