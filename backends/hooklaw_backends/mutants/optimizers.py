"""Mutants of the hooks around an optimizer's steps and state."""

from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant, move_to_front, without_result


class StepHooksChangePlaces(Mutant):
    """Step pre-hooks run after the step, and step post-hooks before it."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_post_hook(optimizer, hook)

    def register_step_post_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_pre_hook(optimizer, hook)


class ReturnOfAStepHookIgnored(Mutant):
    """The return value of a step pre-hook is ignored."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_pre_hook(optimizer, without_result(hook))


class GlobalStepHooksNeverRun(Mutant):
    """Step hooks registered for all optimizers never run."""

    def register_optimizer_step_pre_hook(self, hook: Hook) -> Any:  # noqa: ARG002 - it is not called
        return Handle()

    def register_optimizer_step_post_hook(self, hook: Hook) -> Any:  # noqa: ARG002 - as above
        return Handle()


class StepHookStays(Mutant):
    """The handle of a step pre-hook does not remove the hook."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        super().register_step_pre_hook(optimizer, hook)
        return Handle()


class StepHooksInReverse(Mutant):
    """Step pre-hooks run in reverse order of registration."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        handle = super().register_step_pre_hook(optimizer, hook)
        move_to_front(self.step_pre_hooks_of(optimizer), handle.id)
        return handle


class ReturnedStateIgnored(Mutant):
    """The return value of an optimizer's state_dict post-hook is ignored."""

    def register_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_state_dict_post_hook(owner, without_result(hook), **options)


class PrependingAStateHookIgnored(Mutant):
    """A state_dict pre-hook registered with prepend=True runs after the earlier hooks."""

    def register_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:  # noqa: ARG002 - that is the vice
        return super().register_state_dict_pre_hook(owner, hook)


class LoadHookGivenTheCallersDict(Mutant):
    """An optimizer's load_state_dict pre-hook gets the caller's own dict instead of a copy."""

    def __init__(self) -> None:
        super().__init__()
        self._hooks: list[Hook] = []

    def register_load_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        if hasattr(owner, "forward"):
            return super().register_load_state_dict_pre_hook(owner, hook, **options)
        self._hooks.append(hook)
        return Handle()

    def load_state_dict(self, owner: Any, state: Any) -> None:
        for hook in self._hooks:
            state = hook(owner, state) or state
        super().load_state_dict(owner, state)


class ZeroGradWritesZeros(Mutant):
    """zero_grad writes zeros by default instead of setting .grad to None."""

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        super().zero_grad(optimizer, **{"set_to_none": False, **options})


class StepTakesNoneForZero(Mutant):
    """A step treats a .grad of None as zeros."""

    def step(self, optimizer: Any) -> None:
        for param in (param for group in optimizer.param_groups for param in group["params"]):
            if self.grad_of(param) is None:
                self.set_grad(param, self.mapped(param, lambda _: 0.0))
        super().step(optimizer)
