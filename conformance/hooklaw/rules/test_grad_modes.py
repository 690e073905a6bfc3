"""Grad modes: results of no_grad and inference_mode."""

from hooklaw import Backend, Capability, ErrorKind, Level, Trace, docstring, notes, rule

NO_GRAD = docstring("torch.no_grad")
INFERENCE = docstring("torch.autograd.grad_mode.inference_mode")
MODES = notes("autograd", "grad-modes")
INFERENCE_SECTION = notes("autograd", "inference-mode")


@rule(
    "mode.no-grad.result",
    level=Level.MUST,
    sources=[NO_GRAD],
    needs=[Capability.GRAD_MODE],
    mutants=["recorded-under-no-grad"],
)
def test_result(backend: Backend, trace: Trace) -> None:
    """A result computed under no_grad does not require grad, whatever its inputs."""

    def forward(x):
        with backend.no_grad():
            return x * 2, backend.sum(x)

    results = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))

    trace.expect_value("require grad", [False, False], [backend.requires_grad(result) for result in results])


@rule(
    "mode.no-grad.result.view",
    level=Level.MUST,
    sources=[NO_GRAD],
    needs=[Capability.GRAD_MODE, Capability.VIEWS],
    mutants=["recorded-under-no-grad", "views-under-no-grad-require-grad"],
)
def test_view(backend: Backend, trace: Trace) -> None:
    """A view made under no_grad does not require grad."""

    def forward(x):
        y = x * 2
        with backend.no_grad():
            return backend.view(x, 2), backend.view(y, 2)

    views = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))

    trace.expect_value("require grad", [False, False], [backend.requires_grad(view) for view in views])


@rule(
    "mode.no-grad.requires-grad-false",
    level=Level.MUST,
    sources=[NO_GRAD, MODES],
    needs=[Capability.GRAD_MODE],
    mutants=["recorded-under-no-grad", "nothing-requires-grad-under-no-grad"],
)
def test_flags_stay(backend: Backend, trace: Trace) -> None:
    """Under no_grad a leaf still requires grad, and so does a new tensor with requires_grad=True; a result does not."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    with backend.no_grad():
        made = backend.tensor([1.0, 2.0], requires_grad=True)
        result = backend.call(lambda x: x * 2, x)
        inside = [backend.requires_grad(tensor) for tensor in (x, made, result)]

    trace.expect_value("x, a new leaf and a result, inside", [True, True, False], inside)
    after = [backend.requires_grad(tensor) for tensor in (x, made, result)]
    trace.expect_value("x, the leaf and the result, afterwards", [True, True, False], after)


@rule(
    "mode.no-grad.no-hooks",
    level=Level.MUST,
    sources=[MODES],
    needs=[Capability.GRAD_MODE, Capability.TENSOR_HOOKS],
    mutants=["recorded-under-no-grad"],
)
def test_no_hooks(backend: Backend, trace: Trace) -> None:
    """A result computed under no_grad sends no gradient to the hooks of its inputs, and cannot take a hook itself."""

    def forward(x):
        with backend.no_grad():
            unrecorded = x * 2
        return unrecorded, backend.sum(x * 3 + unrecorded)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("x"))
    unrecorded, loss = backend.call(forward, x)
    with trace.raises(ErrorKind.NO_GRADIENT):
        backend.register_hook(unrecorded, trace.saw("unrecorded"))
    backend.backward(loss)

    trace.expect(("x", [3.0, 3.0]))


@rule(
    "mode.no-grad.register-ok",
    level=Level.MUST,
    sources=[MODES],
    needs=[Capability.GRAD_MODE, Capability.TENSOR_HOOKS],
    mutants=["hooks-refused-under-no-grad", "hooks-skipped-under-no-grad"],
)
def test_graph_that_is_there(backend: Backend, trace: Trace) -> None:
    """Backward under no_grad works on a graph recorded before, and runs hooks that were registered under no_grad."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(x * 2), x)
    with backend.no_grad():
        backend.register_hook(x, trace.saw("x"))
        backend.backward(loss)

    trace.expect(("x", [2.0, 2.0]))
    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "mode.inference.hook-register",
    level=Level.MUST,
    sources=[INFERENCE, INFERENCE_SECTION],
    needs=[Capability.INFERENCE_MODE, Capability.TENSOR_HOOKS],
    mutants=["recorded-in-inference-mode"],
)
def test_inference(backend: Backend, trace: Trace) -> None:
    """A result computed in inference mode does not require grad, and cannot take a hook."""
    with backend.inference_mode():
        result = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))

    trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(result))
    with trace.raises(ErrorKind.NO_GRADIENT):
        backend.register_hook(result, trace.saw("hook"))


@rule(
    "mode.inference.saved-outside",
    level=Level.MUST,
    sources=[INFERENCE, INFERENCE_SECTION],
    needs=[Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS],
    mutants=["inference-mode-is-no-grad"],
)
def test_inference_tensor_saved(backend: Backend, trace: Trace) -> None:
    """An inference tensor cannot be saved for backward outside of inference mode."""
    with backend.inference_mode():
        made = backend.tensor([1.0, 2.0])

    with trace.raises(ErrorKind.INFERENCE_TENSOR):
        backend.call(lambda x: x * made, backend.tensor([1.0, 2.0], requires_grad=True))


@rule(
    "mode.inference.functional-ok",
    level=Level.MAY,
    sources=[INFERENCE_SECTION],
    needs=[Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS],
)
def test_inference_tensor_not_saved(backend: Backend, trace: Trace) -> None:
    """An inference tensor may be an operand of a recorded operation that does not save it."""
    with backend.inference_mode():
        made = backend.tensor([1.0, 2.0])

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(lambda x: backend.sum((x + made) * 2), x))

    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))
