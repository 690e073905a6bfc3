"""Uneven inputs: ranks of distributed data parallel that run unequal numbers of passes inside join."""

from typing import Any

from hooklaw import Backend, Capability, ErrorKind, Level, Trace, docstring, rule
from hooklaw.rules.ranks import RANKS, mean, number, run, two_weights

JOIN = docstring("torch.nn.parallel.DistributedDataParallel.join")
NEEDS = [Capability.UNEVEN_INPUTS, Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES]

SMALL = 0.001
"""A size of buckets, in MiB, that one parameter of the next length fills, in half precision too."""
LENGTH = 800


def distributed(backend: Backend) -> tuple[Any, Any]:
    """Distribute a module with two parameters, and return both."""
    module = two_weights(backend, lambda module, x: x * module.weight + x * 10 * module.other)
    return module, backend.distributed_data_parallel(module)


def uneven(backend: Backend, module: Any, parallel: Any, seen: list[Any], *, first: int = 0, **options: bool) -> None:
    """Run two passes in one rank, four in the others, and note the gradients of both parameters after each."""
    with backend.join(parallel, **options):
        for _ in range(2 if backend.get_rank() == first else 4):
            backend.set_grad(module.weight, None)
            backend.set_grad(module.other, None)
            run(backend, parallel)
            seen.append([backend.tolist(backend.grad_of(each))[0] for each in (module.weight, module.other)])


def expect_gradients(backend: Backend, trace: Trace, last: float, **options: bool) -> None:
    """Expect means inside join, and another gradient in the last two passes, which only one rank runs.

    They are those of two modules, each of which runs through its inputs twice.
    """
    (share,) = mean(backend)
    expected = [[each, 10 * each] for each in (share, share, last, last)][: 2 + 2 * backend.get_rank()]
    for _ in range(2):
        module, parallel = distributed(backend)
        for _ in range(2):
            seen: list[Any] = []
            uneven(backend, module, parallel, seen, **options)
            trace.expect_value("after each pass", expected, seen)


@rule(
    "ddp.join.no-hang",
    level=Level.MUST,
    sources=[JOIN.sentence(2, 3)],
    needs=[*NEEDS, Capability.GRADIENT_BUCKETS, Capability.MODULE_PARTS],
    mutants=[
        "join-does-nothing",
        "ddp-reduces-nothing",
        "join-shadows-one-bucket",
        "join-shadows-one-bucket-in-rank-1",
        "join-shadows-no-buffers",
        "join-shadows-no-unused-parameters",
        "join-shadows-gradients-of-passes-in-no-sync",
    ],
    processes=RANKS,
)
def test_no_hang(backend: Backend, trace: Trace) -> None:
    """Inside join a rank may run more passes than the others; passes that all ranks run average the gradients.

    Ranks that have no more inputs take part in the communication of those that do, so that no rank waits: that of each
    bucket of gradients, of buffers, and of unused parameters where they are looked for. In no_sync there is none.
    """
    (share,) = mean(backend)
    ranks = range(backend.get_world_size())
    for longest, options in ((rank, {"find_unused_parameters": is_set}) for rank in ranks for is_set in (False, True)):
        weights = {name: backend.tensor([2.0] * LENGTH) for name in ("first", "second")}
        module = backend.module(weights, lambda module, x: x * (module.first + module.second * module.factor))
        backend.register_buffer(module, "factor", backend.tensor([3.0]))
        parallel = backend.distributed_data_parallel(module, bucket_cap_mb=SMALL, **options)
        for more, unsynced in ((1, 0), (2, 0), (1, 1)):
            passes = 2 + more if backend.get_rank() == longest else 2
            seen: list[Any] = []
            with backend.join(parallel):
                for _ in range(passes):
                    for weight in (module.first, module.second):
                        backend.set_grad(weight, None)
                    with backend.no_sync(parallel):
                        for _ in range(unsynced):
                            run(backend, parallel)
                    run(backend, parallel)
                    seen.append([backend.tolist(backend.grad_of(each)) for each in (module.first, module.second)])

            trace.expect_value("gradients seen", passes, len(seen))
            expected = [[factor * (1 + unsynced) * share] * LENGTH for factor in (1, 3)]
            trace.expect_value("gradients after the passes of all ranks", [expected] * 2, seen[:2])


@rule(
    "ddp.join.divide-by-initial-world-size",
    level=Level.MUST,
    sources=[JOIN.sentence(11)],
    needs=NEEDS,
    mutants=["join-divides-by-the-ranks-that-are-left", "join-divides-by-the-ranks-that-are-left-later"],
    processes=RANKS,
)
def test_divide_by_initial(backend: Backend, trace: Trace) -> None:
    """With divide_by_initial_world_size=True gradients are divided by the number of all ranks to the end."""
    uneven(backend, *distributed(backend), [], divide_by_initial_world_size=False)
    expect_gradients(backend, trace, number(backend) / RANKS)
    expect_gradients(backend, trace, number(backend) / RANKS, divide_by_initial_world_size=True)


@rule(
    "ddp.join.divide-by-effective-world-size",
    level=Level.MUST,
    sources=[JOIN.sentence(12)],
    needs=NEEDS,
    mutants=["join-divides-by-all-ranks"],
    processes=RANKS,
)
def test_divide_by_effective(backend: Backend, trace: Trace) -> None:
    """With divide_by_initial_world_size=False gradients are divided by the number of ranks that still have inputs."""
    expect_gradients(backend, trace, number(backend), divide_by_initial_world_size=False)


@rule(
    "ddp.join.throw-on-early-termination",
    level=Level.MUST,
    sources=[JOIN.sentence(4, 10, 23)],
    needs=NEEDS,
    mutants=["join-never-throws", "join-does-not-throw-in-rank-0"],
    processes=RANKS,
)
def test_throw_on_early_termination(backend: Backend, trace: Trace) -> None:
    """With throw_on_early_termination=True all ranks raise when one has no more inputs and another still has some."""
    for first in range(backend.get_world_size()):
        module, parallel = distributed(backend)
        seen: list[Any] = []
        with trace.raises(ErrorKind.OUT_OF_INPUTS):
            uneven(backend, module, parallel, seen, first=first, throw_on_early_termination=True)

        (share,) = mean(backend)
        trace.expect_value("gradients before", [[share, 10 * share]] * 2, seen)
    for options in ({}, {"throw_on_early_termination": False}):
        seen: list[Any] = []
        uneven(backend, *distributed(backend), seen, **options)
        trace.expect_value("passes without it", 2 + 2 * backend.get_rank(), len(seen))


@rule(
    "ddp.join.model-of-the-last-rank",
    level=Level.MUST,
    sources=[JOIN.sentence(5)],
    needs=[*NEEDS, Capability.IN_PLACE, Capability.GRAD_MODE, Capability.MODULE_PARTS, Capability.BUFFER_SYNC],
    mutants=[
        "join-does-not-broadcast",
        "join-broadcasts-the-highest-rank",
        "join-broadcasts-one-parameter",
        "join-leaves-buffers",
    ],
    processes=RANKS,
)
def test_model_of_the_last_rank(backend: Backend, trace: Trace) -> None:
    """When all ranks have joined, each has the parameters and buffers of the rank that joined last."""
    for last in range(backend.get_world_size()):
        module = two_weights(backend, lambda module, x: x * module.weight * module.other)
        for name in ("steps", "more"):
            backend.register_buffer(module, name, backend.tensor([1.0]))
        parallel = backend.distributed_data_parallel(module)
        for epoch in (1, 2):
            with backend.join(parallel):
                for _ in range(2 if backend.get_rank() == last else 1):
                    run(backend, parallel)
                with backend.no_grad():
                    for each in (module.weight, module.other, module.steps, module.more):
                        backend.mul_(each, number(backend))

            said = f"if rank {last} is the last, in epoch {epoch}"
            factor = (last + 1.0) ** epoch
            trace.expect_value(f"weight {said}", [2.0 * factor], backend.detach(module.weight))
            trace.expect_value(f"other {said}", [3.0 * factor], backend.detach(module.other))
            trace.expect_value(f"buffers {said}", [[factor]] * 2, [module.steps, module.more])
