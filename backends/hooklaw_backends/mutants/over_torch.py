"""torch in eager mode on the CPU, with the further methods that mutants need."""

from importlib import import_module
from typing import Any

from hooklaw_backends.torch_eager import Hook, TorchEager, torch

ENGINE: Any = import_module("torch._C")._autograd  # noqa: SLF001 - there is no public API for pairs and modes


class OverTorch(TorchEager):
    """The base of every mutant of torch-eager; `OverReference` has the same methods."""

    original = "torch-eager"
    product: tuple[Any, Hook] = (torch.Tensor, torch.Tensor.__mul__)
    """The class of tensors, and its product; mutants replace it, also two at the same time in two threads."""

    def reset(self) -> None:
        """Undo what a mutant or a failed rule left behind in this process: modes, and active or disabled hooks."""
        super().reset()
        self.allow_pairs()
        self.drop_pairs()

    def gradient_edge(self, tensor: Any) -> tuple[Any, int]:
        """Return the Node that a tensor's gradient goes to, and the number of its output."""
        return torch.autograd.graph.get_gradient_edge(tensor)[:2]

    def leaf_of(self, node: Any) -> Any:
        """Return the leaf of an AccumulateGrad Node, or None for any other Node."""
        return getattr(node, "variable", None)

    def hooks_of(self, tensor: Any) -> dict[int, Hook]:
        """Return a tensor's hooks by the ids of their handles."""
        return tensor._backward_hooks  # noqa: SLF001 - there is no public API

    def step_pre_hooks_of(self, optimizer: Any) -> dict[int, Hook]:
        """Return an optimizer's step pre-hooks by the ids of their handles."""
        return optimizer._optimizer_step_pre_hooks  # noqa: SLF001 - there is no public API

    def base_of(self, tensor: Any) -> Any:
        """Return the base of a view, or None."""
        return tensor._base  # noqa: SLF001 - there is no public API

    def version_of(self, tensor: Any) -> int:
        """Return the tensor's version."""
        return tensor._version  # noqa: SLF001 - there is no public API

    def is_for_inference(self, tensor: Any) -> bool:
        """Whether a tensor was created in inference mode."""
        return tensor.is_inference()

    def overwrite(self, tensor: Any, values: Any) -> None:
        """Copy values into a tensor in place."""
        tensor.copy_(values)

    def overwrite_unseen(self, tensor: Any, values: Any) -> None:
        """Copy values into a tensor in place without changing its version."""
        tensor.data.copy_(values)

    def quotient(self, left: Any, right: Any) -> Any:
        return left / right

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.to(getattr(torch, dtype))

    def contiguous(self, tensor: Any) -> Any:
        return tensor.contiguous()

    def laid_out_like(self, tensor: Any, other: Any) -> Any:
        """Return a copy with the other tensor's strides, if they have neither gaps nor overlaps."""
        return torch.empty_like(other).copy_(tensor)

    def strided(self, tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Return a view with another shape and strides."""
        return tensor.as_strided(shape, strides)

    def has_pair(self) -> bool:
        """Whether a pair of saved-tensor hooks is active."""
        return bool(ENGINE._top_saved_tensors_default_hooks(True))  # noqa: SLF001, FBT003 - there is no public API

    def drop_pairs(self) -> None:
        """Deactivate all saved-tensor hooks."""
        while self.has_pair():
            ENGINE._pop_saved_tensors_default_hooks()  # noqa: SLF001 - there is no public API

    def forbidden(self) -> str | None:
        """Return the message with which saved-tensor hooks are disabled, or None."""
        return ENGINE._saved_tensors_hooks_get_disabled_error_message()  # noqa: SLF001 - there is no public API

    def forbid_pairs(self, message: str) -> None:
        """Disable saved-tensor hooks."""
        ENGINE._saved_tensors_hooks_disable(message)  # noqa: SLF001 - there is no public API

    def allow_pairs(self) -> None:
        """Enable saved-tensor hooks."""
        ENGINE._saved_tensors_hooks_enable()  # noqa: SLF001 - there is no public API
