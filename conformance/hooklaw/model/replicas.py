"""Data parallel: a module runs in replicas, each in a thread of its own and with its share of the rows."""

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

from hooklaw.model import ops, views
from hooklaw.model.modes import grad_mode, recording
from hooklaw.model.module import Module
from hooklaw.model.tensor import Tensor

REPLICAS = 2


def data_parallel(module: Module) -> Callable[..., Tensor]:
    """Return what calls replicas of the module instead of the module, and joins the rows of what they return."""

    def call(*inputs: Any, **kwargs: Any) -> Tensor:
        rows = list(zip(*map(_shares, inputs), strict=False))  # a short tensor fills fewer replicas
        replicas = [_replica(module) for _ in rows]
        outputs = _outputs([_Running(replica, row, kwargs) for replica, row in zip(replicas, rows, strict=True)])
        return views.joined([one if one.shape else views.view(one, (1,)) for one in outputs])

    return call


def _shares(value: Any) -> Sequence[Any]:
    """Cut a tensor along its first dimension; what is no tensor goes to every replica."""
    if not isinstance(value, Tensor):
        return (value,) * REPLICAS
    if not value.shape:
        raise RuntimeError("a single number has no rows that replicas could share")
    return views.split(value, max(1, -(-value.shape[0] // REPLICAS)))


def _replica(module: Module) -> Module:
    """Return a module with the same hooks, and copies of the parameters, to which gradients flow back."""
    replica = copy(module)
    parameters = {name: ops.clone(value) for name, value in module.registered["parameter"].items()}
    inside = {name: _replica(child) for name, child in module.children().items()}
    vars(replica)["registered"] = {**module.registered, "parameter": parameters, "module": inside}
    return replica


class _Running(threading.Thread):
    """A call of a replica, in a thread which has nothing but the grad mode of the one that starts it."""

    output: Any = None
    failure: Exception | None = None

    def __init__(self, replica: Module, row: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._call, self._recorded = partial(replica, *row, **kwargs), recording()
        self.start()

    def run(self) -> None:
        """Call it."""
        with grad_mode(self._recorded):
            try:
                self.output = self._call()
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the caller
                self.failure = error


def _outputs(running: Sequence[_Running]) -> list[Tensor]:
    """Wait for all, and return what they return; the first failure is raised here, as it is."""
    for one in running:
        one.join()
    for one in running:
        if one.failure:
            raise one.failure
    return [one.output for one in running]
