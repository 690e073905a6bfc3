"""The framework's own communication hooks: all-reduce, compression to half precision, and none."""

from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
from hooklaw.rules.ranks import FLAT, PAIRS, RANKS, mean, number, run, two_weights, weighted

HOOKS = "torch.distributed.algorithms.ddp_comm_hooks"
ALL_REDUCE = docstring(f"{HOOKS}.default_hooks.allreduce_hook")
COMPRESS = docstring(f"{HOOKS}.default_hooks.fp16_compress_hook")
WRAPPER = docstring(f"{HOOKS}.default_hooks.fp16_compress_wrapper")
NO_OP = docstring(f"{HOOKS}.debugging_hooks.noop_hook")
COMM_HOOK = docstring("torch.nn.parallel.DistributedDataParallel.register_comm_hook")
NEEDS = [
    Capability.DEFAULT_COMM_HOOKS,
    Capability.COMM_HOOKS,
    Capability.DISTRIBUTED_DATA_PARALLEL,
    Capability.MODULES,
]
TENTH = 0.1
"""A number that float16 rounds to another one than float32."""
ROUNDED = 0.0999755859375
"""A tenth in float16."""
TINY = 2.0**-12
"""What float16 loses of one and this."""


class WrappedHookError(Exception):
    """Raised by a hook in fp16_compress_wrapper."""


def gradients_by(
    backend: Backend, hook: Any, *, factor: float = 1.0, x: Any = None, passes: int = 1
) -> tuple[list[list[float]], list[str]]:
    """Return the gradients, and their dtypes, that a communication hook leaves.

    They are those of the last of the passes: of factor times x or the rank's number, and of twice as much.
    """
    module = two_weights(backend, lambda module, x: x * module.weight * factor + x * module.other * (2 * factor))
    parallel = backend.distributed_data_parallel(module)
    backend.register_comm_hook(parallel, None, hook)
    for _ in range(passes):
        for parameter in (module.weight, module.other):
            backend.set_grad(parameter, None)
        run(backend, parallel, x)
    grads = [backend.grad_of(parameter) for parameter in (module.weight, module.other)]
    return [backend.tolist(grad) for grad in grads], [backend.dtype(grad) for grad in grads]


def and_twice(value: float) -> list[list[float]]:
    """Return a gradient of one number, and one of twice as much."""
    return [[value], [2 * value]]


@rule(
    "ddp.default-comm-hook.allreduce",
    level=Level.MUST,
    sources=[ALL_REDUCE.sentence(2, 3)],
    needs=NEEDS,
    mutants=[
        "allreduce-hook-sums",
    ],
    processes=RANKS,
)
def test_allreduce_hook(backend: Backend, trace: Trace) -> None:
    """allreduce_hook leaves the mean of the gradients, as without a communication hook."""
    for passes in (1, 2, 3):
        grads, _ = gradients_by(backend, backend.default_comm_hook("allreduce_hook"), passes=passes)

        trace.expect_value("gradients", and_twice(mean(backend)[0]), grads)


@rule(
    "ddp.default-comm-hook.fp16-compress",
    level=Level.MUST,
    sources=[COMPRESS.sentence(1, 3, 4)],
    needs=[*NEEDS, Capability.FLOAT16],
    mutants=[
        "fp16-compress-hook-sums",
    ],
    processes=RANKS,
)
def test_fp16_compress_hook(backend: Backend, trace: Trace) -> None:
    """fp16_compress_hook leaves the mean of the gradients, in the dtype that they have."""
    for passes in (1, 2, 3):
        grads, dtypes = gradients_by(backend, backend.default_comm_hook("fp16_compress_hook"), passes=passes)

        trace.expect_value("gradients", and_twice(mean(backend)[0]), grads)
        trace.expect_value("their dtypes", ["float32"] * 2, dtypes)


@rule(
    "ddp.default-comm-hook.fp16-compress.rounds",
    level=Level.MUST,
    sources=[COMPRESS.sentence(2, 3)],
    needs=[*NEEDS, Capability.FLOAT16],
    mutants=["fp16-compress-hook-does-not-compress", "fp16-compress-hook-compresses-the-mean"],
    except_under={"float16": "nothing is left to round", "bfloat16": "what is left of the number is rounded already"},
    processes=RANKS,
)
def test_fp16_compress_hook_rounds(backend: Backend, trace: Trace) -> None:
    """fp16_compress_hook casts gradients to float16 before they are reduced, so digits are lost.

    A tenth loses digits. Two gradients that differ in what float16 loses have the mean of their rounded values.
    """
    hook = backend.default_comm_hook("fp16_compress_hook")
    x = backend.tensor([-1.0 if backend.get_rank() else 1 + TINY])
    exact = TENTH * mean(backend)[0]
    for passes in (1, 2, 3):
        grads, _ = gradients_by(backend, hook, factor=TENTH, passes=passes)
        opposite, _ = gradients_by(backend, hook, x=x, passes=passes)

        for (grad,), (expected,) in zip(grads, and_twice(exact), strict=True):
            lost = abs(grad - expected)
            trace.expect_value("digits are lost", True, lost > expected * 2e-5)  # noqa: FBT003 - the expected value
            trace.expect_value("no more than those", True, lost < expected * 2e-3)  # noqa: FBT003
        trace.expect_value("mean of opposite gradients", and_twice(0.0), opposite)


@rule(
    "ddp.default-comm-hook.fp16-compress-wrapper",
    level=Level.MUST,
    sources=[WRAPPER.sentence(2, 3)],
    needs=[*NEEDS, Capability.FLOAT16],
    mutants=[
        "fp16-compress-wrapper-does-nothing",
        "fp16-compress-wrapper-forgets-its-hook",
        "fp16-compress-wrapper-swallows-errors",
    ],
    except_under=FLAT | PAIRS | {"bfloat16": "what is left of the number is rounded already"},
    processes=RANKS,
)
def test_fp16_compress_wrapper(backend: Backend, trace: Trace) -> None:
    """fp16_compress_wrapper rounds what the wrapped hook gets; around allreduce_hook it does as fp16_compress_hook.

    What the wrapped hook returns is cast back, and is the gradient.
    """
    wrapper = backend.default_comm_hook("fp16_compress_wrapper")

    def fourfold(_state, bucket):
        trace.log("wrapped hook", sorted(backend.tolist(bucket.buffer())))
        return backend.future(bucket.buffer() * 4)

    def fail(_state, _bucket):
        raise WrappedHookError("from the wrapped hook")

    all_reduce, compress = backend.default_comm_hook("allreduce_hook"), backend.default_comm_hook("fp16_compress_hook")
    for passes in (1, 2, 3):
        own, dtypes = gradients_by(backend, wrapper(fourfold), factor=TENTH, passes=passes)
        rounded = ROUNDED * number(backend)
        trace.expect(*[("wrapped hook", [rounded, 2 * rounded])] * passes)
        trace.expect_value("gradients", and_twice(4 * rounded), own)
        trace.expect_value("their dtypes", ["float32"] * 2, dtypes)

        wrapped = gradients_by(backend, wrapper(all_reduce), factor=TENTH, passes=passes)
        direct = gradients_by(backend, compress, factor=TENTH, passes=passes)

        trace.expect_value("gradients and dtypes", list(direct), list(wrapped))
    with trace.raises_type(WrappedHookError, "from the wrapped hook"):
        gradients_by(backend, wrapper(fail))


@rule(
    "ddp.default-comm-hook.fp16-compress-wrapper.state",
    level=Level.MUST,
    sources=[WRAPPER.sentence(2), COMM_HOOK.sentence(4)],
    needs=[*NEEDS, Capability.FLOAT16],
    mutants=["fp16-compress-wrapper-loses-the-state"],
    processes=RANKS,
)
def test_fp16_compress_wrapper_state(backend: Backend, trace: Trace) -> None:
    """The hook in fp16_compress_wrapper is passed the state that the wrapper was registered with, the same object.

    A state is passed to the hook, and the wrapper is said to change the gradients alone.
    """
    given: list[Any] = []

    def hook(state, bucket):
        given.append(state)
        return backend.future(bucket.buffer())

    wrapper = backend.default_comm_hook("fp16_compress_wrapper")
    states: list[Any] = [[], []]
    for state in states:
        parallel = backend.distributed_data_parallel(weighted(backend))
        backend.register_comm_hook(parallel, state, wrapper(hook))
        for _ in range(3):
            run(backend, parallel)
            trace.expect_value("the state itself", [True], [each is state for each in given])
            given.clear()


@rule(
    "ddp.default-comm-hook.noop",
    level=Level.MUST,
    sources=[NO_OP.sentence(1)],
    needs=NEEDS,
    mutants=[
        "noop-hook-reduces",
    ],
    processes=RANKS,
)
def test_noop_hook(backend: Backend, trace: Trace) -> None:
    """noop_hook leaves each rank its own gradients."""
    for passes in (1, 2, 3):
        grads, _ = gradients_by(backend, backend.default_comm_hook("noop_hook"), passes=passes)

        trace.expect_value("gradients", and_twice(number(backend)), grads)
