"""Options of distributed data parallel that leave something out, and the numbers of its buckets."""

from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
from hooklaw.rules.ranks import RANKS, averaged, mean, number, own_input, run, two_weights, weighted

NAME = "torch.nn.parallel.DistributedDataParallel"
DDP = docstring(NAME)
JOIN = docstring(f"{NAME}.join")
INDEX = docstring("torch.distributed.GradBucket.index")
NEEDS = [Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES]
SMALL = 0.001
"""A size of buckets, in MiB, that one parameter of the next length fills, in half precision too."""
LENGTH = 800


@rule(
    "ddp.init-sync.off",
    level=Level.MUST,
    sources=[DDP.sentence(65, 103)],
    needs=[*NEEDS, Capability.INIT_SYNC, Capability.MODULE_PARTS, Capability.BUFFER_SYNC],
    mutants=[
        "ddp-without-init-sync-broadcasts-no-buffers",
        "ddp-without-init-sync-keeps-one-buffer",
        "ddp-without-init-sync-keeps-its-own-buffers-only",
        "ddp-without-init-sync-keeps-its-own-parameters-only",
        "ddp-syncs-at-once-whatever-init-sync-says",
        "ddp-shares-buffers-whatever-init-sync-says",
        "ddp-without-init-sync-keeps-one-parameter",
    ],
    processes=RANKS,
)
def test_no_init_sync(backend: Backend, trace: Trace) -> None:
    """With init_sync=False each rank keeps its own parameters and buffers when a module is distributed.

    Only that is left out: the gradients are averaged, and the buffers are broadcast before each forward.
    """
    for _ in range(2):
        weights = {"weight": own_input(backend), "other": own_input(backend)}
        module = backend.module(weights, lambda module, x: x * module.weight + x * 10 * module.other + module.inner(x))
        backend.add_module(
            module, "inner", backend.module({"weight": own_input(backend)}, lambda module, x: x * 100 * module.weight)
        )
        for each, name in ((module, "steps"), (module, "more"), (module.inner, "steps")):
            backend.register_buffer(each, name, backend.tensor([10 * number(backend)]))
        parallel = backend.distributed_data_parallel(module, init_sync=False)
        parameters = ((module.weight, 1), (module.other, 10), (module.inner.weight, 100))
        for parameter, _ in parameters:
            trace.expect_value("parameter", [number(backend)], backend.detach(parameter))
        buffers = [module.steps, module.more, module.inner.steps]
        trace.expect_value("buffers", [[10 * number(backend)]] * 3, buffers)

        for passes in (1, 2, 3):
            run(backend, parallel)
            for parameter, factor in parameters:
                expected = [factor * passes * mean(backend)[0]]
                trace.expect_value(f"gradient after pass {passes}", expected, backend.grad_of(parameter))
            trace.expect_value(f"buffers after pass {passes}", [[10.0]] * 3, buffers)
    for options in ({}, {"init_sync": True}):
        module = backend.module({"weight": own_input(backend)}, lambda module, x: x * module.weight)
        backend.distributed_data_parallel(module, **options)
        trace.expect_value("weight, with init_sync=True", [1.0], backend.detach(module.weight))


@rule(
    "ddp.buffers-broadcast.off",
    level=Level.MUST,
    sources=[DDP.sentence(63, 103)],
    needs=[*NEEDS, Capability.MODULE_PARTS, Capability.BUFFER_SYNC, Capability.IN_PLACE],
    mutants=[
        "ddp-broadcasts-buffers-always",
        "ddp-broadcasts-buffers-of-submodules-always",
    ],
    processes=RANKS,
)
def test_no_broadcast_of_buffers(backend: Backend, trace: Trace) -> None:
    """With forward_sync_buffers=False a forward of a distributed module sees the rank's own buffers.

    The option has replaced broadcast_buffers, which is deprecated and means the same in forward.
    """

    def forward(module, x):
        trace.log("steps in forward", module.steps)
        trace.log("more in forward", module.more)
        trace.log("inner steps in forward", module.inner.steps)
        return x * module.weight + x * 10 * module.other

    def distributed(**options: bool) -> tuple[Any, Any]:
        module, inner = two_weights(backend, forward), backend.module({}, lambda _, x: x)
        backend.add_module(module, "inner", inner)
        for each, name in ((module, "steps"), (module, "more"), (inner, "steps")):
            backend.register_buffer(each, name, backend.tensor([1.0]))
        return module, backend.distributed_data_parallel(module, **options)

    def run_and_expect(module, parallel, value):
        for buffer in (module.steps, module.more, module.inner.steps):
            backend.mul_(buffer, number(backend))
        run(backend, parallel)
        trace.expect(("steps in forward", value), ("more in forward", value), ("inner steps in forward", value))

    for _ in range(2):
        module, parallel = distributed(forward_sync_buffers=False)
        for passes in (1, 2, 3):
            run_and_expect(module, parallel, [number(backend) ** passes])
            share = passes * mean(backend)[0]
            trace.expect_value("weight.grad", [share], backend.grad_of(module.weight))
            trace.expect_value("other.grad", [10 * share], backend.grad_of(module.other))
    run_and_expect(*distributed(), [1.0])


@rule(
    "ddp.buffers-broadcast.off.at-first",
    level=Level.MUST,
    sources=[DDP.sentence(104)],
    needs=[*NEEDS, Capability.MODULE_PARTS, Capability.BUFFER_SYNC],
    mutants=["ddp-without-buffer-sync-keeps-buffers-at-first"],
    processes=RANKS,
)
def test_buffers_at_first(backend: Backend, trace: Trace) -> None:
    """With forward_sync_buffers=False too the buffers of a module become those of rank 0 when it is distributed.

    The option is about forward. The deprecated broadcast_buffers=False leaves out both.
    """
    for _ in range(2):
        module, inner = weighted(backend), weighted(backend)
        backend.add_module(module, "inner", inner)
        for each, name in ((module, "steps"), (module, "more"), (inner, "steps")):
            backend.register_buffer(each, name, own_input(backend))
        backend.distributed_data_parallel(module, forward_sync_buffers=False)

        trace.expect_value("buffers", [[1.0]] * 3, [module.steps, module.more, inner.steps])


@rule(
    "ddp.join.disabled",
    level=Level.MUST,
    sources=[JOIN.sentence(20)],
    needs=[*NEEDS, Capability.UNEVEN_INPUTS],
    mutants=[
        "disabled-join-broadcasts-later-parameters",
        "disabled-join-keeps-gradients-apart",
        "disabled-join-refused",
        "join-enabled-always",
    ],
    processes=RANKS,
)
def test_join_disabled(backend: Backend, trace: Trace) -> None:
    """Inside join with enable=False passes with even inputs average the gradients, as they do outside.

    The documentation lets the user pass enable=False where the inputs are known to be even. What join does at its end
    is disabled too: each rank keeps a parameter of its own.
    """
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * 10 * module.other)
        parallel = backend.distributed_data_parallel(module)
        with backend.join(parallel, enable=False):
            for passes in (1, 2, 3):
                run(backend, parallel)
                share = passes * mean(backend)[0]
                trace.expect_value(f"weight.grad after pass {passes}", [share], backend.grad_of(module.weight))
                trace.expect_value(f"other.grad after pass {passes}", [10 * share], backend.grad_of(module.other))
            for name in ("weight", "other"):
                setattr(module, name, backend.module({"weight": own_input(backend)}, lambda _, x: x).weight)

        for parameter in (module.weight, module.other):
            trace.expect_value("parameter", [number(backend)], backend.detach(parameter))
    for options in ({}, {"enable": True}):
        module = weighted(backend)
        parallel = backend.distributed_data_parallel(module)
        with backend.join(parallel, **options):
            run(backend, parallel)
            module.weight = backend.module({"weight": own_input(backend)}, lambda _, x: x).weight
        total = backend.detach(module.weight) * 1
        backend.all_reduce(total)
        trace.expect_value("all ranks together", [RANKS * backend.tolist(module.weight)[0]], total)


@rule(
    "ddp.comm-hook.bucket.index",
    level=Level.MUST,
    sources=[INDEX.sentence(3)],
    needs=[*NEEDS, Capability.COMM_HOOKS, Capability.GRADIENT_BUCKETS],
    mutants=["buckets-have-one-index", "bucket-index-counts-all-passes"],
    processes=RANKS,
)
def test_index(backend: Backend, trace: Trace) -> None:
    """The buckets of a pass have indices that differ, and that are the same in each pass once buckets were rebuilt.

    An index says which bucket it is. The documentation warns of the indices at the beginning of training only.
    """

    def hook(state, bucket):
        module, found, calls = state
        calls.append(bucket.index())
        names = [name for name in ("first", "second") for each in bucket.parameters() if each is getattr(module, name)]
        found[-1][bucket.index()] = names
        return averaged(backend, bucket.buffer())

    for _ in range(2):
        weights = {name: backend.tensor([2.0] * LENGTH) for name in ("first", "second")}
        module = backend.module(weights, lambda module, x: x * module.first + x * module.second)
        parallel = backend.distributed_data_parallel(module, bucket_cap_mb=SMALL)
        found: list[dict[int, Any]] = []
        calls: list[int] = []
        backend.register_comm_hook(parallel, (module, found, calls), hook)
        for passes in (1, 2, 3, 4):
            found.append({})
            calls.clear()
            run(backend, parallel)
            trace.expect_value(f"different indices in pass {passes}", len(calls), len(found[-1]))

        names = sorted(name for each in found[1].values() for name in each)
        trace.expect_value("parameters in buckets of different indices", sorted(weights), names)
        for later in (2, 3):
            trace.expect_value("the same in a later pass", True, found[1] == found[later])  # noqa: FBT003 - expected
