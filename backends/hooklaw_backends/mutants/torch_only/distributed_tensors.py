"""Mutants of distributed tensors: of their hooks, and of where their gradients are."""

from functools import partial
from importlib import import_module
from typing import Any

import torch

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, altering, overriding, pairs


def is_distributed(tensor: Any) -> bool:
    """Whether a tensor is a distributed one; imports nothing."""
    return hasattr(tensor, "placements")


def on_distributed(tensor: Any, hook: Hook, instead: Hook) -> Hook:
    """Return what to register on a tensor: another hook, if it is distributed."""
    return instead if is_distributed(tensor) else hook


@altering("register_hook")
def dtensor_drops_tensor_hooks(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on a distributed tensor never runs."""
    return on_distributed(tensor, hook, lambda _: None)


@altering("register_hook")
def dtensor_drops_tensor_hooks_of_non_leaves(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on a distributed tensor that is no leaf never runs."""
    return on_distributed(tensor, hook, hook if self.is_leaf(tensor) else lambda _: None)


@altering("register_hook")
def dtensor_ignores_what_hooks_return(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """What a tensor hook on a distributed tensor returns is lost."""
    return on_distributed(tensor, hook, lambda grad: (hook(grad), None)[1])


@overriding("register_hook")
def dtensor_keeps_one_tensor_hook(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A second tensor hook on a distributed tensor takes the place of the first."""
    if is_distributed(tensor):
        (tensor._backward_hooks or {}).clear()  # noqa: SLF001 - there is no public API
    return old(tensor, hook)


@altering("register_hook")
def dtensor_hooks_see_the_shard_alone(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on a distributed tensor gets each rank's part as if the others had the same."""
    return on_distributed(
        tensor, hook, lambda grad: hook(self.from_local(self.local_tensor(grad).clone(), "replicate"))
    )


@altering("register_hook")
def dtensor_hooks_see_replicas(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on a distributed tensor gets a gradient that is replicated."""
    return on_distributed(tensor, hook, lambda grad: hook(self.redistribute(grad, "replicate")))


@altering("register_hook")
def dtensor_hooks_see_even_parts(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on a distributed tensor gets zeros for the rows by which the parts differ in size."""

    def even(grad: Any) -> Any:
        local = grad.to_local().clone()
        if self.placement(grad) == "shard":
            local[len(grad) // torch.distributed.get_world_size() :] = 0
        return hook(type(grad).from_local(local, grad.device_mesh, grad.placements, shape=grad.shape, stride=(1,)))

    return on_distributed(tensor, hook, even)


@altering("register_post_accumulate_grad_hook")
def dtensor_drops_post_accumulate_hooks(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A post-accumulate-grad hook on a distributed tensor never runs."""
    return on_distributed(tensor, hook, lambda _: None)


@overriding("register_post_accumulate_grad_hook")
def dtensor_keeps_one_post_accumulate_hook(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A second post-accumulate-grad hook on a distributed tensor takes the place of the first."""
    if is_distributed(tensor):
        (tensor._post_accumulate_grad_hooks or {}).clear()  # noqa: SLF001 - there is no public API
    return old(tensor, hook)


@overriding("register_post_accumulate_grad_hook")
def dtensor_runs_post_accumulate_hooks_early(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A post-accumulate-grad hook on a distributed tensor runs before its gradient accumulates."""
    return self.register_hook(tensor, lambda _: hook(tensor)) if is_distributed(tensor) else old(tensor, hook)


@pairs("saved_tensors_hooks")
def dtensor_packs_parts(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """Pack hooks get the rank's part of a distributed tensor."""

    def packing(tensor: Any) -> Any:
        if not is_distributed(tensor):
            return None, pack(tensor)
        where = {"shape": tensor.shape, "stride": tensor.stride()}
        made = partial(type(tensor).from_local, device_mesh=tensor.device_mesh, placements=tensor.placements, **where)
        return made, pack(self.local_tensor(tensor).detach())

    def unpacking(packed: Any) -> Any:
        made, inner = packed
        return made(unpack(inner)) if made else unpack(inner)

    return packing, unpacking


@pairs("saved_tensors_hooks")
def dtensor_packs_nothing(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """Distributed tensors are saved without a call of the pack hook."""
    return (
        lambda tensor: (True, tensor) if is_distributed(tensor) else (False, pack(tensor)),
        lambda packed: packed[1] if packed[0] else unpack(packed[1]),
    )


class _Sum(torch.autograd.Function):
    """A replica of a partial tensor that passes its gradient on as it is."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, made: Any) -> Any:
        return made.view_as(made)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].to_local(), None


@overriding("from_local")
def from_local_keeps_partial_gradients(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """from_local leaves each rank its own share of a partial gradient."""
    made = old(tensor.detach(), placement)
    return _Sum.apply(tensor, made) if placement == "partial" else old(tensor, placement)


@overriding("from_local")
def from_local_sums_gradients_that_are_whole(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """Where from_local made a partial tensor, a gradient that every rank has whole is summed over the ranks too."""
    if placement != "partial" or not tensor.requires_grad:
        return old(tensor, placement)
    own = tensor * 1
    made = old(own, placement)
    seen = []
    made.register_hook(lambda grad: seen.append(self.placement(grad)))
    own.register_hook(lambda grad: grad * self.get_world_size() if seen[-1:] == ["replicate"] else None)
    return made


@overriding("from_local")
def from_local_detaches(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """What from_local makes does not require grad on its tensor's account."""
    return old(tensor.detach(), placement)


@overriding("from_local")
def from_local_detaches_non_leaves(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """What from_local makes of a non-leaf does not require grad on its account."""
    return old(tensor if tensor.is_leaf else tensor.detach(), placement)


@overriding("from_local")
def from_local_gives_all_the_gradient_of_the_first(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """The gradient of each rank's part is that of the first rank's part."""

    def of_the_first(grad: Any) -> Any:
        torch.distributed.broadcast(first := grad.clone(), 0)
        return first

    if tensor.requires_grad:
        tensor.register_hook(of_the_first)
    return old(tensor, placement)


@overriding("local_tensor")
def local_tensor_detaches(self: Mutant, old: Hook, tensor: Any, **options: str) -> Any:
    """The local tensor of a distributed tensor does not require grad."""
    return old(tensor, **options).detach()


@overriding("local_tensor")
def local_tensor_ignores_grad_placement(self: Mutant, old: Hook, tensor: Any, **options: str) -> Any:
    """to_local ignores grad_placements."""
    return old(tensor)


@overriding("local_tensor")
def local_tensor_takes_gradients_as_partial(self: Mutant, old: Hook, tensor: Any, **options: str) -> Any:
    """to_local of a replicated tensor takes its gradient as partial if grad_placements does not say otherwise."""
    return old(tensor, **({"grad_placement": "partial"} if self.placement(tensor) == "replicate" else {}) | options)


@overriding("full_tensor")
def full_tensor_ignores_grad_placement(self: Mutant, old: Hook, tensor: Any, **options: str) -> Any:
    """full_tensor ignores grad_placements."""
    return old(tensor)


@overriding("full_tensor")
def full_tensor_takes_gradients_as_partial(self: Mutant, old: Hook, tensor: Any, **options: str) -> Any:
    """full_tensor takes its gradient as partial if grad_placements does not say otherwise."""
    return old(tensor, **{"grad_placement": "partial", **options})


class _Once(torch.autograd.Function):
    """A redistribution whose gradient has no graph."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, redistribute: Hook) -> Any:
        replicate = import_module("torch.distributed.tensor").Replicate()
        ctx.placements = [replicate if each.is_partial() else each for each in tensor.placements]  # as torch does
        return redistribute(tensor)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grads[0].redistribute(placements=ctx.placements), None


@overriding("redistribute")
def redistribute_is_differentiable_once(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """A gradient through redistribute cannot be differentiated."""
    return _Once.apply(tensor, lambda tensor: old(tensor, placement))


@overriding("redistribute")
def redistribute_to_shards_is_differentiable_once(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """A gradient through redistribute to shards cannot be differentiated."""
    if placement == "shard":
        return _Once.apply(tensor, lambda tensor: old(tensor, placement))
    return old(tensor, placement)


@overriding("redistribute")
def redistribute_of_sums_is_differentiable_once(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """The gradient of a redistributed tensor that is partial, as a sum of parts is, cannot be differentiated."""
    if self.placement(tensor) == "partial":
        return _Once.apply(tensor, lambda tensor: old(tensor, placement))
    return old(tensor, placement)


@overriding("redistribute")
def redistribute_of_sums_to_shards_is_differentiable_once(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """The gradient of a partial tensor that is redistributed to shards cannot be differentiated."""
    if (self.placement(tensor), placement) == ("partial", "shard"):
        return _Once.apply(tensor, lambda tensor: old(tensor, placement))
    return old(tensor, placement)


@overriding("full_tensor")
def full_tensor_keeps_grad_placement(self: Mutant, old: Hook, tensor: Any, **options: str) -> Any:
    """grad_placements of full_tensor stay set in the calls after one that sets them."""
    self.kept = [options] if options else self.kept
    return old(tensor, **(self.kept[0] if self.kept else {}))


@overriding("redistribute")
def redistribute_between_shards_is_differentiable_once(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """A gradient through redistribute from shards to other shards cannot be differentiated."""
    if {self.placement(tensor), placement} == {"shard", "shard-columns"}:
        return _Once.apply(tensor, lambda tensor: old(tensor, placement))
    return old(tensor, placement)


@altering("register_hook")
def dtensor_drops_tensor_hooks_of_sums(self: Mutant, tensor: Any, hook: Hook) -> Hook:
    """A tensor hook on a distributed tensor never runs if the ranks have parts of its values, as of a sum."""
    return (lambda _: None) if is_distributed(tensor) and self.placement(tensor) == "partial" else hook


@overriding("from_local")
def from_local_keeps_partial_gradients_of_replicas(self: Mutant, old: Hook, tensor: Any, placement: str) -> Any:
    """Of a tensor that the ranks have whole, from_local leaves each rank its own share of a partial gradient."""
    made = old(tensor.detach(), placement)
    return _Sum.apply(tensor, made) if placement == "replicate" else old(tensor, placement)
