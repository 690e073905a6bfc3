"""Mutants that keep hooks, Nodes or saved tensors alive too long, or lose hooks too early."""

import weakref
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding, products
from hooklaw_backends.mutants.custom_functions import Context
from hooklaw_backends.mutants.situations import Knowing


@overriding(*verbs.IN_BACKWARD)
def hooks_outlive_the_graph(self: Mutant, old: Hook, owner: Any, hook: Hook) -> Any:
    """A hook of a tensor or Node is never freed."""
    self.kept.append(hook)
    return old(owner, hook)


@overriding(*verbs.IN_BACKWARD)
def hooks_outlive_a_graph_that_ran(self: Mutant, old: Hook, owner: Any, hook: Hook) -> Any:
    """A hook of a tensor or Node is never freed once it ran."""
    return old(owner, lambda *given: (self.kept.append(hook), hook(*given))[1])


@overriding("node_register_prehook")
def node_pre_hooks_in_a_cycle_are_kept(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node pre-hook that refers to its own Node is never freed: something else holds it as long as the Node lives."""
    weakref.finalize(node, list, (hook,)).atexit = False
    return old(node, hook)


@overriding("register_post_accumulate_grad_hook")
def post_accumulate_hooks_that_never_ran_are_kept(self: Mutant, old: Hook, leaf: Any, hook: Hook) -> Any:
    """A post-accumulate-grad hook that never ran is never freed."""
    return _kept_until_it_runs(self, old, leaf, hook)


@overriding("register_hook")
def hooks_of_leaves_that_never_ran_are_kept(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A leaf's tensor hook that never ran is never freed."""
    return _kept_until_it_runs(self, old, tensor, hook) if self.is_leaf(tensor) else old(tensor, hook)


def _kept_until_it_runs(self: Mutant, old: Hook, leaf: Any, hook: Hook) -> Any:
    """Register a hook that is never freed unless it runs."""
    self.kept.append(hook)

    def run(tensor: Any) -> Any:
        self.kept[:] = [kept for kept in self.kept if kept is not hook]
        return hook(tensor)

    return old(leaf, run)


class _KeepsHooksOfSome(Mutant):
    """A mutant that keeps the hooks of the tensors that it knows for ever."""

    known = fresh(list[weakref.ref[Any]])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        self.kept += [hook] if any(known() is tensor for known in self.known) else []
        return super().register_hook(tensor, hook)


class HooksOfViewsOutliveTheGraph(_KeepsHooksOfSome):
    """A hook of a view is never freed."""

    def view(self, tensor: Any, *shape: int) -> Any:
        made = super().view(tensor, *shape)
        self.known.append(weakref.ref(made))
        return made


class HooksOfPartsOutliveTheGraph(_KeepsHooksOfSome):
    """A hook of a part of a tensor is never freed."""

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        parts = super().split(tensor, size)
        self.known += map(weakref.ref, parts)
        return parts


@altering("register_hook")
def hooks_lost_with_their_tensor(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook no longer runs once nothing but the graph refers to its tensor."""
    alive = weakref.ref(tensor)
    return lambda grad: hook(grad) if alive() is not None else None


@overriding("node_metadata")
def nodes_outlive_the_graph(self: Mutant, old: Hook, node: Any) -> Any:
    """A Node whose metadata were read is never freed."""
    self.kept.append(node)
    return old(node)


@overriding("custom_function")
def contexts_outlive_the_graph(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """The ctx of a custom Function is never freed."""
    return old(lambda ctx, *inputs: (self.kept.append(ctx), forward(ctx, *inputs))[1], backward, **options)


@products
def saved_tensors_outlive_the_graph(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A tensor that a product saved is never freed."""
    self.kept.append(left)
    return multiply(left, right)


@calling("custom_function")
def saved_tensors_of_functions_outlive_the_graph(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A tensor that a custom Function saved is never freed once its backward ran."""
    self.kept.append(ctx.saved_tensors)
    return backward(ctx, *grads)


class NodeIsFreedWithItsLastOutput(Mutant):
    """The hooks of a Node are freed with the last of its outputs, even if the others are alive."""

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        return self._noting(super().split(tensor, size))

    def custom_function(self, forward: Hook, backward: Hook, **options: Any) -> Hook:
        made = super().custom_function(forward, backward, **options)
        return lambda *given: self._noting(made(*given))

    def _noting(self, outputs: Any) -> Any:
        self.kept = [weakref.ref(outputs[-1])] if isinstance(outputs, (tuple, list)) else []
        return outputs

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        handle = super().node_register_hook(node, hook)
        for output in self.kept:
            weakref.finalize(output(), handle.remove).atexit = False
        return handle


@products
def saved_constants_outlive_the_graph(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """A tensor that does not require grad is never freed once a product saved it."""
    if self.is_tensor(right) and self.requires_grad(left) and not self.requires_grad(right):
        self.kept.append(right)
    return multiply(left, right)


class SavedTensorsOfFunctionsOutliveAutogradGrad(Knowing):
    """What a custom Function saved lives on with its graph, and can be read again, if autograd.grad has read it."""

    def custom_function(self, forward: Hook, backward: Hook, **options: Any) -> Hook:
        def reading(ctx: Any, *grads: Any) -> Any:
            if self.running("verb") == "grad" and not hasattr(ctx, "kept"):
                ctx.kept = ctx.saved_tensors
            return backward(Context(ctx, saved_tensors=lambda: ctx.kept) if hasattr(ctx, "kept") else ctx, *grads)

        return super().custom_function(forward, reading, **options)
