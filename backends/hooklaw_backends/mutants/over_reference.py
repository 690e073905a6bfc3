"""The reference engine, with the further methods that mutants need."""

from operator import truediv
from typing import Any

from hooklaw.model import modes, ops
from hooklaw.model.adapter import Hook, Reference
from hooklaw.model.modes import innermost_pair
from hooklaw.model.strided import contiguous, filled
from hooklaw.model.tensor import Tensor


def here() -> Any:
    """Return the modes of this thread."""
    return vars(modes)["_here"]


class OverReference(Reference):
    """The base of every mutant of the reference engine; `OverTorch` says what its methods do."""

    original = "reference"
    product: tuple[Any, Hook] = (Tensor, ops.mul)

    def gradient_edge(self, tensor: Any) -> tuple[Any, int]:
        return tensor.needed_edge()

    def leaf_of(self, node: Any) -> Any:
        return getattr(node, "leaf", None)

    def hooks_of(self, tensor: Any) -> dict[int, Hook]:
        node, nr = tensor.needed_edge()
        return node.hooks_of(nr)

    def step_pre_hooks_of(self, optimizer: Any) -> dict[int, Hook]:
        return optimizer.step_hooks["pre"]

    def base_of(self, tensor: Any) -> Any:
        return tensor.base

    def version_of(self, tensor: Any) -> int:
        return tensor.data.storage.version

    def is_for_inference(self, tensor: Any) -> bool:
        return bool(tensor.data.storage.for_inference)

    def overwrite(self, tensor: Any, values: Any) -> None:
        tensor.data.write(values.data.values())

    def overwrite_unseen(self, tensor: Any, values: Any) -> None:
        for place, value in zip(tensor.data.places(), values.data.values(), strict=True):
            tensor.data.storage.numbers[place] = value

    def quotient(self, left: Any, right: Any) -> Any:
        return Tensor(filled(map(truediv, left.data.values(), right.data.values()), left.shape, left.dtype))

    def cast(self, tensor: Any, dtype: str) -> Any:
        return ops.cast(tensor, dtype)

    def contiguous(self, tensor: Any) -> Any:
        return tensor if tensor.data.is_contiguous() else ops.clone(tensor, contiguous(tensor.shape))

    def laid_out_like(self, tensor: Any, other: Any) -> Any:
        return ops.clone(tensor, other.data.strides if other.data.is_dense() else None)

    def strided(self, tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        return Tensor(tensor.data.view(shape, strides))

    def has_pair(self) -> bool:
        return innermost_pair() is not None

    def drop_pairs(self) -> None:
        here().pairs = ()

    def forbidden(self) -> str | None:
        return here().disabled

    def forbid_pairs(self, message: str) -> None:
        here().disabled = message

    def allow_pairs(self) -> None:
        here().disabled = None
