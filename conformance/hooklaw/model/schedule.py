"""Which of the Nodes that are ready runs next, where somebody wants to decide that: the law leaves it open."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

Chooser = Callable[[int], int]
"""Given how many Nodes are ready, more than one, returns the number of the one to run; 0 is the usual one."""


class _Schedule:
    chooser: Chooser | None = None


_schedule = _Schedule()


def chosen(ready: int) -> int:
    """Return the number of the Node to run, out of so many."""
    return _schedule.chooser(ready) if _schedule.chooser and ready > 1 else 0


@contextmanager
def chosen_by(chooser: Chooser) -> Generator[None]:
    """Let someone choose in every thread, until the end of the block."""
    before = _schedule.chooser
    _schedule.chooser = chooser
    try:
        yield
    finally:
        _schedule.chooser = before
