"""A user's forward and backward as one Node, which is also the ctx that both are given."""

from collections.abc import Callable, Sequence
from itertools import compress
from math import prod
from typing import Any

from hooklaw.model.errors import FunctionCountError
from hooklaw.model.flags import on
from hooklaw.model.hooks import Gradients, Hook
from hooklaw.model.modes import grad_mode
from hooklaw.model.node import Edge, Node
from hooklaw.model.record import saved
from hooklaw.model.strided import filled
from hooklaw.model.tensor import Tensor, edges_of
from hooklaw.model.views import check_change, old_place, take_on


class CustomNode(Node):
    """The Node of a custom Function. Its saved tensors are unpacked when the user's backward reads them."""

    computes_all = True
    to_save: tuple[Tensor, ...] = ()
    dirty: tuple[Tensor, ...] = ()
    non_differentiable: tuple[Tensor, ...] = ()

    def __init__(self, inputs: Sequence[Any], backward: Hook) -> None:
        self.are_tensors = [isinstance(one, Tensor) for one in inputs]
        self.tensors: tuple[Tensor, ...] = tuple(compress(inputs, self.are_tensors))
        """What may lead on to other Nodes: a tensor inside a list does not."""
        self.needs_input_grad = tuple(isinstance(one, Tensor) and one.requires_grad for one in inputs)
        """Which inputs need a gradient."""
        super().__init__("CustomBackward", edges_of(self.tensors), backward)

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Say what to save once the outputs are in the graph."""
        self.to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs forward changes in place."""
        self.dirty = tensors
        for one in tensors:
            one.data.storage.count_change()

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no gradient."""
        self.non_differentiable = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """Read what was saved."""
        return tuple(one and one.unpack(self) for one in self.saved)

    def execute(self, grads: Gradients, needed: Sequence[bool]) -> Gradients:  # noqa: ARG002 - it computes all
        """Call the user's backward, with zeros for gradients that are not there; Nones too many are left out."""
        results = self.derivative(self, *with_zeros(self, grads))
        results = results if isinstance(results, tuple) else (results,)
        inputs = len(self.are_tensors)
        results = results[:inputs] if not any(results[inputs:]) else results
        if len(results) != inputs:
            raise FunctionCountError(f"backward returned {len(results)} gradients for {inputs} inputs")
        if any(result is not None and not is_one for result, is_one in zip(results, self.are_tensors, strict=True)):
            raise RuntimeError("backward returned a gradient for an input that is no tensor")
        return tuple(compress(results, self.are_tensors))


def custom_function(forward: Hook, backward: Hook, make: Callable[..., CustomNode] = CustomNode) -> Hook:
    """Make a function of ``forward(ctx, *inputs)`` and ``backward(ctx, *grad_outputs)``."""

    def apply(*inputs: Any) -> Any:
        node = make(inputs, backward)
        with grad_mode(enabled=False):
            result = forward(node, *inputs)
        given: tuple[Tensor, ...] = result if isinstance(result, tuple) else (result,)
        outputs = [_output(node, one, inputs) for one in given]
        if node.next_edges:
            _attach(node, given, outputs)
        to_save, dirty = node.to_save, node.dirty
        node.to_save = node.dirty = node.non_differentiable = node.tensors = ()  # or a failing pair would leave a cycle
        if node.next_edges:
            node.saved = saved(to_save, outputs)
        if any(one not in given for one in dirty):
            raise RuntimeError("an input that forward marked as dirty must be one of its outputs")
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    return apply


def with_zeros(node: Node, grads: Gradients) -> tuple[Tensor, ...]:
    """Put zeros in the place of gradients that are not there."""
    return tuple(
        Tensor(filled([0] * prod(shape), shape, dtype)) if grad is None else grad
        for grad, (shape, dtype) in zip(grads, node.outputs, strict=True)
    )


def _output(node: CustomNode, output: Tensor, inputs: tuple[Any, ...]) -> Tensor:
    """Return what can be given a history, or left without: what has one, or is an input, as another object.

    An input that was marked as dirty is returned as itself, with the Function in its history.
    """
    takes_history = bool(node.next_edges) and output not in node.non_differentiable
    if output in node.dirty and (takes_history or not output.requires_grad):
        return output
    return output.detach() if output.requires_grad or output in inputs else output


def _attach(node: CustomNode, given: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Make the tensors outputs of the Node, those aside that are not differentiable."""
    for nr, (one, output) in enumerate(zip(given, outputs, strict=True)):
        node.outputs.append((output.shape, output.dtype))
        if one in node.non_differentiable:
            continue
        if one in node.dirty:
            _change(node, Edge(node, nr), one, alone=len(given) == 1)
        else:
            output.rebase(Edge(node, nr))


def _change(node: CustomNode, made_by: Edge, tensor: Tensor, *, alone: bool) -> None:
    """Let an input that forward has changed in place be an output, as after an operation in place."""
    check_change(tensor, recorded=True)
    if tensor.base is not None and not alone:
        raise RuntimeError("a view can be changed in place by a Function that has no other output")
    if on("changed-by-a-function-loses-its-gradient"):
        tensor.grad = None
    if tensor.base is not None:
        first = on("a-function-changes-the-view-it-is-given-first")
        node.next_edges[0 if first else node.tensors.index(tensor)] = old_place(tensor)
    take_on(tensor, made_by)
