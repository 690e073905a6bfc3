"""Mutants of forward hooks with always_call=True: several of them, errors around them, and what they return."""

from collections.abc import Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import Handle, handle_of, without_result


class AlwaysCalledHooksHideWhatAnErrorSays(Mutant):
    """If a module has a hook with always_call=True, the caller gets a new error of the type of the first."""

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        self.kept += [True] if options.get("always_call") else []
        return super().register_forward_hook(module, hook, **options)

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return forward(*args, **kwargs)
            except Exception as error:
                if not self.kept:
                    raise
                raise type(error) from None

        return super().module(parameters, run)


class _KnowsCallsOfHooks(Mutant):
    """A mutant that keeps the calls of some hooks since forward last ran."""

    calls = fresh(list[tuple[Hook, tuple[Any, ...]]])

    def module(self, parameters: Mapping[str, Any], forward: Hook) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.calls.clear()
            return forward(*args, **kwargs)

        return super().module(parameters, run)

    def noting(self, hook: Hook) -> Hook:
        """Return a hook whose calls are kept."""
        return lambda *given: (self.calls.append((hook, given)), hook(*given))[1]

    def repeating(self, hook: Hook) -> Hook:
        """Return a hook that repeats the calls that are kept if it fails."""

        def run(*given: Any) -> Any:
            try:
                return hook(*given)
            except Exception:
                for earlier, arguments in self.calls:
                    earlier(*arguments)
                raise

        return run


@overriding("register_forward_hook", base=_KnowsCallsOfHooks)
def later_always_called_hooks_called_twice_if_a_hook_fails(
    self: _KnowsCallsOfHooks, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """If a forward hook fails, hooks with always_call=True that ran before run again, but for the first of a module."""
    if not options.get("always_call"):
        return old(module, self.repeating(hook), **options)
    is_later = self.keeps(module)
    self.kept.append(module)
    return old(module, self.noting(hook) if is_later else hook, **options)


@altering("register_module_forward_hook", only="always_call")
def results_of_global_always_called_hooks_ignored(self: Mutant, hook: Hook) -> Hook:
    """What a global forward hook with always_call=True returns is ignored."""
    return without_result(hook)


@altering("register_module_forward_hook", only="always_call")
def results_of_later_global_always_called_hooks_ignored(self: Mutant, hook: Hook) -> Hook:
    """What a global forward hook with always_call=True returns is ignored if it is not the first such hook."""
    self.kept.append(hook)
    return without_result(hook) if self.kept[1:] else hook


@altering("register_forward_hook", only="always_call")
def output_of_later_always_called_hooks_ignored(self: Mutant, module: Any, hook: Hook) -> Hook:
    """What a hook with always_call=True returns is ignored if it is not the first such hook of its module."""
    is_later = self.keeps(module)
    self.kept.append(module)
    return without_result(hook) if is_later else hook


@altering("register_forward_hook", only="always_call")
def output_of_an_always_called_hook_ignored_after_a_failure(self: Mutant, _module: Any, hook: Hook) -> Hook:
    """What a hook with always_call=True returns is ignored once it has run for a call that failed."""
    failures: list[None] = []

    def run(*given: Any) -> Any:
        failures.extend([None] if given[-1] is None else [])
        result = hook(*given)
        return None if failures else result

    return run


class AlwaysCalledHookSkippedIfALaterPreHookFails(Mutant):
    """A hook with always_call=True does not run if a forward pre-hook fails that is not the first of its module."""

    has_failed = False

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        is_later = self.keeps(module)
        self.kept.append(module)

        def run(*given: Any) -> Any:
            self.has_failed = is_later
            result = hook(*given)
            self.has_failed = False
            return result

        return super().register_forward_pre_hook(module, run, **options)

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        def run(*given: Any) -> Any:
            return None if self.has_failed and given[-1] is None else hook(*given)

        return super().register_forward_hook(module, run if options.get("always_call") else hook, **options)


@overriding("register_module_forward_hook", base=_KnowsCallsOfHooks)
def _notes_global_hooks(self: _KnowsCallsOfHooks, old: Hook, hook: Hook, **options: bool) -> Any:
    """A mutant that keeps the calls of global hooks with always_call=True, and repeats them if another fails."""
    return old((self.noting if options.get("always_call") else self.repeating)(hook), **options)


@overriding("register_forward_hook", base=_notes_global_hooks)
def global_always_called_hooks_called_twice_if_a_hook_fails(
    self: _KnowsCallsOfHooks, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """If a forward hook fails, global hooks with always_call=True that ran before run again."""
    return old(module, hook if options.get("always_call") else self.repeating(hook), **options)


class GlobalAlwaysCalledHooksSkippedIfAGlobalPreHookFails(Mutant):
    """A global hook with always_call=True does not run if a global forward pre-hook fails."""

    has_failed = False

    def register_module_forward_pre_hook(self, hook: Hook) -> Any:
        def run(*given: Any) -> Any:
            self.has_failed = True
            result = hook(*given)
            self.has_failed = False
            return result

        return super().register_module_forward_pre_hook(run)

    def register_module_forward_hook(self, hook: Hook, **options: bool) -> Any:
        def run(*given: Any) -> Any:
            return None if self.has_failed and given[-1] is None else hook(*given)

        return super().register_module_forward_hook(run if options.get("always_call") else hook, **options)


@calling("register_forward_hook", only="always_call")
def falsy_output_of_an_always_called_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """What a forward hook with always_call=True returns is ignored if it is 0 or empty."""
    result = hook(*given)
    return result if self.is_tensor(result) or result else None


@overriding("register_forward_hook")
def prepend_of_an_always_called_hook_ignored(_: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A forward hook that is registered with prepend=True and always_call=True runs after those registered before."""
    return old(module, hook, **{**options, "prepend": False} if options.get("always_call") else options)


@overriding("register_forward_hook")
def removed_always_called_hooks_run_if_forward_fails(
    _: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A forward hook with always_call=True that was removed still runs for calls whose forward fails."""
    if not options.get("always_call"):
        return old(module, hook, **options)
    removed = list[None]()
    old(module, lambda *given: hook(*given) if not removed or given[-1] is None else None, **options)
    return Handle(lambda: removed.append(None))


@overriding("register_forward_hook")
def always_called_hooks_in_reverse_order_if_forward_fails(
    _: Mutant, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """If forward fails, the hooks with always_call=True run in reverse order."""
    if not options.get("always_call"):
        return old(module, hook, **options)

    def only(*, if_it_fails: bool) -> Hook:
        return lambda *given: hook(*given) if (given[-1] is None) is if_it_fails else None

    reverse = {**options, "prepend": not options.get("prepend")}
    return handle_of([old(module, only(if_it_fails=False), **options), old(module, only(if_it_fails=True), **reverse)])


@calling("register_forward_hook", only="always_call")
def always_called_hook_called_again_once_it_failed(_: Mutant, hook: Hook, *given: Any) -> Any:
    """A forward hook with always_call=True that fails is called once more in the same call."""
    try:
        return hook(*given)
    except Exception:
        with suppress(Exception):
            hook(*given)
        raise


@calling("module")
def _forgets_at_forward(self: Mutant, forward: Hook, *args: Any, **kwargs: Any) -> Any:
    """A mutant that forgets what it keeps when a forward begins."""
    self.kept.clear()
    return forward(*args, **kwargs)


def _after_a_failing_one_skipped(step: Hook) -> type[Mutant]:
    """Make a mutant that skips an always-called hook after one that failed, if ``(self, output)`` is true."""

    @overriding("register_forward_hook", base=_forgets_at_forward)
    @wraps(step)
    def register(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
        def run(*given: Any) -> Any:
            if self.keeps(module) and step(self, given[-1]):
                return None
            try:
                return hook(*given)
            except Exception:
                self.kept.append(module)
                raise

        return old(module, run if options.get("always_call") else hook, **options)

    return register


@_after_a_failing_one_skipped
def always_called_hooks_after_a_failing_one_skipped(_self: Mutant, _output: Any) -> bool:
    """Once a forward hook with always_call=True has failed, the module's later ones do not run in this call."""
    return True


@_after_a_failing_one_skipped
def always_called_hooks_after_a_failing_one_skipped_if_forward_fails(_self: Mutant, output: Any) -> bool:
    """If forward and then a hook with always_call=True fail, the module's later ones do not run in this call."""
    return output is None


@overriding("register_forward_hook", base=_forgets_at_forward)
def _skips_always_called_hooks(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A mutant whose modules skip their own hooks with always_call=True as long as it keeps anything."""
    always = options.get("always_call")
    return old(module, (lambda *given: None if self.kept else hook(*given)) if always else hook, **options)


def _keeping_a_failure(self: Mutant, hook: Hook, *given: Any) -> Any:
    self.kept[:] = [True]
    result = hook(*given)
    self.kept.clear()
    return result


@calling("register_module_forward_hook", base=_skips_always_called_hooks)
def always_called_hooks_skipped_if_a_global_hook_fails(*given: Any) -> Any:
    """If a global forward hook fails, the module's own hooks with always_call=True do not run."""
    return _keeping_a_failure(*given)


@calling("register_module_forward_pre_hook", base=_skips_always_called_hooks)
def always_called_hooks_skipped_if_a_global_pre_hook_fails(*given: Any) -> Any:
    """If a global forward pre-hook fails, the module's own hooks with always_call=True do not run."""
    return _keeping_a_failure(*given)
