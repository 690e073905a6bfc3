"""The reference engine, with what mutants reach for besides the verbs."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import truediv
from typing import Any

from hooklaw.model import modes, ops
from hooklaw.model.adapter import Hook, Reference
from hooklaw.model.modes import innermost_pair
from hooklaw.model.strided import contiguous, filled
from hooklaw.model.tensor import Tensor


def here() -> Any:
    """Return what holds in this thread."""
    return vars(modes)["_here"]


class OverReference(Reference):
    """What every mutant of the reference engine is made over; `OverTorch` has the same."""

    original = "reference"

    def gradient_edge(self, tensor: Any) -> tuple[Any, int]:
        """Return the Node that a tensor's gradient goes to, and to which of its outputs."""
        return tensor.needed_edge()

    def leaf_of(self, node: Any) -> Any:
        """Return the leaf of an AccumulateGrad Node, None of any other."""
        return getattr(node, "leaf", None)

    def hooks_of(self, tensor: Any) -> dict[int, Hook]:
        """Return a tensor's hooks by the ids of their handles."""
        node, nr = tensor.needed_edge()
        return node.hooks_of(nr)

    def step_pre_hooks_of(self, optimizer: Any) -> dict[int, Hook]:
        """Return an optimizer's hooks before its steps by the ids of their handles."""
        return optimizer.step_hooks["pre"]

    def base_of(self, tensor: Any) -> Any:
        """Return the tensor that this one is a view of, or None."""
        return tensor.base

    def version_of(self, tensor: Any) -> int:
        """Return how often the tensor's data was changed in place."""
        return tensor.data.storage.version

    def is_for_inference(self, tensor: Any) -> bool:
        """Tell whether a tensor was made in inference mode."""
        return bool(tensor.data.storage.for_inference)

    def overwrite(self, tensor: Any, values: Any) -> None:
        """Copy values over a tensor's data."""
        tensor.data.write(values.data.values())

    def overwrite_unseen(self, tensor: Any, values: Any) -> None:
        """Copy values over a tensor's data, past whoever watches or counts that."""
        for place, value in zip(tensor.data.places(), values.data.values(), strict=True):
            tensor.data.storage.numbers[place] = value

    def quotient(self, left: Any, right: Any) -> Any:
        return Tensor(filled(map(truediv, left.data.values(), right.data.values()), left.shape, left.dtype))

    def cast(self, tensor: Any, dtype: str) -> Any:
        return ops.cast(tensor, dtype)

    def contiguous(self, tensor: Any) -> Any:
        return tensor if tensor.data.is_contiguous() else ops.clone(tensor, contiguous(tensor.shape))

    def laid_out_like(self, tensor: Any, other: Any) -> Any:
        """Return a copy with another tensor's strides, if it has neither gaps nor overlaps."""
        return ops.clone(tensor, other.data.strides if other.data.is_dense() else None)

    def strided(self, tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Look at a tensor's data by another shape and strides."""
        return Tensor(tensor.data.view(shape, strides))

    def has_pair(self) -> bool:
        """Tell whether a pair of saved-tensor hooks is active."""
        return innermost_pair() is not None

    def drop_pairs(self) -> None:
        """Let no pair be active."""
        here().pairs = ()

    def forbidden(self) -> str | None:
        """Return the message with which pairs are forbidden, None where they are not."""
        return here().disabled

    def forbid_pairs(self, message: str) -> None:
        """Disable saved-tensor hooks."""
        here().disabled = message

    def allow_pairs(self) -> None:
        """Enable saved-tensor hooks."""
        here().disabled = None

    @contextmanager
    def products_by(self, multiply: Callable[[Hook, Any, Any], Any]) -> Generator[None]:
        """Let ``*`` be ``multiply(the real one, left, right)`` meanwhile."""
        Tensor.__mul__ = lambda left, right: multiply(ops.mul, left, right)
        try:
            yield
        finally:
            Tensor.__mul__ = ops.mul
