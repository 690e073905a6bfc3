"""Custom Functions: the arguments and results of their backward, and hooks on their outputs."""

from typing import Any

from hooklaw import Backend, Capability, ErrorKind, Level, Trace, docstring, notes, rule

FUNCTION = docstring("torch.autograd.Function")
SAVE = docstring("torch.autograd.function.FunctionCtx.save_for_backward")
EXTENDING = notes("extending", "how-to-use")


@rule(
    "custom-function.materialize-grads",
    level=Level.MUST,
    sources=[docstring("torch.autograd.function.FunctionCtx.set_materialize_grads")],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["custom-functions-get-no-zeros"],
)
def test_zeros(backend: Backend, trace: Trace) -> None:
    """For an unused output the backward of a custom Function gets zeros of the output's shape as the gradient."""

    def backward(_ctx, used, unused):
        trace.log("backward", [used, unused])
        return used * 2

    function = backend.custom_function(lambda _ctx, x: (x * 2, backend.sum(x)), backward)

    def forward(x):
        used, _ = function(x)
        return backend.sum(used)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("backward", [[1.0, 1.0], 0.0]))


def cube(backend: Backend) -> Any:
    """Make a custom Function that computes x * x * x and saves its input."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * x * 3

    return backend.custom_function(forward, backward)


@rule(
    "custom-function.save-for-backward",
    level=Level.MUST,
    sources=[FUNCTION, SAVE],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["saved-tensors-of-a-function-turned-round"],
)
def test_saves(backend: Backend, trace: Trace) -> None:
    """The backward of a custom Function reads the tensors that its forward saved, in the same order."""

    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        trace.log("saved", [x, y])
        return grad * y, grad * x

    function = backend.custom_function(forward, backward)
    x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0], requires_grad=True)
    backend.backward(backend.call(lambda x, y: backend.sum(function(x, y)), x, y))

    trace.expect(("saved", [[1.0, 2.0], [3.0, 4.0]]))
    trace.expect_value("gradients", [[3.0, 4.0], [1.0, 2.0]], [backend.grad_of(x), backend.grad_of(y)])


@rule(
    "custom-function.saved-after-free",
    level=Level.MUST,
    sources=[SAVE, docstring("torch.Tensor.backward")],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["graph-never-freed", "freed-graph-gives-zeros"],
)
def test_freed(backend: Backend, trace: Trace) -> None:
    """Backward frees what a custom Function saved: a second backward is an error unless the graph was retained."""
    function = cube(backend)
    loss = backend.call(lambda x: backend.sum(function(x)), backend.tensor([1.0, 2.0], requires_grad=True))
    backend.backward(loss)

    with trace.raises(ErrorKind.GRAPH_FREED):
        backend.backward(loss)


@rule(
    "custom-function.return-count",
    level=Level.MUST,
    sources=[EXTENDING],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["wrong-number-of-gradients-accepted"],
)
def test_number_of_gradients(backend: Backend, trace: Trace) -> None:
    """A custom Function's backward that returns fewer gradients than its forward had inputs is an error."""
    function = backend.custom_function(lambda _ctx, x, y: x * y, lambda _ctx, grad: grad)
    x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0], requires_grad=True)
    loss = backend.call(lambda x, y: backend.sum(function(x, y)), x, y)

    with trace.raises(ErrorKind.FUNCTION_RETURN_COUNT):
        backend.backward(loss)


@rule(
    "custom-function.trailing-none",
    level=Level.MAY,
    sources=[EXTENDING],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["trailing-nones-refused"],
)
def test_trailing_none(backend: Backend, trace: Trace) -> None:
    """A custom Function's backward may return more values than forward had inputs if all surplus values are None."""
    function = backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, grad: (grad * 2, None, None))
    x = backend.tensor([1.0, 2.0], requires_grad=True)

    backend.backward(backend.call(lambda x: backend.sum(function(x)), x))

    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "custom-function.needs-input-grad",
    level=Level.MUST,
    sources=[EXTENDING],
    needs=[Capability.CUSTOM_FUNCTION, Capability.NEEDS_INPUT_GRAD],
    mutants=["every-input-of-a-function-needs-a-gradient"],
)
def test_needs_input_grad(backend: Backend, trace: Trace) -> None:
    """ctx.needs_input_grad tells a custom Function's backward for each input whether it needs a gradient."""

    def backward(ctx, grad):
        trace.log("needed", ctx.needs_input_grad)
        return grad, None, None

    function = backend.custom_function(lambda _ctx, x, y, _number: x + y, backward)
    x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0])
    backend.backward(backend.call(lambda x, y: backend.sum(function(x, y, 5)), x, y))

    trace.expect(("needed", [True, False, False]))


@rule(
    "custom-function.hooks",
    level=Level.MUST,
    sources=[notes("autograd", "backward-hooks-execution"), docstring("torch.autograd.graph.Node.register_prehook")],
    needs=[Capability.CUSTOM_FUNCTION, Capability.TENSOR_HOOKS],
    mutants=["hooks-pass-over-custom-functions"],
)
def test_tensor_hook(backend: Backend, trace: Trace) -> None:
    """A hook on an output of a custom Function runs, and what it returns is the gradient that backward gets."""

    def forward(x):
        y = function(x)
        backend.register_hook(y, trace.saw("hook", lambda grad: grad * 5))
        return backend.sum(y * 7)

    function = cube(backend)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("hook", [7.0, 7.0]))
    trace.expect_value("x.grad", [105.0, 420.0], backend.grad_of(x))


@rule(
    "custom-function.hooks.node",
    level=Level.MUST,
    sources=[notes("autograd", "backward-hooks-execution"), docstring("torch.autograd.graph.Node.register_prehook")],
    needs=[Capability.CUSTOM_FUNCTION, Capability.NODES, Capability.NODE_HOOKS],
    mutants=["hooks-pass-over-custom-functions"],
)
def test_node_hooks(backend: Backend, trace: Trace) -> None:
    """The grad_fn of an output of a custom Function is a Node, whose hooks run around the user's backward."""

    def forward(x):
        y = function(x)
        node = backend.grad_fn(y)
        backend.node_register_prehook(node, lambda grads: (trace.log("before", grads), (grads[0] * 5,))[1])
        backend.node_register_hook(node, lambda results, _: (trace.log("after", results), (results[0] * 2,))[1])
        return backend.sum(y * 7)

    function = cube(backend)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("before", [[7.0, 7.0]]), ("after", [[105.0, 420.0]]))
    trace.expect_value("x.grad", [210.0, 840.0], backend.grad_of(x))


@rule(
    "custom-function.nested-structures",
    level=Level.MUST,
    sources=[EXTENDING],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["tensors-in-lists-are-inputs"],
)
def test_tensor_in_a_list(backend: Backend, trace: Trace) -> None:
    """A tensor inside a list is not an input of a custom Function: no gradient flows through the Function to it."""
    function = backend.custom_function(lambda _ctx, tensors: tensors[0] * 2, lambda _ctx, grad: grad)

    result = backend.call(lambda x: function([x]), backend.tensor([1.0, 2.0], requires_grad=True))

    trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(result))
