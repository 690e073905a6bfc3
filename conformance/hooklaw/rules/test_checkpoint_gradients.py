"""The gradients of non-reentrant checkpoints in each kind of backward, and those of these gradients."""

from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, Level, Trace, observed, rule
from hooklaw.rules.checkpoints import CHECKPOINT, NEEDS, leaf, region


@rule(
    "checkpoint.nonreentrant.grads",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(20, 40)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.BACKWARD_INPUTS],
    mutants=[
        "checkpoint-use-reentrant-always-true",
        "checkpoint-cut-off-in-double-backward",
        "captured-leaf-alone-has-no-gradient",
        "checkpoints-of-one-function-use-the-last-inputs",
        "backward-through-a-checkpoint-reaches-its-first-input-alone",
        "autograd-grad-through-a-checkpoint-starts-at-its-first-output-alone",
        "backward-input-that-is-checkpoint-lost",
        "inputs-of-a-checkpoint-that-are-not-leaves-have-no-gradient",
        "checkpoint-takes-captured-products-for-constants",
    ],
)
def test_every_kind_of_backward(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint has the right gradients in autograd.grad and in a backward with inputs too."""
    x, weight = leaf(backend), leaf(backend, 3.0, 5.0)

    def fn(x):
        return x * x * weight

    def forward(x):
        first, second = (backend.checkpoint(fn, value, use_reentrant=False) for value in (x, x * 2))
        return backend.sum(first + second)

    for inputs, expected in (([x, weight], [[30.0, 100.0], [5.0, 20.0]]), ([weight], [[5.0, 20.0]])):
        grads = backend.grad(backend.call(forward, x), inputs)
        trace.expect_value(f"autograd.grad, {len(inputs)} inputs", expected, grads)
    grads = backend.grad([backend.call(forward, x), backend.call(forward, x)], [x, weight])
    trace.expect_value("autograd.grad, 2 outputs", [[60.0, 200.0], [10.0, 40.0]], grads)
    for inputs, expected in (
        ([x], [[30.0, 100.0], None]),
        ([weight], [[30.0, 100.0], [5.0, 20.0]]),
        ([x, weight], [[60.0, 200.0], [10.0, 40.0]]),
        (None, [[90.0, 300.0], [15.0, 60.0]]),
    ):
        backend.backward(backend.call(forward, x), inputs=inputs)
        gradients = [backend.grad_of(x), backend.grad_of(weight)]
        trace.expect_value(f"gradients after {expected[0]}", expected, gradients)

    inputs = [backend.call(lambda x: x * 2, x) for _ in range(2)]
    one, other = (
        backend.call(lambda x: backend.checkpoint(lambda x: x * x, x, use_reentrant=False), x) for x in inputs
    )
    loss = backend.call(lambda y: backend.sum(y * 3), one)
    trace.expect_value("gradient of an output", [3.0, 3.0], backend.grad(loss, [one], retain_graph=True)[0])
    trace.expect_value("gradient of an input", [12.0, 24.0], backend.grad(loss, [inputs[0]])[0])
    backend.backward(backend.call(lambda y: backend.sum(y * 5), other), inputs=[inputs[1], other])
    gradients = [backend.grad_of(inputs[1]), backend.grad_of(other)]
    trace.expect_value("input.grad and output.grad", [[20.0, 40.0], [5.0, 5.0]], gradients)

    def captures(x):
        captured = x * 3
        return backend.sum(backend.checkpoint(lambda x: x * captured, x, use_reentrant=False))

    grads = backend.grad(backend.call(captures, x), [x])
    trace.expect_value("gradient through a captured result", [[6.0, 12.0]], grads)


@rule(
    "checkpoint.nonreentrant.create-graph",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(20)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=[
        "checkpoint-use-reentrant-always-true",
        "checkpoint-cut-off-in-double-backward",
        "gradients-that-reach-a-checkpoint-are-constants",
        "captured-leaf-lost-in-double-backward",
        "gradients-of-captured-leaves-are-constants",
    ],
)
def test_create_graph(backend: Backend, trace: Trace) -> None:
    """A gradient through a non-reentrant checkpoint can itself be differentiated."""
    x, weight = leaf(backend), leaf(backend, 3.0, 5.0)

    def forward(x):
        return backend.sum(backend.checkpoint(lambda x: x * x * x * weight, x, use_reentrant=False) * x)

    (first,) = backend.grad(backend.call(forward, x), [x], create_graph=True)
    trace.expect_value("first derivative", [12.0, 160.0], first)
    second = backend.grad(backend.sum(first), [x, weight])
    trace.expect_value("second derivatives", [[36.0, 240.0], [4.0, 32.0]], second)
    (of_weight,) = backend.grad(backend.call(forward, x), [weight], create_graph=True)
    trace.expect_value("weight's requires grad", True, backend.requires_grad(of_weight))  # noqa: FBT003
    trace.expect_value("weight's second derivative", [[4.0, 32.0]], backend.grad(backend.sum(of_weight), [x]))


@rule(
    "checkpoint.nonreentrant.backward-create-graph",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(20)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.BACKWARD_CREATE_GRAPH],
    mutants=[
        "backward-with-a-checkpoint-accumulates-constants",
        "gradients-accumulated-for-captured-leaves-are-constants",
    ],
)
def test_backward_create_graph(backend: Backend, trace: Trace) -> None:
    """What a backward that creates a graph accumulates through a non-reentrant checkpoint can be differentiated."""
    x, weight = leaf(backend), leaf(backend, 3.0, 5.0)
    forward = region(backend, lambda x: x * x * x * weight, use_reentrant=False)

    with catch_warnings(action="ignore"):  # torch warns of the cycle
        backend.backward(backend.call(forward, x), create_graph=True)
    first, of_weight = backend.grad_of(x), backend.grad_of(weight)
    trace.expect_value("gradients", [[9.0, 60.0], [1.0, 8.0]], [first, of_weight])
    trace.expect_value("require grad", [True, True], [backend.requires_grad(first), backend.requires_grad(of_weight)])
    second = backend.grad(backend.sum(first), [x, weight], retain_graph=True)
    trace.expect_value("second derivatives", [[18.0, 60.0], [3.0, 12.0]], second)
    trace.expect_value("weight's second derivative", [[3.0, 12.0]], backend.grad(backend.sum(of_weight), [x]))


@rule(
    "checkpoint.nonreentrant.roots",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(20)],
    needs=[*NEEDS, Capability.SEVERAL_ROOTS, Capability.GRADIENT_EDGES, Capability.EDGE_ROOTS],
    mutants=[
        "backward-of-several-roots-starts-at-the-first-checkpoint-alone",
        "backward-from-an-edge-does-not-reach-through-checkpoints",
        "of-several-roots-in-one-checkpoint-the-first-counts",
        "several-roots-of-checkpoints-do-not-reach-captured-leaves",
        "backward-from-an-edge-does-not-reach-captured-leaves",
    ],
)
def test_roots(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint has the right gradients in a backward from several roots, and from a gradient edge."""
    x, weight = leaf(backend), leaf(backend, 1.0, 1.0)
    forward = region(backend, lambda x: x * x * x * weight, use_reentrant=False)

    backend.backward_from_all([backend.call(forward, x), backend.call(forward, x)])
    gradients = [backend.grad_of(x), backend.grad_of(weight)]
    trace.expect_value("gradients, two roots", [[6.0, 24.0], [2.0, 16.0]], gradients)
    edge = backend.get_gradient_edge(backend.call(forward, x))
    backend.backward_from_edge(edge, backend.tensor(1.0))
    gradients = [backend.grad_of(x), backend.grad_of(weight)]
    trace.expect_value("gradients, and an edge", [[9.0, 36.0], [3.0, 24.0]], gradients)

    def outputs(x):
        return backend.checkpoint(lambda x: (x * x, x * x * x), x, use_reentrant=False)

    first, second = backend.call(outputs, x)
    backend.backward_from_all([backend.sum(first), backend.sum(second)])
    trace.expect_value("x.grad, and both outputs of one", [14.0, 52.0], backend.grad_of(x))


@rule(
    "checkpoint.nonreentrant.batched",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(20)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.SEED_GRADIENT, Capability.BATCHED_GRADIENTS],
    mutants=["batches-do-not-reach-through-checkpoints", "batches-do-not-reach-captured-leaves"],
)
def test_batched(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint has the right gradients in an autograd.grad with is_grads_batched=True."""
    x, weight = leaf(backend), leaf(backend, 1.0, 1.0)
    y = backend.call(lambda x: backend.checkpoint(lambda x: x * x * x * weight, x, use_reentrant=False), x)
    batch = backend.tensor([[1.0, 0.0], [0.0, 1.0], [10.0, 1.0]])
    of_x, of_weight = backend.grad(y, [x, weight], batch, is_grads_batched=True)

    trace.expect_value("gradients of x", [[3.0, 0.0], [0.0, 12.0], [30.0, 12.0]], of_x)
    trace.expect_value("gradients of weight", [[1.0, 0.0], [0.0, 8.0], [10.0, 8.0]], of_weight)


@rule(
    "checkpoint.nonreentrant.backward-in-hook",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("each pass recomputes for itself, also one inside another")],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.NODES, Capability.NODE_HOOKS, Capability.RETAIN_GRAPH],
    mutants=["checkpoint-is-recomputed-by-the-outer-pass-only", "backward-in-a-pass-that-recomputed-lost"],
)
def test_backward_in_hook(backend: Backend, trace: Trace) -> None:
    """A hook on a Node of a non-reentrant checkpoint may run a pass through the same checkpoint, which recomputes it.

    Each pass recomputes for itself.
    """

    def fn(x):
        trace.log("run")
        y = x * x
        return y * y, y * x

    x = leaf(backend)
    first, second = backend.call(lambda x: backend.checkpoint(fn, x, use_reentrant=False), x)
    inner = backend.sum(second)

    def hook(*_: Any) -> None:
        trace.log("inner", backend.grad(inner, [x], retain_graph=True))
        backend.backward(inner, retain_graph=True)

    backend.node_register_hook(backend.grad_fn(first), hook)
    backend.backward(backend.sum(first))

    trace.expect_in_any_order(*["run"] * 4, "inner")
    trace.expect_value("gradients of the inner pass", [[[3.0, 12.0]]], trace.values("inner"))
    trace.expect_value("x.grad", [7.0, 44.0], backend.grad_of(x))
