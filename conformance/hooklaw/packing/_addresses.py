"""Addresses of saved tensors that do not come again: what a packer takes for the same tensor is then no accident.

The allocator gives the address of a freed tensor to a later one or does not, as memory happens to lie. A packer that
keys by address would break other properties in every run. So what is packed keeps its memory while properties are
checked, and the properties about freed memory, which see to it themselves that an address comes again, run last.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

_kept: list[Any] = []


@contextmanager
def none_comes_again() -> Generator[None]:
    """Keep the memory of every tensor that a pack hook is given, for as long as the process lives."""
    from torch.autograd.graph import saved_tensors_hooks  # noqa: PLC0415 - the parent process does not import torch

    plain = saved_tensors_hooks.__init__

    def init(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        def pack(tensor: Any) -> Any:
            _kept.append(_memory(tensor))
            return pack_hook(tensor)

        plain(self, pack, unpack_hook)

    saved_tensors_hooks.__init__ = init
    try:
        yield
    finally:
        saved_tensors_hooks.__init__ = plain


def _memory(tensor: Any) -> Any:
    with suppress(RuntimeError, NotImplementedError):  # a sparse tensor has parts instead
        return tensor.untyped_storage()
    return tensor.detach()
