"""Mutants of communication hooks: of when they are called, of their buckets, and of what their futures do."""

from copy import copy
from functools import wraps
from typing import Any

import torch
from torch import distributed

from hooklaw_backends._distributed import GradBucket, all_reduce_future
from hooklaw_backends.mutants.base import Hook, Maker, Mutant, overriding


def hooking(step: Hook) -> type[Mutant]:
    """Make a mutant that calls ``(self, hook, state, bucket)`` in place of each communication hook."""

    @wraps(step)
    def register(self: Mutant, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
        old(parallel, state, lambda state, bucket: step(self, hook, state, bucket))

    return overriding("register_comm_hook")(register)


def _completed(value: Any) -> Any:
    future = torch.futures.Future()
    future.set_result(value)
    return future


class Bucket:
    """A bucket, some of whose methods a mutant replaces."""

    def __init__(self, bucket: Any, **methods: Hook) -> None:
        self.bucket = bucket
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bucket, name)


def bucket_by(*names: str) -> Maker:
    """Make a mutant that computes ``(bucket, *arguments)`` in place of these methods of a bucket."""

    def make(step: Hook) -> type[Mutant]:
        @wraps(step)
        def call(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
            made = Bucket(bucket, **{name: lambda *given: step(bucket, *given) for name in names})
            return hook(state, made)

        return hooking(call)

    return make


@overriding("register_comm_hook")
def comm_hook_ignored(self: Mutant, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
    """A communication hook is never called."""


@hooking
def comm_hook_result_ignored(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """A communication hook is called, and the gradients stay what they are."""
    before = bucket.buffer().clone()
    hook(state, bucket)
    return _completed(before)


@hooking
def comm_hook_without_state(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """A communication hook is passed an empty state."""
    return hook([], bucket)


@hooking
def comm_hook_with_a_copy_of_the_state(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """A communication hook is passed a copy of its state."""
    return hook(copy(state), bucket)


@hooking
def comm_hook_buckets_predivided(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """The gradients in a bucket are divided by the number of ranks before the hook sees them."""
    bucket.set_buffer(bucket.buffer() / distributed.get_world_size())
    return hook(state, bucket)


@hooking
def comm_hook_result_divided(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """What a communication hook's future holds is divided by the number of ranks."""
    return hook(state, bucket).then(lambda done: done.value() / distributed.get_world_size())


@hooking
def comm_hook_result_not_awaited(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """The gradients are those that a bucket has when the hook returns, whatever its future will hold."""
    hook(state, bucket)
    return _completed(bucket.buffer())


@hooking
def comm_hook_result_reduced_again(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """What a communication hook's future holds is averaged over the ranks once more."""
    value = hook(state, bucket).value() / distributed.get_world_size()
    distributed.all_reduce(value)
    return _completed(value)


@overriding("register_comm_hook")
def comm_hook_replaced_by_the_second(self: Mutant, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
    """A second communication hook takes the place of the first."""
    if not parallel.__dict__.setdefault("hooks", []):
        old(parallel, state, lambda given, bucket: parallel.hooks[-1](given, bucket))  # noqa: PLW0108 - not the last now
    parallel.hooks.append(hook)


@hooking
def comm_hook_exception_lost(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """If a communication hook raises, the rank keeps its gradients."""
    try:
        return hook(state, bucket)
    except Exception:  # noqa: BLE001 - that is the vice
        return _completed(bucket.buffer())


@hooking
def comm_hook_may_return_anything(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """If a communication hook returns no future of a tensor, the rank keeps its gradients."""
    hook(state, bucket)
    return _completed(bucket.buffer())


@hooking
def comm_hook_result_for_one_parameter(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """What a communication hook's future holds reaches the first gradient of the bucket, and no other."""
    size, before = bucket.gradients()[0].numel(), bucket.buffer().clone()
    return hook(state, bucket).then(lambda done: torch.cat([done.value()[:size], before[size:]]))


@hooking
def comm_hook_result_for_the_last_bucket_only(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """A communication hook is called for each bucket, and its future counts for the last bucket alone."""
    before, future = bucket.buffer().clone(), hook(state, bucket)
    return future if bucket.is_last() else future.then(lambda _: before)


@overriding("register_comm_hook")
def comm_hook_result_of_the_first_bucket_for_all(
    self: Mutant, old: Hook, parallel: Any, state: Any, hook: Hook
) -> None:
    """A communication hook is called for each bucket, and all of one size get what it returned for the first."""
    first: list[torch.Tensor] = []

    def called(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        result = hook(state, bucket).value()
        if bucket.index() == 0:
            first[:] = [result.clone()]
        return _completed(first[0].clone() if first[0].shape == result.shape else result)

    old(parallel, state, called)


@bucket_by("gradients")
def bucket_gradients_reversed(bucket: Any) -> Any:
    """The gradients of a bucket are in another order than its parameters."""
    return bucket.gradients()[::-1]


@bucket_by("gradients")
def bucket_without_its_last_gradient(bucket: Any) -> Any:
    """The last gradient of a bucket is zeros."""
    *first, last = bucket.gradients()
    return [*first, torch.zeros_like(last)]


@bucket_by("gradients")
def bucket_gradients_of_one_element_apart(bucket: Any) -> Any:
    """Each gradient of a bucket begins one element after the one before it, whatever that one's size is."""
    return [bucket.buffer()[at:][: each.numel()].view_as(each) for at, each in enumerate(bucket.parameters())]


@bucket_by("parameters")
def bucket_parameters_are_gradients(bucket: Any) -> Any:
    """The parameters of a bucket are its gradients."""
    return bucket.gradients()


@bucket_by("is_last")
def every_bucket_is_the_last(bucket: Any) -> bool:
    """Each bucket says that it is the last."""
    return True


@bucket_by("is_last")
def first_bucket_is_the_last(bucket: Any) -> bool:
    """The bucket that is reduced first says that it is the last."""
    return bucket.index() == 0


@bucket_by("set_buffer")
def bucket_keeps_its_buffer(bucket: Any, buffer: Any) -> None:
    """set_buffer of a bucket changes nothing."""


@overriding("distributed_data_parallel")
def ddp_makes_one_bucket(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """All gradients are reduced in one bucket, whatever bucket_cap_mb says."""
    return old(module, **{**options, "bucket_cap_mb": 100})


@overriding("distributed_data_parallel")
def ddp_bucket_views_are_copies(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Gradients are copies of the buckets' parts, whatever gradient_as_bucket_view says."""
    return old(module, **{**options, "gradient_as_bucket_view": False})


@overriding("distributed_data_parallel")
def ddp_reduces_the_last_bucket_only(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Of several buckets the last is averaged, and the others are left to each rank."""
    made = old(module, **options)

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if not bucket.is_last():
            return _completed(bucket.buffer())
        share = bucket.buffer() / distributed.get_world_size()
        return all_reduce_future(share)

    made.register_comm_hook(None, hook)
    return made


@overriding("distributed_data_parallel")
def ddp_reduces_the_first_bucket_for_all(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Of several buckets of one size all get the averages of the first."""
    made = old(module, **options)
    first: list[torch.Tensor] = []

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            first[:] = [bucket.buffer().clone()]
        same_size = first[0].shape == bucket.buffer().shape
        return all_reduce_future((first[0] if same_size else bucket.buffer()) / distributed.get_world_size())

    made.register_comm_hook(None, hook)
    return made


@overriding("register_comm_hook")
def comm_hook_registered_again(self: Mutant, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
    """A second registration of the same communication hook does nothing, and is no error."""
    if parallel.__dict__.setdefault("registered", None) is not hook:
        old(parallel, state, hook)
        parallel.__dict__["registered"] = hook


@hooking
def comm_hook_result_lost_in_the_middle(self: Mutant, hook: Hook, state: Any, bucket: Any) -> Any:
    """What a communication hook's future holds reaches the first and the last gradient of the bucket, and no other."""
    sizes, before = [each.numel() for each in bucket.parameters()], bucket.buffer().clone()
    first, last = sizes[0], sum(sizes) - sizes[-1]
    middle = slice(first, max(first, last))

    def step(done: Any) -> torch.Tensor:
        value = done.value().clone()
        value[middle] = before[middle]
        return value

    future = hook(state, bucket)
    return future.then(step) if isinstance(future, torch.futures.Future) else future
