"""Communication hooks: what a distributed module's gradients are reduced by, in place of the all-reduce."""

from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.ranks import FLAT, PAIRS, RANKS, averaged, mean, number, reducing, run, weighted

COMM_HOOK = docstring("torch.nn.parallel.DistributedDataParallel.register_comm_hook")
NO_SYNC = docstring("torch.nn.parallel.DistributedDataParallel.no_sync")
NEEDS = [Capability.COMM_HOOKS, Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES]


class CommHookError(Exception):
    """Raised by a communication hook."""


def hooked(backend: Backend, hook: Any, state: Any = None) -> tuple[Any, Any]:
    """Make a module with one weight, distribute it with a communication hook, and return both."""
    module = weighted(backend)
    parallel = backend.distributed_data_parallel(module)
    backend.register_comm_hook(parallel, state, hook)
    return module, parallel


@rule(
    "ddp.comm-hook.called-per-bucket",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(7, 8, 12)],
    needs=NEEDS,
    mutants=["comm-hook-ignored", "comm-hook-result-ignored"],
    except_under=FLAT | PAIRS,
    processes=RANKS,
)
def test_called_per_bucket(backend: Backend, trace: Trace) -> None:
    """In each pass a communication hook is called with the ready bucket, and its future holds the new gradient."""

    def hook(_state, bucket):
        trace.log("comm hook", bucket.buffer())
        return backend.future(bucket.buffer() * 10)

    both = [hooked(backend, hook) for _ in range(2)]
    for _ in range(3):
        for module, parallel in both:
            backend.set_grad(module.weight, None)
            run(backend, parallel)
            trace.expect(("comm hook", [number(backend)]))
            trace.expect_value("weight.grad", [10 * number(backend)], backend.grad_of(module.weight))


@rule(
    "ddp.comm-hook.state",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(4, 6)],
    needs=NEEDS,
    mutants=["comm-hook-without-state", "comm-hook-with-a-copy-of-the-state"],
    processes=RANKS,
)
def test_state(backend: Backend, trace: Trace) -> None:
    """The communication hook is passed the state with which it was registered, the same object in each pass."""
    given: list[Any] = []

    def hook(state, bucket):
        given.append(state)
        return backend.future(bucket.buffer())

    states: list[Any] = [[], []]
    both = [(state, hooked(backend, hook, state)) for state in states]
    for passes in (1, 2, 3):
        for state, (_, parallel) in both:
            run(backend, parallel)
            trace.expect_value(f"the state itself in pass {passes}", [True], [each is state for each in given])
            given.clear()


@rule(
    "ddp.comm-hook.not-predivided",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(16)],
    needs=NEEDS,
    mutants=[
        "comm-hook-buckets-predivided",
    ],
    except_under=FLAT | PAIRS,
    processes=RANKS,
)
def test_not_predivided(backend: Backend, trace: Trace) -> None:
    """A communication hook sees the rank's own gradients, not divided by the number of ranks."""
    for _ in range(2):
        module, parallel = hooked(backend, reducing(backend, trace))
        for _ in range(3):
            backend.set_grad(module.weight, None)
            run(backend, parallel)
            trace.expect(("comm hook", [number(backend)]))


@rule(
    "ddp.comm-hook.no-division",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(17)],
    needs=NEEDS,
    mutants=[
        "comm-hook-result-divided",
    ],
    processes=RANKS,
)
def test_no_division(backend: Backend, trace: Trace) -> None:
    """If a communication hook returns the sum over the ranks, the gradient is that sum.

    The docstring leaves the division to the user, so nothing else divides.
    """
    for _ in range(2):
        module, parallel = hooked(backend, lambda _, bucket: backend.all_reduce_future(bucket.buffer()))
        for _ in range(3):
            backend.set_grad(module.weight, None)
            run(backend, parallel)
            trace.expect_value("weight.grad", [RANKS * mean(backend)[0]], backend.grad_of(module.weight))


@rule(
    "ddp.comm-hook.asynchronous",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(9, 11)],
    needs=NEEDS,
    mutants=[
        "comm-hook-result-not-awaited",
    ],
    processes=RANKS,
)
def test_asynchronous(backend: Backend, trace: Trace) -> None:
    """If a communication hook returns the future of unfinished work, the gradients are what it holds when completed.

    The work is an all-reduce, and a callback that changes its result.
    """

    def hook(_state, bucket):
        return averaged(backend, bucket.buffer()).then(lambda done: done.value() * 3)

    for _ in range(2):
        module, parallel = hooked(backend, hook)
        for _ in range(3):
            backend.set_grad(module.weight, None)
            run(backend, parallel)
            trace.expect_value("weight.grad", [3 * mean(backend)[0]], backend.grad_of(module.weight))


@rule(
    "ddp.comm-hook.without-communication",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(10)],
    needs=NEEDS,
    mutants=[
        "comm-hook-result-reduced-again",
    ],
    processes=RANKS,
)
def test_without_communication(backend: Backend, trace: Trace) -> None:
    """If a communication hook returns the bucket's values in a completed future, each rank keeps its own gradients."""
    for _ in range(2):
        module, parallel = hooked(backend, lambda _, bucket: backend.future(bucket.buffer()))
        for _ in range(3):
            backend.set_grad(module.weight, None)
            run(backend, parallel)
            trace.expect_value("weight.grad", [number(backend)], backend.grad_of(module.weight))


@rule(
    "ddp.comm-hook.once",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(18)],
    needs=NEEDS,
    mutants=["comm-hook-replaced-by-the-second", "comm-hook-registered-again"],
    processes=RANKS,
)
def test_once(backend: Backend, trace: Trace) -> None:
    """A second communication hook on one distributed module is an error.

    The docstring says that a hook can only be registered once; so a second registration must not succeed.
    """
    for passes in (0, 1):
        first = reducing(backend, trace)
        _, parallel = hooked(backend, first)
        for _ in range(passes):
            run(backend, parallel)

        for second in (reducing(backend, trace), first, reducing(backend, trace)):
            with trace.raises(ErrorKind.COMM_HOOK_TWICE):
                backend.register_comm_hook(parallel, None, second)


@rule(
    "ddp.comm-hook.no-sync",
    level=Level.MUST,
    sources=[NO_SYNC.sentence(1, 2)],
    needs=NEEDS,
    mutants=["no-sync-synchronizes"],
    except_under=FLAT | PAIRS,
    processes=RANKS,
)
def test_not_called_in_no_sync(backend: Backend, trace: Trace) -> None:
    """A communication hook is not called inside no_sync, and sees what accumulated there in the first pass after it."""
    for _ in range(2):
        module, parallel = hooked(backend, reducing(backend, trace))
        for inside in (1, 2, 3):
            backend.set_grad(module.weight, None)
            with backend.no_sync(parallel):
                for _ in range(inside):
                    run(backend, parallel)
                trace.expect()
            run(backend, parallel)
            trace.expect(("comm hook", [(inside + 1) * number(backend)]))


@rule(
    "ddp.comm-hook.no-autograd-grad",
    level=Level.SHOULD,
    sources=[observed("autograd.grad accumulates nothing, so no bucket becomes ready")],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_not_called_by_autograd_grad(backend: Backend, trace: Trace) -> None:
    """autograd.grad does not call the communication hook."""
    for _ in range(2):
        module, parallel = hooked(backend, reducing(backend, trace))
        x = backend.tensor([number(backend)])
        backend.grad(backend.sum(backend.call(parallel, x)), [module.weight])

        trace.expect()


@rule(
    "ddp.comm-hook.exception",
    level=Level.SHOULD,
    sources=[observed("backward raises what the hook raised")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["comm-hook-exception-lost"],
    processes=RANKS,
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception in a communication hook reaches the caller of backward with its own type."""

    def hook(sound, bucket):
        if sound:
            return backend.future(sound.pop() * bucket.buffer())
        raise CommHookError(f"from the hook, in bucket {bucket.index()}")

    for passes in (0, 1, 2):
        _, parallel = hooked(backend, hook, [1.0] * passes)
        for _ in range(passes):
            run(backend, parallel)

        with trace.raises_type(CommHookError, "from the hook"):
            run(backend, parallel)


def expect_refused(backend: Backend, trace: Trace, hook: Any) -> None:
    """Expect an error of backward for what a communication hook returns, in the first pass or after sound ones."""

    def after_sound_ones(sound, bucket):
        return backend.future(sound.pop() * bucket.buffer()) if sound else hook(None, bucket)

    for passes in (0, 1, 2):
        _, parallel = hooked(backend, after_sound_ones, [1.0] * passes)
        for _ in range(passes):
            run(backend, parallel)
        with trace.raises(ErrorKind.COMM_HOOK_RETURN):
            run(backend, parallel)


@rule(
    "ddp.comm-hook.return.none",
    level=Level.SHOULD,
    sources=[COMM_HOOK, observed("where the docstring demands a future, the error is torch's own")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["comm-hook-may-return-anything"],
    processes=RANKS,
)
def test_returns_none(backend: Backend, trace: Trace) -> None:
    """If a communication hook returns None, backward is an error.

    The docstring obliges the user to return a future; that anything else is an error is not said.
    """
    expect_refused(backend, trace, lambda _, bucket: trace.log("comm hook", bucket.buffer()))


@rule(
    "ddp.comm-hook.return.tensor",
    level=Level.SHOULD,
    sources=[COMM_HOOK, observed("RuntimeError, where the docstring demands a future")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["comm-hook-may-return-anything"],
    processes=RANKS,
)
def test_returns_tensor(backend: Backend, trace: Trace) -> None:
    """If a communication hook returns a bare tensor in place of a future, backward is an error."""
    expect_refused(backend, trace, lambda _, bucket: bucket.buffer())


@rule(
    "ddp.comm-hook.return.list",
    level=Level.SHOULD,
    sources=[COMM_HOOK, observed("RuntimeError, where the docstring demands a single tensor")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["comm-hook-may-return-anything"],
    processes=RANKS,
)
def test_returns_list(backend: Backend, trace: Trace) -> None:
    """If a communication hook returns a future of a list, backward is an error."""
    expect_refused(backend, trace, lambda _, bucket: backend.future([bucket.buffer()]))


@rule(
    "ddp.comm-hook.param-name",
    level=Level.MAY,
    sources=[observed("KeyError: the annotation of a parameter of that name is looked up")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_parameter_name(backend: Backend, trace: Trace) -> None:
    """A communication hook whose second parameter is not called `bucket` is refused."""
    with trace.raises(ErrorKind.COMM_HOOK_SIGNATURE):
        hooked(backend, lambda _, second: backend.future(second.buffer()))


@rule(
    "ddp.comm-hook.bad-annotation",
    level=Level.MAY,
    sources=[observed("ValueError, for the parameter and for the return")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_bad_annotation(backend: Backend, trace: Trace) -> None:
    """A communication hook that annotates its bucket, or what it returns, with another type is refused."""

    def takes_int(_state, bucket: int):
        return backend.future(bucket)

    def returns_int(_state, bucket) -> int:
        return backend.future(bucket)  # type: ignore[no-any-return]

    for hook in (takes_int, returns_int):
        with trace.raises(ErrorKind.COMM_HOOK_SIGNATURE):
            hooked(backend, hook)


@rule(
    "ddp.comm-hook.two-parameters",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(8, 12)],
    needs=NEEDS,
    mutants=[
        "comm-hook-result-for-one-parameter",
        "comm-hook-result-lost-in-the-middle",
        "comm-hook-result-uncopied",
    ],
    processes=RANKS,
)
def test_two_parameters(backend: Backend, trace: Trace) -> None:
    """What a communication hook's futures hold is copied to the gradients of all parameters of the buckets."""
    results: list[Any] = []

    def hook(_state, bucket):
        results.append(bucket.buffer() * 10)
        return backend.future(results[-1])

    factors = {"first": 1.0, "second": 2.0, "third": 3.0}

    def forward(module, x):
        return x * module.first + x * 2 * module.second + x * 3 * module.third

    for _ in range(2):
        module = backend.module({name: backend.tensor([2.0]) for name in factors}, forward)
        parallel = backend.distributed_data_parallel(module)
        backend.register_comm_hook(parallel, None, hook)
        for _ in range(3):
            for name in factors:
                backend.set_grad(getattr(module, name), None)
            run(backend, parallel)
            for result in results:
                backend.all_reduce(result)  # changes what was copied, in place
            results.clear()

            for name, factor in factors.items():
                expected = [10 * factor * number(backend)]
                trace.expect_value(f"{name}.grad", expected, backend.grad_of(getattr(module, name)))
