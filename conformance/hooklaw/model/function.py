"""Custom Functions: a user's forward and backward as one Node, which is also their ctx."""

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
    """The Node of a custom Function. It unpacks its saved tensors when the user's backward reads them."""

    computes_all = True
    to_save: tuple[Tensor, ...] = ()
    dirty: tuple[Tensor, ...] = ()
    non_differentiable: tuple[Tensor, ...] = ()
    materializes = True
    """Whether backward gets zeros in place of missing gradients."""

    def __init__(self, inputs: Sequence[Any], backward: Hook) -> None:
        self.are_tensors = [isinstance(value, Tensor) for value in inputs]
        self.tensors: tuple[Tensor, ...] = tuple(compress(inputs, self.are_tensors))
        """The tensors among the inputs; tensors inside a list do not count."""
        self.needs_input_grad = tuple(isinstance(value, Tensor) and value.requires_grad for value in inputs)
        """Whether each input needs a gradient."""
        self.gave_tensors: list[bool] = []
        """Whether each output is a tensor; backward gets None for one that is not."""
        super().__init__("CustomBackward", edges_of(self.tensors), backward)

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Choose the tensors to save; they are saved once the outputs are in the graph."""
        self.to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare the inputs that forward changes in place."""
        self.dirty = tensors
        for tensor in tensors:
            tensor.data.storage.count_change()

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare the outputs that have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:  # noqa: FBT001 - PyTorch's signature
        """Choose whether backward gets zeros in place of missing gradients."""
        self.materializes = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """Unpack the saved tensors."""
        return tuple(saved and saved.unpack(self) for saved in self.saved)

    def execute(self, grads: Gradients, needed: Sequence[bool]) -> Gradients:  # noqa: ARG002 - it computes all of them
        """Call the user's backward, by default with zeros for missing gradients; drop surplus Nones it returns."""
        return self.checked(self.derivative(self, *self.completed(grads)))

    def completed(self, grads: Gradients) -> Gradients:
        """Return the gradients with zeros for missing ones, if asked for, and None for outputs that are no tensors."""
        grads = with_zeros(self, grads) if self.materializes else grads
        return tuple(grads[nr] if ok else None for nr, ok in enumerate(self.gave_tensors))

    def checked(self, results: Any) -> Gradients:
        """Return the gradients of the inputs that are tensors; FunctionCountError if the results do not fit them."""
        results = results if isinstance(results, tuple) else (results,)
        inputs = len(self.are_tensors)
        results = results[:inputs] if not any(results[inputs:]) else results
        if len(results) != inputs:
            raise FunctionCountError(f"backward returned {len(results)} gradients for {inputs} inputs")
        if any(result is not None and not ok for result, ok in zip(results, self.are_tensors, strict=True)):
            raise FunctionCountError("backward returned a gradient for an input that is not a tensor")
        return tuple(compress(results, self.are_tensors))


def custom_function(forward: Hook, backward: Hook, make: Callable[..., CustomNode] = CustomNode) -> Hook:
    """Return the ``apply`` of a Function made of ``forward(ctx, *inputs)`` and ``backward(ctx, *grad_outputs)``."""

    def apply(*inputs: Any) -> Any:
        node = make(inputs, backward)
        with grad_mode(enabled=False):
            result = forward(node, *inputs)
        given: tuple[Any, ...] = result if isinstance(result, tuple) else (result,)
        outputs = [_output(node, tensor, inputs) for tensor in given]
        if node.next_edges:
            _attach(node, given, outputs)
        to_save, dirty = node.to_save, node.dirty
        node.to_save = node.dirty = node.non_differentiable = node.tensors = ()  # else a failing pack leaves a cycle
        if node.next_edges:
            node.saved = saved(to_save, outputs)
        if any(tensor not in given for tensor in dirty):
            raise RuntimeError("an input that forward marked dirty must be among its outputs")
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    return apply


def with_zeros(node: Node, grads: Gradients) -> tuple[Tensor, ...]:
    """Replace missing gradients by zeros."""
    return tuple(
        Tensor(filled([0] * prod(shape), shape, dtype)) if grad is None else grad
        for grad, (shape, dtype) in zip(grads, node.outputs, strict=True)
    )


def _output(node: CustomNode, output: Any, inputs: tuple[Any, ...]) -> Any:
    """Return the tensor that becomes an output: detached if it is an input or has a history already.

    A dirty input is returned as the same object, with the Function in its history.
    """
    if not isinstance(output, Tensor):
        return output
    takes_history = bool(node.next_edges) and _is_differentiable(node, output)
    if output in node.dirty and (takes_history or not output.requires_grad):
        return output
    return output.detach() if output.requires_grad or output in inputs else output


def _is_differentiable(node: CustomNode, output: Any) -> bool:
    has_gradient = isinstance(output, Tensor) and any(kind in output.dtype for kind in ("float", "complex"))
    return has_gradient and output not in node.non_differentiable


def _attach(node: CustomNode, given: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Make the tensors outputs of the Node, except the non-differentiable ones."""
    for nr, (tensor, output) in enumerate(zip(given, outputs, strict=True)):
        node.gave_tensors.append(isinstance(output, Tensor))
        node.outputs.append((output.shape, output.dtype) if node.gave_tensors[nr] else ((), "float32"))
        if not _is_differentiable(node, tensor):
            continue
        if tensor in node.dirty:
            _change(node, Edge(node, nr), tensor, alone=len(given) == 1)
        else:
            output.rebase(Edge(node, nr))


def _change(node: CustomNode, made_by: Edge, tensor: Tensor, *, alone: bool) -> None:
    """Make an input that forward changed in place an output, as after an in-place operation."""
    check_change(tensor, recorded=True)
    if tensor.base is not None and not alone:
        raise RuntimeError("a Function that changes a view in place must have no other output")
    if on("changed-by-a-function-loses-its-gradient"):
        tensor.grad = None
    if tensor.base is not None:
        first = on("a-function-changes-the-view-it-is-given-first")
        node.next_edges[0 if first else node.tensors.index(tensor)] = old_place(tensor)
    take_on(tensor, made_by)
