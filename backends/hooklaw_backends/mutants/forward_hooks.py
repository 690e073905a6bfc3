"""Mutants whose forward hooks get the wrong arguments, or run at the wrong time."""

from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, overriding, with_options
from hooklaw_backends.mutants.shared import inputs_to


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


@calling(*verbs.FORWARD)
def output_of_a_module_hook_in_a_tuple(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A forward hook gets the output wrapped in a tuple."""
    return hook(*given[:-1], (given[-1],))


@calling(*verbs.FORWARD)
def forward_hook_for_tensors_alone(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A forward hook does not run if the output is not a tensor."""
    return hook(*given) if self.is_tensor(given[-1]) else None


@calling(*verbs.FORWARD)
def falsy_output_of_a_forward_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """What a forward hook returns is ignored if it is 0 or empty."""
    result = hook(*given)
    return result if self.is_tensor(result) or result else None


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD)
def module_hooks_only_where_it_is_recorded(self: Mutant, hook: Hook, *given: Any) -> Any:
    """Forward hooks and pre-hooks do not run under no_grad."""
    return hook(*given) if self.is_grad_enabled() else None


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
def tuple_of_a_pre_hook_reversed(self: Mutant, hook: Hook, *given: Any) -> Any:
    """Forward is called with the tuple that a forward pre-hook returns in reverse order."""
    result = hook(*given)
    return result[::-1] if isinstance(result, tuple) else result


@calling(*verbs.FORWARD_PRE)
def empty_tuple_of_a_pre_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """If a forward pre-hook returns an empty tuple, forward is called with the arguments of the caller."""
    result = hook(*given)
    return None if result == () else result


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


@with_options(*verbs.FORWARD, always_call=False)
def always_call_ignored() -> None:
    """A hook registered with always_call=True is not called after an exception."""


@with_options(*verbs.FORWARD, always_call=True)
def every_forward_hook_always_called() -> None:
    """Every forward hook is called after an exception, even without always_call=True."""


@calling(*verbs.FORWARD, only="always_call")
def always_called_hook_called_twice(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A hook registered with always_call=True is called twice."""
    hook(*given)
    return hook(*given)


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
