"""Mutants of edges, arguments and handles in cases that few programs reach."""

import weakref
from collections.abc import Sequence
from contextlib import suppress
from inspect import ismethod
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding, packing
from hooklaw_backends.mutants.custom_functions import Context
from hooklaw_backends.mutants.shared import Handle


class GradientEdgesDieWithTheirTensor(Mutant):
    """A gradient edge cannot be used once its tensor was deleted."""

    def get_gradient_edge(self, tensor: Any) -> Any:
        edge = super().get_gradient_edge(tensor)
        self.kept.append((edge, weakref.ref(tensor)))
        return edge

    def backward_from_edge(self, edge: Any, gradient: Any = None) -> None:
        if any(kept is edge and alive() is None for kept, alive in self.kept):
            raise RuntimeError("the tensor of this edge was deleted")
        super().backward_from_edge(edge, gradient)


@overriding("grad")
def unused_edges_are_none(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad with materialize_grads=True returns None for the edge of an unused tensor."""
    try:
        return old(*given, **how)
    except RuntimeError:
        if not how.get("materialize_grads"):
            raise
        return old(*given, **{**how, "materialize_grads": False, "allow_unused": True})


@overriding("grad")
def unused_edges_after_a_tensor_are_none(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> Any:
    """autograd.grad with materialize_grads=True returns None for the edge of an unused tensor if a tensor is first."""
    if not how.get("materialize_grads") or not self.is_tensor(inputs[0]):
        return old(outputs, inputs, *given, **how)
    found = zip(
        inputs, old(outputs, inputs, *given, **{"allow_unused": True, **how, "materialize_grads": False}), strict=True
    )
    return tuple(self.zeros_like(each) if grad is None and self.is_tensor(each) else grad for each, grad in found)


@overriding("grad")
def unused_edges_of_non_leaves_are_none(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> Any:
    """autograd.grad with materialize_grads=True returns None for the edge of an unused tensor that is not a leaf."""
    edges = [each for each in inputs if not self.is_tensor(each)]
    if (
        how.get("materialize_grads")
        and len(edges) == len(inputs)
        and not any(self.leaf_of(edge[0]) is not None for edge in edges)
    ):
        how |= {"materialize_grads": False, "allow_unused": True}
    return old(outputs, inputs, *given, **how)


@overriding("grad", "backward_from_edge")
def gradients_of_edges_unchecked(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A gradient of the wrong shape for a gradient edge is no error."""
    with suppress(RuntimeError):
        return old(*given, **how)


@overriding("backward")
def unused_backward_inputs_refused(
    self: Mutant, old: Hook, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **how: Any
) -> None:
    """A leaf among backward's inputs that the root does not depend on is an error."""
    known = list(self.leaves_of(root))
    for tensor in inputs or ():
        if self.is_tensor(tensor) and self.is_leaf(tensor) and not any(tensor is leaf for leaf in known):
            raise RuntimeError("an input of backward is not used")
    old(root, gradient, inputs=inputs, **how)


@overriding("backward")
def unused_backward_inputs_alone_refused(
    self: Mutant, old: Hook, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **how: Any
) -> None:
    """A backward is an error if the root depends on none of its inputs, which are leaves."""
    known = list(self.leaves_of(root)) if inputs else []
    are_leaves = all(self.is_tensor(tensor) and self.is_leaf(tensor) for tensor in inputs or ())
    if inputs and are_leaves and not any(tensor is leaf for tensor in inputs for leaf in known):
        raise RuntimeError("no input of backward is used")
    old(root, gradient, inputs=inputs, **how)


@overriding("node_register_prehook")
def node_pre_hooks_of_an_execution_change(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """A Node pre-hook that another pre-hook removes does not run any more in the same execution."""
    removed: list[bool] = []
    handle = old(node, lambda grads: None if removed else hook(grads))
    return Handle(lambda: (removed.append(True), handle.remove()))


@overriding("register_hook")
def hooks_must_be_functions(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A hook without a name is an error."""
    if not hasattr(hook, "__name__"):
        raise RuntimeError("a hook must have a name")
    return old(tensor, hook)


@calling("register_hook")
def hooks_that_are_methods_lost(self: Mutant, hook: Hook, grad: Any) -> Any:
    """A hook that is a method of an object does not run."""
    return None if ismethod(hook) else hook(grad)


class KeptGradientsBecomeGrad(Mutant):
    """The gradient that a leaf's hook gets becomes .grad itself, so a later backward changes it in place."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if not self.is_leaf(tensor):
            return super().register_hook(tensor, hook)
        leaf = weakref.ref(tensor)
        return super().register_hook(tensor, lambda grad: (self.kept.append((leaf, grad)), hook(grad))[1])

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        while self.kept:
            leaf, grad = self.kept.pop()
            if leaf() is not None and self.tolist(self.grad_of(leaf())) == self.tolist(grad):
                self.set_grad(leaf(), grad)


@overriding("register_forward_pre_hook")
def forward_pre_hooks_cannot_remove_themselves(self: Mutant, old: Hook, *given: Any, **how: bool) -> Any:
    """Removing a forward pre-hook while it runs is an error."""
    return _only_between_runs(old, *given, **how)


@overriding(*verbs.MODULE_BACKWARD, *verbs.ON_ALL_MODULES[:2])
def backward_and_global_hooks_cannot_remove_themselves(self: Mutant, old: Hook, *given: Any, **how: bool) -> Any:
    """Removing a backward hook of a module, or any hook on all modules, while it runs is an error."""
    return _only_between_runs(old, *given, **how)


def _only_between_runs(register: Hook, *given: Any, **how: bool) -> Handle:
    """Register a hook that cannot be removed while it runs."""

    def run(*call: Any, **named: Any) -> Any:
        running.append(True)
        try:
            return given[-1](*call, **named)
        finally:
            running.pop()

    def remove() -> None:
        if running:
            raise RuntimeError("the hook is running")
        handle.remove()

    running: list[bool] = []
    handle = register(*given[:-1], run, **how)
    return Handle(remove)


@overriding("custom_function")
def context_attributes_lost(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Any:
    """A number or dict that a custom Function's forward stores on ctx is not there in backward."""

    def forgetful(ctx: Any, *inputs: Any) -> Any:
        before = set(vars(ctx))
        output = forward(ctx, *inputs)
        for name in set(vars(ctx)) - before:
            if isinstance(vars(ctx)[name], float | dict):
                delattr(ctx, name)
        return output

    return old(forgetful, backward, **options)


@overriding("custom_function")
def context_attributes_cleared_by_backward(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Any:
    """What a custom Function's forward stores on ctx is not there after the first backward, even if it retains."""

    def storing(ctx: Any, *inputs: Any) -> Any:
        before = set(vars(ctx))
        output = forward(ctx, *inputs)
        ctx.stored_names = {
            name for name in set(vars(ctx)) - before if isinstance(vars(ctx)[name], float | dict | str | int)
        }
        return output

    def clearing(ctx: Any, *grads: Any) -> Any:
        results = backward(ctx, *grads)
        while ctx.stored_names:
            delattr(ctx, ctx.stored_names.pop())
        return results

    return old(storing, clearing, **options)


@overriding("custom_function")
def context_attributes_shared_by_calls(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Any:
    """All calls of a custom Function have the attributes of ctx in common, as the last forward stored them."""
    shared: dict[str, Any] = {}

    def storing(ctx: Any, *inputs: Any) -> Any:
        before = set(vars(ctx))
        output = forward(ctx, *inputs)
        shared.update({name: vars(ctx)[name] for name in set(vars(ctx)) - before})
        return output

    def reading(ctx: Any, *grads: Any) -> Any:
        return backward(Context(ctx, **{name: lambda value=value: value for name, value in shared.items()}), *grads)

    return old(storing, reading, **options)


def _returning_itself(make: Hook, forward: Hook, only: Hook) -> Hook:
    """Return a custom Function that returns a returned input itself where ``only(input)``."""

    def noted(ctx: Any, *inputs: Any) -> Any:
        output = forward(ctx, *inputs)
        returned[:] = [nr for nr, value in enumerate(inputs) if value is output]
        return output

    def apply(*inputs: Any) -> Any:
        output = made(*inputs)
        return inputs[returned[0]] if returned and only(inputs[returned[0]]) else output

    returned: list[int] = []
    made = make(noted)
    return apply


@overriding("custom_function")
def returned_inputs_are_themselves(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Any:
    """An input that a custom Function returns comes out as the input itself, without the Function."""
    return _returning_itself(lambda noted: old(noted, backward, **options), forward, lambda _: True)


@overriding("custom_function")
def returned_non_leaves_are_themselves(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Any:
    """An input that a custom Function returns comes out as the input itself if it is not a leaf."""
    return _returning_itself(lambda noted: old(noted, backward, **options), forward, lambda x: not self.is_leaf(x))


@overriding("custom_function")
def returned_second_inputs_are_themselves(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Any:
    """An input that a custom Function returns comes out as the input itself if it is not the first input."""
    firsts: list[Any] = []

    def noted(ctx: Any, *inputs: Any) -> Any:
        firsts[:] = [id(inputs[0])]
        return forward(ctx, *inputs)

    return _returning_itself(lambda given: old(given, backward, **options), noted, lambda x: id(x) not in firsts)


@overriding("custom_function")
def returned_inputs_among_several_are_themselves(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Any:
    """An input that a custom Function returns comes out as the input itself if there are several outputs."""
    returned: list[int | None] = []

    def noted(ctx: Any, *inputs: Any) -> Any:
        outputs, places = forward(ctx, *inputs), {id(value): nr for nr, value in enumerate(inputs)}
        returned[:] = [places.get(id(each)) for each in outputs] if isinstance(outputs, tuple) else []
        return outputs

    def apply(*inputs: Any) -> Any:
        outputs = made(*inputs)
        pairs = zip(outputs, returned, strict=True) if returned else ()
        return tuple(each if at is None else inputs[at] for each, at in pairs) or outputs

    made = old(noted, backward, **options)
    return apply


@packing("saved_tensors_hooks")
def errors_of_pack_swallowed(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """If a pack hook cannot be called with one argument, the tensor is saved without it."""
    try:
        return pack(tensor)
    except TypeError:
        return tensor
