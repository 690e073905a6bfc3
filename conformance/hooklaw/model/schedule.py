"""The choice among ready Nodes. The law leaves their order open, so a caller may decide it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

Chooser = Callable[[int], int]
"""Given the number of ready Nodes (at least 2), returns the index of the Node to execute; 0 is the default."""


class _Schedule:
    chooser: Chooser | None = None


_schedule = _Schedule()


def chosen(ready: int) -> int:
    """Return the index of the Node to execute, out of `ready`."""
    return _schedule.chooser(ready) if _schedule.chooser and ready > 1 else 0


@contextmanager
def chosen_by(chooser: Chooser) -> Generator[None]:
    """Let `chooser` decide, in every thread, until the end of the block."""
    before = _schedule.chooser
    _schedule.chooser = chooser
    try:
        yield
    finally:
        _schedule.chooser = before
