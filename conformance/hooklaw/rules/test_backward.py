"""The arguments of backward and autograd.grad: root, gradient, inputs, unused inputs, create_graph."""

from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule

METHOD = docstring("torch.Tensor.backward")
BACKWARD = docstring("torch.autograd.backward")
GRAD = docstring("torch.autograd.grad")


def leaf(backend: Backend) -> Any:
    """Make a leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "backward.inputs",
    level=Level.MUST,
    sources=[METHOD, BACKWARD],
    needs=[Capability.BACKWARD_INPUTS],
    mutants=["backward-inputs-ignored"],
)
def test_inputs(backend: Backend, trace: Trace) -> None:
    """A backward with inputs accumulates gradients into these inputs, and into no other leaf."""
    a, b = leaf(backend), leaf(backend)

    backend.backward(backend.call(lambda a, b: backend.sum(a * b), a, b), inputs=[a])

    trace.expect_value("a.grad", [1.0, 2.0], backend.grad_of(a))
    trace.expect_value("b.grad", None, backend.grad_of(b))


@rule(
    "backward.inputs.nonleaf",
    level=Level.MUST,
    sources=[METHOD, BACKWARD],
    needs=[Capability.BACKWARD_INPUTS],
    mutants=["backward-inputs-ignored", "backward-inputs-take-leaves-alone"],
)
def test_inputs_that_are_no_leaves(backend: Backend, trace: Trace) -> None:
    """A non-leaf in the inputs of backward gets a .grad too, without retain_grad."""

    def forward(x):
        y = x * 2
        return y, backend.sum(y * 3)

    x = leaf(backend)
    y, loss = backend.call(forward, x)
    backend.backward(loss, inputs=[y])

    trace.expect_value("y.grad", [3.0, 3.0], backend.grad_of(y))
    trace.expect_value("x.grad", None, backend.grad_of(x))


@rule(
    "backward.inputs.empty",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("inputs that are given and empty are an error")],
    needs=[Capability.BACKWARD_INPUTS],
    mutants=["backward-inputs-ignored"],
)
def test_no_inputs(backend: Backend, trace: Trace) -> None:
    """A backward with an empty list of inputs may be an error."""
    loss = backend.call(lambda x: backend.sum(x * 2), leaf(backend))

    with trace.raises(ErrorKind.NO_INPUTS):
        backend.backward(loss, inputs=[])


@rule(
    "backward.inputs.retain-grad-combo",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a retained gradient is not counted twice where the tensor is an input of backward")],
    needs=[Capability.BACKWARD_INPUTS, Capability.RETAIN_GRAD],
    mutants=["backward-inputs-count-retained-gradients-twice"],
)
def test_input_that_retains(backend: Backend, trace: Trace) -> None:
    """A non-leaf input of backward that also retains its gradient may get the gradient once, not twice."""

    def forward(x):
        y = x * 2
        return y, backend.sum(y * 3)

    y, loss = backend.call(forward, leaf(backend))
    backend.retain_grad(y)
    backend.backward(loss, inputs=[y])

    trace.expect_value("y.grad", [3.0, 3.0], backend.grad_of(y))


@rule(
    "backward.non-scalar-needs-gradient",
    level=Level.MUST,
    sources=[METHOD, BACKWARD],
    mutants=["gradient-of-a-root-is-ones"],
)
def test_gradient_needed(backend: Backend, trace: Trace) -> None:
    """A backward from a tensor of more than one element is an error without its gradient."""
    y = backend.call(lambda x: x * 2, leaf(backend))

    with trace.raises(ErrorKind.ROOT_GRADIENT):
        backend.backward(y)


@rule(
    "backward.gradient-shape",
    level=Level.MUST,
    sources=[METHOD, BACKWARD],
    needs=[Capability.SEED_GRADIENT],
    mutants=["gradient-of-a-root-broadcast"],
)
def test_gradient_of_another_shape(backend: Backend, trace: Trace) -> None:
    """A gradient for the root that does not have the root's shape is an error."""
    y = backend.call(lambda x: x * 2, leaf(backend))

    with trace.raises(ErrorKind.ROOT_GRADIENT):
        backend.backward(y, backend.tensor([1.0]))


@rule(
    "backward.gradient-vjp",
    level=Level.MUST,
    sources=[BACKWARD],
    needs=[Capability.SEED_GRADIENT],
    mutants=["gradient-of-a-root-is-ones"],
)
def test_product_with_the_jacobian(backend: Backend, trace: Trace) -> None:
    """The gradients are the product of the root's gradient and the Jacobian."""
    x = leaf(backend)
    y = backend.call(lambda x: x * x, x)

    backend.backward(y, backend.tensor([10.0, 100.0]))

    trace.expect_value("x.grad", [20.0, 400.0], backend.grad_of(x))


@rule(
    "backward.no-grad-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a backward from a tensor that does not require grad is an error")],
    mutants=["backward-from-a-constant-does-nothing"],
)
def test_constant_root(backend: Backend, trace: Trace) -> None:
    """A backward from a tensor that does not require grad is an error."""
    constant = backend.call(lambda x: backend.sum(x * 2), backend.tensor([1.0, 2.0]))

    with trace.raises(ErrorKind.NO_GRADIENT):
        backend.backward(constant)


@rule(
    "grad.unused-error",
    level=Level.MUST,
    sources=[GRAD],
    needs=[Capability.AUTOGRAD_GRAD],
    mutants=["unused-inputs-always-allowed"],
)
def test_unused_input(backend: Backend, trace: Trace) -> None:
    """An input that the outputs do not depend on is an error for autograd.grad."""
    x, unused = leaf(backend), leaf(backend)
    loss = backend.call(lambda x: backend.sum(x * 2), x)

    with trace.raises(ErrorKind.UNUSED_INPUT):
        backend.grad(loss, [x, unused])


@rule(
    "grad.unused-error.allowed",
    level=Level.MUST,
    sources=[GRAD],
    needs=[Capability.AUTOGRAD_GRAD],
    mutants=["unused-inputs-get-zeros", "unused-inputs-never-allowed"],
)
def test_unused_input_allowed(backend: Backend, trace: Trace) -> None:
    """With allow_unused=True the gradient of an unused input is None, and the other gradients do not change."""
    x, unused = leaf(backend), leaf(backend)
    loss = backend.call(lambda x: backend.sum(x * 2), x)

    grads = backend.grad(loss, [x, unused], allow_unused=True)

    trace.expect_value("gradients", [[2.0, 2.0], None], grads)


@rule(
    "grad.unused-error.materialized",
    level=Level.MUST,
    sources=[GRAD],
    needs=[Capability.AUTOGRAD_GRAD, Capability.MATERIALIZE_GRADS],
    mutants=["materialize-grads-ignored"],
)
def test_unused_input_materialized(backend: Backend, trace: Trace) -> None:
    """With materialize_grads=True the gradient of an unused input is zeros of its shape."""
    x, unused = leaf(backend), backend.tensor([[1.0], [2.0]], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(x * 2), x)

    grads = backend.grad(loss, [x, unused], materialize_grads=True)

    trace.expect_value("gradients", [[2.0, 2.0], [[0.0], [0.0]]], grads)


@rule(
    "grad.unused.conflict",
    level=Level.MUST,
    sources=[GRAD],
    needs=[Capability.AUTOGRAD_GRAD, Capability.MATERIALIZE_GRADS],
    mutants=["materialize-grads-allows-unused-inputs"],
)
def test_conflict(backend: Backend, trace: Trace) -> None:
    """materialize_grads=True together with allow_unused=False is an error."""
    x = leaf(backend)
    loss = backend.call(lambda x: backend.sum(x * 2), x)

    with trace.raises(ErrorKind.UNUSED_CONFLICT):
        backend.grad(loss, [x], materialize_grads=True, allow_unused=False)


@rule(
    "grad.hooks.unused-input",
    level=Level.MAY,
    sources=[GRAD],
    needs=[Capability.AUTOGRAD_GRAD, Capability.TENSOR_HOOKS],
    mutants=["hooks-of-unused-inputs-run"],
)
def test_hooks_of_an_unused_input(backend: Backend, trace: Trace) -> None:
    """The hooks of an input that the outputs do not depend on may be left out."""
    x, unused = leaf(backend), leaf(backend)
    backend.register_hook(unused, trace.saw("unused"))
    loss = backend.call(lambda x: backend.sum(x * 2), x)

    backend.grad(loss, [x, unused], allow_unused=True)

    trace.expect()


@rule(
    "create-graph.enables-double",
    level=Level.MUST,
    sources=[GRAD, METHOD],
    needs=[Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["create-graph-ignored", "create-graph-always"],
)
def test_differentiable(backend: Backend, trace: Trace) -> None:
    """A gradient can be differentiated if it was computed with create_graph=True, and only then."""
    x = leaf(backend)

    (plain,) = backend.grad(backend.call(lambda x: backend.sum(x * x * x), x), [x])
    trace.expect_value("requires grad without create_graph", expected=False, observed=backend.requires_grad(plain))
    (first,) = backend.grad(backend.call(lambda x: backend.sum(x * x * x), x), [x], create_graph=True)
    trace.expect_value("requires grad with create_graph", expected=True, observed=backend.requires_grad(first))
    (second,) = backend.grad(backend.sum(first), [x])

    trace.expect_value("first derivative", [3.0, 12.0], first)
    trace.expect_value("second derivative", [6.0, 12.0], second)


@rule(
    "create-graph.backward-cycle",
    level=Level.MAY,
    sources=[BACKWARD],
    needs=[Capability.BACKWARD_CREATE_GRAPH],
    mutants=["backward-creates-no-graph"],
)
def test_accumulated_with_a_graph(backend: Backend, trace: Trace) -> None:
    """The gradient that a backward with create_graph accumulates may have a history that refers back to its leaf."""
    x = leaf(backend)

    backend.backward(backend.call(lambda x: backend.sum(x * x), x), create_graph=True)
    trace.expect_value("requires grad", expected=True, observed=backend.requires_grad(backend.grad_of(x)))

    backend.set_grad(x, None)  # breaks the cycle


@rule(
    "reentrant.backward-in-hook",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a hook may run a backward of its own")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["backward-inside-a-hook-refused"],
)
def test_backward_in_a_hook(backend: Backend, trace: Trace) -> None:
    """A hook may run backward through another graph, whose gradients are complete when the hook returns."""

    def run(_grad: object) -> None:
        backend.backward(inner)
        trace.log("inner", backend.grad_of(other))

    x, other = leaf(backend), leaf(backend)
    inner = backend.call(lambda x: backend.sum(x * 7), other)
    backend.register_hook(x, run)
    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

    trace.expect(("inner", [7.0, 7.0]))
    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "detect-anomaly.hooks",
    level=Level.MAY,
    sources=[docstring("torch.autograd.detect_anomaly")],
    needs=[Capability.ANOMALY, Capability.TENSOR_HOOKS],
    mutants=["anomalies-undetected"],
)
def test_anomaly(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection tensor hooks run, and a NaN that a hook returns may be reported by the next Node."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook", lambda grad: grad * float("nan")))
        return backend.sum(y)

    with backend.detect_anomaly():
        loss = backend.call(forward, leaf(backend))
        with trace.raises(ErrorKind.NOT_A_NUMBER):
            backend.backward(loss)

    trace.expect(("hook", [1.0, 1.0]))
