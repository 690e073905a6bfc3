"""The verbs of several processes: torch.distributed with gloo, over this machine's loopback."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from hooklaw import Capability, NotRunError
from hooklaw_backends import _distributed_tensors, _tensor_parallel

TIMEOUT = timedelta(seconds=10)
"""How long a rank waits for another: less than a rule may take."""
LOOPBACK = "lo"
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
DEFAULT_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks"


def why_not(device: Any) -> str:
    """Return why no processes can be forked that form a group, or an empty string."""
    if sys.platform != "linux":
        return f"ranks are forked, which is safe on Linux and not on {sys.platform}"
    if device.type != "cpu":
        return f"ranks are forked, which a device does not survive: the device is {device}"
    if not distributed.is_available() or not distributed.is_gloo_available():
        return f"torch {torch.__version__} is built without gloo"
    return ""


def all_reduce_future(tensor: Any) -> Any:
    """Begin an all-reduce, and return a future of the sum."""
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
    """The verbs of a rank."""

    def init_process_group(self, rank: int, world_size: int, store: str) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK  # or gloo would look the machine's name up
        torch.set_num_threads(1)  # a thread of OpenMP does not survive a fork
        shared = distributed.FileStore(store, world_size)  # pyright: ignore[reportPrivateImportUsage]
        try:
            distributed.init_process_group("gloo", store=shared, rank=rank, world_size=world_size, timeout=TIMEOUT)
            distributed.barrier()  # or a rank that ends at once would tear the group down that another still joins
        except (RuntimeError, OSError) as error:
            said = str(error).splitlines()[0]
            raise NotRunError(f"gloo cannot form a group of {world_size} processes here: {said}") from error

    def get_rank(self) -> int:
        return distributed.get_rank()

    def get_world_size(self) -> int:
        return distributed.get_world_size()

    def all_reduce(self, tensor: Any) -> None:
        distributed.all_reduce(tensor)

    def new_group(self, ranks: Sequence[int]) -> Any:
        return distributed.new_group([*ranks])

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        if "forward_sync_buffers" in options and not FORWARD_SYNC_OPTION:
            options["broadcast_buffers"] = options.pop("forward_sync_buffers")
        return DistributedDataParallel(module, **options)

    def no_sync(self, parallel: Any) -> AbstractContextManager[Any]:
        return parallel.no_sync()

    def join(self, parallel: Any, **options: bool) -> AbstractContextManager[Any]:
        return parallel.join(**options)

    def register_comm_hook(self, parallel: Any, state: Any, hook: Callable[..., Any]) -> None:
        parallel.register_comm_hook(state, hook)

    def future(self, value: Any) -> Any:
        made = torch.futures.Future()
        made.set_result(value)
        return made

    def all_reduce_future(self, tensor: Any) -> Any:
        return all_reduce_future(tensor)

    def default_comm_hook(self, name: str) -> Callable[..., Any]:
        module = "debugging_hooks" if name == "noop_hook" else "default_hooks"
        return getattr(import_module(f"{DEFAULT_HOOKS}.{module}"), name)

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

    def fully_sharded_data_parallel(self, module: Any, *, no_shard: bool = False) -> Any:
        strategy = _fsdp("ShardingStrategy")
        kept = strategy.NO_SHARD if no_shard else strategy.FULL_SHARD
        wrap = _fsdp("FullyShardedDataParallel")
        return wrap(module, sharding_strategy=kept, use_orig_params=True, device_id=torch.device("cpu"))

    def copy_(self, tensor: Any, values: Any) -> None:
        tensor.copy_(values)


def _fsdp(name: str) -> Any:
    return getattr(import_module(FSDP), name)
