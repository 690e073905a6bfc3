"""Mutants whose multi-grad hooks wait for the wrong gradients, get wrong ones, or run at the wrong time."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from hooklaw_backends.mutants.base import Hook, InBackward, InGrad, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import (
    CallsTheRest,
    Deferring,
    Handle,
    handle_of,
    move_to_front,
)


@overriding("register_multi_grad_hook")
def multi_grad_hook_in_mode_any_refuses_constants(
    self: Mutant, old: Hook, tensors: Any, hook: Hook, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode any on a tensor that does not require grad is an error."""
    if mode == "any" and not all(map(self.requires_grad, tensors)):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return old(tensors, hook, mode=mode)


@overriding("register_multi_grad_hook")
def multi_grad_hook_in_mode_any_refuses_later_constants(
    self: Mutant, old: Hook, tensors: Any, hook: Hook, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode any is an error if a tensor that is not the first does not require grad."""
    if mode == "any" and not all(map(self.requires_grad, tensors[1:])):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return old(tensors, hook, mode=mode)


@overriding("register_multi_grad_hook")
def multi_grad_hook_once_a_tensor(self: Mutant, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """A multi-grad hook runs once for each of its tensors."""
    return handle_of([old([each], hook, **how) for each in tensors])


@calling("register_multi_grad_hook")
def multi_grad_hook_waits_for_every_tensor(self: Mutant, hook: Hook, given: Any) -> Any:
    """A multi-grad hook in mode all does not run if one of its tensors gets no gradient."""
    return hook(given) if self.is_tensor(given) or all(grad is not None for grad in given) else None


@altering("register_multi_grad_hook")
def multi_grad_hook_gets_zeros_for_none(self: Mutant, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook in mode all gets zeros instead of None for a tensor without gradient."""

    def filled(given: Any) -> Any:
        if self.is_tensor(given):
            return hook(given)
        both = zip(tensors, given, strict=True)
        return hook([self.detach(tensor) * 0 if grad is None else grad for tensor, grad in both])

    return filled


@overriding("register_multi_grad_hook")
def multi_grad_gradients_from_the_leaves(self: Mutant, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """A multi-grad hook in mode all gets the gradients of leaves first, whatever the order of its tensors."""
    if how.get("mode", "all") != "all":
        return old(tensors, hook, **how)
    places = sorted(range(len(tensors)), key=lambda nr: not self.is_leaf(tensors[nr]))
    return old(tensors, lambda grads: hook([grads[nr] for nr in places]), **how)


@overriding("register_multi_grad_hook")
def multi_grad_hook_any_waits_for_the_last_tensor(
    self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode any gets the gradient of the last tensor in its list, not the first computed."""
    return old(tensors[-1:] if mode == "any" else tensors, hook, mode=mode)


@overriding("register_multi_grad_hook", base=CallsTheRest)
def multi_grad_hook_called_for_nothing(self: CallsTheRest, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """A multi-grad hook whose tensors got no gradient is called with None after the backward."""
    nothing = None if how.get("mode") == "any" else [None] * len(tensors)
    return old(tensors, self.waiting_for(hook, nothing), **how)


@calling("register_multi_grad_hook")
def multi_grad_hook_any_gets_a_list(self: Mutant, hook: Hook, given: Any) -> Any:
    """A multi-grad hook in mode any gets the gradient in a list."""
    return hook([given] if self.is_tensor(given) else given)


@overriding("register_multi_grad_hook")
def multi_grad_mode_unchecked(self: Mutant, old: Hook, *given: Any, mode: str = "all") -> Any:
    """An unknown mode of a multi-grad hook is taken for mode all instead of raising an error."""
    return old(*given, mode="any" if mode == "any" else "all")


@overriding("register_multi_grad_hook")
def multi_grad_mode_empty(self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
    """An empty mode of a multi-grad hook is taken for mode all."""
    return old(tensors, hook, mode=mode or "all")


@overriding("register_multi_grad_hook")
def multi_grad_mode_in_capitals(self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
    """The mode of a multi-grad hook may be written in capitals."""
    return old(tensors, hook, mode=mode.lower())


@overriding("register_multi_grad_hook")
def multi_grad_hook_replaces_the_gradient(
    self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """The return value of a multi-grad hook on a single tensor replaces the gradient."""
    if len(tensors) > 1 or mode not in ("all", "any"):
        return old(tensors, hook, mode=mode)
    return self.register_hook(tensors[0], hook if mode == "any" else lambda grad: hook([grad]))


@overriding("register_multi_grad_hook")
def multi_grad_hook_replaces_the_last_gradient(self: Mutant, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """The return value of a multi-grad hook on several tensors replaces the gradient that completes the call."""
    results: list[Any] = []
    handle = old(tensors, lambda given: results.append(hook(given)), **how)
    for tensor in filter(self.requires_grad, tensors[: len(tensors) if len(tensors) > 1 else 0]):
        self.register_hook(tensor, lambda _: results.pop() if results else None)
    return handle


@overriding("register_multi_grad_hook")
def multi_grad_handle_of_the_first_tensor(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """The handle of a multi-grad hook removes it from the first tensor only."""
    handle = old(*given, **how)
    return getattr(handle, "handles", handle)[0]


@overriding("register_multi_grad_hook")
def multi_grad_handle_of_the_last_tensor(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """The handle of a multi-grad hook removes it from the last tensor only."""
    handle = old(*given, **how)
    return getattr(handle, "handles", handle)[-1]


@calling("register_multi_grad_hook", base=Deferring)
def multi_grad_hook_deferred_to_the_end(self: Deferring, hook: Hook, given: Any) -> None:
    """A multi-grad hook runs only after the whole backward."""
    self.later(hook, given)


@overriding("register_multi_grad_hook")
def multi_grad_hook_before_earlier_tensor_hooks(self: Mutant, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """A multi-grad hook runs before tensor hooks that were registered earlier."""
    handle = old(tensors, hook, **how)
    for tensor, own in zip(filter(self.requires_grad, tensors), getattr(handle, "handles", handle), strict=True):
        move_to_front(self.hooks_of(tensor), own.id)
    return handle


@overriding("register_multi_grad_hook")
def multi_grad_hook_after_the_first_tensor_hook(self: Mutant, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """A multi-grad hook runs right after the first tensor hook, before others that were registered earlier."""
    handle = old(tensors, hook, **how)
    for tensor, own in zip(filter(self.requires_grad, tensors), getattr(handle, "handles", handle), strict=True):
        hooks = self.hooks_of(tensor)
        first = next(iter(hooks))
        move_to_front(hooks, own.id)
        move_to_front(hooks, first)
    return handle


class MultiGradHookAfterLaterHooksOfLeaves(Mutant):
    """A multi-grad hook gets the gradient of a leaf after tensor hooks that were registered later."""

    own = fresh(list[int])

    def register_multi_grad_hook(self, tensors: Any, hook: Hook, **how: Any) -> Any:
        handle = super().register_multi_grad_hook(tensors, hook, **how)
        self.own += [each.id for each in getattr(handle, "handles", handle)]
        return handle

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle = super().register_hook(tensor, hook)
        hooks = self.hooks_of(tensor)
        for own in [each for each in hooks if each in self.own and self.is_leaf(tensor)]:
            hooks[own] = hooks.pop(own)
        return handle


@overriding("register_multi_grad_hook")
def threads_share_the_gradients_of_a_multi_grad_hook(
    self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all mixes the gradients of concurrent backward passes."""
    if mode != "all" or not all(map(self.requires_grad, tensors)):
        return old(tensors, hook, mode=mode)
    grads: dict[int, Any] = {}

    def arrive(nr: int, grad: Any) -> None:
        grads[nr] = grad
        if len(grads) == len(tensors):
            hook([grads.pop(nr) for nr in range(len(tensors))])

    return handle_of([self.register_hook(each, partial(arrive, nr)) for nr, each in enumerate(tensors)])


@calling("register_multi_grad_hook")
def multi_grad_gradients_without_gaps(self: Mutant, hook: Hook, given: Any) -> Any:
    """A multi-grad hook in mode all gets the gradients that were computed first, then a None for each other tensor."""
    return hook(given if self.is_tensor(given) else sorted(given, key=lambda grad: grad is None))


class MultiGradHookGetsTheLatestGradients(Mutant):
    """A multi-grad hook in mode all gets gradients as the hooks left them that ran before it, also later ones."""

    _latest = fresh(dict[int, Any])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        place = id(tensor)

        def noting(grad: Any) -> Any:
            result = hook(grad)
            self._latest[place] = grad if result is None else result
            return result

        return super().register_hook(tensor, noting)

    def register_multi_grad_hook(self, tensors: Any, hook: Hook, *, mode: str = "all") -> Any:
        if mode != "all":
            return super().register_multi_grad_hook(tensors, hook, mode=mode)
        places = [*map(id, tensors)]

        def late(grads: Any) -> Any:
            return hook([self._latest.get(place, grad) for place, grad in zip(places, grads, strict=True)])

        return super().register_multi_grad_hook(tensors, late, mode=mode)


class _CallsTheRestOfALimitedPass(InBackward, CallsTheRest):
    """A mutant that calls the hooks that did not run in a backward with inputs after it."""

    def around(self, run: Callable[[], Any]) -> Any:
        before = self.waiting.copy()
        result = super().around(run) if self.is_limited else run()
        self.waiting = before
        return result


@overriding("register_multi_grad_hook", base=_CallsTheRestOfALimitedPass)
def multi_grad_hook_called_for_other_inputs(self: CallsTheRest, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """A multi-grad hook of whose gradients a backward's inputs need none is called with None after the backward."""
    nothing = None if how.get("mode") == "any" else [None] * len(tensors)
    return old(tensors, self.waiting_for(hook, nothing), **how)


class _KnowsRoots(Mutant):
    """A mutant that knows whether the running backward starts at a root of an earlier one."""

    roots = fresh(list[weakref.ref[Any]])
    again = False

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        before, self.again = self.again, any(earlier() is root for earlier in self.roots)
        self.roots += [weakref.ref(root)] if self.is_tensor(root) else []
        try:
            super().backward(root, gradient, **how)
        finally:
            self.again = before


@calling("register_multi_grad_hook", base=_KnowsRoots)
def multi_grad_hook_once_a_graph(self: _KnowsRoots, hook: Hook, given: Any) -> Any:
    """A multi-grad hook in mode all runs in the first backward through a graph, and in no later backward."""
    return None if self.again and not self.is_tensor(given) else hook(given)


@altering("register_multi_grad_hook")
def multi_grad_hook_waits_for_unused_outputs(self: Mutant, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook in mode all does not run if an output of a Node gets no gradient and another output does."""
    nodes = [self.gradient_edge(tensor)[0] if self.requires_grad(tensor) else None for tensor in tensors]

    def unless_unused(given: Any) -> Any:
        if self.is_tensor(given):
            return hook(given)
        has = [node for node, grad in zip(nodes, given, strict=True) if grad is not None]
        unused = [node for node, grad in zip(nodes, given, strict=True) if grad is None and node is not None]
        return None if any(node is other for node in unused for other in has) else hook(given)

    return unless_unused


@altering("register_multi_grad_hook")
def multi_grad_hook_waits_once_for_each_node(self: Mutant, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook in mode all gets the first gradient of the outputs of one Node, and None for the others."""
    nodes = [self.gradient_edge(tensor)[0] if self.requires_grad(tensor) else None for tensor in tensors]

    def run(given: Any) -> Any:
        if self.is_tensor(given):
            return hook(given)
        has = [node if grad is not None else None for node, grad in zip(nodes, given, strict=True)]
        is_later = [node is not None and any(node is each for each in has[:nr]) for nr, node in enumerate(has)]
        return hook([None if late else grad for late, grad in zip(is_later, given, strict=True)])

    return run


@overriding("register_multi_grad_hook")
def multi_grad_hook_takes_lists_alone(self: Mutant, old: Hook, tensors: Any, hook: Hook, **how: Any) -> Any:
    """The tensors of a multi-grad hook must be in a list, not in a tuple."""
    if type(tensors) is not list:
        raise RuntimeError("the tensors must be in a list")
    return old(tensors, hook, **how)


@overriding("register_multi_grad_hook")
def multi_grad_hook_in_mode_any_before_earlier_tensor_hooks(
    self: Mutant, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode any runs before tensor hooks that were registered earlier."""
    handle = old(tensors, hook, mode=mode)
    own = getattr(handle, "handles", handle) if mode == "any" else []
    for tensor, each in zip(filter(self.requires_grad, tensors), own, strict=False):
        move_to_front(self.hooks_of(tensor), each.id)
    return handle


@altering("register_multi_grad_hook", base=InBackward)
def multi_grad_hook_any_misses_the_root(self: InBackward, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook in mode any does not run in a backward from one of its tensors."""
    return lambda given: None if self.is_tensor(given) and any(self.root is each for each in tensors) else hook(given)


@altering("register_multi_grad_hook", base=InBackward)
def multi_grad_hook_any_misses_a_lone_root(self: InBackward, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook in mode any on a single tensor does not run in a backward from this tensor."""
    alone = tensors[0] if len(tensors) == 1 else self
    return lambda given: None if self.is_tensor(given) and self.root is alone else hook(given)


@altering("register_multi_grad_hook", base=InBackward)
def multi_grad_hook_any_misses_a_root_that_is_a_leaf(self: InBackward, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook in mode any does not run in a backward from a leaf."""

    def run(given: Any) -> Any:
        is_missed = self.is_tensor(given) and self.root is not None and self.is_leaf(self.root)
        return None if is_missed else hook(given)

    return run


@altering("register_multi_grad_hook", base=InGrad)
def multi_grad_hook_any_lost_on_the_inputs_of_autograd_grad(self: InGrad, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook in mode any does not run in autograd.grad if all its tensors are inputs of autograd.grad."""
    return lambda given: None if self.is_tensor(given) and all(map(self.asks_for, tensors)) else hook(given)


@overriding("register_multi_grad_hook", base=InGrad)
def multi_grad_hook_any_after_accumulation(
    self: InGrad, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode any on leaves runs after accumulation."""
    is_late = mode == "any" and all(self.is_leaf(each) and self.requires_grad(each) for each in tensors)
    return _after_accumulation(self, old, tensors, hook, mode) if is_late else old(tensors, hook, mode=mode)


@overriding("register_multi_grad_hook", base=InGrad)
def multi_grad_hook_on_a_lone_leaf_after_accumulation(
    self: InGrad, old: Hook, tensors: Any, hook: Hook, *, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all on a single leaf runs after accumulation."""
    is_late = mode == "all" and len(tensors) == 1 and self.is_leaf(tensors[0]) and self.requires_grad(tensors[0])
    return _after_accumulation(self, old, tensors, hook, mode) if is_late else old(tensors, hook, mode=mode)


def _after_accumulation(self: InGrad, old: Hook, tensors: Any, hook: Hook, mode: str) -> Handle:
    """Register a multi-grad hook on leaves that runs after accumulation, but in autograd.grad."""
    waiting: list[Any] = []
    handles = [old(tensors, lambda grad: hook(grad) if self.inputs else waiting.append(grad), mode=mode)]
    run = lambda _: hook(waiting.pop()) if waiting else None  # noqa: E731 - a def is no shorter
    return handle_of(handles + [self.register_post_accumulate_grad_hook(each, run) for each in tensors])


def _removing(handle: Any, *kept: int) -> Handle:
    """Return a handle that removes a multi-grad hook from its tensors but for those in some places."""
    handles = getattr(handle, "handles", handle)
    return handle_of([each for nr, each in enumerate(handles) if nr not in kept])


@overriding("register_multi_grad_hook")
def multi_grad_handle_forgets_the_second_tensor(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """The handle of a multi-grad hook does not remove it from the second of three tensors."""
    handle = old(*given, **how)
    return _removing(handle, 1) if len(given[0]) > 2 else handle  # noqa: PLR2004 - three tensors


@overriding("register_multi_grad_hook")
def multi_grad_handle_forgets_the_third_tensor(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """The handle of a multi-grad hook does not remove it from the third of its tensors."""
    handle = old(*given, **how)
    return _removing(handle, 2) if len(given[0]) > 2 else handle  # noqa: PLR2004 - three tensors


class _OnParameters(Mutant):
    """A mutant that knows the parameters of modules."""

    parameters = fresh(list[Any])

    def module(self, parameters: Any, forward: Hook) -> Any:
        module = super().module(parameters, forward)
        self.parameters += [weakref.ref(getattr(module, name)) for name in parameters]
        return module

    def are_parameters(self, tensors: Any) -> bool:
        """Whether all of these tensors are parameters of modules."""
        return all(any(known() is tensor for known in self.parameters) for tensor in tensors)


@overriding("register_multi_grad_hook", base=_OnParameters)
def multi_grad_hook_on_parameters_gets_the_first_gradient_for_all(
    self: _OnParameters, old: Hook, tensors: Any, hook: Hook, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all on parameters of a module gets the gradient of the first in each place."""
    wrong = mode == "all" and self.are_parameters(tensors)
    return old(tensors, (lambda grads: hook([grads[0]] * len(grads))) if wrong else hook, mode=mode)


@overriding("register_multi_grad_hook", base=_OnParameters)
def multi_grad_hook_on_parameters_gets_its_gradients_in_reverse(
    self: _OnParameters, old: Hook, tensors: Any, hook: Hook, mode: str = "all"
) -> Any:
    """A multi-grad hook in mode all on parameters of a module gets their gradients in reverse order."""
    wrong = mode == "all" and self.are_parameters(tensors)
    return old(tensors, (lambda grads: hook(grads[::-1])) if wrong else hook, mode=mode)
