"""Mutants of the hooks around an optimizer's steps and state."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, calling, fresh, overriding
from hooklaw_backends.mutants.shared import Handle, move_to_front, without_result


class StepHooksChangePlaces(Mutant):
    """Step pre-hooks run after the step, and step post-hooks before it."""

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_post_hook(optimizer, hook)

    def register_step_post_hook(self, optimizer: Any, hook: Hook) -> Any:
        return super().register_step_pre_hook(optimizer, hook)


class StepHooksLostOnceTheStateIsLoaded(Mutant):
    """load_state_dict removes the step hooks of an optimizer."""

    handles = fresh(list[tuple[Any, Any]])

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        return self._noted(optimizer, super().register_step_pre_hook(optimizer, hook))

    def register_step_post_hook(self, optimizer: Any, hook: Hook) -> Any:
        return self._noted(optimizer, super().register_step_post_hook(optimizer, hook))

    def _noted(self, optimizer: Any, handle: Any) -> Any:
        self.handles.append((optimizer, handle))
        return handle

    def load_state_dict(self, owner: Any, state: Any) -> None:
        super().load_state_dict(owner, state)
        for of, handle in self.handles:
            if of is owner:
                handle.remove()


@calling(*verbs.STEP_PRE)
def falsy_return_of_a_step_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """What a step pre-hook returns is ignored if it is zero or empty."""
    return hook(*given) or None


@calling(*verbs.STEP_PRE)
def any_tuple_of_a_step_hook_accepted(self: Mutant, hook: Hook, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """A step pre-hook may return a tuple of any length."""
    result = hook(optimizer, args, kwargs)
    return (args, kwargs) if isinstance(result, tuple) and len(result) != len((args, kwargs)) else result


@calling(*verbs.STEP_PRE)
def list_of_a_step_hook_accepted(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A step pre-hook may return a list instead of a tuple."""
    result = hook(*given)
    return tuple(result) if isinstance(result, list) else result


@calling(*verbs.STEP_PRE)
def dict_of_a_step_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """A dict that a step pre-hook returns is ignored."""
    result = hook(*given)
    return None if isinstance(result, dict) else result


@calling("register_optimizer_step_pre_hook")
def wrong_return_of_a_global_step_hook_ignored(self: Mutant, hook: Hook, *given: Any) -> Any:
    """What a global step pre-hook returns is ignored if it is not a tuple."""
    result = hook(*given)
    return result if isinstance(result, tuple) else None


@calling(*verbs.STEP_PRE)
def step_pre_hook_replaces_keywords_alone(self: Mutant, hook: Hook, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Of the arguments that a step pre-hook returns only the keyword arguments count."""
    result = hook(optimizer, args, kwargs)
    return (args, result[1]) if isinstance(result, tuple) else result


@overriding("register_step_pre_hook")
def step_hooks_in_reverse(self: Mutant, old: Hook, optimizer: Any, hook: Hook) -> Any:
    """Step pre-hooks run in reverse order of registration."""
    handle = old(optimizer, hook)
    move_to_front(self.step_pre_hooks_of(optimizer), handle.id)
    return handle


@overriding("register_step_post_hook")
def step_post_hooks_in_reverse(self: Mutant, old: Hook, optimizer: Any, hook: Hook) -> Any:
    """Step post-hooks run in reverse order of registration."""
    if not self.kept:
        old(optimizer, lambda *given: [kept(*given) for kept in reversed(self.kept)])
    self.kept.append(hook)
    return Handle(lambda: self.kept.remove(hook))


@calling(*verbs.STEP_PRE)
def step_pre_hook_gets_no_arguments(self: Mutant, hook: Hook, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """A step pre-hook gets empty args and kwargs."""
    return hook(optimizer, (), {})


@calling(*verbs.STEP_POST)
def step_post_hook_gets_no_arguments(self: Mutant, hook: Hook, optimizer: Any, args: Any, kwargs: Any) -> None:
    """A step post-hook gets None for args and kwargs."""
    hook(optimizer, None, None)


@calling(*verbs.STEP_PRE, *verbs.STEP_POST)
def step_hooks_skipped_without_gradients(self: Mutant, hook: Hook, optimizer: Any, *given: Any) -> Any:
    """A step hook does not run if no parameter has a gradient."""
    return hook(optimizer, *given) if any(self.grad_of(each) is not None for each in _parameters(optimizer)) else None


@calling(*verbs.STEP_PRE)
def step_takes_the_gradients_before_its_pre_hooks(self: Mutant, hook: Hook, optimizer: Any, *given: Any) -> Any:
    """A step uses the gradients from before its pre-hooks."""
    before = [(each, self.grad_of(each)) for each in _parameters(optimizer)]
    kept = [(each, grad if grad is None else self.clone(grad)) for each, grad in before]
    result = hook(optimizer, *given)
    for each, grad in kept:
        self.set_grad(each, grad)
    return result


def _parameters(optimizer: Any) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


@calling("register_step_pre_hook")
def none_of_a_step_hook_drops_the_arguments(self: Mutant, hook: Hook, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """If a step pre-hook returns None, the step gets no keyword arguments."""
    result = hook(optimizer, args, kwargs)
    return (args, {}) if result is None else result


class _InStep(Mutant):
    """A mutant that knows the arguments of the running step."""

    arguments: Mapping[str, Any] = MappingProxyType({})

    def step(self, optimizer: Any, **arguments: Any) -> None:
        self.arguments = arguments
        super().step(optimizer, **arguments)


@calling(*verbs.STEP_PRE, base=_InStep)
def none_of_a_step_hook_restores_the_arguments(
    self: _InStep, hook: Hook, optimizer: Any, args: Any, kwargs: Any
) -> Any:
    """If a step pre-hook returns None, the step gets the caller's arguments, not those of an earlier hook."""
    result = hook(optimizer, args, kwargs)
    return (args[:1], self.arguments) if result is None else result


@calling("register_step_pre_hook", base=_InStep)
def step_pre_hooks_get_the_arguments_of_the_caller(
    self: _InStep, hook: Hook, optimizer: Any, args: Any, _kwargs: Any
) -> Any:
    """A step pre-hook gets the caller's arguments, whatever earlier ones returned."""
    return hook(optimizer, args[:1], dict(self.arguments))


class OwnStepPreHooksGetNoneOfTheGlobalArguments(_InStep):
    """A step pre-hook of an optimizer does not get what one on all optimizers returned, but the caller's arguments."""

    def register_optimizer_step_pre_hook(self, hook: Hook) -> Any:
        def run(*given: Any) -> Any:
            result = hook(*given)
            self.kept += result[1:] if isinstance(result, tuple) else ()
            return result

        return super().register_optimizer_step_pre_hook(run)

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        def run(optimizer: Any, args: Any, kwargs: Any) -> Any:
            is_global = self.keeps(kwargs)
            return hook(optimizer, *((args[:1], dict(self.arguments)) if is_global else (args, kwargs)))

        return super().register_step_pre_hook(optimizer, run)


class GlobalArgumentsOfAStepForEarlierOptimizers(Mutant):
    """What a global step pre-hook returns is ignored for optimizers that are made after it was registered."""

    def sgd(self, *given: Any, **options: Any) -> Any:
        self.kept.append(super().sgd(*given, **options))
        return self.kept[-1]

    def register_optimizer_step_pre_hook(self, hook: Hook) -> Any:
        made = [*self.kept]

        def run(optimizer: Any, *given: Any) -> Any:
            result = hook(optimizer, *given)
            return result if any(optimizer is each for each in made) else None

        return super().register_optimizer_step_pre_hook(run)


class HandlesOfGlobalStepHooksRemoveOwnOnes(Mutant):
    """The handle of a step hook on all optimizers also removes the hook of an optimizer that has the same number."""

    own = fresh(list[Any])
    of_all = fresh(list[Any])

    def register_step_pre_hook(self, optimizer: Any, hook: Hook) -> Any:
        return self._of_an_optimizer(super().register_step_pre_hook(optimizer, hook))

    def register_step_post_hook(self, optimizer: Any, hook: Hook) -> Any:
        return self._of_an_optimizer(super().register_step_post_hook(optimizer, hook))

    def register_optimizer_step_pre_hook(self, hook: Hook) -> Any:
        return self._of_all_optimizers(super().register_optimizer_step_pre_hook(hook))

    def register_optimizer_step_post_hook(self, hook: Hook) -> Any:
        return self._of_all_optimizers(super().register_optimizer_step_post_hook(hook))

    def _of_an_optimizer(self, handle: Any) -> Any:
        self.own.append(handle)
        return handle

    def _of_all_optimizers(self, handle: Any) -> Handle:
        number = len(self.of_all)
        self.of_all.append(handle)
        return Handle(lambda: [each.remove() for each in (handle, *self.own[number : number + 1])])


@overriding("register_optimizer_step_post_hook")
def global_step_post_hook_before_the_step(self: Mutant, old: Hook, hook: Hook) -> Any:
    """A global step post-hook runs before the step."""
    return self.register_optimizer_step_pre_hook(without_result(hook))


class GlobalStepHooksOfEarlierOptimizers(Mutant):
    """A global step hook does not run for optimizers that are made after it was registered."""

    def sgd(self, *given: Any, **options: Any) -> Any:
        self.kept.append(super().sgd(*given, **options))
        return self.kept[-1]

    def _only_for_those_made(self, hook: Hook) -> Hook:
        made = [*self.kept]
        return lambda optimizer, *given: hook(optimizer, *given) if any(optimizer is each for each in made) else None

    def register_optimizer_step_pre_hook(self, hook: Hook) -> Any:
        return super().register_optimizer_step_pre_hook(self._only_for_those_made(hook))

    def register_optimizer_step_post_hook(self, hook: Hook) -> Any:
        return super().register_optimizer_step_post_hook(self._only_for_those_made(hook))


@overriding("step")
def step_takes_none_for_zero(self: Mutant, old: Hook, optimizer: Any, **arguments: Any) -> None:
    """A step treats a .grad of None as zeros."""
    for param in (param for group in optimizer.param_groups for param in group["params"]):
        if self.grad_of(param) is None:
            self.set_grad(param, self.mapped(param, lambda _: 0.0))
    old(optimizer, **arguments)


class StepTakesNoneForTheLastGradient(Mutant):
    """A step treats a .grad of None as the gradient of the step before."""

    def step(self, optimizer: Any, **arguments: Any) -> None:
        for param in _parameters(optimizer):
            grad = self.grad_of(param)
            if grad is not None:
                self.kept = [(param, self.clone(grad)), *self.kept]
            else:
                self.set_grad(param, next((before for of, before in self.kept if of is param), None))
        super().step(optimizer, **arguments)


@overriding("step")
def step_needs_every_gradient(self: Mutant, old: Hook, optimizer: Any, **arguments: Any) -> None:
    """A step changes no parameter if the gradient of any is None."""
    if all(self.grad_of(param) is not None for group in optimizer.param_groups for param in group["params"]):
        old(optimizer, **arguments)


class BackwardWritesZerosForTheRest(Mutant):
    """After zero_grad, backward gives zeros to each parameter of the optimizer that it does not reach."""

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        super().zero_grad(optimizer, **options)
        self.kept += [param for group in optimizer.param_groups for param in group["params"]]

    def backward(self, *given: Any, **options: Any) -> None:
        super().backward(*given, **options)
        for param in self.kept:
            if self.grad_of(param) is None:
                self.set_grad(param, self.zeros_like(param))


def _change_with_grad_mode_on(mutant: Mutant, optimizer: Any) -> None:
    with mutant.enable_grad():
        for param in (param for group in optimizer.param_groups for param in group["params"]):
            mutant.mul_(param, 1)


@overriding("step")
def step_is_recorded(self: Mutant, old: Hook, optimizer: Any, **arguments: Any) -> None:
    """A step changes the parameters in place with grad mode on, which no leaf allows."""
    _change_with_grad_mode_on(self, optimizer)
    old(optimizer, **arguments)


@overriding("step")
def step_with_a_closure_is_recorded(self: Mutant, old: Hook, optimizer: Any, **arguments: Any) -> None:
    """A step with a closure changes the parameters in place with grad mode on, which no leaf allows."""
    if arguments.get("closure"):
        _change_with_grad_mode_on(self, optimizer)
    old(optimizer, **arguments)


class ZeroGradLaysGradientsOutAnew(Mutant):
    """zero_grad(set_to_none=False) makes new, contiguous gradients of zeros."""

    def sgd(self, parameters: Sequence[Any], **how: float) -> Any:
        self.kept = list(parameters)
        return super().sgd(parameters, **how)

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        super().zero_grad(optimizer, **options)
        for parameter in self.kept:
            grad = self.grad_of(parameter)
            if grad is not None:
                self.set_grad(parameter, self.tensor(self.tolist(grad), dtype=self.dtype(grad)))


class ZeroGradLaysLaterGradientsOutAnew(ZeroGradLaysGradientsOutAnew):
    """zero_grad(set_to_none=False) makes new, contiguous gradients of zeros for all parameters but the first."""

    def sgd(self, parameters: Sequence[Any], **how: float) -> Any:
        made = super().sgd(parameters, **how)
        del self.kept[:1]
        return made


class ZeroGradLaysGradientsOutAnewInLaterCalls(ZeroGradLaysGradientsOutAnew):
    """zero_grad(set_to_none=False) makes new, contiguous gradients of zeros in its second call and later ones."""

    def sgd(self, parameters: Sequence[Any], **how: float) -> Any:
        made = super().sgd(parameters, **how)
        self.later, self.kept = self.kept, []
        return made

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        super().zero_grad(optimizer, **options)
        self.kept = self.later


@calling(*verbs.STEP_POST)
def step_post_hook_gets_keywords_alone(self: Mutant, hook: Hook, optimizer: Any, args: Any, kwargs: Any) -> None:
    """A step post-hook gets the keyword arguments of the step, and none that it got by position."""
    hook(optimizer, args[:1], kwargs)


@calling(*verbs.STEP_POST, base=_InStep)
def step_post_hooks_get_the_arguments_of_the_caller(
    self: _InStep, hook: Hook, optimizer: Any, args: Any, _kwargs: Any
) -> None:
    """A step post-hook gets the caller's arguments, whatever pre-hooks returned."""
    hook(optimizer, args[:1], dict(self.arguments))


class _LateGlobalPreHooks(Mutant):
    """A mutant some of whose global step pre-hooks run after those of the optimizer."""

    steps = fresh(list[Any])
    """The optimizer of each step."""

    def is_late(self, optimizer: Any, hook: Hook) -> bool:
        raise NotImplementedError

    def register_optimizer_step_pre_hook(self, hook: Hook) -> Any:
        def early(optimizer: Any, *given: Any) -> Any:
            return None if self.is_late(optimizer, early) else hook(optimizer, *given)

        def late(optimizer: Any, *given: Any) -> Any:
            return hook(optimizer, *given) if self.is_late(optimizer, early) else None

        handle, both = super().register_optimizer_step_pre_hook(early), (early, late)
        self.kept.append(both)
        return Handle(lambda: (handle.remove(), self.kept.remove(both)))

    def step(self, optimizer: Any, **arguments: Any) -> None:
        self.steps.append(optimizer)
        register = super().register_step_pre_hook
        handles = [register(optimizer, late) for _, late in self.kept]
        try:
            super().step(optimizer, **arguments)
        finally:
            for handle in handles:
                handle.remove()


class GlobalStepPreHooksAfterOthersInLaterSteps(_LateGlobalPreHooks):
    """From the second step of an optimizer on, global step pre-hooks run after its own."""

    def is_late(self, optimizer: Any, hook: Hook) -> bool:
        return sum(each is optimizer for each in self.steps) > 1


class LaterGlobalStepPreHooksAfterOthers(_LateGlobalPreHooks):
    """Of several global step pre-hooks only the first runs before those of the optimizer."""

    def is_late(self, optimizer: Any, hook: Hook) -> bool:
        return hook is not self.kept[0][0]


class OwnStepPostHooksLastInLaterSteps(Mutant):
    """From the second step of an optimizer on, its step post-hooks run after global ones."""

    def register_step_post_hook(self, optimizer: Any, hook: Hook) -> Any:
        calls: list[None] = []

        def run(*given: Any) -> None:
            calls.append(None)
            if len(calls) == 1:
                hook(*given)
            else:
                self.kept.append(lambda: hook(*given))

        return super().register_step_post_hook(optimizer, run)

    def step(self, optimizer: Any, **arguments: Any) -> None:
        super().step(optimizer, **arguments)
        while self.kept:
            self.kept.pop(0)()


def _run_tensor_hooks(mutant: Mutant, optimizer: Any) -> None:
    """Run the tensor hooks of each parameter that has a gradient on zeros."""
    for param in (param for group in optimizer.param_groups for param in group["params"]):
        if mutant.grad_of(param) is not None:
            for hook in list((mutant.hooks_of(param) or {}).values()):
                hook(mutant.zeros_like(param))


@overriding("zero_grad")
def zero_grad_runs_tensor_hooks(self: Mutant, old: Hook, optimizer: Any, **options: bool) -> None:
    """zero_grad runs the tensor hooks of each parameter whose gradient it resets."""
    _run_tensor_hooks(self, optimizer)
    old(optimizer, **options)


@overriding("zero_grad")
def zero_grad_that_sets_to_none_runs_tensor_hooks(self: Mutant, old: Hook, optimizer: Any, **options: bool) -> None:
    """zero_grad runs the tensor hooks of each parameter whose gradient it sets to None."""
    if options.get("set_to_none", True):
        _run_tensor_hooks(self, optimizer)
    old(optimizer, **options)


@calling(*verbs.STEP_PRE)
def first_gradients_that_a_step_hook_sets_unused(self: Mutant, hook: Hook, optimizer: Any, *given: Any) -> Any:
    """A step skips a parameter whose .grad was None before its pre-hooks, though one of them has set it."""
    skipped = [each for each in _parameters(optimizer) if self.grad_of(each) is None]
    result = hook(optimizer, *given)
    for each in skipped:
        self.set_grad(each, None)
    return result


@calling(*verbs.STEP_PRE)
def arguments_of_a_step_win_over_those_of_its_hooks(
    self: Mutant, hook: Hook, optimizer: Any, args: Any, kwargs: Any
) -> Any:
    """A keyword argument that a step was given counts, whatever a step pre-hook returns for it."""
    result = hook(optimizer, args, kwargs)
    is_pair = isinstance(result, tuple) and len(result) == len((args, kwargs))
    return (result[0], {**result[1], **kwargs}) if is_pair else result


class BackwardWritesFirstZeros(Mutant):
    """After zero_grad, backward gives zeros to each parameter that it does not reach and that never had a gradient."""

    def zero_grad(self, optimizer: Any, **options: bool) -> None:
        self.kept += [param for param in _parameters(optimizer) if self.grad_of(param) is None]
        super().zero_grad(optimizer, **options)

    def backward(self, *given: Any, **options: Any) -> None:
        super().backward(*given, **options)
        for param in self.kept:
            if self.grad_of(param) is None:
                self.set_grad(param, self.zeros_like(param))


@calling("register_optimizer_step_post_hook", base=_InStep)
def global_step_post_hooks_get_the_arguments_of_the_caller(
    self: _InStep, hook: Hook, optimizer: Any, args: Any, _kwargs: Any
) -> None:
    """A step post-hook on all optimizers gets the caller's arguments, whatever pre-hooks returned."""
    hook(optimizer, args[:1], dict(self.arguments))
