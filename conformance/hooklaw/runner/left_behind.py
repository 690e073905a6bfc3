"""What loading a backend leaves behind in its process: a folder, handlers of signals, threads, output, a grad mode."""

import os
import signal
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from hooklaw.backend.protocol import Capability
from hooklaw.errors import BackendContractError

LOUD = 1_000_000
"""Bytes of output from which on a backend is loud."""


def grad_mode_left(backend: Any, known_as: str) -> list[str]:
    """Return in words that loading a backend turned grad mode off, which its reset has turned on again.

    Raises BackendContractError if grad mode stays off.
    """
    if Capability.GRAD_MODE not in backend.capabilities or backend.is_grad_enabled():
        return []
    getattr(backend, "reset", lambda: None)()
    if not backend.is_grad_enabled():
        raise BackendContractError(
            f"backend {known_as!r} turned grad mode off when it was loaded, and its reset does not turn it on: "
            "leave it on, or no rule can be judged"
        )
    return ["turned grad mode off"]


class Surroundings:
    """The surroundings of a process, as they are now."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._handlers = _handlers()
        self._threads = set(threading.enumerate())
        self._printed = _printed()

    def left(self) -> list[str]:
        """Put folder and handlers back, and return in words what has changed."""
        return [*self._moved(), *self._handled(), *self._started(), *self._said()]

    def _moved(self) -> list[str]:
        try:
            now = str(Path.cwd())
        except OSError:
            now = "one that is gone"
        if now == str(self._folder):
            return []
        os.chdir(self._folder)
        return [f"changed the working directory to {now}"]

    def _handled(self) -> list[str]:
        changed = [number for number, handler in _handlers().items() if handler != self._handlers.get(number)]
        for number in changed:
            with suppress(OSError, ValueError, TypeError):  # not in this thread, or not to be changed
                signal.signal(number, self._handlers[number])  # type: ignore[arg-type]
        return [f"replaced the handler of {', '.join(number.name for number in changed)}"] if changed else []

    def _started(self) -> list[str]:
        names = sorted(thread.name for thread in set(threading.enumerate()) - self._threads)
        return [f"left {len(names)} running: the threads {', '.join(names[:3])}"] if names else []

    def _said(self) -> list[str]:
        printed = _printed() - self._printed
        return [f"printed {printed / 1e6:.0f} MB"] if printed >= LOUD else []


def _handlers() -> dict[signal.Signals, object]:
    return {number: signal.getsignal(number) for number in signal.Signals}


def _printed() -> int:
    """Return the length of the file that stderr goes to, as in a worker; elsewhere 0."""
    with suppress(OSError):
        found = os.fstat(2)
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
    return 0
