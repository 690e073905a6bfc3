"""What a checkpoint passes on and restores: arguments, random numbers, autocast; what shares or spares a recomputation.

Also what becomes of it after an error, and when it is freed.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, page, rule
from hooklaw.rules.checkpoints import CHECKPOINT, KINDS, NEEDS, WITH_OPTIONS, drawing, leaf, region
from hooklaw.rules.lifetimes import holding, without_collector

GROUP = docstring("torch.utils.checkpoint.GraphExecGroup")


@rule(
    "checkpoint.not-tensors",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(56)],
    needs=NEEDS,
    mutants=[
        "checkpoint-drops-what-is-no-tensor",
        "checkpoint-returns-tensors-only",
        "recomputation-gets-its-tensors-first",
        "recomputation-gets-the-numbers-of-the-latest",
    ],
)
def test_not_tensors(backend: Backend, trace: Trace) -> None:
    """A checkpoint, reentrant or not, passes arguments and outputs that are not tensors on unchanged.

    The docstring says that it runs the function on the arguments and returns its output.
    """

    def fn(number: Any, x, *others: Any):
        trace.log("arguments", [number, *others])
        return "note", x * x * 3, None

    for kind, use_reentrant in 3 * [*KINDS.items()]:
        x = leaf(backend)
        note, y, nothing = backend.call(
            lambda x, use_reentrant=use_reentrant: backend.checkpoint(
                fn, 3.0, x, None, "note", use_reentrant=use_reentrant
            ),
            x,
        )
        trace.expect(("arguments", [3.0, None, "note"]))
        trace.expect_value(f"other outputs, {kind}", ["note", None], [note, nothing])
        backend.backward(backend.sum(y))
        runs = trace.values("arguments")
        trace.expect_value(f"arguments of each run, {kind}", [[3.0, None, "note"]] * len(runs), runs)
        trace.expect_value(f"x.grad, {kind}", [6.0, 12.0], backend.grad_of(x))

        def forward(number: float, use_reentrant: Any = use_reentrant) -> Any:
            return lambda given: backend.sum(backend.checkpoint(fn, number, given, use_reentrant=use_reentrant)[1])

        for number, loss in [(number, backend.call(forward(number), leaf(backend))) for number in (3.0, 4.0)]:
            trace.clear()
            backend.backward(loss)
            runs = trace.values("arguments")
            trace.expect_value(f"number of each run again, {kind}", [[number]] * len(runs), runs)
        trace.clear()


@rule(
    "checkpoint.no-tensors",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(56)],
    needs=NEEDS,
    mutants=["checkpoint-drops-what-is-no-tensor", "checkpoint-returns-none-for-what-is-false"],
)
def test_no_tensors(backend: Backend, trace: Trace) -> None:
    """A checkpoint, reentrant or not, of a function without any tensor returns what the function returns."""
    for flag, value in ((flag, value) for flag in KINDS.values() for value in (2, 0, False, "text", "", None, [])):
        for fn, expected in ((lambda value: value, value), (lambda value: (value,), [value])):
            trace.expect_value(f"reentrant: {flag}", expected, backend.checkpoint(fn, value, use_reentrant=flag))


@dataclass(frozen=True)
class Pair:
    """An object that holds tensors."""

    first: Any
    second: Any


@rule(
    "checkpoint.nonreentrant.custom-objects",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(24)],
    needs=NEEDS,
    mutants=["checkpoint-overlooks-tensors-in-objects", "checkpoint-use-reentrant-always-true"],
)
def test_custom_objects(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint has gradients for tensors inside custom objects, as inputs and as outputs."""

    def forward(a, b):
        pair = backend.checkpoint(
            lambda pair: Pair(pair.first * pair.second, pair.first * pair.first), Pair(a, b), use_reentrant=False
        )
        return backend.sum(pair.first + pair.second)

    a, b = leaf(backend), leaf(backend, 3.0, 5.0)
    backend.backward(backend.call(forward, a, b))

    trace.expect_value("gradients", [[5.0, 9.0], [1.0, 2.0]], [backend.grad_of(a), backend.grad_of(b)])


@rule(
    "checkpoint.reentrant.structures",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(24)],
    needs=NEEDS,
    mutants=["checkpoint-use-reentrant-always-false", "reentrant-checkpoint-returns-structures-with-history"],
)
def test_reentrant_structures(backend: Backend, trace: Trace) -> None:
    """A reentrant checkpoint records nothing of tensors that it is given or returns in lists, dicts or objects alone.

    What it computes from them does not require grad, and neither does what it returns in them. Whether they get
    gradients beside an input that requires grad is left open.
    """
    structures = {"list": lambda x: [x], "dict": lambda x: {"only": x}, "object": lambda x: Pair(x, x)}
    inside = {"list": lambda held: held[0], "dict": lambda held: held["only"], "object": lambda held: held.first}

    def forward(x, name):
        given = backend.checkpoint(lambda held: inside[name](held) * 2, structures[name](x), use_reentrant=True)
        returned = backend.checkpoint(lambda x: structures[name](x * 2), x, use_reentrant=True)
        return given, inside[name](returned)

    for name in structures:
        results = backend.call(lambda x, name=name: forward(x, name), leaf(backend))
        seen = [backend.requires_grad(result) for result in results]
        trace.expect_value(f"require grad, {name} as input and as output", [False, False], seen)


@rule(
    "checkpoint.reentrant.outputs",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(27)],
    needs=NEEDS,
    mutants=[
        "checkpoint-use-reentrant-always-false",
        "reentrant-inputs-first-alone",
        "reentrant-checkpoint-requires-grad-as-its-last-input-does",
        "first-output-of-a-reentrant-checkpoint-stays-detached",
    ],
)
def test_reentrant_outputs(backend: Backend, trace: Trace) -> None:
    """Every output of a reentrant checkpoint requires grad if an input does, even if it was detached inside.

    Integers never require grad.
    """

    def fn(a, b):
        return backend.detach(b * 3), a * b, backend.detach(a * 3)

    x, constant = leaf(backend), backend.tensor([2.0, 2.0])
    for inputs in ((constant, x), (x, constant)):
        outputs = backend.call(lambda *given: backend.checkpoint(fn, *given, use_reentrant=True), *inputs)
        trace.expect_value("require grad", [True] * 3, [backend.requires_grad(output) for output in outputs])


@rule(
    "checkpoint.preserve-rng-state",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(33, 35), page("checkpoint", "torch-utils-checkpoint").sentence(3, 6)],
    needs=[*NEEDS, Capability.RANDOM],
    mutants=[
        "checkpoint-preserve-rng-state-set-always",
        "checkpoints-restore-the-random-state-of-the-last",
        "random-state-of-a-checkpoint-restored-once",
        "random-state-restored-before-each-draw",
    ],
)
def test_random_numbers(backend: Backend, trace: Trace) -> None:
    """By default the recomputation of a checkpoint, reentrant or not, draws the random numbers of its forward.

    It stashes and restores the state of the generator; numbers may be drawn in between.
    """
    draw, draws = drawing(backend, trace), drawing(backend, trace, times=2)
    for kind, use_reentrant in KINDS.items():
        backend.checkpoint(draws, leaf(backend), use_reentrant=use_reentrant, preserve_rng_state=False)
        trace.clear()

        def forward(x, use_reentrant=use_reentrant):
            y = backend.checkpoint(draws, x, use_reentrant=use_reentrant)
            return backend.sum(backend.checkpoint(draws, y, use_reentrant=use_reentrant, preserve_rng_state=True))

        backend.manual_seed(7)
        x = leaf(backend)
        loss = backend.call(forward, x)
        backend.rand_like(x)
        backend.backward(loss)

        drawn, again = trace.values("drawn")[:4], trace.values("drawn")[4:]
        trace.expect_value(f"drawn again, {kind}", drawn[2:] + drawn[:2], again)

    trace.clear()
    outputs = backend.checkpoint(lambda x: (draw(x), backend.exp(x)), leaf(backend), use_reentrant=False)
    for output in outputs:  # each backward recomputes
        backend.backward(backend.sum(output))

    first, *again = trace.values("drawn")
    trace.expect_value("drawn by each recomputation", [first] * len(again), again)


@rule(
    "checkpoint.preserve-rng-state.continues",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(33, 35), page("checkpoint", "torch-utils-checkpoint").sentence(3)],
    needs=[*NEEDS, Capability.RANDOM],
    mutants=[
        "recomputation-leaves-the-generator-behind",
        "recomputation-rewinds-the-generator",
        "later-recomputations-leave-the-generator-behind",
    ],
)
def test_generator_continues(backend: Backend, trace: Trace) -> None:
    """The random numbers drawn after a backward through checkpoints are those that follow without the backward.

    The page promises the output of a pass without a checkpoint, also where the numbers of a recomputation would
    have advanced the generator, or where numbers were drawn between the checkpoint and the backward.
    """
    for kind, use_reentrant in KINDS.items():
        one = region(backend, lambda x: x * backend.rand_like(x), use_reentrant=use_reentrant)
        for forward in (one, lambda x, one=one: one(x) + one(x)):
            drawn: list[Any] = []
            for runs in (False, True):
                backend.manual_seed(7)
                x = leaf(backend)
                loss = backend.call(forward, x)
                backend.rand_like(x)
                if runs:
                    backend.backward(loss)
                drawn.append(backend.tolist(backend.rand_like(x)))

            trace.expect_value(f"next numbers, {kind}", *drawn)


@rule(
    "checkpoint.preserve-rng-state.off",
    level=Level.MAY,
    sources=[CHECKPOINT.sentence(33), page("checkpoint", "torch-utils-checkpoint").sentence(5)],
    needs=[*NEEDS, Capability.RANDOM],
    mutants=["checkpoint-preserve-rng-state-ignored"],
)
def test_random_numbers_off(backend: Backend, trace: Trace) -> None:
    """With preserve_rng_state=False the recomputation of a checkpoint may draw other random numbers than its forward.

    The docstring says that a mode in which functions are compiled ignores the option.
    """
    for kind, use_reentrant in 2 * [*KINDS.items()]:
        trace.clear()
        forward = region(backend, drawing(backend, trace), use_reentrant=use_reentrant, preserve_rng_state=False)
        backend.backward(backend.call(forward, leaf(backend)))

        first, again = trace.values("drawn")
        trace.expect_value(f"same numbers, {kind}", expected=False, observed=first == again)


@rule(
    "checkpoint.autocast",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the state of autocast is stashed and restored, else dtypes would differ in the recomputation")],
    needs=[*NEEDS, Capability.AUTOCAST],
    mutants=["recomputation-without-autocast", "recomputation-finds-autocast-of-the-latest"],
)
def test_autocast(backend: Backend, trace: Trace) -> None:
    """The recomputation of a checkpoint, reentrant or not, runs with autocast on if its forward did, and only then."""

    def fn(x):
        trace.log("enabled", backend.is_autocast_enabled())
        return x * x

    for use_reentrant in KINDS.values():
        forward, losses = region(backend, fn, use_reentrant=use_reentrant), []
        for enabled in (True, False):
            with backend.autocast() if enabled else nullcontext():
                losses.append(backend.call(forward, leaf(backend)))
            trace.expect(("enabled", enabled))
        for enabled, loss in zip((True, False), losses, strict=True):
            with nullcontext() if enabled else backend.autocast():
                backend.backward(loss)
            trace.expect(("enabled", enabled))


@rule(
    "checkpoint.reentrant.options",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[CHECKPOINT, observed("an error says that the option is for the other kind")],
    needs=[*NEEDS, Capability.CHECKPOINT_DEBUG],
    mutants=["context-fn-of-a-reentrant-checkpoint-ignored"],
)
def test_options_of_the_other_kind(backend: Backend, trace: Trace) -> None:
    """A reentrant checkpoint with context_fn, with debug or with keyword arguments of its function is an error."""
    options: list[dict[str, Any]] = [{"context_fn": lambda: (None, None)}, {"debug": True}, {"factor": 2}]
    for how in options:
        with trace.raises(ErrorKind.CHECKPOINT_OPTION):
            backend.checkpoint(lambda x, factor=1: x * factor, leaf(backend), use_reentrant=True, **how)


@rule(
    "checkpoint.nonreentrant.nothing-saved",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[CHECKPOINT, observed("a recomputation starts when a saved tensor is read")],
    needs=WITH_OPTIONS,
    mutants=["checkpoint-use-reentrant-always-true"],
)
def test_nothing_saved(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint whose function saves no tensor is not recomputed, with early stop or without."""

    def fn(x):
        trace.log("run")
        return x + x

    for how in ({}, {"early_stop": False}):
        x = leaf(backend)
        backend.backward(backend.call(region(backend, fn, use_reentrant=False, **how), x))

        trace.expect("run")
        trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


def _two_parts(backend: Backend, trace: Trace) -> Any:
    def fn(x: Any) -> Any:
        trace.log("run")
        return x * x, backend.exp(x)

    return lambda x: backend.checkpoint(fn, x, use_reentrant=False)


@rule(
    "checkpoint.group",
    level=Level.MUST,
    sources=[GROUP.sentence(1)],
    needs=[*NEEDS, Capability.GRAPH_EXEC_GROUP, Capability.AUTOGRAD_GRAD],
    mutants=[
        "graph-exec-group-ignored",
        "graph-exec-group-forgets-when-it-is-left",
        "autograd-grad-in-a-group-recomputes-for-itself",
    ],
)
def test_group(backend: Backend, trace: Trace) -> None:
    """Inside one GraphExecGroup a non-reentrant checkpoint is recomputed once for all backward passes.

    The docstring says so of all that is under the same instance, which can be entered again.
    """
    x = backend.tensor([0.0, 0.0], requires_grad=True)
    checkpoints = [backend.call(_two_parts(backend, trace), x) for _ in range(2)]
    group = backend.graph_exec_group()
    for parts in zip(*checkpoints, strict=True):
        with group:
            for part in parts:
                backend.backward(backend.sum(part))

    trace.expect("run", "run", "run", "run")
    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))

    first, second = backend.call(_two_parts(backend, trace), x)
    with backend.graph_exec_group():
        grads = [backend.grad(backend.sum(part), [x])[0] for part in (first, second)]

    trace.expect("run", "run")
    trace.expect_value("gradients of two autograd.grad", [[0.0, 0.0], [1.0, 1.0]], grads)


@rule(
    "checkpoint.group.own",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[GROUP, observed("each group has a recomputation of its own, which ends with it")],
    needs=[*NEEDS, Capability.GRAPH_EXEC_GROUP, Capability.RETAIN_GRAPH],
    mutants=["graph-exec-groups-share"],
)
def test_groups(backend: Backend, trace: Trace) -> None:
    """Each GraphExecGroup recomputes for itself: what one group recomputed is not used in another, nor outside."""
    x = backend.tensor([0.0, 0.0], requires_grad=True)
    _, second = backend.call(_two_parts(backend, trace), x)
    loss = backend.sum(second)
    for _ in range(2):
        with backend.graph_exec_group():
            backend.backward(loss, retain_graph=True)
    backend.backward(loss)

    trace.expect("run", "run", "run", "run")
    trace.expect_value("x.grad", [3.0, 3.0], backend.grad_of(x))


@rule(
    "checkpoint.group.reentrant",
    level=Level.MUST,
    sources=[GROUP.sentence(4)],
    needs=[*NEEDS, Capability.GRAPH_EXEC_GROUP, Capability.RETAIN_GRAPH],
    mutants=["checkpoint-use-reentrant-always-false", "checkpoints-in-a-group-are-not-reentrant"],
)
def test_group_of_reentrant(backend: Backend, trace: Trace) -> None:
    """Inside a GraphExecGroup a reentrant checkpoint is recomputed in each backward, as it is outside."""

    def fn(x):
        trace.log("run")
        return backend.exp(x)

    x, forward = backend.tensor([0.0, 0.0], requires_grad=True), region(backend, fn, use_reentrant=True)
    losses = [backend.call(forward, x)]
    with backend.graph_exec_group():
        losses.append(backend.call(forward, x))
        for loss in losses:
            for retain_graph in (True, False):
                backend.backward(loss, retain_graph=retain_graph)

    trace.expect(*["run"] * 6)
    trace.expect_value("x.grad", [4.0, 4.0], backend.grad_of(x))


@rule(
    "checkpoint.nonreentrant.read-twice",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("an error asks to read ctx.saved_tensors once")],
    needs=[*NEEDS, Capability.CUSTOM_FUNCTION],
    mutants=["checkpoint-recomputes-nothing"],
)
def test_read_twice(backend: Backend, trace: Trace) -> None:
    """A custom Function in a non-reentrant checkpoint whose backward reads its saved tensors twice may be an error."""

    def square(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    function = backend.custom_function(
        square, lambda ctx, grad: grad * ctx.saved_tensors[0] + grad * ctx.saved_tensors[0]
    )
    loss = backend.call(region(backend, function, use_reentrant=False), leaf(backend))

    with trace.raises(ErrorKind.CHECKPOINT_MISMATCH):
        backend.backward(loss)


@rule(
    "checkpoint.nonreentrant.read-outside",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("what was recomputed belongs to the pass, and outside of a pass nothing keeps it")],
    needs=[*NEEDS, Capability.NODES, Capability.SAVED_TENSOR_ACCESS],
    mutants=["checkpoint-recomputes-nothing"],
    except_under={"inside-pass": "no read is outside of a backward"},
)
def test_read_outside(backend: Backend, trace: Trace) -> None:
    """Each read of a non-reentrant checkpoint's saved tensor outside of a backward may recompute it again."""

    def fn(x):
        trace.log("run")
        return backend.exp(x)

    y = backend.call(
        lambda x: backend.checkpoint(fn, x, use_reentrant=False), backend.tensor([0.0], requires_grad=True)
    )
    for _ in range(2):
        trace.expect_value("saved", [[1.0]], backend.saved_tensors(backend.grad_fn(y)))
    backend.backward(backend.sum(y))

    trace.expect("run", "run", "run", "run")


@rule(
    "checkpoint.reentrant.after-error",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the error leaves no state behind")],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    mutants=["refused-checkpoint-refuses-all-later"],
)
def test_after_error(backend: Backend, trace: Trace) -> None:
    """A new reentrant checkpoint has its gradients after autograd.grad through another was an error."""
    forward = region(backend, lambda x: x * x, use_reentrant=True)
    x = leaf(backend)
    loss = backend.call(forward, x)
    with trace.raises(ErrorKind.CHECKPOINT_REENTRANT):
        backend.grad(loss, [x])
    backend.backward(backend.call(forward, x))

    trace.expect_value("x.grad", [2.0, 4.0], backend.grad_of(x))


@rule(
    "checkpoint.nested.freed",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the graph owns all that a checkpoint keeps")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.WEAK_REFERENCES],
    mutants=["hooks-outlive-the-graph"],
)
def test_nested_freed(backend: Backend, trace: Trace) -> None:
    """The graph of nested non-reentrant checkpoints is freed with its output, whether backward ran or not."""

    def outer(x):
        return backend.checkpoint(lambda x: backend.exp(x) * x, x * x, use_reentrant=False)

    for runs in (False, True):
        with without_collector():
            y = backend.call(lambda x: backend.checkpoint(outer, x, use_reentrant=False), leaf(backend))
            backend.register_hook(y, holding(trace, "freed"))
            if runs:
                backend.backward(backend.sum(y))
            trace.log("last reference")
            del y

        trace.expect("last reference", "freed")
