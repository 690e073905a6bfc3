"""Packers that do what they should not, each in its own way; `hooklaw bench` has to mark them and go on."""

import errno
import os
import signal
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch

GREETING = 1
"""So many instances a worker makes of a strategy before it measures any."""


class Bad(torch.autograd.graph.saved_tensors_hooks):
    """Packs right, which the others do not."""

    steps = 0

    def __init__(self):
        super().__init__(self.pack, self.unpack)

    def __enter__(self):
        self.steps += 1
        super().__enter__()
        return self

    def pack(self, tensor):
        return tensor.clone()

    def unpack(self, tensor):
        return tensor


class Raises(Bad):
    """Cannot pack."""

    def pack(self, tensor):
        raise ValueError("not this tensor")


class Hangs(Bad):
    """Never comes to an end."""

    def pack(self, tensor):
        time.sleep(1000)


class FillsDisk(Bad):
    """Finds no room, as one that writes too much does."""

    def pack(self, tensor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class EatsMemory(Bad):
    """Asks for more memory than there is."""

    def pack(self, tensor):
        return torch.empty(1 << 50, dtype=torch.uint8)


class Wrong(Bad):
    """Unpacks something else than was packed."""

    def unpack(self, tensor):
        return tensor * 2 if tensor.is_floating_point() else tensor


class WrongLater(Bad):
    """Is right in the first step, as one is that takes a used address for a tensor it knows."""

    def unpack(self, tensor):
        return tensor * 2 if self.steps > 1 and tensor.is_floating_point() else tensor


class WrongAgain(Wrong):
    """Is right in the first visit, and wrong in the next, as one is that keeps what another instance left."""

    visits = 0

    def __init__(self):
        super().__init__()
        WrongAgain.visits += 1

    def unpack(self, tensor):
        return super().unpack(tensor) if WrongAgain.visits > GREETING + 1 else tensor


class DiesAgain(WrongAgain):
    """Ends the process in the second visit."""

    def unpack(self, tensor):
        if WrongAgain.visits > GREETING + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return tensor


class HangsAgain(WrongAgain):
    """Never comes to an end in the second visit."""

    def unpack(self, tensor):
        time.sleep(1000 * (WrongAgain.visits > GREETING + 1))
        return tensor


class NotFinite(Bad):
    """Unpacks what is no number."""

    def unpack(self, tensor):
        return tensor * float("nan") if tensor.is_floating_point() else tensor


class Dies(Bad):
    """Ends the process."""

    def pack(self, tensor):
        os.kill(os.getpid(), signal.SIGKILL)


class Leaves(Bad):
    """Leaves a file behind, and says where."""

    def __init__(self):
        super().__init__()
        with tempfile.NamedTemporaryFile(prefix="left-", delete=False) as file:
            Path(os.environ["LEFT"]).write_text(file.name)


class Claims(Bad):
    """Says that it moves bytes to a disk, and moves none."""

    medium = "disk"

    def counters(self):
        return {"packs": self.steps, "bytes_out": self.steps << 20, "bytes_back": 0}


class Counts:
    """A whole strategy, whose forward runs twice, so that batch norm counts the batch twice."""

    lossless, tolerance, medium, name, backward_inside = True, 0.0, "memory", "counts", False

    def wrap(self, model):
        def call(x):
            with torch.no_grad():
                model(x)
            return model(x)

        return call

    def context(self):
        return nullcontext()

    def counters(self):
        return {}

    def close(self):
        pass
