"""Double backward: gradients that can themselves be differentiated."""

from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Capability, Level, Trace, docstring, rule

METHOD = docstring("torch.Tensor.backward")
BACKWARD = docstring("torch.autograd.backward")
GRAD = docstring("torch.autograd.grad")


def leaf(backend: Backend) -> Any:
    """Make a leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "create-graph.enables-double",
    level=Level.MUST,
    sources=[GRAD.sentence(18), METHOD.sentence(17)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH, Capability.RETAIN_GRAPH],
    mutants=[
        "create-graph-ignored",
        "grad-create-graph-set-always",
        "later-gradients-are-constants",
        "third-derivatives-missing",
        "grad-create-graph-set-by-its-default",
        "gradients-of-a-retained-graph-require-grad",
        "gradients-of-non-leaves-are-constants",
        "saved-outputs-have-no-history",
    ],
)
def test_differentiable(backend: Backend, trace: Trace) -> None:
    """A gradient can be differentiated if it was computed with create_graph=True, and only then."""
    x = leaf(backend)

    def expect_plain(**how: bool) -> None:
        (plain,) = backend.grad(backend.call(lambda x: backend.sum(x * x * x), x), [x], **how)
        trace.expect_value("requires grad without create_graph", expected=False, observed=backend.requires_grad(plain))

    expect_plain()
    expect_plain(create_graph=False)
    expect_plain(retain_graph=True)
    expect_plain(create_graph=False, retain_graph=True)
    w = backend.tensor([3.0, 5.0], requires_grad=True)
    loss = backend.call(lambda w, x: backend.sum(w * 7 + x * x * x), w, x)
    _, first = backend.grad(loss, [w, x], create_graph=True)
    (second,) = backend.grad(backend.sum(first), [x], create_graph=True)
    flags = [backend.requires_grad(first), backend.requires_grad(second)]
    trace.expect_value("require grad with create_graph", [True, True], flags)
    (third,) = backend.grad(backend.sum(second), [x])
    expect_plain()

    trace.expect_value("first derivative", [3.0, 12.0], first)
    trace.expect_value("second derivative", [6.0, 12.0], second)
    trace.expect_value("third derivative", [6.0, 6.0], third)

    y = backend.call(lambda x: x * 2, x)
    (of_y,) = backend.grad(backend.call(lambda y: backend.sum(y * y * y), y), [y], create_graph=True)
    trace.expect_value("second derivative by a non-leaf", [[12.0, 24.0]], backend.grad(backend.sum(of_y), [y]))

    z = backend.tensor([0.0, 0.0], requires_grad=True)
    (of_z,) = backend.grad(backend.call(lambda z: backend.sum(backend.exp(z)), z), [z], create_graph=True)
    trace.expect_value("second derivative of an exponential", [[1.0, 1.0]], backend.grad(backend.sum(of_z), [z]))


@rule(
    "create-graph.backward-differentiable",
    level=Level.MUST,
    sources=[METHOD.sentence(17), BACKWARD.sentence(21)],
    needs=[Capability.BACKWARD_CREATE_GRAPH],
    mutants=[
        "backward-create-graph-ignored",
        "accumulated-gradient-has-no-history",
        "sum-of-gradients-has-no-history",
        "earlier-gradients-become-constants",
    ],
)
def test_accumulated_gradient(backend: Backend, trace: Trace) -> None:
    """The gradient that a backward with create_graph=True accumulates can be differentiated."""
    plain = None, [3.0, 12.0]
    for before, after in (plain, (backend.tensor([10.0, 20.0]), [13.0, 32.0]), plain):
        x = leaf(backend)
        backend.set_grad(x, before)
        with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            backend.backward(backend.call(lambda x: backend.sum(x * x * x), x), create_graph=True)
        first = backend.grad_of(x)
        trace.expect_value("x.grad", after, first)

        backend.set_grad(x, None)  # also breaks the cycle
        backend.backward(backend.sum(first))

        trace.expect_value("second derivative", [6.0, 12.0], backend.grad_of(x))
        trace.expect_value(
            "requires grad, by default", expected=False, observed=backend.requires_grad(backend.grad_of(x))
        )

    x = leaf(backend)
    for _ in range(2):
        with catch_warnings(action="ignore"):
            backend.backward(backend.call(lambda x: backend.sum(x * x * x), x), create_graph=True)
    first = backend.grad_of(x)
    backend.set_grad(x, None)
    backend.backward(backend.sum(first))
    trace.expect_value("second derivative of two passes", [12.0, 24.0], backend.grad_of(x))

    x = leaf(backend)
    backend.backward(backend.call(lambda x: backend.sum(x * x), x), create_graph=False)
    trace.expect_value("requires grad with False", expected=False, observed=backend.requires_grad(backend.grad_of(x)))


@rule(
    "create-graph.backward-differentiable.non-leaf",
    level=Level.MUST,
    sources=[METHOD.sentence(17, 19), BACKWARD.sentence(21, 23), docstring("torch.Tensor.retain_grad").sentence(2)],
    needs=[Capability.BACKWARD_CREATE_GRAPH, Capability.BACKWARD_INPUTS, Capability.RETAIN_GRAD],
    mutants=[
        "non-leaf-inputs-accumulate-constants",
        "later-non-leaf-inputs-accumulate-constants",
        "retained-gradients-are-constants",
    ],
)
def test_gradient_of_a_non_leaf(backend: Backend, trace: Trace) -> None:
    """What a backward with create_graph=True puts into the .grad of a non-leaf can be differentiated.

    The non-leaf is among its inputs, or retains its gradient.
    """
    for inputs in ("y", "xy", "yx", None):
        x = leaf(backend)
        y = backend.call(lambda x: x * 2, x)
        if inputs is None:
            backend.retain_grad(y)
        with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            how = {"inputs": [x if name == "x" else y for name in inputs]} if inputs else {}
            backend.backward(backend.call(lambda y: backend.sum(y * y * y), y), create_graph=True, **how)
        first = backend.grad_of(y)
        trace.expect_value("y.grad", [12.0, 48.0], first)
        backend.set_grad(y, None)  # also breaks the cycle
        backend.set_grad(x, None)

        backend.backward(backend.sum(first))

        trace.expect_value("second derivative", [24.0, 48.0], backend.grad_of(x))


@rule(
    "create-graph.grad-outputs",
    level=Level.MUST,
    sources=[GRAD.sentence(2, 18)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH, Capability.SEED_GRADIENT],
    mutants=["grad-outputs-are-constants", "later-grad-outputs-are-constants"],
)
def test_grad_outputs(backend: Backend, trace: Trace) -> None:
    """A gradient computed with create_graph=True can be differentiated with respect to grad_outputs.

    It is a product with grad_outputs, so the graph of the derivative contains them.
    """
    for times in (1, 3):
        x = leaf(backend)
        outputs = [backend.call(lambda x, nr=nr: x * x * nr, x) for nr in range(1, times + 1)]
        seeds = [backend.tensor([1.0, 5.0], requires_grad=True) for _ in outputs]
        (first,) = backend.grad(outputs, [x], grad_outputs=seeds, create_graph=True)
        total = sum(range(1, times + 1))
        trace.expect_value("gradient", [2.0 * total, 20.0 * total], first)

        found = backend.grad(backend.sum(first), [*seeds, x])

        expected = [[2.0 * nr, 4.0 * nr] for nr in range(1, times + 1)]
        trace.expect_value("derivatives by grad_outputs", expected, found[:-1])
        trace.expect_value("derivative by the input", [2.0 * total, 10.0 * total], found[-1])


@rule(
    "create-graph.gradient",
    level=Level.MUST,
    sources=[METHOD.sentence(11, 17)],
    needs=[Capability.BACKWARD_CREATE_GRAPH, Capability.SEED_GRADIENT],
    mutants=["gradients-of-roots-are-constants"],
)
def test_gradient(backend: Backend, trace: Trace) -> None:
    """What a backward with create_graph=True accumulates can be differentiated with respect to its gradient argument.

    It is a product with that gradient, so the graph of the derivative contains it.
    """
    x, seed = leaf(backend), backend.tensor([1.0, 5.0], requires_grad=True)
    with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
        backend.backward(backend.call(lambda x: x * x, x), seed, create_graph=True)
    first = backend.grad_of(x)
    trace.expect_value("x.grad", [2.0, 20.0], first)
    backend.set_grad(x, None)  # also breaks the cycle

    backend.backward(backend.sum(first))

    trace.expect_value("derivatives", [[2.0, 4.0], [2.0, 10.0]], [backend.grad_of(seed), backend.grad_of(x)])
