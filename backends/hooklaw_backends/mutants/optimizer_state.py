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
