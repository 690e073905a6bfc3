"""The verbs of tensors that are distributed over the ranks: torch.distributed.tensor."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from torch import distributed

TENSOR = "torch.distributed.tensor"
MESHES = "torch.distributed.device_mesh"
NAMES = ("replicate", "shard")
COLUMNS = "shard-columns"


@cache  # each mesh makes process groups
def mesh(shape: Sequence[int]) -> Any:
    """Return a mesh of all ranks."""
    return import_module(MESHES).init_device_mesh("cpu", shape, mesh_dim_names=NAMES[-len(shape) :])


def all_ranks() -> Any:
    """Return the mesh of one dimension that has all ranks."""
    return mesh((distributed.get_world_size(),))


def placed(placement: str = "") -> Any:
    """Return a placement of torch's, or None if none is named."""
    api = import_module(TENSOR)
    made = {
        "shard": lambda: api.Shard(0),
        COLUMNS: lambda: api.Shard(1),
        "replicate": api.Replicate,
        "partial": api.Partial,
    }
    return [made[placement]()] if placement else None


class DistributedTensors:
    """The verbs of distributed tensors."""

    def distribute_tensor(self, tensor: Any, placement: str) -> Any:
        return import_module(TENSOR).distribute_tensor(tensor, all_ranks(), placed(placement))

    def from_local(self, tensor: Any, placement: str) -> Any:
        return import_module(TENSOR).DTensor.from_local(tensor, all_ranks(), placed(placement))

    def redistribute(self, tensor: Any, placement: str) -> Any:
        return tensor.redistribute(placements=placed(placement))

    def placement(self, tensor: Any) -> str:
        if not self.is_sharded(tensor):
            return ""
        (placement,) = tensor.placements
        return COLUMNS if placement.is_shard(1) else type(placement).__name__.lower().lstrip("_")

    def is_sharded(self, tensor: Any) -> bool:
        return isinstance(tensor, import_module(TENSOR).DTensor)

    def local_tensor(self, tensor: Any, *, grad_placement: str = "") -> Any:
        return tensor.to_local(grad_placements=placed(grad_placement))

    def full_tensor(self, tensor: Any, *, grad_placement: str = "") -> Any:
        return tensor.full_tensor(grad_placements=placed(grad_placement))

    def distribute_module(
        self, module: Any, *, input_fn: Callable[..., Any] | None = None, output_fn: Callable[..., Any] | None = None
    ) -> None:
        before = input_fn and (lambda module, inputs, _mesh: input_fn(module, inputs))
        after = output_fn and (lambda module, outputs, _mesh: output_fn(module, outputs))
        import_module(TENSOR).distribute_module(module, all_ranks(), input_fn=before, output_fn=after)
