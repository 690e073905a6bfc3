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


class BoxedNode(CustomNode):
    """Passes backward all gradients in one list, from which it can remove them."""

    is_boxed = True

    def take(self, given: list[Tensor | None], needed: Sequence[bool]) -> Gradients:  # noqa: ARG002 - it computes all
        """Call the user's backward with the list itself, so that nothing else keeps a gradient."""
        given[:] = self.completed(tuple(given))
        return self.checked(self.derivative(self, given))


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


class ClearingBoxedNode(ClearingNode, BoxedNode):
    """Does both."""


_CLASSES = {
    (False, False): CustomNode,
    (True, False): ClearingNode,
    (False, True): BoxedNode,
    (True, True): ClearingBoxedNode,
}


def function(
    forward: Hook,
    backward: Hook,
    *,
    once_differentiable: bool = False,
    clear_saved_tensors_on_access: bool = False,
    boxed_grads_call: bool = False,
) -> Hook:
    """Return a custom Function with these options."""
    made = _CLASSES[clear_saved_tensors_on_access, boxed_grads_call]
    return custom_function(forward, _once(backward) if once_differentiable else backward, made)


def _once(backward: Hook) -> Hook:
    """Run backward unrecorded; to differentiate its gradients is an error, not a wrong result."""

    def unrecorded(ctx: CustomNode, *grads: Any) -> Any:
        given: Sequence[Tensor] = [grad for grad in (grads[0] if ctx.is_boxed else grads) if grad is not None]
        edges, differentiable = [*map(edge_of, given)], any(grad.requires_grad for grad in given)
        del given
        with grad_mode(enabled=False):
            results = backward(ctx, *grads)
        constants = on("once-differentiable-gradients-are-constants")
        if not recording() or (constants and not differentiable):
            return results
        edges = [None] if constants else [*edges, *ctx.next_edges]
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
