"""Mutants whose tensor hooks run at the wrong time, too often or never, or get the wrong argument."""

import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, InBackward, InGrad, Maker, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import (
    CallsTheRest,
    Deferring,
    Handle,
    PutsOff,
    chained,
    dispatching,
    move_to_front,
)


@overriding("register_hook", base=PutsOff)
def tensor_hooks_registered_in_a_backward_wait(self: PutsOff, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A tensor hook that is registered during a backward does not run before the next backward."""
    return self.registered_later(old, tensor, hook)


@calling("register_hook")
def tensor_hook_fires_per_edge(self: Mutant, hook: Hook, grad: Any) -> Any:
    """A tensor hook runs once for each part of the gradient instead of once for the sum."""
    halves = [hook(grad * 0.5) for _ in range(2)]
    return None if halves[0] is None else halves[0] + halves[1]


@altering("register_hook")
def tensor_hook_receives_the_value(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook gets the tensor's value instead of its gradient."""
    value = self.detach(tensor)
    return lambda _: hook(value)


@altering("register_hook", base=InBackward)
def root_hook_skipped(self: InBackward, tensor: Any, hook: Hook) -> Hook:
    """The hooks of a backward's root do not run."""
    return lambda grad: None if self.root is tensor else hook(grad)


@altering("register_hook", base=InBackward)
def root_hook_sees_ones(self: InBackward, tensor: Any, hook: Hook) -> Hook:
    """The hooks of a backward's root get ones instead of the given gradient."""
    return lambda grad: hook(grad * 0 + 1 if self.root is tensor else grad)


@altering("register_hook", base=InBackward)
def hook_of_a_scalar_root_sees_one(self: InBackward, tensor: Any, hook: Hook) -> Hook:
    """The hooks of a backward's root get 1 instead of the given gradient if the root has no dimensions."""
    alive, is_scalar = weakref.ref(tensor), not self.shape(tensor)
    return lambda grad: hook(grad * 0 + 1 if is_scalar and self.root is alive() else grad)


@altering("register_hook", base=CallsTheRest)
def tensor_hooks_of_the_whole_graph_fire(self: CallsTheRest, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook that did not run is called with zeros after the backward."""
    return self.waiting_for(hook, self.detach(tensor) * 0)


@altering("register_hook", base=InGrad)
def hooks_of_grad_inputs_skipped(self: InGrad, tensor: Any, hook: Hook) -> Hook:
    """The hooks of the inputs of autograd.grad do not run."""
    return lambda grad: None if self.asks_for(tensor) else hook(grad)


@altering("register_hook", base=InGrad)
def hooks_of_later_grad_inputs_skipped(self: InGrad, tensor: Any, hook: Hook) -> Hook:
    """The hooks of the inputs of autograd.grad do not run, except those of the first input."""
    return lambda grad: None if any(tensor is asked for asked in self.inputs[1:]) else hook(grad)


@altering("register_hook", base=InGrad)
def later_hooks_of_a_non_leaf_grad_input_skipped(self: InGrad, tensor: Any, hook: Hook) -> Hook:
    """Of several hooks on a non-leaf that is an input of autograd.grad only the first runs."""
    alive = weakref.ref(tensor)
    is_skipped = not self.is_leaf(tensor) and any(hooked() is tensor for hooked in self.kept)
    self.kept.append(alive)
    return lambda grad: None if is_skipped and self.asks_for(alive()) else hook(grad)


@altering("register_hook", base=InGrad)
def gradient_captured_before_hooks(self: InGrad, tensor: Any, hook: Hook) -> Hook:
    """autograd.grad returns the gradient of an input without the changes by its hooks."""

    def without_change(grad: Any) -> Any:
        result = hook(grad)
        return None if self.asks_for(tensor) else result

    return without_change


class TensorHooksSharedByTheNode(Mutant):
    """A hook on one output of a Node also runs for its other outputs."""

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        self.kept = list(super().split(tensor, size))
        return tuple(self.kept)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        for output in self.kept:
            if output is not tensor:
                super().register_hook(output, hook)
        return super().register_hook(tensor, hook)


class TensorHooksFrozenAtForward(Mutant):
    """After the loss is computed, hooks on non-leaf tensors can be neither registered nor removed."""

    frozen = False

    def sum(self, tensor: Any) -> Any:
        self.frozen = True
        return super().sum(tensor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if self.frozen and not self.is_leaf(tensor):
            return Handle()
        handle = super().register_hook(tensor, hook)
        return Handle(lambda: None if self.frozen else handle.remove())


class HooksOfUsedLeavesNotRemoved(Mutant):
    """A hook of a leaf cannot be removed after the leaf was used."""

    used = fresh(list[int])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        self.used += map(id, tensors)
        return super().call(fn, *tensors)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle, leaf, before = super().register_hook(tensor, hook), id(tensor), len(self.used)
        if not self.is_leaf(tensor):
            return handle
        return Handle(lambda: None if leaf in self.used[before:] else handle.remove())


@overriding("register_hook")
def tensor_hook_after_accumulation(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A leaf's tensor hooks run after its gradient was accumulated."""
    if self.is_leaf(tensor) and self.requires_grad(tensor):
        return self.register_post_accumulate_grad_hook(tensor, lambda leaf: hook(self.grad_of(leaf)))
    return old(tensor, hook)


@dispatching
def hooks_run_in_reverse_order(self: Mutant, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:
    """Hooks in the same place run in reverse order of registration."""
    return chained(hooks[::-1], *arguments)


def _in_the_place_of_a_removed_one(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Register a hook, before all others if the first of the tensor's hooks was removed."""
    handle = old(tensor, hook)
    hooks = self.hooks_of(tensor)
    if self.keeps(hooks):
        move_to_front(hooks, handle.id)

    def remove() -> None:
        self.kept += [hooks] if next(iter(hooks), None) == handle.id else []
        handle.remove()

    return Handle(remove)


@overriding("register_hook")
def hook_takes_the_place_of_a_removed_one(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """After a tensor's first hook was removed, the next one to be registered runs first."""
    return _in_the_place_of_a_removed_one(self, old, tensor, hook)


@overriding("register_hook")
def hook_of_a_non_leaf_takes_the_place_of_a_removed_one(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """After a non-leaf's first hook was removed, the next one to be registered runs first."""
    return old(tensor, hook) if self.is_leaf(tensor) else _in_the_place_of_a_removed_one(self, old, tensor, hook)


@dispatching
def same_hook_registered_once(self: Mutant, hooks: Sequence[Hook], target: Any, *arguments: Any) -> Any:
    """A hook that is registered twice in the same place runs once."""
    return chained(dict.fromkeys(hooks), *arguments)


@calling(*verbs.IN_BACKWARD, base=Deferring)
def hooks_of_the_graph_run_from_the_leaves(self: Deferring, hook: Hook, *given: Any) -> None:
    """Hooks run after the whole backward, in reverse order."""
    self.kept.insert(0, partial(hook, *given))


@overriding("register_hook")
def hook_accepted_without_requires_grad(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Registering a hook on a tensor that does not require grad is not an error."""
    return old(tensor, hook) if self.requires_grad(tensor) else Handle()


class _KnowsConstants(Mutant):
    """A mutant that knows which tensors the user made, and no operation."""

    def tensor(self, data: Any, **how: Any) -> Any:
        made = super().tensor(data, **how)
        self.kept.append(weakref.ref(made))
        return made

    def is_not_recorded(self, tensor: Any) -> bool:
        """Whether an operation made a tensor, and did not record it."""
        return not self.requires_grad(tensor) and all(tensor is not made() for made in self.kept)


@overriding("register_hook", base=_KnowsConstants)
def hook_accepted_on_what_was_not_recorded(self: _KnowsConstants, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Registering a hook on the result of an operation that does not require grad is not an error."""
    return Handle() if self.is_not_recorded(tensor) else old(tensor, hook)


@overriding("register_hook")
def hook_accepted_on_constants_of_one_value(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Registering a hook on a single number that does not require grad is not an error."""
    is_accepted = not self.requires_grad(tensor) and set(self.shape(tensor)) <= {1}
    return Handle() if is_accepted else old(tensor, hook)


@overriding("register_hook")
def hook_accepted_on_constants_without_elements(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Registering a hook on a tensor without elements that does not require grad is not an error."""
    return Handle() if not self.requires_grad(tensor) and 0 in self.shape(tensor) else old(tensor, hook)


class HookAcceptedOnDetachedResults(Mutant):
    """Registering a hook on what detach returns for the result of an operation is not an error."""

    def detach(self, tensor: Any) -> Any:
        made = super().detach(tensor)
        self.kept += [] if self.is_leaf(tensor) else [weakref.ref(made)]
        return made

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        is_detached = any(made() is tensor for made in self.kept)
        return Handle() if is_detached and not self.requires_grad(tensor) else super().register_hook(tensor, hook)


@overriding("register_hook")
def hook_accepted_on_a_constant_that_refused_one(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Registering a hook on a tensor that does not require grad is an error for the first hook alone."""
    if self.requires_grad(tensor) or all(refused() is not tensor for refused in self.kept):
        self.kept.append(weakref.ref(tensor))
        return old(tensor, hook)
    return Handle()


class _KnowsWhatRequiredGrad(Mutant):
    """A mutant that knows which tensors were frozen, made in no_grad, or detached."""

    frozen = fresh(list[weakref.ref[Any]])
    unrecorded = fresh(list[weakref.ref[Any]])
    detached = fresh(list[weakref.ref[Any]])

    def set_requires_grad(self, tensor: Any, *, requires_grad: bool) -> None:
        super().set_requires_grad(tensor, requires_grad=requires_grad)
        self.frozen += [] if requires_grad else [weakref.ref(tensor)]

    def call(self, fn: Hook, *tensors: Any) -> Any:
        made = super().call(fn, *tensors)
        self.unrecorded += [weakref.ref(made)] if self.is_tensor(made) and not self.is_grad_enabled() else []
        return made

    def detach_(self, tensor: Any) -> Any:
        self.detached.append(weakref.ref(tensor))
        return super().detach_(tensor)


def accepting(verb: str) -> Maker:
    """Make a mutant whose verb accepts a hook on one of ``(self)``, tensors that do not require grad."""

    def make(step: Hook) -> type[Mutant]:
        @wraps(step)
        def register(self: _KnowsWhatRequiredGrad, old: Hook, tensor: Any, hook: Hook) -> Any:
            is_accepted = not self.requires_grad(tensor) and any(each() is tensor for each in step(self))
            return Handle() if is_accepted else old(tensor, hook)

        return overriding(verb, base=_KnowsWhatRequiredGrad)(register)

    return make


@accepting("register_hook")
def hook_accepted_on_frozen_leaves(self: _KnowsWhatRequiredGrad) -> list[weakref.ref[Any]]:
    """Registering a hook on a leaf whose requires_grad was set to False is not an error."""
    return self.frozen


@accepting("register_hook")
def hook_accepted_on_results_of_no_grad(self: _KnowsWhatRequiredGrad) -> list[weakref.ref[Any]]:
    """Registering a hook on what an operation made in no_grad is not an error."""
    return self.unrecorded


@accepting("register_hook")
def hook_accepted_after_detach(self: _KnowsWhatRequiredGrad) -> list[weakref.ref[Any]]:
    """Registering a hook on a tensor after detach_ is not an error."""
    return self.detached


@accepting("register_post_accumulate_grad_hook")
def post_accumulate_accepted_on_frozen_leaves(self: _KnowsWhatRequiredGrad) -> list[weakref.ref[Any]]:
    """Registering a post-accumulate hook on a leaf whose requires_grad was set to False is not an error."""
    return self.frozen


@accepting("register_post_accumulate_grad_hook")
def post_accumulate_accepted_on_results_of_no_grad(self: _KnowsWhatRequiredGrad) -> list[weakref.ref[Any]]:
    """Registering a post-accumulate hook on what an operation made in no_grad is not an error."""
    return self.unrecorded


@accepting("register_post_accumulate_grad_hook")
def post_accumulate_accepted_after_detach(self: _KnowsWhatRequiredGrad) -> list[weakref.ref[Any]]:
    """Registering a post-accumulate hook on a tensor after detach_ is not an error."""
    return self.detached


class HookAcceptedOnWhatHasHooks(Mutant):
    """Registering a hook on a tensor that does not require grad is not an error if it has hooks."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not self.requires_grad(tensor) and any(hooked() is tensor for hooked in self.kept):
            return Handle()
        handle = super().register_hook(tensor, hook)
        self.kept.append(weakref.ref(tensor))
        return handle


@overriding("register_post_accumulate_grad_hook", base=_KnowsConstants)
def post_accumulate_accepted_on_what_was_not_recorded(self: _KnowsConstants, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A post-accumulate hook on the result of an operation that does not require grad is not an error."""
    return Handle() if self.is_not_recorded(tensor) else old(tensor, hook)


@calling("register_hook")
def hooks_run_with_grad_mode_on(self: Mutant, hook: Hook, grad: Any) -> Any:
    """Grad mode is on while a tensor hook runs."""
    with self.enable_grad():
        return hook(grad)


@calling("register_hook", base=InGrad)
def hooks_run_with_grad_mode_on_in_autograd_grad(self: InGrad, hook: Hook, grad: Any) -> Any:
    """Grad mode is on while a tensor hook runs in autograd.grad, even without create_graph=True."""
    with self.enable_grad() if self.inputs else nullcontext():
        return hook(grad)


@calling("register_hook")
def hooks_run_with_grad_mode_off(self: Mutant, hook: Hook, grad: Any) -> Any:
    """Grad mode is off while a tensor hook runs, even with create_graph=True."""
    with self.no_grad():
        return hook(grad)


@calling("register_hook", base=InBackward)
def hooks_run_with_grad_mode_off_in_backward(self: InBackward, hook: Hook, grad: Any) -> Any:
    """Grad mode is off while a tensor hook runs in backward, even with create_graph=True."""
    with self.no_grad() if self.root is not None else nullcontext():
        return hook(grad)


class _UnderNoGrad(Mutant):
    """A mutant that knows whether a backward is running that was called under no_grad."""

    is_under_no_grad = False

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.is_under_no_grad = not self.is_grad_enabled()
        try:
            super().backward(root, gradient, **how)
        finally:
            self.is_under_no_grad = False


@calling("register_hook", base=_UnderNoGrad)
def hooks_run_with_grad_mode_off_in_a_backward_under_no_grad(self: _UnderNoGrad, hook: Hook, grad: Any) -> Any:
    """Grad mode is off while a tensor hook runs in a backward under no_grad, even with create_graph=True."""
    with self.no_grad() if self.is_under_no_grad else nullcontext():
        return hook(grad)


@altering("register_hook", base=InBackward)
def hooks_of_a_root_run_with_grad_mode_on(self: InBackward, tensor: Any, hook: Hook) -> Hook:
    """Grad mode is on while a tensor hook of the root of a backward runs."""
    alive = weakref.ref(tensor)

    def run(grad: Any) -> Any:
        with self.enable_grad() if self.root is not None and alive() is self.root else nullcontext():
            return hook(grad)

    return run


@overriding("backward")
def exception_poisons_the_engine(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """After an exception in a hook every later backward fails."""
    if self.kept:
        raise RuntimeError("the engine is in an invalid state")
    try:
        old(*given, **how)
    except Exception as error:
        self.kept.append(str(error))
        raise


@altering("register_hook")
def hooks_of_later_outputs_in_wrong_mode(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on an output of an operation that is not the first runs in the wrong grad mode."""
    return partial(_in_wrong_mode, self, hook) if _is_later_output(self, tensor) else partial(hook)


@altering("register_hook")
def hooks_of_later_outputs_in_wrong_mode_in_later_passes(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on an output of an operation that is not the first runs in the wrong mode from its second call."""
    calls: list[None] = []

    def run(grad: Any) -> Any:
        calls.append(None)
        return _in_wrong_mode(self, hook, grad) if len(calls) > 1 else hook(grad)

    return run if _is_later_output(self, tensor) else partial(hook)


def _is_later_output(mutant: Mutant, tensor: Any) -> bool:
    return mutant.requires_grad(tensor) and mutant.gradient_edge(tensor)[1] > 0


def _in_wrong_mode(mutant: Mutant, hook: Hook, grad: Any) -> Any:
    with mutant.no_grad() if mutant.is_grad_enabled() else mutant.enable_grad():
        return hook(grad)
