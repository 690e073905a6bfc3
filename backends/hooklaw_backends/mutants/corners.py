"""Mutants that are wrong in a corner only: for one count, dtype or layout, in one thread, or at one moment."""

import math
import threading
from collections import Counter
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling, fresh, overriding


@overriding("grad_of")
def gradient_keeps_gaps(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The .grad of a leaf whose memory has gaps has the same gaps."""
    grad = old(tensor)
    strides, shape = self.stride(tensor), self.shape(tensor)
    needed = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    size = 1
    for each in shape:
        size *= each
    if grad is None or 0 in strides or needed <= size:
        return grad
    made = self.strided(self.tensor([0.0] * needed), shape, strides)
    self.overwrite(made, grad)
    return made


class GradientMadeAnewKeepsGaps(gradient_keeps_gaps):
    """The .grad of a leaf whose memory has gaps has the same gaps if it replaces one that was set to None."""

    def set_grad(self, tensor: Any, value: Any) -> None:
        self.kept += [tensor] * (value is None and self.grad_of(tensor) is not None)
        super().set_grad(tensor, value)

    def grad_of(self, tensor: Any) -> Any:
        return super().grad_of(tensor) if self.keeps(tensor) else super(gradient_keeps_gaps, self).grad_of(tensor)


class GradientReplacedInTheThirdPass(Mutant):
    """The third backward puts the sum into a new .grad instead of adding in place."""

    _passes = fresh(Counter[int])

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        for leaf in self.leaves_of(root):
            self.kept.append(leaf)
            self._passes[id(leaf)] += 1
            if self._passes[id(leaf)] == len("abc") and self.grad_of(leaf) is not None:
                self.set_grad(leaf, self.detach(self.clone(self.grad_of(leaf))))
        super().backward(root, gradient, **how)


@overriding("increment_version")
def a_single_increment_is_lost(self: Mutant, old: Hook, tensors: Any) -> None:
    """increment_version has an effect from the second call on."""
    if self.keeps(self.increment_version):
        old(tensors)
    self.kept.append(self.increment_version)


@calling("node_register_prehook", "node_register_hook")
def fewer_gradients_of_a_node_hook_padded(self: Mutant, hook: Hook, grads: Any, *rest: Any) -> Any:
    """If a Node hook returns too few gradients, the rest stay as they are."""
    result = hook(grads, *rest)
    return (*result, *grads[len(result) :]) if isinstance(result, tuple) else result


class NodeMetadataShared(Mutant):
    """All Nodes share one dict for metadata."""

    _shared = fresh(dict[Any, Any])

    def node_metadata(self, node: Any) -> dict[Any, Any]:
        return self._shared


@overriding("node_next")
def next_functions_lead_to_the_leaves(self: Mutant, old: Hook, node: Any) -> list[Any]:
    """A Node's next_functions are the AccumulateGrad Nodes of the leaves behind it."""
    found = []
    for after in filter(None, old(node)):
        found += [after] if self.leaf_of(after) is not None else self.node_next(after)
    return found


class _RetainsLater(Mutant):
    """A mutant that notes a retained gradient, and sets .grad later."""

    _noted = fresh(list[tuple[Any, Any]])

    def retain_grad(self, tensor: Any) -> None:
        if self.is_leaf(tensor):
            super().retain_grad(tensor)
        elif not self.keeps(tensor):
            self.kept.append(tensor)
            self.register_hook(tensor, lambda grad: self._noted.append((tensor, grad)))
            self.prepare(tensor)

    def retains_grad(self, tensor: Any) -> bool:
        return self.keeps(tensor) or super().retains_grad(tensor)

    def prepare(self, tensor: Any) -> None:
        raise NotImplementedError

    def set_noted(self) -> None:
        while self._noted:
            tensor, grad = self._noted.pop()
            before = self.grad_of(tensor)
            self.set_grad(tensor, self.clone(grad) if before is None else before + grad)


class RetainGradAfterExecution(_RetainsLater):
    """A retained gradient is set after the tensor's grad_fn was executed."""

    def prepare(self, tensor: Any) -> None:
        self.node_register_hook(self.grad_fn(tensor), lambda *_: self.set_noted())


class RetainedGradientsSetAfterThePass(_RetainsLater):
    """Retained gradients are set when the whole backward is over."""

    def prepare(self, tensor: Any) -> None:
        pass

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        self.set_noted()


@overriding("detach_")
def detach_in_place_detaches_a_copy(self: Mutant, old: Hook, tensor: Any) -> Any:
    """detach_ leaves its tensor in the graph."""
    return old(self.clone(tensor))


class ChangesOfViewedTensorsRefused(Mutant):
    """A tensor of which there is a view cannot be changed in place."""

    def view(self, tensor: Any, *shape: int) -> Any:
        self.kept.append(tensor)
        return super().view(tensor, *shape)

    def mul_(self, tensor: Any, factor: Any) -> Any:
        if self.keeps(tensor):
            raise RuntimeError("another tensor shares the storage")
        return super().mul_(tensor, factor)


@calling("register_hook")
def hooks_are_given_a_copy(self: Mutant, hook: Hook, grad: Any) -> Any:
    """A tensor hook gets a copy of the gradient."""
    return hook(self.clone(grad))


@calling("register_hook")
def hooks_of_float64_tensors_see_float32(self: Mutant, hook: Hook, grad: Any) -> Any:
    """A tensor hook gets its gradient in float32, even that of a float64 tensor."""
    return hook(self.cast(grad, "float32"))


@altering("register_hook")
def hooks_of_non_leaves_see_rounded_gradients(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """The gradient that a non-leaf's hook gets was rounded to float32 on its way, even that of a float64 tensor."""
    if self.is_leaf(tensor) or self.dtype(tensor) != "float64":
        return hook
    return lambda grad: hook(self.cast(self.cast(grad, "float32"), "float64"))


@overriding("view")
def views_are_constants(self: Mutant, old: Hook, tensor: Any, *shape: int) -> Any:
    """No gradient flows through a view."""
    return self.detach(old(tensor, *shape))


class ViewOfAShapeMadeOnce(Mutant):
    """A second view of a tensor with the same shape is the first view."""

    def view(self, tensor: Any, *shape: int) -> Any:
        for base, its, made in self.kept:
            if base is tensor and its == shape:
                return made
        self.kept.append((tensor, shape, super().view(tensor, *shape)))
        return self.kept[-1][-1]


class HookOnAViewIsOnItsBase(Mutant):
    """A hook that is registered on a view is registered on its base."""

    def view(self, tensor: Any, *shape: int) -> Any:
        self.kept.append((tensor, super().view(tensor, *shape)))
        return self.kept[-1][-1]

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        base = next((base for base, made in self.kept if made is tensor), tensor)
        return super().register_hook(base, hook)


class OnlyGivenDataMakesLeaves(Mutant):
    """Only a tensor that was made from data is a leaf."""

    def tensor(self, data: Any, **how: Any) -> Any:
        made = super().tensor(data, **how)
        self.kept.append(made)
        return made

    def is_leaf(self, tensor: Any) -> bool:
        return super().is_leaf(tensor) and self.keeps(tensor)


class BackwardPassesTakeTurns(Mutant):
    """A backward waits until no other thread runs one."""

    _turn = fresh(threading.RLock)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        with self._turn:
            super().backward(root, gradient, **how)


@calling("node_register_prehook", "node_register_hook")
def some_gradients_of_a_node_hook_padded(self: Mutant, hook: Hook, grads: Any, *rest: Any) -> Any:
    """If a Node hook returns some gradients, but too few, the rest stay as they are."""
    result = hook(grads, *rest)
    return (*result, *grads[len(result) :]) if isinstance(result, tuple) and result else result


@calling("node_register_prehook")
def some_gradients_of_a_node_pre_hook_padded(self: Mutant, hook: Hook, grads: Any) -> Any:
    """If a Node pre-hook returns some gradients, but too few, the rest stay as they are."""
    result = hook(grads)
    return (*result, *grads[len(result) :]) if isinstance(result, tuple) and result else result


@overriding("grad_of")
def gradient_with_gaps_closed_up_keeps_the_order_of_its_strides(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The .grad of a leaf whose memory overlaps or has gaps is dense, but its strides have the order of the leaf's."""
    grad = old(tensor)
    strides, shape = self.stride(tensor), self.shape(tensor)
    dense = (1, *shape[:-1])
    if grad is None or len(shape) != len("ab") or strides == dense or strides[0] >= strides[1]:
        return grad
    made = self.strided(self.tensor([0.0] * math.prod(shape)), shape, dense)
    self.overwrite(made, grad)
    return made
