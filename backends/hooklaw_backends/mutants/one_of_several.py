"""Mutants that are right with some of several inputs, outputs or edges of a pass, and wrong with the others."""

from collections.abc import Sequence
from functools import wraps
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, InGrad, Mutant, altering, overriding
from hooklaw_backends.mutants.passes import Inputs, unused


class _KnowsInputs(Mutant):
    """A mutant that knows the inputs of the running backward."""

    inputs: Sequence[Any] = ()

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.inputs = how.get("inputs") or ()
        try:
            super().backward(root, gradient, **how)
        finally:
            self.inputs = ()


@altering(*verbs.NODE, base=_KnowsInputs)
def node_hooks_of_later_backward_inputs_lost(self: _KnowsInputs, node: Any, hook: Hook) -> Hook:
    """A backward with inputs runs the Node hooks of the first of them alone."""
    return lambda *grads: None if any(self.leaf_of(node) is leaf for leaf in self.inputs[1:]) else hook(*grads)


@altering(*verbs.NODE, base=_KnowsInputs)
def node_hooks_of_earlier_backward_inputs_lost(self: _KnowsInputs, node: Any, hook: Hook) -> Hook:
    """A backward with inputs runs the Node hooks of the last of them alone."""
    return lambda *grads: None if any(self.leaf_of(node) is leaf for leaf in self.inputs[:-1]) else hook(*grads)


def allowing(step: Hook) -> type[Mutant]:
    """Make a mutant whose autograd.grad allows unused inputs if ``(unused)`` says so, given a flag for each input."""

    @wraps(step)
    def grad(self: Mutant, old: Hook, *given: Any, **how: Any) -> tuple[Any, ...]:
        if how.get("allow_unused") or how.get("materialize_grads"):
            return old(*given, **how)
        found = old(*given, **{**how, "allow_unused": True})
        flags = [grad is None for grad in found]
        if any(flags) and not step(flags):
            raise self.errors.get(ErrorKind.UNUSED_INPUT, (RuntimeError,))[0]("an input is unused")
        return found

    return overriding("grad")(grad)


@allowing
def an_unused_first_input_allowed(unused: Sequence[bool]) -> bool:
    """autograd.grad returns None instead of an error if its first input alone is unused."""
    return unused[0] and not any(unused[1:])


@allowing
def several_unused_inputs_allowed(unused: Sequence[bool]) -> bool:
    """autograd.grad returns None instead of an error if more than one of its inputs is unused."""
    return sum(unused) > 1


@unused
def unused_intermediates_get_zeros(self: Mutant, tensor: Any) -> Any:
    """autograd.grad returns zeros instead of None for an unused input that is not a leaf."""
    return None if self.is_leaf(tensor) else self.zeros_like(tensor)


@overriding("backward")
def backward_inputs_after_a_non_leaf_ignored(
    self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """backward accumulates only into the leaves at the beginning of its inputs, and the first input after them."""
    kept = [nr for nr in range(len(inputs or ())) if not inputs or all(map(self.is_leaf, inputs[:nr]))]
    old(*given, inputs=inputs and inputs[: len(kept)], **how)


@overriding("backward")
def root_among_backward_inputs_ignored(
    self: Mutant, old: Hook, root: Any, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """backward accumulates no gradient into its root, even if the root is one of several inputs."""
    others = [tensor for tensor in inputs or () if tensor is not root]
    old(root, *given, inputs=others or inputs, **how)


def retaining_inputs_twice(step: Hook) -> type[Mutant]:
    """Make a mutant whose backward counts gradients twice for those of ``(self, root, inputs)`` that retain them."""

    @wraps(step)
    def backward(self: Mutant, old: Hook, root: Any, *given: Any, inputs: Inputs = None, **how: Any) -> None:
        retaining = [
            (tensor, self.grad_of(tensor))
            for tensor in step(self, root, inputs or ())
            if self.is_tensor(tensor) and not self.is_leaf(tensor) and self.retains_grad(tensor)
        ]
        old(root, *given, inputs=inputs, **how)
        for tensor, before in retaining:
            grad = self.grad_of(tensor)
            self.set_grad(tensor, grad * 2 if before is None else grad * 2 - before)

    return overriding("backward")(backward)


@retaining_inputs_twice
def backward_counts_the_later_of_retaining_inputs_twice(self: Mutant, root: Any, inputs: Sequence[Any]) -> Any:
    """backward counts the gradient twice for an input after the first that retains its gradient."""
    return inputs[1:]


@retaining_inputs_twice
def third_backward_counts_retaining_inputs_twice(self: Mutant, root: Any, inputs: Sequence[Any]) -> Any:
    """From the third backward on the gradient counts twice for an input that retains its gradient."""
    self.kept.append(None)
    return inputs if len(self.kept) > 2 else ()  # noqa: PLR2004 - the third


@retaining_inputs_twice
def backward_counts_a_retaining_root_twice(self: Mutant, root: Any, inputs: Sequence[Any]) -> Any:
    """backward counts the gradient twice for its root, if that is among the inputs and retains its gradient."""
    return [tensor for tensor in inputs if tensor is root]


@overriding("backward")
def root_as_the_only_backward_input_ignored(
    self: Mutant, old: Hook, root: Any, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """backward accumulates no gradient into its root if that is the only input."""
    if inputs is None or any(tensor is not root for tensor in inputs):
        old(root, *given, inputs=inputs, **how)


@overriding("backward")
def non_leaves_among_backward_inputs_ignored_after_a_failure(
    self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """Once a backward has failed, the next one accumulates no gradient into inputs that are not leaves."""
    others = [each for each in inputs or () if not self.is_tensor(each) or self.is_leaf(each)]
    has_failed = inputs and self.kept
    if has_failed and not others:
        return
    try:
        old(*given, inputs=others if has_failed else inputs, **how)
    except Exception as error:
        self.kept.append(str(error))
        raise


@overriding("backward")
def empty_non_leaves_among_backward_inputs_ignored(
    self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """backward accumulates no gradient into an input without elements that is not a leaf."""
    kept = [
        each for each in inputs or () if not self.is_tensor(each) or self.is_leaf(each) or 0 not in self.shape(each)
    ]
    if kept or not inputs:
        old(*given, inputs=inputs and kept, **how)


@overriding("grad")
def outputs_of_one_node_count_once(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad of several outputs of one Node starts at the first of them alone."""
    several = outputs if type(outputs) in {list, tuple} and all(map(self.is_tensor, outputs)) else ()
    nodes = [self.gradient_edge(output)[0] for output in several if self.requires_grad(output)]
    if len(nodes) < 2 or any(node is not nodes[0] for node in nodes):  # noqa: PLR2004 - one output and another
        return old(outputs, inputs, grad_outputs, **how)
    return old(outputs[:1], inputs, grad_outputs and grad_outputs[:1], **how)


@altering("register_hook", base=InGrad)
def hooks_of_later_edges_skipped(self: InGrad, tensor: Any, hook: Hook) -> Hook:
    """The hooks of a tensor do not run if its edge is an input of autograd.grad after the first."""
    node, nr = self.gradient_edge(tensor)

    def run(grad: Any) -> Any:
        edges = [edge for edge in self.inputs[1:] if not self.is_tensor(edge)]
        return None if any(edge[0] is node and edge[1] == nr for edge in edges) else hook(grad)

    return run


@overriding("backward")
def later_edges_among_backward_inputs_ignored(
    self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """backward accumulates only at the first of several edges among its inputs."""
    old(*given, inputs=inputs and [inputs[0], *filter(self.is_tensor, inputs[1:])], **how)


@overriding("backward")
def edges_among_backward_inputs_overwrite(
    self: Mutant, old: Hook, *given: Any, inputs: Inputs = None, **how: Any
) -> None:
    """backward replaces the .grad of a leaf whose edge is among its inputs instead of adding to it."""
    for edge in inputs or ():
        leaf = None if self.is_tensor(edge) else self.leaf_of(edge[0])
        if leaf is not None:
            self.set_grad(leaf, None)
    old(*given, inputs=inputs, **how)
