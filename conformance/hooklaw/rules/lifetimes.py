"""What the chapters on lifetimes share: marks whose deletion is logged, hooks that hold them, and the collector."""

import gc
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from hooklaw import Backend, Trace


class Mark:
    """An object whose deletion is logged."""

    def __init__(self, trace: Trace, label: str) -> None:
        weakref.finalize(self, trace.log, label).atexit = False


def holding(trace: Trace, label: str, *more: Any) -> Callable[..., None]:
    """Return a hook that holds a mark, and whatever else it is given; the label is logged when the hook is deleted."""
    held = (Mark(trace, label), more)
    return lambda *_: _nothing(held)


def _nothing(_: object) -> None:
    """Return None."""


def kinds_of_node(backend: Backend) -> dict[str, Callable[[Any], Any]]:
    """Return functions of one tensor that make a Node: that of an operation, and that of a custom Function."""

    def square(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    function = backend.custom_function(square, lambda ctx, grad: grad * ctx.saved_tensors[0] * 2)
    return {"operation": lambda x: x * x, "custom Function": function}


@contextmanager
def without_collector() -> Generator[None]:
    """Turn the garbage collector off inside, so that cycles stay alive."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect() -> None:
    """Run the garbage collector until it finds nothing more."""
    while gc.collect():
        pass
