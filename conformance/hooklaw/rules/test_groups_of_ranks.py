"""Groups of ranks: gradients that are reduced, and parameters that are sharded, over some of four ranks."""

from collections.abc import Sequence
from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, rule
from hooklaw.rules.ranks import FOUR_RANKS, own_input, rows, run, two_weights, whole
from hooklaw.rules.sharded import (
    GRADIENTS,
    LAST,
    PARTS,
    VALUES,
    WHOLE,
    gradient,
    is_reduced,
    several,
    sharded,
    with_several,
)

DDP = docstring("torch.nn.parallel.DistributedDataParallel")
DESIGN = notes("ddp", "internal-design")
JOIN = docstring("torch.nn.parallel.DistributedDataParallel.join")
HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
FULLY_SHARD = docstring("torch.distributed.fsdp.fully_shard")
MODULE_METHODS = "torch.distributed.fsdp.FSDPModule"
SUBGROUPS = [Capability.PROCESS_SUBGROUPS, Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES]
HYBRID = [Capability.HYBRID_SHARDING, Capability.FULLY_SHARD, Capability.MODULES]
MESH = (2, 2)
PAIR = 2
PAIRS = (([0, 1], [2, 3]), ([0, 2], [1, 3]))
"""The halves of the group, and two groups of ranks that are not adjacent."""


def own_group(backend: Backend, pairs: tuple[list[int], list[int]]) -> tuple[Any, list[int]]:
    """Make process groups of two pairs of ranks; return the one that has this rank, and its ranks."""
    groups = [backend.new_group(ranks) for ranks in pairs]
    own = [backend.get_rank() in ranks for ranks in pairs].index(True)
    return groups[own], pairs[own]


def in_pairs(backend: Backend, module: Any, pairs: tuple[list[int], list[int]]) -> tuple[Any, list[int]]:
    """Distribute a module over the pair of ranks that has this rank; return what is made, and the pair."""
    group, ranks = own_group(backend, pairs)
    return backend.distributed_data_parallel(module, process_group=group), ranks


def step(backend: Backend, module: Any) -> None:
    """Run forward of a fully sharded module on the rank's rows, and backward."""
    backend.backward(backend.sum(backend.call(module, rows(backend))))


def own_rows(backend: Backend, values: list[float]) -> list[float]:
    """Return the rows that this rank has of values sharded over the second dimension of the mesh."""
    size = len(values) // PAIR
    return values[backend.get_rank() % PAIR * size :][:size]


def totals(of_one: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the sum and the mean over the four ranks of a gradient, from that of the first rank."""
    total = FOUR_RANKS * (FOUR_RANKS + 1) / 2
    return [total * each for each in of_one], [total / FOUR_RANKS * each for each in of_one]


@rule(
    "ddp.process-group",
    level=Level.MUST,
    sources=[DDP.sentence(3, 69)],
    needs=SUBGROUPS,
    mutants=["ddp-ignores-its-process-group", "ddp-divides-by-all-ranks", "ddp-over-scattered-ranks-reduces-nothing"],
    processes=FOUR_RANKS,
)
def test_process_group(backend: Backend, trace: Trace) -> None:
    """Gradients of a module that is distributed over a process group are averaged over the ranks of that group only."""
    for pairs in PAIRS * 2:
        module = two_weights(backend, lambda module, x: x * module.weight + x * 2.0 * module.other)
        parallel, ranks = in_pairs(backend, module, pairs)
        for each in ("first", "second", "third"):
            backend.set_grad(module.weight, None)
            backend.set_grad(module.other, None)
            run(backend, parallel)
            mean = sum(rank + 1.0 for rank in ranks) / PAIR
            trace.expect_value(f"weight.grad after the {each} pass", [mean], backend.grad_of(module.weight))
            trace.expect_value(f"other.grad after the {each} pass", [2 * mean], backend.grad_of(module.other))


@rule(
    "ddp.process-group.parameters",
    level=Level.MUST,
    sources=[DESIGN.sentence(4), DDP.sentence(3)],
    needs=SUBGROUPS,
    mutants=[
        "ddp-ignores-its-process-group",
        "ddp-starts-from-each-rank",
        "ddp-over-scattered-ranks-starts-from-each-rank",
    ],
    processes=FOUR_RANKS,
)
def test_process_group_parameters(backend: Backend, trace: Trace) -> None:
    """When a module is distributed over a process group, its parameters become those of the group's first rank.

    The rank 0 of the design is that of the process group.
    """
    for pairs in PAIRS * 2:
        weights = {name: own_input(backend) for name in ("weight", "other")}
        module = backend.module(weights, lambda module, x: x * module.weight * module.other)
        _, ranks = in_pairs(backend, module, pairs)

        for name in weights:
            trace.expect_value(name, [ranks[0] + 1.0], backend.detach(getattr(module, name)))


@rule(
    "ddp.process-group.buffers",
    level=Level.MUST,
    sources=[DESIGN.sentence(4), DDP.sentence(3, 30)],
    needs=[*SUBGROUPS, Capability.MODULE_PARTS, Capability.BUFFER_SYNC, Capability.IN_PLACE],
    mutants=["ddp-ignores-its-process-group", "ddp-over-a-process-group-broadcasts-no-buffers"],
    processes=FOUR_RANKS,
)
def test_process_group_buffers(backend: Backend, trace: Trace) -> None:
    """Over a process group a module's buffers become those of the group's first rank, at first and before each forward.

    The rank 0 of the documentation is that of the process group.
    """

    def forward(module, x):
        trace.log("steps", module.steps)
        trace.log("more", module.more)
        return x * module.weight

    for pairs in PAIRS * 2:
        module = backend.module({"weight": own_input(backend)}, forward)
        for name in ("steps", "more"):
            backend.register_buffer(module, name, own_input(backend))
        parallel, ranks = in_pairs(backend, module, pairs)
        expected = ranks[0] + 1.0
        trace.expect_value("buffers at first", [[expected]] * 2, [module.steps, module.more])
        for _ in range(3):
            for buffer in (module.steps, module.more):
                backend.mul_(buffer, backend.get_rank() + 1.0)
            run(backend, parallel)
            expected *= ranks[0] + 1.0
            trace.expect(("steps", [expected]), ("more", [expected]))


@rule(
    "ddp.default-comm-hook.process-group",
    level=Level.MUST,
    sources=[
        docstring(f"{HOOKS}.fp16_compress_hook").sentence(2),
        docstring(f"{HOOKS}.fp16_compress_wrapper").sentence(3),
    ],
    needs=[*SUBGROUPS, Capability.COMM_HOOKS, Capability.DEFAULT_COMM_HOOKS, Capability.FLOAT16],
    mutants=["default-comm-hooks-reduce-over-all-ranks"],
    processes=FOUR_RANKS,
)
def test_process_group_of_hook(backend: Backend, trace: Trace) -> None:
    """If its state is a process group, allreduce_hook or fp16_compress_hook leaves the mean over that group's ranks.

    The examples of their docstrings register them with a process group; in fp16_compress_wrapper one does as the other.
    """
    wrapper = backend.default_comm_hook("fp16_compress_wrapper")
    hooks = [backend.default_comm_hook(name) for name in ("allreduce_hook", "fp16_compress_hook")]
    for hook in (*hooks, wrapper(hooks[0])):
        for pairs in PAIRS:
            group, ranks = own_group(backend, pairs)
            module = two_weights(backend, lambda module, x: x * module.weight + x * 2.0 * module.other)
            parallel = backend.distributed_data_parallel(module)
            backend.register_comm_hook(parallel, group, hook)
            for passes in (1, 2, 3):
                run(backend, parallel)
                share = passes * sum(rank + 1.0 for rank in ranks) / PAIR
                trace.expect_value("weight.grad", [share], backend.grad_of(module.weight))
                trace.expect_value("other.grad", [2 * share], backend.grad_of(module.other))


@rule(
    "ddp.join.effective-world-size.shrinks",
    level=Level.MUST,
    sources=[JOIN.sentence(12, 15, 24)],
    needs=[Capability.UNEVEN_INPUTS, Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES],
    mutants=["join-divides-by-all-ranks", "join-counts-ranks-once"],
    except_under=dict.fromkeys(("float16", "bfloat16"), "a third is rounded"),
    processes=FOUR_RANKS,
)
def test_effective_world_size_shrinks(backend: Backend, trace: Trace) -> None:
    """With divide_by_initial_world_size=False each pass divides by the number of ranks that have inputs for it."""
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * 2.0 * module.other)
        parallel = backend.distributed_data_parallel(module)
        with backend.join(parallel, divide_by_initial_world_size=False):
            for passed in range(1 + backend.get_rank()):
                backend.set_grad(module.weight, None)
                backend.set_grad(module.other, None)
                run(backend, parallel)
                left = [rank + 1.0 for rank in range(passed, FOUR_RANKS)]
                for factor, parameter in ((1.0, module.weight), (2.0, module.other)):
                    expected = [factor * sum(left) / len(left)]
                    trace.expect_value(f"with {len(left)} ranks left", expected, backend.grad_of(parameter))


@rule(
    "fsdp.hybrid.shards",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(26)],
    needs=HYBRID,
    mutants=["fully-shard-ignores-its-mesh", "fully-shard-turns-its-mesh"],
    processes=FOUR_RANKS,
)
def test_hybrid_shards(backend: Backend, trace: Trace) -> None:
    """On a mesh of two dimensions parameters are sharded over the second dimension and replicated over the first."""
    for _ in range(2):
        module = sharded(backend, mesh=MESH)

        part = backend.detach(backend.local_tensor(module.weight))
        trace.expect_value("the rank's part", own_rows(backend, VALUES), part)


@rule(
    "fsdp.hybrid.gradients",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(5, 26)],
    needs=HYBRID,
    mutants=[
        "fully-shard-ignores-its-mesh",
        "hybrid-sharding-keeps-replicas-apart",
        "hybrid-sharding-keeps-replicas-of-later-parameters-apart",
    ],
    processes=FOUR_RANKS,
)
def test_hybrid_gradients(backend: Backend, trace: Trace) -> None:
    """The gradients of parameters that are sharded and replicated are sharded likewise, and reduced over all ranks.

    Each rank has data of its own, so the ranks of both dimensions are data-parallel workers.
    Whether the sum is divided is not said, so both are accepted.
    """
    expected = [own_rows(backend, each) for each in totals(GRADIENTS["weight"])]
    for _ in range(2):
        module = with_several(backend, mesh=MESH)
        for _ in range(3):
            for each in several(module):
                backend.set_grad(each, None)
            step(backend, module)

            part = backend.tolist(backend.local_tensor(backend.grad_of(module.weight)))
            trace.expect_value("sum or mean", True, part in expected)  # noqa: FBT003 - the expected value
            for each, of_one in zip(several(module), GRADIENTS.values(), strict=True):
                grad = backend.tolist(whole(backend, backend.grad_of(each)))
                trace.expect_value("sum or mean, all parts", True, grad in totals(of_one))  # noqa: FBT003


@rule(
    "fsdp.all-reduce-hook.hybrid",
    level=Level.MUST,
    sources=[docstring(f"{MODULE_METHODS}.set_all_reduce_hook").sentence(1)],
    needs=HYBRID,
    mutants=["all-reduce-hook-ignored", "all-reduce-hook-before-all-reduce"],
    except_under=PARTS,
    processes=FOUR_RANKS,
)
def test_hybrid_all_reduce_hook(backend: Backend, trace: Trace) -> None:
    """The all-reduce hook of a module that is sharded and replicated is called with what the all-reduce has returned.

    Sentence 2 tells the user to set no stream then, and sentence 3 that the hook runs in a stream of the framework's.
    A division after the hook is left open, so the hook may see a multiple of the gradient, the same in all ranks.
    """
    seen: list[Any] = []

    def hook(reduced):
        trace.log("hook")
        seen[:] = backend.tolist(reduced)

    for _ in range(2):
        module = sharded(backend, mesh=MESH)
        backend.set_all_reduce_hook(module, hook)
        for _ in range(3):
            backend.set_grad(module.weight, None)
            step(backend, module)
            trace.expect("hook")
            part = backend.tolist(backend.local_tensor(backend.grad_of(module.weight)))
            multiple = seen[0] / part[0]
            of_all = backend.tensor([multiple])
            backend.all_reduce(of_all)

            trace.expect_value("what the hook saw", [multiple * value for value in part], seen)
            trace.expect_value("the sum of the multiples of all ranks", [FOUR_RANKS * multiple], of_all)


@rule(
    "fsdp.no-all-reduce",
    level=Level.MUST,
    sources=[docstring(f"{MODULE_METHODS}.set_requires_all_reduce").sentence(1, 2)],
    needs=HYBRID,
    mutants=[
        "all-reduce-always",
        "all-reduce-never-again",
        "all-reduce-is-set-once",
        "all-reduce-is-that-of-every-module",
    ],
    processes=FOUR_RANKS,
)
def test_no_all_reduce(backend: Backend, trace: Trace) -> None:
    """Passes without all-reduce reduce nothing over the replicas; the first pass with it reduces what accumulated."""
    module, again, other = (sharded(backend, mesh=MESH) for _ in range(3))
    step(backend, other)
    once = gradient(backend, other)

    def is_whole(module: Any, passes: int) -> bool:
        grad = backend.grad_of(module.weight)
        return grad is not None and backend.tolist(backend.full_tensor(grad)) == [passes * value for value in once]

    steps = [(module, False), (module, False), (module, True), (module, True), (module, False), (module, True)]
    steps += [(again, False), (again, True)]
    for others, (each, requires_all_reduce) in enumerate(steps, 2):
        passes = others - 1 if each is module else others - 7
        backend.set_requires_all_reduce(each, requires_all_reduce=requires_all_reduce)
        step(backend, each)
        is_reduced = is_whole(each, passes)
        trace.expect_value(f"reduced over all ranks after {passes} passes", requires_all_reduce, is_reduced)

        step(backend, other)
        trace.expect_value("another module", expected=True, observed=is_whole(other, others))


@rule(
    "fsdp.no-gradient-sync.hybrid",
    level=Level.MUST,
    sources=[docstring(f"{MODULE_METHODS}.set_requires_gradient_sync").sentence(2, 3)],
    needs=HYBRID,
    mutants=["gradient-sync-set-again-for-shards-alone", "gradient-sync-never-again"],
    processes=FOUR_RANKS,
)
def test_hybrid_no_gradient_sync(backend: Backend, trace: Trace) -> None:
    """Passes without gradient sync reduce nothing of a module that is sharded and replicated, over shards or replicas.

    The first pass with it reduces what has accumulated over all ranks.
    """
    other = sharded(backend, mesh=MESH)
    step(backend, other)
    once = gradient(backend, other)
    for _ in range(2):
        module = sharded(backend, mesh=MESH)
        for requires_sync in ((False, True), (False, False, True)):
            backend.set_grad(module.weight, None)
            for passes, each in enumerate(requires_sync, 1):
                backend.set_requires_gradient_sync(module, requires_gradient_sync=each)
                step(backend, module)
                trace.expect_value("reduced", each, is_reduced(backend, module))
                expected = [passes * value for value in once] if each else None
                trace.expect_value("weight.grad", expected, gradient(backend, module) if each else None)


@rule(
    "fsdp.fully-shard.reshard-after-forward.smaller",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(33, 36, 37)],
    needs=[Capability.FULLY_SHARD, Capability.MODULES],
    mutants=[
        "fully-shard-always-reshards",
        "fully-shard-never-reshards",
        "fully-shard-reshards-one-parameter-to-fewer",
        "fully-shard-gathers-zeros-from-fewer-in-backward",
    ],
    processes=FOUR_RANKS,
)
def test_reshard_to_fewer(backend: Backend, trace: Trace) -> None:
    """With a number as reshard_after_forward the parameters are sharded over so many ranks after forward.

    In backward they are put together again.
    """
    for _ in range(2):
        module = with_several(backend, reshard_after_forward=PAIR)
        for _ in range(3):
            x = backend.tensor([backend.get_rank() + 1.0] * len(VALUES), requires_grad=True)
            outputs = backend.call(module, x)
            are_sharded = [backend.is_sharded(each) for each in several(module)]
            trace.expect_value("sharded after forward", [True] * 3, are_sharded)
            for each in (module.weight, module.last):
                part = backend.tolist(backend.local_tensor(each))
                trace.expect_value("rows of each rank after forward", len(VALUES) // PAIR, len(part))
            for each, values in zip(several(module), WHOLE.values(), strict=True):
                trace.expect_value("all rows", values, whole(backend, each))
            backend.backward(backend.sum(outputs))
            gradient_of_x = [value * last for value, last in zip(VALUES, LAST, strict=True)]
            trace.expect_value("x.grad", gradient_of_x, backend.grad_of(x))
