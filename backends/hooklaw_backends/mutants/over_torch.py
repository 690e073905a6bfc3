"""torch in eager mode on the CPU, with what mutants reach for besides the verbs."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from hooklaw_backends.torch_eager import Hook, TorchEager, graph, torch

ENGINE: Any = import_module("torch._C")._autograd  # noqa: SLF001 - pairs and modes have no public way in
PRODUCT = torch.Tensor.__mul__
"""Kept from the start: of two threads that replace it at once, neither can put the other's back."""


class OverTorch(TorchEager):
    """What every mutant of torch-eager is made over; `OverReference` has the same."""

    original = "torch-eager"

    def reset(self) -> None:
        """Undo what a mutant or a failed rule left in this process: modes, pairs of hooks, their being disabled."""
        super().reset()
        self.allow_pairs()
        self.drop_pairs()

    def gradient_edge(self, tensor: Any) -> tuple[Any, int]:
        """Return the Node that a tensor's gradient goes to, and to which of its outputs."""
        return graph.get_gradient_edge(tensor)[:2]

    def leaf_of(self, node: Any) -> Any:
        """Return the leaf of an AccumulateGrad Node, None of any other."""
        return getattr(node, "variable", None)

    def hooks_of(self, tensor: Any) -> dict[int, Hook]:
        """Return a tensor's hooks by the ids of their handles."""
        return tensor._backward_hooks  # noqa: SLF001 - there is no public way to them

    def step_pre_hooks_of(self, optimizer: Any) -> dict[int, Hook]:
        """Return an optimizer's hooks before its steps by the ids of their handles."""
        return optimizer._optimizer_step_pre_hooks  # noqa: SLF001 - there is no public way to them

    def base_of(self, tensor: Any) -> Any:
        """Return the tensor that this one is a view of, or None."""
        return tensor._base  # noqa: SLF001 - there is no other name for it

    def version_of(self, tensor: Any) -> int:
        """Return how often the tensor's data was changed in place."""
        return tensor._version  # noqa: SLF001 - there is no other name for it

    def is_for_inference(self, tensor: Any) -> bool:
        """Tell whether a tensor was made in inference mode."""
        return tensor.is_inference()

    def overwrite(self, tensor: Any, values: Any) -> None:
        """Copy values over a tensor's data."""
        tensor.copy_(values)

    def overwrite_unseen(self, tensor: Any, values: Any) -> None:
        """Copy values over a tensor's data, past whoever watches or counts that."""
        tensor.data.copy_(values)

    def quotient(self, left: Any, right: Any) -> Any:
        return left / right

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.to(getattr(torch, dtype))

    def contiguous(self, tensor: Any) -> Any:
        return tensor.contiguous()

    def laid_out_like(self, tensor: Any, other: Any) -> Any:
        """Return a copy with another tensor's strides, if it has neither gaps nor overlaps."""
        return torch.empty_like(other).copy_(tensor)

    def strided(self, tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Look at a tensor's data by another shape and strides."""
        return tensor.as_strided(shape, strides)

    def has_pair(self) -> bool:
        """Tell whether a pair of saved-tensor hooks is active."""
        return bool(ENGINE._top_saved_tensors_default_hooks(True))  # noqa: SLF001, FBT003 - no public way

    def drop_pairs(self) -> None:
        """Let no pair be active."""
        while self.has_pair():
            ENGINE._pop_saved_tensors_default_hooks()  # noqa: SLF001 - no public way

    def forbidden(self) -> str | None:
        """Return the message with which pairs are forbidden, None where they are not."""
        return ENGINE._saved_tensors_hooks_get_disabled_error_message()  # noqa: SLF001 - no public way

    def forbid_pairs(self, message: str) -> None:
        """Disable saved-tensor hooks."""
        ENGINE._saved_tensors_hooks_disable(message)  # noqa: SLF001 - no public way

    def allow_pairs(self) -> None:
        """Enable saved-tensor hooks."""
        ENGINE._saved_tensors_hooks_enable()  # noqa: SLF001 - no public way

    @contextmanager
    def products_by(self, multiply: Callable[[Hook, Any, Any], Any]) -> Generator[None]:
        """Let ``*`` be ``multiply(the real one, left, right)`` meanwhile."""
        torch.Tensor.__mul__ = lambda left, right: multiply(PRODUCT, left, right)  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.Tensor.__mul__ = PRODUCT  # type: ignore[method-assign]
