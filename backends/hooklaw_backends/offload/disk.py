"""Saved tensors in a file: as raw bytes, or through torch.save."""

import ctypes
import errno
import io
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor

from hooklaw_backends.offload.extents import Extents, Stretch
from hooklaw_backends.offload.handles import Parcel
from hooklaw_backends.offload.packer import Medium, Options, Packer


class Spill:
    """An unnamed file, readable only by its owner, that the system removes when the process ends.

    Its stretches are given back with their objects, and reused.
    """

    def __init__(self, directory: str | None = None) -> None:
        self.owner = os.getpid()
        self._directory = directory or tempfile.gettempdir()
        self._descriptor = _unnamed(self._directory)
        self._full = False
        weakref.finalize(self, os.close, self._descriptor)
        self._extents = Extents(grows=True)
        self._lock = threading.Lock()

    def write(self, data: memoryview) -> Stretch:
        """Write the bytes into the file; if the disk is full, no part of it stays taken."""
        nbytes = len(data)
        with self._lock:
            start = self._extents.take(nbytes) or 0
        stretch = Stretch(self, start, nbytes)
        try:
            _whole(lambda at: os.pwrite(self._descriptor, data[at:], start + at), nbytes)
        except OSError as error:
            self._full = True
            raise _explained(error, nbytes, self._directory) from error
        return stretch

    def read(self, start: int, into: memoryview) -> None:
        """Fill the buffer from the file."""
        _whole(lambda at: os.preadv(self._descriptor, [into[at:]], start + at), len(into))

    def give(self, start: int, nbytes: int) -> None:
        """Take the stretch back; safe in a finalizer. Its bytes are reused, or returned at once to a full disk."""
        self._extents.give(start, nbytes)
        if self._full and self._lock.acquire(blocking=False):
            self._shrink()
            self._lock.release()

    def _shrink(self) -> None:
        if os.getpid() == self.owner and self._extents.is_empty():
            os.ftruncate(self._descriptor, 0)
            self._extents = Extents(grows=True)
            self._full = False

    def nbytes(self) -> int:
        """Return how long the file is."""
        return os.fstat(self._descriptor).st_size


class RawDisk(Medium):
    """The elements as they stand in memory."""

    def __init__(self, directory: str | None = None) -> None:
        super().__init__()
        self._directory = directory
        self._spill: Spill | None = None

    def put(self, flat: Tensor) -> Parcel:
        data = self.written(flat)
        stretch = self._opened().write(data)
        self.moved(out=len(data))
        return _OnDisk(self, stretch, flat)

    def close(self) -> None:
        """Release the file; it vanishes with the last stretch that a graph holds."""
        self._spill = None

    def file_bytes(self) -> int:
        """Return the length of the file, which shows that the bytes came here."""
        return self._spill.nbytes() if self._spill else 0

    def written(self, flat: Tensor) -> memoryview:
        """Return the bytes that stand for the elements."""
        return bytes_of(flat.cpu())

    def fetched(self, stretch: Stretch, length: int, dtype: torch.dtype) -> Tensor:
        """Return the elements of a stretch on the CPU."""
        host = torch.empty(length, dtype=dtype)
        self.read(stretch, bytes_of(host))
        return host

    def read(self, stretch: Stretch, into: memoryview) -> None:
        """Read the stretch, and count it."""
        stretch.space.read(stretch.start, into)
        self.moved(back=stretch.nbytes)

    def _opened(self) -> Spill:
        """Return the file of this process: after a fork the child must not write into its parent's."""
        with self._lock:
            if self._spill is None or self._spill.owner != os.getpid():
                self._spill = Spill(self._directory)
            return self._spill


class SavedDisk(RawDisk):
    """The elements as torch.save writes them; read back without unpickling anything but tensors."""

    def written(self, flat: Tensor) -> memoryview:
        file = io.BytesIO()
        torch.save(flat.clone(), file)  # of an alias torch.save would write the whole storage
        return file.getbuffer()

    def fetched(self, stretch: Stretch, length: int, dtype: torch.dtype) -> Tensor:  # noqa: ARG002 - the file has both
        data = bytearray(stretch.nbytes)
        self.read(stretch, memoryview(data))
        return torch.load(io.BytesIO(data), weights_only=True)


class _OnDisk(Parcel):
    def __init__(self, disk: RawDisk, stretch: Stretch, flat: Tensor) -> None:
        self._disk = disk
        self._stretch = stretch
        self._form = (flat.numel(), flat.dtype)
        self._device = flat.device

    def get(self, handle: Any) -> Tensor:  # noqa: ARG002 - nobody is waited for
        return self._disk.fetched(self._stretch, *self._form).to(self._device)


class DiskRaw(Packer):
    """Raw bytes in an unnamed file, written when packed and read when unpacked, each stretch once."""

    medium = "disk"
    kind: type[RawDisk] = RawDisk

    def __init__(self, directory: str | None = None, **options: Unpack[Options]) -> None:
        self.disk = self.kind(directory)
        super().__init__(self.disk, **options)


class DiskSave(DiskRaw):
    """torch.save and torch.load, as in PyTorch's tutorial, on the same unnamed file."""

    kind = SavedDisk


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor as bytes, without a copy."""
    array: Any = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    array.owner = tensor  # the view holds the array, and the array the tensor
    return memoryview(array).cast("B")


def _unnamed(directory: str) -> int:
    try:
        with tempfile.TemporaryFile(dir=directory, prefix="hooklaw-") as file:
            return os.dup(file.fileno())
    except OSError as error:
        raise _explained(error, 0, directory) from error


def _whole(step: Callable[[int], int], nbytes: int) -> None:
    done = 0
    while done < nbytes:
        moved = step(done)
        if moved <= 0:
            raise OSError(errno.EIO, "the file ended early")
        done += moved


def _explained(error: OSError, nbytes: int, directory: str) -> OSError:
    said = error.strerror or type(error).__name__
    return type(error)(
        error.errno,
        f"{nbytes} bytes of saved tensors cannot be written below {directory}: {said}; "
        "free some room there, or name another directory in TMPDIR",
    )
