"""Signals that end a program: they interrupt it like Ctrl-C, so that workers are ended and folders removed."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def ending_signals_interrupt() -> Generator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP, unless the program handles or ignores them already."""
    taken = []
    if threading.current_thread() is threading.main_thread():
        taken = [each for each in ENDING if signal.getsignal(each) is signal.SIG_DFL]
    for each in taken:
        signal.signal(each, _interrupt)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    signal.signal(number, signal.SIG_IGN)  # the second one would interrupt the clearing up
    raise KeyboardInterrupt
