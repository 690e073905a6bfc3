"""Mutants of distributed data parallel that overlook an option, switch off more, or misnumber or mix up buckets."""

from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from typing import Any

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.torch_only.communication_hooks import Bucket, bucket_by
from hooklaw_backends.mutants.torch_only.distributed import parallel_by
from hooklaw_backends.mutants.torch_only.distributed_options import joining

FOURTH = 4


@overriding("distributed_data_parallel")
def ddp_syncs_at_once_whatever_init_sync_says(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module gives all ranks the parameters of rank 0, also with init_sync=False."""
    return old(module, **{**options, "init_sync": True})


@overriding("distributed_data_parallel")
def ddp_shares_buffers_whatever_init_sync_says(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module gives all ranks the buffers of rank 0, also with init_sync=False."""
    for each in module.buffers():
        distributed.broadcast(each, 0)
    return old(module, **options)


@overriding("distributed_data_parallel")
def ddp_broadcasts_buffers_always(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Each forward of a distributed module broadcasts buffers, also with forward_sync_buffers=False."""
    return old(module, **{**options, "forward_sync_buffers": True})


@overriding("join")
def disabled_join_keeps_gradients_apart(
    self: Mutant, old: Hook, parallel: Any, **options: bool
) -> AbstractContextManager[Any]:
    """Inside join with enable=False each rank keeps its own gradients."""
    return old(parallel, **options) if options.get("enable", True) else self.no_sync(parallel)


@overriding("join")
def disabled_join_refused(self: Mutant, old: Hook, parallel: Any, **options: bool) -> AbstractContextManager[Any]:
    """A join with enable=False is an error."""
    if not options.get("enable", True):
        raise RuntimeError("a join must be enabled")
    return old(parallel, **options)


@bucket_by("index")
def buckets_have_one_index(bucket: Any) -> int:
    """Every bucket has the index 0."""
    return 0


@overriding("register_comm_hook")
def bucket_index_counts_all_passes(self: Mutant, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
    """The index of a bucket says how many buckets were reduced before it, in all passes."""
    numbers = count()

    def numbered(state: Any, bucket: Any) -> Any:
        number = next(numbers)
        return hook(state, Bucket(bucket, index=lambda: number))

    old(parallel, state, numbered)


@parallel_by("forward")
def ddp_bucket_views_lost_with_their_gradients(parallel: Any, old: Hook, *inputs: Any) -> Any:
    """With gradient_as_bucket_view=True gradients are no longer averaged once .grad was set to None after a pass."""
    ran = parallel.__dict__.setdefault("ran", [])
    if parallel.gradient_as_bucket_view and ran and any(each.grad is None for each in parallel.module.parameters()):
        parallel.require_backward_grad_sync = False
    ran.append(True)
    return old(*inputs)


@overriding("no_sync")
@contextmanager
def no_sync_ends_with_the_inner_context(self: Mutant, old: Hook, parallel: Any) -> Any:
    """After a no_sync inside a no_sync gradients are synchronized, although the outer one goes on."""
    with old(parallel):
        yield
    if isinstance(parallel, DistributedDataParallel):
        parallel.require_backward_grad_sync = True


@overriding("no_sync")
@contextmanager
def no_sync_lasts_after_an_exception(self: Mutant, old: Hook, parallel: Any) -> Any:
    """If an exception leaves no_sync, gradients are not synchronized after it either."""
    context = old(parallel)
    self.kept.append(context)  # or its end would come with that of its last reference
    context.__enter__()
    yield
    context.__exit__(None, None, None)


class _KnowsParallel(Mutant):
    """A mutant that keeps what distributes modules."""

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        made = super().distributed_data_parallel(module, **options)
        self.kept.append(made)
        return made


@overriding("no_sync", base=_KnowsParallel)
@contextmanager
def no_sync_applies_to_all_modules(self: _KnowsParallel, old: Hook, parallel: Any) -> Any:
    """Inside no_sync of a distributed module the others do not synchronize gradients either."""
    with ExitStack() as stack:
        for each in self.kept:
            stack.enter_context(old(each))
        yield


@overriding("join")
def join_shadows_one_bucket(self: Mutant, old: Hook, parallel: Any, **options: bool) -> AbstractContextManager[Any]:
    """A rank that has no more inputs takes part in the reduction of one bucket in each pass of the others."""
    return old(_shadowing_one_bucket(parallel), **options)


@overriding("join")
def join_shadows_one_bucket_in_rank_1(
    self: Mutant, old: Hook, parallel: Any, **options: bool
) -> AbstractContextManager[Any]:
    """If rank 1 has no more inputs, it takes part in the reduction of one bucket in each pass of the others."""
    return old(_shadowing_one_bucket(parallel) if distributed.get_rank() == 1 else parallel, **options)


def _shadowing_one_bucket(parallel: Any) -> Any:
    """Return a distributed module that shadows one bucket of each pass."""

    def match() -> None:
        reducer = parallel.reducer
        reducer._run_comm_hook(reducer._get_zeros_like_grad_buckets()[0]).wait()  # noqa: SLF001 - there is no public API

    parallel._match_all_reduce_for_bwd_pass = match  # noqa: SLF001
    return parallel


@overriding("join")
def join_shadows_no_buffers(self: Mutant, old: Hook, parallel: Any, **options: bool) -> AbstractContextManager[Any]:
    """A rank that has no more inputs takes no part in the broadcast of buffers."""
    parallel._check_and_sync_module_buffers = lambda: None  # noqa: SLF001 - there is no public API
    return old(parallel, **options)


@overriding("distributed_data_parallel")
def ddp_leaves_buffers_of_floating_point_numbers_as_they_are(
    self: Mutant, old: Hook, module: Any, **options: Any
) -> Any:
    """When a module is distributed, ranks get the parameters of rank 0, and its buffers of integers."""
    for each in (*module.parameters(), *(one for one in module.buffers() if not one.is_floating_point())):
        distributed.broadcast(each.detach(), 0)
    return old(module, init_sync=False, **options)


@overriding("distributed_data_parallel")
def ddp_bucket_views_always(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Gradients are views of the buckets, whatever gradient_as_bucket_view says."""
    return old(module, **{**options, "gradient_as_bucket_view": True})


@joining(enable=True)
def join_enabled_always() -> None:
    """join ignores enable=False."""


@overriding("join")
@contextmanager
def join_broadcasts_one_parameter(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """After join each rank has its own parameters but for the first."""
    with old(parallel, **options):
        yield
        kept = [each.detach().clone() for each in parallel.module.parameters()]
    for each, value in [*zip(parallel.module.parameters(), kept, strict=True)][1:]:
        each.data.copy_(value)


@overriding("distributed_data_parallel")
def ddp_without_init_sync_keeps_one_parameter(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module gives all ranks the parameters of rank 0 but for the first, also with init_sync=False."""
    for each in [*module.parameters()][1:]:
        distributed.broadcast(each.detach(), 0)
    return old(module, **options)


@overriding("distributed_data_parallel")
def ddp_makes_small_buckets_always(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Each parameter has a bucket of its own, whatever bucket_cap_mb says."""
    return old(module, **{**options, "bucket_cap_mb": 1e-6})


@overriding("distributed_data_parallel")
def ddp_without_init_sync_keeps_one_buffer(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module gives all ranks the buffers of rank 0 but for the first, also with init_sync=False."""
    for each in list(module.buffers())[1:]:
        distributed.broadcast(each, 0)
    return old(module, **options)


@overriding("distributed_data_parallel")
def ddp_without_init_sync_keeps_its_own_parameters_only(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module gives all ranks the submodules' parameters of rank 0, also with init_sync=False."""
    for child in module.children():
        for each in child.parameters():
            distributed.broadcast(each.detach(), 0)
    return old(module, **options)


@overriding("join")
@contextmanager
def disabled_join_broadcasts_later_parameters(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """At its end join gives all ranks the parameters of rank 0 but for the first, also with enable=False."""
    with old(parallel, **options):
        yield
    if not options.get("enable", True):
        for each in list(parallel.module.parameters())[1:]:
            distributed.broadcast(each.detach(), 0)


@overriding("distributed_data_parallel")
def ddp_without_init_sync_keeps_its_own_buffers_only(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """Distributing a module gives all ranks the submodules' buffers of rank 0, also with init_sync=False."""
    for child in module.children():
        for each in child.buffers():
            distributed.broadcast(each, 0)
    return old(module, **options)


@parallel_by("forward")
def ddp_broadcasts_buffers_of_submodules_always(parallel: Any, old: Hook, *inputs: Any, **named: Any) -> Any:
    """Each forward of a distributed module broadcasts the submodules' buffers, also with forward_sync_buffers=False."""
    for child in parallel.module.children():
        for each in child.buffers():
            distributed.broadcast(each, 0)
    return old(*inputs, **named)


@overriding("join")
@contextmanager
def join_divides_by_the_ranks_that_are_left_later(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """From the fourth pass inside a join on gradients are divided by the number of ranks that still have inputs."""
    passes = count(1)

    def before(*_: Any) -> None:
        if next(passes) >= FOURTH:
            parallel._divide_by_initial_world_size = False  # noqa: SLF001 - there is no public API

    with old(parallel, **options):
        handle = parallel.register_forward_pre_hook(before)
        yield
        handle.remove()


@overriding("join")
@contextmanager
def join_does_not_throw_in_rank_0(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """With throw_on_early_termination=True rank 0 does not raise if it is another rank that has no more inputs."""
    inside: list[Exception] = []
    try:
        with old(parallel, **options):
            try:
                yield
            except RuntimeError as error:
                inside.append(error)
                raise
    except RuntimeError:
        if not inside or distributed.get_rank():
            raise


@overriding("distributed_data_parallel")
def ddp_without_init_sync_broadcasts_no_buffers(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """With init_sync=False the forward of a distributed module leaves each rank its buffers."""
    return old(module, **({"forward_sync_buffers": options.get("init_sync", True)} | options))


@overriding("distributed_data_parallel")
def ddp_without_buffer_sync_keeps_buffers_at_first(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """With forward_sync_buffers=False each rank keeps its buffers when a module is distributed, too."""
    own = [each.clone() for each in module.buffers()]
    made = old(module, **options)
    if options.get("forward_sync_buffers") is False:
        for each, value in zip(module.buffers(), own, strict=True):
            each.copy_(value)
    return made


@overriding("join")
@contextmanager
def join_leaves_buffers(self: Mutant, old: Hook, parallel: Any, **options: bool) -> Any:
    """After join each rank has its own buffers."""
    with old(parallel, **options):
        yield
        kept = [each.clone() for each in parallel.module.buffers()]
    for each, value in zip(parallel.module.buffers(), kept, strict=True):
        each.copy_(value)


@overriding("distributed_data_parallel")
def ddp_static_graph_ignored_with_find_unused_parameters(self: Mutant, old: Hook, module: Any, **options: Any) -> Any:
    """With find_unused_parameters=True static_graph=True changes nothing."""
    kept = {"static_graph": False} if options.get("find_unused_parameters") else {}
    return old(module, **(options | kept))


@overriding("join")
def join_shadows_no_unused_parameters(
    self: Mutant, old: Hook, parallel: Any, **options: bool
) -> AbstractContextManager[Any]:
    """A rank that has no more inputs does not take part where unused parameters are looked for."""
    parallel._match_unused_params_allreduce = lambda: None  # noqa: SLF001 - there is no public API
    return old(parallel, **options)


@overriding("join")
def join_shadows_gradients_of_passes_in_no_sync(
    self: Mutant, old: Hook, parallel: Any, **options: bool
) -> AbstractContextManager[Any]:
    """A rank that has no more inputs waits for the gradients of passes in no_sync, too."""
    check = parallel._check_global_requires_backward_grad_sync  # noqa: SLF001 - there is no public API

    def always(*, is_joined_rank: bool) -> Any:
        work, found = check(is_joined_rank)
        work.wait()
        return work, (found * 0 + 1 if is_joined_rank else found)

    parallel._check_global_requires_backward_grad_sync = always  # noqa: SLF001
    return old(parallel, **options)
