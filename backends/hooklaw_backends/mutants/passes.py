"""Mutants that ignore or misread the roots, inputs and options of a backward."""

import math
import weakref
from collections.abc import Sequence
from functools import partial, wraps
from typing import Any

from hooklaw.backend.protocol import Capability
from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, calling, fresh, overriding, with_options

Inputs = Sequence[Any] | None


@overriding("backward")
def backward_inputs_take_leaves_alone(self: Mutant, old: Hook, *given: Any, inputs: Any = None, **how: Any) -> None:
    """backward accumulates no gradient into inputs that are not leaves."""
    leaves = inputs and [tensor for tensor in inputs if self.is_leaf(tensor)]
    if leaves or not inputs:
        old(*given, inputs=leaves, **how)


@overriding("backward")
def backward_that_creates_a_graph_takes_other_leaves_too(
    self: Mutant, old: Hook, root: Any, *given: Any, **how: Any
) -> None:
    """A backward with inputs and create_graph=True accumulates into the other leaves, too."""
    if how.get("inputs") and how.get("create_graph"):
        asked = list(how["inputs"])
        how["inputs"] = asked + [leaf for leaf in self.leaves_of(root) if all(leaf is not each for each in asked)]
    old(root, *given, **how)


@overriding("backward")
def backward_inputs_count_retained_gradients_twice(self: Mutant, old: Hook, *given: Any, **how: Any) -> None:
    """backward counts the gradient twice for an input that retains its gradient."""
    inputs = how.get("inputs") or ()
    retaining = [tensor for tensor in inputs if not self.is_leaf(tensor) and self.retains_grad(tensor)]
    old(*given, **how)
    for tensor in retaining:
        self.set_grad(tensor, self.grad_of(tensor) * 2)


@overriding("backward")
def gradient_of_a_root_is_ones(self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any) -> None:
    """backward starts from ones, even if a gradient is given."""
    old(root, self.mapped(root, lambda _: 1.0) if self.shape(root) else None, **how)


@overriding("backward")
def gradient_of_a_root_broadcast(self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any) -> None:
    """A root gradient of the wrong shape is broadcast instead of raising an error."""
    if gradient is not None and self.shape(gradient) != self.shape(root):
        gradient = self.zeros_like(root) + gradient
    old(root, gradient, **how)


@overriding("backward")
def gradient_of_a_root_reshaped(self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any) -> None:
    """A root gradient of another shape with as many elements is no error."""
    shape = self.shape(root)
    if gradient is not None and self.shape(gradient) != shape and math.prod(self.shape(gradient)) == math.prod(shape):
        gradient = self.view(gradient, *shape)
    old(root, gradient, **how)


@overriding("backward")
def backward_from_a_constant_does_nothing(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward from a tensor that does not require grad does nothing instead of raising an error."""
    if self.requires_grad(root):
        old(root, *given, **how)


class BackwardFromAConstantThatWasNotComputedDoesNothing(Mutant):
    """A backward from a constant that no function computed does nothing instead of raising an error."""

    _made = fresh(list[weakref.ref[Any]])

    def tensor(self, *given: Any, **how: Any) -> Any:
        tensor = super().tensor(*given, **how)
        self._made.append(weakref.ref(tensor))
        return tensor

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if self.requires_grad(root) or not any(made() is root for made in self._made):
            super().backward(root, gradient, **how)


def unused(step: Hook) -> type[Mutant]:
    """Make a mutant whose autograd.grad returns ``(self, tensor)`` for each unused input."""

    @wraps(step)
    def grad(self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any) -> tuple[Any, ...]:
        found = zip(inputs, old(outputs, inputs, *given, **how), strict=True)
        return tuple(step(self, tensor) if grad is None else grad for tensor, grad in found)

    return overriding("grad")(grad)


@unused
def unused_inputs_get_zeros(self: Mutant, tensor: Any) -> Any:
    """autograd.grad returns zeros instead of None for an unused input."""
    return self.zeros_like(tensor)


@overriding("grad")
def unused_inputs_come_last(self: Mutant, old: Hook, *given: Any, **how: Any) -> tuple[Any, ...]:
    """autograd.grad returns the None of an unused input after the gradients of all other inputs."""
    return tuple(sorted(old(*given, **how), key=lambda grad: grad is None))


@unused
def hooks_of_unused_inputs_run(self: Mutant, tensor: Any) -> None:
    """autograd.grad runs the hooks of an unused input on zeros."""
    for hook in list((self.hooks_of(tensor) or {}).values()):
        hook(self.zeros_like(tensor))


@unused
def hooks_of_unused_intermediates_run(self: Mutant, tensor: Any) -> None:
    """autograd.grad runs the hooks of an unused input on zeros if it is not a leaf."""
    for hook in [] if self.is_leaf(tensor) else list((self.hooks_of(tensor) or {}).values()):
        hook(self.zeros_like(tensor))


class NodeHooksOfUnusedInputsRun(Mutant):
    """autograd.grad runs the pre-hooks of the Node of an unused input on zeros."""

    _mark = "pre-hooks"

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        self.node_metadata(node).setdefault(self._mark, []).append(weakref.ref(hook))
        return super().node_register_prehook(node, hook)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        found = super().grad(outputs, inputs, grad_outputs, **how)
        for tensor in (tensor for tensor, grad in zip(inputs, found, strict=True) if grad is None):
            self._run(tensor)
        return found

    def _run(self, tensor: Any) -> None:
        for alive in self.node_metadata(self.gradient_edge(tensor)[0]).get(self._mark, []):
            alive()((self.zeros_like(tensor),))


class PostAccumulateHooksOfUnusedInputsRun(Mutant):
    """autograd.grad runs the post-accumulate-grad hooks of an unused input."""

    _hooks = fresh(list[tuple[weakref.ref[Any], weakref.ref[Any]]])

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        self._hooks.append((weakref.ref(tensor), weakref.ref(hook)))
        return super().register_post_accumulate_grad_hook(tensor, hook)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        found = super().grad(outputs, inputs, grad_outputs, **how)
        unused = [tensor for tensor, grad in zip(inputs, found, strict=True) if grad is None]
        for tensor, hook in [(tensor(), hook()) for tensor, hook in self._hooks]:
            if hook is not None and any(tensor is each for each in unused):
                hook(tensor)
        return found


@with_options("grad", allow_unused=False, needs=(Capability.MISUSE_ERRORS,))
def unused_inputs_never_allowed() -> None:
    """An unused input of autograd.grad is an error even with allow_unused=True."""


@overriding("grad")
def create_graph_ignored(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad ignores create_graph=True, except that it retains the graph."""
    retain = how.get("create_graph") or how.get("retain_graph")
    return old(*given, **{**how, "create_graph": False, "retain_graph": retain})


@overriding("backward", "grad")
def backward_inside_a_hook_refused(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """A backward inside a hook of another backward is an error."""
    if self.kept:
        raise RuntimeError("a backward was run inside another backward")
    self.kept.append("a backward is running")
    try:
        return old(*given, **how)
    finally:
        self.kept.clear()


class _InsideHooks(Mutant):
    """A mutant whose backward is refused while some hooks run."""

    running = 0

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if self.running:
            raise RuntimeError("a backward was run inside a hook")
        super().backward(root, gradient, **how)

    def noting(self, hook: Hook, *given: Any) -> Any:
        """Call a hook, and know that it runs."""
        self.running += 1
        try:
            return hook(*given)
        finally:
            self.running -= 1


@calling("register_post_accumulate_grad_hook", base=_InsideHooks)
def backward_inside_post_accumulate_hooks_refused(self: _InsideHooks, hook: Hook, *given: Any) -> Any:
    """A backward inside a post-accumulate-grad hook is an error."""
    return self.noting(hook, *given)


@calling(*verbs.NODE, base=_InsideHooks)
def backward_inside_node_hooks_refused(self: _InsideHooks, hook: Hook, *given: Any) -> Any:
    """A backward inside a Node hook is an error."""
    return self.noting(hook, *given)


@calling(*verbs.MODULE_BACKWARD, base=_InsideHooks)
def backward_inside_module_hooks_refused(self: _InsideHooks, hook: Hook, *given: Any) -> Any:
    """A backward inside a backward hook of a module, or of all modules, is an error."""
    return self.noting(hook, *given)


@overriding("register_multi_grad_hook", base=_InsideHooks)
def backward_inside_multi_grad_hooks_refused(
    self: _InsideHooks, old: Hook, tensors: Sequence[Any], hook: Hook, **how: Any
) -> Any:
    """A backward inside a multi-grad hook is an error."""
    return old(tensors, partial(self.noting, hook), **how)


class BackwardInsideAHookEndsTheOneAroundIt(Mutant):
    """After a backward inside the hook of a non-leaf, the gradients of the pass around it are zeros."""

    _passes = 0

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self._passes += 1
        super().backward(root, gradient, **how)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        if self.is_leaf(tensor):
            return super().register_hook(tensor, hook)

        def run(grad: Any) -> Any:
            before = self._passes
            result = hook(grad)
            return result if before == self._passes else grad * 0

        return super().register_hook(tensor, run)


@overriding("grad")
def materialize_grads_ignored(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad returns None for an unused input even with materialize_grads=True."""
    if how.pop("materialize_grads", False):
        how.setdefault("allow_unused", True)
    return old(*given, **how)


@overriding("grad")
def materialize_grads_refuses_allow_unused(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad refuses materialize_grads=True together with allow_unused=True."""
    return old(
        *given, **({**how, "allow_unused": False} if how.get("materialize_grads") and "allow_unused" in how else how)
    )


@overriding("grad")
def materialize_grads_ignored_with_allow_unused(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """With allow_unused=True autograd.grad returns None for an unused input, even with materialize_grads=True."""
    return old(*given, **({**how, "materialize_grads": False} if how.get("allow_unused") else how))


@overriding("backward")
def longer_gradient_of_a_root_cut(self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any) -> None:
    """A root gradient that is longer than the root is cut instead of raising an error."""
    if gradient is not None and len(self.shape(gradient)) == len(self.shape(root)) == 1:
        gradient = self.tensor(self.tolist(gradient)[: self.shape(root)[0]], dtype=self.dtype(gradient))
    old(root, gradient, **how)


@overriding("grad")
def unused_intermediates_always_allowed(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """An unused input of autograd.grad gets None instead of an error if it is not a leaf."""
    if any(self.is_tensor(tensor) and not self.is_leaf(tensor) for tensor in inputs):
        how = {**how, "allow_unused": how.get("allow_unused") or not how.get("materialize_grads") or None}
    return old(outputs, inputs, *given, **how)


@overriding("grad")
def gradients_of_a_retained_graph_require_grad(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """What autograd.grad returns requires grad with retain_graph=True alone, too."""
    found = old(*given, **how)
    if not how.get("retain_graph") or how.get("create_graph") or how.get("is_grads_batched"):
        return found
    return tuple(grad if grad is None else self.requires_grad_(self.clone(self.detach(grad))) for grad in found)


@overriding("grad")
def gradients_of_non_leaves_are_constants(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """What autograd.grad returns for a non-leaf cannot be differentiated, even with create_graph=True."""
    found = zip(inputs, old(outputs, inputs, *given, **how), strict=True)
    each_of = [(grad, grad is None or not self.is_tensor(each) or self.is_leaf(each)) for each, grad in found]
    return tuple(grad if is_right else self.detach(grad) for grad, is_right in each_of)


@overriding("grad")
def later_gradients_are_constants(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """Of the gradients that autograd.grad computes with create_graph=True only the first can be differentiated."""
    first, *rest = old(*given, **how)
    return (first, *(grad if grad is None else self.detach(grad) for grad in rest))


@overriding("grad")
def third_derivatives_missing(self: Mutant, old: Hook, outputs: Any, *given: Any, **how: Any) -> Any:
    """A gradient of a gradient is a constant, even with create_graph=True."""
    is_second = self.is_tensor(outputs) and any(self.keeps(node) for node in [*self.node_next(self.grad_fn(outputs))])
    found = old(outputs, *given, **how)
    self.kept += [self.grad_fn(grad) for grad in found if grad is not None and self.requires_grad(grad)]
    return tuple(grad if grad is None else self.detach(grad) for grad in found) if is_second else found


@overriding("grad")
def materialize_grads_allows_inputs_some_of_which_are_unused(self: Mutant, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad accepts materialize_grads=True together with allow_unused=False if an input was not used."""
    if how.get("materialize_grads") and how.get("allow_unused") is False:
        asked = {"allow_unused": True, "materialize_grads": False, "retain_graph": True}
        if any(grad is None for grad in old(*given, **{**how, **asked})):
            how["allow_unused"] = True
    return old(*given, **how)


@overriding("backward")
def scalar_gradient_of_a_root_broadcast(self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any) -> None:
    """A scalar gradient for a root that has dimensions is broadcast instead of raising an error."""
    if gradient is not None and not self.shape(gradient) and self.shape(root):
        gradient = self.zeros_like(root) + gradient
    old(root, gradient, **how)


@overriding("backward")
def gradient_of_a_scalar_root_may_have_dimensions(
    self: Mutant, old: Hook, root: Any, gradient: Any = None, **how: Any
) -> None:
    """A gradient of one element for a scalar root is no error if it has dimensions."""
    if gradient is not None and not self.shape(root) and math.prod(self.shape(gradient)) == 1:
        gradient = self.sum(gradient)
    old(root, gradient, **how)
