"""Data parallel: replicas of a module, each in a thread of its own with its share of the rows."""

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

from hooklaw.model import ops, views
from hooklaw.model._module import Module
from hooklaw.model.modes import grad_mode, recording
from hooklaw.model.tensor import Tensor

REPLICAS = 2


def data_parallel(module: Module) -> Callable[..., Tensor]:
    """Return a function that calls replicas instead of the module and joins the rows of their outputs."""

    def call(*inputs: Any, **kwargs: Any) -> Tensor:
        rows = list(zip(*map(_shares, inputs), strict=False))  # a short tensor uses fewer replicas
        replicas = [_replica(module) for _ in rows]
        outputs = _outputs([_Running(replica, row, kwargs) for replica, row in zip(replicas, rows, strict=True)])
        return views.joined([output if output.shape else views.view(output, (1,)) for output in outputs])

    return call


def _shares(value: Any) -> Sequence[Any]:
    """Split a tensor along its first dimension; any other value goes to every replica."""
    if not isinstance(value, Tensor):
        return (value,) * REPLICAS
    if not value.shape:
        raise RuntimeError("a 0-d tensor has no rows to share among replicas")
    return views.split(value, max(1, -(-value.shape[0] // REPLICAS)))


def _replica(module: Module) -> Module:
    """Return a module with the same hooks and with clones of the parameters, through which gradients flow back."""
    replica = copy(module)
    parameters = {name: ops.clone(value) for name, value in module.registered["parameter"].items()}
    inside = {name: _replica(child) for name, child in module.children().items()}
    vars(replica)["registered"] = {**module.registered, "parameter": parameters, "module": inside}
    return replica


class _Running(threading.Thread):
    """A thread that calls a replica; of its parent's modes it takes over grad mode only."""

    output: Any = None
    failure: Exception | None = None

    def __init__(self, replica: Module, row: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._call, self._recorded = partial(replica, *row, **kwargs), recording()
        self.start()

    def run(self) -> None:
        """Call the replica."""
        with grad_mode(self._recorded):
            try:
                self.output = self._call()
            except Exception as error:  # noqa: BLE001 - the caller gets it
                self.failure = error


def _outputs(running: Sequence[_Running]) -> list[Tensor]:
    """Wait for all threads and return their outputs; raise the first failure."""
    for thread in running:
        thread.join()
    for thread in running:
        if thread.failure:
            raise thread.failure
    return [thread.output for thread in running]
