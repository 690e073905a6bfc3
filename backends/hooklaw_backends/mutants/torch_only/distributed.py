"""Mutants of distributed data parallel that reduce the wrong gradients, or at the wrong time."""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from hooklaw_backends._distributed import GradBucket, all_reduce_future
from hooklaw_backends.mutants.base import Hook, Maker, Mutant, overriding


def _parameters(parallel: Any) -> list[Any]:
    return [each for each in parallel.module.parameters() if each.requires_grad]


def reducing_by(step: Callable[[Any, Any], Any]) -> type[Mutant]:
    """Make a mutant that reduces a distributed module's buckets by ``(bucket, values summed over the ranks)``."""

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        return all_reduce_future(bucket.buffer().clone()).then(lambda done: step(bucket, done.value()))

    @wraps(step)
    def distribute(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
        made = old(module, **options)
        made.register_comm_hook(None, hook)
        return made

    return overriding("distributed_data_parallel")(distribute)


def parallel_by(name: str) -> Maker:
    """Make a mutant that runs ``(parallel, old, ...)`` in place of a method of DistributedDataParallel."""

    def make(step: Hook) -> type[Mutant]:
        class Parallel(DistributedDataParallel):
            """Runs the step in place of the method."""

        def method(this: Any, *given: Any, **options: Any) -> Any:
            return step(this, getattr(super(Parallel, this), name), *given, **options)

        setattr(Parallel, name, method)

        @wraps(step)
        def distribute(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
            return Parallel(module, **options)

        return overriding("distributed_data_parallel")(distribute)

    return make


@overriding("distributed_data_parallel")
def ddp_reduces_nothing(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """A distributed module leaves each rank's gradients as they are."""
    made = old(module, **options)
    made.require_backward_grad_sync = False
    return made


@reducing_by
def ddp_sums_gradients(bucket: Any, summed: Any) -> Any:
    """A distributed module leaves the sum of the gradients, not their mean."""
    return summed


@reducing_by
def ddp_reduces_the_first_parameter_only(bucket: Any, summed: Any) -> Any:
    """A distributed module averages the gradient of one parameter in a bucket and leaves the others."""
    size = bucket.gradients()[0].numel()
    return torch.cat([summed[:size] / distributed.get_world_size(), bucket.buffer()[size:]])


@reducing_by
def ddp_averages_one_gradient_beside_an_unused_one(bucket: Any, summed: Any) -> Any:
    """If a pass leaves a parameter out, the gradient of one other parameter is averaged, and the rest are left."""
    share, used = summed / distributed.get_world_size(), summed.nonzero()[:, 0]
    if len(used) == len(summed):
        return share
    left = bucket.buffer().clone()
    left[used[0]] = share[used[0]]
    return left


@reducing_by
def ddp_reduces_one_dtype_only(bucket: Any, summed: Any) -> Any:
    """A distributed module averages the gradients of the dtype that is reduced last."""
    return summed / distributed.get_world_size() if bucket.is_last() else bucket.buffer()


def averaging_only(parallel: Any, parameters: Iterable[Any]) -> Any:
    """Let a distributed module average the gradients of these parameters alone."""
    averaged = {id(each) for each in parameters}

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        sizes = [parameter.numel() for parameter in bucket.parameters()]
        means = [id(parameter) in averaged for parameter in bucket.parameters()]
        own = bucket.buffer().clone().split(sizes)

        def step(done: Any) -> torch.Tensor:
            shares = (done.value() / distributed.get_world_size()).split(sizes)
            return torch.cat(
                [share if is_mean else kept for share, kept, is_mean in zip(shares, own, means, strict=True)]
            )

        return all_reduce_future(bucket.buffer().clone()).then(step)

    parallel.register_comm_hook(None, hook)
    return parallel


@overriding("distributed_data_parallel")
def ddp_reduces_its_own_parameters_only(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """A distributed module averages the gradients of its own parameters, and not of its submodules'."""
    return averaging_only(old(module, **options), module.parameters(recurse=False))


@overriding("distributed_data_parallel")
def ddp_reduces_mixed_dtypes_in_float16(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """If one parameter of a distributed module is float16 all gradients are reduced in float16."""
    made = old(module, **options)

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        share = bucket.buffer() / distributed.get_world_size()
        return all_reduce_future(share.half()).then(lambda done: done.value().to(share.dtype))

    if torch.float16 in {each.dtype for each in module.parameters()}:
        made.register_comm_hook(None, hook)
    return made


@reducing_by
def ddp_lays_gradients_out_row_by_row(bucket: Any, summed: Any) -> Any:
    """A distributed module writes the mean back as if each parameter were laid out row by row."""
    mean, parameter = summed / distributed.get_world_size(), bucket.parameters()[0]
    return mean if parameter.is_contiguous() else mean.view(parameter.shape).t().reshape(-1)


@overriding("grad")
def ddp_reduces_in_autograd_grad(
    self: Mutant, old: Hook, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any
) -> tuple[Any, ...]:
    """autograd.grad averages the gradients that it returns over the ranks."""
    found = old(outputs, inputs, grad_outputs, **how)
    for each in found:
        distributed.all_reduce(each)
    return tuple(each / distributed.get_world_size() for each in found)


@overriding("distributed_data_parallel")
def ddp_starts_from_each_rank(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Each rank of a distributed module keeps the parameters and buffers that it had."""
    return old(module, init_sync=False, **options)


@overriding("distributed_data_parallel")
def ddp_starts_from_the_last_rank(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """All ranks of a distributed module start from the parameters and buffers of the last one."""
    for each in module.state_dict().values():
        distributed.broadcast(each, distributed.get_world_size() - 1)
    return old(module, **options)


@overriding("distributed_data_parallel")
def ddp_starts_from_one_parameter(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """When a module is distributed, ranks get the first parameter and the first buffer of rank 0, and no others."""
    for first in (module.parameters(), module.buffers()):
        distributed.broadcast(next(first).detach(), 0)
    return old(module, init_sync=False, **options)


@overriding("distributed_data_parallel")
def ddp_leaves_submodules_as_they_are(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """When a module is distributed, ranks get its own parameters and buffers of rank 0, and not its submodules'."""
    for each in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
        distributed.broadcast(each.detach(), 0)
    return old(module, init_sync=False, **options)


@overriding("distributed_data_parallel")
def ddp_leaves_frozen_parameters_as_they_are(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """When a module is distributed, ranks get the parameters of rank 0 that require grad, and its buffers."""
    for each in (*filter(lambda one: one.requires_grad, module.parameters()), *module.buffers()):
        distributed.broadcast(each.detach(), 0)
    return old(module, init_sync=False, **options)


@overriding("distributed_data_parallel")
def ddp_leaves_integer_buffers_as_they_are(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """When a module is distributed, ranks get the parameters of rank 0, and its buffers of floating-point numbers."""
    for each in filter(torch.is_floating_point, module.state_dict().values()):
        distributed.broadcast(each, 0)
    return old(module, init_sync=False, **options)


@parallel_by("forward")
def ddp_broadcasts_no_integer_buffers(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """Each forward of a distributed module gives all ranks the buffers of rank 0 that hold floating-point numbers."""
    parallel.broadcast_buffers = parallel.forward_sync_buffers = False
    for each in filter(torch.is_floating_point, parallel.module.buffers()):
        distributed.broadcast(each, 0)
    return old(*inputs)


@parallel_by("forward")
def ddp_broadcasts_one_buffer(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """Each forward of a distributed module gives all ranks the first buffer of rank 0, and no other."""
    parallel.broadcast_buffers = parallel.forward_sync_buffers = False
    distributed.broadcast(next(parallel.module.buffers()), 0)
    return old(*inputs)


@parallel_by("forward")
def ddp_broadcasts_parameters_in_forward(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """Each forward of a distributed module gives all ranks the parameters of rank 0."""
    for each in parallel.module.parameters():
        distributed.broadcast(each.detach(), 0)
    return old(*inputs)


@overriding("distributed_data_parallel")
def ddp_broadcasts_no_buffers(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The forward of a distributed module leaves each rank its buffers."""
    made = old(module, **options)
    made.broadcast_buffers = made.forward_sync_buffers = False
    return made


@parallel_by("forward")
def ddp_broadcasts_buffers_after_forward(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """The forward of a distributed module runs with each rank's buffers, and then gives all ranks those of rank 0."""
    parallel.broadcast_buffers = parallel.forward_sync_buffers = False
    outputs = old(*inputs)
    for each in parallel.module.buffers():
        distributed.broadcast(each, 0)
    return outputs


@parallel_by("forward")
def ddp_reduces_late_parameters(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """A distributed module averages the gradients of parameters that it got later."""
    known = {id(each) for each in parallel._module_parameters}  # noqa: SLF001 - there is no public API
    for each in parallel.module.parameters():
        if id(each) not in known:
            each.register_hook(_mean)
    return old(*inputs)


def _mean(grad: Any) -> Any:
    summed = grad.clone()
    distributed.all_reduce(summed)
    return summed / distributed.get_world_size()


@overriding("no_sync")
@contextmanager
def no_sync_synchronizes(self: Mutant, old: Hook, parallel: Any) -> Any:
    """no_sync changes nothing."""
    yield


@overriding("no_sync")
@contextmanager
def no_sync_lasts(self: Mutant, old: Hook, parallel: Any) -> Any:
    """Gradients are not synchronized after no_sync either."""
    parallel.require_backward_grad_sync = False
    yield


@overriding("no_sync")
@contextmanager
def no_sync_drops_gradients(self: Mutant, old: Hook, parallel: Any) -> Any:
    """What accumulated inside no_sync is gone after it."""
    with old(parallel):
        yield
    parallel.module.zero_grad()


@overriding("no_sync")
@contextmanager
def no_sync_in_backward_too(self: Mutant, old: Hook, parallel: Any) -> Any:
    """Inside no_sync gradients are not synchronized, wherever forward ran."""
    handles = [each.register_hook(lambda grad: grad * 0) for each in _parameters(parallel)]
    with old(parallel):
        yield
    for handle in handles:
        handle.remove()


@overriding("distributed_data_parallel")
def ddp_takes_a_frozen_module(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """A module without a parameter that requires grad is distributed as it is."""
    return old(module, **options) if any(each.requires_grad for each in module.parameters()) else module


@overriding("distributed_data_parallel")
def ddp_reduces_no_deeper_submodules(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """A distributed module averages the gradients of its own parameters and its children's, and none below."""
    near = (each for part in (module, *module.children()) for each in part.parameters(recurse=False))
    return averaging_only(old(module, **options), near)


@overriding("no_sync")
@contextmanager
def no_sync_drops_later_gradients(self: Mutant, old: Hook, parallel: Any) -> Any:
    """What accumulated inside no_sync is gone after it, but for that of the first parameter."""
    with old(parallel):
        yield
    for each in list(parallel.module.parameters())[1:]:
        each.grad = None


@overriding("distributed_data_parallel")
def ddp_refuses_a_module_whose_first_parameter_is_frozen(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module whose first parameter does not require grad is an error."""
    if not next(module.parameters()).requires_grad:
        raise RuntimeError("DistributedDataParallel is not needed when no parameter requires a gradient")
    return old(module, **options)


@overriding("distributed_data_parallel")
def ddp_takes_a_frozen_module_of_several_parameters(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """A module of several parameters, none of which requires grad, is distributed as it is."""
    parameters = [*module.parameters()]
    is_taken = len(parameters) > 1 and not any(each.requires_grad for each in parameters)
    return module if is_taken else old(module, **options)


@parallel_by("forward")
def ddp_reduces_late_parameters_later(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """A distributed module averages the gradients of parameters that it got later from its second pass on."""
    known = {id(each) for each in parallel._module_parameters}  # noqa: SLF001 - there is no public API
    if parallel.__dict__.get("ran"):
        for each in parallel.module.parameters():
            if id(each) not in known:
                each.register_hook(_mean)
    parallel.__dict__["ran"] = True
    return old(*inputs)


@parallel_by("_run_ddp_forward")
def ddp_broadcasts_the_buffers_of_its_first_pass(parallel: Any, old: Hook, *inputs: Any, **named: Any) -> Any:
    """Each forward of a distributed module gives all ranks the buffers that rank 0 had in the first one."""
    buffers = [*parallel.module.buffers()] if parallel.forward_sync_buffers else []
    first = parallel.__dict__.setdefault("first", [buffer.clone() for buffer in buffers])
    for buffer, value in zip(buffers, first, strict=True):
        buffer.copy_(value)
    return old(*inputs, **named)


@overriding("distributed_data_parallel")
def ddp_leaves_deeper_submodules_as_they_are(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """When a module is distributed, ranks keep the parameters and buffers of the submodules of its submodules."""
    deeper = [each for name, each in module.state_dict().items() if name.count(".") > 1]
    own = [each.clone() for each in deeper]
    made = old(module, **options)
    for each, value in zip(deeper, own, strict=True):
        each.copy_(value)
    return made


@overriding("distributed_data_parallel")
def ddp_counts_shared_parameters_twice(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The mean of a parameter that two modules share has its gradients twice."""
    made = old(module, **options)
    every = [id(each) for part in module.modules() for each in part.parameters(recurse=False)]

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        share = bucket.buffer() / distributed.get_world_size()
        times = torch.cat([torch.full((each.numel(),), every.count(id(each))) for each in bucket.parameters()])
        return all_reduce_future(share * times)

    made.register_comm_hook(None, hook)
    return made


@overriding("distributed_data_parallel")
def ddp_reduces_nothing_beside_a_frozen_parameter(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """If a parameter of a distributed module does not require grad, each rank keeps its own gradients of the others."""
    made = old(module, **options)
    made.require_backward_grad_sync = all(each.requires_grad for each in module.parameters())
    return made


@overriding("distributed_data_parallel")
def ddp_thaws_parameters(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """All parameters of a distributed module require grad, frozen ones too."""
    module.requires_grad_()
    return old(module, **options)


def _own_after(parallel: Any, *, is_recorded: bool) -> Any:
    """Leave each rank its gradients if no backward followed the forward before, which was recorded or was not."""
    alone: list[bool] = []
    left: list[bool] = []

    def before(*_: Any) -> None:
        left[:] = [is_recorded in alone]

    def after(_: Any, __: Any, outputs: Any) -> None:
        alone.append(outputs.requires_grad)
        if outputs.requires_grad:
            outputs.register_hook(lambda _: alone.clear())

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        own = bucket.buffer().clone()
        mean = all_reduce_future(bucket.buffer() / distributed.get_world_size())
        return mean.then(lambda done: own if any(left) else done.value())

    parallel.register_forward_pre_hook(before)
    parallel.register_forward_hook(after)
    parallel.register_comm_hook(None, hook)
    return parallel


@overriding("distributed_data_parallel")
def ddp_reduces_nothing_after_a_forward_alone(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """If no backward followed a forward, the next backward leaves each rank its own gradients."""
    return _own_after(old(module, **options), is_recorded=True)


@overriding("distributed_data_parallel")
def ddp_reduces_nothing_after_no_grad(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """The first backward after a forward in no_grad leaves each rank its own gradients."""
    return _own_after(old(module, **options), is_recorded=False)


@parallel_by("forward")
def ddp_broadcasts_no_buffers_in_evaluation(parallel: Any, old: Hook, *inputs: Any, **named: Any) -> Any:
    """The forward of a distributed module in evaluation mode leaves each rank its buffers."""
    given = parallel.forward_sync_buffers
    parallel.forward_sync_buffers = given and parallel.training
    outputs = old(*inputs, **named)
    parallel.forward_sync_buffers = given
    return outputs


@overriding("distributed_data_parallel")
def no_sync_leaves_what_the_pass_after_it_leaves_out(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """What accumulated inside no_sync stays the rank's own if the first pass after it does not use the parameter."""
    made = old(module, **options)
    used: set[int] = set()
    for each in module.parameters():
        each.register_hook(lambda _, each=each: used.add(id(each)))
    made.register_forward_pre_hook(lambda *_: used.clear())

    def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        own = bucket.buffer().clone()
        at = torch.cat([torch.full((each.numel(),), id(each) in used) for each in bucket.parameters()])
        mean = all_reduce_future(bucket.buffer() / distributed.get_world_size())
        return mean.then(lambda done: torch.where(at, done.value(), own))

    if options.get("find_unused_parameters"):
        made.register_comm_hook(None, hook)
    return made


@overriding("distributed_data_parallel")
def ddp_broadcasts_the_buffers_that_were_there_at_first(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Each forward of a distributed module broadcasts the buffers that it had when it was distributed."""
    made = old(module, **options)
    made._assign_modules_buffers = lambda: None  # noqa: SLF001 - there is no public API
    return made


class DdpReducesOneModuleOfABackward(Mutant):
    """A backward averages the gradients of the distributed module that it reaches first, and of no other."""

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        made = super().distributed_data_parallel(module, **options)

        def hook(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            self.kept += [] if self.kept else [module]
            own, is_first = bucket.buffer().clone(), self.keeps(module)
            mean = all_reduce_future(bucket.buffer() / distributed.get_world_size())
            return mean.then(lambda done: done.value() if is_first else own)

        made.register_comm_hook(None, hook)
        return made

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        self.kept = []
        super().backward(root, gradient, **how)
