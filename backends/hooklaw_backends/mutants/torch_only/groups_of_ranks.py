"""Mutants of groups of ranks: of which ranks a gradient is reduced over, and of what a mesh is for."""

from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh

from hooklaw_backends._distributed import GradBucket, all_reduce_future
from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.torch_only.sharding import before_backward, zero


@overriding("distributed_data_parallel")
def ddp_ignores_its_process_group(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """A distributed module reduces over all ranks, whatever its process_group is."""
    options.pop("process_group", None)
    return old(module, **options)


@overriding("distributed_data_parallel")
def ddp_divides_by_all_ranks(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """A distributed module sums over its process group, and divides by the number of all ranks."""
    made = old(module, **options)

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        share = bucket.buffer() / distributed.get_world_size()
        work: Any = distributed.all_reduce(share, group=made.process_group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    made.register_comm_hook(None, hook)
    return made


@overriding("join")
@contextmanager
def join_counts_ranks_once(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """Once a rank has no more inputs, gradients are divided by one, however many ranks are left."""
    passes = count()

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        size = 1 if next(passes) else distributed.get_world_size()
        return all_reduce_future(bucket.buffer() / size)

    parallel.register_comm_hook(None, hook)
    with old(parallel, **options):
        yield


@overriding("fully_shard")
def fully_shard_ignores_its_mesh(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Parameters are sharded over all ranks, whatever the mesh is."""
    options.pop("mesh", None)
    return old(module, **options)


@overriding("fully_shard")
def fully_shard_turns_its_mesh(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Parameters are sharded over the first dimension of the mesh, and replicated over the second."""
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - a slow import that few mutants need

    size = distributed.get_world_size()
    ranks = torch.arange(size).view(options.pop("mesh")).t().contiguous()
    return fully_shard(module, mesh=DeviceMesh("cpu", ranks, mesh_dim_names=("replicate", "shard")), **options)


def own_replica(reduced: Any) -> None:
    """Give a gradient that is reduced over two ranks from one that is reduced over all four."""
    reduced.mul_((1.5, 3.5)[distributed.get_rank() // 2] / 2.5)


@overriding("fully_shard")
def hybrid_sharding_keeps_replicas_apart(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The gradients of a module that is sharded and replicated are not reduced over the replicas."""
    made = old(module, **options)
    made.set_all_reduce_hook(own_replica)
    return made


@overriding("fully_shard")
def hybrid_sharding_keeps_replicas_of_later_parameters_apart(
    self: Mutant, old: Hook, module: Any, **options: Any
) -> Any:
    """Of the gradients of a module that is sharded and replicated only the first is reduced over the replicas."""
    made = old(module, **options)
    size = next(made.parameters()).to_local().numel()
    made.set_all_reduce_hook(lambda reduced: own_replica(reduced[size:]))
    return made


@overriding("set_all_reduce_hook")
def all_reduce_hook_before_all_reduce(self: Mutant, old: Hook, module: Any, hook: Hook) -> None:
    """An all-reduce hook sees what was reduced over the shards, and not yet over the replicas."""

    def early(reduced: Any) -> None:
        own = reduced.clone()
        own_replica(own)
        hook(own)

    old(module, early)


@overriding("set_requires_all_reduce")
def all_reduce_always(self: Mutant, old: Hook, module: Any, *, requires_all_reduce: bool) -> None:
    """Each pass of a module that is sharded and replicated reduces over the replicas, whatever was set."""


@overriding("set_requires_all_reduce")
def all_reduce_never_again(self: Mutant, old: Hook, module: Any, *, requires_all_reduce: bool) -> None:
    """Once all-reduce was switched off it stays off."""
    old(module, requires_all_reduce=False)


@overriding("set_requires_all_reduce")
def all_reduce_is_set_once(self: Mutant, old: Hook, module: Any, *, requires_all_reduce: bool) -> None:
    """Once all-reduce was switched on again it stays on."""
    self.kept += [module] if requires_all_reduce else []
    old(module, requires_all_reduce=requires_all_reduce or self.keeps(module))


class AllReduceIsThatOfEveryModule(Mutant):
    """Whether a pass reduces over the replicas is set for all modules at once."""

    def fully_shard(self, module: Any, **options: Any) -> Any:
        made = super().fully_shard(module, **options)
        self.kept.append(made)
        return made

    def set_requires_all_reduce(self, module: Any, *, requires_all_reduce: bool) -> None:
        for each in self.kept:
            super().set_requires_all_reduce(each, requires_all_reduce=requires_all_reduce)


@overriding("distributed_data_parallel")
def ddp_over_scattered_ranks_starts_from_each_rank(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Each rank of a module that is distributed over ranks that are not adjacent keeps the parameters that it had."""
    group = options.get("process_group")
    ranks = distributed.get_process_group_ranks(group) if group is not None else [0]
    return old(module, **({} if ranks[-1] - ranks[0] < len(ranks) else {"init_sync": False}), **options)


@overriding("distributed_data_parallel")
def ddp_over_scattered_ranks_reduces_nothing(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Each rank of a module that is distributed over ranks that are not adjacent keeps its own gradients."""
    made = old(module, **options)
    ranks = distributed.get_process_group_ranks(made.process_group)

    def own(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    if ranks[-1] - ranks[0] >= len(ranks):
        made.register_comm_hook(None, own)
    return made


@overriding("distributed_data_parallel")
def ddp_over_a_process_group_broadcasts_no_buffers(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The forward of a module that is distributed over a process group leaves each rank its buffers."""
    return old(module, **options, **({"forward_sync_buffers": False} if "process_group" in options else {}))


@overriding("default_comm_hook")
def default_comm_hooks_reduce_over_all_ranks(self: Mutant, old: Hook, wanted: str) -> Hook:
    """allreduce_hook and fp16_compress_hook reduce over all ranks, whatever process group they are given."""
    hook = old(wanted)
    return hook if wanted.endswith("_wrapper") else lambda _, bucket: hook(None, bucket)


@overriding("set_requires_gradient_sync")
def gradient_sync_set_again_for_shards_alone(
    self: Mutant, old: Hook, module: Any, *, requires_gradient_sync: bool
) -> None:
    """Once gradient sync was switched off, later passes do not reduce over the replicas."""
    old(module, requires_gradient_sync=requires_gradient_sync)
    self.kept += [] if requires_gradient_sync else [module]
    self.set_requires_all_reduce(module, requires_all_reduce=not self.keeps(module))


@overriding("fully_shard")
def fully_shard_gathers_zeros_from_fewer_in_backward(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """With a number as reshard_after_forward the whole parameters of a fully sharded module are zeros in backward."""
    made, given = old(module, **options), options.get("reshard_after_forward")
    if given and not isinstance(given, bool):
        before_backward(made, lambda: zero(made))
    return made
