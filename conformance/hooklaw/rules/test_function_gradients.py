"""Custom Functions: the gradients that their backward returns."""

from itertools import product

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import NUMBERS, leaf

EXTENDING = notes("extending", "how-to-use")
FUNCTION_BACKWARD = docstring("torch.autograd.Function.backward")


@rule(
    "custom-function.gradients-by-position",
    level=Level.MUST,
    sources=[FUNCTION_BACKWARD.sentence(4, 5), EXTENDING.sentence(20, 22)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "function-grads-reversed",
        "function-results-reversed",
        "gradients-of-a-function-become-grad",
        "several-gradients-of-a-function-become-grad",
    ],
)
def test_by_position(backend: Backend, trace: Trace) -> None:
    """A custom Function's backward gets a gradient for each output, and returns one for each input, in their order.

    It may return the same tensor in each pass, which none of them may change.
    """

    def backward(_ctx, first, second):
        trace.log("gradients", [first, second])
        return first * 2, second * 3

    function = backend.custom_function(lambda _ctx, x, y: (x * 2, y * 3), backward)

    def forward(x, y):
        first, second = function(x, y)
        return backend.sum(first * 5) + backend.sum(second * 7)

    for _ in range(3):
        x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0], requires_grad=True)
        backend.backward(backend.call(forward, x, y))

        trace.expect(("gradients", [[5.0, 5.0], [7.0, 7.0]]))
        trace.expect_value("x.grad and y.grad", [[10.0, 10.0], [21.0, 21.0]], [backend.grad_of(x), backend.grad_of(y)])

    always = backend.tensor([3.0, 5.0])
    constant = backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, _grad: always)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for passes in (1, 2, 3):
        backend.backward(backend.call(lambda x: backend.sum(constant(x)), x))
        trace.expect_value("x.grad of the same gradients", [3.0 * passes, 5.0 * passes], backend.grad_of(x))

    both = backend.tensor([3.0, 5.0]), backend.tensor([4.0, 6.0])
    constant = backend.custom_function(lambda _ctx, x, y: x * y, lambda _ctx, _grad: both)
    x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0], requires_grad=True)
    for passes in (1, 2, 3):
        backend.backward(backend.call(lambda x, y: backend.sum(constant(x, y)), x, y))
        twice = [3.0 * passes, 5.0 * passes], [4.0 * passes, 6.0 * passes]
        trace.expect_value("the same gradients for x and y", [*twice], [backend.grad_of(x), backend.grad_of(y)])

    function = backend.custom_function(lambda _ctx, x: x * 1, lambda _ctx, grad: (trace.log("backward", grad), grad)[1])
    for numbers in NUMBERS:
        x, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        backend.backward(backend.call(lambda x, weight: backend.sum(function(x) * weight), x, weight))
        trace.expect(("backward", numbers))
        trace.expect_value("x.grad that is 0-d, zero or empty", numbers, backend.grad_of(x))

        other = backend.custom_function(lambda _ctx, x: x * 1, lambda *_, returned=weight: returned)
        x = backend.tensor(numbers, requires_grad=True)
        backend.backward(backend.sum(backend.call(other, x)))
        trace.expect_value("x.grad, if backward returns it", numbers, backend.grad_of(x))


@rule(
    "custom-function.return-count",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[EXTENDING, observed("the number of gradients is the user's obligation; an error says that it is wrong")],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "wrong-number-of-gradients-accepted",
        "missing-gradients-of-a-function-padded",
        "missing-gradients-of-constants-padded",
        "functions-that-return-nothing-accepted",
        "surplus-gradients-dropped",
        "surplus-gradients-dropped-after-a-none",
        "surplus-gradients-of-one-input-dropped",
    ],
)
def test_number_of_gradients(backend: Backend, trace: Trace) -> None:
    """A custom Function's backward that returns too few gradients, or a surplus one other than None, is an error."""
    x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0], requires_grad=True)
    few = (lambda grad: grad, lambda grad: (grad,), lambda _: None, lambda _: ())
    surplus = (lambda grad: (grad, grad, grad), lambda grad: (grad, grad, None, grad))
    for others, returned in (
        *product(([y], [backend.tensor([3.0, 4.0])], [5]), few),
        *product(([y], [5]), surplus),
        ([], lambda grad: (grad, grad)),
    ):
        function = backend.custom_function(
            lambda _ctx, x, *_: x * 2, lambda _ctx, grad, returned=returned: returned(grad)
        )
        loss = backend.call(lambda x, function=function, others=others: backend.sum(function(x, *others)), x)

        with trace.raises(ErrorKind.FUNCTION_RETURN_COUNT):
            backend.backward(loss)


@rule(
    "custom-function.trailing-none",
    level=Level.MUST,
    sources=[EXTENDING.sentence(8, 24)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["trailing-nones-refused", "surplus-nones-stripped-with-those-of-inputs"],
)
def test_trailing_none(backend: Backend, trace: Trace) -> None:
    """A custom Function's backward may return more values than forward had inputs if all surplus values are None.

    That is how its forward can have optional arguments, as here.
    """

    def forward(_ctx, x, factor=2, summand=0):
        return x * factor + summand

    function = backend.custom_function(forward, lambda _ctx, grad: (grad * 2, None, None))
    for given in ((), (2,), (2, 0)):
        x = backend.tensor([1.0, 2.0], requires_grad=True)

        backend.backward(backend.call(lambda x, given=given: backend.sum(function(x, *given)), x))

        trace.expect_value(f"x.grad, given {given}", [2.0, 2.0], backend.grad_of(x))


@rule(
    "custom-function.none-for-others",
    level=Level.MUST,
    sources=[FUNCTION_BACKWARD.sentence(6), EXTENDING.sentence(23)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["functions-must-return-every-gradient", "gradients-of-a-function-close-up"],
)
def test_none_for_others(backend: Backend, trace: Trace) -> None:
    """A custom Function's backward may return None for inputs that are no tensors or do not require grad."""
    function = backend.custom_function(lambda _ctx, _number, x, y: x * y, lambda _ctx, grad: (None, grad * 2, None))
    for _ in range(3):
        x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0])

        backend.backward(backend.call(lambda x, y: backend.sum(function(5, x, y)), x, y))

        trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "custom-function.gradient-for-constant",
    level=Level.MUST,
    sources=[notes("extending", "example"), notes("autograd", "setting-requires-grad").sentence(4)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "gradients-for-constants-refused",
        "gradients-for-later-constants-refused",
        "gradients-for-constants-accumulated",
    ],
)
def test_gradient_for_a_constant(backend: Backend, trace: Trace) -> None:
    """A gradient that a custom Function's backward returns for a tensor that does not require grad is ignored.

    A comment in the example says that it is not an error; and only leaves that require grad have gradients accumulated.
    """
    function = backend.custom_function(lambda _ctx, x, y: x * y, lambda _ctx, grad: (grad * 2, grad * 3))
    for needed, expected in (((False, True), [None, [3.0, 3.0]]), ((True, False), [[2.0, 2.0], None])):
        x, y = (backend.tensor([1.0, 2.0], requires_grad=flag) for flag in needed)

        backend.backward(backend.call(lambda x, y: backend.sum(function(x, y)), x, y))

        trace.expect_value("gradients", expected, [backend.grad_of(x), backend.grad_of(y)])


@rule(
    "custom-function.gradient-for-non-tensor",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[notes("extending", "example"), observed("an error says that this gradient must be None")],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["gradients-for-non-tensors-ignored"],
)
def test_gradient_for_a_non_tensor(backend: Backend, trace: Trace) -> None:
    """A custom Function's backward that returns a gradient for an input that is not a tensor is an error.

    A comment in the example says that such gradients must be None.
    """
    for given, returned in (((5,), lambda grad: (grad, grad)), (("note", 5), lambda grad: (grad, grad, None))):
        function = backend.custom_function(
            lambda _ctx, x, *_: x * 2, lambda _ctx, grad, returned=returned: returned(grad)
        )
        loss = backend.call(lambda x, function=function, given=given: backend.sum(function(x, *given)), leaf(backend))
        with trace.raises(ErrorKind.FUNCTION_RETURN_COUNT):
            backend.backward(loss)


@rule(
    "custom-function.needs-input-grad",
    level=Level.MUST,
    sources=[EXTENDING.sentence(23), FUNCTION_BACKWARD.sentence(8, 9)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.NEEDS_INPUT_GRAD],
    mutants=[
        "every-input-of-a-function-needs-a-gradient",
        "needs-input-grad-leaves-out-other-inputs",
        "needs-input-grad-is-true-of-the-first-alone",
        "needs-input-grad-is-true-of-the-last-alone",
        "needs-input-grad-is-true-of-leaves-alone",
    ],
)
def test_needs_input_grad(backend: Backend, trace: Trace) -> None:
    """ctx.needs_input_grad tells a custom Function's backward for each input whether it needs a gradient."""

    def backward(ctx, grad):
        trace.log("needed", ctx.needs_input_grad)
        of_x, of_y, of_z = (grad if needed else None for needed in flags)
        return of_x, of_y, None, of_z

    function = backend.custom_function(lambda _ctx, x, y, _number, z: x + y + z, backward)
    for flags in ((False, True, False), (True, False, True), (True, True, True)):
        x, y, z = (backend.tensor([1.0, 2.0], requires_grad=needed) for needed in flags)
        for times in (lambda tensor: tensor, lambda tensor: tensor * 2):
            root = backend.call(
                lambda x, y, z, times=times: backend.sum(function(times(x), times(y), 5, times(z))), x, y, z
            )
            backend.backward(root)

            trace.expect(("needed", [*flags[:2], False, flags[2]]))


@rule(
    "custom-function.double-backward.several",
    level=Level.MUST,
    sources=[notes("extending", "example").sentence(10, 11, 12)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["later-gradients-given-to-functions-are-constants", "later-gradients-of-functions-are-constants"],
)
def test_double_backward_of_several(backend: Backend, trace: Trace) -> None:
    """Second derivatives flow through each gradient that a custom Function's backward gets, saves and returns."""

    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x * x * y

    def backward(ctx, first, second):
        x, y = ctx.saved_tensors
        return first * y + second * x * y * 2, first * x + second * x * x

    def loss_of(x, y, v, w):
        first, second = function(x, y)
        return backend.sum(first * v + second * w)

    function = backend.custom_function(forward, backward)
    leaves = [backend.tensor([number], requires_grad=True) for number in (2.0, 3.0, 5.0, 7.0)]
    firsts = backend.grad(backend.call(loss_of, *leaves), leaves[:2], create_graph=True)
    trace.expect_value("first derivatives", [[99.0], [38.0]], [*firsts])

    seconds = backend.grad(backend.sum(firsts[0] + firsts[1] * 10), leaves)
    trace.expect_value("second derivatives", [[372.0], [33.0], [23.0], [52.0]], [*seconds])


@rule(
    "custom-function.double-backward.another-function",
    level=Level.MUST,
    sources=[notes("extending", "example").sentence(10)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["functions-called-in-a-backward-are-constants"],
)
def test_double_backward_through_another(backend: Backend, trace: Trace) -> None:
    """A custom Function whose backward calls another custom Function can be differentiated twice."""

    def save(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    square = backend.custom_function(save, lambda ctx, grad: grad * ctx.saved_tensors[0] * 2)
    cube = backend.custom_function(
        lambda ctx, x: save(ctx, x) * x, lambda ctx, grad: grad * square(ctx.saved_tensors[0]) * 3
    )
    x = leaf(backend)
    (first,) = backend.grad(backend.call(lambda x: backend.sum(cube(x)), x), [x], create_graph=True)
    trace.expect_value("first derivative", [3.0, 12.0], first)

    trace.expect_value("second derivative", [[6.0, 12.0]], backend.grad(backend.sum(first), [x]))
