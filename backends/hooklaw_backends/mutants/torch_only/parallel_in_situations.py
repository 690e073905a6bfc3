"""Mutants of distributed tensors, parallel modules and groups that are wrong in one rank, pass, object or hook alone.

No rule need name them: a row has the beginnings of the ids of the rules that must catch its mutants.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed

from hooklaw_backends._distributed import GradBucket
from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, Pair, overriding, pairs
from hooklaw_backends.mutants.torch_only.distributed_tensors import is_distributed
from hooklaw_backends.mutants.torch_only.ranks_in_situations import (
    Make,
    Placed,
    Row,
    There,
    Wrong,
    cells,
    doubled,
    function_of,
    given_zeros,
    hooked,
    lost,
    quiet,
    result,
    resultless,
    twice,
    uncalled,
    with_doubled_gradient,
    without,
)
from hooklaw_backends.mutants.torch_only.tensor_parallel import Factor, modules_of

IsThere = Callable[[], bool]
"""Counts a call, and returns whether it is to be wrong."""


def _on_tensors(wrong: Wrong) -> Make:
    return hooked(wrong, "register_hook", when=is_distributed)


def _on_accumulation(wrong: Wrong) -> Make:
    return hooked(wrong, "register_post_accumulate_grad_hook", when=is_distributed)


def _runs_early(there: There) -> type[Mutant]:
    """Make a mutant in which a post-accumulate-grad hook runs before its gradient accumulates."""

    def register(self: Any, old: Hook, tensor: Any, hook: Hook) -> Any:
        if not is_distributed(tensor):
            return old(tensor, hook)
        its = self.its("hooks", tensor)

        def before(_: Any) -> None:
            its.calls += 1
            if there(self, its):
                hook(tensor)

        self.register_hook(tensor, before)
        return old(tensor, lambda tensor: None if there(self, its) else hook(tensor))

    return overriding("register_post_accumulate_grad_hook", base=Placed)(register)


def _pairs(wrong: Callable[[IsThere, Hook, Hook], Pair]) -> Make:
    """Return what makes a mutant that uses ``(is_there, pack, unpack)`` in place of a pair of saved-tensor hooks."""

    def make(there: There) -> type[Mutant]:
        def pair(self: Any, pack: Hook, unpack: Hook) -> Pair:
            its = self.call_of("saved_tensors_hooks", None)
            return wrong(lambda: there(self, its), pack, unpack)

        return pairs("saved_tensors_hooks", base=Placed)(pair)

    return make


def _without_pack(is_there: IsThere, pack: Hook, unpack: Hook) -> Pair:
    if is_there():
        return lambda tensor: tensor, lambda packed: packed
    return pack, unpack


def _without_unpack(is_there: IsThere, pack: Hook, unpack: Hook) -> Pair:
    return pack, (lambda packed: packed) if is_there() else unpack


def _placing(verb: str, wrong: Callable[[Hook, Any, str], Any]) -> Make:
    """Return what makes a mutant that computes ``(old, tensor, placement)`` in place of a verb."""

    def make(there: There) -> type[Mutant]:
        def place(self: Any, old: Hook, tensor: Any, placement: str) -> Any:
            is_wrong = there(self, self.call_of(verb, None))
            return wrong(old, tensor, placement) if is_wrong else old(tensor, placement)

        return overriding(verb, base=Placed)(place)

    return make


def _after(verb: str, step: Callable[..., None]) -> Make:
    """Return what makes a mutant that runs ``(is_there, module, ...)`` after a verb."""

    def make(there: There) -> type[Mutant]:
        def run(self: Any, old: Hook, module: Any, *given: Any, **options: Any) -> None:
            old(module, *given, **options)
            its = self.its("modules", module)

            def is_there() -> bool:
                its.calls += 1
                return there(self, its)

            step(is_there, module, *given)

        return overriding(verb, base=Placed)(run)

    return make


def _freeze(is_there: IsThere, module: Any) -> None:
    if is_there():
        module.requires_grad_(requires_grad=False)


def _double_outputs(is_there: IsThere, module: Any, plan: Any) -> None:
    modules_of(module, plan)[-1].register_forward_hook(lambda _, __, outputs: outputs * 2 if is_there() else None)


def _double_input_gradients(is_there: IsThere, module: Any, plan: Any) -> None:
    def before(_: Any, inputs: Any) -> Any:
        return (Factor.apply(inputs[0], 2), *inputs[1:]) if is_there() else None

    modules_of(module, plan)[0].register_forward_pre_hook(before, prepend=True)


def _double_gradients(*, first: bool) -> Callable[..., None]:
    """Return what doubles the gradients of the first parameter, or of all others."""

    def step(is_there: IsThere, module: Any, _: Any) -> None:
        first_one, *others = module.parameters()
        for each in [first_one] if first else others:
            each.register_hook(lambda grad: grad * 2 if is_there() else None)

    return step


def _doubles_means_of_groups(there: There) -> type[Mutant]:
    """Make a mutant in which gradients are twice the mean over a process group."""

    def distribute(self: Any, old: Hook, module: Any, **options: Any) -> Any:
        made = old(module, **options)
        its, group = self.its("modules", made), made.process_group

        def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            its.calls += 1
            share = bucket.buffer() * ((2 if there(self, its) else 1) / group.size())
            work: Any = distributed.all_reduce(share, group=group, async_op=True)
            return work.get_future().then(lambda done: done.value()[0])

        made.register_comm_hook(None, hook)
        return made

    return overriding("distributed_data_parallel", base=Placed)(distribute)


def _keeps_later_parameters(there: There) -> type[Mutant]:
    """Make a mutant in which a process group shares the first parameter of a module, and no other."""

    def distribute(self: Any, old: Hook, module: Any, **options: Any) -> Any:
        own = [each.detach().clone() for each in module.parameters()]
        made = old(module, **options)
        if there(self, self.its("modules", made)):
            for each, value in [*zip(module.parameters(), own, strict=True)][1:]:
                each.data.copy_(value)
        return made

    return overriding("distributed_data_parallel", base=Placed)(distribute)


HOOKS = ("dtensor.tensor-hook", "dtensor.one-rank", "tensor-parallel.tensor-hook", "tensor-parallel.sequence")
ACCUMULATED = ("dtensor.post-accumulate", "tensor-parallel.post-accumulate", "dtensor.one-rank")
FROM_LOCAL = ("dtensor.from-local.gradients", "dtensor.from-local.partial")
INPUT_FN = ("dtensor.module.input-fn", "dtensor.module.exception", "dtensor.module.other-hooks")
OUTPUT_FN = ("dtensor.module.output-fn", "dtensor.module.exception", "dtensor.module.other-hooks")
LAYERS = ("tensor-parallel.gradients", "tensor-parallel.prepare")
LAYER_HOOKS = ("tensor-parallel.module-hooks", "tensor-parallel.full-backward-hook")
GROUP = ("ddp.process-group",)
ROWS: Mapping[str, Row] = {
    "distributed-tensor-hook-lost": Row(
        "a tensor hook on a distributed tensor is not called", _on_tensors(uncalled), HOOKS, ("third-call", "second")
    ),
    "distributed-tensor-hook-twice": Row(
        "a tensor hook on a distributed tensor is called twice", _on_tensors(twice), HOOKS, ("third-call",)
    ),
    "distributed-tensor-hook-result-ignored": Row(
        "what a tensor hook on a distributed tensor returns is lost",
        _on_tensors(resultless),
        ("dtensor.tensor-hook.replace",),
        ("third-call", "rank-1"),
    ),
    "distributed-tensor-hook-given-zeros": Row(
        "a tensor hook on a distributed tensor gets zeros",
        _on_tensors(given_zeros),
        HOOKS,
        ("third-call", "another", "rank-1"),
    ),
    "distributed-post-accumulate-hook-lost": Row(
        "a post-accumulate-grad hook on a distributed tensor is not called",
        _on_accumulation(uncalled),
        ACCUMULATED,
        ("third-call", "second"),
    ),
    "distributed-post-accumulate-hook-early": Row(
        "a post-accumulate-grad hook on a distributed tensor runs before its gradient accumulates",
        _runs_early,
        ACCUMULATED,
        ("third-call", "another"),
    ),
    "distributed-pack-hook-lost": Row(
        "distributed tensors are saved without pack hooks",
        _pairs(_without_pack),
        ("dtensor.saved-tensors",),
        ("third-call",),
    ),
    "distributed-unpack-hook-lost": Row(
        "what a pack hook returned is used without the unpack hook",
        _pairs(_without_unpack),
        ("dtensor.saved-tensors",),
        ("third-call",),
    ),
    "from-local-gradient-doubled": Row(
        "the gradient of what from_local makes is doubled",
        result("from_local", with_doubled_gradient),
        FROM_LOCAL,
        ("third-call", "rank-1"),
    ),
    "from-local-detached": Row(
        "what from_local makes does not require grad",
        result("from_local", lambda tensor: tensor.detach()),
        ("dtensor.from-local.requires-grad", *FROM_LOCAL),
        ("third-call",),
    ),
    "to-local-grad-placement-ignored": Row(
        "to_local ignores grad_placements",
        without("local_tensor", "grad_placement"),
        ("dtensor.to-local.grad-placement",),
        ("later", "another"),
    ),
    "full-tensor-grad-placement-ignored": Row(
        "full_tensor ignores grad_placements",
        without("full_tensor", "grad_placement"),
        ("dtensor.full-tensor.grad-placement",),
        ("later", "another"),
    ),
    "full-tensor-gradient-doubled": Row(
        "the gradient of what full_tensor returns is doubled",
        result("full_tensor", with_doubled_gradient),
        ("dtensor.full-tensor",),
        ("third-call", "rank-1"),
    ),
    "redistribute-lost": Row(
        "redistribute returns the tensor as it is",
        _placing("redistribute", lambda _old, tensor, _placement: tensor),
        ("dtensor.redistribute",),
        ("everywhere",),
    ),
    "distribute-tensor-replicates": Row(
        "distribute_tensor replicates, whatever the placement is",
        _placing("distribute_tensor", lambda old, tensor, _: old(tensor, "replicate")),
        ("dtensor.to-local.default", "dtensor.tensor-hook.placement"),
        ("later",),
    ),
    "distribute-module-lost": Row(
        "distribute_module does nothing", lost("distribute_module"), ("dtensor.module.parameters",), ("another",)
    ),
    "distribute-module-freezes": Row(
        "the parameters of a distributed module do not require grad",
        _after("distribute_module", _freeze),
        ("dtensor.module.parameters",),
        ("another",),
    ),
    "input-fn-lost": Row(
        "input_fn is not called",
        function_of("input_fn", lambda _, *given: given[-1]),
        INPUT_FN,
        ("third-call", "another", "after-an-error"),
    ),
    "input-fn-twice": Row("input_fn is called twice", function_of("input_fn", twice), INPUT_FN, ("another",)),
    "input-fn-result-lost": Row(
        "what input_fn returns is lost",
        function_of("input_fn", lambda function, *given: (function(*given), given[-1])[1]),
        INPUT_FN,
        ("another",),
    ),
    "input-fn-error-lost": Row(
        "an error of input_fn is swallowed", function_of("input_fn", quiet), INPUT_FN, ("later", "another")
    ),
    "output-fn-lost": Row(
        "output_fn is not called",
        function_of("output_fn", lambda _, *given: given[-1]),
        OUTPUT_FN,
        ("third-call", "another", "rank-1", "after-an-error"),
    ),
    "output-fn-twice": Row("output_fn is called twice", function_of("output_fn", twice), OUTPUT_FN, ("another",)),
    "output-fn-result-lost": Row(
        "what output_fn returns is lost",
        function_of("output_fn", lambda function, *given: (function(*given), given[-1])[1]),
        OUTPUT_FN,
        ("after-an-error",),
    ),
    "output-fn-error-lost": Row(
        "an error of output_fn is swallowed", function_of("output_fn", quiet), OUTPUT_FN, ("later", "another")
    ),
    "hook-of-a-distributed-module-lost": Row(
        "a hook on a module is not called",
        hooked(uncalled, *verbs.ON_ONE_MODULE),
        ("dtensor.module.other-hooks", "dtensor.module.gradients"),
        ("third-call", "another"),
    ),
    "parallelize-module-lost": Row(
        "parallelize_module does nothing", lost("parallelize_module"), ("tensor-parallel",), ("another",)
    ),
    "parallel-outputs-doubled": Row(
        "the outputs of a parallel module are doubled",
        _after("parallelize_module", _double_outputs),
        LAYERS,
        ("third-call", "another", "rank-1"),
    ),
    "parallel-input-gradients-doubled": Row(
        "the gradients of the inputs of a parallel module are doubled",
        _after("parallelize_module", _double_input_gradients),
        LAYERS,
        ("third-call", "another"),
    ),
    "parallel-weight-gradients-doubled": Row(
        "the gradients of the parameters of a parallel module but the first are doubled",
        _after("parallelize_module", _double_gradients(first=False)),
        LAYERS,
        ("another",),
    ),
    "parallel-first-gradient-doubled": Row(
        "the gradient of the first parameter of a parallel module is doubled",
        _after("parallelize_module", _double_gradients(first=True)),
        ("tensor-parallel.sequence",),
        ("everywhere",),
    ),
    "hook-of-a-parallel-layer-lost": Row(
        "a hook on a layer is not called",
        hooked(uncalled, *verbs.ON_ONE_MODULE),
        LAYER_HOOKS,
        ("third-call", "second"),
    ),
    "parallel-loss-doubled": Row(
        "the cross-entropy is doubled",
        result("cross_entropy", doubled),
        ("tensor-parallel.loss",),
        ("third-call", "rank-1"),
    ),
    "use-local-output-ignored": Row(
        "a style ignores use_local_output", without("parallel_style", "use_local_output"), LAYERS, ("later",)
    ),
    "sequence-dim-ignored": Row(
        "a style ignores sequence_dim",
        without("parallel_style", "sequence_dim"),
        ("tensor-parallel.sequence",),
        ("later",),
    ),
    "process-group-ignored": Row(
        "a process group is ignored", without("distributed_data_parallel", "process_group"), GROUP, ("another",)
    ),
    "divide-by-initial-world-size-ignored": Row(
        "join ignores divide_by_initial_world_size",
        without("join", "divide_by_initial_world_size"),
        ("ddp.join.effective-world-size.shrinks",),
        ("another",),
    ),
    "means-of-a-process-group-doubled": Row(
        "gradients are twice the mean over a process group",
        _doubles_means_of_groups,
        GROUP,
        ("third-call", "another", "rank-1"),
    ),
    "later-parameters-kept-in-a-process-group": Row(
        "a process group shares the first parameter of a module, and no other",
        _keeps_later_parameters,
        GROUP,
        ("everywhere", "another"),
    ),
}
"""The faults of which there is a mutant for each of some situations.

Left out is loss_parallel that does nothing: the loss and its gradients are the same, and have the same placement. A
hook that calls a collective is never left out in one rank alone.
"""

vars().update(cells(ROWS, __name__))
