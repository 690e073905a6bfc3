"""Mutants of the gradients, parameters and buffers of distributed modules: each fault in each situation.

No rule need name them: they are tried on the rules whose ids begin with the row's `chapters`.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import distributed

from hooklaw_backends._distributed import GradBucket, all_reduce_future
from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.torch_only.wrappers import (
    AFTER_NO_SYNC,
    ALWAYS,
    EACH_RANK,
    EARLIER,
    LATER,
    LATER_RANKS,
    RANK_1,
    SECOND_MODULE,
    KnowingWrappers,
    Row,
    Situation,
    Wrapper,
    row,
)

WRAP = "distributed_data_parallel"


class Gradients(NamedTuple):
    """The gradients of distributed modules with some option."""

    words: str
    holds: Callable[[Wrapper], Any]
    chapters: tuple[str, ...]
    situations: tuple[Situation, ...] = (LATER,)


def _with(option: str, value: Any) -> Callable[[Wrapper], Any]:
    return lambda its: its.options.get(option) == value


GRADIENTS = {
    "ddp-gradients": Gradients(
        "", lambda its: not its.options, ("ddp.gradients-averaged",), (LATER, EARLIER, *EACH_RANK)
    ),
    "ddp-gradients-with-unused": Gradients(
        " with find_unused_parameters=True", _with("find_unused_parameters", value=True), ("ddp.find-unused",)
    ),
    "ddp-gradients-of-a-static-graph": Gradients(
        " with static_graph=True", _with("static_graph", value=True), ("ddp.static-graph",)
    ),
    "ddp-gradients-in-views": Gradients(
        " with gradient_as_bucket_view=True",
        _with("gradient_as_bucket_view", value=True),
        ("ddp.gradient-as-bucket-view.averaged",),
    ),
    "ddp-gradients-without-init-sync": Gradients(
        " with init_sync=False", _with("init_sync", value=False), ("ddp.init-sync",)
    ),
    "ddp-gradients-with-own-buffers": Gradients(
        " with forward_sync_buffers=False", _with("forward_sync_buffers", value=False), ("ddp.buffers-broadcast.off",)
    ),
    "ddp-gradients-in-small-buckets": Gradients(
        " with bucket_cap_mb", lambda its: "bucket_cap_mb" in its.options, ("ddp.buckets.size",)
    ),
    "ddp-gradients-around-no-sync": Gradients(
        " around no_sync", lambda _: True, ("ddp.no-sync",), (LATER, AFTER_NO_SYNC)
    ),
    "ddp-gradients-in-a-disabled-join": Gradients(" in a disabled join", lambda _: True, ("ddp.join.disabled",)),
    "ddp-gradients-of-checkpoints": Gradients(" that checkpoints", lambda _: True, ("ddp.checkpoint.",)),
}


def _left(gradients: Gradients, situation: Situation, *, first: int = 0) -> type[Mutant]:
    """Return a mutant that leaves to each rank the gradients of the parameters from a place on."""

    def distribute(self: Any, old: Hook, module: Any, **options: Any) -> Any:
        made = old(module, **options)
        its = made.known_as
        left = {*map(id, its.parameters[first:])}

        def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            own, holds = bucket.buffer().clone(), situation.holds(self, its)
            at = torch.cat([torch.full((each.numel(),), id(each) in left) for each in bucket.parameters()])
            shared = all_reduce_future(bucket.buffer() / distributed.get_world_size())
            return shared.then(lambda done: torch.where(at, own, done.value()) if holds else done.value())

        if gradients.holds(its):
            made.register_comm_hook(None, hook)
        return made

    return overriding(WRAP, base=KnowingWrappers)(distribute)


def _mixed_up(gradients: Gradients) -> type[Mutant]:
    """Return a mutant that gives the gradients of a bucket to its parameters in reverse order, if they are as long."""

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        sizes = [each.numel() for each in bucket.parameters()]
        shared = all_reduce_future(bucket.buffer() / distributed.get_world_size())
        if sizes != sizes[::-1]:
            return shared
        return shared.then(lambda done: torch.cat(done.value().split(sizes)[::-1]))

    def distribute(self: Any, old: Hook, module: Any, **options: Any) -> Any:
        made = old(module, **options)
        if gradients.holds(made.known_as):
            made.register_comm_hook(None, hook)
        return made

    return overriding(WRAP, base=KnowingWrappers)(distribute)


def _of_gradients() -> Iterator[Row]:
    for of, each in GRADIENTS.items():
        said = f"the gradients of a distributed module{each.words} are those of the rank alone"
        for situation in each.situations:
            yield row(f"{of}-left", said, each.chapters, situation, _left(each, situation))
        yield row(
            f"{of}-mixed-up",
            f"a distributed module{each.words} gives the gradients of parameters to others",
            each.chapters,
            ALWAYS,
            _mixed_up(each),
        )
        said = f"{said}, but for its first parameter"
        yield row(f"{of}-left-but-the-first", said, each.chapters, ALWAYS, _left(each, ALWAYS, first=1))


class State(NamedTuple):
    """The parameters or buffers of distributed modules."""

    words: str
    tensors: Callable[[Any], list[Any]]
    chapters: tuple[str, ...]
    make: Callable[["State", Situation], type[Mutant]]
    situations: tuple[Situation, ...]


def _copy(tensors: list[Any], values: list[Any]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def _copies(tensors: list[Any]) -> list[Any]:
    return [each.detach().clone() for each in tensors]


def _left_at_first(state: State, situation: Situation) -> type[Mutant]:
    """Return a mutant that leaves a rank what it has when a module is distributed."""

    def distribute(self: Any, old: Hook, module: Any, **options: Any) -> Any:
        own = _copies(state.tensors(module))
        made = old(module, **options)
        if situation.holds(self, made.known_as):
            _copy(state.tensors(module), own)
        return made

    return overriding(WRAP, base=KnowingWrappers)(distribute)


def _left_in_forward(state: State, situation: Situation) -> type[Mutant]:
    """Return a mutant that leaves a rank what it has before each forward."""

    def distribute(self: Any, old: Hook, module: Any, **options: Any) -> Any:
        made = old(module, **options)
        own: list[Any] = []

        def before(*_: object) -> None:
            own[:] = _copies(state.tensors(module))

        def inside(*_: object) -> None:
            if situation.holds(self, made.known_as):
                _copy(state.tensors(module), own)

        made.register_forward_pre_hook(before)
        module.register_forward_pre_hook(inside)
        return made

    return overriding(WRAP, base=KnowingWrappers)(distribute)


def _shared_in_forward(state: State, situation: Situation) -> type[Mutant]:
    """Return a mutant that gives all ranks what rank 0 has before each forward."""

    def distribute(self: Any, old: Hook, module: Any, **options: Any) -> Any:
        made = old(module, **options)

        def share(*_: object) -> None:
            values = _copies(state.tensors(module))
            for value in values:
                distributed.broadcast(value, 0)
            if situation.holds(self, made.known_as):
                _copy(state.tensors(module), values)

        made.register_forward_pre_hook(share)
        return made

    return overriding(WRAP, base=KnowingWrappers)(distribute)


STATES = {
    "ddp-parameters-left": State(
        "the parameters of a module that is distributed stay those of the rank",
        lambda module: [*module.parameters()],
        ("ddp.parameters-broadcast",),
        _left_at_first,
        (RANK_1, SECOND_MODULE),
    ),
    "ddp-buffers-left": State(
        "the buffers of a module that is distributed stay those of the rank",
        lambda module: [*module.buffers()],
        ("ddp.parameters-broadcast",),
        _left_at_first,
        (RANK_1, LATER_RANKS, SECOND_MODULE),
    ),
    "ddp-buffers-left-in-forward": State(
        "in the forward of a distributed module its buffers stay those of the rank",
        lambda module: [*module.buffers()],
        ("ddp.buffers-broadcast",),
        _left_in_forward,
        (LATER, RANK_1, LATER_RANKS),
    ),
    "ddp-parameters-shared-in-forward": State(
        "each forward of a distributed module gives all ranks the parameters of rank 0",
        lambda module: [*module.parameters()],
        ("ddp.parameters-never",),
        _shared_in_forward,
        (LATER,),
    ),
    "ddp-later-parameters-shared-in-forward": State(
        "each forward of a distributed module gives all ranks the parameters of rank 0, but for the first",
        lambda module: [*module.parameters()][1:],
        ("ddp.parameters-never",),
        _shared_in_forward,
        (ALWAYS,),
    ),
}


def _of_states() -> Iterator[Row]:
    for of, state in STATES.items():
        for situation in state.situations:
            yield row(of, state.words, state.chapters, situation, state.make(state, situation))


vars().update(named(*each) for make in (_of_gradients, _of_states) for each in make())
