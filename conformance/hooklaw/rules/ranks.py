"""What the rules of several processes share: a module that every rank has, an input of each rank's own, the mean."""

from collections.abc import Callable
from typing import Any

from hooklaw import Backend

RANKS = 2
FOUR_RANKS = 4
"""What groups of some of the ranks take: two of them, with more than one rank each."""
ROWS = (1.0, 2.0, 3.0, 4.0)
FLAT = {"extra-dimension": "a bucket is flat, whatever the dimensions of its gradients are"}
PAIRS = {"complex64": "a bucket has complex gradients as pairs of real numbers"}


def weighted(backend: Backend, forward: Callable[..., Any] = lambda module, x: x * module.weight) -> Any:
    """Make a module with one weight, 2, which multiplies its input."""
    return backend.module({"weight": backend.tensor([2.0])}, forward)


def two_weights(backend: Backend, forward: Callable[..., Any]) -> Any:
    """Make a module with the parameters weight, 2, and other, 3."""
    return backend.module({"weight": backend.tensor([2.0]), "other": backend.tensor([3.0])}, forward)


def number(backend: Backend) -> float:
    """Return a number that each rank has of its own: 1, 2, ..."""
    return backend.get_rank() + 1.0


def own_input(backend: Backend) -> Any:
    """Make an input with the rank's own number."""
    return backend.tensor([number(backend)])


def mean(backend: Backend, of: Callable[[float], float] = lambda own: own) -> list[float]:
    """Return the mean over all ranks of a function of their numbers."""
    size = backend.get_world_size()
    return [sum(of(rank + 1.0) for rank in range(size)) / size]


def rows(backend: Backend) -> Any:
    """Make an input of four rows, the rank's number times ROWS."""
    return backend.tensor([number(backend) * row for row in ROWS])


def own_part(backend: Backend, values: list[float]) -> list[float]:
    """Return what the rank has of values of which all ranks have equal parts."""
    size = len(values) // backend.get_world_size()
    return values[backend.get_rank() * size :][:size]


def whole(backend: Backend, tensor: Any) -> Any:
    """Return all values of a distributed tensor, or None for a gradient that is not there."""
    return None if tensor is None else backend.detach(backend.full_tensor(tensor))


def part(backend: Backend, tensor: Any) -> Any:
    """Return the rank's part of a distributed tensor, or None for a gradient that is not there."""
    return None if tensor is None else backend.detach(backend.local_tensor(tensor))


def run(backend: Backend, parallel: Any, x: Any = None) -> None:
    """Run forward on the rank's own input, or a given one, and backward."""
    x = own_input(backend) if x is None else x
    backend.backward(backend.sum(backend.call(parallel, x)))


def reducing(backend: Backend, trace: Any, label: str = "comm hook") -> Callable[..., Any]:
    """Return a communication hook that logs the bucket's values, and averages them over the ranks."""

    def hook(_state, bucket):  # noqa: ANN001, ANN202 - torch compares annotations with its own types
        trace.log(label, bucket.buffer())
        return averaged(backend, bucket.buffer())

    return hook


def averaged(backend: Backend, tensor: Any) -> Any:
    """Return a future of the mean of a tensor over the ranks."""
    share = backend.detach(tensor) * (1 / backend.get_world_size())
    return backend.all_reduce_future(share)
