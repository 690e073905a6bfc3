"""Mutants that execute too many or too few Nodes when a pass is limited to some tensors."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import (
    NODE_HOOKS,
    Hook,
    InBackward,
    InGrad,
    Mutant,
    altering,
    calling,
    fresh,
    overriding,
)


class _KnowsNodeHooks(Mutant):
    """A mutant that knows the hooks of every Node."""

    pre = fresh(list[tuple[Any, Hook]])
    post = fresh(list[tuple[Any, Hook]])

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        self.pre.append((node, hook))
        return super().node_register_prehook(node, hook)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        self.post.append((node, hook))
        return super().node_register_hook(node, hook)


@overriding("grad", base=_KnowsNodeHooks)
def autograd_grad_executes_the_nodes_of_its_inputs(
    self: _KnowsNodeHooks, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad runs the Node hooks of its inputs, although their Nodes need not be executed."""
    grads = old(outputs, inputs, *given, **how)
    for tensor, grad in zip(inputs, grads, strict=True):
        for hook in [hook for node, hook in self.pre if node is self.gradient_edge(tensor)[0]]:
            hook((grad,))
        for hook in [hook for node, hook in self.post if node is self.gradient_edge(tensor)[0]]:
            hook((), (grad,))
    return grads


class NodePreHookChangesCapturedGradient(_KnowsNodeHooks):
    """Node pre-hooks change the gradient that autograd.grad returns for the tensor."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
        return tuple(self._through(tensor, grad) for tensor, grad in zip(inputs, grads, strict=True))

    def _through(self, tensor: Any, grad: Any) -> Any:
        for node, hook in self.pre:
            if not self.is_leaf(tensor) and node is self.gradient_edge(tensor)[0]:
                result = hook((grad,))
                grad = grad if result is None else result[0]
        return grad


@calling(*NODE_HOOKS, base=InGrad)
def autograd_grad_never_runs_node_hooks(self: InGrad, hook: Hook, *grads: Any) -> Any:
    """autograd.grad runs no Node hooks."""
    return None if self.inputs else hook(*grads)


@altering(*NODE_HOOKS, base=InBackward)
def backward_inputs_skip_accumulate_grad_hooks(self: InBackward, node: Any, hook: Hook) -> Hook:
    """A backward with inputs skips the hooks on AccumulateGrad Nodes."""
    return lambda *grads: None if self.is_limited and self.leaf_of(node) is not None else hook(*grads)


@altering(*NODE_HOOKS, base=InBackward)
def backward_spares_the_nodes_of_its_inputs(self: InBackward, node: Any, hook: Hook) -> Hook:
    """A backward with inputs skips the hooks on the Nodes of non-leaf tensors."""
    return lambda *grads: None if self.is_limited and self.leaf_of(node) is None else hook(*grads)
