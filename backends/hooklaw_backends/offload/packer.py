"""The packer that all families share: it decides which tensors move, stay, or were moved before."""

import threading
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, Protocol, Self, TypedDict, Unpack

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from hooklaw_backends.offload.handles import Kept, Moved, Parcel, keep, kept, version_of
from hooklaw_backends.offload.layout import Layout, flatten

PLAIN_TYPES = (Tensor, torch.nn.Parameter)
COUNTERS = ("packs", "unpacks", "kept", "deduplicated", "bytes_packed", "bytes_unique", "bytes_deduplicated")
Handle = Kept | Moved
"""What pack returns. It may be unpacked again, in any order, from any thread, as a graph may be run."""


class Medium:
    """Where elements go. When `put` returns, changes to the source no longer reach them."""

    def __init__(self) -> None:
        self.bytes_out = 0
        self.bytes_back = 0
        self._lock = threading.Lock()

    def put(self, flat: Tensor) -> Parcel:
        """Take the elements."""
        raise NotImplementedError

    def moved(self, *, out: int = 0, back: int = 0) -> None:
        """Count bytes that went out or came back."""
        with self._lock:
            self.bytes_out += out
            self.bytes_back += back

    def close(self) -> None:
        """Release what is held between steps."""


class Codec(Protocol):
    """A shorter form of a flat run of elements.

    `tolerance` is by how much an element may come back wrong, against the largest magnitude of its tensor, and
    `gradient_tolerance` what that may do to the gradients of a whole model.
    """

    tolerance: float
    gradient_tolerance: float

    def takes(self, flat: Tensor) -> bool: ...

    def encode(self, flat: Tensor) -> Tensor: ...

    def decode(self, coded: Tensor, dtype: torch.dtype, length: int) -> Tensor: ...


class Choice(Protocol):
    """Which of the tensors that could move do move."""

    def begin(self) -> None: ...

    def takes(self, nbytes: int) -> bool: ...


class Options(TypedDict, total=False):
    """What every family takes: fewer bits, a choice of tensors, and the size below which a tensor stays."""

    codec: Codec | None
    choice: Choice | None
    min_bytes: int


class Memory(Medium):
    """The device itself, for a codec whose result stays there."""

    def put(self, flat: Tensor) -> Parcel:
        return _InMemory(flat)


class _InMemory(Parcel):
    def __init__(self, flat: Tensor) -> None:
        self._flat = flat

    def get(self, handle: Any) -> Tensor:  # noqa: ARG002 - nobody is waited for
        return self._flat


class Packer:
    """A context manager that sends what autograd saves to a medium, and fetches it when backward needs it.

    One instance may be entered again, nested, and from several threads. Parameters stay, found by their storage, so
    that a transposed view of one stays too; so do sparse, quantized and other tensors that are not plainly strided.
    Elements that were moved already are not moved again while anything of the first move lives: the key is the storage
    (held by a weak reference, so that its address cannot be used anew), the stretch of it and the version counter.
    A write through ``.data`` is beyond that counter, here as in autograd.
    """

    medium: ClassVar[str] = "memory"

    def __init__(self, medium: Medium | None = None, **options: Unpack[Options]) -> None:
        self._medium = medium
        self._codec = codec = options.get("codec")
        self._choice = options.get("choice")
        self._min_bytes = max(1, options.get("min_bytes", 0))  # an empty tensor stays
        self.lossless = codec is None
        self.tolerance = codec.tolerance if codec else 0.0
        self.gradient_tolerance = codec.gradient_tolerance if codec else 0.0
        self._owned: dict[int, StorageWeakRef] = {}
        self._parcels: weakref.WeakValueDictionary[Any, Parcel] = weakref.WeakValueDictionary()
        self._stayed: weakref.WeakValueDictionary[Any, Tensor] = weakref.WeakValueDictionary()
        self._entered = threading.local()
        self._lock = threading.Lock()
        self._counts: Counter[str] | None = None

    def __enter__(self) -> Self:
        if self._choice and not self._stack():
            self._choice.begin()
        hooks = torch.autograd.graph.saved_tensors_hooks(*self._hooks())
        hooks.__enter__()
        self._stack().append(hooks)
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: PYI036 - handed on to torch, which says what each is
        self._stack().pop().__exit__(*error)

    def _hooks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return self.pack, self.unpack

    def own(self, model: torch.nn.Module) -> None:
        """Keep the parameters and buffers of a model where they are, since they live on anyway."""
        for tensor in (*model.parameters(), *model.buffers()):
            if is_plain(tensor):
                storage = StorageWeakRef(tensor.untyped_storage())
                self._owned[storage.cdata] = storage

    def pack(self, tensor: Tensor) -> Handle:
        """Return the handle that the graph keeps instead of the tensor."""
        if self._counts is not None:
            self._count(packs=1, bytes_packed=tensor.nbytes if is_plain(tensor) else 0)
        if self._medium and not self._must_stay(tensor):
            return self._move(tensor, self._medium)
        return keep(tensor) if self._counts is None else self._keep(tensor)

    def unpack(self, handle: Handle) -> Tensor:
        """Return the tensor of a handle."""
        if self._counts is not None:
            self._count(unpacks=1)
        return kept(handle) if isinstance(handle, tuple) else handle.get()

    def counters(self) -> dict[str, int]:
        """Return how many tensors and bytes were packed, kept, found again, sent out and fetched back.

        Counting costs as much as a hook, so it begins with the first call, which returns zeros.
        """
        medium = self._medium or Memory()
        with self._lock:
            self._counts = Counter() if self._counts is None else self._counts
            counts = {name: self._counts[name] for name in COUNTERS}
        return {**counts, "bytes_out": medium.bytes_out, "bytes_back": medium.bytes_back}

    def close(self) -> None:
        """Release what is held between steps; graphs that are alive can still be run."""
        if self._medium:
            self._medium.close()

    def _must_stay(self, tensor: Tensor) -> bool:
        ordinary = type(tensor) in PLAIN_TYPES and tensor.layout is torch.strided
        if not ordinary or tensor.nbytes < self._min_bytes or not is_plain(tensor):
            return True  # asked in the order in which most tensors are found to stay
        root = tensor._base if tensor._is_view() else tensor  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if root is not None and root.is_leaf and root.requires_grad:
            return True
        return _address(tensor) in self._owned

    def _keep(self, tensor: Tensor) -> Kept:
        self._count(kept=1)
        return keep(tensor)

    def _move(self, tensor: Tensor, medium: Medium) -> Handle:
        flat, layout = flatten(tensor)
        if self._codec and not self._codec.takes(flat):
            return self._keep(tensor)
        key = _key(tensor, flat, layout)
        if key in self._stayed:
            return self._keep(tensor)
        parcel = self._parcels.get(key)
        if parcel:
            self._count(deduplicated=1, bytes_deduplicated=flat.nbytes)
            return Moved(parcel, layout)
        self._count(bytes_unique=flat.nbytes)
        if self._choice and not self._choice.takes(flat.nbytes):
            handle = self._keep(tensor)
            self._stayed[key] = handle[0]
            return handle
        parcel = self._parcels[key] = self._sent(flat, medium)
        parcel.storage = StorageWeakRef(tensor.untyped_storage())
        return Moved(parcel, layout)

    def _sent(self, flat: Tensor, medium: Medium) -> Parcel:
        if not self._codec:
            return medium.put(flat)
        parcel = medium.put(self._codec.encode(flat))
        parcel.decode = partial(self._codec.decode, dtype=flat.dtype, length=flat.numel())
        return parcel

    def _count(self, **more: int) -> None:
        if self._counts is not None:
            with self._lock:
                self._counts.update(more)

    def _stack(self) -> list[AbstractContextManager[Any]]:
        if not hasattr(self._entered, "stack"):
            self._entered.stack = []
        return self._entered.stack


def is_plain(tensor: Tensor) -> bool:
    """Return whether the tensor consists of elements and strides only."""
    ordinary = type(tensor) in PLAIN_TYPES and tensor.layout is torch.strided
    return ordinary and not tensor.is_quantized and not tensor.is_meta


def _address(tensor: Tensor) -> int:
    storage: Any = tensor.untyped_storage()
    return storage._cdata  # noqa: SLF001 - a storage has no other name


def _key(tensor: Tensor, flat: Tensor, layout: Layout) -> tuple[Any, ...]:
    stretch = (tensor.storage_offset(), layout.size, layout.stride) if layout.gaps else (flat.storage_offset(),)
    return (_address(tensor), tensor.data_ptr(), version_of(tensor), flat.dtype, flat.numel(), stretch)
