"""A context in which saved tensors may be changed in place: what was saved there is copied when that happens."""

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
    """A tensor with the numbers that it had when it was saved."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        storage, itself = tensor.data.storage, weakref.ref(self)
        self._version = storage.version
        storage.watchers = (*storage.watchers, lambda look: (saved := itself()) and saved.copy(look))

    def copy(self, look: Strided) -> None:
        """Copy the numbers, which are about to be changed by this look at them."""
        mine = self.tensor.data
        noticed = (look.offset, look.storage.version) == (mine.offset, self._version)
        if noticed or not on("changes-through-another-look-are-missed"):
            self.tensor = ops.clone(self.tensor.detach())


class _Allowance:
    """One such context, a pair of saved-tensor hooks that works until its end."""

    is_open = True

    def unpack(self, saved: _Saved) -> Tensor:
        """Return what was saved."""
        if not self.is_open or not is_mutable():
            raise OutsideMutationError("a backward belongs into the context in which its graph was made")
        return saved.tensor


@contextmanager
def allow_mutation_on_saved_tensors() -> Generator[None]:
    """Let what is saved inside be changed in place; a backward inside computes with the numbers from before."""
    allowance = _Allowance()
    with saved_tensors_hooks(Pair(_Saved, allowance.unpack)), mutable():
        try:
            yield
        finally:
            allowance.is_open = False
