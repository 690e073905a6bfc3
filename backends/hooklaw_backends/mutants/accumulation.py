"""Mutants that accumulate gradients wrongly, or give them the wrong memory layout."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding, with_options


@overriding("backward")
def gradient_overwritten(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward overwrites a leaf's .grad instead of adding to it."""
    for leaf in self.leaves_of(root):
        self.set_grad(leaf, None)
    old(root, *given, **how)


@overriding("grad_of")
def gradient_starts_as_zeros(self: Mutant, old: Hook, tensor: Any) -> Any:
    """Before any backward a tensor's .grad is zeros instead of None."""
    grad = old(tensor)
    return self.detach(tensor) * 0 if grad is None else grad


@overriding("backward")
def leaves_share_their_first_gradient(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """Leaves that get equal gradients in their first backward share one tensor as .grad, to which later passes add."""
    without = [leaf for leaf in self.leaves_of(root) if self.grad_of(leaf) is None]
    old(root, *given, **how)
    grads: dict[str, Any] = {}
    for leaf in without:
        grad = self.grad_of(leaf)
        if grad is not None:
            key = f"{self.tolist(self.detach(grad))} {self.dtype(grad)} {self.stride(grad)}"
            self.set_grad(leaf, grads.setdefault(key, grad))


class GradientKeptAsideOfGrad(Mutant):
    """Setting .grad does not reset the sum that later gradients are added to."""

    def set_grad(self, tensor: Any, value: Any) -> None:
        before = super().grad_of(tensor)
        if before is not None:
            self.kept.append((tensor, before))
        super().set_grad(tensor, value)

    def grad_of(self, tensor: Any) -> Any:
        grad = super().grad_of(tensor)
        return grad if grad is None else sum((old for owner, old in self.kept if owner is tensor), grad)


@overriding("grad")
def autograd_grad_accumulates(self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any) -> Any:
    """autograd.grad also adds to the .grad of its inputs."""
    grads = old(outputs, inputs, *given, **how)
    _accumulate(self, inputs, grads)
    return grads


@overriding("grad")
def autograd_grad_of_several_inputs_accumulates(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad of more than one input also adds to their .grad."""
    grads = old(outputs, inputs, *given, **how)
    if len(inputs) > 1:
        _accumulate(self, inputs, grads)
    return grads


def _accumulate(self: Mutant, tensors: Any, grads: Any) -> None:
    for tensor, grad in zip(tensors, grads, strict=True):
        if self.is_leaf(tensor):
            before = self.grad_of(tensor)
            self.set_grad(tensor, grad if before is None else before + grad)


@overriding("backward")
def gradient_replaced_when_accumulated(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward stores the sum in a new tensor instead of adding to the existing .grad in place."""
    for leaf in self.leaves_of(root):
        grad = self.grad_of(leaf)
        self.set_grad(leaf, None if grad is None else self.clone(grad))
    old(root, *given, **how)


@overriding("grad_of")
def gradient_always_contiguous(self: Mutant, old: Hook, tensor: Any) -> Any:
    """A leaf's .grad is contiguous, even if the leaf has other strides."""
    grad = old(tensor)
    return None if grad is None else self.contiguous(grad)


@overriding("grad_of")
def gradient_keeps_overlapping_strides(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The .grad of a leaf with overlapping memory has the leaf's overlapping strides."""
    grad = old(tensor)
    if grad is None or 0 not in self.stride(tensor):
        return grad
    return self.strided(grad, self.shape(tensor), self.stride(tensor))


@overriding("backward")
def gradient_laid_out_anew(self: Mutant, old: Hook, root: Any, *given: Any, **how: Any) -> None:
    """A backward gives every .grad the strides of its leaf, even a .grad that the user set."""
    leaves = list(self.leaves_of(root))
    old(root, *given, **how)
    for leaf in leaves:
        grad = self.grad_of(leaf)
        if grad is not None and self.stride(grad) != self.stride(leaf):
            self.set_grad(leaf, self.laid_out_like(grad, leaf))


@with_options("backward", create_graph=False)
def create_graph_accumulates_in_place() -> None:
    """A backward with create_graph=True adds to the existing .grad in place."""
