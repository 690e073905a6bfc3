"""What is returned for inputs that have no gradient: None, zeros, or nothing but an error."""

from collections.abc import Sequence
from typing import Any

from hooklaw.model.errors import UnusedConflictError, UnusedInputError
from hooklaw.model.hooks import Gradients
from hooklaw.model.strided import filled
from hooklaw.model.tensor import Tensor


class Unused:
    """What the caller of grad says of unused inputs."""

    def __init__(self, *, allowed: bool | None, materialize: bool) -> None:
        if materialize and allowed is False:
            raise UnusedConflictError("gradients of unused inputs can be zeros, or be refused, but not both")
        self._allowed = materialize if allowed is None else allowed
        self._materialize = materialize

    def fill(self, grads: Gradients, inputs: Sequence[Any], *, requires_grad: bool) -> Gradients:
        """Return the gradients, with what takes the place of those that are not there."""
        if None in grads and not self._allowed:
            raise UnusedInputError("an input was not used in the graph: pass allow_unused=True to get None for it")
        if not self._materialize:
            return grads
        pairs = zip(grads, inputs, strict=True)
        return tuple(_zeros(one, requires_grad=requires_grad) if grad is None else grad for grad, one in pairs)


def _zeros(like: Any, *, requires_grad: bool) -> Tensor:
    if not isinstance(like, Tensor):
        raise UnusedInputError("the gradient at an edge has no shape to be filled with zeros")
    zeros = filled([0] * like.data.size, like.shape, like.dtype, like.data.layout())
    return Tensor(zeros, requires_grad=requires_grad)
