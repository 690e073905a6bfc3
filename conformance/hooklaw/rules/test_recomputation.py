"""The recomputation of a checkpoint: how far it goes, in which context, and whether it is checked."""

import weakref
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain, combinations, product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.checkpoints import CHECKPOINT, NEEDS, WITH_OPTIONS, leaf, logging_its_end, of_another_dtype, region
from hooklaw.rules.lifetimes import without_collector

EARLY_STOP = docstring("torch.utils.checkpoint.set_checkpoint_early_stop")


def times_reached_end(backend: Backend, trace: Trace, **how: Any) -> Any:
    """Return a forward, and a function that says how often the checkpoint has reached the end of its function since."""
    label = "after the last operation that saves"

    def fn(x):
        y = x * x
        trace.log(label)
        return y

    before = trace.count(label)
    return region(backend, fn, **how), lambda: trace.count(label) - before


@rule(
    "checkpoint.early-stop",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(15, 52), EARLY_STOP.sentence(2)],
    needs=WITH_OPTIONS,
    mutants=[
        "checkpoint-early-stop-set-always",
        "checkpoint-use-reentrant-always-true",
        "early-stop-stays-off",
        "recomputation-stops-early-as-the-latest",
    ],
)
def test_early_stop(backend: Backend, trace: Trace) -> None:
    """Recomputing a non-reentrant checkpoint stops when every needed tensor is there, unless early_stop=False."""
    off = ("with early_stop=False", {"early_stop": False}, 2)
    on = ("with early_stop=True", {"early_stop": True}, 1)
    default, again = ("by default", {}, 1), ("by default again", {}, 1)
    for said, options, expected in (default, off, on, again, off, again, off):
        forward, times = times_reached_end(backend, trace, use_reentrant=False, **options)
        backend.backward(backend.call(forward, leaf(backend)))

        trace.expect_value(f"{said}, times", expected, times())

    forward, times = times_reached_end(backend, trace, use_reentrant=False, early_stop=False)
    stops, _ = times_reached_end(backend, trace, use_reentrant=False)
    for loss in [backend.call(each, leaf(backend)) for each in (forward, stops)]:
        backend.backward(loss)
    trace.expect_value("one with early_stop=False beside one without, times", 3, times())


@rule(
    "checkpoint.early-stop.context",
    level=Level.MUST,
    sources=[EARLY_STOP.sentence(3, 4, 5), CHECKPOINT.sentence(16)],
    needs=WITH_OPTIONS,
    mutants=[
        "set-checkpoint-early-stop-not-entered",
        "set-checkpoint-early-stop-lasts",
        "set-checkpoint-early-stop-ends-the-outer",
        "set-checkpoint-early-stop-lasts-after-an-error",
    ],
)
def test_early_stop_context(backend: Backend, trace: Trace) -> None:
    """set_checkpoint_early_stop(False) applies to each checkpoint whose forward runs inside, and to no other."""
    forward, times = times_reached_end(backend, trace, use_reentrant=False)
    with backend.set_checkpoint_early_stop(enable=False):
        losses = [backend.call(forward, leaf(backend)) for _ in range(2)]
    for loss in losses:
        backend.backward(loss)
    trace.expect_value("two forwards inside, times", 4, times())

    forward, times = times_reached_end(backend, trace, use_reentrant=False)
    loss = backend.call(forward, leaf(backend))
    with backend.set_checkpoint_early_stop(enable=False):
        backend.backward(loss)
    trace.expect_value("only backward inside, times", 1, times())

    nested_early_stops(backend, trace, (False, True, False, True))


def nested_early_stops(backend: Backend, trace: Trace, order: tuple[bool, ...]) -> None:
    """Enter contexts inside each other, which end by errors, and expect each of them around the one inside it."""

    def expect() -> None:
        forward, times = times_reached_end(backend, trace, use_reentrant=False)
        backend.backward(backend.call(forward, leaf(backend)))
        trace.expect_value(f"inside set_checkpoint_early_stop({order}), times", 1 if order[0] else 2, times())

    with suppress(ZeroDivisionError), backend.set_checkpoint_early_stop(enable=order[0]):
        expect()
        if order[1:]:
            nested_early_stops(backend, trace, order[1:])
            expect()
        raise ZeroDivisionError


@rule(
    "checkpoint.early-stop.context.overrides",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(54), EARLY_STOP.sentence(1)],
    needs=WITH_OPTIONS,
    mutants=["set-checkpoint-early-stop-not-entered", "early-stop-argument-overrides-the-context"],
)
def test_early_stop_context_overrides(backend: Backend, trace: Trace) -> None:
    """set_checkpoint_early_stop overrides the early_stop of a checkpoint made inside, whether it is True or False."""
    for enable, expected in ((True, 1), (False, 2)):
        forward, times = times_reached_end(backend, trace, use_reentrant=False, early_stop=not enable)
        with backend.set_checkpoint_early_stop(enable=enable):
            loss = backend.call(forward, leaf(backend))
        backend.backward(loss)

        trace.expect_value(f"with set_checkpoint_early_stop({enable}), times", expected, times())


@rule(
    "checkpoint.early-stop.reentrant",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(17, 53)],
    needs=WITH_OPTIONS,
    mutants=["checkpoint-use-reentrant-always-false"],
)
def test_reentrant_goes_to_the_end(backend: Backend, trace: Trace) -> None:
    """Recomputing a reentrant checkpoint runs its whole function, even with early_stop=True."""
    for others in ({}, {"preserve_rng_state": False}, {"determinism_check": "none"}):
        forward, times = times_reached_end(backend, trace, use_reentrant=True, early_stop=True, **others)

        backend.backward(backend.call(forward, leaf(backend)))

        trace.expect_value("times", 2, times())


@rule(
    "checkpoint.determinism",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(45)],
    needs=NEEDS,
    mutants=[
        "checkpoint-determinism-check-set-always",
        "recomputation-compares-its-first-tensor-only",
        "recomputation-compares-its-first-and-last-tensor-only",
        "later-recomputations-are-not-compared",
    ],
)
def test_other_shapes(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint whose recomputed tensors have other shapes than the saved ones is an error.

    The docstring describes a check of shapes, dtypes and devices, which can be turned off; a check that finds a
    difference can only be an error.
    """
    for nr, other in product(range(3), (2.0, [2.0], [[2.0, 2.0]])):
        factors: list[Any] = [[2.0, 2.0]] * 6
        factors[3 + nr] = other

        def fn(x, given=iter(factors)):  # noqa: B008 - one for each function
            return x * backend.tensor(next(given)) * backend.tensor(next(given)) * backend.tensor(next(given))

        loss = backend.call(region(backend, fn, use_reentrant=False), leaf(backend))

        with trace.raises(ErrorKind.CHECKPOINT_MISMATCH):
            backend.backward(loss)

    def halves(x, factor):
        return x * backend.tensor(factor), x * backend.tensor(factor)

    differs_in_its_second_recomputation(backend, trace, lambda x: halves(x, [2.0, 2.0]), lambda x: halves(x, 2.0))


def differs_in_its_second_recomputation(backend: Backend, trace: Trace, usual: Any, other: Any) -> None:
    """Expect an error if a function of two outputs runs as another in its second recomputation.

    A second backward may use what the first one recomputed; then there is no second recomputation.
    """
    recomputes = False
    for differs in (False, True):
        runs: list[int] = []

        def fn(x, differs=differs, runs=runs):
            runs.append(0)
            return other(x) if differs and runs[2:] else usual(x)

        first, second = backend.call(lambda x, fn=fn: backend.checkpoint(fn, x, use_reentrant=False), leaf(backend))
        backend.backward(backend.sum(first))
        with trace.raises(ErrorKind.CHECKPOINT_MISMATCH) if differs and recomputes else nullcontext():
            backend.backward(backend.sum(second))
        recomputes = bool(runs[2:])


@rule(
    "checkpoint.determinism.dtypes",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(45)],
    needs=[*NEEDS, Capability.FLOAT64],
    mutants=[
        "checkpoint-determinism-check-set-always",
        "recomputation-compares-shapes-only",
        "recomputation-compares-the-dtype-of-its-first-tensor-only",
        "recomputation-compares-its-first-and-last-tensor-only",
    ],
)
def test_other_dtypes(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint whose recomputed tensors have other dtypes than the saved ones is an error.

    As for shapes, the docstring describes a check, and a check that finds a difference can only be an error.
    """
    for nr in range(3):
        loss = backend.call(region(backend, of_another_dtype(backend, nr=nr), use_reentrant=False), leaf(backend))

        with trace.raises(ErrorKind.CHECKPOINT_MISMATCH):
            backend.backward(loss)


@rule(
    "checkpoint.determinism.none",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(46)],
    needs=[*WITH_OPTIONS, Capability.FLOAT64],
    mutants=[
        "checkpoint-determinism-check-ignored",
        "unchecked-recomputation-checks-later-tensors",
        "unchecked-recomputation-checks-later-shapes",
        "recomputation-is-compared-as-the-latest",
    ],
)
def test_unchecked(backend: Backend, trace: Trace) -> None:
    """With determinism_check="none" recomputed tensors of another dtype or shape than the saved ones are used.

    The input and the output have the same dtype in both runs, so the gradient is that of a plain run.
    """
    for nr in range(3):
        x = leaf(backend)
        forward = region(backend, of_another_dtype(backend, nr=nr), use_reentrant=False, determinism_check="none")
        backend.backward(backend.call(forward, x))

        trace.expect_value("x.grad", [2.0, 3.0], backend.grad_of(x))

    factors = iter([backend.tensor(factor) for factor in ([2.0, 2.0], [1.0, 1.0], 2.0, 1.0)])
    forward = region(
        backend, lambda x: x * next(factors) * next(factors), use_reentrant=False, determinism_check="none"
    )
    backend.backward(backend.call(forward, x))
    trace.expect_value("x.grad after another shape", [4.0, 5.0], backend.grad_of(x))

    for options in ({}, {"determinism_check": "default"}):
        unchecked = backend.call(
            region(backend, of_another_dtype(backend), use_reentrant=False, determinism_check="none"), x
        )
        forward = region(backend, of_another_dtype(backend), use_reentrant=False, **options)
        loss = backend.call(forward, x)
        backend.backward(unchecked)
        with trace.raises(ErrorKind.CHECKPOINT_MISMATCH):
            backend.backward(loss)


@rule(
    "checkpoint.determinism.reentrant",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(49)],
    needs=NEEDS,
    mutants=["checkpoint-use-reentrant-always-false"],
)
def test_reentrant_unchecked(backend: Backend, trace: Trace) -> None:
    """A reentrant checkpoint never compares its recomputed tensors: that they have other shapes is no error."""
    factors = iter((backend.tensor([2.0, 2.0]), backend.tensor(2.0)))
    x = leaf(backend)
    backend.backward(backend.call(region(backend, lambda x: x * next(factors), use_reentrant=True), x))

    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "checkpoint.determinism.count",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that another number of tensors was saved")],
    needs=NEEDS,
    mutants=[
        "checkpoint-recomputes-nothing",
        "recomputation-that-saves-one-fewer-is-no-error",
        "later-recomputations-may-save-fewer",
    ],
)
def test_fewer_tensors(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint whose recomputation saves fewer tensors than its forward is an error."""
    for fewer in (lambda x: x * 2, lambda x: backend.exp(x * x)):
        functions = iter((lambda x: x * x * x, fewer))
        forward = region(backend, lambda x, functions=functions: next(functions)(x), use_reentrant=False)
        loss = backend.call(forward, leaf(backend))

        with trace.raises(ErrorKind.CHECKPOINT_MISMATCH):
            backend.backward(loss)

    differs_in_its_second_recomputation(
        backend, trace, lambda x: (x * x, backend.exp(x)), lambda x: (x * 2, backend.exp(x))
    )


@contextmanager
def logged(trace: Trace, name: str) -> Generator[None]:
    """Log the two ends of a context."""
    trace.log(f"enter {name}")
    try:
        yield
    finally:
        trace.log(f"leave {name}")


@rule(
    "checkpoint.context-fn",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(41, 42)],
    needs=WITH_OPTIONS,
    mutants=[
        "checkpoint-context-fn-ignored",
        "context-fn-swapped",
        "checkpoints-side-by-side-are-recomputed-in-the-latest-context",
    ],
)
def test_context_fn(backend: Backend, trace: Trace) -> None:
    """The two contexts of context_fn surround the function of a non-reentrant checkpoint: in forward, in backward.

    Those of each of several checkpoints, and of one inside another.
    """

    def fn(x):
        trace.log("function")
        return x * x

    def inside():
        return logged(trace, "inner first"), logged(trace, "inner second")

    def outer(x):
        y = backend.checkpoint(fn, x, use_reentrant=False, context_fn=inside)
        return y * y

    def run(fn, *, early_stop=False, of=""):
        contexts = lambda: (logged(trace, f"{of}first"), logged(trace, f"{of}second"))  # noqa: E731 - a def is no shorter
        how = {"early_stop": early_stop, "context_fn": contexts}
        return backend.call(region(backend, fn, use_reentrant=False, **how), leaf(backend))

    for early_stop in (False, True, False, True):
        loss = run(fn, early_stop=early_stop)
        trace.expect("enter first", "function", "leave first")
        backend.backward(loss)
        trace.expect("enter second", "function", "leave second")
    loss = run(outer)
    forward = ["enter inner first", "function", "leave inner first"]
    trace.expect("enter first", *forward, "leave first")
    backend.backward(loss)
    trace.expect("enter second", *forward, "leave second", "enter inner second", "function", "leave inner second")
    for of, loss in [(of, run(fn, of=of)) for of in ("this ", "that ")]:
        trace.clear()
        backend.backward(loss)
        trace.expect(f"enter {of}second", "function", f"leave {of}second")


@rule(
    "checkpoint.options.together",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(16, 41, 42, 46)],
    needs=[*WITH_OPTIONS, Capability.FLOAT64],
    mutants=[
        "checkpoint-early-stop-ignored-beside-context-fn",
        "checkpoint-context-fn-ignored-beside-determinism-check",
        "checkpoint-determinism-check-ignored-beside-preserve-rng-state",
    ],
)
def test_options_together(backend: Backend, trace: Trace) -> None:
    """The options early_stop, context_fn and determinism_check of a checkpoint act whichever other options it has."""
    options: dict[str, Any] = {
        "early_stop": False,
        "context_fn": lambda: (logged(trace, "first"), logged(trace, "second")),
        "determinism_check": "none",
        "preserve_rng_state": False,
    }
    for names in chain.from_iterable(combinations(options, count) for count in (2, 3, 4)):
        x, how = leaf(backend), {name: options[name] for name in names}
        fn = logging_its_end(trace, of_another_dtype(backend, differs="determinism_check" in how))
        backend.backward(backend.call(region(backend, fn, use_reentrant=False, **how), x))

        ends = ["end"], ["end"] if "early_stop" in how else []
        if "context_fn" in how:
            ends = ["enter first", *ends[0], "leave first"], ["enter second", *ends[1], "leave second"]
        trace.log(f"with {' and '.join(names)}", backend.grad_of(x))
        trace.expect(*ends[0], *ends[1], (f"with {' and '.join(names)}", [2.0, 3.0]))


@rule(
    "checkpoint.recomputed.in-grad-mode",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the recomputation has grad mode on, as forward had")],
    needs=[*NEEDS, Capability.GRAD_MODE],
    mutants=["checkpoint-recomputed-without-grad"],
)
def test_grad_mode(backend: Backend, trace: Trace) -> None:
    """The function of a non-reentrant checkpoint is run again with grad mode on, although backward runs with it off."""

    def fn(x):
        y = x * x
        trace.log("grad mode", backend.is_grad_enabled())
        return y * x

    loss = backend.call(region(backend, fn, use_reentrant=False), leaf(backend))
    backend.backward(loss)

    trace.expect(("grad mode", True), ("grad mode", True))


@rule(
    "checkpoint.early-stop.freed",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("what a recomputation saved belongs to the pass, also where it was stopped")],
    needs=[*WITH_OPTIONS, Capability.CUSTOM_FUNCTION, Capability.WEAK_REFERENCES],
    mutants=["saved-tensors-of-functions-outlive-the-graph", "saved-tensors-of-a-recomputed-function-outlive-the-pass"],
)
def test_stopped_and_freed(backend: Backend, trace: Trace) -> None:
    """What a custom Function saved in a recomputation that was stopped early is freed once backward has ended."""
    saved: list[weakref.ref[Any]] = []

    def forward(ctx, x):
        factor = backend.clone(x)
        saved.append(weakref.ref(factor))
        ctx.save_for_backward(factor)
        return x * 2

    def backward(ctx, grad):
        trace.log("factor", list(ctx.saved_tensors))
        return grad * 2

    def body(x):
        y = function(x)
        trace.log("went on")
        return y

    with without_collector():
        function = backend.custom_function(forward, backward)
        loss = backend.call(region(backend, body, use_reentrant=False), leaf(backend))
        backend.backward(loss)

        trace.expect("went on", ("factor", [[1.0, 2.0]]))
        trace.expect_value("are freed", [True, True], [alive() is None for alive in saved])


@rule(
    "checkpoint.recomputed-freed",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("what was recomputed is freed as backward uses it, whether or not the graph is retained")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.RETAIN_GRAPH, Capability.WEAK_REFERENCES],
    mutants=[
        "recomputed-tensors-outlive-their-use",
        "tensors-recomputed-again-outlive-their-use",
        "last-recomputed-tensor-outlives-its-use",
    ],
)
def test_recomputed_is_freed(backend: Backend, trace: Trace) -> None:
    """When backward leaves a non-reentrant checkpoint, what it recomputed is freed, also if the graph is retained."""
    for retained in ([False], [True, False]):
        made: list[weakref.ref[Any]] = []

        def fn(x, made=made):
            y = x * x
            z = y * y
            made.extend((weakref.ref(y), weakref.ref(z)))
            return z * x

        def forward(x, fn=fn, made=made):
            before = x * 1
            backend.register_hook(before, lambda _: trace.log("are freed", [each() is None for each in made]))
            return backend.sum(backend.checkpoint(fn, before, use_reentrant=False))

        with without_collector():
            loss = backend.call(forward, leaf(backend))
            for passes, retain_graph in enumerate(retained, 1):
                backend.backward(loss, retain_graph=retain_graph)

                trace.expect(("are freed", [True] * 2 * (1 + passes)))


@rule(
    "checkpoint.nonreentrant.grad-part",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[
        CHECKPOINT.sentence(5, 20),
        observed("a pass that does not reach a checkpoint neither recomputes nor frees it"),
    ],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    mutants=["autograd-grad-recomputes-what-it-does-not-reach", "checkpoints-end-with-the-next-autograd-grad"],
)
def test_beyond_the_inputs(backend: Backend, trace: Trace) -> None:
    """autograd.grad of an output of a non-reentrant checkpoint leaves the recomputation to a later pass."""

    def fn(x):
        trace.log("run")
        return x * x

    x = leaf(backend)
    y = backend.call(lambda x: backend.checkpoint(fn, x, use_reentrant=False), x)
    loss = backend.call(lambda y: backend.sum(y * y), y)
    other = backend.call(lambda y: backend.sum(y * 3), y)
    trace.expect("run")
    trace.expect_value("gradient", [[2.0, 8.0]], backend.grad(loss, [y]))
    trace.expect()
    backend.backward(other)

    trace.expect("run")
    trace.expect_value("x.grad", [6.0, 12.0], backend.grad_of(x))
