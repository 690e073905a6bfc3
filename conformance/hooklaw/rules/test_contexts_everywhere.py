"""save_on_cpu and the contexts of a checkpoint in each kind of pass, and wherever they are entered."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.checkpoints import CHECKPOINT, WITH_OPTIONS
from hooklaw.rules.hooks import UserError, leaf, zeros
from hooklaw.rules.passes import (
    EVERY_PASS,
    INNER,
    PLACES,
    RETAINING,
    ROOTS,
    THRICE,
    Run,
    every_pass,
    everywhere,
    in_thread,
    inside_a_pass,
    roots,
)

SAVE_ON_CPU = docstring("torch.autograd.graph.save_on_cpu").sentence(2)
CONTEXTS = CHECKPOINT.sentence(41, 42)
SAVES = [Capability.SAVE_ON_CPU, Capability.MODULES, Capability.THREADS]


def kept_in(backend: Backend, trace: Trace, runs: dict[str, Run], times: int = 1) -> None:
    """Expect each of these passes to use what save_on_cpu kept."""
    for label, run in runs.items():
        x, factor = zeros(backend), backend.tensor([2.0, 3.0])

        def forward(x: Any, factor: Any) -> Any:
            with backend.save_on_cpu():
                return backend.exp(x) + x * factor

        root = backend.call(backend.sum, backend.call(forward, x, factor))
        for _ in range(times):
            trace.expect_value(label, [3.0, 4.0], run(root, x))


class Around:
    """A context that logs that it is entered and left, each time."""

    def __init__(self, trace: Trace, name: str) -> None:
        self._trace, self._name = trace, name

    def __enter__(self) -> None:
        self._trace.log(self._name)

    def __exit__(self, *error: object) -> None:
        self._trace.log(f"{self._name} left")


def checkpointed(backend: Backend, trace: Trace, *, logs: bool = False) -> Callable[[Any], Any]:
    """Return a function whose squares are recomputed in a context; a compiler takes no context_fn that it makes.

    It may log that it runs, which a compiler leaves uncompiled.
    """
    contexts = Around(trace, "first"), Around(trace, "second")

    def squared(x: Any) -> Any:
        if logs:
            trace.log("function")
        return x * x

    def context_fn() -> Any:
        return contexts

    return lambda x: backend.sum(backend.checkpoint(squared, x, use_reentrant=False, context_fn=context_fn))


def recomputed_in(backend: Backend, trace: Trace, runs: dict[str, Run]) -> None:
    """Expect each of these passes to recompute a checkpoint in its second context, whether or not it logs that."""
    for logs, (label, run) in product((False, True), runs.items()):
        x = leaf(backend)
        root = backend.call(checkpointed(backend, trace, logs=logs), x)
        recomputed = ["function"] * logs
        trace.expect("first", *recomputed, "first left")
        for _ in range(THRICE if label in RETAINING else 1):
            trace.log(label, run(root, x))
            trace.expect("second", *recomputed, "second left", (label, [2.0, 4.0]))


@rule(
    "save-on-cpu.every-pass",
    level=Level.MUST,
    sources=[SAVE_ON_CPU],
    needs=[Capability.SAVE_ON_CPU, *EVERY_PASS],
    mutants=["save-on-cpu-given-another-second-pass"],
)
def test_every_pass(backend: Backend, trace: Trace) -> None:
    """Each pass uses the tensors that save_on_cpu kept."""
    kept_in(backend, trace, every_pass(backend), times=THRICE)


@rule(
    "save-on-cpu.inside-a-pass",
    level=Level.MUST,
    sources=[SAVE_ON_CPU],
    needs=[Capability.SAVE_ON_CPU, *INNER],
    mutants=["save-on-cpu-given-another-inner-pass", "save-on-cpu-reads-the-first-in-inner-passes"],
)
def test_inside_a_pass(backend: Backend, trace: Trace) -> None:
    """A backward inside another one uses the tensors that save_on_cpu kept."""
    kept_in(backend, trace, inside_a_pass(backend), times=THRICE)


@rule(
    "save-on-cpu.every-root",
    level=Level.MUST,
    sources=[SAVE_ON_CPU],
    needs=[Capability.SAVE_ON_CPU, *ROOTS, Capability.THREADS],
    mutants=["save-on-cpu-given-another-several-roots"],
)
def test_every_root(backend: Backend, trace: Trace) -> None:
    """A backward uses the tensors that save_on_cpu kept wherever it starts, in any thread."""
    kept_in(backend, trace, {**roots(backend), **in_thread(backend)})


@rule(
    "save-on-cpu.every-place",
    level=Level.MUST,
    sources=[SAVE_ON_CPU],
    needs=[*SAVES, *PLACES],
    mutants=["save-on-cpu-given-another-made-in-no-grad"],
)
def test_every_place(backend: Backend, trace: Trace) -> None:
    """A backward uses the tensors that save_on_cpu kept no matter what was under way when it was entered."""
    for label, place in everywhere(backend).items():
        x, saved = zeros(backend), list[Any]()

        def save(x: Any = x, saved: list[Any] = saved) -> None:
            with backend.save_on_cpu(), backend.enable_grad():
                saved.append(backend.exp(x))

        place(save)
        backend.backward(backend.sum(saved[0]))
        trace.expect_value(label, [1.0, 1.0], backend.grad_of(x))


@rule(
    "checkpoint.context-fn.every-pass",
    level=Level.MUST,
    sources=[CONTEXTS],
    needs=[*WITH_OPTIONS, *EVERY_PASS],
    mutants=["recomputation-context-lost-no-grad-pass"],
)
def test_contexts_in_every_pass(backend: Backend, trace: Trace) -> None:
    """Each pass that recomputes a non-reentrant checkpoint does so in the second context of context_fn."""
    recomputed_in(backend, trace, every_pass(backend))


@rule(
    "checkpoint.context-fn.inside-a-pass",
    level=Level.MUST,
    sources=[CONTEXTS],
    needs=[*WITH_OPTIONS, *INNER],
    mutants=["recomputation-context-lost-inner-pass", "recomputation-context-left-at-once-inner-pass"],
)
def test_contexts_inside_a_pass(backend: Backend, trace: Trace) -> None:
    """A backward inside another one recomputes a non-reentrant checkpoint in its second context."""
    recomputed_in(backend, trace, inside_a_pass(backend))


@rule(
    "checkpoint.context-fn.every-root",
    level=Level.MUST,
    sources=[CONTEXTS],
    needs=[*WITH_OPTIONS, *ROOTS, Capability.THREADS],
    mutants=["recomputation-context-lost-several-roots"],
)
def test_contexts_in_every_root(backend: Backend, trace: Trace) -> None:
    """A backward recomputes a non-reentrant checkpoint in its second context wherever it starts, in any thread."""
    recomputed_in(backend, trace, {**roots(backend), **in_thread(backend)})


@rule(
    "checkpoint.context-fn.every-place",
    level=Level.MUST,
    sources=[CONTEXTS],
    needs=[*WITH_OPTIONS, *PLACES, Capability.MODULES, Capability.THREADS],
    mutants=["forward-context-lost-made-in-a-module"],
)
def test_contexts_in_every_place(backend: Backend, trace: Trace) -> None:
    """The contexts of context_fn surround a checkpoint's function no matter what is under way when it is called."""
    for label, place in everywhere(backend).items():
        if "checkpoint" in label:  # whether the outer one is recomputed, too, is not said
            continue
        x, made = leaf(backend), list[Any]()

        def call(x: Any = x, made: list[Any] = made) -> None:
            with backend.enable_grad():
                made.append(checkpointed(backend, trace, logs=True)(x))

        place(call)
        backend.backward(made[0])
        trace.log(label, backend.grad_of(x))
        trace.expect("first", "function", "first left", "second", "function", "second left", (label, [2.0, 4.0]))


@rule(
    "checkpoint.context-fn.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the error of a context reaches the caller of the checkpoint, or of the pass that recomputes")],
    needs=[*WITH_OPTIONS, *EVERY_PASS, *ROOTS, *PLACES, Capability.MODULES, Capability.THREADS],
    mutants=[
        "forward-context-lost-later",
        "error-of-leaving-the-first-context-swallowed",
        "error-of-leaving-the-second-context-swallowed",
    ],
)
def test_errors_of_contexts(backend: Backend, trace: Trace) -> None:
    """An error of a context of context_fn reaches the caller of the checkpoint, or of the pass that recomputes."""

    @contextmanager
    def failing(fails: list[str]) -> Generator[None]:
        when = fails.pop() if fails else ""
        if when == "entered":
            raise UserError("from the context")
        try:
            yield
        finally:
            if when == "left":
                raise UserError("from the context")

    def made(x: Any, first: list[str], second: list[str]) -> Any:
        contexts = failing(first), failing(second)
        with backend.enable_grad():
            return backend.sum(backend.checkpoint(lambda x: x * x, x, use_reentrant=False, context_fn=lambda: contexts))

    for when, place in product(("entered", "left"), everywhere(backend).values()):
        with trace.raises_type(UserError, "from the context"):
            place(lambda when=when: made(leaf(backend), [when], []))
        roots_of = list[Any]()
        place(lambda when=when, roots_of=roots_of: roots_of.append(made(leaf(backend), [], [when])))
        with trace.raises_type(UserError, "from the context"):
            backend.backward(roots_of[0])
    runs = {**every_pass(backend), **roots(backend), **in_thread(backend)}
    for when, run in product(("entered", "left"), runs.values()):
        x = leaf(backend)
        with trace.raises_type(UserError, "from the context"):
            run(made(x, [], [when]), x)
