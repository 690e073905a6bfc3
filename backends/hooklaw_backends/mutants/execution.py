"""Mutants that execute too many or too few Nodes when a pass is limited to some tensors."""

from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants.base import Hook, InGrad, Mutant, NodeHooks


class _KnowsNodeHooks(Mutant):
    """A mutant that knows the hooks of every Node."""

    def __init__(self) -> None:
        super().__init__()
        self.pre: list[tuple[Any, Hook]] = []
        self.post: list[tuple[Any, Hook]] = []

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        self.pre.append((node, hook))
        return super().node_register_prehook(node, hook)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        self.post.append((node, hook))
        return super().node_register_hook(node, hook)


class AutogradGradExecutesTheNodesOfItsInputs(_KnowsNodeHooks):
    """autograd.grad runs the Node hooks of its inputs, although their Nodes need not be executed."""

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        grads = super().grad(outputs, inputs, grad_outputs, **how)
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


class _SilencedNodeHooks(NodeHooks):
    """A mutant that can silence Node hooks for a while."""

    def silences(self, node: Any) -> bool:
        raise NotImplementedError

    def altered_pre(self, node: Any, hook: Hook) -> Hook:
        return lambda *grads: None if self.silences(node) else hook(*grads)

    def altered_post(self, node: Any, hook: Hook) -> Hook:
        return self.altered_pre(node, hook)


class AutogradGradNeverRunsNodeHooks(_SilencedNodeHooks, InGrad):
    """autograd.grad runs no Node hooks."""

    def silences(self, node: Any) -> bool:  # noqa: ARG002 - all Nodes alike
        return bool(self.inputs)


class _LimitedBackward(_SilencedNodeHooks):
    """A mutant that silences Node hooks during a backward with inputs."""

    silent = False

    def backward(self, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **how: Any) -> None:
        self.silent = inputs is not None
        try:
            super().backward(root, gradient, inputs=inputs, **how)
        finally:
            self.silent = False


class BackwardInputsSkipAccumulateGradHooks(_LimitedBackward):
    """A backward with inputs skips the hooks on AccumulateGrad Nodes."""

    def silences(self, node: Any) -> bool:
        return self.silent and self.leaf_of(node) is not None


class BackwardSparesTheNodesOfItsInputs(_LimitedBackward):
    """A backward with inputs skips the hooks on the Nodes of non-leaf tensors."""

    def silences(self, node: Any) -> bool:
        return self.silent and self.leaf_of(node) is None
