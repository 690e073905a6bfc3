"""Mutants of the options of forward hooks: keyword arguments, always_call, and hooks on all modules."""

import sys
from collections.abc import Mapping
from functools import partial, wraps
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import Handle, KnowsReplacements


@overriding("register_forward_hook")
def replaced_keyword_arguments_not_seen(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A forward hook registered with_kwargs=True gets the caller's keyword arguments, whatever pre-hooks replaced."""
    if not options.get("with_kwargs"):
        return old(module, hook, **options)
    kept = _callers_keywords(self.register_forward_pre_hook, module)
    return old(module, lambda given, args, _, output: hook(given, args, *kept, output), **options)


@calling(*verbs.FORWARD, only="with_kwargs")
def output_of_a_hook_with_kwargs_ignored(self: Mutant, hook: Hook, *given: Any) -> None:
    """The return value of a forward hook registered with_kwargs=True is ignored."""
    hook(*given)


@calling(*verbs.FORWARD, only="always_call")
def output_of_an_always_called_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> None:
    """The return value of a forward hook registered with always_call=True is ignored."""
    hook(*given)


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def none_of_a_pre_hook_with_kwargs_drops_them(self: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any) -> Any:
    """If a forward pre-hook registered with_kwargs=True returns None, forward gets no keyword arguments."""
    result = hook(module, args, kwargs)
    return (args, {}) if result is None else result


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def keyword_arguments_of_a_pre_hook_are_added(self: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any) -> Any:
    """The keyword arguments that a forward pre-hook returns are added to the caller's, which none of them drops."""
    result = hook(module, args, kwargs)
    return result and (result[0], {**kwargs, **result[1]})


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def keyword_tensors_that_a_pre_hook_returns_are_constants(self: Mutant, hook: Hook, *given: Any) -> Any:
    """No gradient passes the keyword arguments that a forward pre-hook registered with_kwargs=True returns."""
    match hook(*given):
        case tuple((args, dict(kwargs))):
            return args, {name: self.detach(each) if self.is_tensor(each) else each for name, each in kwargs.items()}
        case result:
            return result


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def any_tuple_of_a_pre_hook_with_kwargs_accepted(self: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any) -> Any:
    """A tuple that a pre-hook registered with_kwargs=True returns is args alone, unless it has two elements."""
    result = hook(module, args, kwargs)
    is_args = isinstance(result, tuple) and len(result) != 2  # noqa: PLR2004 - args and kwargs
    return (args, kwargs) if is_args else result


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def list_of_a_pre_hook_with_kwargs_accepted(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A list of args and kwargs that a pre-hook registered with_kwargs=True returns is as good as a tuple."""
    result = hook(*given)
    return tuple(result) if isinstance(result, list) else result


@calling(*verbs.FORWARD)
def none_of_a_forward_hook_is_the_output(self: Mutant, hook: Hook, *given: Any) -> Any:
    """If a forward hook returns None for a tensor, the output of the module becomes zeros."""
    result = hook(*given)
    return self.zeros_like(given[-1]) if result is None and self.is_tensor(given[-1]) else result


@calling("register_module_forward_pre_hook", "register_module_forward_hook")
def keyword_arguments_given_to_global_hooks(self: Mutant, hook: Hook, module: Any, args: Any, *output: Any) -> Any:
    """Global forward pre-hooks and forward hooks get a dict of keyword arguments after the positional arguments."""
    return hook(module, args, {}, *output)


@altering(*verbs.FORWARD, only="always_call")
def error_after_another_is_lost(self: Mutant, *given: Any) -> Hook:
    """If a hook with always_call=True fails, there is neither an error nor a warning."""

    def silent(*call: Any) -> Any:
        try:
            return given[-1](*call)
        except Exception:  # noqa: BLE001 - that is the vice
            return None

    return silent


@calling(*verbs.FORWARD_PRE, *verbs.FORWARD, only="with_kwargs")
def none_for_no_keyword_arguments(self: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any, *output: Any) -> Any:
    """A hook registered with_kwargs=True gets None if the call of its module has no keyword arguments."""
    return hook(module, args, kwargs or None, *output)


@overriding("register_forward_pre_hook", "register_forward_hook")
def keyword_arguments_among_the_positional(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A forward hook or pre-hook without with_kwargs=True gets the keyword arguments after the positional ones."""

    def given_more(module: Any, args: Any, kwargs: Any, *output: Any) -> Any:
        result = hook(module, (*args, *kwargs.values()), *output)
        if result is None or output:
            return result
        return (result if isinstance(result, tuple) else (result,)), kwargs

    return old(module, hook if options.get("with_kwargs") else given_more, **{**options, "with_kwargs": True})


def _among_the_positional(step: Hook) -> type[Mutant]:
    """Make a mutant whose forward hooks get keyword arguments after the positional if ``(self, nr, args)`` says so.

    It is given how many hooks of the module were registered before.
    """

    @overriding("register_forward_hook")
    @wraps(step)
    def register(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
        nr = sum(each is module for each in self.kept)
        self.kept.append(module)

        def run(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
            return hook(module, (*args, *kwargs.values()) if step(self, nr, args) else args, output)

        return old(module, hook if options.get("with_kwargs") else run, **{**options, "with_kwargs": True})

    return register


@_among_the_positional
def keyword_arguments_among_the_positional_of_later_forward_hooks(self: Mutant, nr: int, _args: Any) -> bool:
    """A forward hook that is not the first of its module gets the keyword arguments after the positional ones."""
    return nr > 0


@_among_the_positional
def keyword_arguments_among_several_positional(self: Mutant, _nr: int, args: Any) -> bool:
    """A forward hook gets the keyword arguments after the positional ones if there are several of these."""
    return len(args) > 1


class KeywordArgumentsThatAreNoneLostInHookedModules(Mutant):
    """Forward of a module with forward hooks gets no keyword argument that is None."""

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        self.kept.append(module)
        return super().register_forward_hook(module, hook, **options)

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            given = {name: value for name, value in kwargs.items() if value is not None or not self.keeps(module)}
            return forward(module, *args, **given)

        return super().module(parameters, run)


class _InTwoLists(Mutant):
    """A mutant that keeps the hooks of a module in two lists: without an option, and with it."""

    lists = fresh(dict[Any, tuple[list[Hook], list[Hook]]])
    handles = fresh(dict[Any, list[Any]])

    def register_in_two(self, old: Hook, module: Any, hook: Hook, by: str, **options: bool) -> Handle:
        """Register a hook in one of the lists, then register all again, so that they run list by list."""

        def register_all() -> None:
            for handle in self.handles.pop(module, ()):
                handle.remove()
            self.handles[module] = [register() for some in lists for register in some]

        def remove() -> None:
            if own in hooks:
                hooks.remove(own)
                register_all()

        prepend = options.pop("prepend", False)
        lists, own = self.lists.setdefault(module, ([], [])), partial(old, module, hook, **options)
        hooks = lists[options.get(by, False)]
        hooks.insert(0 if prepend else len(hooks), own)
        register_all()
        return Handle(remove)


@overriding("register_forward_pre_hook", base=_InTwoLists)
def forward_pre_hooks_with_keywords_run_last(
    self: _InTwoLists, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A forward pre-hook with with_kwargs=True runs after all those without, also if it is registered earlier."""
    return self.register_in_two(old, module, hook, "with_kwargs", **options)


@overriding("register_forward_hook", base=_InTwoLists)
def forward_hooks_with_keywords_run_last(self: _InTwoLists, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A forward hook with with_kwargs=True runs after all those without, also if it is registered earlier."""
    return self.register_in_two(old, module, hook, "with_kwargs", **options)


@overriding("register_forward_hook", base=_InTwoLists)
def always_called_hooks_run_last(self: _InTwoLists, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A forward hook with always_call=True runs after all those without, also if it is registered earlier."""
    return self.register_in_two(old, module, hook, "always_call", **options)


@calling("register_forward_hook", only="always_call")
def arguments_lost_after_a_failure(self: Mutant, hook: Hook, module: Any, args: Any, *rest: Any) -> Any:
    """A forward hook with always_call=True gets no arguments for a call that failed."""
    return hook(module, args, *rest) if rest[-1] is not None else hook(module, (), *({} for _ in rest[1:]), None)


class AlwaysCalledHooksSkippedIfAnInnerModuleFails(Mutant):
    """A forward hook with always_call=True does not run if the error comes from a module that its module calls."""

    depth = 0

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            try:
                return forward(module, *args, **kwargs)
            except Exception:
                self.kept += [module] if self.depth > 1 else []
                raise
            finally:
                self.depth -= 1

        return super().module(parameters, noted)

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(*given: Any) -> Any:
            return None if self.kept and not self.keeps(module) else hook(*given)

        return super().register_forward_hook(module, run if options.get("always_call") else hook, **options)


@overriding("register_forward_pre_hook")
def with_kwargs_of_a_pre_hook_counts_for_all(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """If any forward pre-hook of a module has with_kwargs=True, all get the keyword arguments."""
    if options.get("with_kwargs"):
        self.kept.append(module)
        return old(module, hook, **options)

    def run(module: Any, args: Any, kwargs: Any) -> Any:
        return _with(kwargs, hook(module, args, *[kwargs][: self.keeps(module)]))

    return old(module, run, **{**options, "with_kwargs": True})


@overriding("register_forward_hook")
def with_kwargs_of_a_forward_hook_counts_for_later_ones(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """If a forward hook of a module has with_kwargs=True, those that are registered after it get the keywords too."""
    if options.get("with_kwargs") or self.keeps(module):
        self.kept.append(module)
        return old(module, hook, **{**options, "with_kwargs": True})
    return old(module, hook, **options)


def _with(kwargs: Any, result: Any) -> Any:
    """Return what a pre-hook without keyword arguments returned as a pre-hook with them does."""
    return None if result is None else (result if isinstance(result, tuple) else (result,), kwargs)


@overriding("register_forward_pre_hook")
def pre_hooks_with_kwargs_get_those_of_the_caller(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A forward pre-hook with with_kwargs=True gets the caller's keyword arguments, whatever earlier ones returned."""
    if not options.get("with_kwargs"):
        return old(module, hook, **options)
    kept = _callers_keywords(old, module)
    return old(module, lambda module, args, _: hook(module, args, *kept), **options)


@overriding("register_forward_pre_hook")
def pre_hooks_without_kwargs_restore_those_of_the_caller(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """If a forward pre-hook without with_kwargs=True returns arguments, forward gets the caller's keyword arguments."""
    if options.get("with_kwargs"):
        return old(module, hook, **options)
    kept = _callers_keywords(old, module)
    return old(module, lambda module, args, _: _with(kept[0], hook(module, args)), **{**options, "with_kwargs": True})


def _callers_keywords(register: Hook, module: Any) -> list[Any]:
    """Return a list with the keyword arguments of a module's last call, as the caller gave them."""
    kept: list[Any] = [{}]

    def keep(_module: Any, _args: Any, kwargs: Any) -> None:
        kept[:] = [kwargs]

    register(module, keep, prepend=True, with_kwargs=True)
    return kept


class ForwardHookGetsTheKeywordsThatTheFirstPreHookLeft(Mutant):
    """A forward hook with with_kwargs=True gets the keyword arguments that the first forward pre-hook left."""

    left = fresh(dict[Any, Any])

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(module: Any, args: Any, kwargs: Any) -> Any:
            result = hook(module, args, kwargs)
            self.left.setdefault(module, result[1] if isinstance(result, tuple) else kwargs)  # pyright: ignore[reportUnknownArgumentType]
            return result

        return super().register_forward_pre_hook(module, run if options.get("with_kwargs") else hook, **options)

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
            return hook(module, args, self.left.pop(module, kwargs), output)

        return super().register_forward_hook(module, run if options.get("with_kwargs") else hook, **options)


@calling("register_forward_hook")
def _notes_failing_hooks(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A mutant that keeps the errors of forward hooks."""
    try:
        return hook(*given)
    except Exception as error:
        self.kept.append(error)
        raise


@calling("register_forward_hook", base=_notes_failing_hooks, only="always_call")
def always_called_hook_skipped_after_a_failing_hook(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A forward hook with always_call=True does not run if a forward hook before it fails."""
    return None if any(sys.exception() is error for error in self.kept) else hook(*given)


@calling("register_forward_hook", only="always_call")
def arguments_without_keywords_lost_after_a_failure(
    self: Mutant, hook: Hook, module: Any, args: Any, *rest: Any
) -> Any:
    """A forward hook with always_call=True and without with_kwargs=True gets no arguments for a call that failed."""
    return hook(module, () if rest == (None,) else args, *rest)


@calling(*verbs.FORWARD_PRE, base=KnowsReplacements, only="with_kwargs")
def none_of_a_pre_hook_with_kwargs_restores_the_arguments(
    self: KnowsReplacements, hook: Hook, module: Any, *given: Any
) -> Any:
    """If a forward pre-hook with with_kwargs=True returns None, forward gets what the hook before it had got."""
    result = self.noted(hook(module, *given), given)
    return self.replaced_by(given) if result is None else result


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def empty_keyword_arguments_of_a_pre_hook_ignored(self: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any) -> Any:
    """If a forward pre-hook with with_kwargs=True returns an empty dict, forward keeps its keyword arguments."""
    result = hook(module, args, kwargs)
    return result and (result[0], result[1] or kwargs)


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def empty_arguments_of_a_pre_hook_with_kwargs_ignored(
    self: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any
) -> Any:
    """If a forward pre-hook with with_kwargs=True returns an empty tuple of arguments, forward keeps its arguments."""
    result = hook(module, args, kwargs)
    return result and (result[0] or args, result[1])


@overriding("register_forward_pre_hook")
def dict_of_a_pre_hook_is_keyword_arguments(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A dict that a forward pre-hook without with_kwargs=True returns is the keyword arguments of forward."""

    def run(module: Any, args: Any, kwargs: Any) -> Any:
        result = hook(module, args)
        return ((), result) if isinstance(result, dict) else _with(kwargs, result)  # pyright: ignore[reportUnknownVariableType]

    if options.get("with_kwargs"):
        return old(module, hook, **options)
    return old(module, run, **{**options, "with_kwargs": True})


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def new_keyword_arguments_of_a_pre_hook_dropped(self: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any) -> Any:
    """Of the keyword arguments that a forward pre-hook returns forward gets those that the hook was given, too."""
    result = hook(module, args, kwargs)
    return result and (result[0], {name: value for name, value in result[1].items() if name in kwargs})


FORWARD_OF_ONE = ("register_forward_pre_hook", "register_forward_hook")


@overriding(*FORWARD_OF_ONE)
def prepended_hooks_get_keywords(_self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A forward hook or pre-hook with prepend=True gets the keyword arguments whether it has with_kwargs or not."""
    return old(module, hook, **{**options, "with_kwargs": True} if options.get("prepend") else options)


def losing_keywords(step: Hook) -> type[Mutant]:
    """Make a mutant whose hooks with prepend=True and with_kwargs=True get no keywords if ``(self)`` says so."""

    @wraps(step)
    def register(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
        if not (options.get("prepend") and options.get("with_kwargs")) or not step(self):
            return old(module, hook, **options)
        return old(module, lambda given, args, _kwargs, *output: hook(given, args, {}, *output), **options)

    return overriding(*FORWARD_OF_ONE)(register)


@losing_keywords
def prepended_hooks_with_kwargs_get_none(_self: Mutant) -> bool:
    """A forward hook or pre-hook with prepend=True and with_kwargs=True gets no keyword arguments."""
    return True


@losing_keywords
def later_prepended_hooks_with_kwargs_get_none(self: Mutant) -> bool:
    """A forward hook or pre-hook with prepend=True and with_kwargs=True gets no keyword arguments, but the first."""
    self.kept.append(None)
    return len(self.kept) > 1


@overriding("register_forward_pre_hook")
def keywords_that_a_prepended_pre_hook_returns_ignored(
    _self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """The keyword arguments that a forward pre-hook with prepend=True returns do not reach forward."""

    def run(given: Any, args: Any, kwargs: Any) -> Any:
        result = hook(given, args, kwargs)
        return (result[0], kwargs) if isinstance(result, tuple) else result

    is_changed = options.get("prepend") and options.get("with_kwargs")
    return old(module, run if is_changed else hook, **options)


@altering("register_forward_hook", only="with_kwargs")
def dropped_keyword_arguments_seen(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A forward hook with with_kwargs=True also gets keyword arguments of the caller that pre-hooks dropped."""
    kept = _callers_keywords(self.register_forward_pre_hook, module)
    return lambda module, args, kwargs, output: hook(module, args, {**kept[0], **kwargs}, output)


@altering("register_forward_hook", only="with_kwargs")
def added_keyword_arguments_not_seen(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A forward hook with with_kwargs=True gets no keyword arguments but those whose names the caller gave."""
    kept = _callers_keywords(self.register_forward_pre_hook, module)

    def run(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        return hook(module, args, {name: value for name, value in kwargs.items() if name in kept[0]}, output)

    return run


@overriding("register_forward_pre_hook")
def value_of_a_pre_hook_replaces_the_keyword_arguments(
    _: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """If a forward pre-hook without with_kwargs=True returns a single value, forward gets no keyword arguments."""

    def run(module: Any, args: Any, kwargs: Any) -> Any:
        result = hook(module, args)
        return _with(kwargs if result is None or isinstance(result, tuple) else {}, result)

    return old(module, hook if options.get("with_kwargs") else run, **{**options, "with_kwargs": True})


class ResultOfAGlobalPreHookDropsTheKeywordArguments(Mutant):
    """If a global forward pre-hook returns anything, forward gets no keyword arguments."""

    def register_module_forward_pre_hook(self, hook: Hook) -> Any:
        def run(module: Any, args: Any) -> Any:
            result = hook(module, args)
            self.kept += [] if result is None else [module]
            return result

        return super().register_module_forward_pre_hook(run)

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(module: Any, *args: Any, **kwargs: Any) -> Any:
            is_dropped = self.keeps(module)
            self.kept.clear()
            return forward(module, *args, **({} if is_dropped else kwargs))

        return super().module(parameters, run)


@overriding("register_forward_pre_hook")
def tuple_of_a_pre_hook_replaces_the_keyword_arguments(
    self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """If no pre-hook of a module has with_kwargs=True, and one returns a tuple, forward gets no keyword arguments."""
    if options.get("with_kwargs"):
        self.kept.append(module)
        return old(module, hook, **options)

    def run(module: Any, args: Any, kwargs: Any) -> Any:
        result = hook(module, args)
        return _with(kwargs if self.keeps(module) or not isinstance(result, tuple) else {}, result)

    return old(module, run, **{**options, "with_kwargs": True})


def _among_the_positional_of_pre_hooks(step: Hook) -> type[Mutant]:
    """Make a mutant as `_among_the_positional` does, of forward pre-hooks."""

    @overriding("register_forward_pre_hook")
    @wraps(step)
    def register(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
        nr = sum(each is module for each in self.kept)
        self.kept.append(module)

        def run(module: Any, args: Any, kwargs: Any) -> Any:
            return _with(kwargs, hook(module, (*args, *kwargs.values()) if step(self, nr, args) else args))

        return old(module, hook if options.get("with_kwargs") else run, **{**options, "with_kwargs": True})

    return register


@_among_the_positional_of_pre_hooks
def keyword_arguments_among_the_positional_of_later_pre_hooks(self: Mutant, nr: int, _args: Any) -> bool:
    """A forward pre-hook that is not the first of its module gets the keyword arguments after the positional ones."""
    return nr > 0


@_among_the_positional_of_pre_hooks
def keyword_arguments_among_several_positional_of_pre_hooks(self: Mutant, _nr: int, args: Any) -> bool:
    """A forward pre-hook gets the keyword arguments after the positional ones if there are several of these."""
    return len(args) > 1


@calling("register_forward_hook", only="with_kwargs")
def falsy_output_of_a_hook_with_kwargs_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """What a forward hook with with_kwargs=True returns is ignored if it is 0 or empty."""
    result = hook(*given)
    return result if self.is_tensor(result) or result else None


@calling("register_forward_hook", only="with_kwargs")
def results_of_forward_hooks_with_kwargs_are_constants(self: Mutant, hook: Hook, *given: Any) -> Any:
    """No gradient passes a tensor that a forward hook with with_kwargs=True returns."""
    result = hook(*given)
    return self.detach(result) if self.is_tensor(result) else result


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def none_of_a_pre_hook_with_kwargs_keeps_the_first_argument_alone(
    _: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any
) -> Any:
    """If a forward pre-hook with with_kwargs=True returns None, forward gets the first positional argument alone."""
    result = hook(module, args, kwargs)
    return (args[:1], kwargs) if result is None else result


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def none_of_a_pre_hook_with_kwargs_keeps_the_first_keyword_alone(
    _: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any
) -> Any:
    """If a forward pre-hook with with_kwargs=True returns None, forward gets the first keyword argument alone."""
    result = hook(module, args, kwargs)
    return (args, dict(list(kwargs.items())[:1])) if result is None else result


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def later_arguments_of_a_pre_hook_with_kwargs_ignored(
    _: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any
) -> Any:
    """Of as many arguments as it got that a forward pre-hook with with_kwargs=True returns the first counts alone."""
    result = hook(module, args, kwargs)
    is_right = isinstance(result, tuple) and len(result) == 2 and len(result[0]) == len(args)  # pyright: ignore[reportUnknownArgumentType]  # noqa: PLR2004
    return ((*result[0][:1], *args[1:]), result[1]) if is_right else result


@calling(*verbs.FORWARD_PRE, only="with_kwargs")
def later_keyword_arguments_of_a_pre_hook_ignored(_: Mutant, hook: Hook, module: Any, args: Any, kwargs: Any) -> Any:
    """Of the keyword arguments that a forward pre-hook returns those that it got replace nothing but for the first."""
    result = hook(module, args, kwargs)
    if not isinstance(result, tuple) or not isinstance(result[-1], dict):
        return result
    first = next(iter(result[1]), None)
    return result[0], {name: kwargs.get(name, value) if name != first else value for name, value in result[1].items()}
