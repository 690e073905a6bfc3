"""Mutants whose forward hooks get the wrong arguments, or run at the wrong time."""

import warnings
from typing import Any
from weakref import WeakKeyDictionary

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import KnowsReplacements, inputs_to


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD)
def module_hook_gets_bare_arguments(self: Mutant, hook: Hook, module: Any, args: Any, *rest: Any) -> Any:
    """A forward hook or pre-hook gets a single argument bare instead of in a tuple."""
    return hook(module, args[0] if len(args) == 1 else args, *rest)


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD)
def module_hook_gets_the_first_argument(self: Mutant, hook: Hook, module: Any, args: Any, *rest: Any) -> Any:
    """A forward hook or pre-hook gets the first positional argument alone."""
    return hook(module, args[:1], *rest)


@altering("register_forward_hook")
def forward_hook_gets_the_arguments_of_the_caller(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A forward hook gets the caller's arguments, without the changes that pre-hooks made."""
    given = inputs_to(self, module, prepend=True)
    return lambda module, _, *rest: hook(module, tuple(given), *rest)


class ForwardHookGetsWhatTheFirstPreHookLeft(Mutant):
    """A forward hook gets the arguments that the first forward pre-hook left, without the changes of later ones."""

    left = fresh(WeakKeyDictionary[Any, list[Any]])

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        handle = super().register_forward_pre_hook(module, hook, **options)
        if module not in self.left:
            noted = self.left[module] = list[Any]()
            super().register_forward_pre_hook(module, lambda _, given: noted.__setitem__(slice(None), given))
        return handle

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(module: Any, args: Any, *rest: Any) -> Any:
            return hook(module, tuple(self.left[module]) if module in self.left else args, *rest)

        return super().register_forward_hook(module, run, **options)


@calling(*verbs.FORWARD)
def output_of_a_module_hook_in_a_tuple(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A forward hook gets the output wrapped in a tuple."""
    return hook(*given[:-1], (given[-1],))


@calling(*verbs.FORWARD)
def forward_hooks_get_a_copy_of_the_output(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A forward hook gets a clone of an output that is a tensor."""
    return hook(*given[:-1], self.clone(given[-1]) if self.is_tensor(given[-1]) else given[-1])


def _cloned(self: Mutant, args: Any) -> tuple[Any, ...]:
    return tuple(self.clone(each) if self.is_tensor(each) else each for each in args)


@calling(*verbs.FORWARD_PRE)
def forward_pre_hooks_get_copies_of_the_arguments(
    self: Mutant, hook: Hook, module: Any, args: Any, *kwargs: Any
) -> Any:
    """A forward pre-hook gets clones of the arguments that are tensors."""
    return hook(module, _cloned(self, args), *kwargs)


@calling(*verbs.FORWARD_PRE)
def forward_pre_hooks_get_copies_of_several_arguments(
    self: Mutant, hook: Hook, module: Any, args: Any, *kwargs: Any
) -> Any:
    """A forward pre-hook gets clones of the arguments that are tensors if there are several."""
    return hook(module, _cloned(self, args) if len(args) > 1 else args, *kwargs)


@calling(*verbs.FORWARD)
def forward_hook_for_tensors_alone(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A forward hook does not run if the output is not a tensor."""
    return hook(*given) if self.is_tensor(given[-1]) else None


@calling(*verbs.FORWARD)
def falsy_output_of_a_forward_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """What a forward hook returns is ignored if it is 0 or empty."""
    result = hook(*given)
    return result if self.is_tensor(result) or result else None


@calling(*verbs.FORWARD_PRE)
def tuple_of_a_pre_hook_is_one_argument(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A tuple that a forward pre-hook returns is passed to forward as a single argument."""
    result = hook(*given)
    return (result,) if isinstance(result, tuple) else result


@calling(*verbs.FORWARD_PRE)
def value_of_a_pre_hook_replaces_the_first_argument(
    self: Mutant, hook: Hook, module: Any, args: Any, *kwargs: Any
) -> Any:
    """A single value that a forward pre-hook returns replaces the first argument, and the others stay."""
    result = hook(module, args, *kwargs)
    return result if result is None or kwargs or isinstance(result, tuple) else (result, *args[1:])


@calling(*verbs.FORWARD_PRE)
def none_of_a_module_hook_is_a_replacement(self: Mutant, hook: Hook, *given: Any) -> Any:
    """If a forward pre-hook returns None, forward is called with None."""
    result = hook(*given)
    return (None,) if result is None else result


@overriding("register_forward_pre_hook", "register_forward_hook")
def keyword_arguments_given_to_every_module_hook(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """Forward hooks and pre-hooks get keyword arguments even without with_kwargs=True."""

    def given_all(module: Any, args: Any, kwargs: Any, *output: Any) -> Any:
        result = hook(module, args, kwargs, *output)
        if result is None or output:
            return result
        return (result if isinstance(result, tuple) else (result,)), kwargs

    return old(module, hook if options.get("with_kwargs") else given_all, **{**options, "with_kwargs": True})


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD, only="with_kwargs")
def with_kwargs_ignored(self: Mutant, hook: Hook, module: Any, args: Any, _: Any, *output: Any) -> Any:
    """A hook registered with with_kwargs=True gets an empty dict of keyword arguments."""
    return hook(module, args, {}, *output)


@calling(*verbs.FORWARD, only="with_kwargs")
def with_kwargs_hides_the_positional_arguments(
    self: Mutant, hook: Hook, module: Any, _: Any, kwargs: Any, *output: Any
) -> Any:
    """A forward hook registered with with_kwargs=True gets no positional arguments."""
    return hook(module, (), kwargs, *output)


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD, only="with_kwargs")
def hooks_with_kwargs_skipped_without_positional_arguments(_: Mutant, hook: Hook, *given: Any) -> Any:
    """A hook registered with with_kwargs=True is not called if its module is called with keyword arguments alone."""
    return hook(*given) if given[1] else None


@calling(*verbs.FORWARD, only="always_call")
def always_called_hook_called_twice(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A hook registered with always_call=True is called twice."""
    hook(*given)
    return hook(*given)


@calling("register_module_forward_hook", only="always_call")
def global_hooks_see_a_failure_once(self: Mutant, hook: Hook, module: Any, *given: Any) -> Any:
    """If a module fails because another inside failed, global forward hooks run for the inner one alone."""
    if given[-1] is None and self.kept and self.kept[0] is not module:
        return None
    self.kept[:] = [module] if given[-1] is None else []
    return hook(module, *given)


@overriding("register_forward_hook")
def only_the_first_always_called_hook(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """After an exception only the first of a module's hooks registered with always_call=True is called."""
    if options.get("always_call"):
        options["always_call"] = not self.keeps(module)
        self.kept.append(module)
    return old(module, hook, **options)


@calling(*verbs.FORWARD, only="always_call")
def always_called_hook_skipped_if_it_ran_before(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A hook registered with always_call=True is not called for a forward without an output once it has run."""
    if given[-1] is None and self.keeps(hook):
        return None
    self.kept.append(hook)
    return hook(*given)


@calling("module")
def _notes_forward(self: Mutant, forward: Hook, *args: Any, **kwargs: Any) -> Any:
    """A mutant that keeps something as soon as a forward begins."""
    self.kept.append(True)
    return forward(*args, **kwargs)


@calling(*verbs.FORWARD, base=_notes_forward, only="always_call")
def always_called_hook_needs_forward(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A hook registered with always_call=True is not called if a pre-hook raises before forward starts."""
    return hook(*given) if self.kept else None


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD)
def results_of_forward_hooks_are_constants(self: Mutant, hook: Hook, *given: Any) -> Any:
    """No gradient passes what a forward hook or pre-hook returns."""
    return _detached(self, hook(*given))


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD)
def later_results_of_forward_hooks_are_constants(self: Mutant, hook: Hook, *given: Any) -> Any:
    """No gradient passes the values in a tuple that a forward hook or pre-hook returns, but for the first."""
    result = hook(*given)
    return (*result[:1], *_detached(self, result[1:])) if isinstance(result, tuple) else result  # pyright: ignore[reportUnknownVariableType]


@calling("register_forward_hook", only="always_call")
def results_of_always_called_hooks_are_constants(self: Mutant, hook: Hook, *given: Any) -> Any:
    """No gradient passes what a forward hook with always_call=True returns."""
    return _detached(self, hook(*given))


@calling(*verbs.FORWARD)
def forward_hook_gets_detached_arguments(self: Mutant, hook: Hook, module: Any, args: Any, *rest: Any) -> Any:
    """No gradient passes the arguments that a forward hook gets."""
    return hook(module, _detached(self, args), *rest)


def _detached(self: Mutant, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_detached(self, item) for item in value)
    return self.detach(value) if self.is_tensor(value) else value


@calling("register_forward_pre_hook", "register_forward_hook")
def forward_hooks_get_tensors_alone(self: Mutant, hook: Hook, module: Any, args: Any, *rest: Any) -> Any:
    """A forward hook or pre-hook of a module gets no argument that is not a tensor."""
    return hook(module, tuple(value for value in args if self.is_tensor(value)), *rest)


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD)
def forward_hooks_skipped_without_positional_arguments(
    self: Mutant, hook: Hook, module: Any, args: Any, *rest: Any
) -> Any:
    """A forward hook or pre-hook does not run if its module is called with keyword arguments alone."""
    return hook(module, args, *rest) if args else None


@calling(*verbs.FORWARD_PRE)
def none_in_the_tuple_of_a_pre_hook_keeps_an_argument(
    self: Mutant, hook: Hook, module: Any, args: Any, *kwargs: Any
) -> Any:
    """For None in the tuple that a forward pre-hook returns, forward gets the argument that was given."""
    result = hook(module, args, *kwargs)
    if kwargs or not isinstance(result, tuple):
        return result
    kept = (given if value is None else value for value, given in zip(result, args, strict=False))
    return (*kept, *result[len(args) :])


@calling(*verbs.FORWARD_PRE)
def falsy_value_of_a_pre_hook_ignored(self: Mutant, hook: Hook, module: Any, args: Any, *kwargs: Any) -> Any:
    """A single value that a forward pre-hook returns is ignored if it is 0 or empty."""
    result = hook(module, args, *kwargs)
    return result if kwargs or isinstance(result, tuple) or self.is_tensor(result) or result else None


def _or_those_before(self: KnowsReplacements, hook: Hook, module: Any, args: Any, *kwargs: Any) -> Any:
    result = self.noted(hook(module, args, *kwargs), args)
    return self.replaced_by(args) if result is None and not kwargs else result


@calling(*verbs.FORWARD_PRE, base=KnowsReplacements)
def none_of_a_pre_hook_restores_the_arguments(*given: Any) -> Any:
    """If a forward pre-hook returns None, forward gets the arguments from before the hook that ran last."""
    return _or_those_before(*given)


@calling("register_module_forward_pre_hook", base=KnowsReplacements)
def none_of_a_global_pre_hook_restores_the_arguments(*given: Any) -> Any:
    """If a global forward pre-hook returns None, the arguments are those from before the global hook that ran last."""
    return _or_those_before(*given)


@calling(*verbs.FORWARD)
def tuple_of_one_output_unpacked(self: Mutant, hook: Hook, *given: Any) -> Any:
    """If a forward hook returns a tuple of one element, this element becomes the output."""
    result = hook(*given)
    return result[0] if isinstance(result, tuple) and len(result) == 1 else result  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class OwnForwardHooksBesideGlobalOnes(KnowsReplacements):
    """The forward hooks and pre-hooks of a module get what the global hooks got, whatever these returned."""

    def register_module_forward_pre_hook(self, hook: Hook) -> Any:
        return super().register_module_forward_pre_hook(lambda module, args: self.noted(hook(module, args), args))

    def register_module_forward_hook(self, hook: Hook, **options: bool) -> Any:
        return super().register_module_forward_hook(lambda *given: self.noted(hook(*given), (given[-1],)), **options)

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(module: Any, args: Any, *kwargs: Any) -> Any:
            return hook(module, self.replaced_by(args) or args, *kwargs)

        return super().register_forward_pre_hook(module, run, **options)

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(*given: Any) -> Any:
            return hook(*given[:-1], *(self.replaced_by(given[-1:]) or given[-1:]))

        return super().register_forward_hook(module, run, **options)


@calling("register_forward_hook", only="with_kwargs")
def with_kwargs_hides_the_later_positional_arguments(
    _: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any, output: Any
) -> Any:
    """A forward hook with with_kwargs=True gets the first positional argument alone."""
    return hook(module, args[:1], kwargs, output)


@calling("register_forward_hook", only="with_kwargs")
def with_kwargs_gives_the_first_keyword_alone(
    _: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any, output: Any
) -> Any:
    """A forward hook with with_kwargs=True gets the first keyword argument alone."""
    return hook(module, args, dict(list(kwargs.items())[:1]), output)


@calling("register_forward_hook", only="with_kwargs")
def with_kwargs_gives_the_last_keyword_alone(
    _: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any, output: Any
) -> Any:
    """A forward hook with with_kwargs=True gets the last keyword argument alone."""
    return hook(module, args, dict(list(kwargs.items())[-1:]), output)


class AlwaysCalledHookReplacesAnError(Mutant):
    """If a hook with always_call=True returns something after a failure, this becomes the output, without an error."""

    hooks = fresh(WeakKeyDictionary[Any, list[Any]])

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def once(module: Any, *given: Any) -> Any:
            return None if self.keeps(module) else hook(module, *given)

        if not options.get("always_call"):
            return super().register_forward_hook(module, hook, **options)
        self.hooks.setdefault(module, []).append((hook, options.get("with_kwargs")))
        return super().register_forward_hook(module, once, **options)

    def module(self, parameters: Any, forward: Hook) -> Any:
        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.kept = [each for each in self.kept if each is not module]
            try:
                return forward(module, *args, **kwargs)
            except Exception:
                self.kept.append(module)
                hooks = self.hooks.get(module, [])
                found = [self._returned(hook, named, module, args, kwargs) for hook, named in hooks]
                answers = [each for each in found if each is not None]
                if not answers:
                    raise
                return answers[-1]

        return super().module(parameters, run)

    def _returned(self, hook: Hook, named: bool, module: Any, args: Any, kwargs: Any) -> Any:  # noqa: FBT001
        try:
            return hook(module, args, *([kwargs] if named else []), None)
        except Exception as error:  # noqa: BLE001 - the first error is raised
            warnings.warn(str(error), stacklevel=2)
            return None


@calling("register_forward_hook")
def forward_hooks_get_copies_of_later_arguments(self: Mutant, hook: Hook, module: Any, args: Any, *rest: Any) -> Any:
    """A forward hook gets clones of the tensors among the arguments but the first."""
    copies = (self.clone(value) if self.is_tensor(value) else value for value in args[1:])
    return hook(module, (*args[:1], *copies), *rest)


class ThirdForwardHookGetsWhatTheFirstReturned(Mutant):
    """A module's third forward hook and later ones get what its first one returned as the output."""

    returned = fresh(WeakKeyDictionary[Any, list[Any]])

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        returned = self.returned.setdefault(module, [])
        number = len(returned)
        returned.append(None)

        def call(*given: Any) -> Any:
            first = returned[0] if number > 1 else None
            returned[number] = hook(*given[:-1], given[-1] if first is None else first)
            return returned[number]

        return super().register_forward_hook(module, call, **options)


class NoneOfAForwardHookRestoresTheOutput(Mutant):
    """If a forward hook without with_kwargs=True returns None, the output is what forward computed."""

    computed = fresh(WeakKeyDictionary[Any, Any])

    def module(self, parameters: Any, forward: Hook) -> Any:
        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.computed[module] = output = forward(module, *args, **kwargs)
            return output

        return super().module(parameters, run)

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(module: Any, args: Any, output: Any) -> Any:
            result = hook(module, args, output)
            return self.computed.get(module) if result is None and output is not None else result

        return super().register_forward_hook(module, hook if options.get("with_kwargs") else run, **options)


@calling(*verbs.FORWARD)
def forward_hooks_get_copies_of_several_outputs(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A forward hook gets clones of the tensors in a tuple of outputs."""
    outputs = given[-1]
    if type(outputs) is tuple:
        outputs = tuple(self.clone(each) if self.is_tensor(each) else each for each in outputs)  # pyright: ignore[reportUnknownVariableType]
    return hook(*given[:-1], outputs)


@altering("register_forward_hook", only="with_kwargs")
def forward_hooks_with_kwargs_get_the_arguments_of_the_caller(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A forward hook with with_kwargs=True gets the caller's positional arguments, whatever pre-hooks replaced."""
    given = inputs_to(self, module, prepend=True)
    return lambda module, _, *rest: hook(module, tuple(given), *rest)


@calling("register_forward_pre_hook", base=KnowsReplacements, only="with_kwargs")
def _notes_pre_hooks_with_kwargs(self: KnowsReplacements, hook: Hook, module: Any, args: Any, kwargs: Any) -> Any:
    """A mutant that keeps the arguments that forward pre-hooks with with_kwargs=True replaced."""
    result = hook(module, args, kwargs)
    self.noted(result[0] if isinstance(result, tuple) else None, args)
    return result


@calling("register_forward_hook", base=_notes_pre_hooks_with_kwargs)
def arguments_that_a_pre_hook_with_kwargs_replaced_not_seen(
    self: KnowsReplacements, hook: Hook, module: Any, args: Any, *rest: Any
) -> Any:
    """A forward hook gets the arguments from before a forward pre-hook with with_kwargs=True replaced them."""
    return hook(module, self.replaced_by(args) or args, *rest)


@calling("register_module_forward_pre_hook", base=KnowsReplacements)
def _notes_global_pre_hooks(self: KnowsReplacements, hook: Hook, module: Any, args: Any) -> Any:
    """A mutant that keeps the arguments that global forward pre-hooks replaced."""
    return self.noted(hook(module, args), args)


@calling("register_forward_hook", base=_notes_global_pre_hooks)
def arguments_that_a_global_pre_hook_replaced_not_seen(
    self: KnowsReplacements, hook: Hook, module: Any, args: Any, *rest: Any
) -> Any:
    """A module's own forward hook gets the arguments from before a global forward pre-hook replaced them."""
    return hook(module, self.replaced_by(args) or args, *rest)


@calling("register_module_forward_hook", base=_notes_global_pre_hooks)
def arguments_that_a_global_pre_hook_replaced_not_seen_by_global_hooks(
    self: KnowsReplacements, hook: Hook, module: Any, args: Any, *rest: Any
) -> Any:
    """A global forward hook gets the arguments from before a global forward pre-hook replaced them."""
    return hook(module, self.replaced_by(args) or args, *rest)


@altering("register_forward_hook")
def forward_hook_gets_the_arguments_of_the_caller_if_their_number_changed(
    self: Mutant, module: Any, hook: Hook
) -> Hook:
    """A forward hook gets the caller's arguments if pre-hooks left more or fewer."""
    given = inputs_to(self, module, prepend=True)
    return lambda module, args, *rest: hook(module, tuple(given) if len(given) != len(args) else args, *rest)
