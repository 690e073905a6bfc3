"""Services for a worker: each request names what to do, and most of them do harm."""

import ctypes
import os
import signal
import sys
import time

import msgspec

from hooklaw.errors import NotRunError, PackerError


class Settings(msgspec.Struct):
    """How the service starts."""

    start: str = "well"


class Odd:
    """A service that does what it is told."""

    Settings = Settings
    Request = str

    def __init__(self, settings):
        getattr(self, settings.start)()

    def hello(self):
        return os.getpid()

    def answer(self, request, note):
        note(f"begins to {request}")
        return getattr(self, request)()

    def well(self):
        return "well"

    def absent(self):
        raise NotRunError("no such hardware")

    def refuse(self):
        raise PackerError("no packer")

    def interrupt(self):
        raise KeyboardInterrupt

    def fault(self):
        return {}["missing"]

    def segfault(self):
        sys.stderr.write("".join(f"line {number}\n" for number in range(1000)))
        ctypes.string_at(0)

    def leave(self):
        os._exit(3)

    def kill(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def freeze(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def hang(self):
        ctypes.PyDLL(None).sleep(1000)

    def talk(self):
        sys.stdout.write('{"type": "Answer", "body": "not mine"}\n')
        os.write(1, b"and more\n")
        return "talked"

    def environment(self):
        return [os.environ.get("TMPDIR", ""), os.environ.get("COLOUR", "")]

    def eat(self):
        return len(bytearray(1 << 31))

    def fork(self):
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
