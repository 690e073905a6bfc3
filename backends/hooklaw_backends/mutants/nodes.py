"""Mutants whose Nodes are wrong, or whose Node hooks are."""

from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, InBackward, Mutant, NodeHooks, without_result


class NextFunctionsEmpty(Mutant):
    """A Node's next_functions is empty."""

    def node_next(self, node: Any) -> list[Any]:  # noqa: ARG002 - that is the vice
        return []


class LeafHasAGradFn(Mutant):
    """The grad_fn of a leaf is its AccumulateGrad Node."""

    def grad_fn(self, tensor: Any) -> Any:
        return self.accumulate_grad(tensor) if self.is_leaf(tensor) else super().grad_fn(tensor)


class NodeMetadataMadeAnew(Mutant):
    """A Node's metadata is a new dict at each access."""

    def node_metadata(self, node: Any) -> dict[Any, Any]:
        return dict(super().node_metadata(node))


class NodePostHookArgumentsSwapped(NodeHooks):
    """A Node post-hook gets grad_inputs and grad_outputs swapped."""

    def altered_post(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grad_inputs, grad_outputs: hook(grad_outputs, grad_inputs)


class NodePostHookGetsLists(NodeHooks):
    """A Node post-hook gets lists instead of tuples."""

    def altered_post(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grad_inputs, grad_outputs: hook(list(grad_inputs), list(grad_outputs))


class NodePostHookReplacementNotPropagated(NodeHooks):
    """The return value of a Node post-hook is ignored."""

    def altered_post(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return without_result(hook)


class NodePostHookSeesTheRawGradient(NodeHooks):
    """A Node post-hook gets grad_outputs from before the Node's pre-hooks."""

    def __init__(self) -> None:
        super().__init__()
        self._raw: dict[Any, Any] = {}

    def altered_pre(self, node: Any, hook: Hook) -> Hook:
        return lambda grads: (self._raw.setdefault(node, grads), hook(grads))[1]

    def altered_post(self, node: Any, hook: Hook) -> Hook:
        return lambda grad_inputs, grad_outputs: hook(grad_inputs, self._raw.get(node, grad_outputs))


class NodePostHookBeforeExecution(Mutant):
    """A Node post-hook runs before the Node is executed."""

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_prehook(node, without_result(lambda grads: hook((), grads)))


class NodePostHookBeforePostAccumulate(Mutant):
    """A post-hook on an AccumulateGrad Node runs before the leaf's post-accumulate hooks."""

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        leaf = self.leaf_of(node)
        if leaf is None:
            return super().node_register_hook(node, hook)
        early = super().register_post_accumulate_grad_hook
        return early(leaf, without_result(lambda leaf: hook((), (self.grad_of(leaf),))))


class LateNodePostHookWaitsForTheNextPass(InBackward):
    """A Node post-hook registered during a backward is lost."""

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_hook(node, hook) if self.root is None else Handle()


class AccumulateGradPassesTheSumOn(NodeHooks):
    """A post-hook on an AccumulateGrad Node gets the sum in .grad instead of this backward's gradient."""

    def altered_post(self, node: Any, hook: Hook) -> Hook:
        def summed(grads: Any) -> Any:
            leaf = self.leaf_of(node)
            return grads if leaf is None else (self.grad_of(leaf),)

        return lambda grad_inputs, grads: hook(grad_inputs, summed(grads))


class AccumulateGradLivesWithItsLeaf(Mutant):
    """A leaf's AccumulateGrad Node stays alive after its last reference is gone."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []

    def accumulate_grad(self, leaf: Any) -> Any:
        self._kept.append(super().accumulate_grad(leaf))
        return self._kept[-1]


class NodePreHookGetsABareTensor(NodeHooks):
    """A Node pre-hook gets the first gradient instead of a tuple."""

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grads: hook(grads[0])


class NodePreHookGetsGradInputs(Mutant):
    """A Node pre-hook gets the gradients that the Node computes instead of those it receives."""

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return super().node_register_hook(node, lambda grad_inputs, _: hook(grad_inputs))


class NodePreHookReplacementNotPropagated(NodeHooks):
    """The return value of a Node pre-hook is ignored."""

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return without_result(hook)


class NodePreHookBeforeTensorHook(Mutant):
    """A tensor's hooks run in registration order among the pre-hooks of its Node, not before them."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        node, place = self.gradient_edge(tensor)
        self._kept.append(node)

        def prehook(grads: Any) -> Any:
            result = hook(grads[place])
            return None if result is None else (*grads[:place], result, *grads[place + 1 :])

        return super().node_register_prehook(node, prehook)


class NodePreHookSeesTheRawGradient(NodeHooks):
    """A Node pre-hook gets the gradients from before the tensor hooks."""

    def __init__(self) -> None:
        super().__init__()
        self._raw: dict[Any, Any] = {}

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        node = self.grad_fn(tensor)
        return super().register_hook(tensor, lambda grad: (self._raw.setdefault(node, (grad,)), hook(grad))[1])

    def altered_pre(self, node: Any, hook: Hook) -> Hook:
        return lambda grads: hook(self._raw.get(node, grads))


class NodeHookReturnCountUnchecked(NodeHooks):
    """Surplus gradients that a Node hook returns are ignored instead of raising an error."""

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def cut(grads: Any, *rest: Any) -> Any:
            result = hook(grads, *rest)
            return result[: len(grads)] if isinstance(result, tuple) else result

        return cut

    altered_post = altered_pre


class NodeHookBareTensorAccepted(NodeHooks):
    """A Node hook may return a bare tensor instead of a tuple."""

    def altered_pre(self, node: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        def lenient(*grads: Any) -> Any:
            result = hook(*grads)
            return (result,) if self.is_tensor(result) else result

        return lenient

    altered_post = altered_pre
