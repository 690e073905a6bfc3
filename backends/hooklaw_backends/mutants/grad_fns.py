"""Mutants whose Nodes have wrong names or edges, or are the grad_fn of a tensor that has none."""

import weakref
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding


@overriding("node_next")
def next_functions_empty(*_: Any) -> list[Any]:
    """A Node's next_functions is empty."""
    return []


@overriding("node_next")
def next_functions_are_the_first(self: Mutant, old: Hook, node: Any) -> list[Any]:
    """A Node's next_functions has its first edge alone."""
    return old(node)[:1]


@overriding("node_name")
def nodes_of_one_input_have_no_name(self: Mutant, old: Hook, node: Any) -> str:
    """The name of a Node of a single input is empty."""
    return old(node) if len(self.node_next(node)) > 1 else ""


@overriding("node_name")
def nodes_of_leaves_have_no_name(self: Mutant, old: Hook, node: Any) -> str:
    """The name of an AccumulateGrad Node is empty."""
    return old(node) if self.leaf_of(node) is None else ""


def _is_of_function(node: Any) -> bool:
    return "Custom" in type(node).__name__


@overriding("node_name")
def nodes_of_functions_have_no_name(self: Mutant, old: Hook, node: Any) -> str:
    """The name of a custom Function's Node is empty."""
    return "" if _is_of_function(node) else old(node)


@overriding("node_next")
def edges_end_at_functions(self: Mutant, old: Hook, node: Any) -> list[Any]:
    """The next_functions of a custom Function's Node is empty."""
    return [] if _is_of_function(node) else old(node)


class NodesOfSeveralOutputsHaveNoName(Mutant):
    """The name of a Node of several outputs is empty."""

    def split(self, tensor: Any, size: int) -> tuple[Any, ...]:
        parts = super().split(tensor, size)
        for part in parts:
            self.kept.append(weakref.ref(part))
        return parts

    def grad_fn(self, tensor: Any) -> Any:
        node = super().grad_fn(tensor)
        if any(part() is tensor for part in self.kept):
            self.node_metadata(node)["of several outputs"] = True
        return node

    def node_name(self, node: Any) -> str:
        return "" if self.node_metadata(node).get("of several outputs") else super().node_name(node)


@overriding("grad_fn")
def leaf_has_a_grad_fn(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The grad_fn of a leaf is its AccumulateGrad Node."""
    return self.accumulate_grad(tensor) if self.is_leaf(tensor) else old(tensor)


class _AskedFor(Mutant):
    """A mutant in which the grad_fn of the leaves that it knows is their AccumulateGrad Node."""

    def note(self, leaf: Any) -> None:
        """Know a leaf, and keep it alive no longer."""
        self.kept.append(weakref.ref(leaf))

    def grad_fn(self, tensor: Any) -> Any:
        is_known = self.is_leaf(tensor) and any(leaf() is tensor for leaf in self.kept)
        return self.accumulate_grad(tensor) if is_known else super().grad_fn(tensor)


@overriding("register_hook", base=_AskedFor)
def leaf_with_a_hook_has_a_grad_fn(self: _AskedFor, old: Hook, tensor: Any, hook: Hook) -> Any:
    """The grad_fn of a leaf with a tensor hook is its AccumulateGrad Node."""
    self.note(tensor)
    return old(tensor, hook)


@overriding("get_gradient_edge", base=_AskedFor)
def leaf_whose_edge_was_taken_has_a_grad_fn(self: _AskedFor, old: Hook, tensor: Any) -> Any:
    """The grad_fn of a leaf whose gradient edge was taken is its AccumulateGrad Node."""
    self.note(tensor)
    return old(tensor)


@overriding("accumulate_grad", base=_AskedFor)
def leaf_whose_node_was_asked_for_has_a_grad_fn(self: _AskedFor, old: Hook, leaf: Any) -> Any:
    """The grad_fn of a leaf is its AccumulateGrad Node once this was asked for."""
    self.note(leaf)
    return old(leaf)


class _KeepsGradFns(Mutant):
    """A mutant in which some tensors have the grad_fn that it knows for them."""

    nodes = fresh(list[tuple[weakref.ref[Any], Any]])

    def grad_fn(self, tensor: Any) -> Any:
        node = super().grad_fn(tensor)
        return node if node is not None else next((node for of, node in self.nodes if of() is tensor), None)

    def give(self, tensor: Any, node: Any) -> Any:
        """Give a tensor a grad_fn, and return it."""
        self.nodes.append((weakref.ref(tensor), node))
        return tensor


@overriding("detach", base=_KeepsGradFns)
def detached_tensor_has_a_grad_fn(self: _KeepsGradFns, old: Hook, tensor: Any) -> Any:
    """The grad_fn of what detach returns is that of the tensor."""
    return self.give(old(tensor), self.grad_fn(tensor))


@overriding("detach_", base=_KeepsGradFns)
def tensor_detached_in_place_has_a_grad_fn(self: _KeepsGradFns, old: Hook, tensor: Any) -> Any:
    """The grad_fn of a tensor is the same after detach_."""
    self.give(tensor, self.grad_fn(tensor))
    return old(tensor)


@overriding("set_requires_grad", base=_KeepsGradFns)
def frozen_leaf_has_a_grad_fn(self: _KeepsGradFns, old: Hook, tensor: Any, *, requires_grad: bool) -> None:
    """The grad_fn of a leaf that was frozen is its AccumulateGrad Node."""
    if self.requires_grad(tensor) and not requires_grad:
        self.give(tensor, self.accumulate_grad(tensor))
    old(tensor, requires_grad=requires_grad)


@overriding("call", base=_KeepsGradFns)
def result_of_no_grad_has_a_grad_fn(self: _KeepsGradFns, old: Hook, fn: Hook, *tensors: Any) -> Any:
    """The grad_fn of what is computed in no_grad is the Node of an input."""
    made = old(fn, *tensors)
    inputs = [each for each in tensors if self.is_tensor(each) and self.requires_grad(each)]
    if self.is_grad_enabled() or not inputs or not self.is_tensor(made):
        return made
    return self.give(made, self.gradient_edge(inputs[0])[0])


@overriding("module", base=_AskedFor)
def parameter_has_a_grad_fn(self: _AskedFor, old: Hook, parameters: Any, forward: Hook) -> Any:
    """The grad_fn of a module's parameter is its AccumulateGrad Node."""
    made = old(parameters, forward)
    for name in parameters:
        self.note(getattr(made, name))
    return made


@overriding("grad_fn")
def leaf_with_a_gradient_has_a_grad_fn(self: Mutant, old: Hook, tensor: Any) -> Any:
    """The grad_fn of a leaf that a backward has reached is its AccumulateGrad Node."""
    is_reached = self.is_leaf(tensor) and self.requires_grad(tensor) and self.grad_of(tensor) is not None
    return self.accumulate_grad(tensor) if is_reached else old(tensor)


@overriding("is_node")
def nodes_of_functions_are_no_nodes(self: Mutant, old: Hook, value: Any) -> bool:
    """The Node of a custom Function is not an instance of Node."""
    return old(value) and not _is_of_function(value)


@overriding("is_node")
def results_are_nodes(self: Mutant, old: Hook, value: Any) -> bool:
    """The result of an operation counts as a Node, not only its grad_fn."""
    return old(value) or (self.is_tensor(value) and not self.is_leaf(value))
