"""What the rules of fully sharded modules share: modules that are sharded, their parameters and their gradients."""

from typing import Any

from hooklaw import Backend
from hooklaw.rules.ranks import rows, whole

VALUES = [2.0, 3.0, 4.0, 5.0]
LAST = [2.0, 1.0, 2.0, 1.0]
WHOLE = {"weight": VALUES, "scale": [1.0], "last": LAST}
"""The parameters of a module that has several: only one rank has a part of the second."""
GRADIENTS = {"weight": [2.0, 2.0, 6.0, 4.0], "scale": [54.0], "last": [2.0, 6.0, 12.0, 20.0]}
"""Their gradients in the first rank, whose input is ROWS; those of the second are twice as large."""
PARTS = {"extra-dimension": "a part is counted in rows, and the condition hides a dimension of it"}


def sharded(backend: Backend, forward: Any = lambda module, x: x * module.weight, **options: Any) -> Any:
    """Make a module with a weight of four elements, shard it, and return it."""
    module = backend.module({"weight": backend.tensor(VALUES)}, forward)
    backend.fully_shard(module, **options)
    return module


def product(module: Any, x: Any) -> Any:
    """Multiply an input by all parameters of a module that has several."""
    return x * module.weight * module.scale * module.last


def with_several(backend: Backend, forward: Any = product, **options: Any) -> Any:
    """Make a module with several parameters, shard it, and return it."""
    module = backend.module({name: backend.tensor(values) for name, values in WHOLE.items()}, forward)
    backend.fully_shard(module, **options)
    return module


def several(module: Any) -> list[Any]:
    """Return the parameters of a module that has several."""
    return [getattr(module, name) for name in WHOLE]


def run(backend: Backend, module: Any) -> None:
    """Run forward on the rank's rows, and backward."""
    backend.backward(backend.sum(backend.call(module, rows(backend))))


def gradient(backend: Backend, module: Any) -> Any:
    """Return the whole gradient of the module's weight, or None."""
    grad = whole(backend, backend.grad_of(module.weight))
    return None if grad is None else backend.tolist(grad)


def add_up_parts(backend: Backend, module: Any, values: list[float]) -> list[float]:
    """Make each rank's part of the module's weight the sum of all parts, in place; return the values of the weight."""
    backend.all_reduce(backend.detach(backend.local_tensor(module.weight)))
    size = len(values) // backend.get_world_size()
    return [sum(values[at::size]) for at in range(size)] * backend.get_world_size()


def is_reduced(backend: Backend, module: Any) -> bool:
    """Whether the module's weight has a gradient of which each rank has a part."""
    grad = backend.grad_of(module.weight)
    return grad is not None and backend.is_sharded(grad)
