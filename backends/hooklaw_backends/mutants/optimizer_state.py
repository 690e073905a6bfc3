"""Mutants of the hooks around saving and loading the state of an optimizer, and of the handles of state hooks."""

import threading
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from itertools import count
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding
from hooklaw_backends.mutants.shared import Handle, without_result


@overriding(*verbs.STATE)
def state_hook_stays(self: Mutant, old: Hook, *given: Any, **options: bool) -> Any:
    """The handle of a hook around saving or loading a state does not remove the hook."""
    old(*given, **options)
    return Handle()


@overriding("register_load_state_dict_pre_hook", *verbs.STATE_POST)
def prepend_ignored_by_three_state_hooks(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """prepend=True works for an optimizer's state_dict pre-hooks alone."""
    return old(owner, hook)


@calling(*verbs.STATE)
def state_hooks_get_another_optimizer(self: Mutant, hook: Hook, owner: Any, *given: Any) -> Any:
    """A hook around saving or loading the state of an optimizer gets a copy of the optimizer."""
    return hook(owner if hasattr(owner, "forward") else copy(owner), *given)


@overriding("register_state_dict_pre_hook")
def optimizer_pre_hook_after_saving(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """A state_dict pre-hook of an optimizer runs after the state was saved."""
    if hasattr(owner, "forward"):
        return old(owner, hook, **options)
    return self.register_state_dict_post_hook(owner, without_result(lambda given, _: hook(given)), **options)


@overriding("register_load_state_dict_post_hook")
def optimizer_post_hook_before_loading(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """A load_state_dict post-hook of an optimizer runs before the state is loaded."""
    if hasattr(owner, "forward"):
        return old(owner, hook, **options)
    return self.register_load_state_dict_pre_hook(owner, without_result(lambda given, _: hook(given)), **options)


@overriding(*verbs.STATE)
def prepended_state_hooks_in_order(self: Mutant, old: Hook, owner: Any, hook: Hook, *, prepend: bool = False) -> Any:
    """State hooks registered with prepend=True run before the others, in the order of their registration."""
    if not prepend:
        return old(owner, hook)
    hooks = next((hooks for verb, of, hooks in self.kept if verb == old and of is owner), None)
    if hooks is None:
        self.kept.append((old, owner, hooks := []))
        old(owner, lambda *given: [each(*given) for each in hooks] and None, prepend=True)
    hooks.append(hook)
    return Handle(lambda: hooks.remove(hook))


@calling("register_load_state_dict_pre_hook")
def returned_state_not_loaded(self: Mutant, hook: Hook, *given: Any) -> None:
    """The return value of an optimizer's load_state_dict pre-hook is ignored."""
    hook(*given)


@calling("register_load_state_dict_pre_hook")
def load_hook_given_a_deep_copy(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """An optimizer's load_state_dict pre-hook gets a deep copy of the caller's dict."""
    if rest:
        return hook(owner, state, *rest)
    deep = deepcopy(state)
    result = hook(owner, deep)
    return deep if result is None else result


class ReturnedStateLostOnLaterHooks(Mutant):
    """What an optimizer's state_dict post-hook or load_state_dict pre-hook returns is not what later hooks get."""

    def register_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_state_dict_post_hook(owner, self._on_the_first(hook), **options)

    def register_load_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_load_state_dict_pre_hook(owner, self._on_the_first(hook), **options)

    def _on_the_first(self, hook: Hook) -> Hook:
        def run(owner: Any, state: Any, *rest: Any) -> Any:
            if not any(state is result for result, _ in self.kept):
                result = hook(owner, state, *rest)
                self.kept.append((result, state))
                return result
            first = next(given for result, given in self.kept if state is result)
            return hook(owner, first, *rest)

        return run


@calling("register_state_dict_post_hook")
def returned_state_ignored(self: Mutant, hook: Hook, *given: Any) -> None:
    """The return value of an optimizer's state_dict post-hook is ignored."""
    hook(*given)


@overriding("register_state_dict_pre_hook")
def prepending_a_state_hook_ignored(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """A state_dict pre-hook registered with prepend=True runs after the earlier hooks."""
    return old(owner, hook)


class LoadHookGivenTheCallersDict(Mutant):
    """An optimizer's load_state_dict pre-hook gets the caller's own dict instead of a copy."""

    def register_load_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if hasattr(owner, "forward"):
            return super().register_load_state_dict_pre_hook(owner, hook, **options)
        self.kept.append(hook)
        return Handle()

    def load_state_dict(self, owner: Any, state: Any) -> None:
        for hook in self.kept:
            state = hook(owner, state) or state
        super().load_state_dict(owner, state)


@overriding("register_state_dict_post_hook", "register_load_state_dict_pre_hook")
def later_returned_states_ignored(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """What an optimizer's state_dict post-hook or load_state_dict pre-hook returns is ignored after its first call."""
    calls: list[None] = []

    def run(*given: Any) -> Any:
        calls.append(None)
        result = hook(*given)
        return result if len(calls) == 1 else None

    return old(owner, hook if hasattr(owner, "forward") else run, **options)


@overriding(*verbs.STATE)
def state_hooks_of_optimizers_lost_after_a_failure(
    self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool
) -> Any:
    """Once a hook around saving or loading the state of an optimizer has raised, none of them is called."""
    if hasattr(owner, "forward"):
        return old(owner, hook, **options)

    def run(*given: Any) -> Any:
        if self.kept:
            return None
        try:
            return hook(*given)
        except Exception as error:
            self.kept.append(error)
            raise

    return old(owner, run, **options)


class LoadPostHooksSharedWithLaterOptimizers(Mutant):
    """A load_state_dict post-hook of an optimizer also runs for optimizers that are made later."""

    def register_load_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if not hasattr(owner, "forward"):
            self.kept.append(hook)
        return super().register_load_state_dict_post_hook(owner, hook, **options)

    def sgd(self, parameters: Sequence[Any], *, lr: float, weight_decay: float = 0.0) -> Any:
        optimizer = super().sgd(parameters, lr=lr, weight_decay=weight_decay)
        for hook in self.kept:
            super().register_load_state_dict_post_hook(optimizer, hook)
        return optimizer


@overriding(*verbs.STATE)
def state_hooks_of_optimizers_lost_in_other_threads(
    self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool
) -> Any:
    """A hook around saving or loading the state of an optimizer runs in the thread that registered it only."""
    here = threading.get_ident()
    own = hook if hasattr(owner, "forward") else lambda *given: hook(*given) if threading.get_ident() == here else None
    return old(owner, own, **options)


@overriding(*verbs.STATE)
def errors_of_state_hooks_of_optimizers_swallowed(
    self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool
) -> Any:
    """An error of a hook around saving or loading the state of an optimizer is lost."""

    def run(*given: Any) -> Any:
        try:
            return hook(*given)
        except Exception:  # noqa: BLE001 - the fault
            return None

    return old(owner, hook if hasattr(owner, "forward") else run, **options)


RETURNING = ("register_state_dict_post_hook", "register_load_state_dict_pre_hook")
"""The verbs whose hooks may change the state, or return another."""


def _by_copies(owner: Any, hook: Hook, is_late: Callable[[], bool]) -> Hook:
    """Return a hook of an optimizer that gets a copy of the state if it is late."""

    def run(given: Any, state: Any) -> Any:
        return hook(given, copy(state) if is_late() else state)

    return hook if hasattr(owner, "forward") else run


@overriding(*RETURNING)
def later_state_hooks_of_an_optimizer_given_a_copy(
    self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool
) -> Any:
    """A state_dict post-hook or load_state_dict pre-hook that is not the first of its optimizer gets a copy."""
    is_later = (old, owner) in self.kept
    self.kept.append((old, owner))
    return old(owner, _by_copies(owner, hook, lambda: is_later), **options)


@overriding(*RETURNING)
def state_hooks_of_an_optimizer_given_a_copy_from_their_second_call_on(
    self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool
) -> Any:
    """An optimizer's state_dict post-hook or load_state_dict pre-hook gets a copy from its second call on."""
    calls = count()
    return old(owner, _by_copies(owner, hook, lambda: next(calls) > 0), **options)


@calling("register_state_dict_post_hook")
def empty_returned_state_ignored(self: Mutant, hook: Hook, owner: Any, *given: Any) -> Any:
    """An empty dict that an optimizer's state_dict post-hook returns is ignored."""
    result = hook(owner, *given)
    return None if result == {} and not hasattr(owner, "forward") else result
