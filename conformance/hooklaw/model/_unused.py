"""The result of grad for unused inputs: None, zeros, or an error."""

from collections.abc import Sequence
from typing import Any

from hooklaw.model.errors import UnusedConflictError, UnusedInputError
from hooklaw.model.hooks import Gradients
from hooklaw.model.strided import filled
from hooklaw.model.tensor import Tensor


class Unused:
    """The options allow_unused and materialize_grads of grad."""

    def __init__(self, *, allowed: bool | None, materialize: bool) -> None:
        if materialize and allowed is False:
            raise UnusedConflictError("materialize_grads=True needs allow_unused=True or None, not False")
        self._allowed = materialize if allowed is None else allowed
        self._materialize = materialize

    def fill(self, grads: Gradients, inputs: Sequence[Any], *, requires_grad: bool) -> Gradients:
        """Replace missing gradients by zeros if asked to; UnusedInputError if they are not allowed."""
        if None in grads and not self._allowed:
            raise UnusedInputError("an input was not used in the graph: pass allow_unused=True to get None for it")
        if not self._materialize:
            return grads
        pairs = zip(grads, inputs, strict=True)
        return tuple(_zeros(value, requires_grad=requires_grad) if grad is None else grad for grad, value in pairs)


def _zeros(like: Any, *, requires_grad: bool) -> Tensor:
    if not isinstance(like, Tensor):
        raise UnusedInputError("the gradient of an edge cannot be materialized: it has no shape")
    zeros = filled([0] * like.data.size, like.shape, like.dtype, like.data.layout())
    return Tensor(zeros, requires_grad=requires_grad)
