"""The options of custom Functions: what their backward is given, how often it may read, and be differentiated."""

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
    """Lets go of its saved tensors as they are read."""

    cleared = False

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """Read what was saved, once."""
        if self.cleared:
            raise SavedTensorsClearedError("these saved tensors are cleared on access, and were read before")
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
    """Make a custom Function with these options."""
    given = _boxed(backward) if boxed_grads_call else backward
    once = _once(given) if once_differentiable else given
    return custom_function(forward, once, ClearingNode if clear_saved_tensors_on_access else CustomNode)


def _boxed(backward: Hook) -> Hook:
    """Give backward one list, out of which it can take the gradients."""
    return lambda ctx, *grads: backward(ctx, list(grads))


def _once(backward: Hook) -> Hook:
    """Let backward be differentiable once: who differentiates its gradients gets an error instead of a wrong one."""

    def unrecorded(ctx: CustomNode, *grads: Tensor) -> Any:
        with grad_mode(enabled=False):
            results = backward(ctx, *grads)
        constants = on("once-differentiable-gradients-are-constants")
        if not recording() or (constants and not any(grad.requires_grad for grad in grads)):
            return results
        behind = [None] if constants else [*map(edge_of, grads), *ctx.next_edges]
        return _refusing(results if isinstance(results, tuple) else (results,), behind)

    return unrecorded


def _refusing(results: Sequence[Tensor | None], behind: Sequence[Edge | None]) -> tuple[Tensor | None, ...]:
    """Return the gradients as if made by a Node, which can only fail, of what they depend on."""
    made = [None if result is None else result.detach() for result in results]
    attach(Refusal("Error", behind, tuple), [one for one in made if one is not None])
    return tuple(made)


class Refusal(Node):
    """Fails as soon as a gradient gets there, even if none is asked of it."""

    def execute(self, grads: Gradients, needed: Sequence[bool]) -> NoReturn:  # noqa: ARG002 - as of any Node
        """Refuse."""
        raise OnceDifferentiableError("a gradient from a backward that is differentiable once was differentiated")
