"""Handles that the graph keeps instead of saved tensors: for a tensor that stayed, and for one that moved."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from hooklaw_backends.offload.layout import Layout

Kept = tuple[Tensor, int | None]
"""A tensor that stays where it is, and its version: a tuple, since a class would show in the price of a hook."""


def keep(tensor: Tensor) -> Kept:
    """Return the handle of a tensor that stays.

    The alias is detached: a handle that held the tensor itself would hold the Node that holds the handle.
    """
    try:
        return tensor.detach(), tensor._version  # noqa: SLF001 - each call here would show in the price of a hook
    except RuntimeError:
        return tensor.detach(), None  # an inference tensor


def kept(handle: Kept) -> Tensor:
    """Return the tensor, with the check for changes in place that hooks switch off."""
    tensor, version = handle
    if version is not None and tensor._version != version:  # noqa: SLF001 - idem
        check_version(tensor, version)
    return tensor


class Parcel:
    """Elements in a medium; the last reference to them frees their place."""

    storage: StorageWeakRef | None = None
    """Keeps the address of the storage that they came from, which is part of their key, from being used anew."""
    decode: Callable[[Tensor], Tensor] | None = None
    """The codec's way back."""

    def get(self, handle: Any) -> Tensor:
        """Return the elements on their device; a handle may ask again."""
        raise NotImplementedError

    def join(self, handle: Any) -> None:
        """Note a handle that will ask for these elements."""


class Moved:
    """A tensor whose elements are elsewhere; several may share a parcel."""

    __slots__ = ("__weakref__", "_layout", "_parcel")

    def __init__(self, parcel: Parcel, layout: Layout) -> None:
        self._parcel = parcel
        self._layout = layout
        parcel.join(self)

    def get(self) -> Tensor:
        elements, decode = self._parcel.get(self), self._parcel.decode
        return self._layout.restore(decode(elements) if decode else elements)


def version_of(tensor: Tensor) -> int:
    """Return how often the tensor was changed in place; an inference tensor does not count."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - the counter has no public name


def check_version(tensor: Tensor, expected: int) -> None:
    """Raise as autograd does without hooks where the tensor was changed in place."""
    found = version_of(tensor)
    if found != expected:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"a saved {tensor.dtype} tensor of shape {tuple(tensor.shape)} is at version {found}, "
            f"it was packed at version {expected}; change a clone of it instead"
        )
