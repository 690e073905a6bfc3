"""Mutants of tensor parallelism: of what it does to modules, and of the gradients that it sums."""

from typing import Any
from unittest.mock import patch

import torch
from torch.distributed import _functional_collectives as collectives

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


def modules_of(module: Any, plan: Any) -> list[Any]:
    """Return the modules that a plan has a style for."""
    return [module.get_submodule(name) for name in plan] if isinstance(plan, dict) else [module]


class Factor(torch.autograd.Function):
    """A tensor whose gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, factor: float) -> Any:
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.factor, None


@overriding("parallelize_module")
def parallelize_module_does_nothing(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """parallelize_module leaves a module as it is."""


@overriding("parallelize_module")
def parallel_outputs_sum_gradients(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """The gradient of a replicated output is summed over the ranks, each of which has all of it."""
    old(module, plan)
    modules_of(module, plan)[-1].register_forward_hook(
        lambda _module, _inputs, outputs: Factor.apply(outputs, self.get_world_size())
    )


@overriding("parallelize_module")
def parallel_inputs_keep_partial_gradients(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """The gradient of a replicated input is averaged over the ranks, each of which has a part of it."""
    modules_of(module, plan)[0].register_forward_pre_hook(
        lambda _module, inputs: Factor.apply(inputs[0], 1 / self.get_world_size())
    )
    old(module, plan)


@overriding("parallelize_module")
def parallel_inputs_detach(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """Backward does not go back through the inputs of a parallelized module."""
    module.register_forward_pre_hook(lambda _module, inputs: Factor.apply(inputs[0], 0))
    old(module, plan)


@overriding("parallelize_module")
def parallelize_module_drops_module_hooks(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """Parallelizing a module removes the hooks that it had."""
    for each in modules_of(module, plan):
        for table in (each._forward_hooks, each._forward_pre_hooks, each._backward_hooks):  # noqa: SLF001
            table.clear()
    old(module, plan)


@overriding("parallelize_module")
def parallelize_module_runs_its_hooks_first(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """The functions of a style run before the forward hooks that a module had."""
    old(module, plan)
    for each in modules_of(module, plan):
        _run_first(each)


@overriding("parallelize_module")
def parallelize_module_runs_its_hooks_of_rows_first(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """The functions of RowwiseParallel run before the forward hooks that a module had."""
    old(module, plan)
    for each, style in zip(modules_of(module, plan), plan.values() if isinstance(plan, dict) else [plan], strict=True):
        if type(style).__name__ == "RowwiseParallel":
            _run_first(each)


def _run_first(module: Any) -> None:
    """Make the newest forward hooks of a module its first."""
    for table in (module._forward_hooks, module._forward_pre_hooks):  # noqa: SLF001
        table.move_to_end(next(reversed(table)), last=False)


@overriding("parallel_style")
def prepared_inputs_keep_their_layout(self: Mutant, old: Hook, name: str, **options: Any) -> Any:
    """PrepareModuleInput leaves inputs in the layout that they came in."""
    kept = {"desired_input_layouts": options["input_layouts"]} if name == "PrepareModuleInput" else {}
    return old(name, **(options | kept))


@overriding("parallel_style")
def prepared_inputs_are_never_local(self: Mutant, old: Hook, name: str, **options: Any) -> Any:
    """PrepareModuleInput ignores use_local_output=True."""
    kept = {"use_local_output": False} if name == "PrepareModuleInput" else {}
    return old(name, **(options | kept))


@overriding("parallel_style")
def prepared_outputs_keep_their_layout(self: Mutant, old: Hook, name: str, **options: Any) -> Any:
    """PrepareModuleOutput leaves outputs in the layout that they have."""
    kept = {"desired_output_layouts": options["output_layouts"]} if name == "PrepareModuleOutput" else {}
    return old(name, **(options | kept))


@overriding("cross_entropy")
def loss_parallel_sums_gradients(self: Mutant, old: Hook, logits: Any, target: Any) -> Any:
    """The gradient of a loss that every rank has is summed over the ranks."""
    return old(logits, target) * self.get_world_size()


@overriding("cross_entropy")
def loss_parallel_sums_over_rows(self: Mutant, old: Hook, logits: Any, target: Any) -> Any:
    """The gradient of a loss is that of the sum over the rows, not of their mean."""
    return old(logits, target) * len(target)


@overriding("cross_entropy")
def loss_parallel_takes_the_maximum_of_each_rank(self: Mutant, old: Hook, logits: Any, target: Any) -> Any:
    """Before the exponentials of a loss are added up, each rank subtracts its own maximum of the logits."""
    reduce = collectives.all_reduce

    def without_maximum(value: Any, reduceOp: str, group: Any) -> Any:  # noqa: N803 - torch's argument
        return value if reduceOp == "MAX" else reduce(value, reduceOp, group)

    with patch.object(collectives, "all_reduce", without_maximum):
        return old(logits, target)


@overriding("parallel_style")
def prepared_outputs_are_always_local(self: Mutant, old: Hook, name: str, **options: Any) -> Any:
    """PrepareModuleOutput ignores use_local_output=False."""
    kept = {"use_local_output": True} if name == "PrepareModuleOutput" else {}
    return old(name, **(options | kept))


@overriding("parallel_style")
def prepared_inputs_are_always_replicated(self: Mutant, old: Hook, name: str, **options: Any) -> Any:
    """PrepareModuleInput replicates inputs, whatever their desired layout is."""
    kept = {"desired_input_layouts": "replicate"} if name == "PrepareModuleInput" else {}
    return old(name, **(options | kept))


@overriding("parallel_style")
def prepared_outputs_are_always_replicated(self: Mutant, old: Hook, name: str, **options: Any) -> Any:
    """PrepareModuleOutput replicates outputs, whatever their desired layout is."""
    kept = {"desired_output_layouts": "replicate"} if name == "PrepareModuleOutput" else {}
    return old(name, **(options | kept))


@overriding("parallelize_module")
def parallel_rows_add_the_bias_in_each_rank(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """The output of a layer that is split by rows has its bias once for each rank."""
    old(module, plan)
    for each, style in zip(modules_of(module, plan), plan.values() if isinstance(plan, dict) else [plan], strict=True):
        if type(style).__name__ == "RowwiseParallel" and each.bias is not None:
            each.register_forward_hook(
                lambda layer, _, output: output + layer.bias.to_local() * (self.get_world_size() - 1)
            )


def _for_the_first_alone(layouts: Any) -> Any:
    """Return layouts of several tensors without those of all but the first."""
    return layouts if isinstance(layouts, str) else (layouts[0], *[""] * (len(layouts) - 1))


@overriding("parallel_style")
def prepared_inputs_are_the_first_alone(self: Mutant, old: Hook, name: str, **options: Any) -> Any:
    """PrepareModuleInput leaves all inputs but the first as they are."""
    given = options if name == "PrepareModuleInput" else {}
    layouts = {key: _for_the_first_alone(value) for key, value in given.items() if key.endswith("layouts")}
    return old(name, **(options | layouts))


@overriding("parallel_style")
def prepared_outputs_are_the_first_alone(self: Mutant, old: Hook, name: str, **options: Any) -> Any:
    """PrepareModuleOutput leaves all outputs but the first as they are."""
    given = options if name == "PrepareModuleOutput" else {}
    layouts = {key: _for_the_first_alone(value) for key, value in given.items() if key.endswith("layouts")}
    return old(name, **(options | layouts))


@overriding("parallelize_module")
def parallelize_module_leaves_deeper_modules(self: Mutant, old: Hook, module: Any, plan: Any) -> None:
    """parallelize_module leaves modules inside submodules as they are."""
    old(module, {name: plan[name] for name in plan if "." not in name} if isinstance(plan, dict) else plan)
