"""Mutants that retain the gradient of a non-leaf tensor wrongly, or not at all."""

import weakref
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding, products
from hooklaw_backends.mutants.shared import Handle, move_to_front, without_result


@products
def every_intermediate_gradient_retained(self: Mutant, multiply: Hook, left: Any, right: Any) -> Any:
    """Every product retains its gradient, even without retain_grad."""
    product = multiply(left, right)
    if self.requires_grad(product):
        self.retain_grad(product)
    return product


@overriding("backward")
def root_gets_its_gradient(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """The root of a backward gets its gradient in .grad, even without retain_grad."""
    if not self.is_leaf(root):
        self.retain_grad(root)
    old(root, *given, **how)


@overriding("retain_grad")
def retain_grad_on_leaf_raises(self: Mutant, old: Hook, tensor: Any) -> None:
    """retain_grad on a leaf is an error."""
    if self.is_leaf(tensor):
        raise RuntimeError("retain_grad was called on a leaf")
    old(tensor)


@overriding("retain_grad")
def retain_grad_counts_leaf_twice(self: Mutant, old: Hook, tensor: Any) -> None:
    """After retain_grad a leaf's gradient is counted twice."""
    if self.is_leaf(tensor):
        self.register_hook(tensor, lambda grad: grad * 2)
    else:
        old(tensor)


@overriding("retain_grad")
def retain_grad_overwrites_the_grad_of_a_leaf(self: Mutant, old: Hook, tensor: Any) -> None:
    """After retain_grad each backward overwrites a leaf's .grad instead of adding to it."""
    if self.is_leaf(tensor):
        self.register_hook(tensor, lambda _: self.set_grad(tensor, None))
    else:
        old(tensor)


@overriding("retain_grad")
def retain_grad_on_a_leaf_resets_its_grad(self: Mutant, old: Hook, tensor: Any) -> None:
    """retain_grad on a leaf sets its .grad to None."""
    old(tensor)
    if self.is_leaf(tensor):
        self.set_grad(tensor, None)


@overriding("retain_grad")
def retain_grad_on_a_leaf_with_a_gradient_raises(self: Mutant, old: Hook, tensor: Any) -> None:
    """retain_grad on a leaf that has a gradient is an error."""
    if self.is_leaf(tensor) and self.grad_of(tensor) is not None:
        raise RuntimeError("retain_grad was called on a leaf that has a gradient")
    old(tensor)


class _KnowsRetainingLeaves(Mutant):
    """A mutant that keeps the leaves on which retain_grad was called."""

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        if self.is_leaf(tensor):
            self.kept.append(tensor)


@overriding("grad", base=_KnowsRetainingLeaves)
def autograd_grad_fills_a_leaf_that_retains(
    self: _KnowsRetainingLeaves, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """After retain_grad autograd.grad sets the .grad of a leaf."""
    grads = old(outputs, inputs, *given, **how)
    for tensor, grad in zip(inputs, grads, strict=True):
        if self.keeps(tensor):
            self.set_grad(tensor, self.detach(grad))
    return grads


@overriding("register_hook", base=_KnowsRetainingLeaves)
def hooks_after_retain_grad_on_a_leaf_lost(self: _KnowsRetainingLeaves, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A tensor hook that is registered on a leaf after retain_grad does not run."""
    return Handle() if self.keeps(tensor) else old(tensor, hook)


@overriding("register_hook", base=_KnowsRetainingLeaves)
def hooks_after_retain_grad_on_a_leaf_ignored(self: _KnowsRetainingLeaves, old: Hook, tensor: Any, hook: Hook) -> Any:
    """What a tensor hook returns that is registered on a leaf after retain_grad is ignored."""
    return old(tensor, without_result(hook) if self.keeps(tensor) else hook)


@overriding("retains_grad")
def retains_grad_true_for_leaf(self: Mutant, old: Hook, tensor: Any) -> bool:
    """retains_grad of a leaf is True."""
    return self.is_leaf(tensor) or old(tensor)


class RetainsGradFalseAfterBackward(Mutant):
    """retains_grad is False after a backward."""

    ran = False

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        self.ran = True

    def retains_grad(self, tensor: Any) -> bool:
        return not self.ran and super().retains_grad(tensor)


class RetainsGradOfOneTrueForAll(Mutant):
    """After retain_grad on a non-leaf, retains_grad of every non-leaf is True."""

    called = False

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        self.called = self.called or not self.is_leaf(tensor)

    def retains_grad(self, tensor: Any) -> bool:
        return (self.called and not self.is_leaf(tensor)) or super().retains_grad(tensor)


class RetainsGradOfADetachedTensorIsThatOfItsSource(Mutant):
    """retains_grad is True for what detach returns of a tensor that retains its gradient."""

    _detached = fresh(list[weakref.ref[Any]])

    def detach(self, tensor: Any) -> Any:
        detached = super().detach(tensor)
        if _retains(self, tensor):
            self._detached.append(weakref.ref(detached))
        return detached

    def retains_grad(self, tensor: Any) -> bool:
        return any(alive() is tensor for alive in self._detached) or super().retains_grad(tensor)


class RetainsGradOfOneOutputTrueForTheOthers(Mutant):
    """After retain_grad on an output of a Node, retains_grad is True for all its outputs."""

    _mark = "an output retains its gradient"

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        if not self.is_leaf(tensor):
            self.node_metadata(self.grad_fn(tensor))[self._mark] = True

    def retains_grad(self, tensor: Any) -> bool:
        is_marked = not self.is_leaf(tensor) and self._mark in self.node_metadata(self.grad_fn(tensor))
        return is_marked or super().retains_grad(tensor)


@overriding("retain_grad")
def retain_grad_without_gradient_ignored(self: Mutant, old: Hook, tensor: Any) -> None:
    """retain_grad on a tensor that does not require grad is not an error."""
    if self.requires_grad(tensor):
        old(tensor)


@overriding("retain_grad")
def node_keeps_the_tensor_that_retains(self: Mutant, old: Hook, tensor: Any) -> None:
    """A tensor that retains its gradient stays alive as long as its Node."""
    old(tensor)
    if not self.is_leaf(tensor):
        self.node_metadata(self.grad_fn(tensor))["retains"] = tensor


def _add_by_a_hook(self: Mutant, tensor: Any) -> Any:
    """Register a hook that adds the gradient to the tensor's .grad."""

    def add(grad: Any) -> None:
        before = self.grad_of(tensor)
        self.set_grad(tensor, self.clone(grad) if before is None else before + grad)

    return self.register_hook(tensor, add)


@overriding("retain_grad")
def retain_grad_is_an_ordinary_tensor_hook(self: Mutant, old: Hook, tensor: Any) -> None:
    """retain_grad acts as an ordinary tensor hook, in registration order, and misses later in-place changes."""
    if not self.is_leaf(tensor) and not self.keeps(tensor):
        self.kept.append(tensor)
        _add_by_a_hook(self, tensor)


@overriding("retain_grad")
def retain_grad_before_tensor_hooks(self: Mutant, old: Hook, tensor: Any) -> None:
    """The gradient is retained before all tensor hooks run."""
    if not self.is_leaf(tensor):
        handle = _add_by_a_hook(self, tensor)
        move_to_front(self.hooks_of(tensor), handle.id)


@overriding("retain_grad")
def repeated_retain_grad_adds_up(self: Mutant, old: Hook, tensor: Any) -> None:
    """Calling retain_grad twice counts the gradient twice."""
    if not self.is_leaf(tensor):
        _add_by_a_hook(self, tensor)


def _retains(self: Mutant, tensor: Any) -> bool:
    return not self.is_leaf(tensor) and self.retains_grad(tensor)


@overriding("retain_grad")
def retain_grad_again_resets_grad(self: Mutant, old: Hook, tensor: Any) -> None:
    """Calling retain_grad again sets the .grad of its tensor to None."""
    again = _retains(self, tensor)
    old(tensor)
    if again:
        self.set_grad(tensor, None)


@overriding("retain_grad")
def retain_grad_again_after_a_backward_adds_up(self: Mutant, old: Hook, tensor: Any) -> None:
    """Calling retain_grad again after a backward counts the gradient twice in the next one."""
    again = _retains(self, tensor) and self.grad_of(tensor) is not None
    old(tensor)
    if again:
        _add_by_a_hook(self, tensor)


class _RetainedByUs(Mutant):
    """A mutant that keeps the tensors that retain their gradient."""

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        self.kept.append(tensor)

    def clear(self) -> None:
        for tensor in self.kept:
            self.set_grad(tensor, None)


@overriding("backward", base=_RetainedByUs)
def retained_gradient_overwritten(self: _RetainedByUs, old: Hook, *given: Any, **how: Any) -> None:
    """A retained gradient is overwritten by the next backward instead of accumulated."""
    self.clear()
    old(*given, **how)


@overriding("grad", base=_RetainedByUs)
def retain_grad_only_in_backward(self: _RetainedByUs, old: Hook, *given: Any, **how: Any) -> Any:
    """autograd.grad does not fill retained gradients."""
    grads = old(*given, **how)
    self.clear()
    return grads


@overriding("backward")
def retained_gradient_of_the_root_lost(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """backward leaves no retained gradient in its root."""
    old(root, *given, **how)
    if self.retains_grad(root):
        self.set_grad(root, None)


@overriding("backward_from_all")
def retained_gradient_of_a_root_is_the_given_one(
    self: Mutant, old: Hook, roots: Sequence[Any], gradients: Sequence[Any] | None = None
) -> None:
    """A root of several retains the gradient that is given for it, without what comes from the others."""
    old(roots, gradients)
    for root, gradient in zip(roots, gradients or (), strict=False):
        if gradient is not None and self.is_tensor(root) and not self.is_leaf(root) and self.retains_grad(root):
            self.set_grad(root, gradient)


@overriding("backward_from_all")
def retained_gradients_of_later_roots_lost(self: Mutant, old: Hook, roots: Sequence[Any], *given: Any) -> None:
    """Of several roots only the first retains its gradient."""
    old(roots, *given)
    for root in roots[1:]:
        if not self.is_leaf(root) and self.retains_grad(root):
            self.set_grad(root, None)


class RetainGradSharedByTheNode(Mutant):
    """retain_grad on one output of a Node retains the gradients of its other outputs too."""

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        self.kept = list(super().split(tensor, size))
        return tuple(self.kept)

    def retain_grad(self, tensor: Any) -> None:
        for each in self.kept if self.keeps(tensor) else [tensor]:
            super().retain_grad(each)


class RetainGradAfterUseHasNoEffect(Mutant):
    """retain_grad has no effect on a tensor that was a factor of a product before."""

    _used = fresh(list[weakref.ref[Any]])

    def call(self, fn: Hook, *tensors: Any) -> Any:
        def multiply(original: Hook, left: Any, right: Any) -> Any:
            self._used += [weakref.ref(factor) for factor in (left, right) if self.is_tensor(factor)]
            return original(left, right)

        with self.products_by(multiply):
            return super().call(fn, *tensors)

    def retain_grad(self, tensor: Any) -> None:
        if self.is_leaf(tensor) or all(used() is not tensor for used in self._used):
            super().retain_grad(tensor)


class _KnowsRetaining(Mutant):
    """A mutant that knows the non-leaves that retain their gradient."""

    _retaining = fresh(list[weakref.ref[Any]])

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        if not self.is_leaf(tensor):
            self._retaining.append(weakref.ref(tensor))

    def retaining(self) -> Iterable[Any]:
        """Return those that are alive."""
        return [tensor for alive in self._retaining if (tensor := alive()) is not None]


@overriding("backward", base=_KnowsRetaining)
def retained_gradient_is_the_grad_of_a_leaf(
    self: _KnowsRetaining, old: Hook, root: Any, *given: Any, **how: Any
) -> None:
    """A first retained gradient and the equal first .grad of a leaf are one tensor, to which later passes add."""
    tensors = [tensor for tensor in self.retaining() if self.grad_of(tensor) is None]
    leaves = [leaf for leaf in self.leaves_of(root) if self.grad_of(leaf) is None] if tensors else []
    old(root, *given, **how)
    for tensor, leaf in product(tensors, () if how.get("create_graph") else leaves):
        grads = [self.grad_of(tensor), self.grad_of(leaf)]
        if all(grad is not None for grad in grads) and self.tolist(grads[0]) == self.tolist(grads[1]):
            self.set_grad(tensor, grads[1])


class RetainedGradientKeptAsideOfGrad(_KnowsRetaining):
    """Setting .grad to None does not reset the sum of a non-leaf's retained gradients."""

    _sums = fresh(list[tuple[Any, Any]])

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        for alive, before in self._sums:
            if alive() is not None and self.grad_of(alive()) is None:
                self.set_grad(alive(), before)
        super().backward(root, gradient, **how)
        sums = [(tensor, self.grad_of(tensor)) for tensor in self.retaining()]
        self._sums = [(weakref.ref(tensor), self.detach(grad)) for tensor, grad in sums if grad is not None]


class RetainedGradientLostWithARemovedHook(_KnowsRetaining):
    """A handle's remove also makes its tensor stop retaining its gradient."""

    _lost = fresh(list[weakref.ref[Any]])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle, alive = super().register_hook(tensor, hook), weakref.ref(tensor)
        return Handle(lambda: (self._lost.append(alive), handle.remove())[1])

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        for tensor in self.retaining():
            if any(tensor is alive() for alive in self._lost):
                self.set_grad(tensor, None)


@overriding("backward")
def retained_gradient_of_the_root_overwritten(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """The retained gradient of a backward's root is overwritten by the next backward from it."""
    if self.is_tensor(root) and not self.is_leaf(root) and self.retains_grad(root):
        self.set_grad(root, None)
    old(root, *given, **how)


@overriding("backward", base=_KnowsRetaining)
def retained_gradients_are_constants(self: _KnowsRetaining, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """The gradient that is retained in a backward with create_graph=True cannot be differentiated."""
    old(root, *given, **how)
    for tensor in self.retaining() if how.get("create_graph") else ():
        if self.grad_of(tensor) is not None:
            self.set_grad(tensor, self.detach(self.grad_of(tensor)))


class _RetainingSometimes(Mutant):
    """A mutant some of whose passes set no retained gradient."""

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        self.kept.append(weakref.ref(tensor))

    def without_retaining(self, run: Hook, *given: Any, **how: Any) -> None:
        """Run a pass after which the .grad of each non-leaf that retains it is as before."""
        before = [(each, self.grad_of(each())) for each in self.kept if each() is not None and not self.is_leaf(each())]
        run(*given, **how)
        for each, grad in before:
            self.set_grad(each(), grad)


@overriding("backward_from_all", base=_RetainingSometimes)
def several_roots_retain_no_gradients(self: _RetainingSometimes, old: Hook, *given: Any) -> None:
    """A backward from several roots sets no retained gradient."""
    self.without_retaining(old, *given)


@overriding("backward_from_edge", base=_RetainingSometimes)
def edges_retain_no_gradients(self: _RetainingSometimes, old: Hook, *given: Any) -> None:
    """A backward from a gradient edge sets no retained gradient."""
    self.without_retaining(old, *given)


@overriding("backward", base=_RetainingSometimes)
def passes_with_a_gradient_retain_no_gradients(
    self: _RetainingSometimes, old: Hook, root: Any, gradient: Any = None, **how: Any
) -> None:
    """A backward that is given the gradient of its root sets no retained gradient."""
    if gradient is None:
        old(root, **how)
    else:
        self.without_retaining(old, root, gradient, **how)


class ViewsRetainNoGradient(Mutant):
    """A view that retains its gradient gets none."""

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        if not self.is_leaf(tensor) and self.is_lost(tensor):
            self.kept.append(weakref.ref(tensor))

    def is_lost(self, tensor: Any) -> bool:
        return self.base_of(tensor) is not None

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        for tensor in [alive for each in self.kept if (alive := each()) is not None]:
            self.set_grad(tensor, None)


class LaterOutputsRetainNoGradient(ViewsRetainNoGradient):
    """An output of an operation that is not the first gets no gradient, even if it retains it."""

    def is_lost(self, tensor: Any) -> bool:
        return self.gradient_edge(tensor)[1] > 0
