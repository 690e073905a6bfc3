"""What the chapters on checkpoints share: the two kinds, an input, and a forward."""

from typing import Any

from hooklaw import Backend, Capability, Trace, docstring

CHECKPOINT = docstring("torch.utils.checkpoint.checkpoint")
NEEDS = [Capability.CHECKPOINT]
WITH_OPTIONS = [*NEEDS, Capability.CHECKPOINT_OPTIONS]
KINDS = {"reentrant": True, "non-reentrant": False}


def leaf(backend: Backend, *numbers: float) -> Any:
    """Make a leaf that requires grad, by default of 1.0 and 2.0."""
    return backend.tensor(list(numbers or (1.0, 2.0)), requires_grad=True)


def region(backend: Backend, fn: Any, **how: Any) -> Any:
    """Return a forward that sums the result of a checkpoint."""
    return lambda *inputs: backend.sum(backend.checkpoint(fn, *inputs, **how))


def drawing(backend: Backend, trace: Trace, *, times: int = 1) -> Any:
    """Return a function that multiplies by random numbers, and logs them as drawn."""

    def draws(x: Any) -> Any:
        for _ in range(times):
            drawn = backend.rand_like(x)
            trace.log("drawn", drawn)
            x = x * drawn
        return x

    return draws


def logging_its_end(trace: Trace, fn: Any) -> Any:
    """Return a function that logs that it has run to its end."""
    return lambda x: (fn(x), trace.log("end"))[0]


def of_another_dtype(backend: Backend, *, nr: int = 0, differs: bool = True) -> Any:
    """Return a function whose second run saves float64 as one of three factors where the first run saved float32.

    Or whose second run saves what the first run did.
    """
    calls: list[int] = []

    def fn(x: Any) -> Any:
        dtypes = ["float32"] * 3
        dtypes[nr] = "float64" if calls and differs else "float32"
        calls.append(0)
        for factor, dtype in zip(([2.0, 3.0], [1.0, 1.0], [1.0, 1.0]), dtypes, strict=True):
            x = x * backend.tensor(factor, dtype=dtype)
        return x

    return fn
