"""Mutants whose Nodes are wrong, or whose Node hooks are."""

from contextlib import suppress
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, InBackward, InGrad, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import Handle, PutsOff, as_prehook, chained, in_a_free_place, once, without_result


@calling("node_register_hook")
def node_post_hook_arguments_swapped(self: Mutant, hook: Hook, grad_inputs: Any, grad_outputs: Any) -> Any:
    """A Node post-hook gets grad_inputs and grad_outputs swapped."""
    return hook(grad_outputs, grad_inputs)


@calling("node_register_hook")
def node_post_hook_gets_lists(self: Mutant, hook: Hook, grad_inputs: Any, grad_outputs: Any) -> Any:
    """A Node post-hook gets lists instead of tuples."""
    return hook(list(grad_inputs), list(grad_outputs))


def _as_lists(hook: Hook) -> Hook:
    return lambda inputs, outputs: hook(list(inputs), list(outputs))


@overriding("node_register_hook")
def later_node_post_hooks_get_lists(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """A post-hook that is not the first of its Node gets lists instead of tuples."""
    data = self.node_metadata(node)
    is_later = data.setdefault("has a post-hook", False)
    data["has a post-hook"] = True
    return old(node, _as_lists(hook) if is_later else hook)


@altering("node_register_hook")
def node_post_hook_gets_lists_in_its_second_call(self: Mutant, _node: Any, hook: Hook) -> Hook:
    """A Node post-hook gets lists instead of tuples from its second call on."""
    hooks = chain([hook], repeat(_as_lists(hook)))

    def run(*grads: Any) -> Any:
        return next(hooks)(*grads)

    return run


@altering("node_register_hook")
def node_post_hook_of_a_leaf_gets_lists(self: Mutant, node: Any, hook: Hook) -> Hook:
    """A post-hook of an AccumulateGrad Node gets lists instead of tuples."""
    return hook if self.leaf_of(node) is None else _as_lists(hook)


@calling("node_register_hook")
def node_post_hook_gets_a_list_of_one_grad_input(self: Mutant, hook: Hook, inputs: Any, outputs: Any) -> Any:
    """A Node post-hook gets a list instead of a tuple for a single grad_input."""
    return hook(list(inputs) if len(inputs) == 1 == len(outputs) else inputs, outputs)


class _PostHooksSeeNoted(Mutant):
    """A mutant whose Node post-hooks get as grad_outputs what the first pre-hook of the Node noted."""

    noted = fresh(dict[Any, Any])

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_hook(node, lambda inputs, outputs: hook(inputs, self.noted.get(node, outputs)))


@overriding("node_register_prehook", base=_PostHooksSeeNoted)
def node_post_hook_sees_the_raw_gradient(self: _PostHooksSeeNoted, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node post-hook gets grad_outputs from before the Node's pre-hooks."""
    return old(node, lambda grads: (self.noted.setdefault(node, grads), hook(grads))[1])


@overriding("node_register_prehook", base=_PostHooksSeeNoted)
def node_post_hook_of_a_leaf_sees_the_raw_gradient(self: _PostHooksSeeNoted, old: Hook, node: Any, hook: Hook) -> Any:
    """A post-hook of an AccumulateGrad Node gets grad_outputs from before the Node's pre-hooks."""
    if self.leaf_of(node) is None:
        return old(node, hook)
    return old(node, lambda grads: (self.noted.setdefault(node, grads), hook(grads))[1])


@overriding("node_register_prehook", base=_PostHooksSeeNoted)
def node_post_hook_sees_what_the_first_pre_hook_returned(
    self: _PostHooksSeeNoted, old: Hook, node: Any, hook: Hook
) -> Any:
    """A Node post-hook gets grad_outputs from before the Node's later pre-hooks."""

    def noting(grads: Any) -> Any:
        result = hook(grads)
        self.noted.setdefault(node, grads if result is None else result)
        return result

    return old(node, noting)


@overriding("node_register_prehook", base=_PostHooksSeeNoted)
def node_post_hook_sees_the_raw_gradient_of_later_outputs(
    self: _PostHooksSeeNoted, old: Hook, node: Any, hook: Hook
) -> Any:
    """A Node post-hook gets grad_outputs from before the Node's pre-hooks, except that of the first output."""

    def noting(grads: Any) -> Any:
        result = hook(grads)
        self.noted.setdefault(node, (*(result or grads)[:1], *grads[1:]))
        return result

    return old(node, noting)


class NextNodePreHookSeesTheRawGradientOfLaterOutputs(Mutant):
    """Of the gradients that a Node pre-hook returns the next one sees the first alone, and the others as before."""

    hooks = fresh(dict[int, list[Any]])

    def reset(self) -> None:
        super().reset()
        self.hooks = {}

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        raw = self.hooks.setdefault(id(node), [])
        is_first = not raw
        raw.append(())

        def call(grads: Any) -> Any:
            if is_first:
                raw[0] = grads
            before, raw[0] = raw[0], raw[0] if is_first else ()
            return hook((*grads[:1], *before[1:]) if len(before) == len(grads) else grads)

        return super().node_register_prehook(node, call)


@overriding("node_register_hook")
def node_post_hook_before_execution(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node post-hook runs before the Node is executed."""
    return self.node_register_prehook(node, without_result(lambda grads: hook((), grads)))


@overriding("node_register_hook")
def node_post_hook_before_post_accumulate(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """A post-hook on an AccumulateGrad Node runs before the leaf's post-accumulate hooks."""
    leaf = self.leaf_of(node)
    if leaf is None:
        return old(node, hook)
    early = self.register_post_accumulate_grad_hook
    return early(leaf, without_result(lambda leaf: hook((), (self.grad_of(leaf),))))


@overriding("node_register_hook", base=InBackward)
def late_node_post_hook_waits_for_the_next_pass(self: InBackward, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node post-hook registered during a backward is lost."""
    return old(node, hook) if self.root is None else Handle()


@overriding("node_register_hook", base=InBackward)
def late_node_post_hook_waits_if_there_are_others(self: InBackward, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node post-hook registered during a backward is lost if the Node has a post-hook."""
    data = self.node_metadata(node)
    has_another = data.setdefault("has a post-hook", False)
    data["has a post-hook"] = True
    return Handle() if has_another and self.root is not None else old(node, hook)


class LateNodePostHookOfABackwardWaitsIfThereAreOthers(Mutant):
    """A post-hook that the backward of a custom Function registers is lost if its Node has a post-hook."""

    in_function = False

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        def run(*given: Any) -> Any:
            self.in_function = True
            try:
                return backward(*given)
            finally:
                self.in_function = False

        return super().custom_function(forward, run, **options)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        data = self.node_metadata(node)
        has_another = data.setdefault("has a post-hook", False)
        data["has a post-hook"] = True
        return Handle() if has_another and self.in_function else super().node_register_hook(node, hook)


@altering("node_register_hook")
def accumulate_grad_passes_the_sum_on(self: Mutant, node: Any, hook: Hook) -> Hook:
    """A post-hook on an AccumulateGrad Node gets the sum in .grad instead of this backward's gradient."""

    def summed(grads: Any) -> Any:
        leaf = self.leaf_of(node)
        return grads if leaf is None else (self.grad_of(leaf),)

    return lambda grad_inputs, grads: hook(grad_inputs, summed(grads))


@overriding("accumulate_grad")
def accumulate_grad_lives_with_its_leaf(self: Mutant, old: Hook, leaf: Any) -> Any:
    """A leaf's AccumulateGrad Node stays alive after its last reference is gone."""
    self.kept.append(old(leaf))
    return self.kept[-1]


@calling("node_register_prehook")
def node_pre_hook_gets_a_bare_tensor(self: Mutant, hook: Hook, grads: Any) -> Any:
    """A Node pre-hook gets the first gradient instead of a tuple."""
    return hook(grads[0])


@calling("node_register_prehook")
def node_pre_hook_gets_a_list_of_one(self: Mutant, hook: Hook, grads: Any) -> Any:
    """A Node pre-hook gets a list instead of a tuple for a single gradient."""
    return hook(list(grads) if len(grads) == 1 else grads)


@altering("node_register_prehook")
def node_pre_hook_of_a_leaf_gets_a_list(self: Mutant, node: Any, hook: Hook) -> Hook:
    """A pre-hook of an AccumulateGrad Node gets a list instead of a tuple."""
    return hook if self.leaf_of(node) is None else lambda grads: hook(list(grads))


@overriding("node_register_prehook")
def later_node_pre_hooks_get_lists(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """A pre-hook that is not the first of its Node gets a list instead of a tuple."""
    data = self.node_metadata(node)
    is_later = data.setdefault("has a pre-hook", False)
    data["has a pre-hook"] = True
    return old(node, (lambda grads: hook(list(grads))) if is_later else hook)


def _of_a_leaf_in_reverse(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """Register a hook; those of an AccumulateGrad Node run in reverse order of registration."""
    if self.leaf_of(node) is None:
        return old(node, hook)
    hooks = self.node_metadata(node).setdefault("hooks", [])
    if not hooks:
        old(node, lambda *grads: chained(hooks[::-1], *grads))
    hooks.append(hook)
    return Handle(lambda: hooks.remove(hook) if hook in hooks else None)


@overriding("node_register_prehook")
def node_pre_hooks_of_a_leaf_in_reverse(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """The pre-hooks of an AccumulateGrad Node run in reverse order of registration."""
    return _of_a_leaf_in_reverse(self, old, node, hook)


@overriding("node_register_hook")
def node_post_hooks_of_a_leaf_in_reverse(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """The post-hooks of an AccumulateGrad Node run in reverse order of registration."""
    return _of_a_leaf_in_reverse(self, old, node, hook)


def _in_the_place_of_a_removed_one(self: Mutant, old: Hook, node: Any, hook: Hook) -> Handle:
    """Register a hook, in the place of a removed one of its kind if there is one."""
    data = self.node_metadata(node)
    if "places" not in data:
        data["places"] = []
        old(node, lambda *grads: chained([*filter(None, data["places"])], *grads))
    return in_a_free_place(data["places"], hook)


@overriding("node_register_prehook")
def node_pre_hook_takes_the_place_of_a_removed_one(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """After a pre-hook of a Node was removed, the next one to be registered runs in its place."""
    return _in_the_place_of_a_removed_one(self, old, node, hook)


@overriding("node_register_hook")
def node_post_hook_takes_the_place_of_a_removed_one(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """After a post-hook of a Node was removed, the next one to be registered runs in its place."""
    return _in_the_place_of_a_removed_one(self, old, node, hook)


@altering("node_register_prehook")
def node_pre_hook_return_of_a_leaf_uncounted(self: Mutant, node: Any, hook: Hook) -> Hook:
    """Of what a pre-hook of an AccumulateGrad Node returns the first counts, or the gradient if there is none."""

    def run(grads: Any) -> Any:
        result = hook(grads)
        return (*result, *grads)[:1] if isinstance(result, tuple) else result

    return hook if self.leaf_of(node) is None else run


@altering("node_register_prehook")
def node_pre_hook_bare_tensor_of_a_leaf_accepted(self: Mutant, node: Any, hook: Hook) -> Hook:
    """A pre-hook of an AccumulateGrad Node may return a bare tensor instead of a tuple."""

    def run(grads: Any) -> Any:
        result = hook(grads)
        return (result,) if self.is_tensor(result) else result

    return hook if self.leaf_of(node) is None else run


@overriding("node_register_prehook")
def node_pre_hook_gets_grad_inputs(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node pre-hook gets the gradients that the Node computes instead of those it receives."""
    return self.node_register_hook(node, lambda grad_inputs, _: hook(grad_inputs))


@overriding("node_register_prehook")
def accumulate_grad_pre_hook_replaces_nothing(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """The return value of a pre-hook of a leaf's Node is ignored."""
    return old(node, hook if self.leaf_of(node) is None else lambda grads: (hook(grads), None)[1])


@overriding("register_hook")
def node_pre_hook_before_tensor_hook(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A tensor's hooks run in registration order among the pre-hooks of its Node, not before them."""
    node, place = self.gradient_edge(tensor)
    self.kept.append(node)
    return self.node_register_prehook(node, as_prehook(hook, place))


@overriding("register_hook")
def node_pre_hook_before_tensor_hooks_of_later_outputs(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """The hooks of an output that is not the first run in registration order among the pre-hooks of its Node."""
    node, place = (None, 0) if self.is_leaf(tensor) else self.gradient_edge(tensor)
    return self.node_register_prehook(node, as_prehook(hook, place)) if place else old(tensor, hook)


class _KnowsRawGradients(Mutant):
    """A mutant that knows the gradients from before the tensor hooks."""

    _raw = fresh(dict[Any, Any])

    def node_of(self, tensor: Any) -> Any:
        return self.grad_fn(tensor)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        node = self.node_of(tensor)
        return super().register_hook(tensor, lambda grad: (self._raw.setdefault(node, (grad,)), hook(grad))[1])


class NodePreHookSeesTheRawGradient(_KnowsRawGradients):
    """A Node pre-hook gets the gradients from before the tensor hooks."""

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_prehook(node, lambda grads: hook(self._raw.get(node, grads)))


class NodePostHookOfALeafSeesTheGradientBeforeTensorHooks(_KnowsRawGradients):
    """A post-hook of an AccumulateGrad Node gets grad_outputs from before the tensor hooks of the leaf."""

    def node_of(self, tensor: Any) -> Any:
        return self.accumulate_grad(tensor) if self.is_leaf(tensor) and self.requires_grad(tensor) else None

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_hook(node, lambda grads, outputs: hook(grads, self._raw.get(node, outputs)))


class NodePostHookSeesTheGradientBeforeTensorHooks(_KnowsRawGradients):
    """A Node post-hook gets grad_outputs from before the tensor hooks."""

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_hook(node, lambda grads, outputs: hook(grads, self._raw.get(node, outputs)))


class AccumulateGradPreHookSeesTheRawGradient(NodePreHookSeesTheRawGradient):
    """A pre-hook of a leaf's Node gets the gradient from before the tensor hooks."""

    def node_of(self, tensor: Any) -> Any:
        return self.accumulate_grad(tensor) if self.is_leaf(tensor) and self.requires_grad(tensor) else None


@calling(*verbs.NODE)
def node_hook_return_count_unchecked(self: Mutant, hook: Hook, grads: Any, *rest: Any) -> Any:
    """Surplus gradients that a Node hook returns are ignored instead of raising an error."""
    result = hook(grads, *rest)
    return result[: len(grads)] if isinstance(result, tuple) else result


@calling(*verbs.NODE)
def node_hook_bare_tensor_accepted(self: Mutant, hook: Hook, *grads: Any) -> Any:
    """A Node hook may return a bare tensor instead of a tuple."""
    result = hook(*grads)
    return (result,) if self.is_tensor(result) else result


def _for_each(mutant: Mutant, result: Any, grads: Any) -> Any:
    """Return a tensor once for each of several gradients, and any other result as it is."""
    return (result,) * len(grads) if mutant.is_tensor(result) and len(grads) > 1 else result


@calling("node_register_hook")
def node_post_hook_bare_tensor_for_several_accepted(self: Mutant, hook: Hook, grads: Any, outputs: Any) -> Any:
    """A tensor that a Node post-hook returns instead of a tuple replaces each of several gradients."""
    return _for_each(self, hook(grads, outputs), grads)


def _detached(mutant: Mutant, grads: Any) -> Any:
    """Return a tuple of gradients without their history, and any other result as it is."""
    if not isinstance(grads, tuple):
        return grads
    return tuple(grad if grad is None else mutant.detach(grad) for grad in grads)


@calling(*verbs.NODE, base=InBackward)
def node_hook_results_detached_in_backward(self: InBackward, hook: Hook, *grads: Any) -> Any:
    """The return value of a Node hook is detached from its graph in backward, but not in autograd.grad."""
    result = hook(*grads)
    return result if self.root is None else _detached(self, result)


@altering("node_register_prehook")
def results_of_pre_hooks_of_a_leaf_detached(self: Mutant, node: Any, hook: Hook) -> Hook:
    """The return value of a pre-hook of an AccumulateGrad Node is detached from its graph."""
    return hook if self.leaf_of(node) is None else lambda grads: _detached(self, hook(grads))


def _later_gets_constants(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """Register a hook that gets gradients without history if the Node has one of its kind."""
    data = self.node_metadata(node)
    is_later = data.setdefault("has such a hook", False)
    data["has such a hook"] = True
    return old(node, (lambda grads, *rest: hook(_detached(self, grads), *rest)) if is_later else hook)


@overriding("node_register_prehook")
def later_node_pre_hooks_get_constants(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """The gradients that the pre-hooks of a Node after its first get have no history."""
    return _later_gets_constants(self, old, node, hook)


@overriding("node_register_hook")
def later_node_post_hooks_get_constants(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """The grad_inputs that the post-hooks of a Node after its first get have no history."""
    return _later_gets_constants(self, old, node, hook)


@calling("node_register_prehook")
def node_pre_hook_bare_tensor_for_several_accepted(self: Mutant, hook: Hook, grads: Any) -> Any:
    """A tensor that a Node pre-hook returns instead of a tuple replaces each of several gradients."""
    return _for_each(self, hook(grads), grads)


@altering("node_register_hook")
def node_hook_return_of_a_leaf_unchecked(self: Mutant, node: Any, hook: Hook) -> Hook:
    """What a post-hook of an AccumulateGrad Node returns is ignored, whatever it is."""
    return hook if self.leaf_of(node) is None else without_result(hook)


def _without_errors(hook: Hook) -> Hook:
    def run(*grads: Any) -> Any:
        with suppress(Exception):
            return hook(*grads)

    return run


@altering(*verbs.NODE)
def node_hook_of_a_leaf_swallowed(self: Mutant, node: Any, hook: Hook) -> Hook:
    """An exception in a pre-hook or post-hook of an AccumulateGrad Node is ignored."""
    return hook if self.leaf_of(node) is None else _without_errors(hook)


@overriding("register_hook")
def node_pre_hook_before_the_second_tensor_hook(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Of several hooks on a non-leaf only the first runs before the pre-hooks of its Node that are there."""
    if self.is_leaf(tensor) or not self.keeps(tensor):
        self.kept.append(tensor)
        return old(tensor, hook)
    node, place = self.gradient_edge(tensor)[:2]
    return self.node_register_prehook(node, as_prehook(hook, place))


class LeafHooksRunBeforeThePostHooksOfAConsumer(Mutant):
    """A leaf's tensor hooks run as soon as a Node has computed its gradient, before this Node's post-hooks."""

    _hooks = fresh(list[SimpleNamespace])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not self.is_leaf(tensor):
            return super().register_hook(tensor, hook)
        early = SimpleNamespace(leaf=tensor, hook=hook)
        self._hooks.append(early)
        return super().register_hook(tensor, lambda grad: early.hook(grad))  # noqa: PLW0108 - the hook changes later

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        def after_leaves(grads: Any, outputs: Any) -> Any:
            for receiver, grad in zip(self.node_next(node), grads, strict=True):
                for early in self._hooks:
                    if receiver is not None and self.leaf_of(receiver) is early.leaf:
                        early.hook(grad)
                        early.hook = lambda _: None
            return hook(grads, outputs)

        return super().node_register_hook(node, after_leaves)


class NodePreHooksRunBeforeThePostHooksOfAConsumer(Mutant):
    """The pre-hooks of a Node run as soon as another Node has computed its gradient, before this one's post-hooks."""

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        early = SimpleNamespace(hook=hook)
        self.node_metadata(node).setdefault("early", []).append(early)
        return super().node_register_prehook(node, lambda grads: early.hook(grads))  # noqa: PLW0108 - the hook changes later

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        def after_receivers(grads: Any, outputs: Any) -> Any:
            for receiver, grad in zip(self.node_next(node), grads, strict=True):
                for early in [] if receiver is None else self.node_metadata(receiver).get("early", []):
                    early.hook((grad,))
                    early.hook = lambda _: None
            return hook(grads, outputs)

        return super().node_register_hook(node, after_receivers)


@calling("node_register_hook")
def node_post_hook_gets_the_first_grad_output(self: Mutant, hook: Hook, grad_inputs: Any, grad_outputs: Any) -> Any:
    """A Node post-hook gets the gradient of the Node's first output alone."""
    return hook(grad_inputs, grad_outputs[:1])


@calling("node_register_hook")
def node_post_hook_replaces_without_gaps(self: Mutant, hook: Hook, grads: Any, outputs: Any) -> Any:
    """The first gradient that a Node post-hook returns replaces the first that was computed, and so on."""
    result = hook(grads, outputs)
    if not isinstance(result, tuple) or len(result) != len(grads):
        return result
    returned = iter(result)
    return tuple(None if grad is None else next(returned) for grad in grads)


@altering(*verbs.NODE)
def hooks_of_accumulate_grad_run_once(self: Mutant, node: Any, hook: Hook) -> Hook:
    """A hook of an AccumulateGrad Node runs in the first backward only."""
    return hook if self.leaf_of(node) is None else once(hook)


@altering(*verbs.NODE, base=InBackward)
def node_hooks_of_a_root_that_is_a_leaf_lost(self: InBackward, node: Any, hook: Hook) -> Hook:
    """The hooks of an AccumulateGrad Node do not run in a backward from its leaf."""
    leaf = self.leaf_of(node)
    return lambda *grads: None if leaf is not None and self.root is leaf else hook(*grads)


@altering(*verbs.NODE)
def node_hooks_get_the_gradients_of_the_first_pass(self: Mutant, node: Any, hook: Hook) -> Hook:
    """A hook of a Node gets in every backward the gradients of the first."""
    first: list[Any] = []

    def run(*grads: Any) -> Any:
        first[:] = first or grads
        return hook(*first)

    return run


@overriding("node_register_prehook", base=PutsOff)
def node_pre_hooks_registered_in_a_backward_wait(self: PutsOff, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node pre-hook that is registered during a backward does not run before the next backward."""
    return self.registered_later(old, node, hook)


@altering("node_register_hook", base=InGrad)
def autograd_grad_returns_what_post_hooks_were_given(self: InGrad, node: Any, hook: Hook) -> Hook:
    """What a Node post-hook returns does not change the gradient that autograd.grad returns for the Node's input."""
    receivers = {id(receiver) for receiver in self.node_next(node)}

    def unless_asked(*grads: Any) -> Any:
        result = hook(*grads)
        asked = [tensor for tensor in self.inputs if self.is_tensor(tensor)]
        return None if any(id(self.gradient_edge(tensor)[0]) in receivers for tensor in asked) else result

    return unless_asked
