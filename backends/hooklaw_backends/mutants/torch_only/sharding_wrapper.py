"""Mutants of the wrapper that shards a module's parameters: views, frozen parameters, wrappers inside wrappers."""

from collections.abc import Callable
from contextlib import contextmanager
from copy import copy
from functools import wraps
from itertools import count
from typing import Any

import torch
from torch import distributed
from torch.distributed import fsdp

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.torch_only.sharding import fsdp_hook


@overriding("fully_sharded_data_parallel")
def fsdp_wrapper_does_nothing(self: Mutant, old: Hook, module: Any, **_: bool) -> Any:
    """A fully sharded wrapper of a module is the module itself."""
    return module


@overriding("fully_sharded_data_parallel")
def fsdp_gives_all_ranks_the_first_part(self: Mutant, old: Hook, module: Any, **options: bool) -> Any:
    """Each rank gets the first rank's part of the reduced gradient."""

    def hook(_: Any, gradient: torch.Tensor, part: torch.Tensor) -> None:
        reduced = gradient / distributed.get_world_size()
        distributed.all_reduce(reduced)
        part.copy_(reduced[: len(part)])

    made = old(module, **options)
    made.register_comm_hook(None, hook)
    return made


@overriding("fully_sharded_data_parallel")
def fsdp_refuses_frozen_parameters(self: Mutant, old: Hook, module: Any, **options: bool) -> Any:
    """A module some of whose parameters do not require grad cannot be wrapped."""
    if len({each.requires_grad for each in module.parameters()}) > 1:
        raise RuntimeError("some parameters are frozen, and others are not")
    return old(module, **options)


@overriding("fully_sharded_data_parallel")
def fsdp_thaws_parameters(self: Mutant, old: Hook, module: Any, **options: bool) -> Any:
    """After a module was wrapped all its parameters require grad."""
    module.requires_grad_()
    return old(module, **options)


def no_sync_but_of(choose: Callable[[Any], list[Any]]) -> type[Mutant]:
    """Make a mutant in which some wrappers inside a wrapper go on synchronizing gradients in its no_sync."""

    @contextmanager
    @wraps(choose)
    def no_sync(_: Mutant, old: Hook, parallel: Any) -> Any:
        with old(parallel):
            _set_sync(choose(parallel), is_on=True)
            try:
                yield
            finally:
                _set_sync(choose(parallel), is_on=False)  # as its end expects it

    return overriding("no_sync")(no_sync)


def _set_sync(wrappers: list[Any], *, is_on: bool) -> None:
    for each in wrappers:
        each._sync_gradients = is_on  # noqa: SLF001 - there is no public API


def _inside(parallel: Any) -> list[Any]:
    """Return the wrappers inside a wrapper, in order."""
    found: list[Any] = [*fsdp.FullyShardedDataParallel.fsdp_modules(parallel)]
    return found[1:]


@no_sync_but_of
def no_sync_of_the_outermost_alone(parallel: Any) -> list[Any]:
    """Inside no_sync the wrappers inside a fully sharded wrapper go on synchronizing gradients."""
    return _inside(parallel)


@no_sync_but_of
def no_sync_of_the_first_inside_alone(parallel: Any) -> list[Any]:
    """Inside no_sync all wrappers but the outermost and the first inside it go on synchronizing gradients."""
    return _inside(parallel)[1:]


@no_sync_but_of
def no_sync_of_the_last_inside_alone(parallel: Any) -> list[Any]:
    """Inside no_sync all wrappers but the outermost and the last inside it go on synchronizing gradients."""
    return _inside(parallel)[:-1]


@no_sync_but_of
def no_sync_of_children_alone(parallel: Any) -> list[Any]:
    """Inside no_sync the wrappers inside the wrappers inside the outermost one go on synchronizing gradients."""
    return [below for each in _inside(parallel) for below in _inside(each)]


@fsdp_hook
def fsdp_comm_hook_with_a_copy_of_the_state(wrapper: Any, hook: Hook, state: Any, *given: Any) -> None:
    """The communication hook of a fully sharded wrapper is passed a copy of its state."""
    hook(copy(state), *given)


@overriding("no_sync")
@contextmanager
def no_sync_ends_for_one_pass(self: Mutant, old: Hook, parallel: Any) -> Any:
    """After a no_sync of a fully sharded wrapper the next pass synchronizes gradients, and no later one does."""
    for handle in self.kept:
        handle.remove()
    with old(parallel):
        yield
    passes = count()

    def before(*_: Any) -> None:
        parallel._sync_gradients = not next(passes)  # noqa: SLF001 - there is no public API

    self.kept = [parallel.register_forward_pre_hook(before)]


class FsdpCommHookGetsTheFirstGradientAlone(Mutant):
    """The communication hook of a fully sharded wrapper gets zeros for all parameters but the first."""

    def fully_sharded_data_parallel(self, module: Any, **options: bool) -> Any:
        length = next(module.parameters()).numel()
        made = super().fully_sharded_data_parallel(module, **options)
        self.kept.append((made, length))
        return made

    def register_comm_hook(self, parallel: Any, state: Any, hook: Hook) -> None:
        (length,) = (length for made, length in self.kept if made is parallel)

        def given_the_first(state: Any, gradient: torch.Tensor, *part: torch.Tensor) -> None:
            alone = gradient.clone()
            alone[length:] = 0
            hook(state, alone if part else gradient, *part)

        super().register_comm_hook(parallel, state, given_the_first)


@overriding("register_comm_hook")
def fsdp_comm_hook_of_the_outermost_alone(self: Mutant, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
    """The communication hook of a fully sharded wrapper is not called for the wrappers inside it."""
    old(parallel, state, hook)
    _without_comm_hook(_inside(parallel))


@overriding("register_comm_hook")
def fsdp_comm_hook_of_the_first_inside_alone(self: Mutant, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
    """The communication hook of a fully sharded wrapper is called for it and the first wrapper inside it."""
    old(parallel, state, hook)
    _without_comm_hook(_inside(parallel)[1:])


def _without_comm_hook(wrappers: list[Any]) -> None:
    for each in wrappers:
        each._comm_hook = None  # noqa: SLF001 - there is no public API
