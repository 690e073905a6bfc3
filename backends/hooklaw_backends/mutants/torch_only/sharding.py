"""Mutants of sharded modules: of when parameters are whole, and of how gradients are reduced."""

import weakref
from collections.abc import Callable
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

from torch import distributed, is_grad_enabled

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, calling, overriding


def after_sharding(step: Callable[[Any], None]) -> type[Mutant]:
    """Make a mutant that runs ``(module)`` after a module was sharded."""

    @wraps(step)
    def shard(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
        made = old(module, **options)
        step(made)
        return made

    return overriding("fully_shard")(shard)


@overriding("fully_shard")
def fully_shard_does_nothing(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """A module that was fully sharded is what it was."""
    return module


@after_sharding
def fully_shard_gathers_in_forward_itself(module: Any) -> None:
    """The forward of a fully sharded module makes the parameters whole, without a hook."""
    kind, forward = type(module), type(module).forward

    def gathering(self: Any, *inputs: Any) -> Any:
        self.unshard()
        return forward(self, *inputs)

    kind.forward = gathering


@overriding("fully_shard")
def fully_shard_never_reshards(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The parameters of a fully sharded module stay whole after forward."""
    return old(module, **{**options, "reshard_after_forward": False})


@overriding("fully_shard")
def fully_shard_always_reshards(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The parameters of a fully sharded module are parts after forward, whatever reshard_after_forward says."""
    made = old(module, **{**options, "reshard_after_forward": True})
    made.register_forward_hook(lambda *_: made.reshard())
    return made


@after_sharding
def fully_shard_gathers_zeros(module: Any) -> None:
    """In forward the whole parameters of a fully sharded module are zeros."""
    module.register_forward_pre_hook(lambda *_: zero(module))


@after_sharding
def fully_shard_gathers_zeros_in_no_grad(module: Any) -> None:
    """In forward under no_grad the whole parameters of a fully sharded module are zeros."""
    module.register_forward_pre_hook(lambda *_: None if is_grad_enabled() else zero(module))


@overriding("fully_shard")
def fully_shard_gathers_zeros_in_no_grad_inside_another(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """In forward under no_grad the whole parameters of a fully sharded module inside another are zeros."""
    made = old(module, **options)

    def begin(*_: Any) -> None:
        if self.kept and not is_grad_enabled():
            zero(made)
        self.kept.append(made)

    made.register_forward_pre_hook(begin)
    made.register_forward_hook(lambda *_: (self.kept.pop(), None)[1], always_call=True)
    return made


@after_sharding
def fully_shard_gathers_one_parameter_in_no_grad(module: Any) -> None:
    """In forward under no_grad the whole parameters of a fully sharded module are zeros, but for the first."""
    module.register_forward_pre_hook(lambda *_: None if is_grad_enabled() else zero(module, after=1))


@after_sharding
def fully_shard_stays_whole_in_no_grad(module: Any) -> None:
    """The parameters of a fully sharded module stay whole after a forward under no_grad."""

    def after(*_: Any) -> None:
        if not is_grad_enabled():
            module.unshard()

    module.register_forward_hook(after)


@after_sharding
def fully_shard_stays_whole_after_no_grad(module: Any) -> None:
    """After a forward under no_grad the parameters of a fully sharded module stay whole after later forwards."""
    unrecorded: list[None] = []

    def after(*_: Any) -> None:
        if not is_grad_enabled():
            unrecorded.append(None)
        elif unrecorded:
            module.unshard()

    module.register_forward_hook(after)


@after_sharding
def fully_shard_gathers_one_parameter(module: Any) -> None:
    """In forward the whole parameters of a fully sharded module are zeros, but for the first."""
    module.register_forward_pre_hook(lambda *_: zero(module, after=1))


@after_sharding
def fully_shard_gathers_two_parameters(module: Any) -> None:
    """In forward the whole parameters of a fully sharded module are zeros, but for the first two."""
    module.register_forward_pre_hook(lambda *_: zero(module, after=2))


@after_sharding
def fully_shard_gathers_two_parameters_in_backward(module: Any) -> None:
    """In backward the whole parameters of a fully sharded module are zeros, but for the first two."""
    before_backward(module, lambda: zero(module, after=2))


@after_sharding
def fully_shard_gathers_zeros_in_backward(module: Any) -> None:
    """In backward the whole parameters of a fully sharded module are zeros."""
    before_backward(module, lambda: zero(module))


def before_backward(module: Any, step: Callable[[], None]) -> None:
    """Run a step in each backward through a module, before its own."""

    def after(_: Any, __: Any, output: Any) -> None:
        for each in tensors_in(output):
            if each.requires_grad:
                each.register_hook(lambda _: step())

    module.register_forward_hook(after)


def tensors_in(output: Any) -> list[Any]:
    """Return the tensors that a module returns, alone or in a dictionary of lists."""
    return [each for own in output.values() for each in own] if isinstance(output, dict) else [output]


def zero(module: Any, after: int = 0) -> None:
    """Make a module's own parameters zeros, but for some at the beginning."""
    for each in [*module.parameters(recurse=False)][after:]:
        each.data.zero_()


@after_sharding
def fully_shard_never_reshards_after_backward(module: Any) -> None:
    """The parameters of a fully sharded module stay whole after backward."""
    module.set_reshard_after_backward(False)


def own_part(reduced: Any) -> None:
    """Give the gradient of the rank alone from the mean over two ranks, the second of which has twice the first's."""
    reduced.mul_((distributed.get_rank() + 1) / 1.5)


@after_sharding
def fully_shard_reduces_nothing(module: Any) -> None:
    """Each rank keeps the part of its own gradient."""
    module.set_all_reduce_hook(own_part)


@after_sharding
def fully_shard_reduces_one_parameter(module: Any) -> None:
    """Of each parameter but the first, each rank keeps the part of its own gradient."""
    size = next(module.parameters()).to_local().numel()
    module.set_all_reduce_hook(lambda reduced: own_part(reduced[size:]))


@after_sharding
def fully_shard_reduces_two_parameters(module: Any) -> None:
    """Of each parameter but the first two, each rank keeps the part of its own gradient."""
    parts = [-(-len(each) // distributed.get_world_size()) for each in module.parameters()]
    module.set_all_reduce_hook(lambda reduced: own_part(reduced[sum(parts[:2]) :]))


@after_sharding
def fully_shard_sums(module: Any) -> None:
    """The gradients of a fully sharded module are the sum over the ranks."""
    module.set_all_reduce_hook(lambda reduced: reduced.mul_(distributed.get_world_size()))


@overriding("fully_shard")
def fully_shard_shards_the_last_dimension(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Each rank has its own part of the columns of a fully sharded parameter of two dimensions."""
    shard = import_module("torch.distributed.tensor").Shard
    return old(module, shard_placement_fn=lambda parameter: shard(parameter.dim() - 1), **options)


@overriding("fully_shard")
def fully_shard_gathers_all_groups(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The hooks of a fully sharded module make the parameters of all its sharded submodules whole."""
    return _gathering_submodules(old(module, **options), after=0)


def _gathering_submodules(module: Any, *, after: int) -> Any:
    """Return a module whose forward makes the parameters of its sharded submodules whole, but for some at the start."""

    def unshard(*_: Any) -> None:
        for each in [each for each in module.children() if hasattr(each, "unshard")][after:]:
            each.unshard()

    module.register_forward_pre_hook(unshard)
    return module


@overriding("fully_shard")
def fully_shard_gathers_all_groups_but_the_first(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The hooks of a fully sharded module make the parameters of all its sharded submodules but the first whole."""
    return _gathering_submodules(old(module, **options), after=1)


@overriding("fully_shard")
def fully_shard_ignores_nothing(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Parameters in ignored_params are sharded too."""
    options.pop("ignored_params", None)
    return old(module, **options)


@overriding("fully_shard")
def fully_shard_shards_one_parameter(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Sharding a module shards its first parameter, and no other."""
    _, *others = module.parameters()
    return old(module, **{"ignored_params": {*others}, **options})


@overriding("register_fsdp_forward_method")
def forward_method_not_registered(self: Mutant, old: Hook, module: Any, name: str) -> None:
    """Registering a forward method does nothing."""


@overriding("unshard")
def unshard_does_nothing(self: Mutant, old: Hook, module: Any) -> None:
    """unshard leaves the parameters parts."""


class UnshardDoesNothingOnceForwardRan(Mutant):
    """unshard leaves the parameters of a module parts after its first forward."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        self.kept.append(weakref.ref(fn))
        return super().call(fn, *tensors)

    def unshard(self, module: Any) -> None:
        if not any(called() is module for called in self.kept):
            super().unshard(module)


@overriding("reshard")
def reshard_does_nothing(self: Mutant, old: Hook, module: Any) -> None:
    """reshard leaves the parameters whole."""


@overriding("set_requires_gradient_sync")
def gradient_sync_always(self: Mutant, old: Hook, module: Any, *, requires_gradient_sync: bool) -> None:
    """Each pass of a fully sharded module reduces gradients, whatever was set."""


@overriding("set_requires_gradient_sync")
def gradient_sync_never_again(self: Mutant, old: Hook, module: Any, *, requires_gradient_sync: bool) -> None:
    """Once gradient sync was switched off it stays off."""
    old(module, requires_gradient_sync=False)


@overriding("set_all_reduce_hook")
def all_reduce_hook_ignored(self: Mutant, old: Hook, module: Any, hook: Hook) -> None:
    """An all-reduce hook is never called."""


@overriding("set_all_reduce_hook")
def all_reduce_hook_before_reduction(self: Mutant, old: Hook, module: Any, hook: Hook) -> None:
    """An all-reduce hook sees the rank's own part, not the reduced one."""

    def own(reduced: Any) -> None:
        own_part(reduced)
        hook(reduced)

    old(module, own)


@overriding("set_all_reduce_hook")
def all_reduce_hook_on_a_copy(self: Mutant, old: Hook, module: Any, hook: Hook) -> None:
    """What an all-reduce hook does to its argument is lost."""
    old(module, lambda reduced: hook(reduced.clone()))


@overriding("fully_shard")
def fully_shard_drops_module_hooks(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Sharding a module removes its hooks."""
    for table in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):  # noqa: SLF001
        table.clear()
    return old(module, **options)


@overriding("fully_shard")
def fully_shard_keeps_one_module_hook_of_each_kind(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Sharding a module removes its hooks but the first of each kind."""
    for table in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):  # noqa: SLF001
        for name in [*table][1:]:
            del table[name]
    return old(module, **options)


@overriding(*verbs.ON_ONE_MODULE)
def fully_shard_ignores_later_module_hooks(self: Mutant, old: Hook, module: Any, hook: Hook, **options: Any) -> Any:
    """A hook on a module that is fully sharded already does nothing."""
    return old(module, (lambda *_: None) if hasattr(module, "unshard") else hook, **options)


@overriding("register_post_accumulate_grad_hook")
def fully_shard_drops_post_accumulate_hooks(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A post-accumulate-grad hook on a sharded parameter does nothing."""
    return old(tensor, (lambda _: None) if self.is_sharded(tensor) else hook)


def unhooked(wrapper: Any) -> Hook:
    """Return the communication hook that the wrapper has without one of the user's."""
    hooks = import_module("torch.distributed.algorithms._comm_hooks.default_hooks")
    state = hooks.DefaultState(distributed.group.WORLD)
    plain = wrapper.sharding_strategy.name == "NO_SHARD"
    return lambda *given: (hooks.allreduce_hook if plain else hooks.reduce_scatter_hook)(state, *given)


def fsdp_hook(step: Hook) -> type[Mutant]:
    """Make a mutant that calls ``(wrapper, hook, state, *given)`` in place of a wrapper's communication hook."""

    @wraps(step)
    def register(self: Mutant, old: Hook, wrapper: Any, state: Any, hook: Hook) -> None:
        old(wrapper, state, lambda state, *given: step(wrapper, hook, state, *given))

    return overriding("register_comm_hook")(register)


@fsdp_hook
def fsdp_comm_hook_ignored(wrapper: Any, hook: Hook, state: Any, *given: Any) -> None:
    """The communication hook of a fully sharded wrapper is never called."""
    unhooked(wrapper)(*given)


@overriding("register_comm_hook")
def fsdp_comm_hook_called_for_each_parameter(self: Mutant, old: Hook, wrapper: Any, state: Any, hook: Hook) -> None:
    """The communication hook of a wrapper that shards nothing gets the gradient of one parameter at a time."""
    sizes = [parameter.numel() for parameter in wrapper.parameters()]

    def for_each(state: Any, gradient: Any) -> None:
        for each in gradient.split(sizes):
            hook(state, each)

    old(wrapper, state, for_each)


@fsdp_hook
def fsdp_comm_hook_without_state(wrapper: Any, hook: Hook, state: Any, *given: Any) -> None:
    """The communication hook of a fully sharded wrapper is passed None as its state."""
    hook(None, *given)


@overriding("register_comm_hook")
def fsdp_comm_hook_replaced_by_the_second(self: Mutant, old: Hook, wrapper: Any, state: Any, hook: Hook) -> None:
    """A second communication hook of a fully sharded wrapper takes the place of the first."""
    wrapper._comm_hook = None  # noqa: SLF001 - there is no public API
    old(wrapper, state, hook)


@overriding("no_sync")
@contextmanager
def no_sync_keeps_the_last_pass_only(self: Mutant, old: Hook, parallel: Any) -> Any:
    """Of the passes inside no_sync only the last leaves a gradient."""
    handle = parallel.register_forward_pre_hook(lambda *_: parallel.zero_grad())
    with old(parallel):
        yield
    handle.remove()


@overriding("no_sync")
@contextmanager
def no_sync_does_nothing(self: Mutant, old: Hook, parallel: Any) -> Any:
    """no_sync of a fully sharded wrapper changes nothing."""
    yield


@overriding("fully_shard")
def fully_shard_ignores_one_parameter(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Of the parameters in ignored_params only the module's first is ignored."""
    given = options.get("ignored_params") or set()
    ignored = set([each for each in module.parameters() if any(each is one for one in given)][:1])
    return old(module, **{**options, "ignored_params": ignored})


@overriding("fully_shard")
def fully_shard_ignores_no_parameter_of_submodules(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The parameters of submodules are sharded even if ignored_params has them."""
    given = options.get("ignored_params") or set()
    ignored = {each for each in module.parameters(recurse=False) if any(each is one for one in given)}
    return old(module, **{**options, "ignored_params": ignored})


@calling("register_forward_pre_hook", "register_forward_hook", "register_full_backward_hook")
def fully_shard_ignores_what_module_hooks_return(self: Mutant, hook: Hook, module: Any, *given: Any) -> Any:
    """What a hook of a fully sharded module returns is ignored."""
    returned = hook(module, *given)
    return None if hasattr(module, "unshard") else returned
