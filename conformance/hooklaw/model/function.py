"""A user's forward and backward as one Node, which is also the ctx that both are given."""

from collections.abc import Sequence
from math import prod
from typing import Any

from hooklaw.model.hooks import Gradients, Hook
from hooklaw.model.modes import grad_mode
from hooklaw.model.node import Node
from hooklaw.model.record import attach, saved
from hooklaw.model.strided import filled
from hooklaw.model.tensor import Tensor, edges_of


class CustomNode(Node):
    """The Node of a custom Function. Its saved tensors are unpacked when the user's backward reads them."""

    computes_all = True
    to_save: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Say what to save once the outputs are in the graph."""
        self.to_save = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """Read what was saved."""
        return tuple(one and one.unpack(self) for one in self.saved)

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """Tell which inputs need a gradient."""
        return tuple(edge is not None for edge in self.next_edges)

    def execute(self, grads: Gradients, needed: Sequence[bool]) -> Gradients:  # noqa: ARG002 - it computes all
        """Call the user's backward, with zeros for gradients that are not there."""
        results = self.derivative(self, *with_zeros(self, grads))
        results = results if isinstance(results, tuple) else (results,)
        results = results[: len(self.next_edges)] if not any(results[len(self.next_edges) :]) else results
        if len(results) != len(self.next_edges):
            raise RuntimeError(f"backward returned {len(results)} gradients for {len(self.next_edges)} inputs")
        return results


def custom_function(forward: Hook, backward: Hook) -> Hook:
    """Make a function of ``forward(ctx, *inputs)`` and ``backward(ctx, *grad_outputs)``."""

    def apply(*inputs: Any) -> Any:
        edges = edges_of(inputs)
        node = CustomNode("CustomBackward", edges, backward)
        with grad_mode(enabled=False):
            result = forward(node, *inputs)
        outputs = [_fresh(one, inputs) for one in (result if isinstance(result, tuple) else (result,))]
        if edges:
            attach(node, outputs)
            node.saved = saved(node.to_save, outputs)
        node.to_save = ()
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    return apply


def with_zeros(node: Node, grads: Gradients) -> tuple[Tensor, ...]:
    """Put zeros in the place of gradients that are not there."""
    return tuple(
        Tensor(filled([0] * prod(shape), shape, dtype)) if grad is None else grad
        for grad, (shape, dtype) in zip(grads, node.outputs, strict=True)
    )


def _fresh(output: Tensor, inputs: tuple[Any, ...]) -> Tensor:
    """Return an output that can be given a history: an input, or what has one, is returned as another object."""
    return output.detach() if output.requires_grad or any(output is one for one in inputs) else output
