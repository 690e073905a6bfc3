"""The verbs of tensor parallelism: torch.distributed.tensor.parallel."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch

from hooklaw_backends._distributed_tensors import all_ranks, placed

PARALLEL = "torch.distributed.tensor.parallel"


class TensorParallel:
    """The verbs of layers that are split over the ranks."""

    def linear(self, weight: Any) -> Any:
        rows, columns = weight.shape
        made = torch.nn.Linear(columns, rows, bias=False)
        made.weight = torch.nn.Parameter(weight)
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
        layouts = {key: placed(value)[0] for key, value in options.items() if key.endswith("layouts")}
        return getattr(import_module(PARALLEL), name)(**(options | layouts))

    def parallelize_module(self, module: Any, plan: Any | Mapping[str, Any]) -> None:
        import_module(PARALLEL).parallelize_module(module, all_ranks(), plan)
