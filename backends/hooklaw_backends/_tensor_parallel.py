"""The verbs of tensor parallelism: torch.distributed.tensor.parallel."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch

from hooklaw_backends._distributed_tensors import all_ranks, placed

PARALLEL = "torch.distributed.tensor.parallel"


class TensorParallel:
    """The verbs of layers that are split over the ranks."""

    def linear(self, weight: Any, bias: Any = None) -> Any:
        rows, columns = weight.shape
        made = torch.nn.Linear(columns, rows, bias=bias is not None)
        made.weight = torch.nn.Parameter(weight)
        if bias is not None:
            made.bias = torch.nn.Parameter(bias)
        return made

    def layer_norm(self, weight: Any, bias: Any) -> Any:
        made = torch.nn.LayerNorm(weight.shape[0])
        made.weight, made.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
        return made

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits, target)

    def loss_parallel(self) -> AbstractContextManager[Any]:
        return import_module(PARALLEL).loss_parallel()

    def parallel_style(self, name: str, **options: Any) -> Any:
        layouts = {key: _layouts(value) for key, value in options.items() if key.endswith("layouts")}
        return getattr(import_module(PARALLEL), name)(**(options | layouts))

    def parallelize_module(self, module: Any, plan: Any | Mapping[str, Any]) -> None:
        import_module(PARALLEL).parallelize_module(module, all_ranks(), plan)


def _layouts(placements: str | Sequence[str]) -> Any:
    """Return a placement of torch's, or one for each of several tensors, where an empty text is None."""
    if isinstance(placements, str):
        return placed(placements)[0] if placements else None
    return tuple(map(_layouts, placements))
