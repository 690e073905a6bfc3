"""Mutants of the hooks around the steps and the state of optimizers."""

from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, Mutant, move_to_front


class StepHooksChangePlaces(Mutant):
    """A hook before the step runs after it, and the reverse."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_post_hook(optimizer, hook)

    def register_step_post_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_pre_hook(optimizer, hook)


class ReturnOfAStepHookIgnored(Mutant):
    """What a hook before the step returns is dropped."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_pre_hook(optimizer, lambda *given: (hook(*given), None)[1])


class GlobalStepHooksNeverRun(Mutant):
    """A hook on the steps of all optimizers is taken, and never called."""

    def register_optimizer_step_pre_hook(self, hook: Hook) -> Any:  # noqa: ARG002 - it is not called
        return Handle()

    def register_optimizer_step_post_hook(self, hook: Hook) -> Any:  # noqa: ARG002 - idem
        return Handle()


class StepHookStays(Mutant):
    """The handle of a hook before the step removes nothing."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        super().register_step_pre_hook(optimizer, hook)
        return Handle()


class StepHooksInReverse(Mutant):
    """Hooks before the step run from the last registered to the first."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        handle = super().register_step_pre_hook(optimizer, hook)
        move_to_front(self.step_pre_hooks_of(optimizer), handle.id)
        return handle


class ReturnedStateIgnored(Mutant):
    """A dict that a hook on an optimizer's state returns is dropped."""

    def register_state_dict_post_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:
        return super().register_state_dict_post_hook(owner, lambda *given: (hook(*given), None)[1], **options)


class PrependingAStateHookIgnored(Mutant):
    """A hook on an optimizer's state that is prepended runs after those that are there."""

    def register_state_dict_pre_hook(self, owner: Any, hook: Hook, **options: bool) -> Any:  # noqa: ARG002 - that is the vice
        return super().register_state_dict_pre_hook(owner, hook)


class LoadHookGivenTheCallersDict(Mutant):
    """A hook before an optimizer's state is loaded is given the very dict of the caller."""

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
    """zero_grad writes zeros unless told otherwise."""

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        super().zero_grad(optimizer, **{"set_to_none": False, **options})


class StepTakesNoneForZero(Mutant):
    """A step takes a gradient that is None for zero."""

    def step(self, optimizer: Any) -> None:
        for one in (one for group in optimizer.param_groups for one in group["params"]):
            if self.grad_of(one) is None:
                self.set_grad(one, self.mapped(one, lambda _: 0.0))
        super().step(optimizer)
