"""allow_mutation_on_saved_tensors: a saved tensor is copied when it is about to be changed in place."""

import weakref
from collections.abc import Generator
from contextlib import contextmanager

from hooklaw.model import ops
from hooklaw.model.errors import OutsideMutationError
from hooklaw.model.flags import on
from hooklaw.model.modes import Pair, is_mutable, mutable, saved_tensors_hooks
from hooklaw.model.strided import Strided
from hooklaw.model.tensor import Tensor


class _Saved:
    """A saved tensor, with the data that it had when it was saved."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: Tensor | None = tensor
        storage, itself = tensor.data.storage, weakref.ref(self)
        self._version = storage.version
        storage.watchers = (*storage.watchers, lambda changed: (saved := itself()) and saved.copy(changed))

    def forget(self) -> None:
        """Drop the tensor; the graph stays."""
        self.tensor = None

    def copy(self, changed: Strided) -> None:
        """Copy the data, which is about to be changed through the view `changed`."""
        if self.tensor is None:
            return
        mine = self.tensor.data
        noticed = (changed.offset, changed.storage.version) == (mine.offset, self._version)
        if noticed or not on("changes-through-another-look-are-missed"):
            self.tensor = ops.clone(self.tensor.detach())


class _Allowance:
    """One allow_mutation_on_saved_tensors context."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def pack(self, tensor: Tensor) -> _Saved:
        """Keep a saved tensor until the context ends."""
        saved = _Saved(tensor)
        self._all.add(saved)
        return saved

    def unpack(self, saved: _Saved) -> Tensor:
        """Return the saved tensor; OutsideMutationError outside of the context."""
        if saved.tensor is None or not is_mutable():
            raise OutsideMutationError("backward must run inside the context in which its graph was made")
        return saved.tensor

    def close(self) -> None:
        """Forget every tensor that was saved inside."""
        for saved in self._all:
            saved.forget()


@contextmanager
def allow_mutation_on_saved_tensors() -> Generator[None]:
    """Allow in-place changes of tensors saved inside; a backward inside uses the data from before."""
    allowance = _Allowance()
    with saved_tensors_hooks(Pair(allowance.pack, allowance.unpack)), mutable():
        try:
            yield
        finally:
            allowance.close()
