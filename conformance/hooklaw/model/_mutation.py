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
        self.tensor = tensor
        storage, itself = tensor.data.storage, weakref.ref(self)
        self._version = storage.version
        storage.watchers = (*storage.watchers, lambda changed: (saved := itself()) and saved.copy(changed))

    def copy(self, changed: Strided) -> None:
        """Copy the data, which is about to be changed through the view `changed`."""
        mine = self.tensor.data
        noticed = (changed.offset, changed.storage.version) == (mine.offset, self._version)
        if noticed or not on("changes-through-another-look-are-missed"):
            self.tensor = ops.clone(self.tensor.detach())


class _Allowance:
    """One allow_mutation_on_saved_tensors context."""

    is_open = True

    def unpack(self, saved: _Saved) -> Tensor:
        """Return the saved tensor; OutsideMutationError outside of the context."""
        if not self.is_open or not is_mutable():
            raise OutsideMutationError("backward must run inside the context in which its graph was made")
        return saved.tensor


@contextmanager
def allow_mutation_on_saved_tensors() -> Generator[None]:
    """Allow in-place changes of tensors saved inside; a backward inside uses the data from before."""
    allowance = _Allowance()
    with saved_tensors_hooks(Pair(_Saved, allowance.unpack)), mutable():
        try:
            yield
        finally:
            allowance.is_open = False
