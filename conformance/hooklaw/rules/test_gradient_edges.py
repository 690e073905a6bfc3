"""Gradient edges: as inputs and outputs of autograd.grad, as roots and inputs of backward."""

from itertools import product

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import NUMBERS

EDGE = docstring("torch.autograd.graph.get_gradient_edge")
OBJECT = docstring("torch.autograd.graph.GradientEdge")
BACKWARD = docstring("torch.autograd.backward")
FIRED = notes("autograd", "whether-a-particular-hook-will-be-fired")
NEEDS = [Capability.AUTOGRAD_GRAD, Capability.GRADIENT_EDGES]


@rule(
    "gradient-edge.grad-equivalence",
    level=Level.MUST,
    sources=[EDGE.sentence(2)],
    needs=[*NEEDS, Capability.MULTI_OUTPUT, Capability.RETAIN_GRAPH],
    mutants=[
        "gradient-edge-of-the-first-output",
        "autograd-grad-of-edges-accumulates",
        "gradient-edges-among-inputs-are-those-of-last-outputs",
        "unused-edges-never-allowed",
        "gradients-of-edges-come-after-those-of-tensors",
    ],
)
def test_same_gradient(backend: Backend, trace: Trace) -> None:
    """autograd.grad returns for a gradient edge what it returns for its tensor: a leaf, or an output of many."""

    def forward(x):
        first, second = backend.split(x * 2, 1)
        return first, second, backend.sum(first * 3) + backend.sum(second * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    first, second, loss = backend.call(forward, x)
    tensors = [second, x, first]
    edges = [backend.get_gradient_edge(tensor) for tensor in tensors]

    for inputs in (tensors, edges, [*edges[:1], *tensors[1:]], [*tensors[:1], *edges[1:]]):
        grads = backend.grad(loss, inputs, retain_graph=True)
        trace.expect_value("of tensors, or their edges", [[5.0], [6.0, 10.0], [3.0]], grads)
    trace.expect_value("x.grad", None, backend.grad_of(x))

    unused = backend.tensor([1.0, 2.0], requires_grad=True)
    for of in (lambda tensor: tensor, backend.get_gradient_edge):
        loss = backend.call(lambda x: backend.sum(x * 3), x)
        grads = backend.grad(loss, [of(unused), of(x)], allow_unused=True)
        trace.expect_value("of an unused tensor, or its edge", [None, [3.0, 3.0]], grads)


@rule(
    "gradient-edge.grad-equivalence.create-graph",
    level=Level.MUST,
    sources=[EDGE.sentence(2), docstring("torch.autograd.grad").sentence(18)],
    needs=[*NEEDS, Capability.CREATE_GRAPH],
    mutants=["gradients-of-edges-are-constants", "gradients-of-edges-of-non-leaves-are-constants"],
)
def test_differentiable(backend: Backend, trace: Trace) -> None:
    """What autograd.grad with create_graph=True returns for a gradient edge can be differentiated."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    edges = [backend.get_gradient_edge(tensor) for tensor in (x, y)]
    for edge, expected in zip(edges, ([48.0, 96.0], [24.0, 48.0]), strict=True):
        loss = backend.call(lambda y: backend.sum(y * y * y), y)
        (first,) = backend.grad(loss, [edge], create_graph=True)

        trace.expect_value("derivative", [expected], backend.grad(backend.sum(first), [x], retain_graph=True))


@rule(
    "gradient-edge.grad-equivalence.in-place",
    level=Level.MUST,
    sources=[EDGE.sentence(2)],
    needs=[*NEEDS, Capability.IN_PLACE],
    mutants=["gradient-edge-of-the-first-time"],
)
def test_after_a_change(backend: Backend, trace: Trace) -> None:
    """The gradient edge of a tensor that was changed in place is that of its new value, also if it had one before."""
    for had_one in (False, True):
        y = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))
        if had_one:
            backend.get_gradient_edge(y)
        z = backend.call(lambda y: backend.mul_(y, 5), y)
        edge = backend.get_gradient_edge(z)

        trace.expect_value("gradient", [[3.0, 3.0]], backend.grad(backend.sum(z * 3), [edge]))


@rule(
    "gradient-edge.hooks-fire",
    level=Level.MUST,
    sources=[EDGE.sentence(2), FIRED.sentence(1, 3), docstring("torch.Tensor.register_hook").sentence(4)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=[
        "hooks-skipped-for-gradient-edges",
        "hooks-of-leaves-skipped-for-gradient-edges",
        "hooks-of-later-edges-skipped",
    ],
)
def test_hooks(backend: Backend, trace: Trace) -> None:
    """The hooks of a tensor run when its gradient edge is an input of autograd.grad, and what they return counts."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook", lambda grad: grad * 10))
        return y, backend.sum(y * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y, loss = backend.call(forward, x)
    grads = backend.grad(loss, [backend.get_gradient_edge(y)])

    trace.expect(("hook", [3.0, 3.0]))
    trace.expect_value("gradient", [[30.0, 30.0]], grads)

    backend.register_hook(x, trace.saw("hook of the leaf", lambda grad: grad * 5))
    w = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(w, trace.saw("hook of another leaf", lambda grad: grad * 7))
    _, loss = backend.call(forward, x)
    root = backend.call(lambda loss, w: loss + backend.sum(w * 2), loss, w)
    grads = backend.grad(root, [backend.get_gradient_edge(tensor) for tensor in (x, w)])

    trace.expect_in_any_order("hook", "hook of the leaf", "hook of another leaf")
    trace.expect_value("gradients of the leaves", [[300.0, 300.0], [14.0, 14.0]], grads)


@rule(
    "gradient-edge.requires-grad",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that there is no gradient edge of a tensor without gradients")],
    needs=[Capability.GRADIENT_EDGES],
    mutants=["gradient-edge-of-a-constant-is-none", "gradient-edge-of-a-computed-constant-is-none"],
)
def test_constant(backend: Backend, trace: Trace) -> None:
    """get_gradient_edge on a tensor that does not require grad is an error."""
    made = backend.tensor([1.0, 2.0])
    detached = backend.detach(backend.tensor([1.0, 2.0], requires_grad=True))
    for constant in (made, detached, backend.call(lambda x: x * 2, made)):
        with trace.raises(ErrorKind.NO_GRADIENT):
            backend.get_gradient_edge(constant)


@rule(
    "gradient-edge.survives-tensor",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[OBJECT, observed("an edge belongs to a Node, which an in-place operation on the tensor leaves in place")],
    needs=[*NEEDS, Capability.IN_PLACE],
    mutants=["gradient-edge-follows-its-tensor"],
)
def test_stays(backend: Backend, trace: Trace) -> None:
    """An edge taken before an in-place operation may keep referring to the gradient of the tensor's old value."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    edge = backend.get_gradient_edge(y)

    def change(y):
        backend.mul_(y, 5)
        return backend.sum(y * 3)

    loss = backend.call(change, y)

    trace.expect_value("gradient", [[15.0, 15.0]], backend.grad(loss, [edge]))


@rule(
    "gradient-edge.backward-root",
    level=Level.MUST,
    sources=[BACKWARD.sentence(14), FIRED.sentence(1)],
    needs=[Capability.GRADIENT_EDGES, Capability.EDGE_ROOTS, Capability.TENSOR_HOOKS, Capability.MULTI_OUTPUT],
    mutants=[
        "backward-from-edges-skips-hooks",
        "backward-from-the-edge-of-the-first-output",
        "backward-from-edges-skips-hooks-of-leaves",
        "backward-from-the-edge-of-the-last-output",
    ],
)
def test_backward_root(backend: Backend, trace: Trace) -> None:
    """A backward from a gradient edge computes the gradients of its tensor, and runs the tensor's hooks."""

    def forward(x):
        first, second = backend.split(x * 2, 1)
        backend.register_hook(second, trace.saw("hook", lambda grad: None if grad is None else grad * 10))
        return first, second

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    first, second = backend.call(forward, x)
    backend.backward_from_edge(backend.get_gradient_edge(second), backend.tensor([3.0]))

    trace.expect(("hook", [3.0]))
    trace.expect_value("x.grad", [0.0, 60.0], backend.grad_of(x))
    backend.set_grad(x, None)
    first, _ = backend.call(lambda x: backend.split(x * 2, 1), x)
    backend.backward_from_edge(backend.get_gradient_edge(first), backend.tensor([4.0]))
    trace.expect_value("x.grad of the first output", [8.0, 0.0], backend.grad_of(x))
    backend.set_grad(x, backend.tensor([0.0, 60.0]))

    backend.register_hook(x, trace.saw("hook of the leaf", lambda grad: grad * 2))
    for after in ([6.0, 68.0], [12.0, 76.0]):
        backend.backward_from_edge(backend.get_gradient_edge(x), backend.tensor([3.0, 4.0]))
        trace.expect(("hook of the leaf", [3.0, 4.0]))
        trace.expect_value("x.grad after a backward from its own edge", after, backend.grad_of(x))

    for numbers in NUMBERS:
        z, given = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        backend.backward_from_edge(backend.get_gradient_edge(backend.call(lambda z: z * 1, z)), given)
        trace.expect_value("z.grad of a gradient that is 0-d, zero or empty", numbers, backend.grad_of(z))


@rule(
    "gradient-edge.backward-root.scalar",
    level=Level.MUST,
    sources=[BACKWARD.sentence(14, 16, 17)],
    needs=[Capability.GRADIENT_EDGES, Capability.EDGE_ROOTS],
    mutants=["backward-from-edges-needs-a-gradient"],
    except_under={"complex64": "the edge of a complex scalar needs a gradient"},
)
def test_scalar_root(backend: Backend, trace: Trace) -> None:
    """A backward from the gradient edge of a tensor of one element needs no gradient."""
    for data, gradient in ((3.0, 6.0), ([3.0], [6.0])):
        x = backend.tensor(data, requires_grad=True)
        backend.backward_from_edge(backend.get_gradient_edge(backend.call(lambda x: x * x, x)))

        trace.expect_value("x.grad", gradient, backend.grad_of(x))


@rule(
    "gradient-edge.backward-inputs",
    level=Level.MUST,
    sources=[BACKWARD.sentence(23, 24)],
    needs=[Capability.GRADIENT_EDGES, Capability.EDGE_ROOTS, Capability.BACKWARD_INPUTS],
    mutants=[
        "edges-among-backward-inputs-ignored",
        "later-edges-among-backward-inputs-ignored",
        "edges-among-backward-inputs-overwrite",
    ],
)
def test_backward_inputs(backend: Backend, trace: Trace) -> None:
    """A backward whose inputs are the gradient edge of a leaf accumulates into this leaf, and into no other."""
    x, w, other = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
    edges = [backend.get_gradient_edge(leaf) for leaf in (x, w)]
    for inputs, of_x, of_w in ((edges[:1], [3.0, 6.0], None), (edges, [6.0, 12.0], [3.0, 6.0])):
        backend.backward(backend.call(lambda x, w, other: backend.sum((x * w + other) * 3), x, w, other), inputs=inputs)

        trace.expect_value("x.grad", of_x, backend.grad_of(x))
        trace.expect_value("w.grad", of_w, backend.grad_of(w))
        trace.expect_value("gradient of the other leaf", None, backend.grad_of(other))


@rule(
    "gradient-edge.backward-inputs.tensors",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("tensors and edges can stand beside each other, though the signature has sequences of either")],
    needs=[Capability.GRADIENT_EDGES, Capability.EDGE_ROOTS, Capability.BACKWARD_INPUTS],
    mutants=["tensors-beside-edges-among-backward-inputs-ignored", "edges-after-tensors-among-backward-inputs-ignored"],
)
def test_backward_inputs_of_both_kinds(backend: Backend, trace: Trace) -> None:
    """A backward whose inputs are leaves and gradient edges of leaves, in any order, accumulates into each of these."""
    for order in ((0, 1), (1, 0)):
        x, w, other = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
        both = (x, backend.get_gradient_edge(w))
        loss = backend.call(lambda x, w, other: backend.sum((x * w + other) * 3), x, w, other)
        backend.backward(loss, inputs=[both[place] for place in order])

        trace.expect_value("x.grad and w.grad", [[3.0, 6.0]] * 2, [backend.grad_of(x), backend.grad_of(w)])
        trace.expect_value("gradient of the other leaf", None, backend.grad_of(other))


@rule(
    "gradient-edge.grad-outputs",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad").sentence(7)],
    needs=[
        *NEEDS,
        Capability.EDGE_ROOTS,
        Capability.SEED_GRADIENT,
        Capability.TENSOR_HOOKS,
        Capability.MULTI_OUTPUT,
    ],
    mutants=[
        "grad-of-edges-ignores-grad-outputs",
        "grad-of-edges-skips-hooks",
        "grad-of-the-edge-of-the-first-output",
        "grad-of-the-first-edge",
        "grad-of-the-last-edge",
        "outputs-of-one-node-count-once",
        "edges-need-grad-outputs",
        "grad-of-the-edge-of-the-last-output",
        "grad-of-the-edge-of-a-leaf-refused",
        "tensors-among-edges-as-outputs-ignored",
    ],
    except_under={"complex64": "the edge of a complex scalar needs a gradient"},
)
def test_grad_outputs(backend: Backend, trace: Trace) -> None:
    """autograd.grad with a gradient edge as its output returns what it returns for the tensor of that edge."""

    def forward(x):
        first, second = backend.split(x * x, 2)
        backend.register_hook(second, trace.saw("hook", lambda grad: None if grad is None else grad * 5))
        return first, second

    x = backend.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    _, second = backend.call(forward, x)
    grads = backend.grad(backend.get_gradient_edge(second), [x], backend.tensor([2.0, 3.0]))

    trace.expect(("hook", [2.0, 3.0]))
    trace.expect_value("gradients", [[0.0, 0.0, 60.0, 120.0]], grads)

    first, _ = backend.call(lambda x: backend.split(x * x, 2), x)
    grads = backend.grad(backend.get_gradient_edge(first), [x], backend.tensor([2.0, 3.0]))
    trace.expect_value("gradients of the first output", [[4.0, 12.0, 0.0, 0.0]], grads)
    for output in (x, backend.get_gradient_edge(x)):
        grads = backend.grad(output, [x], backend.tensor([2.0, 3.0, 4.0, 5.0]))
        trace.expect_value("gradient of a leaf, or its edge", [[2.0, 3.0, 4.0, 5.0]], grads)

    for of_first, of_second in product((backend.get_gradient_edge, lambda tensor: tensor), repeat=2):
        first, second = backend.call(forward, x)
        starts = [of_first(first), of_second(second)]
        grads = backend.grad(starts, [x], [backend.tensor([2.0, 3.0]), backend.tensor([4.0, 5.0])])

        trace.expect(("hook", [4.0, 5.0]))
        trace.expect_value("gradients of two edges, or tensors", [[4.0, 12.0, 120.0, 200.0]], grads)

    for seeds in (None, [None]):
        edge = backend.get_gradient_edge(backend.call(lambda x: backend.sum(x * x), x))
        grads = backend.grad([edge], [x], seeds)
        trace.expect_value("gradients of the edge of a scalar", [[2.0, 4.0, 6.0, 8.0]], grads)


@rule(
    "gradient-edge.outlives-tensor",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an edge refers to the Node, which refers to the rest of the graph")],
    needs=[Capability.GRADIENT_EDGES, Capability.EDGE_ROOTS],
    mutants=["gradient-edges-die-with-their-tensor"],
)
def test_outlives_its_tensor(backend: Backend, trace: Trace) -> None:
    """A backward from a gradient edge works after the edge's tensor and every later one was deleted."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * x, x)
    edge = backend.get_gradient_edge(y)
    z = backend.call(lambda y: y * 3, y)
    del y, z
    backend.backward_from_edge(edge, backend.tensor([1.0, 10.0]))

    trace.expect_value("x.grad", [2.0, 40.0], backend.grad_of(x))


@rule(
    "gradient-edge.materialize-grads",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that an edge cannot be materialized")],
    needs=[*NEEDS, Capability.MATERIALIZE_GRADS],
    mutants=["unused-edges-are-none", "unused-edges-after-a-tensor-are-none", "unused-edges-of-non-leaves-are-none"],
)
def test_materialize(backend: Backend, trace: Trace) -> None:
    """autograd.grad with materialize_grads=True is an error if an input is the gradient edge of an unused tensor."""
    x, unused = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    edge, of_result = map(backend.get_gradient_edge, (unused, backend.call(lambda x: x * 3, unused)))
    for inputs in ([edge], [x, edge], [edge, x], [of_result]):
        loss = backend.call(lambda x: backend.sum(x * x), x)
        with trace.raises(ErrorKind.UNUSED_INPUT):
            backend.grad(loss, inputs, materialize_grads=True)


@rule(
    "gradient-edge.unused-error",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad").sentence(8, 20, 21, 32)],
    needs=[*NEEDS, Capability.MISUSE_ERRORS],
    mutants=["unused-edges-allowed", "unused-edges-after-a-tensor-allowed"],
)
def test_unused_edge(backend: Backend, trace: Trace) -> None:
    """By default and with allow_unused=False, the gradient edge of an unused tensor is an error in autograd.grad.

    An edge is an input like a tensor. The default is the value of materialize_grads, which is False by default.
    """
    x, unused = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    result = backend.call(lambda x: x * 3, unused)
    for edge in (backend.get_gradient_edge(unused), backend.get_gradient_edge(result)):
        for inputs in ([edge], [x, edge], [edge, x]):
            for how in ({}, {"allow_unused": False}):
                loss = backend.call(lambda x: backend.sum(x * x), x)
                with trace.raises(ErrorKind.UNUSED_INPUT):
                    backend.grad(loss, inputs, **how)


@rule(
    "gradient-edge.backward-inputs.others",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("nothing is accumulated, without an error")],
    needs=[Capability.GRADIENT_EDGES, Capability.EDGE_ROOTS, Capability.BACKWARD_INPUTS],
    mutants=["edges-among-backward-inputs-ignored", "edges-of-non-leaves-among-backward-inputs-change-grad"],
)
def test_other_backward_inputs(backend: Backend, trace: Trace) -> None:
    """A backward whose only input is the edge of a non-leaf, or of an unused leaf, changes the .grad of no leaf."""
    for kind, before in product(("non-leaf", "unused"), (None, [9.0, 9.0])):
        x, unused = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        for leaf in (x, unused):
            backend.set_grad(leaf, before and backend.tensor(before))
        y = backend.call(lambda x: x * x, x)
        loss = backend.sum(y)
        backend.backward(loss, inputs=[backend.get_gradient_edge(y if kind == "non-leaf" else unused)])

        trace.expect_value(f"gradients, {kind}", [before] * 2, [backend.grad_of(x), backend.grad_of(unused)])


@rule(
    "gradient-edge.grad-outputs.shape",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the check is that of a root that is a tensor")],
    needs=[*NEEDS, Capability.EDGE_ROOTS, Capability.SEED_GRADIENT, Capability.MISUSE_ERRORS],
    mutants=[
        "gradients-of-edges-unchecked",
        "scalar-gradients-of-edges-unchecked",
        "gradients-of-edges-of-scalars-may-have-a-dimension",
        "gradients-of-edges-lose-a-dimension-of-one-row",
    ],
)
def test_grad_outputs_shape(backend: Backend, trace: Trace) -> None:
    """A gradient for a gradient edge that does not have its tensor's shape is an error, in grad and in backward.

    With is_grads_batched it has one dimension more.
    """
    for numbers, others in (
        ([1.0, 2.0], ([1.0, 2.0, 3.0], [[1.0, 2.0]], [1.0], 1.0)),
        (2.0, ([1.0],)),
        ([2.0], (1.0,)),
    ):
        x = backend.tensor(numbers, requires_grad=True)
        for wrong in map(backend.tensor, others):
            with trace.raises(ErrorKind.ROOT_GRADIENT):
                backend.grad(backend.get_gradient_edge(backend.call(lambda x: x * x, x)), [x], wrong)
            with trace.raises(ErrorKind.ROOT_GRADIENT):
                backend.backward_from_edge(backend.get_gradient_edge(backend.call(lambda x: x * x, x)), wrong)
