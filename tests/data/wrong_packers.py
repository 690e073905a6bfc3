"""Packers that are wrong about graphs, contexts, threads or media. Each is a plain copy but for its one vice."""

import threading
import time
import weakref
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import ClassVar

import torch
from torch.autograd.graph import saved_tensors_hooks
from wrong_tensors import Copies, Stores

ignore_is_tracing = True


class DeleteOnUnpack(Stores):
    """Forgets a tensor once it was asked for."""

    def unpack(self, packed):
        return self.store.pop(packed)


class OneEntryForEachTensor(Stores):
    """Stores a tensor that is saved twice once, and forgets it when it was asked for once."""

    def pack(self, tensor):
        key = id(tensor), tensor.shape, tensor._version
        self.store[key] = tensor.detach().clone()
        return key

    def unpack(self, packed):
        return self.store.pop(packed)


class UnpacksInPlace(Copies):
    """Scales what it has packed, and scales it back in place: right once."""

    def pack(self, tensor):
        return tensor.detach().clone() * 2 if tensor.is_floating_point() else tensor.detach().clone()

    def unpack(self, packed):
        return packed.div_(2) if packed.is_floating_point() else packed


class OneBufferForAll(Copies):
    """Brings every tensor back in the same memory."""

    def __init__(self):
        super().__init__()
        self.buffer = None

    def unpack(self, packed):
        if packed.layout != torch.strided or packed.dtype != torch.float32:
            return packed
        if self.buffer is None or self.buffer.numel() < packed.numel():
            self.buffer = torch.empty(packed.numel(), device=packed.device)
        return self.buffer[: packed.numel()].view(packed.shape).copy_(packed)


class OneBufferForEachShape(Copies):
    """Copies every tensor of a shape into the same memory."""

    def __init__(self):
        super().__init__()
        self.buffers = {}

    def pack(self, tensor):
        if tensor.layout != torch.strided:
            return super().pack(tensor)
        key = tensor.shape, tensor.dtype, tensor.device
        return self.buffers.setdefault(key, torch.empty_like(tensor)).copy_(tensor.detach())


class LastInFirstOutAssumed(Copies):
    """Keeps a stack, and gives back its top."""

    def __init__(self):
        super().__init__()
        self.stack = []

    def pack(self, tensor):
        self.stack.append(tensor.detach().clone())

    def unpack(self, packed):
        return self.stack.pop()


class OneGraphAtATime(Copies):
    """Numbers what it packs from 0 in each context, in one table for all."""

    table: ClassVar = {}

    def __init__(self):
        super().__init__()
        self.number = 0

    def pack(self, tensor):
        self.number += 1
        self.table[self.number] = tensor.detach().clone()
        return self.number

    def unpack(self, packed):
        return self.table[packed]


class ClearedByTheNextForward(Stores):
    """Takes entering the context for the beginning of a new step, and forgets the last."""

    def __enter__(self):
        self.store.clear()
        return super().__enter__()


class NumbersBeginAgainWithEachEntry(Stores):
    """Takes entering the context for the beginning of a new step, and numbers what it packs from 1 again."""

    def __enter__(self):
        self.number = 0
        return super().__enter__()


class RefusesAfterADroppedGraph(Stores):
    """Takes it that a backward asked for all there is, and refuses to pack where something is left."""

    def __init__(self):
        super().__init__()
        self.unpacking = False

    def pack(self, tensor):
        if self.unpacking and self.store:
            raise RuntimeError("the last backward left something behind")
        self.unpacking = False
        return super().pack(tensor)

    def unpack(self, packed):
        self.unpacking = True
        return self.store.pop(packed)


class ClearedByTheNextBackward(Stores):
    """Forgets all it has when something is packed after something was unpacked."""

    def __init__(self):
        super().__init__()
        self.unpacking = False

    def pack(self, tensor):
        if self.unpacking:
            self.store.clear()
        self.unpacking = False
        return super().pack(tensor)

    def unpack(self, packed):
        self.unpacking = True
        return super().unpack(packed)


class LiveTensorKept(Copies):
    """Keeps the very tensor, beside its copy."""

    def pack(self, tensor):
        return tensor, tensor.detach().clone()

    def unpack(self, packed):
        return packed[1]


class DroppedGraphsLeak(Stores):
    """Forgets only what was asked for, so a graph that is dropped stays."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def unpack(self, packed):
        found = super().unpack(packed)
        self.asked.append(packed)
        return found


class KeptAfterBackward(Stores):
    """Forgets nothing."""


class StridesAssumedContiguous(Copies):
    """Keeps bytes as they lie, and reads them as if they lay in order."""

    def pack(self, tensor):
        if tensor.layout == torch.strided and tensor.dim() == 2 and not tensor.is_contiguous():
            return tensor.detach().clone().mT.reshape(tensor.shape)
        return super().pack(tensor)


class ClosedByItsFirstBackward(Stores):
    """Packs nothing any more once it has unpacked."""

    closed = False

    def pack(self, tensor):
        return None if self.closed else super().pack(tensor)

    def unpack(self, packed):
        self.closed = True
        return super().unpack(packed)


class PackedOnlyWhenTheContextIsLeft(Stores):
    """Queues tensors, and packs them when the context is left."""

    def __init__(self):
        super().__init__()
        self.queue = []

    def pack(self, tensor):
        self.number += 1
        self.queue.append((self.number, tensor.detach().clone()))
        return self.number

    def __exit__(self, *what):
        self.store.update(self.queue)
        return super().__exit__(*what)


class ParametersCachedForGood(Copies):
    """Copies a parameter once, and never again."""

    cache: ClassVar = weakref.WeakKeyDictionary()

    def pack(self, tensor):
        base = tensor if tensor._base is None else tensor._base
        if not isinstance(base, torch.nn.Parameter):
            return super().pack(tensor)
        kept = self.cache.setdefault(base, {})
        return kept.setdefault((tensor.shape, tensor.stride()), tensor.detach().clone())


class ClosedWhenLeft(Stores):
    """Closes its file when the context is left."""

    def __exit__(self, *what):
        self.store = {}
        return super().__exit__(*what)


class OneSlotForNestedEntries:
    """Has room for one pair of hooks, and enters it twice."""

    def __enter__(self):
        self.hooks = saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda packed: packed)
        self.hooks.__enter__()
        return self

    def __exit__(self, *what):
        if self.hooks:
            self.hooks.__exit__(*what)
        self.hooks = None


class LeavesItsHooksWhenNested:
    """Counts how deep contexts are nested in all, and takes its hooks off once."""

    depth = 0

    def __enter__(self):
        type(self).depth += 1
        self.hooks = saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda packed: packed)
        self.hooks.__enter__()
        return self

    def __exit__(self, *what):
        type(self).depth -= 1
        if not self.depth:
            self.hooks.__exit__(*what)


class ComposesWithThePairOutside:
    """Hands everything to the pair of hooks around it first."""

    def __enter__(self):
        outer = torch._C._autograd._top_saved_tensors_default_hooks(ignore_is_tracing)

        def pack(tensor):
            return (outer[0](tensor) if outer else tensor.detach()).clone()

        self.hooks = saved_tensors_hooks(pack, outer[1] if outer else lambda packed: packed)
        self.hooks.__enter__()
        return self

    def __exit__(self, *what):
        self.hooks.__exit__(*what)


class HooksLeftOnTheStack(Copies):
    """Never takes its hooks off."""

    def __exit__(self, *what):
        pass


class HooksLeftAfterAnException(Copies):
    """Takes its hooks off only where all went well."""

    def __exit__(self, kind, *what):
        if kind is None:
            super().__exit__(kind, *what)


class ExceptionsSwallowed(Copies):
    """Tells the interpreter that it has dealt with the exception."""

    def __exit__(self, *what):
        super().__exit__(*what)
        return True


class GradientsSwitchedOn(Copies):
    """Turns gradients on for its own good."""

    def __enter__(self):
        self.mode = torch.enable_grad()
        self.mode.__enter__()
        return super().__enter__()

    def __exit__(self, *what):
        super().__exit__(*what)
        self.mode.__exit__(*what)


class InPlaceOnPacksInput(Copies):
    """Rounds the tensor that it is given, not a copy of it."""

    def pack(self, tensor):
        with torch.no_grad():
            if tensor.is_floating_point() and tensor.layout == torch.strided and not tensor.is_inference():
                tensor.detach().mul_(0.5)
        return super().pack(tensor)


class LiveTensorGivenBackUnchecked(Copies):
    """Keeps a second name for the tensor's memory, and does not look whether it changed."""

    def pack(self, tensor):
        return tensor.detach()


class ParametersGivenBackUnchecked(Copies):
    """Leaves parameters where they are, and does not look whether they changed."""

    def pack(self, tensor):
        base = tensor if tensor._base is None else tensor._base
        return tensor.detach() if isinstance(base, torch.nn.Parameter) else super().pack(tensor)


class ParametersToldByTheirType(Copies):
    """Leaves parameters where they are, and takes a transposed one for an activation."""

    def pack(self, tensor):
        if not isinstance(tensor, torch.nn.Parameter):
            return super().pack(tensor), None
        return tensor.detach(), tensor._version

    def unpack(self, packed):
        tensor, version = packed
        if version not in (None, tensor._version):
            raise RuntimeError("a parameter was changed in place since it was saved")
        return tensor


class ThreadLocalState(Stores):
    """Keeps its table where only the thread that packed finds it."""

    def __init__(self):
        super().__init__()
        self.local = threading.local()

    def pack(self, tensor):
        self.local.__dict__.setdefault("store", {})[number := time.perf_counter_ns()] = tensor.detach().clone()
        return number

    def unpack(self, packed):
        return self.local.store[packed]


class ThreadSharedState(Copies):
    """Keeps what is being packed in one place for all threads, and numbers it by how much is there."""

    table: ClassVar = {}

    def __enter__(self):
        self.table.clear()
        return super().__enter__()

    def pack(self, tensor):
        number = len(self.table)
        time.sleep(0.001)
        self.table[number] = tensor.detach().clone()
        return number

    def unpack(self, packed):
        return self.table[packed]


class UnpackingRaces(Copies):
    """Goes to a place in its file, and reads whatever is at the place where the file is by then."""

    def __init__(self):
        super().__init__()
        self.file = TemporaryFile()  # noqa: SIM115 - it lives as long as the packer

    def __del__(self):
        self.file.close()

    def pack(self, tensor):
        if tensor.layout != torch.strided or tensor.dtype != torch.float32 or not tensor.numel():
            return super().pack(tensor)
        place = self.file.seek(0, 2)
        self.file.write(tensor.detach().contiguous().cpu().numpy().tobytes())
        return place, tensor.shape, tensor.device

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        place, shape, device = packed
        self.file.seek(place)
        time.sleep(0.0005)
        read = self.file.read(4 * shape.numel())
        return torch.frombuffer(bytearray(read), dtype=torch.float32).reshape(shape).to(device)


class PatchesAutogradForAllThreads:
    """Wraps an operation of torch itself, for whoever calls it."""

    def __enter__(self):
        self.original = original = torch.Tensor.exp

        def exp(tensor):
            with Copies():
                return original(tensor)

        torch.Tensor.exp = exp

    def __exit__(self, *what):
        torch.Tensor.exp = self.original


class RefusesUnderAnotherPair(Copies):
    """Refuses to be entered where other hooks are at work."""

    def __enter__(self):
        if torch._C._autograd._top_saved_tensors_default_hooks(ignore_is_tracing):
            raise RuntimeError("hooks are at work already")
        return super().__enter__()


class TensorsDetachedInPlace(Copies):
    """Cuts the tensor that it is given off its graph."""

    def pack(self, tensor):
        return (tensor if tensor.is_leaf or tensor._is_view() else tensor.detach_()).detach().clone()


class Disk(Copies):
    """Writes each tensor into a file of its own, which goes with the graph: right."""

    folder = TemporaryDirectory(prefix="hooklaw-wrong-")
    medium = f"disk:{folder.name}"

    def pack(self, tensor):
        if tensor.layout != torch.strided or tensor.dtype != torch.float32 or not tensor.numel():
            return super().pack(tensor)
        return File(Path(self.folder.name, f"{time.perf_counter_ns()}"), tensor.detach())

    def unpack(self, packed):
        return packed if isinstance(packed, torch.Tensor) else packed.read()


class File:
    """A tensor in a file."""

    def __init__(self, path, tensor):
        self.path, self.shape, self.device = path, tensor.shape, tensor.device
        path.write_bytes(tensor.contiguous().cpu().numpy().tobytes())

    def read(self):
        return torch.frombuffer(bytearray(self.path.read_bytes()), dtype=torch.float32).reshape(self.shape)

    def __del__(self):
        self.path.unlink(missing_ok=True)


class FilesLeftBehind(Disk):
    """Never takes a file away."""

    def pack(self, tensor):
        packed = super().pack(tensor)
        if isinstance(packed, File):
            packed.path = packed.path.rename(packed.path.with_suffix(".kept"))
            packed.path, path = Path("/nonexistent"), packed.path
            return path, packed.shape
        return packed

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        path, shape = packed
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).reshape(shape)


class ClaimsDiskKeepsMemory(Copies):
    """Says that it writes to disk, and copies in memory."""

    medium = Disk.medium


class Crashes(Copies):
    """Ends the process with the first tensor that has three dimensions."""

    def pack(self, tensor):
        if tensor.dim() == 3:
            import os

            os.write(2, b"no third dimension\n")
            os.abort()
        return super().pack(tensor)


class Hangs(Copies):
    """Waits for what never comes when a tensor is empty."""

    def pack(self, tensor):
        if not tensor.numel():
            threading.Event().wait()
        return super().pack(tensor)
