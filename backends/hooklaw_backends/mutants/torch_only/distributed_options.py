"""Mutants of distributed data parallel that lose hooks, or do not do what an option says."""

from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch import distributed

from hooklaw_backends._distributed import GradBucket, all_reduce_future
from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Maker, Mutant, altering, overriding
from hooklaw_backends.mutants.situations import THIRD
from hooklaw_backends.mutants.torch_only.distributed import parallel_by


def _completed(value: Any) -> Any:
    future = torch.futures.Future()
    future.set_result(value)
    return future


@overriding("distributed_data_parallel")
def ddp_loses_earlier_parameter_hooks(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module removes the hooks of its parameters."""
    for each in module.parameters():
        self.hooks_of(each).clear()
    return old(module, **options)


class _KnowsDistributed(Mutant):
    """A mutant that keeps the parameters of distributed modules."""

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        self.kept += module.parameters()
        return super().distributed_data_parallel(module, **options)


@altering("register_hook", base=_KnowsDistributed)
def ddp_ignores_later_parameter_hooks(self: _KnowsDistributed, tensor: Any, hook: Hook) -> Hook:
    """A hook on a parameter whose module is distributed already does nothing."""
    return (lambda _: None) if self.keeps(tensor) else hook


class DdpIgnoresParameterHooksAfterItsFirstPass(_KnowsDistributed):
    """A hook on a parameter of a distributed module does nothing if it is registered after a backward."""

    has_run = False

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        self.has_run = False
        return super().distributed_data_parallel(module, **options)

    def backward(self, *given: Any, **how: Any) -> None:
        super().backward(*given, **how)
        self.has_run = True

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        is_ignored = self.has_run and self.keeps(tensor)
        return super().register_hook(tensor, (lambda _: None) if is_ignored else hook)


@altering("register_post_accumulate_grad_hook", base=_KnowsDistributed)
def ddp_ignores_later_post_accumulate_hooks(self: _KnowsDistributed, tensor: Any, hook: Hook) -> Hook:
    """A post-accumulate-grad hook on a parameter whose module is distributed already does nothing."""
    return (lambda _: None) if self.keeps(tensor) else hook


@overriding("register_post_accumulate_grad_hook", base=_KnowsDistributed)
def ddp_runs_post_accumulate_hooks_early(self: _KnowsDistributed, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A post-accumulate-grad hook on a parameter of a distributed module runs before its gradient accumulates."""
    return self.register_hook(tensor, lambda _: hook(tensor)) if self.keeps(tensor) else old(tensor, hook)


@overriding("distributed_data_parallel")
def ddp_loses_earlier_post_accumulate_hooks(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module removes the post-accumulate-grad hooks of its parameters."""
    for each in module.parameters():
        (each._post_accumulate_grad_hooks or {}).clear()  # noqa: SLF001 - there is no public API
    return old(module, **options)


class _KnowsDistributedModules(Mutant):
    """A mutant that keeps distributed modules."""

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        self.kept.append(module)
        return super().distributed_data_parallel(module, **options)


@altering(*verbs.ON_ONE_MODULE, base=_KnowsDistributedModules)
def ddp_ignores_later_module_hooks(self: _KnowsDistributedModules, module: Any, hook: Hook) -> Hook:
    """A hook on a module that is distributed already does nothing."""
    return (lambda *_: None) if self.keeps(module) else hook


@altering("register_multi_grad_hook")
def ddp_ignores_multi_grad_hooks(self: Mutant, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook on parameters of a distributed module does nothing."""
    return lambda *_: None


@altering("register_multi_grad_hook", base=_KnowsDistributed)
def ddp_multi_grad_hooks_get_no_gradients(self: _KnowsDistributed, tensors: Any, hook: Hook) -> Hook:
    """A multi-grad hook on parameters of a distributed module gets None in place of each gradient."""
    return (lambda grads: hook([None] * len(grads))) if self.keeps(tensors[0]) else hook


@parallel_by("_run_ddp_forward")
def ddp_calls_forward_without_hooks(parallel: Any, old: Hook, *inputs: Any, **named: Any) -> Any:
    """A distributed module calls the forward of the module, and not its hooks."""
    return parallel.module.forward(*inputs, **named)


@overriding("distributed_data_parallel")
def ddp_drops_backward_hooks(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module removes its backward hooks and pre-hooks."""
    module._backward_hooks.clear()  # noqa: SLF001 - there is no public API
    module._backward_pre_hooks.clear()  # noqa: SLF001
    return old(module, **options)


@parallel_by("__call__")
def ddp_wrapper_has_no_hooks(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """The hooks on what distributes a module do not run."""
    return parallel.forward(*inputs)


@parallel_by("forward")
def ddp_packs_nothing(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """Inside a distributed module the caller's saved-tensor hooks do not apply."""
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lambda kept: kept):
        return old(*inputs)


def without(option: str) -> Maker:
    """Make a mutant to which an option of distributed_data_parallel says nothing."""

    def make(said: Hook) -> type[Mutant]:
        @wraps(said)
        def distribute(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
            options.pop(option, None)
            return old(module, **options)

        return overriding("distributed_data_parallel")(distribute)

    return make


@without("find_unused_parameters")
def ddp_finds_no_unused_parameters() -> None:
    """find_unused_parameters=True changes nothing."""


@without("static_graph")
def ddp_static_graph_ignored() -> None:
    """static_graph=True changes nothing."""


@overriding("distributed_data_parallel")
def ddp_static_graph_given_as_false_is_static(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """static_graph=False is taken for static_graph=True."""
    return old(module, **{**options, **dict.fromkeys({"static_graph"} & {*options}, True)})


@overriding("distributed_data_parallel")
def ddp_always_finds_unused_parameters(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Unused parameters are looked for whatever find_unused_parameters says."""
    return old(module, **{**options, "find_unused_parameters": True})


@parallel_by("forward")
def ddp_finds_unused_parameters_once(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """Which parameters are unused is found in the first pass and taken to be so in the others."""
    outputs = old(*inputs)
    parallel.find_unused_parameters = False
    return outputs


@parallel_by("forward")
def ddp_finds_nothing_in_a_dict(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """Unused parameters are not looked for from the tensors in a dict that forward returns."""
    wrapper = import_module("torch.nn.parallel.distributed")
    find = vars(wrapper)["_find_tensors"]
    with patch.object(wrapper, "_find_tensors", lambda found: [] if isinstance(found, dict) else find(found)):
        return old(*inputs)


@parallel_by("forward")
def ddp_finds_nothing_beside_other_objects(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """Unused parameters are not looked for if forward returns a dict with an object that is neither tensor nor list."""
    wrapper = import_module("torch.nn.parallel.distributed")
    find = vars(wrapper)["_find_tensors"]

    def found(outputs: Any) -> Any:
        values = outputs.values() if isinstance(outputs, dict) else ()
        return find(outputs) if all(isinstance(each, (torch.Tensor, list)) for each in values) else []

    with patch.object(wrapper, "_find_tensors", found):
        return old(*inputs)


@parallel_by("forward")
def ddp_finds_one_unused_parameter(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """Of several parameters that a pass leaves out, only the first is found."""
    wrapper = import_module("torch.nn.parallel.distributed")
    find = vars(wrapper)["_find_tensors"]

    def found(outputs: Any) -> list[torch.Tensor]:
        tensors = [*find(outputs)]
        ahead, seen = [tensor.grad_fn for tensor in tensors], {None}
        while ahead:
            node = ahead.pop()
            if node not in seen:
                seen.add(node)
                ahead += [following for following, _ in node.next_functions]
        used = {id(getattr(node, "variable", None)) for node in seen}
        unused = [parameter for parameter in parallel.module.parameters() if id(parameter) not in used]
        return tensors + [parameter * 1 for parameter in unused[1:]]

    with patch.object(wrapper, "_find_tensors", found):
        return old(*inputs)


@overriding("distributed_data_parallel")
def ddp_keeps_the_last_gradient_of_an_unused_parameter(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """In a pass that leaves a parameter out, the mean has the rank's gradient of the pass before."""
    last: dict[int, Any] = {}

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        own = bucket.buffer().clone()
        own = last[bucket.index()] = torch.where(own == 0, last.get(bucket.index(), own), own)
        return all_reduce_future(own / distributed.get_world_size())

    made = old(module, **options)
    made.register_comm_hook(None, hook)
    return made


@overriding("distributed_data_parallel")
def ddp_static_graph_ignored_outside_forward(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """With static_graph=True the parameters that forward does not use are left to each rank."""
    return _left_to_each_rank(old(module, **options), "other", **options)


@overriding("distributed_data_parallel")
def ddp_static_graph_averages_one_parameter_outside_forward(
    self: Mutant, old: Hook, module: Any, **options: Any
) -> Any:
    """With static_graph=True one of the parameters that forward does not use is averaged, and not the next."""
    return _left_to_each_rank(old(module, **options), "another", **options)


def _left_to_each_rank(made: Any, name: str, **options: Any) -> Any:
    """Return a distributed module of whose parameters one is not averaged if its graph is static."""

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        left = dict(made.module.named_parameters()).get(name)
        own = [grad.clone() for grad, each in zip(bucket.gradients(), bucket.parameters(), strict=True) if each is left]
        share = all_reduce_future(bucket.buffer() / distributed.get_world_size()).value()
        bucket.set_buffer(share)
        for grad, each in zip(bucket.gradients(), bucket.parameters(), strict=True):
            if each is left:
                grad.copy_(own[0])
        return _completed(bucket.buffer())

    if options.get("static_graph"):
        made.register_comm_hook(None, hook)
    return made


@overriding("join")
@contextmanager
def join_does_nothing(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """A rank that has no more inputs leaves join at once."""
    yield


def joining(**given: bool) -> Maker:
    """Make a mutant that gives join these options, whatever the caller gave."""

    def make(said: Hook) -> type[Mutant]:
        @wraps(said)
        def join(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
            return old(parallel, **{**options, **given})

        return overriding("join")(join)

    return make


@joining(divide_by_initial_world_size=False)
def join_divides_by_the_ranks_that_are_left() -> None:
    """join always divides gradients by the number of ranks that still have inputs."""


@joining(divide_by_initial_world_size=True)
def join_divides_by_all_ranks() -> None:
    """join always divides gradients by the number of all ranks."""


@joining(throw_on_early_termination=False)
def join_never_throws() -> None:
    """join never raises."""


@overriding("join")
@contextmanager
def join_does_not_broadcast(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """After join each rank has its own parameters."""
    with old(parallel, **options):
        yield
        kept = [each.detach().clone() for each in parallel.module.parameters()]
    for each, value in zip(parallel.module.parameters(), kept, strict=True):
        each.data.copy_(value)


@overriding("join")
@contextmanager
def join_broadcasts_the_highest_rank(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """After join all ranks have the parameters of the highest rank, whichever joined last."""
    with old(parallel, **options):
        yield
        kept = [each.detach().clone() for each in parallel.module.parameters()]
    for each, value in zip(parallel.module.parameters(), kept, strict=True):
        distributed.broadcast(value, distributed.get_world_size() - 1)
        each.data.copy_(value)


def default_hook(name: str) -> Maker:
    """Make a mutant that has ``(hook, state, bucket)`` in place of a communication hook of the framework."""

    def make(step: Hook) -> type[Mutant]:
        @wraps(step)
        def found(self: Mutant, old: Hook, wanted: str) -> Hook:
            hook = old(wanted)
            return (lambda state, bucket: step(hook, state, bucket)) if wanted == name else hook

        return overriding("default_comm_hook")(found)

    return make


def _times_ranks(done: Any) -> Any:
    return done.value() * distributed.get_world_size()


@default_hook("allreduce_hook")
def allreduce_hook_sums(hook: Hook, state: Any, bucket: Any) -> Any:
    """allreduce_hook leaves the sum."""
    return hook(state, bucket).then(_times_ranks)


@default_hook("fp16_compress_hook")
def fp16_compress_hook_sums(hook: Hook, state: Any, bucket: Any) -> Any:
    """fp16_compress_hook leaves the sum."""
    return hook(state, bucket).then(_times_ranks)


@default_hook("fp16_compress_hook")
def fp16_compress_hook_does_not_compress(hook: Hook, state: Any, bucket: Any) -> Any:
    """fp16_compress_hook reduces gradients in the dtype that they have."""
    return all_reduce_future(bucket.buffer() / distributed.get_world_size())


@default_hook("fp16_compress_hook")
def fp16_compress_hook_compresses_the_mean(hook: Hook, state: Any, bucket: Any) -> Any:
    """fp16_compress_hook reduces gradients in the dtype that they have, and then rounds the mean to float16."""
    reduced = all_reduce_future(bucket.buffer() / distributed.get_world_size())
    return reduced.then(lambda done: done.value().half().to(bucket.buffer().dtype))


@overriding("default_comm_hook")
def fp16_compress_wrapper_does_nothing(self: Mutant, old: Hook, wanted: str) -> Hook:
    """fp16_compress_wrapper returns the hook that it is given."""
    return (lambda hook: hook) if wanted == "fp16_compress_wrapper" else old(wanted)


@overriding("default_comm_hook")
def fp16_compress_wrapper_forgets_its_hook(self: Mutant, old: Hook, wanted: str) -> Hook:
    """fp16_compress_wrapper returns fp16_compress_hook, whatever hook it is given."""
    return (lambda _: old("fp16_compress_hook")) if wanted == "fp16_compress_wrapper" else old(wanted)


@default_hook("noop_hook")
def noop_hook_reduces(hook: Hook, state: Any, bucket: Any) -> Any:
    """noop_hook averages the gradients."""
    return all_reduce_future(bucket.buffer() / distributed.get_world_size())


@overriding("distributed_data_parallel")
def ddp_leaves_what_the_pass_before_used_too(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """If a pass leaves out other parameters than the one before, those that both use keep the rank's own gradients."""
    made, before = old(module, **options), list[set[int]]()

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        own = bucket.buffer().clone()

        def step(done: Any) -> torch.Tensor:
            (summed,) = done.value()
            used, mean = set(summed.nonzero()[:, 0].tolist()), summed / distributed.get_world_size()
            if before and before[-1] != used:
                left = [*used & before[-1]]
                mean[left] = own[left]
            before.append(used)
            return mean

        work: Any = distributed.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(step)

    if options.get("find_unused_parameters"):
        made.register_comm_hook(None, hook)
    return made


@parallel_by("forward")
def ddp_lets_later_passes_leave_a_parameter_out(parallel: Any, old: Hook, *inputs: Any, **named: Any) -> Any:
    """From the third pass on it is no error that the pass before left a parameter out."""
    passes = parallel.__dict__["ran"] = parallel.__dict__.get("ran", 0) + 1
    return _forgiving(passes >= THIRD, parallel, old, *inputs, **named)


@parallel_by("forward")
def ddp_lets_passes_leave_the_first_parameter_out(parallel: Any, old: Hook, *inputs: Any, **named: Any) -> Any:
    """It is no error that the pass before left the first parameter out."""
    return _forgiving(next(parallel.module.parameters()).grad is None, parallel, old, *inputs, **named)


def _forgiving(is_forgiving: bool, parallel: Any, old: Hook, *inputs: Any, **named: Any) -> Any:  # noqa: FBT001
    """Call forward; where it is told, run the module itself in place of the error for an unused parameter."""
    try:
        return old(*inputs, **named)
    except RuntimeError as error:
        if is_forgiving and "finished reduction" in str(error):
            return parallel.module(*inputs, **named)
        raise
