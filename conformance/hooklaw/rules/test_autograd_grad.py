"""The arguments of autograd.grad: outputs, grad_outputs, unused inputs."""

from contextlib import suppress
from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import NUMBERS

GRAD = docstring("torch.autograd.grad")
HOOK = docstring("torch.Tensor.register_hook")


def leaf(backend: Backend) -> Any:
    """Make a leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "grad.unused-error",
    level=Level.MUST,
    sources=[GRAD.sentence(20, 21, 32)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.MISUSE_ERRORS],
    mutants=[
        "grad-allow-unused-set-always",
        "unused-intermediates-always-allowed",
        "allow-unused-given-as-false-ignored",
        "an-unused-first-input-allowed",
        "several-unused-inputs-allowed",
        "unused-branches-of-used-leaves-allowed",
    ],
)
def test_unused_input(backend: Backend, trace: Trace) -> None:
    """By default and with allow_unused=False, an input of autograd.grad that the outputs do not depend on is an error.

    The default is the value of materialize_grads, which is False by default.
    """
    x, unused = leaf(backend), leaf(backend)
    intermediate, branch = (backend.call(lambda each: each * 3, each) for each in (unused, x))
    several = ([unused, x], [unused, intermediate], [x, unused, intermediate], [branch], [x, branch])
    for how, inputs in product(({}, {"allow_unused": False}), ([x, unused], [x, intermediate], [unused], *several)):
        backend.grad(backend.call(lambda x: backend.sum(x * 2), x), [x, unused], allow_unused=True)
        loss = backend.call(lambda x: backend.sum(x * 2), x)

        with trace.raises(ErrorKind.UNUSED_INPUT):
            backend.grad(loss, inputs, **how)

    for numbers in NUMBERS:
        loss = backend.call(lambda x: backend.sum(x * 2), x)
        with trace.raises(ErrorKind.UNUSED_INPUT):
            backend.grad(loss, [x, backend.tensor(numbers, requires_grad=True)])


@rule(
    "grad.unused-error.allowed",
    level=Level.MUST,
    sources=[GRAD.sentence(20, 29)],
    needs=[Capability.AUTOGRAD_GRAD],
    mutants=[
        "unused-inputs-get-zeros",
        "unused-inputs-never-allowed",
        "unused-inputs-come-last",
        "unused-intermediates-get-zeros",
        "unused-inputs-alone-never-allowed",
        "unused-branches-of-used-leaves-get-zeros",
    ],
)
def test_unused_input_allowed(backend: Backend, trace: Trace) -> None:
    """With allow_unused=True the gradient of an unused input is None, and the other gradients do not change."""
    x, unused, w = (leaf(backend) for _ in range(3))
    intermediate, branch = (backend.call(lambda each: each * 3, each) for each in (unused, x))
    for _ in range(2):
        loss = backend.call(lambda x, w: backend.sum(x * 2 + w * 3), x, w)

        grads = backend.grad(loss, [x, unused, w, intermediate, branch], allow_unused=True)

        trace.expect_value("gradients", [[2.0, 2.0], None, [3.0, 3.0], None, None], grads)
    for inputs in ([unused], [intermediate, unused]):
        loss = backend.call(lambda x: backend.sum(x * 2), x)
        grads = backend.grad(loss, inputs, allow_unused=True)

        trace.expect_value("gradients, none of them used", [None] * len(inputs), grads)

    unused = [backend.tensor(numbers, requires_grad=True) for numbers in NUMBERS]
    grads = backend.grad(backend.call(lambda x: backend.sum(x * 2), x), [*unused, x], allow_unused=True)
    trace.expect_value("gradients", [*[None] * len(NUMBERS), [2.0, 2.0]], grads)


@rule(
    "grad.unused-error.materialized",
    level=Level.MUST,
    sources=[GRAD.sentence(21, 29)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.MATERIALIZE_GRADS],
    mutants=[
        "materialize-grads-ignored",
        "materialize-grads-refuses-allow-unused",
        "materialize-grads-ignored-with-allow-unused",
        "first-unused-input-alone-materialized",
        "unused-inputs-alone-not-materialized",
        "unused-scalars-not-materialized",
        "materialized-zeros-have-a-dimension",
        "unused-intermediates-not-materialized",
    ],
)
def test_unused_input_materialized(backend: Backend, trace: Trace) -> None:
    """With materialize_grads=True the gradient of an unused input is zeros of its shape."""
    x, unused, w = leaf(backend), backend.tensor([[1.0], [2.0]], requires_grad=True), leaf(backend)
    others = [backend.tensor(5.0, requires_grad=True), backend.call(lambda unused: unused * 3, unused)]
    zeros = [[0.0], [0.0]]
    for how, of_unused, of_others in (
        ({"materialize_grads": True}, zeros, [0.0, zeros]),
        ({"materialize_grads": True, "allow_unused": True}, zeros, [0.0, zeros]),
        ({"allow_unused": True}, None, [None, None]),
        ({"allow_unused": True, "materialize_grads": False}, None, [None, None]),
    ):
        loss = backend.call(lambda x, w: backend.sum(x * 2 + w * 3), x, w)

        grads = backend.grad(loss, [x, unused, w, *others], **how)

        trace.expect_value("gradients", [[2.0, 2.0], of_unused, [3.0, 3.0], *of_others], grads)

        loss = backend.call(lambda x: backend.sum(x * 2), x)
        trace.expect_value("gradient of an unused input alone", [of_unused], backend.grad(loss, [unused], **how))

    inputs = [backend.tensor(numbers, requires_grad=True) for numbers in NUMBERS]
    grads = backend.grad(backend.call(lambda x: backend.sum(x * 2), x), [*inputs, x], materialize_grads=True)
    trace.expect_value("gradients", [0.0, 0.0, [0.0], [0.0, 0.0], [], [2.0, 2.0]], grads)


@rule(
    "grad.unused.conflict",
    level=Level.MUST,
    sources=[GRAD.sentence(31)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.MATERIALIZE_GRADS, Capability.MISUSE_ERRORS],
    mutants=[
        "autograd-grad-conflict-accepted",
        "materialize-grads-allows-inputs-some-of-which-are-unused",
        "autograd-grad-conflict-accepted-later-object",
    ],
)
def test_conflict(backend: Backend, trace: Trace) -> None:
    """materialize_grads=True together with allow_unused=False is an error."""
    x, unused, one = leaf(backend), leaf(backend), backend.tensor(1.0)
    loss, other = backend.call(lambda x: (backend.sum(x * 2), backend.sum(x * 3)), x)

    for given in ((loss, [x]), (loss, [x, unused]), (other, [x]), ([loss, other], [x]), (loss, [x], one)):
        with trace.raises(ErrorKind.UNUSED_CONFLICT):
            backend.grad(*given, materialize_grads=True, allow_unused=False)


@rule(
    "grad.hooks.unused-input",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.register_hook").sentence(2)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.TENSOR_HOOKS],
    mutants=["hooks-of-unused-inputs-run", "hooks-of-unused-intermediates-run"],
)
def test_hooks_of_an_unused_input(backend: Backend, trace: Trace) -> None:
    """The hooks of an input of autograd.grad that the outputs do not depend on do not run.

    A hook is called when a gradient is computed, and for an unused input none is.
    """
    x, unused = leaf(backend), leaf(backend)
    intermediate = backend.call(lambda unused: unused * 3, unused)
    for tensor in (unused, intermediate):
        backend.register_hook(tensor, trace.saw("unused"))
    loss = backend.call(lambda x: backend.sum(x * 2), x)

    backend.grad(loss, [x, unused, intermediate], allow_unused=True)

    trace.expect()


@rule(
    "grad.hooks.unused-input.nodes",
    level=Level.MUST,
    sources=[
        docstring("torch.autograd.graph.Node.register_prehook").sentence(2),
        docstring("torch.autograd.graph.Node.register_hook").sentence(2),
        docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(2),
    ],
    needs=[Capability.AUTOGRAD_GRAD, Capability.NODES, Capability.NODE_HOOKS, Capability.POST_ACCUMULATE],
    mutants=["node-hooks-of-unused-inputs-run", "post-accumulate-hooks-of-unused-inputs-run"],
)
def test_node_hooks_of_an_unused_input(backend: Backend, trace: Trace) -> None:
    """Node and post-accumulate-grad hooks of an input that the outputs do not depend on do not run in autograd.grad.

    They are called when a gradient is computed or accumulated, and for an unused input none is.
    """
    x, unused = leaf(backend), leaf(backend)
    intermediate = backend.call(lambda unused: unused * 3, unused)
    backend.register_post_accumulate_grad_hook(unused, trace.saw("post-accumulate hook"))
    nodes = [backend.accumulate_grad(unused), backend.grad_fn(intermediate)]
    for node in nodes:
        backend.node_register_prehook(node, trace.saw("pre-hook"))
        backend.node_register_hook(node, trace.saw("post-hook"))

    backend.grad(backend.call(lambda x: backend.sum(x * 2), x), [x, unused, intermediate], allow_unused=True)

    trace.expect()


@rule(
    "grad.hooks.unused-input.materialized",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[docstring("torch.Tensor.register_hook"), observed("zeros for an unused input are not given to its hooks")],
    needs=[Capability.AUTOGRAD_GRAD, Capability.TENSOR_HOOKS, Capability.MATERIALIZE_GRADS],
    mutants=["hooks-see-materialized-zeros", "hooks-of-non-leaves-see-materialized-zeros"],
)
def test_hooks_of_a_materialized_gradient(backend: Backend, trace: Trace) -> None:
    """The hooks of an unused input of autograd.grad do not run for the zeros of materialize_grads=True."""
    x, unused = leaf(backend), leaf(backend)
    result = backend.call(lambda x: x * 3, unused)
    backend.register_hook(unused, trace.saw("unused"))
    backend.register_hook(result, trace.saw("unused non-leaf"))
    loss = backend.call(lambda x: backend.sum(x * 2), x)

    grads = backend.grad(loss, [x, unused, result], materialize_grads=True)

    trace.expect()
    trace.expect_value("gradients", [[2.0, 2.0], [0.0, 0.0], [0.0, 0.0]], grads)


@rule(
    "grad.sum-of-outputs",
    level=Level.MUST,
    sources=[GRAD.sentence(1)],
    needs=[Capability.AUTOGRAD_GRAD],
    mutants=[
        "autograd-grad-of-the-first-output",
        "outputs-have-no-gradient-of-their-own",
        "an-output-given-twice-counts-once",
        "leaves-have-no-gradient-of-their-own",
        "an-input-given-twice-has-one-gradient",
    ],
)
def test_sum_of_outputs(backend: Backend, trace: Trace) -> None:
    """autograd.grad returns for each input the sum of the gradients of all outputs.

    One of the outputs is an input too, and has a gradient of its own there.
    """

    def forward(x, w):
        return backend.sum(x * x), backend.sum(x * 2), backend.sum(w * 5)

    for _ in range(3):
        x, w = leaf(backend), leaf(backend)
        squares, *others = backend.call(forward, x, w)
        grads = backend.grad([squares, *others, squares * 3], [x, w, squares])

        trace.expect_value("gradients", [[10.0, 18.0], [5.0, 5.0], 4.0], grads)

    scalar = backend.tensor(3.0, requires_grad=True)
    grads = backend.grad([scalar, backend.call(lambda scalar: scalar * 5, scalar)], [scalar])
    trace.expect_value("gradient of a leaf that is an output", [6.0], grads)

    for again, inputs in ((1, [x]), (0, [x, x])):
        squares, doubled, _ = backend.call(forward, x, w)
        twice = None
        with suppress(Exception):  # no page says that an output or input can be given twice
            twice = backend.grad([squares, *[doubled] * (1 + again)], inputs)
        if twice is not None:
            sums = [[6.0, 8.0]] if again else [[4.0, 6.0]] * 2
            trace.expect_value("gradients of an output or input given twice", sums, twice)
    for numbers in NUMBERS:
        z, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        loss = backend.call(lambda z, weight: backend.sum(z * weight), z, weight)
        trace.expect_value("gradient that is 0-d, zero or empty", [numbers], backend.grad(loss, [z]))

    copy = backend.call(backend.clone, x)
    grads = backend.grad(backend.call(lambda copy: backend.sum(copy * 3), copy), [copy])
    trace.expect_value("gradient of a clone", [[3.0, 3.0]], grads)


@rule(
    "grad.grad-outputs",
    level=Level.MUST,
    sources=[GRAD.sentence(2, 12)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.SEED_GRADIENT],
    mutants=[
        "autograd-grad-of-the-first-output",
        "grad-outputs-ignored",
        "grad-grad-outputs-reversed",
        "gradients-of-scalar-outputs-are-one",
        "grad-outputs-are-none-if-the-first-is",
        "grad-outputs-of-none-alone-refused",
        "grad-outputs-of-an-input-ignored",
        "only-outputs-without-dimensions-are-scalars",
        "only-several-outputs-without-dimensions-are-scalars",
    ],
    except_under={
        "bfloat16": "its numbers have more digits than bfloat16 holds",
        "float16": "its numbers have more digits than float16 holds",
    },
)
def test_grad_outputs(backend: Backend, trace: Trace) -> None:
    """autograd.grad multiplies each output's Jacobian by the grad_outputs of that output, None standing for 1.

    Among outputs that require grad, None may stand for the gradient of a scalar only.
    """
    x, three = leaf(backend), backend.tensor(3.0)
    seeds = [*(backend.tensor([number, number * 10]) for number in (1.0, 100.0)), None, backend.tensor([2.0, 1.0])]
    for order in (slice(None), slice(None, None, -1), slice(None)):
        outputs = backend.call(lambda x: (x * 2, x * x, backend.sum(x * 7), x * 3), x)

        (grad,) = backend.grad(outputs[order], [x], seeds[order])

        trace.expect_value("gradient", [215.0, 4030.0], grad)
    (grad,) = backend.grad(backend.call(lambda x: backend.sum(x * 7), x), [x])
    trace.expect_value("gradient without grad_outputs", [7.0, 7.0], grad)
    for seeds, sums in (([None, None], 9.0), ([None, three], 13.0), ([three, None], 23.0), ([three, three], 27.0)):
        outputs = backend.call(lambda x: (backend.sum(x * 7), backend.sum(x * 2)), x)
        trace.expect_value("gradient of two scalars", [[sums] * 2], backend.grad(outputs, [x], seeds))
    one, three = backend.tensor([5.0], requires_grad=True), backend.tensor([3.0])
    for seeds, sums in (([None, None], 9.0), ([None, three], 13.0), ([three, None], 23.0)):
        outputs = backend.call(lambda one: (one * 7, one * 2), one)
        trace.expect_value("gradient of two vectors of one element", [[sums]], backend.grad(outputs, [one], seeds))
    grads = backend.grad(backend.call(lambda one: one * 7, one), [one])
    trace.expect_value("gradient of a vector of one element", [[7.0]], grads)

    for numbers in NUMBERS:
        z, given = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        (grad,) = backend.grad([backend.call(lambda z: z * 1, z)], [z], [given])
        trace.expect_value("gradient of one that is 0-d, zero or empty", numbers, grad)
    doubled = backend.call(lambda x: x * 2, x)
    (grad,) = backend.grad([x, doubled], [x], [backend.tensor([5.0, 7.0]), backend.tensor([1.0, 10.0])])
    trace.expect_value("gradient of an input among the outputs", [7.0, 27.0], grad)
    for given in (backend.tensor([5.0, 7.0], requires_grad=True), x * 1):
        (grad,) = backend.grad([backend.call(lambda x: x * 1, x)], [x], [given])
        trace.expect_value("gradient of one that requires grad", backend.detach(given), grad)


@rule(
    "grad.non-scalar-needs-grad-outputs",
    level=Level.MUST,
    sources=[GRAD.sentence(12, 13)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.MISUSE_ERRORS],
    mutants=[
        "outputs-without-gradients-start-from-ones",
        "grad-outputs-of-later-outputs-not-needed",
        "grad-outputs-not-needed-after-a-scalar-output",
        "grad-outputs-of-outputs-in-between-not-needed",
    ],
)
def test_grad_outputs_needed(backend: Backend, trace: Trace) -> None:
    """autograd.grad of several outputs is an error if any of more than one element has no gradient in grad_outputs.

    The documentation says when the argument is optional; a call without what it requires is an error.
    """
    seed = backend.tensor([1.0, 1.0])
    for x in (leaf(backend), backend.tensor([0.0, 0.0], requires_grad=True)):
        for gradients in (None, [None, seed, seed], [seed, None, seed], [seed, seed, None]):
            outputs = backend.call(lambda x: (x * 2, x * x, x * 3), x)
            with trace.raises(ErrorKind.ROOT_GRADIENT):
                backend.grad(outputs, [x], gradients)
        with trace.raises(ErrorKind.ROOT_GRADIENT):
            backend.grad(backend.call(lambda x: (backend.sum(x), x * 2), x), [x])


@rule(
    "grad.grad-outputs.shape",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[
        GRAD,
        observed("matching shapes are the user's obligation in the documentation, the error is not there"),
    ],
    needs=[Capability.AUTOGRAD_GRAD, Capability.SEED_GRADIENT, Capability.MISUSE_ERRORS],
    mutants=[
        "shapes-of-grad-outputs-unchecked",
        "shapes-of-later-grad-outputs-unchecked",
        "grad-outputs-of-scalars-may-have-a-dimension",
        "grad-outputs-of-vectors-may-be-scalars",
    ],
)
def test_grad_outputs_of_another_shape(backend: Backend, trace: Trace) -> None:
    """A gradient in grad_outputs that does not have the shape of its output is an error in autograd.grad.

    With is_grads_batched it has one dimension more.
    """
    right = backend.tensor([1.0, 1.0])
    for numbers in ([1.0], [[1.0, 2.0]], [1.0, 2.0, 3.0], 1.0):
        x, wrong = leaf(backend), backend.tensor(numbers)
        with trace.raises(ErrorKind.ROOT_GRADIENT):
            backend.grad(backend.call(lambda x: x * 2, x), [x], wrong)
        for gradients in ([wrong, right, right], [right, wrong, right], [right, right, wrong]):
            outputs = backend.call(lambda x: (x * 2, x * 3, x * 5), x)

            with trace.raises(ErrorKind.ROOT_GRADIENT):
                backend.grad(outputs, [x], gradients)
    for number, gradient in ((2.0, [1.0]), ([2.0], 1.0)):
        one = backend.tensor(number, requires_grad=True)
        with trace.raises(ErrorKind.ROOT_GRADIENT):
            backend.grad(backend.call(lambda one: one * 2, one), [one], backend.tensor(gradient))


@rule(
    "grad.batched",
    level=Level.MUST,
    sources=[GRAD.sentence(22, 23)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.SEED_GRADIENT, Capability.BATCHED_GRADIENTS],
    mutants=[
        "batches-of-gradients-summed",
        "batches-of-gradients-repeat-the-first",
        "batches-of-the-first-output",
        "batches-of-one-row-lose-their-dimension",
        "batches-of-scalar-outputs-summed",
    ],
    except_under={"extra-dimension": "a batch of gradients for a scalar has one dimension"},
)
def test_batched(backend: Backend, trace: Trace) -> None:
    """With is_grads_batched=True, autograd.grad returns a product with the Jacobian for each row of grad_outputs.

    The first dimension of each of the grad_outputs is the batch, and so is the first one of each gradient.
    """
    x, w = leaf(backend), backend.tensor([3.0, 5.0], requires_grad=True)
    first = backend.tensor([[1.0, 0.0], [0.0, 1.0], [10.0, 1.0]])
    second = backend.tensor([[0.0, 0.0], [1.0, 2.0], [0.0, 4.0]])
    of_x, of_w = [[4.0, 1.0], [5.0, 15.0], [42.0, 35.0]], [[0.0, 0.0], [1.0, 4.0], [0.0, 8.0]]
    for _ in range(3):
        outputs = backend.call(lambda x, w: (x * backend.sum(x), x * w), x, w)
        grads = backend.grad(outputs, [x, w], [first, second], is_grads_batched=True)
        trace.expect_value("gradients", [of_x, of_w], grads)

    for forward, batch, products in (
        (lambda x: x * x, [[1.0, 10.0]], [[2.0, 40.0]]),
        (lambda x: backend.sum(x * x), [1.0, 10.0], [[2.0, 4.0], [20.0, 40.0]]),
    ):
        grads = backend.grad(backend.call(forward, x), [x], backend.tensor(batch), is_grads_batched=True)
        trace.expect_value("gradients of one row, or of a scalar", [products], grads)

    for how in ({}, {"is_grads_batched": False}):
        output = backend.call(lambda x: x * backend.sum(x), x)
        trace.expect_value("one product", [[6.0, 6.0]], backend.grad(output, [x], backend.tensor([1.0, 1.0]), **how))


@rule(
    "grad.batched.unused-error",
    level=Level.MUST,
    sources=[GRAD.sentence(20, 21, 32)],
    needs=[
        Capability.AUTOGRAD_GRAD,
        Capability.SEED_GRADIENT,
        Capability.BATCHED_GRADIENTS,
        Capability.MISUSE_ERRORS,
    ],
    mutants=["batches-allow-unused-inputs"],
)
def test_unused_input_of_a_batch(backend: Backend, trace: Trace) -> None:
    """With is_grads_batched=True an unused input of autograd.grad is an error, by default and with allow_unused=False.

    The default is the value of materialize_grads, which is False by default.
    """
    x, unused, batch = leaf(backend), leaf(backend), backend.tensor([[1.0, 0.0], [0.0, 1.0]])
    for how, inputs in product(({}, {"allow_unused": False}), ([unused], [x, unused], [unused, x])):
        with trace.raises(ErrorKind.UNUSED_INPUT):
            backend.grad(backend.call(lambda x: x * x, x), inputs, batch, is_grads_batched=True, **how)


@rule(
    "grad.batched.tensor-hook",
    level=Level.MUST,
    sources=[GRAD.sentence(22, 23), HOOK.sentence(4)],
    needs=[
        Capability.AUTOGRAD_GRAD,
        Capability.SEED_GRADIENT,
        Capability.BATCHED_GRADIENTS,
        Capability.TENSOR_HOOKS,
    ],
    mutants=[
        "hooks-return-nothing-in-batches",
        "hooks-act-on-the-first-row-of-a-batch",
        "hooks-of-leaves-return-nothing-in-batches",
        "later-hooks-return-nothing-in-batches",
        "hooks-of-outputs-return-nothing-in-batches",
    ],
)
def test_batched_hook(backend: Backend, trace: Trace) -> None:
    """With is_grads_batched=True, what a tensor hook returns takes the gradient's place in each row of the batch."""

    def squared(x):
        y = x * 2
        backend.register_hook(y, lambda grad: grad * 10)
        return y * y

    x = leaf(backend)
    batch = backend.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    (grad,) = backend.grad(backend.call(squared, x), [x], batch, is_grads_batched=True)

    trace.expect_value("gradients", [[80.0, 0.0], [0.0, 160.0], [80.0, 160.0]], grad)

    for factor in (5, 2):
        backend.register_hook(x, lambda grad, factor=factor: grad * factor)
    (grad,) = backend.grad(backend.call(squared, x), [x], batch, is_grads_batched=True)

    trace.expect_value("gradients, hooks of a leaf", [[800.0, 0.0], [0.0, 1600.0], [800.0, 1600.0]], grad)

    z = leaf(backend)
    output = backend.call(lambda z: z * 2, z)
    backend.register_hook(output, lambda grad: grad * 10)
    grads = backend.grad(output, [z], batch, is_grads_batched=True)
    trace.expect_value("gradients, a hook of the output", [[[20.0, 0.0], [0.0, 20.0], [20.0, 20.0]]], grads)


@rule(
    "grad.grad-outputs.constant",
    level=Level.MUST,
    sources=[GRAD.sentence(3, 12)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.SEED_GRADIENT],
    mutants=[
        "constant-outputs-refused",
        "constant-outputs-end-the-list",
        "constant-outputs-at-the-ends-refused",
        "several-constant-outputs-refused",
        "constant-outputs-of-one-value-refused",
        "constant-outputs-beside-a-single-other-refused",
        "a-constant-as-the-first-output-alone-refused",
        "constant-outputs-refused-from-the-fourth-pass-on",
    ],
)
def test_constant_output(backend: Backend, trace: Trace) -> None:
    """autograd.grad accepts None as the gradient of an output that does not require grad, which changes no gradient."""
    x, constant = leaf(backend), backend.tensor([5.0, 6.0])
    seeds = [None, backend.tensor([1.0, 10.0]), None, backend.tensor([100.0, 200.0]), None]
    for places in (slice(1, 4), slice(5)):
        outputs = backend.call(lambda x, c: (c * 3, x * 2, c * 5, x * x, c * 7), x, constant)

        (grad,) = backend.grad(outputs[places], [x], seeds[places])

        trace.expect_value("gradient", [202.0, 820.0], grad)

    for numbers in NUMBERS:
        constant, seed = backend.tensor(numbers), backend.tensor([1.0, 10.0])
        for before in (True, False):
            doubled = backend.call(lambda x: x * 2, x)
            outputs, seeds = ([constant, doubled], [None, seed]) if before else ([doubled, constant], [seed, None])
            trace.expect_value("gradient", [[2.0, 20.0]], backend.grad(outputs, [x], seeds))
