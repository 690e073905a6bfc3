"""Mutants of distributed modules: of their parameters, and of the functions of their inputs and outputs."""

from contextlib import suppress
from typing import Any

import torch

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.situations import Knowing
from hooklaw_backends.mutants.torch_only.distributed_tensors import is_distributed


@overriding("distribute_module")
def distribute_module_does_nothing(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module leaves a module as it is."""


@overriding("distribute_module")
def distribute_module_leaves_submodules(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module leaves the parameters of submodules as they are."""
    inside = {name: module._modules.pop(name) for name in [*module._modules]}  # noqa: SLF001 - or it would see them
    old(module, **functions)
    module._modules.update(inside)  # noqa: SLF001


@overriding("distribute_module")
def distribute_module_leaves_deeper_submodules(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module leaves the parameters of modules inside submodules as they are."""
    inside = [(child, {**child._modules}) for child in module.children()]  # noqa: SLF001 - or it would see them
    for child, _ in inside:
        child._modules.clear()  # noqa: SLF001
    old(module, **functions)
    for child, modules in inside:
        child._modules.update(modules)  # noqa: SLF001


@overriding("distribute_module")
def distribute_module_leaves_buffers(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module leaves buffers as they are."""
    buffers = [(each, {**each._buffers}) for each in module.modules()]  # noqa: SLF001 - or it would see them
    for each, own in buffers:
        for name in own:
            del each._buffers[name]  # noqa: SLF001
    old(module, **functions)
    for each, own in buffers:
        each._buffers.update(own)  # noqa: SLF001


@overriding("distribute_module")
def distribute_module_keeps_the_values_of_each_rank(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module says that parameters are replicated, and leaves each rank its own values."""
    own = {name: each.detach().clone() for name, each in module.named_parameters()}
    old(module, **functions)
    with torch.no_grad():
        for name, each in module.named_parameters():
            each.to_local().copy_(own[name])


@overriding("distribute_module")
def distribute_module_freezes_parameters(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """The parameters of a distributed module do not require grad."""
    old(module, **functions)
    module.requires_grad_(requires_grad=False)


@overriding("distribute_module")
def distribute_module_unfreezes_parameters(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """All parameters of a distributed module require grad, frozen ones too."""
    old(module, **functions)
    module.requires_grad_()


@overriding("distribute_module")
def distribute_module_drops_input_fn(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module ignores input_fn."""
    old(module, **{**functions, "input_fn": None})


@overriding("distribute_module")
def distribute_module_drops_output_fn(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module ignores output_fn."""
    old(module, **{**functions, "output_fn": None})


@overriding("distribute_module")
def input_fn_in_forward_itself(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """input_fn is part of a distributed module's forward, and no hook."""
    before, forward = functions.pop("input_fn"), type(module).forward
    type(module).forward = lambda module, *inputs: forward(module, *before(module, inputs))
    old(module, **functions)


@overriding("distribute_module")
def output_fn_in_forward_itself(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """output_fn is part of a distributed module's forward, and no hook."""
    after, forward = functions.pop("output_fn"), type(module).forward
    type(module).forward = lambda module, *inputs: after(module, forward(module, *inputs))
    old(module, **functions)


def _without_result(function: Hook) -> Hook:
    return lambda *given: (function(*given), None)[1]


@overriding("distribute_module")
def input_fn_result_ignored(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """forward gets the inputs of the call, whatever input_fn returns."""
    old(module, **{**functions, "input_fn": _without_result(functions["input_fn"])})


@overriding("distribute_module")
def output_fn_result_ignored(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """A call returns what forward returned, whatever output_fn returns."""
    old(module, **{**functions, "output_fn": _without_result(functions["output_fn"])})


@overriding("distribute_module")
def input_fn_skips_distributed_inputs(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """input_fn does not run if an input is a distributed tensor already."""
    before = functions.pop("input_fn", None)

    def skipping(module: Any, inputs: Any) -> Any:
        return inputs if any(map(is_distributed, inputs)) else before(module, inputs)

    old(module, input_fn=before and skipping, **functions)


@overriding("distribute_module")
def input_fn_result_for_the_first_input_alone(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """Of what input_fn returns forward gets the first alone, and the other inputs as they were."""
    before = functions.pop("input_fn", None)

    def changed(module: Any, inputs: Any) -> Any:
        return (*before(module, inputs)[:1], *inputs[1:])

    old(module, input_fn=before and changed, **functions)


@overriding("distribute_module")
def input_fn_result_reversed(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """forward gets what input_fn returns in reverse order."""
    before = functions.pop("input_fn", None)
    old(module, input_fn=before and (lambda *given: before(*given)[::-1]), **functions)


@overriding("distribute_module")
def output_fn_gives_the_first_for_each(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """If output_fn returns several outputs, the first takes the place of each."""
    after = functions.pop("output_fn", None)

    def first_for_each(*given: Any) -> Any:
        outputs = after(*given)
        return outputs[:1] * len(outputs) if isinstance(outputs, tuple) else outputs

    old(module, output_fn=after and first_for_each, **functions)


@overriding("distribute_module")
def output_fn_skips_plain_outputs(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """output_fn does not run if the output is a plain tensor already."""
    after = functions.pop("output_fn", None)

    def skipping(module: Any, outputs: Any) -> Any:
        return after(module, outputs) if is_distributed(outputs) else outputs

    old(module, output_fn=after and skipping, **functions)


@overriding("distribute_module")
def output_fn_for_the_first_output_alone(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """Of several outputs output_fn changes the first, and the others stay as they were."""
    after = functions.pop("output_fn", None)

    def changed(module: Any, outputs: Any) -> Any:
        if not isinstance(outputs, tuple):
            return after(module, outputs)
        return (*after(module, outputs)[:1], *outputs[1:])

    old(module, output_fn=after and changed, **functions)


@overriding("distribute_module")
def distribute_module_drops_module_hooks(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """Distributing a module removes the hooks that it had."""
    for table in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):  # noqa: SLF001
        table.clear()
    old(module, **functions)


@overriding("distribute_module")
def distribute_module_runs_input_fn_first(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """input_fn runs before all other forward pre-hooks."""
    before = functions.pop("input_fn")
    module.register_forward_pre_hook(before, prepend=True)
    old(module, **functions)


@overriding("distribute_module")
def output_fn_under_no_grad(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """output_fn runs under no_grad."""
    after = functions.pop("output_fn", None)

    def unrecorded(*given: Any) -> Any:
        with self.no_grad():
            return after(*given)

    old(module, output_fn=after and unrecorded, **functions)


def _quiet(function: Hook | None) -> Hook | None:
    def quiet(*given: Any) -> Any:
        with suppress(Exception):
            return function and function(*given)

    return function and quiet


def _without_others(tables: list[Any], distribute: Hook) -> None:
    """Distribute a module that has, meanwhile, only the first entry of each table."""
    kept = [{**table} for table in tables]
    for table in tables:
        for name in [*table][1:]:
            del table[name]
    distribute()
    for table, whole in zip(tables, kept, strict=True):
        table.update({**whole, **table})


@overriding("distribute_module")
def distribute_module_distributes_one_parameter(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module distributes the first parameter of each module, and no other."""
    _without_others([each._parameters for each in module.modules()], lambda: old(module, **functions))  # noqa: SLF001


@overriding("distribute_module")
def distribute_module_distributes_one_buffer(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """distribute_module distributes the first buffer of each module, and no other."""
    _without_others([each._buffers for each in module.modules()], lambda: old(module, **functions))  # noqa: SLF001


@overriding("distribute_module")
def input_fn_error_swallowed(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """A call goes on with the plain inputs if input_fn raises."""
    old(module, **{**functions, "input_fn": _quiet(functions.get("input_fn"))})


@overriding("distribute_module")
def output_fn_error_swallowed(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """A call returns what forward returned if output_fn raises."""
    old(module, **{**functions, "output_fn": _quiet(functions.get("output_fn"))})


@overriding("distribute_module", base=Knowing)
def input_fn_lost_inside_another_module(self: Knowing, old: Hook, module: Any, **functions: Any) -> None:
    """input_fn does not run if the module is called by the forward of another one."""
    before = functions.pop("input_fn", None)
    old(module, input_fn=before and (lambda *given: None if self.modules else before(*given)), **functions)


@overriding("distribute_module", base=Knowing)
def output_fn_lost_inside_another_module(self: Knowing, old: Hook, module: Any, **functions: Any) -> None:
    """output_fn does not run if the module is called by the forward of another one."""
    after = functions.pop("output_fn", None)
    old(module, output_fn=after and (lambda *given: None if self.modules else after(*given)), **functions)


@overriding("distribute_module")
def input_fn_of_submodules_too(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """input_fn is a forward pre-hook of the modules inside a distributed module, too."""
    old(module, **functions)
    if before := functions.get("input_fn"):
        for each in [*module.modules()][1:]:
            each.register_forward_pre_hook(before)


@overriding("distribute_module")
def output_fn_of_submodules_too(self: Mutant, old: Hook, module: Any, **functions: Any) -> None:
    """output_fn is a forward hook of the modules inside a distributed module, too."""
    old(module, **functions)
    if after := functions.get("output_fn"):
        for each in [*module.modules()][1:]:
            each.register_forward_hook(lambda module, _, outputs, after=after: after(module, outputs))
