"""Options of custom Functions: once_differentiable, clear_saved_tensors_on_access, boxed_grads_call."""

from collections.abc import Sequence
from typing import Any, NoReturn

from hooklaw.model.errors import OnceDifferentiableError, SavedTensorsClearedError
from hooklaw.model.flags import on
from hooklaw.model.function import CustomNode, custom_function
from hooklaw.model.hooks import Gradients, Hook
from hooklaw.model.modes import grad_mode, recording
from hooklaw.model.node import Edge, Node
from hooklaw.model.record import attach
from hooklaw.model.tensor import Tensor, edge_of


class ClearingNode(CustomNode):
    """Frees its saved tensors when they are read."""

    cleared = False

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """Unpack the saved tensors, once."""
        if self.cleared:
            raise SavedTensorsClearedError("these saved tensors were cleared on access, by an earlier read")
        found = super().saved_tensors
        self.cleared = True
        self.saved = []
        return found


def function(
    forward: Hook,
    backward: Hook,
    *,
    once_differentiable: bool = False,
    clear_saved_tensors_on_access: bool = False,
    boxed_grads_call: bool = False,
) -> Hook:
    """Return a custom Function with these options."""
    given = _boxed(backward) if boxed_grads_call else backward
    once = _once(given) if once_differentiable else given
    return custom_function(forward, once, ClearingNode if clear_saved_tensors_on_access else CustomNode)


def _boxed(backward: Hook) -> Hook:
    """Pass backward all gradients in one list, from which it can remove them."""
    return lambda ctx, *grads: backward(ctx, list(grads))


def _once(backward: Hook) -> Hook:
    """Run backward unrecorded; to differentiate its gradients is an error, not a wrong result."""

    def unrecorded(ctx: CustomNode, *grads: Tensor) -> Any:
        with grad_mode(enabled=False):
            results = backward(ctx, *grads)
        constants = on("once-differentiable-gradients-are-constants")
        if not recording() or (constants and not any(grad.requires_grad for grad in grads)):
            return results
        edges = [None] if constants else [*map(edge_of, grads), *ctx.next_edges]
        return _refusing(results if isinstance(results, tuple) else (results,), edges)

    return unrecorded


def _refusing(results: Sequence[Tensor | None], edges: Sequence[Edge | None]) -> tuple[Tensor | None, ...]:
    """Return the gradients as outputs of a Node that can only fail, with edges to what they depend on."""
    made = [None if result is None else result.detach() for result in results]
    attach(Refusal("Error", edges, tuple), [grad for grad in made if grad is not None])
    return tuple(made)


class Refusal(Node):
    """Fails when a gradient arrives, even if the pass needs none from it."""

    def execute(self, grads: Gradients, needed: Sequence[bool]) -> NoReturn:  # noqa: ARG002 - the signature of Node
        """Raise OnceDifferentiableError."""
        raise OnceDifferentiableError("a gradient from a once_differentiable backward was differentiated")
