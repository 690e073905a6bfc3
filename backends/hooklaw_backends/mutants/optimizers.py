"""Mutants of the hooks around an optimizer's steps and state."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding
from hooklaw_backends.mutants.shared import Handle, move_to_front


class StepHooksChangePlaces(Mutant):
    """Step pre-hooks run after the step, and step post-hooks before it."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_post_hook(optimizer, hook)

    def register_step_post_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_pre_hook(optimizer, hook)


@calling("register_step_pre_hook")
def return_of_a_step_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> None:
    """The return value of a step pre-hook is ignored."""
    hook(*given)


@overriding("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook")
def global_step_hooks_never_run(*_: Any) -> Any:
    """Step hooks registered for all optimizers never run."""
    return Handle()


@overriding("register_step_pre_hook")
def step_hook_stays(self: Mutant, old: Hook, optimizer: Any, hook: Hook) -> Any:
    """The handle of a step pre-hook does not remove the hook."""
    old(optimizer, hook)
    return Handle()


@overriding("register_step_pre_hook")
def step_hooks_in_reverse(self: Mutant, old: Hook, optimizer: Any, hook: Hook) -> Any:
    """Step pre-hooks run in reverse order of registration."""
    handle = old(optimizer, hook)
    move_to_front(self.step_pre_hooks_of(optimizer), handle.id)
    return handle


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


@overriding("zero_grad")
def zero_grad_writes_zeros(self: Mutant, old: Hook, optimizer: Any, **options: bool) -> None:
    """zero_grad writes zeros by default instead of setting .grad to None."""
    old(optimizer, **{"set_to_none": False, **options})


@overriding("step")
def step_takes_none_for_zero(self: Mutant, old: Hook, optimizer: Any) -> None:
    """A step treats a .grad of None as zeros."""
    for param in (param for group in optimizer.param_groups for param in group["params"]):
        if self.grad_of(param) is None:
            self.set_grad(param, self.mapped(param, lambda _: 0.0))
    old(optimizer)
