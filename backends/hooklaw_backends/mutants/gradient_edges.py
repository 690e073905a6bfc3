"""Mutants that confuse gradient edges."""

import weakref
from collections.abc import Sequence
from typing import Any

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, InGrad, Mutant, altering, calling, fresh, overriding
from hooklaw_backends.mutants.shared import KnowsLastOutputs


@overriding("get_gradient_edge")
def gradient_edge_of_the_first_output(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The gradient edge of any output of a Node is that of its first output."""
    edge = old(tensor)
    return type(edge)(edge[0], 0, *edge[2:])


@overriding("grad", base=KnowsLastOutputs)
def gradient_edges_among_inputs_are_those_of_last_outputs(
    self: KnowsLastOutputs, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> Any:
    """autograd.grad takes a gradient edge among its inputs for that of the last output of the edge's Node."""
    return old(outputs, [*map(self.last, inputs)], *given, **how)


@overriding("backward_from_edge", base=KnowsLastOutputs)
def backward_from_the_edge_of_the_last_output(self: KnowsLastOutputs, old: Hook, edge: Any, *given: Any) -> None:
    """A backward from a gradient edge starts at the last output of the edge's Node."""
    old(self.last(edge), *given)


@overriding("grad", base=KnowsLastOutputs)
def grad_of_the_edge_of_the_last_output(
    self: KnowsLastOutputs, old: Hook, outputs: Any, *given: Any, **how: Any
) -> Any:
    """autograd.grad of a gradient edge alone starts at the last output of the edge's Node."""
    return old(self.last(outputs), *given, **how)


@overriding("get_gradient_edge")
def gradient_edge_of_a_constant_is_none(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The gradient edge of a tensor that does not require grad is None instead of an error."""
    return old(tensor) if self.requires_grad(tensor) else None


@calling("register_hook", base=InGrad)
def hooks_skipped_for_gradient_edges(self: InGrad, hook: Hook, grad: Any) -> Any:
    """Tensor hooks do not run when autograd.grad is given gradient edges as inputs."""
    return hook(grad) if all(map(self.is_tensor, self.inputs)) else None


@altering("register_hook", base=InGrad)
def hooks_of_leaves_skipped_for_gradient_edges(self: InGrad, tensor: Any, hook: Hook) -> Hook:
    """The hooks of a leaf do not run when autograd.grad is given gradient edges as inputs."""
    if not self.is_leaf(tensor):
        return hook
    return lambda grad: hook(grad) if all(map(self.is_tensor, self.inputs)) else None


@overriding("get_gradient_edge")
def gradient_edge_follows_its_tensor(self: Mutant, old: Hook, tensor: Any) -> Any:
    """A gradient edge follows its tensor through later in-place changes."""
    old(tensor)
    return tensor


class GradientEdgeOfAComputedConstantIsNone(Mutant):
    """The gradient edge of a constant that was computed or detached is None instead of an error."""

    def tensor(self, *given: Any, **how: Any) -> Any:
        tensor = super().tensor(*given, **how)
        self.kept.append(weakref.ref(tensor))
        return tensor

    def get_gradient_edge(self, tensor: Any) -> Any:
        is_made = any(made() is tensor for made in self.kept)
        return super().get_gradient_edge(tensor) if is_made or self.requires_grad(tensor) else None


def _is_edge(self: Mutant, outputs: Any) -> bool:
    return not self.is_tensor(outputs) and type(outputs) not in {list, tuple}


@overriding("grad")
def grad_of_the_edge_of_the_first_output(self: Mutant, old: Hook, outputs: Any, *given: Any, **how: Any) -> Any:
    """autograd.grad of a gradient edge starts at the first output of the edge's Node."""
    edge = outputs
    return old(type(edge)(edge[0], 0, *edge[2:]) if _is_edge(self, edge) else edge, *given, **how)


class GradOfEdgesSkipsHooks(Mutant):
    """autograd.grad of a gradient edge runs no tensor hooks."""

    _is_from_edge = False

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        self._is_from_edge = _is_edge(self, outputs)
        try:
            return super().grad(outputs, inputs, grad_outputs, **how)
        finally:
            self._is_from_edge = False

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, lambda grad: None if self._is_from_edge else hook(grad))


def _of_one(self: Mutant, place: int, outputs: Any, inputs: Any, seeds: Any) -> tuple[Any, Any, Any]:
    """Return what is given to grad, with one of several edges and its seed alone."""
    if type(outputs) not in {list, tuple} or any(map(self.is_tensor, outputs)):
        return outputs, inputs, seeds
    return outputs[place], inputs, seeds and seeds[place]


@overriding("grad")
def grad_of_the_first_edge(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """Of several gradient edges as outputs autograd.grad starts from the first alone."""
    return old(*_of_one(self, 0, outputs, inputs, grad_outputs), **how)


@overriding("grad")
def grad_of_the_last_edge(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """Of several gradient edges as outputs autograd.grad starts from the last alone."""
    return old(*_of_one(self, -1, outputs, inputs, grad_outputs), **how)


@overriding("grad")
def unused_edges_never_allowed(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """The gradient edge of an unused tensor as an input of autograd.grad is an error, also with allow_unused=True."""
    found = old(outputs, inputs, *given, **how)
    if any(grad is None and not self.is_tensor(given) for given, grad in zip(inputs, found, strict=True)):
        raise self.errors.get(ErrorKind.UNUSED_INPUT, (RuntimeError,))[0]("the tensor of an edge is unused")
    return found


@overriding("grad")
def unused_edges_allowed(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """The gradient edge of an unused tensor among the inputs of autograd.grad is no error without allow_unused."""
    if not how.get("materialize_grads") and not all(map(self.is_tensor, inputs)):
        how["allow_unused"] = True
    return old(outputs, inputs, *given, **how)


@overriding("grad")
def unused_edges_after_a_tensor_allowed(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """The gradient edge of an unused tensor is no error without allow_unused, if a tensor is the first input."""
    is_after = self.is_tensor(inputs[0]) and not all(map(self.is_tensor, inputs))
    if is_after and not how.get("materialize_grads"):
        how["allow_unused"] = True
    return old(outputs, inputs, *given, **how)


@overriding("grad")
def grad_of_the_edge_of_a_leaf_refused(self: Mutant, old: Hook, outputs: Any, *given: Any, **how: Any) -> Any:
    """autograd.grad with the gradient edge of a leaf as its output is an error."""
    if _is_edge(self, outputs) and self.leaf_of(outputs[0]) is not None:
        raise RuntimeError("the edge of a leaf has no graph")
    return old(outputs, *given, **how)


@overriding("backward")
def edges_of_non_leaves_among_backward_inputs_change_grad(
    self: Mutant, old: Hook, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **how: Any
) -> None:
    """A backward whose inputs are edges of non-leaves sets the .grad of leaves that have one to zeros."""
    old(root, gradient, inputs=inputs, **how)
    if inputs and all(not self.is_tensor(each) and self.leaf_of(each[0]) is None for each in inputs):
        for leaf in [leaf for leaf in self.leaves_of(root) if self.grad_of(leaf) is not None]:
            self.set_grad(leaf, self.zeros_like(leaf))


@overriding("grad")
def gradients_of_edges_come_after_those_of_tensors(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad returns the gradients of the tensors among its inputs first, then those of the edges."""
    return old(outputs, sorted(inputs, key=lambda each: not self.is_tensor(each)), *given, **how)


@overriding("grad")
def gradients_of_edges_are_constants(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """What autograd.grad with create_graph=True returns for a gradient edge cannot be differentiated."""
    pairs = zip(inputs, old(outputs, inputs, *given, **how), strict=True)
    return tuple(grad if grad is None or self.is_tensor(each) else self.detach(grad) for each, grad in pairs)


@overriding("grad")
def gradients_of_edges_of_non_leaves_are_constants(
    self: Mutant, old: Hook, outputs: Any, inputs: Sequence[Any], *given: Any, **how: Any
) -> tuple[Any, ...]:
    """What autograd.grad with create_graph=True returns for the edge of a non-leaf cannot be differentiated."""
    found = old(outputs, inputs, *given, **how)
    are = [not self.is_tensor(each) and self.leaf_of(each[0]) is None for each in inputs]
    return tuple(
        self.detach(grad) if grad is not None and is_one else grad for grad, is_one in zip(found, are, strict=True)
    )


class GradientEdgeOfTheFirstTime(Mutant):
    """The gradient edge of a tensor stays the one that it had when it was first asked for."""

    edges = fresh(list[tuple[Any, Any]])

    def get_gradient_edge(self, tensor: Any) -> Any:
        for asked, edge in self.edges:
            if asked() is tensor:
                return edge
        edge = super().get_gradient_edge(tensor)
        self.edges.append((weakref.ref(tensor), edge))
        return edge


@overriding("grad")
def tensors_among_edges_as_outputs_ignored(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad ignores the tensors among its outputs if the first output is a gradient edge."""
    if type(outputs) not in {list, tuple} or self.is_tensor(outputs[0]):
        return old(outputs, inputs, grad_outputs, **how)
    kept = [nr for nr, each in enumerate(outputs) if not self.is_tensor(each)]
    return old([outputs[nr] for nr in kept], inputs, grad_outputs and [grad_outputs[nr] for nr in kept], **how)


@overriding("backward_from_edge")
def backward_from_edges_needs_a_gradient(self: Mutant, old: Hook, edge: Any, gradient: Any = None) -> None:
    """A backward from a gradient edge is an error without a gradient, even if the edge's tensor is a scalar."""
    if gradient is None:
        raise self.errors.get(ErrorKind.ROOT_GRADIENT, (RuntimeError,))[0]("an edge needs a gradient")
    old(edge, gradient)
