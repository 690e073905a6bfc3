"""The verbs of several processes that are torch's own: options of its versions, and sharding."""

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from hooklaw import Capability
from hooklaw.errors import is_worker
from hooklaw_backends import _distributed_tensors, _tensor_parallel

FSDP = "torch.distributed.fsdp"
SHARDING = (Capability.FULLY_SHARD, Capability.FULLY_SHARDED_DATA_PARALLEL, Capability.HYBRID_SHARDING)
ON_DISTRIBUTED_TENSORS = (Capability.DISTRIBUTED_TENSORS, Capability.TENSOR_PARALLEL)
IMPORTS_LATE: Mapping[Capability, str] = dict.fromkeys(
    (Capability.DISTRIBUTED_DATA_PARALLEL, *ON_DISTRIBUTED_TENSORS, *SHARDING), "torch._dynamo"
)
"""torch._dynamo imports torch.distributed.fsdp too."""
GradBucket = distributed.GradBucket  # pyright: ignore[reportPrivateImportUsage]
OPTIONS = signature(DistributedDataParallel.__init__).parameters
INIT_SYNC_OPTION = "init_sync" in OPTIONS
"""Before torch 2.7 ranks always share the parameters of rank 0 at first."""
FORWARD_SYNC_OPTION = "forward_sync_buffers" in OPTIONS
"""Before torch 2.13 the option has another name."""


def hide_gpus() -> None:
    """Hide the GPUs from a worker that judges the CPU, unless CUDA is in use already.

    With the first backward, torch starts a thread for each GPU that it sees, also if the backward runs on the CPU.
    Ranks are forked, and a process that was forked beside these threads cannot run backward.
    """
    if is_worker() and not torch.cuda.is_initialized():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def why_not(device: Any) -> str:
    """Return why no processes can be forked that form a group, or an empty string."""
    if sys.platform != "linux":
        return f"ranks are forked, which is safe on Linux and not on {sys.platform}"
    if device.type != "cpu":
        return f"ranks are forked, which a device does not survive: the device is {device}"
    if torch.cuda.device_count():
        return "ranks are forked, which torch's threads for a GPU do not survive: hide it with CUDA_VISIBLE_DEVICES="
    if not distributed.is_available() or not distributed.is_gloo_available():
        return f"torch {torch.__version__} is built without gloo"
    return ""


def all_reduce_future(tensor: Any) -> Any:
    """Begin an all-reduce, and return a future of the sum, as the verb of this name does."""
    work: Any = distributed.all_reduce(tensor, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def why_no_sharding() -> str:
    """Return why this torch cannot shard parameters on the CPU, or an empty string; imports nothing."""
    if not Path(distributed.__file__).with_name("fsdp").joinpath("_fully_shard").exists():
        return f"torch {torch.__version__} has no fully_shard in torch.distributed.fsdp"
    if torch.__version__.startswith("2.6."):
        return f"torch {torch.__version__} shards parameters on an accelerator only"
    return ""


def lacks() -> dict[Capability, str]:
    """Return what this version of torch lacks, with the reason; imports nothing."""
    version = f"torch {torch.__version__}"
    found: dict[Capability, str] = {}
    if not Path(distributed.__file__).with_name("tensor").joinpath("_api.py").exists():
        found |= dict.fromkeys(ON_DISTRIBUTED_TENSORS, f"{version} has no public torch.distributed.tensor")
    if unsharded := why_no_sharding():
        return found | dict.fromkeys(SHARDING, unsharded)
    if torch.__version__.startswith(("2.7.", "2.8.")):
        found[Capability.HYBRID_SHARDING] = f"{version} averages over replicas by an operation that gloo does not have"
    return found


class Distributed(_distributed_tensors.DistributedTensors, _tensor_parallel.TensorParallel):
    """The verbs of a rank that TorchLike does not have."""

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        if "forward_sync_buffers" in options and not FORWARD_SYNC_OPTION:
            options["broadcast_buffers"] = options.pop("forward_sync_buffers")
        return DistributedDataParallel(module, **options)

    def fully_shard(self, module: Any, **options: Any) -> Any:
        if shape := options.pop("mesh", None):
            options["mesh"] = _distributed_tensors.mesh(shape)
        return _fsdp("fully_shard")(module, **options)

    def unshard(self, module: Any) -> None:
        module.unshard()

    def reshard(self, module: Any) -> None:
        module.reshard()

    def set_requires_gradient_sync(self, module: Any, *, requires_gradient_sync: bool) -> None:
        module.set_requires_gradient_sync(requires_gradient_sync)

    def set_all_reduce_hook(self, module: Any, hook: Callable[..., Any]) -> None:
        module.set_all_reduce_hook(hook)

    def set_requires_all_reduce(self, module: Any, *, requires_all_reduce: bool) -> None:
        module.set_requires_all_reduce(requires_all_reduce)

    def register_fsdp_forward_method(self, module: Any, name: str) -> None:
        _fsdp("register_fsdp_forward_method")(module, name)


def _fsdp(name: str) -> Any:
    return getattr(import_module(FSDP), name)
