"""Gradient edges as inputs of autograd.grad."""

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule

EDGE = docstring("torch.autograd.graph.get_gradient_edge")
OBJECT = docstring("torch.autograd.graph.GradientEdge")
NEEDS = [Capability.AUTOGRAD_GRAD, Capability.GRADIENT_EDGES]


@rule(
    "gradient-edge.grad-equivalence",
    level=Level.MUST,
    sources=[EDGE],
    needs=[*NEEDS, Capability.MULTI_OUTPUT, Capability.RETAIN_GRAPH],
    mutants=["gradient-edge-of-the-first-output"],
)
def test_same_gradient(backend: Backend, trace: Trace) -> None:
    """autograd.grad returns for a gradient edge what it returns for its tensor: a leaf, or an output of many."""

    def forward(x):
        first, second = backend.split(x * 2, 1)
        return second, backend.sum(first * 3) + backend.sum(second * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    second, loss = backend.call(forward, x)
    tensors = [second, x]
    edges = [backend.get_gradient_edge(tensor) for tensor in tensors]

    trace.expect_value("of tensors", [[5.0], [6.0, 10.0]], backend.grad(loss, tensors, retain_graph=True))
    trace.expect_value("of edges", [[5.0], [6.0, 10.0]], backend.grad(loss, edges))


@rule(
    "gradient-edge.hooks-fire",
    level=Level.MUST,
    sources=[OBJECT, notes("autograd", "backward-hooks-execution")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["hooks-skipped-for-gradient-edges"],
)
def test_hooks(backend: Backend, trace: Trace) -> None:
    """The hooks of a tensor run when its gradient edge is an input of autograd.grad, and what they return counts."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook", lambda grad: grad * 10))
        return y, backend.sum(y * 3)

    y, loss = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))
    grads = backend.grad(loss, [backend.get_gradient_edge(y)])

    trace.expect(("hook", [3.0, 3.0]))
    trace.expect_value("gradient", [[30.0, 30.0]], grads)


@rule(
    "gradient-edge.requires-grad",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that there is no gradient edge of a tensor without gradients")],
    needs=[Capability.GRADIENT_EDGES],
    mutants=["gradient-edge-of-a-constant-is-none"],
)
def test_constant(backend: Backend, trace: Trace) -> None:
    """get_gradient_edge on a tensor that does not require grad is an error."""
    with trace.raises(ErrorKind.NO_GRADIENT):
        backend.get_gradient_edge(backend.tensor([1.0, 2.0]))


@rule(
    "gradient-edge.survives-tensor",
    level=Level.MAY,
    sources=[OBJECT],
    needs=[*NEEDS, Capability.IN_PLACE],
    mutants=["gradient-edge-follows-its-tensor"],
)
def test_stays(backend: Backend, trace: Trace) -> None:
    """A gradient edge taken before an in-place operation may keep referring to the tensor's old value."""

    def forward(x):
        y = x * 2
        edge = backend.get_gradient_edge(y)
        backend.mul_(y, 5)
        return edge, backend.sum(y * 3)

    edge, loss = forward(backend.tensor([1.0, 2.0], requires_grad=True))

    trace.expect_value("gradient", [[15.0, 15.0]], backend.grad(loss, [edge]))
