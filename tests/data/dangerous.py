"""Backends with something wrong that the fuzzer must find and survive; each is the reference engine otherwise."""

import os
import signal
import sys
from pathlib import Path

from hooklaw.backend.protocol import Capability
from hooklaw.fuzz.replay.run import NotReplayedError, Replayed, replay
from hooklaw.model.adapter import Reference


class Sound(Reference):
    """Nothing is wrong."""


class Segfaults(Reference):
    """The exponential ends the process; a file is told so before, where the environment names one."""

    def exp(self, tensor):
        with Path(os.environ.get("DEATHS", os.devnull)).open("a") as deaths:
            deaths.write("x")
        signal.raise_signal(signal.SIGSEGV)  # in this very thread, as of a wrong address


class Hangs(Reference):
    """The cosine in place never returns."""

    def cos_(self, tensor):
        while True:
            pass


class Quits(Reference):
    """Split ends the process as if all were well."""

    def split(self, tensor, size):
        os._exit(0)


class Leaves(Reference):
    """The gradient cannot be looked at."""

    def grad_of(self, tensor):
        if super().grad_of(tensor) is not None:
            sys.exit("no gradients today")


class Fickle(Reference):
    """Some sines of a process are another function, but not the first ones."""

    sines = 0

    def sin(self, tensor):
        self.sines += 1
        return super().cos(tensor) if 3 <= self.sines <= 12 else super().sin(tensor)


class Doubles(Reference):
    """A hook is given twice its gradient."""

    def register_hook(self, tensor, hook):
        return super().register_hook(tensor, lambda grad: hook(grad * 2))


class InItsOwnWay(Reference):
    """Programs without splits are replayed, and their events told name after name."""

    def replay_program(self, program):
        if any(one.op == "split" for one in program):
            raise NotReplayedError("no splits today")
        events = replay(program, self)
        return Replayed(tuple(program), sorted(events, key=lambda event: str(event[0])))

    def code_of_program(self, program):
        return f"{len(program)} lines of my own"


class DoublesInItsOwnWay(Doubles, InItsOwnWay):
    """Both."""


class Touchy(Doubles):
    """A hook on a vector ends the process, so not every smaller program can be tried."""

    def register_hook(self, tensor, hook):
        if len(self.shape(tensor)) == 1:
            signal.raise_signal(signal.SIGSEGV)  # in this very thread, as of a wrong address
        return super().register_hook(tensor, hook)


class Abroad(Doubles):
    """Its tensors are not in the memory of the host, so a process cannot inherit it."""

    capabilities = Reference.capabilities - {Capability.HOST}


class Poor(Reference):
    """There is no sine, and whoever asks for it crashes."""

    capabilities = Reference.capabilities - {Capability.SIN_COS}
    sin = cos = Segfaults.exp


class Mute(Reference):
    """Nobody can tell whether a gradient is retained."""

    capabilities = Reference.capabilities - {Capability.RETAINS_GRAD}


def backend(name):
    """Return one of the backends by name."""
    return globals()[name]()


def broken(_):
    """Raise as a factory."""
    raise RuntimeError("nothing works here")
