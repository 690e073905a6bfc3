"""Mutants of sharded modules: of those inside them, of what is kept from pass to pass, and of forward methods."""

from contextlib import suppress
from itertools import count
from typing import Any

import torch

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.torch_only.sharding import after_sharding, own_part, tensors_in, zero


@overriding("unshard")
def unshard_is_recursive(self: Mutant, old: Hook, module: Any) -> None:
    """unshard makes the parameters of submodules whole too."""
    for each in (module, *module.children()):
        old(each)


@overriding("reshard")
def reshard_is_recursive(self: Mutant, old: Hook, module: Any) -> None:
    """reshard leaves parts of the parameters of submodules too."""
    for each in (module, *module.children()):
        old(each)


@overriding("fully_shard")
def fully_shard_gathers_once(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Backward through a fully sharded module computes with the parameters that forward has gathered."""
    made = old(module, **options)
    contexts: list[Any] = []

    def enter(*_: Any) -> None:
        contexts.append(torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda saved: saved))
        contexts[-1].__enter__()

    made.register_forward_pre_hook(enter)
    made.register_forward_hook(lambda *_: contexts.pop().__exit__(None, None, None))
    return made


@overriding("register_fsdp_forward_method")
def forward_methods_of_any_module(self: Mutant, old: Hook, module: Any, name: str) -> None:
    """A registered method runs in another one, whether its module is sharded or not."""
    old(module, name)
    method = getattr(module, name)

    def run(*inputs: Any, **named: Any) -> Any:
        return method(*inputs, **named)

    setattr(module, name, run)


@overriding("register_fsdp_forward_method")
def forward_methods_of_sharded_modules_alone(self: Mutant, old: Hook, module: Any, name: str) -> None:
    """Registering a forward method of a module that is not sharded is an error."""
    if not hasattr(module, "unshard"):
        raise RuntimeError("the module is not sharded")
    old(module, name)


@overriding("fully_shard")
def fully_shard_leaves_submodules(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Sharding a module shards its own parameters, and not those of submodules."""
    inside = {each for child in module.children() for each in child.parameters() if not self.is_sharded(each)}
    return old(module, **{**options, "ignored_params": inside | options.get("ignored_params", set())})


@after_sharding
def fully_shard_keeps_the_last_gradient(module: Any) -> None:
    """The gradient of a fully sharded parameter is that of the last pass."""

    def forget(*_: Any) -> None:
        for each in parameters:
            each.grad = None

    parameters = [*module.parameters(recurse=False)]
    module.register_forward_pre_hook(forget)


@after_sharding
def fully_shard_drops_keyword_arguments(module: Any) -> None:
    """The keyword arguments of a fully sharded module do not reach its forward."""
    module.register_forward_pre_hook(lambda _module, inputs, _named: (inputs, {}), with_kwargs=True)


@overriding("set_requires_gradient_sync")
def gradient_sync_set_for_the_outermost_alone(
    self: Mutant, old: Hook, module: Any, *, requires_gradient_sync: bool
) -> None:
    """Whether gradients are reduced is set for a fully sharded module, and not for those inside it."""
    module.set_requires_gradient_sync(requires_gradient_sync, recurse=False)


@overriding("set_requires_gradient_sync")
def gradient_sync_set_for_the_first_submodule_alone(
    self: Mutant, old: Hook, module: Any, *, requires_gradient_sync: bool
) -> None:
    """Whether gradients are reduced is set for a fully sharded module and the first one inside it, not for others."""
    for each in (module, *[*module.children()][:1]):
        each.set_requires_gradient_sync(requires_gradient_sync, recurse=False)


@overriding("set_requires_gradient_sync")
def gradient_sync_set_for_the_last_submodule_alone(
    self: Mutant, old: Hook, module: Any, *, requires_gradient_sync: bool
) -> None:
    """Whether gradients are reduced is set for a fully sharded module and the last one inside it, not for others."""
    for each in (module, *[*module.children()][-1:]):
        each.set_requires_gradient_sync(requires_gradient_sync, recurse=False)


@overriding("register_fsdp_forward_method")
def forward_method_loses_its_result(self: Mutant, old: Hook, module: Any, name: str) -> None:
    """A forward method of a fully sharded module returns None."""
    old(module, name)
    method = getattr(module, name)
    if hasattr(module, "unshard"):
        setattr(module, name, lambda *inputs, **named: (method(*inputs, **named), None)[1])


@overriding("register_fsdp_forward_method")
def forward_method_gathers_parameters_in_forward_alone(self: Mutant, old: Hook, module: Any, name: str) -> None:
    """A forward method of a fully sharded module has whole parameters, and its backward reduces nothing."""
    method = getattr(module, name)

    def gathering(*inputs: Any, **named: Any) -> Any:
        module.unshard()
        outputs = method(*inputs, **named)
        module.reshard()
        return outputs

    if hasattr(module, "unshard"):
        setattr(module, name, gathering)


@overriding("fully_shard")
def fully_shard_without_reshard_stays_whole(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """With reshard_after_forward=False parameters stay whole after backward too."""
    made = old(module, **options)
    made.set_reshard_after_backward(options.get("reshard_after_forward") is not False)
    return made


@overriding("fully_shard")
def fully_shard_reshards_the_first_submodule_alone(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """By default the parameters of the module that was sharded first are parts after forward, and no others."""
    self.kept.append(module)
    return old(module, **{"reshard_after_forward": len(self.kept) == 1, **options})


@overriding("fully_shard")
def fully_shard_reshards_the_last_submodule_alone(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """By default the parameters of the submodule that was sharded last are parts after forward, and no others."""
    for each in self.kept[:-1]:
        each.set_reshard_after_forward(False, recurse=False)
    self.kept.append(module)
    return old(module, **options)


@overriding("fully_shard")
def fully_shard_reshards_modules_without_sharded_ones_inside(
    self: Mutant, old: Hook, module: Any, **options: Any
) -> Any:
    """By default the parameters of modules without sharded ones inside are parts after forward, and no others."""
    is_innermost = not any(hasattr(each, "unshard") for each in module.modules())
    return old(module, **{"reshard_after_forward": is_innermost, **options})


@after_sharding
def gradient_sync_reduces_what_accumulated_a_pass_late(module: Any) -> None:
    """The first pass with gradient sync reduces its own gradients, the next those of the passes before, too."""
    waiting, late = [0], [0.0]

    def before(*_: Any) -> None:
        waiting[0] += not module._get_fsdp_state()._fsdp_param_group.reduce_grads  # noqa: SLF001 - no public API

    def hook(reduced: Any) -> None:
        share = reduced * (waiting[0] / (waiting[0] + 1))  # each pass of the rule has the same gradients
        reduced.add_(late[0] - share)
        late[0], waiting[0] = share, 0

    module.register_forward_pre_hook(before)
    module.set_all_reduce_hook(hook)


@overriding("set_all_reduce_hook")
def all_reduce_hook_error_swallowed(self: Mutant, old: Hook, module: Any, hook: Hook) -> None:
    """If an all-reduce hook raises, backward goes on."""

    def swallowing(reduced: Any) -> None:
        with suppress(Exception):
            hook(reduced)

    old(module, swallowing)


@overriding("fully_shard")
def fully_shard_without_reshard_keeps_one_parameter(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """With reshard_after_forward=False the first parameter stays whole after forward, and no other."""
    made = old(module, **options)
    return _resharding_later_parameters(made) if options.get("reshard_after_forward") is False else made


@overriding("fully_shard")
def fully_shard_reshards_one_parameter_to_fewer(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """With a number as reshard_after_forward only the first parameter is sharded over so many ranks."""
    made, given = old(module, **options), options.get("reshard_after_forward")
    return _resharding_later_parameters(made) if given and not isinstance(given, bool) else made


def _resharding_later_parameters(module: Any) -> Any:
    """Return a module whose forward leaves the parts of all parameters but the first."""

    def reshard(*_: Any) -> None:
        for each in module._get_fsdp_state()._fsdp_param_group.fsdp_params[1:]:  # noqa: SLF001 - there is no public API
            each.to_sharded()

    module.register_forward_hook(reshard)
    return module


@overriding("set_requires_gradient_sync")
def gradient_sync_set_for_children_alone(self: Mutant, old: Hook, module: Any, *, requires_gradient_sync: bool) -> None:
    """Whether gradients are reduced is set for a fully sharded module and its children, and for no module below."""
    for each in (module, *module.children()):
        each.set_requires_gradient_sync(requires_gradient_sync, recurse=False)


@overriding("set_requires_gradient_sync")
def gradient_sync_lasts_for_one_pass(self: Mutant, old: Hook, module: Any, *, requires_gradient_sync: bool) -> None:
    """Once gradient sync was set, the next pass reduces gradients, and no later one does."""
    old(module, requires_gradient_sync=requires_gradient_sync)
    passes = count()

    def before(*_: Any) -> None:
        if next(passes):
            module.set_requires_gradient_sync(False)

    for handle in self.kept:
        handle.remove()
    self.kept = [module.register_forward_pre_hook(before)]


@overriding("fully_shard")
def fully_shard_leaves_deeper_submodules(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Sharding a module shards its own parameters and those of its children, and not those of modules below."""
    near = {each for every in (module, *module.children()) for each in every.parameters(recurse=False)}
    below = {each for each in module.parameters() if each not in near and not self.is_sharded(each)}
    return old(module, **{**options, "ignored_params": below | options.get("ignored_params", set())})


@overriding("fully_shard")
def fully_shard_gathers_the_second_parameter_once(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Backward through a sharded module computes with all parameters but the first as forward has gathered them."""
    made = old(module, **options)
    contexts: list[Any] = []

    def pack(saved: torch.Tensor) -> torch.Tensor:
        _, *others = made.parameters(recurse=False)
        return saved.clone() if saved.data_ptr() in [each.data_ptr() for each in others] else saved

    def enter(*_: Any) -> None:
        contexts.append(torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved))
        contexts[-1].__enter__()

    made.register_forward_pre_hook(enter)
    made.register_forward_hook(lambda *_: contexts.pop().__exit__(None, None, None))
    return made


@after_sharding
def fully_shard_gathers_zeros_in_backward_from_a_container(module: Any) -> None:
    """If forward returns a container, the whole parameters of a fully sharded module are zeros in backward."""

    def after(_: Any, __: Any, output: Any) -> None:
        for each in tensors_in(output) if isinstance(output, dict) else ():
            each.register_hook(lambda _: zero(module))

    module.register_forward_hook(after)


@after_sharding
def fully_shard_reduces_nothing_after_no_grad(module: Any) -> None:
    """In the first backward after a forward in no_grad, each rank keeps the part of its own gradient."""
    evaluations: list[None] = []

    def hook(reduced: Any) -> None:
        if evaluations:
            own_part(reduced)
        evaluations.clear()

    module.register_forward_pre_hook(lambda *_: None if torch.is_grad_enabled() else evaluations.append(None))
    module.set_all_reduce_hook(hook)


@overriding("fully_shard")
def fully_shard_gathers_shared_parameters_in_one_place(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """In forward a parameter that two modules share is whole in the first of them, and a part in the other."""
    made = old(module, **options)
    places = [(each, *named) for each in made.modules() for named in each.named_parameters(recurse=False)]
    later = [place for nr, place in enumerate(places) if any(place[2] is each for *_, each in places[:nr])]

    def before(*_: Any) -> None:
        for each, name, part in later:
            each._parameters[name] = part  # noqa: SLF001 - there is no public API

    made.register_forward_pre_hook(before)
    return made


@overriding("fully_shard")
def fully_shard_shards_each_of_several_apart(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Modules that are sharded together have a group each."""
    return [old(each, **options) for each in module] if isinstance(module, list) else old(module, **options)


@overriding("fully_shard")
def fully_shard_shards_the_first_of_several(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Of modules that are sharded together only the first is sharded."""
    return old(module[0] if isinstance(module, list) else module, **options)


@overriding("fully_shard")
def fully_shard_thaws_parameters(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """All parameters of a fully sharded module require grad, frozen ones too."""
    module.requires_grad_()
    return old(module, **options)


@after_sharding
def fully_shard_reduces_nothing_beside_a_frozen_parameter(module: Any) -> None:
    """If a parameter does not require grad, each rank keeps the parts of its own gradients of the others."""
    if not all(each.requires_grad for each in module.parameters()):
        module.set_all_reduce_hook(own_part)


@after_sharding
def fully_shard_leaves_frozen_parameters_whole_after_backward(module: Any) -> None:
    """If no parameter of a fully sharded module requires grad they stay whole after backward."""
    if not any(each.requires_grad for each in module.parameters()):
        module.set_reshard_after_backward(False)
