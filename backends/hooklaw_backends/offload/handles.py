"""Handles that the graph keeps instead of saved tensors: for a tensor that stayed, and for one that moved."""

import weakref
from typing import Any, Protocol

from torch import Tensor

from hooklaw_backends.offload.layout import Layout


class Handle(Protocol):
    """What pack returns. `get` may be called again, in any order, from any thread, as a graph may be run."""

    def get(self) -> Tensor: ...


class Parcel(Protocol):
    """Elements in a medium; the last reference to them frees their place."""

    def get(self, handle: Any) -> Tensor: ...

    def join(self, handle: Any) -> None:
        """Note a handle that will ask for these elements."""
        ...


class Kept:
    """A tensor that stays where it is, with the check for changes in place that hooks switch off.

    The alias is detached: a handle that held the tensor itself would hold the Node that holds the handle.
    """

    __slots__ = ("__weakref__", "_tensor", "_version")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor.detach()
        try:
            self._version = tensor._version  # noqa: SLF001 - each call here would show in the price of a hook
        except RuntimeError:
            self._version = -1  # an inference tensor

    def get(self) -> Tensor:
        tensor = self._tensor
        if self._version >= 0 and tensor._version != self._version:  # noqa: SLF001 - idem
            check_version(tensor, self._version)
        return tensor


class Moved:
    """A tensor whose elements are elsewhere; several may share a parcel."""

    __slots__ = ("__weakref__", "_layout", "_parcel")

    def __init__(self, parcel: Parcel, layout: Layout) -> None:
        self._parcel = parcel
        self._layout = layout
        parcel.join(self)

    def get(self) -> Tensor:
        return self._layout.restore(self._parcel.get(self))


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


Register = weakref.WeakValueDictionary[Any, Any]
