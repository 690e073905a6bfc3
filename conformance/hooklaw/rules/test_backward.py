"""The arguments of backward: root, gradient, inputs; and a backward inside a hook."""

from contextlib import suppress
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import NUMBERS

METHOD = docstring("torch.Tensor.backward")
BACKWARD = docstring("torch.autograd.backward")


def leaf(backend: Backend) -> Any:
    """Make a leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "backward.inputs",
    level=Level.MUST,
    sources=[METHOD.sentence(19, 20), BACKWARD.sentence(23, 24)],
    needs=[Capability.BACKWARD_INPUTS],
    mutants=[
        "backward-inputs-option-ignored",
        "backward-inputs-overwrite",
        "backward-inputs-first-alone",
        "backward-inputs-share-their-first-gradient",
    ],
)
def test_inputs(backend: Backend, trace: Trace) -> None:
    """A backward with inputs adds gradients to the .grad of these inputs, and to that of no other leaf.

    Two inputs get the same gradient twice: what one of them adds to, the other must not hold.
    """
    a, b, c = leaf(backend), leaf(backend), leaf(backend)
    for tensor in (a, b, c):
        backend.set_grad(tensor, backend.tensor([10.0, 10.0]))

    backend.backward(backend.call(lambda a, b, c: backend.sum((a + c * 3) * b), a, b, c), inputs=[a, c])

    trace.expect_value("a.grad", [11.0, 12.0], backend.grad_of(a))
    trace.expect_value("b.grad", [10.0, 10.0], backend.grad_of(b))
    trace.expect_value("c.grad", [13.0, 16.0], backend.grad_of(c))

    x, y = inputs = leaf(backend), leaf(backend)
    for weights, accumulated in (([2.0, 3.0], [2.0, 3.0]), ([3.0, 5.0], [5.0, 8.0])):
        loss = backend.call(lambda x, y, w: backend.sum((x + y) * w), x, y, backend.tensor(weights))
        backend.backward(loss, inputs=inputs)
        trace.expect_value("gradients of a sum", [accumulated] * 2, [backend.grad_of(x), backend.grad_of(y)])

    for numbers in NUMBERS:
        x, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        loss = backend.call(lambda x, weight: backend.sum(x * weight), x, weight)
        backend.backward(loss, inputs=[x])
        trace.expect_value("gradient that is 0-d, zero or empty", numbers, backend.grad_of(x))


@rule(
    "backward.inputs.nonleaf",
    level=Level.MUST,
    sources=[METHOD.sentence(19), BACKWARD.sentence(23)],
    needs=[Capability.BACKWARD_INPUTS, Capability.RETAIN_GRAPH],
    mutants=[
        "backward-inputs-option-ignored",
        "backward-inputs-take-leaves-alone",
        "backward-inputs-overwrite",
        "backward-inputs-first-alone",
        "backward-inputs-after-a-non-leaf-ignored",
        "root-among-backward-inputs-ignored",
        "root-as-the-only-backward-input-ignored",
        "empty-non-leaves-among-backward-inputs-ignored",
        "non-leaves-among-backward-inputs-ignored-after-a-failure",
    ],
)
def test_inputs_that_are_no_leaves(backend: Backend, trace: Trace) -> None:
    """A backward accumulates gradients into a non-leaf among its inputs too, without retain_grad."""

    def forward(x):
        y = x * 2
        return y, backend.sum(y * 3)

    x = leaf(backend)
    y, loss = backend.call(forward, x)
    backend.backward(loss, inputs=[y], retain_graph=True)
    trace.expect_value("y.grad", [3.0, 3.0], backend.grad_of(y))
    backend.backward(loss, inputs=[y])

    trace.expect_value("y.grad after another backward", [6.0, 6.0], backend.grad_of(y))
    trace.expect_value("x.grad", None, backend.grad_of(x))

    for _ in range(3):
        x = leaf(backend)
        y, loss = backend.call(forward, x)
        root = backend.call(lambda loss: loss * 7, loss)
        backend.backward(root, inputs=[y, x, loss, root])
        gradients = [backend.grad_of(tensor) for tensor in (x, y, loss, root)]
        trace.expect_value("gradients beside a leaf", [[42.0, 42.0], [21.0, 21.0], 7.0, 1.0], gradients)

    copy = backend.call(backend.clone, leaf(backend))
    backend.backward(backend.call(lambda copy: backend.sum(copy * 3), copy), inputs=[copy])
    trace.expect_value("gradient of a clone", [3.0, 3.0], backend.grad_of(copy))

    for numbers in NUMBERS:
        z, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        y = backend.call(lambda z: z * 2, z)
        root = backend.call(lambda y, weight: backend.sum(y * weight), y, weight)
        backend.backward(root, inputs=[y])
        trace.expect_value("gradient that is 0-d, zero or empty", numbers, backend.grad_of(y))
    _, loss = backend.call(forward, leaf(backend))
    backend.backward(loss, inputs=[loss])
    trace.expect_value("gradient of a root alone", 1.0, backend.grad_of(loss))
    with suppress(Exception):  # it may be an error
        backend.backward(backend.call(lambda x: x * 2, leaf(backend)))
    y, loss = backend.call(forward, leaf(backend))
    backend.backward(loss, inputs=[y])
    trace.expect_value("y.grad after a failure", [3.0, 3.0], backend.grad_of(y))


@rule(
    "backward.inputs.others-ignored",
    level=Level.MUST,
    sources=[METHOD.sentence(20), BACKWARD.sentence(24)],
    needs=[Capability.BACKWARD_INPUTS, Capability.RETAIN_GRAD],
    mutants=[
        "backward-inputs-option-ignored",
        "retain-grad-in-limited-passes",
        "retained-gradients-beside-the-path-set",
        "retained-gradient-of-a-root-set-by-limited-passes",
    ],
)
def test_others_are_ignored(backend: Backend, trace: Trace) -> None:
    """A backward with inputs sets no .grad of a non-leaf that retains its gradient and is not among the inputs.

    The docstring of retain_grad and the order of hooks speak of backward in general; that of backward says that a pass
    with inputs ignores all other tensors, which is the more particular sentence.
    """

    def forward(x, w):
        y, z = x * 2, w * 5
        backend.retain_grad(y)
        backend.retain_grad(z)
        loss = backend.sum(y * 3 + z)
        backend.retain_grad(loss)
        return y, z, loss

    x, w = leaf(backend), leaf(backend)
    y, beside, loss = backend.call(forward, x, w)
    backend.backward(loss, inputs=[x])

    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))
    trace.expect_value("y.grad", None, backend.grad_of(y))
    trace.expect_value("gradient of what x does not reach", None, backend.grad_of(beside))
    trace.expect_value("gradient of the root", None, backend.grad_of(loss))


@rule(
    "backward.inputs.empty",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("inputs that are given and empty are an error")],
    needs=[Capability.BACKWARD_INPUTS, Capability.MISUSE_ERRORS],
    mutants=["backward-inputs-option-ignored"],
)
def test_no_inputs(backend: Backend, trace: Trace) -> None:
    """A backward with an empty list of inputs may be an error."""
    loss = backend.call(lambda x: backend.sum(x * 2), leaf(backend))

    with trace.raises(ErrorKind.NO_INPUTS):
        backend.backward(loss, inputs=[])


@rule(
    "backward.inputs.retain-grad-combo",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a retained gradient is not counted twice where the tensor is an input of backward")],
    needs=[Capability.BACKWARD_INPUTS, Capability.RETAIN_GRAD],
    mutants=[
        "backward-inputs-count-retained-gradients-twice",
        "backward-counts-the-later-of-retaining-inputs-twice",
        "third-backward-counts-retaining-inputs-twice",
        "backward-counts-a-retaining-root-twice",
    ],
)
def test_input_that_retains(backend: Backend, trace: Trace) -> None:
    """A non-leaf input of backward that also retains its gradient gets the gradient once, not twice."""

    def forward(x):
        y = x * 2
        return y, backend.sum(y * 3)

    y, loss = backend.call(forward, leaf(backend))
    backend.retain_grad(y)
    backend.backward(loss, inputs=[y])

    trace.expect_value("y.grad", [3.0, 3.0], backend.grad_of(y))

    for _ in range(3):
        inputs = y, loss = backend.call(forward, leaf(backend))
        for tensor in inputs:
            backend.retain_grad(tensor)
        backend.backward(loss, inputs=inputs)
        trace.expect_value("gradients of two inputs", [[3.0, 3.0], 1.0], [*map(backend.grad_of, inputs)])


@rule(
    "backward.non-scalar-needs-gradient",
    level=Level.MUST,
    sources=[METHOD.sentence(3), BACKWARD.sentence(3)],
    needs=[Capability.MISUSE_ERRORS],
    mutants=["gradient-of-a-root-is-ones"],
)
def test_gradient_needed(backend: Backend, trace: Trace) -> None:
    """A backward from a tensor of more than one element is an error without its gradient.

    The documentation says that such a backward requires the argument; a call without what it requires is an error.
    """
    for data in ([1.0, 2.0], [[1.0, 2.0]], [0.0, 0.0]):
        y = backend.call(lambda x: x * 2, backend.tensor(data, requires_grad=True))

        with trace.raises(ErrorKind.ROOT_GRADIENT):
            backend.backward(y)


@rule(
    "backward.non-scalar-needs-gradient.several-roots",
    level=Level.MUST,
    sources=[BACKWARD.sentence(3)],
    needs=[Capability.MISUSE_ERRORS, Capability.SEVERAL_ROOTS],
    mutants=[
        "several-roots-without-gradients-start-from-ones",
        "gradients-of-later-roots-not-needed",
        "gradients-not-needed-after-a-scalar-root",
        "gradients-of-roots-in-between-not-needed",
    ],
)
def test_gradient_needed_by_each(backend: Backend, trace: Trace) -> None:
    """A backward from several tensors is an error if any of more than one element has no gradient.

    The documentation says that such a backward requires the argument; a call without what it requires is an error.
    """

    def roots(*numbers: float) -> list[Any]:
        y = backend.call(lambda x: x * 2, backend.tensor([*numbers], requires_grad=True))
        return [y, backend.sum(y), y * 3, y * 5]

    seed = backend.tensor([1.0, 1.0])
    for numbers in ((1.0, 2.0), (0.0, 0.0)):
        for gradients in (None, [None, None, seed, seed], [seed, None, None, seed], [seed, None, seed, None]):
            with trace.raises(ErrorKind.ROOT_GRADIENT):
                backend.backward_from_all(roots(*numbers), gradients)
        with trace.raises(ErrorKind.ROOT_GRADIENT):
            backend.backward_from_all(roots(*numbers)[1:])


@rule(
    "backward.one-element-root",
    level=Level.MUST,
    sources=[METHOD.sentence(3, 12), BACKWARD.sentence(3, 16)],
    mutants=["only-roots-without-dimensions-are-scalars"],
)
def test_one_element(backend: Backend, trace: Trace) -> None:
    """A backward from a real tensor of one element needs no gradient, whatever the tensor's shape.

    The documentation calls a tensor non-scalar if it has more than one element.
    """
    for data, grad in ([3.0], [6.0]), ([[3.0]], [[6.0]]):
        x = backend.tensor(data, requires_grad=True)
        backend.backward(backend.call(lambda x: x * x, x))

        trace.expect_value("x.grad", grad, backend.grad_of(x))


@rule(
    "backward.gradient-shape",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[
        METHOD,
        observed("a matching shape is the user's obligation in the documentation, the error is not there"),
    ],
    needs=[Capability.SEED_GRADIENT, Capability.MISUSE_ERRORS],
    mutants=[
        "gradient-of-a-root-broadcast",
        "gradient-of-a-root-reshaped",
        "longer-gradient-of-a-root-cut",
        "scalar-gradient-of-a-root-broadcast",
        "gradient-of-a-scalar-root-may-have-dimensions",
    ],
)
def test_gradient_of_another_shape(backend: Backend, trace: Trace) -> None:
    """A gradient for the root that does not have the root's shape is an error."""
    vector, scalar = [1.0], 1.0
    for gradient in (vector, [[1.0, 2.0]], [1.0, 2.0, 3.0], scalar):
        y = backend.call(lambda x: x * 2, leaf(backend))

        with trace.raises(ErrorKind.ROOT_GRADIENT):
            backend.backward(y, backend.tensor(gradient))
    for root, gradient in ((scalar, vector), (vector, scalar)):
        y = backend.call(lambda x: x * 2, backend.tensor(root, requires_grad=True))

        with trace.raises(ErrorKind.ROOT_GRADIENT):
            backend.backward(y, backend.tensor(gradient))


@rule(
    "backward.gradient-shape.several-roots",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[
        BACKWARD,
        observed("matching shapes are the user's obligation in the documentation, the error is not there"),
    ],
    needs=[Capability.SEVERAL_ROOTS, Capability.MISUSE_ERRORS],
    mutants=[
        "shapes-of-gradients-of-several-roots-unchecked",
        "shapes-of-gradients-of-later-roots-unchecked",
        "gradients-of-several-scalars-may-have-a-dimension",
        "gradients-of-several-vectors-may-be-scalars",
    ],
)
def test_gradients_of_another_shape(backend: Backend, trace: Trace) -> None:
    """A gradient for one of several roots that does not have this root's shape is an error."""
    right = [1.0, 1.0]
    for wrong in ([1.0], [[1.0, 2.0]], [1.0, 2.0, 3.0], 1.0):
        for gradients in ([wrong, right, right], [right, wrong, right], [right, right, wrong]):
            roots = backend.call(lambda x: (x * 2, x * 3, x * 5), leaf(backend))

            with trace.raises(ErrorKind.ROOT_GRADIENT):
                backend.backward_from_all(roots, [backend.tensor(gradient) for gradient in gradients])
    for number, gradient in ((2.0, [1.0]), ([2.0], 1.0)):
        roots = backend.call(lambda one: (one * 2, one * 3), backend.tensor(number, requires_grad=True))
        with trace.raises(ErrorKind.ROOT_GRADIENT):
            backend.backward_from_all(roots, [backend.tensor(number), backend.tensor(gradient)])


@rule(
    "backward.gradient-vjp",
    level=Level.MUST,
    sources=[METHOD.sentence(4), BACKWARD.sentence(3, 4)],
    needs=[Capability.SEED_GRADIENT],
    mutants=[
        "gradient-of-a-root-is-ones",
        "gradient-of-a-root-scales-the-leaves",
        "gradient-of-a-root-meets-the-transposed-jacobian",
        "gradient-of-a-root-becomes-grad",
    ],
    except_under={"bfloat16": "its numbers have more digits than bfloat16 holds"},
)
def test_product_with_the_jacobian(backend: Backend, trace: Trace) -> None:
    """The gradients are the product of the root's gradient and the Jacobian.

    The Jacobian is full and not symmetric, so the product with its transpose has other values. Three passes are given
    the same gradient, which none of them may change.
    """
    x, weights = leaf(backend), backend.tensor([1.0, 2.0])
    y = backend.call(lambda x, weights: x * 3 + backend.sum(x * weights) * 5, x, weights)

    gradient = backend.tensor([10.0, 100.0])
    backend.backward(y, gradient)

    trace.expect_value("x.grad", [580.0, 1400.0], backend.grad_of(x))
    z = leaf(backend)
    for passes in (1, 2, 3):
        backend.backward(backend.call(lambda z: z + 1, z), gradient)
        trace.expect_value(f"z.grad of {passes} passes", [10.0 * passes, 100.0 * passes], backend.grad_of(z))

    z = leaf(backend)
    for given, after in (([backend.tensor(5.0)], 5.0), ([], 6.0)):
        backend.backward(backend.call(backend.sum, z), *given)
        trace.expect_value("z.grad of a scalar root", [after] * 2, backend.grad_of(z))

    for numbers in NUMBERS:
        z, given = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        backend.backward(backend.call(lambda z: z * 1, z), given)
        trace.expect_value("z.grad of a gradient that is 0-d, zero or empty", numbers, backend.grad_of(z))

    z = leaf(backend)
    for given in (backend.tensor([5.0, 7.0], requires_grad=True), backend.call(lambda z: z * 0 + 5, z)):
        backend.set_grad(z, None)
        backend.backward(backend.call(lambda z: z * 1, z), given)
        trace.expect_value("z.grad of a gradient that requires grad", backend.detach(given), backend.grad_of(z))


@rule(
    "backward.several-roots",
    level=Level.MUST,
    sources=[BACKWARD.sentence(1, 4, 14)],
    needs=[Capability.SEVERAL_ROOTS, Capability.SEED_GRADIENT, Capability.MULTI_OUTPUT],
    mutants=[
        "roots-first-alone",
        "root-gradients-reversed",
        "root-behind-another-keeps-its-own-gradient",
        "roots-of-one-node-count-once",
        "leaves-among-several-roots-ignored",
    ],
)
def test_several_roots(backend: Backend, trace: Trace) -> None:
    """A backward from several tensors adds up their gradients, each multiplied by the gradient that is given for it."""

    def forward(x, y):
        first = x * 3
        return first, y * 7, first * y

    for _ in range(3):
        x, y = leaf(backend), leaf(backend)
        gradients = [backend.tensor([number, number * 10]) for number in (1.0, 3.0, 2.0)]
        backend.backward_from_all(backend.call(forward, x, y), gradients)

        trace.expect_value("gradients", [[9.0, 150.0], [27.0, 330.0]], [backend.grad_of(x), backend.grad_of(y)])

    x = leaf(backend)
    parts = backend.call(lambda x: backend.split(x * 3, 1), x)
    backend.backward_from_all(parts, [backend.tensor([1.0]), backend.tensor([10.0])])
    trace.expect_value("x.grad from all outputs of a Node", [3.0, 30.0], backend.grad_of(x))
    backend.backward_from_all(backend.call(lambda x: (backend.sum(x * 2), backend.sum(x * 3)), x))
    trace.expect_value("x.grad from scalars without gradients too", [8.0, 35.0], backend.grad_of(x))
    backend.set_grad(x, None)
    tripled = backend.call(lambda x: x * 3, x)
    backend.backward_from_all([x, tripled], [backend.tensor([1.0, 2.0]), backend.tensor([10.0, 20.0])])
    trace.expect_value("x.grad from the leaf itself, too", [31.0, 62.0], backend.grad_of(x))

    for numbers in NUMBERS:
        first, second = tensors = [backend.tensor(numbers, requires_grad=True) for _ in range(2)]
        roots = backend.call(lambda first, second: (first * 1, second * 1), first, second)
        backend.backward_from_all(roots, [backend.tensor(numbers)] * 2)
        trace.expect_value("one gradient of two roots", [numbers] * 2, [*map(backend.grad_of, tensors)])


@rule(
    "backward.several-roots.scalars",
    level=Level.MUST,
    sources=[BACKWARD.sentence(4, 16, 17)],
    needs=[Capability.SEVERAL_ROOTS, Capability.SEED_GRADIENT],
    mutants=[
        "roots-first-alone",
        "several-roots-need-every-gradient",
        "only-several-roots-without-dimensions-are-scalars",
        "only-scalars-without-dimensions-need-no-gradient-among-others",
        "scalars-need-gradients-after-one-that-has-one",
    ],
)
def test_several_scalars(backend: Backend, trace: Trace) -> None:
    """A backward from several real tensors needs no gradient for one of one element, and none if all are such."""
    x = leaf(backend)
    backend.backward_from_all(backend.call(lambda x: (backend.sum(x * x), backend.sum(x * 5)), x))
    trace.expect_value("x.grad of two scalars", [7.0, 9.0], backend.grad_of(x))

    x = backend.tensor([3.0], requires_grad=True)
    backend.backward_from_all(backend.call(lambda x: (x * x, x * 5), x))
    trace.expect_value("x.grad of two vectors of one element", [11.0], backend.grad_of(x))

    x = leaf(backend)
    roots = backend.call(lambda x: (backend.sum(x * x), x * 5), x)
    backend.backward_from_all(roots, [None, backend.tensor([10.0, 100.0])])
    trace.expect_value("x.grad of a scalar and a vector", [52.0, 504.0], backend.grad_of(x))
    roots = backend.call(lambda x: (x * 5, backend.sum(x * x)), x)
    backend.backward_from_all(roots, [backend.tensor([10.0, 100.0]), None])
    trace.expect_value("x.grad of a vector and a scalar", [104.0, 1008.0], backend.grad_of(x))

    x, given = backend.tensor([3.0], requires_grad=True), backend.tensor([10.0])
    for gradients, after in (([None, given], 56.0), ([given, None], 121.0)):
        backend.backward_from_all(backend.call(lambda x: (x * x, x * 5), x), gradients)
        trace.expect_value("x.grad of two vectors of one element, one gradient", [after], backend.grad_of(x))


@rule(
    "backward.several-roots.constant",
    level=Level.MUST,
    sources=[BACKWARD.sentence(4, 16, 17)],
    needs=[Capability.SEVERAL_ROOTS, Capability.SEED_GRADIENT],
    mutants=[
        "constant-outputs-refused",
        "constant-outputs-end-the-list",
        "constant-roots-get-a-gradient",
        "constant-outputs-at-the-ends-refused",
        "several-constant-outputs-refused",
    ],
)
def test_several_with_a_constant(backend: Backend, trace: Trace) -> None:
    """A backward from several tensors needs no gradient for one that does not require grad, which changes no .grad."""
    constants = [backend.tensor([5.0, 6.0]) for _ in range(3)]
    given = [None, None, None, backend.tensor(10.0), None]
    middle, all_of_them = slice(1, 4), slice(5)
    for places, gradients, expected in (
        (middle, None, [7.0, 9.0]),
        (middle, given[middle], [52.0, 54.0]),
        (all_of_them, given, [52.0, 54.0]),
    ):
        x = leaf(backend)
        first, last = backend.call(lambda x: (backend.sum(x * x), backend.sum(x * 5)), x)
        roots = [constants[0], first, constants[1], last, constants[2]]
        backend.backward_from_all(roots[places], gradients)

        trace.expect_value("x.grad", expected, backend.grad_of(x))
        trace.expect_value("gradients of constants", [None] * 3, [*map(backend.grad_of, constants)])


@rule(
    "backward.no-grad-root",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a backward from a tensor that does not require grad is an error")],
    needs=[Capability.MISUSE_ERRORS],
    mutants=["backward-from-a-constant-does-nothing", "backward-from-a-constant-that-was-not-computed-does-nothing"],
)
def test_constant_root(backend: Backend, trace: Trace) -> None:
    """A backward from a tensor that does not require grad is an error.

    The documentation accepts such a tensor beside others, without a gradient; of one alone it says nothing.
    """
    computed = backend.call(lambda x: backend.sum(x * 2), backend.tensor([1.0, 2.0]))

    for constant in (computed, backend.tensor(1.0), backend.detach(backend.tensor(1.0, requires_grad=True))):
        with trace.raises(ErrorKind.NO_GRADIENT):
            backend.backward(constant)


@rule(
    "graph.recorded-anew",
    level=Level.MUST,
    sources=[notes("autograd", "how-autograd-encodes-the-history").sentence(7, 8)],
    mutants=["graph-of-the-first-call-used-again"],
)
def test_recorded_anew(backend: Backend, trace: Trace) -> None:
    """Each call of a function records a graph of its own: the control flow may differ from call to call."""
    factors: list[float] = []

    def forward(x):
        for factor in factors:
            x = x * factor
        return backend.sum(x if len(factors) > 1 else x * x)

    x = leaf(backend)
    for factor, expected in ((3.0, [18.0, 36.0]), (2.0, [6.0, 6.0]), (5.0, [30.0, 30.0])):
        factors.append(factor)
        backend.set_grad(x, None)
        backend.backward(backend.call(forward, x))

        trace.expect_value(f"x.grad after {len(factors)} factors", expected, backend.grad_of(x))


@rule(
    "reentrant.backward-in-hook",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a hook can run a backward of its own, as the recomputation of a reentrant checkpoint does")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["backward-inside-a-hook-refused", "backward-inside-a-hook-ends-the-one-around-it"],
)
def test_backward_in_a_hook(backend: Backend, trace: Trace) -> None:
    """A hook can run a backward through another graph, which is complete when that call returns."""

    def run(_grad: object) -> None:
        other, inner = others.pop()
        backend.backward(inner)
        trace.log("inner", backend.grad_of(other))

    def forward(x):
        y = x * 2
        backend.register_hook(y, run)
        return backend.sum(y * 3)

    x, *leaves = (leaf(backend) for _ in range(3))
    others = [(other, backend.call(lambda x: backend.sum(x * 7), other)) for other in leaves]
    backend.register_hook(x, run)
    backend.backward(backend.call(forward, x))

    trace.expect(*[("inner", [7.0, 7.0])] * 2)
    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))


@rule(
    "backward.inputs.unused",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("nothing is accumulated, without an error")],
    needs=[Capability.BACKWARD_INPUTS],
    mutants=["unused-backward-inputs-refused", "unused-backward-inputs-alone-refused"],
)
def test_unused_inputs(backend: Backend, trace: Trace) -> None:
    """A leaf among backward's inputs that the root does not depend on gets no .grad, and is no error."""
    x, unused, w = inputs = [leaf(backend) for _ in range(3)]
    backend.backward(backend.call(lambda x, w: backend.sum(x * x + w * 3), x, w), inputs=inputs)

    expected = [[2.0, 4.0], None, [3.0, 3.0]]
    trace.expect_value("gradients", expected, [backend.grad_of(tensor) for tensor in (x, unused, w)])
    backend.backward(backend.call(lambda x: backend.sum(x * x), x), inputs=[unused])
    trace.expect_value("gradients, for an unused leaf alone", expected, [*map(backend.grad_of, inputs)])
