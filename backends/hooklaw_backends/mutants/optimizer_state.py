"""Mutants of the hooks around saving and loading the state of an optimizer."""

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding
from hooklaw_backends.mutants.shared import Handle, without_result


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


@overriding(*verbs.STATE)
def handle_of_a_prepended_state_hook_removes_the_first(
    self: Mutant, old: Hook, owner: Any, hook: Hook, *, prepend: bool = False
) -> Any:
    """The handle of a state hook registered with prepend=True removes the first of those that were so registered."""
    if not prepend:
        return old(owner, hook)
    handles = next((handles for verb, of, handles in self.kept if verb == old and of is owner), None)
    if handles is None:
        self.kept.append((old, owner, handles := []))
    handles.insert(0, old(owner, hook, prepend=True))
    return Handle(lambda: handles.pop(0).remove() if handles else None)


@overriding(*verbs.STATE)
def handle_of_a_prepended_state_hook_removes_nothing(
    _self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool
) -> Any:
    """The handle of a state hook registered with prepend=True does not remove it."""
    handle = old(owner, hook, **options)
    return Handle() if options.get("prepend") else handle


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


@calling("register_load_state_dict_pre_hook")
def empty_state_of_a_load_pre_hook_ignored(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """An empty dict that an optimizer's load_state_dict pre-hook returns is ignored."""
    return hook(owner, state, *rest) or None


@calling("register_load_state_dict_pre_hook")
def state_of_a_load_pre_hook_merged(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """A dict that an optimizer's load_state_dict pre-hook returns is merged into the given dict."""
    result = hook(owner, state, *rest)
    return result if rest or result is None else {**state, **result}


@calling("register_state_dict_post_hook", "register_load_state_dict_pre_hook")
def new_entries_of_a_returned_state_lost(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """Of a dict that a hook of an optimizer returns, only the entries count that the given dict has."""
    result = hook(owner, state, *rest)
    return result if rest or result is None else {key: result[key] for key in result if key in state}


@calling("register_state_dict_post_hook", "register_load_state_dict_pre_hook")
def only_the_groups_of_a_returned_state_count(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """Of a dict that a hook of an optimizer returns, only the parameter groups count."""
    result = hook(owner, state, *rest)
    return {**result, "state": state["state"]} if not rest and result and "state" in state else result


class LaterOptimizerPreHooksAfterSaving(Mutant):
    """Of the state_dict pre-hooks of an optimizer only the first and those registered with prepend=True run before."""

    def register_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if hasattr(owner, "forward") or options.get("prepend") or not self.keeps(owner):
            self.kept.append(owner)
            return super().register_state_dict_pre_hook(owner, hook, **options)
        return self.register_state_dict_post_hook(owner, without_result(lambda given, _: hook(given)))


@overriding("register_load_state_dict_post_hook")
def prepended_post_hooks_before_loading(self: Mutant, old: Hook, owner: Any, hook: Hook, **options: bool) -> Any:
    """An optimizer's load_state_dict post-hook registered with prepend=True runs before the state is loaded."""
    if hasattr(owner, "forward") or not options.get("prepend"):
        return old(owner, hook, **options)
    return self.register_load_state_dict_pre_hook(owner, without_result(lambda given, _: hook(given)), prepend=True)


@calling("register_state_dict_post_hook", "register_load_state_dict_pre_hook")
def entries_removed_from_a_state_come_back(self: Mutant, hook: Hook, owner: Any, state: Any, *rest: Any) -> Any:
    """An entry that a hook of an optimizer removes from a dict in place stays; only added and changed ones count."""
    if rest:
        return hook(owner, state, *rest)
    given = copy(state)
    result = hook(owner, given)
    state.update(given)
    return result


@overriding("load_state_dict")
def further_entries_of_a_loaded_state_lost(self: Mutant, old: Hook, owner: Any, state: Any) -> None:
    """An optimizer's load_state_dict pre-hooks get only what a state_dict of torch has."""
    is_module = hasattr(owner, "forward")
    old(owner, state if is_module else {key: state[key] for key in state if key in ("state", "param_groups")})
