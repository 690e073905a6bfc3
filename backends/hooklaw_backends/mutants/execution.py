"""Mutants that execute too many or too few Nodes when a pass is limited to some tensors."""

import weakref
from collections.abc import Sequence
from typing import Any

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, InBackward, InGrad, Mutant, altering, calling, fresh, overriding


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

    def hooks_on(self, known: Sequence[tuple[Any, Hook]], tensor: Any) -> list[Hook]:
        """Return those of the known hooks that are on the Node of a tensor."""
        return [hook for node, hook in known if node is self.gradient_edge(tensor)[0]]

    def run_hooks_on(self, tensors: Sequence[Any], grads: Sequence[Any]) -> None:
        """Run the hooks on the Nodes of tensors as if the Nodes were executed with these gradients."""
        for tensor, grad in zip(tensors, grads, strict=True):
            for hook in self.hooks_on(self.pre, tensor):
                hook((grad,))
            for hook in self.hooks_on(self.post, tensor):
                hook((), (grad,))


@overriding("grad", base=_KnowsNodeHooks)
def autograd_grad_executes_the_nodes_of_its_inputs(
    self: _KnowsNodeHooks, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad runs the Node hooks of its inputs, although their Nodes need not be executed."""
    grads = old(outputs, inputs, *given, **how)
    self.run_hooks_on(inputs, grads)
    return grads


@overriding("grad", base=_KnowsNodeHooks)
def autograd_grad_executes_the_nodes_of_several_inputs(
    self: _KnowsNodeHooks, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad of more than one input runs their Node hooks, although their Nodes need not be executed."""
    grads = old(outputs, inputs, *given, **how)
    if len(inputs) > 1:
        self.run_hooks_on(inputs, grads)
    return grads


@overriding("grad", base=_KnowsNodeHooks)
def autograd_grad_executes_the_nodes_of_later_inputs(
    self: _KnowsNodeHooks, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad runs the Node hooks of all its inputs but the first, although their Nodes need not be executed."""
    grads = old(outputs, inputs, *given, **how)
    self.run_hooks_on(inputs[1:], grads[1:])
    return grads


@overriding("grad", base=_KnowsNodeHooks)
def node_pre_hook_changes_captured_gradient(
    self: _KnowsNodeHooks, old: Hook, outputs: Any, inputs: Any, *given: Any, **how: Any
) -> Any:
    """Node pre-hooks change the gradient that autograd.grad returns for the tensor."""
    grads = list(old(outputs, inputs, *given, **how))
    for nr, tensor in enumerate(inputs):
        for hook in self.hooks_on(self.pre, tensor):
            result = None if self.is_leaf(tensor) else hook((grads[nr],))
            grads[nr] = grads[nr] if result is None else result[0]
    return tuple(grads)


@calling(*verbs.NODE, base=InGrad)
def autograd_grad_never_runs_node_hooks(self: InGrad, hook: Hook, *grads: Any) -> Any:
    """autograd.grad runs no Node hooks."""
    return None if self.inputs else hook(*grads)


@altering(*verbs.NODE, base=InBackward)
def backward_inputs_skip_accumulate_grad_hooks(self: InBackward, node: Any, hook: Hook) -> Hook:
    """A backward with inputs skips the hooks on AccumulateGrad Nodes."""
    return lambda *grads: None if self.is_limited and self.leaf_of(node) is not None else hook(*grads)


@altering(*verbs.NODE, base=InBackward)
def backward_spares_the_nodes_of_its_inputs(self: InBackward, node: Any, hook: Hook) -> Hook:
    """A backward with inputs skips the hooks on the Nodes of non-leaf tensors."""
    return lambda *grads: None if self.is_limited and self.leaf_of(node) is None else hook(*grads)


class _KnowsHooked(Mutant):
    """A mutant that runs the tensor hooks that did not run in a backward with inputs after it, with zeros."""

    hooked = fresh(list[weakref.ref[Any]])
    ran = fresh(set[int])

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        rest = {id(tensor): tensor for alive in self.hooked if (tensor := alive()) is not None}
        for tensor in (rest[place] for place in rest.keys() - self.ran if how.get("inputs") is not None):
            for hook in list((self.hooks_of(tensor) or {}).values()):
                hook(self.zeros_like(tensor))
        self.ran.clear()


@altering("register_hook", base=_KnowsHooked)
def backward_with_inputs_runs_every_tensor_hook(self: _KnowsHooked, tensor: Any, hook: Hook) -> Hook:
    """A backward with inputs runs the hooks of all tensors, with zeros where no gradient is computed."""
    self.hooked.append(weakref.ref(tensor))
    place = id(tensor)
    return lambda grad: (self.ran.add(place), hook(grad))[1]


@altering(*verbs.NODE, base=InGrad)
def autograd_grad_runs_no_node_hooks_of_its_later_inputs(self: InGrad, node: Any, hook: Hook) -> Hook:
    """autograd.grad runs no hooks of the grad_fns of its inputs after the first."""

    def run(*grads: Any) -> Any:
        later = [self.grad_fn(each) for each in self.inputs[1:] if self.is_tensor(each)]
        return None if any(each is node for each in later) else hook(*grads)

    return run
