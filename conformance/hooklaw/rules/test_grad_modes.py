"""Grad modes: results of no_grad, enable_grad and inference_mode."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule

NO_GRAD = docstring("torch.no_grad")
NO_GRAD_MODE = notes("autograd", "no-grad-mode")
INFERENCE = docstring("torch.autograd.grad_mode.inference_mode")
INFERENCE_SECTION = notes("autograd", "inference-mode")
ENABLE_GRAD = docstring("torch.enable_grad")
IS_INFERENCE = docstring("torch.is_inference")


@rule(
    "mode.no-grad.result",
    level=Level.MUST,
    sources=[NO_GRAD.sentence(4)],
    needs=[Capability.GRAD_MODE],
    mutants=["no-grad-not-entered", "grad-mode-of-the-first-call", "clone-recorded-under-no-grad"],
)
def test_result(backend: Backend, trace: Trace) -> None:
    """A result computed under no_grad does not require grad, whatever its inputs."""

    def forward(x):
        y = x * 2
        with backend.no_grad():
            return x * 2, backend.sum(x), y * 2, backend.exp(y), backend.clone(x)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    results = backend.call(forward, x)

    trace.expect_value("require grad", [False] * 5, [backend.requires_grad(result) for result in results])

    def double(x):
        return x * 2

    for mode, recorded in ((backend.enable_grad, True), (backend.no_grad, False), (backend.enable_grad, True)):
        with mode():
            result = backend.call(double, x)
        trace.expect_value("result of a function requires grad", recorded, backend.requires_grad(result))


@rule(
    "mode.no-grad.result.view",
    level=Level.MUST,
    sources=[NO_GRAD.sentence(4)],
    needs=[Capability.GRAD_MODE, Capability.VIEWS],
    mutants=["no-grad-not-entered", "views-under-no-grad-require-grad", "views-of-views-recorded-under-no-grad"],
)
def test_view(backend: Backend, trace: Trace) -> None:
    """A view made under no_grad does not require grad."""

    def forward(x):
        y = x * 2
        with backend.no_grad():
            return backend.view(x, 2), backend.view(y, 2)

    views = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))

    trace.expect_value("require grad", [False, False], [backend.requires_grad(view) for view in views])

    def others(x):
        y = backend.view(x * 2, 2, 1)
        with backend.no_grad():
            return backend.view(y, 2), backend.transpose(y, 0, 1), backend.expand(y, 2, 3)

    views = backend.call(others, backend.tensor([1.0, 2.0], requires_grad=True))
    trace.expect_value("others require grad", [False] * 3, [backend.requires_grad(view) for view in views])


@rule(
    "mode.no-grad.result.in-place",
    level=Level.MUST,
    sources=[NO_GRAD.sentence(4)],
    needs=[Capability.GRAD_MODE, Capability.IN_PLACE],
    mutants=["no-grad-not-entered", "changes-in-place-recorded-under-no-grad"],
)
def test_changed(backend: Backend, trace: Trace) -> None:
    """A constant that is changed in place under no_grad does not require grad, even if the factor does."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    made, computed = backend.tensor([3.0, 4.0]), backend.tensor([3.0, 4.0]) * 2
    for constant in (made, computed):
        with backend.no_grad():
            backend.call(lambda x, constant=constant: backend.mul_(constant, x), x)
    trace.expect_value("require grad", [False, False], [backend.requires_grad(each) for each in (made, computed)])


@rule(
    "mode.no-grad.requires-grad-false",
    level=Level.MUST,
    sources=[NO_GRAD.sentence(4, 6), NO_GRAD_MODE.sentence(4)],
    needs=[Capability.GRAD_MODE],
    mutants=["no-grad-not-entered", "nothing-requires-grad-under-no-grad", "exponential-recorded-under-no-grad"],
)
def test_flags_stay(backend: Backend, trace: Trace) -> None:
    """Under no_grad a leaf still requires grad, and so does a new tensor with requires_grad=True; a result does not."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    with backend.no_grad():
        made = backend.tensor([1.0, 2.0], requires_grad=True)
        results = backend.call(lambda x: (x * 2, backend.exp(x), backend.sum(x)), x)
        inside = [backend.requires_grad(tensor) for tensor in (x, made, *results)]

    trace.expect_value("x, a new leaf and results, inside", [True, True, False, False, False], inside)
    after = [backend.requires_grad(tensor) for tensor in (x, made, *results)]
    trace.expect_value("x, the leaf and the results, afterwards", [True, True, False, False, False], after)


@rule(
    "mode.no-grad.no-hooks",
    level=Level.MUST,
    sources=[NO_GRAD_MODE.sentence(1, 2)],
    needs=[Capability.GRAD_MODE, Capability.TENSOR_HOOKS],
    mutants=["no-grad-not-entered"],
)
def test_no_hooks(backend: Backend, trace: Trace) -> None:
    """A result computed under no_grad sends no gradient to the hooks of its inputs."""

    def forward(x):
        with backend.no_grad():
            unrecorded = x * 2
        return backend.sum(x * 3 + unrecorded)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("x"))
    backend.backward(backend.call(forward, x))

    trace.expect(("x", [3.0, 3.0]))


@rule(
    "mode.no-grad.register-ok",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[NO_GRAD, observed("no_grad concerns what is recorded, not the graphs recorded before")],
    needs=[Capability.GRAD_MODE, Capability.TENSOR_HOOKS],
    mutants=["hooks-refused-under-no-grad", "tensor-hook-lost-made-in-no-grad"],
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
    "mode.enable-grad.inside-no-grad",
    level=Level.MUST,
    sources=[ENABLE_GRAD.sentence(2)],
    needs=[Capability.GRAD_MODE],
    mutants=["enable-grad-not-entered", "enable-grad-undoes-one-no-grad"],
)
def test_enable_grad(backend: Backend, trace: Trace) -> None:
    """An operation under enable_grad is recorded even inside no_grad, and its backward reaches the inputs."""

    def forward(x):
        with backend.no_grad(), backend.no_grad(), backend.enable_grad():  # which undoes both
            return backend.sum(x * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(forward, x)
    trace.expect_value("requires grad", expected=True, observed=backend.requires_grad(loss))
    backend.backward(loss)

    trace.expect_value("x.grad", [3.0, 3.0], backend.grad_of(x))


@rule(
    "mode.nested.restored",
    level=Level.MUST,
    sources=[NO_GRAD.sentence(1), ENABLE_GRAD.sentence(1), docstring("torch.is_grad_enabled").sentence(2)],
    needs=[Capability.GRAD_MODE],
    mutants=[
        "no-grad-ends-the-outer",
        "leaving-no-grad-without-an-exception-turns-grad-mode-on",
        "leaving-enable-grad-turns-grad-mode-off",
        "no-grad-lasts-after-an-error",
    ],
)
def test_restored(backend: Backend, trace: Trace) -> None:
    """Leaving no_grad or enable_grad, also by an exception, restores the grad mode that was set when it was entered.

    Each is a context manager, which sets the mode of its own block only.
    """
    for fails in (True, False):
        for order in (*product((False, True), repeat=3), (False, True) * 3):
            nested(backend, trace, order, fails=fails)


def nested(backend: Backend, trace: Trace, order: Sequence[bool], *, fails: bool) -> None:
    """Enter grad modes inside each other; expect each of them in its block, and after it the mode before it."""
    before, inside = backend.is_grad_enabled(), order[0]
    with suppress(KeyError), backend.enable_grad() if inside else backend.no_grad():
        trace.expect_value(f"grad mode inside {order}", inside, backend.is_grad_enabled())
        if order[1:]:
            nested(backend, trace, order[1:], fails=fails)
        trace.expect_value(f"grad mode inside {order} again", inside, backend.is_grad_enabled())
        if fails:
            raise KeyError
    trace.expect_value(f"grad mode after {order}", before, backend.is_grad_enabled())


@rule(
    "mode.inference.hook-register",
    level=Level.MUST,
    sources=[INFERENCE.sentence(2), INFERENCE_SECTION.sentence(2)],
    needs=[Capability.INFERENCE_MODE],
    mutants=[
        "inference-mode-not-entered",
        "inference-mode-lasts-after-an-error",
        "recorded-in-inference-mode-unless-a-product",
        "clone-recorded-in-inference-mode",
        "inference-mode-ends-the-outer",
    ],
)
def test_inference(backend: Backend, trace: Trace) -> None:
    """A result computed in inference mode does not require grad.

    That it takes no hook is the rule tensor-hook.register.requires-grad, and of views is the rule
    mode.inference.hook-register.view. The mode is a context manager, so it ends with
    its block, also by an exception.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for inner in range(3):
        with suppress(KeyError), backend.inference_mode():
            for _ in range(inner):
                with backend.inference_mode():
                    pass
            for result in backend.call(lambda x: (x * 2, backend.exp(x), backend.sum(x), backend.clone(x)), x):
                trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(result))
            raise KeyError
        result = backend.call(lambda x: x * 2, x)

        trace.expect_value("requires grad afterwards", expected=True, observed=backend.requires_grad(result))

    with backend.inference_mode(), backend.inference_mode(mode=False):
        with suppress(KeyError), backend.inference_mode():
            raise KeyError
        result = backend.call(lambda x: x * 2, x)
    trace.expect_value("requires grad where it is off", expected=True, observed=backend.requires_grad(result))


@rule(
    "mode.inference.hook-register.view",
    level=Level.MUST,
    sources=[INFERENCE.sentence(2), NO_GRAD.sentence(4)],
    needs=[Capability.INFERENCE_MODE, Capability.VIEWS],
    mutants=["inference-mode-not-entered", "views-in-inference-mode-require-grad"],
)
def test_view_in_inference_mode(backend: Backend, trace: Trace) -> None:
    """A view made in inference mode does not require grad.

    The documentation calls inference mode analogous to no_grad, under which no result requires grad.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    with backend.inference_mode():
        view = backend.call(lambda x: backend.view(x, 2, 1), x)

    trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(view))


@rule(
    "mode.inference.restored",
    level=Level.MUST,
    sources=[INFERENCE.sentence(1), docstring("torch.is_grad_enabled").sentence(2)],
    needs=[Capability.INFERENCE_MODE, Capability.GRAD_MODE],
    mutants=["leaving-inference-mode-turns-grad-mode-on", "leaving-inference-mode-turns-grad-mode-off"],
)
def test_inference_restored(backend: Backend, trace: Trace) -> None:
    """Leaving inference mode, also by an exception, restores the grad mode that was set when it was entered."""
    for outer, fails in product((backend.no_grad, backend.enable_grad), (False, True)):
        with outer():
            before = backend.is_grad_enabled()
            with suppress(KeyError), backend.inference_mode():
                if fails:
                    raise KeyError
            trace.expect_value("grad mode afterwards", before, backend.is_grad_enabled())
        trace.expect_value("grad mode at the end", expected=True, observed=backend.is_grad_enabled())


@rule(
    "mode.inference.disabled",
    level=Level.MUST,
    sources=[INFERENCE.sentence(1, 14), IS_INFERENCE.sentence(3)],
    needs=[Capability.INFERENCE_MODE],
    mutants=[
        "inference-mode-cannot-be-left",
        "leaving-inference-mode-off-leaves-it-off",
    ],
)
def test_inference_mode_off(backend: Backend, trace: Trace) -> None:
    """Inside inference mode, inference_mode(False) turns it off: operations are recorded, new tensors can be saved."""
    for options in ({"mode": True}, {}):
        x, products = backend.tensor([1.0, 2.0], requires_grad=True), list[tuple[bool, Any]]()
        multiplied(backend, x, [options, {"mode": False}] * 2, products)
        for is_on, result in products:
            trace.expect_value("requires grad", not is_on, backend.requires_grad(result))
            if not is_on:
                backend.set_grad(x, None)
                backend.backward(result)
                trace.expect_value("x.grad", [3.0, 4.0], backend.grad_of(x))


def multiplied(backend: Backend, x: Any, modes: Sequence[dict[str, bool]], products: list[tuple[bool, Any]]) -> None:
    """Multiply in inference modes inside each other, and in each again after the mode inside it."""
    with backend.inference_mode(**modes[0]):
        for rest in (modes[1:], []):
            made = backend.tensor([3.0, 4.0])
            result = backend.call(lambda x, made=made: backend.sum(x * made), x)
            products.append((modes[0].get("mode", True), result))
            if rest:
                multiplied(backend, x, rest, products)


@rule(
    "mode.inference.saved-outside",
    level=Level.MUST,
    sources=[INFERENCE.sentence(4), INFERENCE_SECTION.sentence(3), IS_INFERENCE.sentence(3)],
    needs=[Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS],
    mutants=[
        "inference-mode-is-no-grad",
        "products-in-inference-mode-are-ordinary",
        "only-products-in-inference-mode-are-inference-tensors",
        "inference-tensors-can-be-saved-as-left-factors",
    ],
)
def test_inference_tensor_saved(backend: Backend, trace: Trace) -> None:
    """An inference tensor cannot be saved for backward outside of inference mode."""
    normal = backend.tensor([3.0, 4.0])
    with backend.inference_mode():
        tensors = backend.call(lambda x: (x * 2, backend.exp(x), backend.sum(x)), normal)
        made_from_data = backend.tensor([1.0, 2.0])

    for made in (made_from_data, *tensors):
        for multiply in (lambda x, made: x * made, lambda x, made: made * x):
            with trace.raises(ErrorKind.INFERENCE_TENSOR):
                backend.call(multiply, backend.tensor([1.0, 2.0], requires_grad=True), made)


@rule(
    "mode.inference.saved-outside.inner-mode",
    level=Level.MUST,
    sources=[INFERENCE.sentence(4), IS_INFERENCE.sentence(3)],
    needs=[Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS, Capability.GRAD_MODE],
    mutants=["no-grad-ends-inference-mode", "enable-grad-ends-inference-mode"],
)
def test_inner_mode(backend: Backend, trace: Trace) -> None:
    """A tensor made under no_grad or enable_grad inside inference mode cannot be saved for backward outside of it.

    It was allocated during inference mode, so it is an inference tensor.
    """
    normal = backend.tensor([3.0, 4.0])
    for mode in (backend.no_grad, backend.enable_grad):
        with backend.inference_mode(), mode():
            tensors = backend.tensor([1.0, 2.0]), backend.call(lambda x: x * 2, normal)
        for made in tensors:
            with trace.raises(ErrorKind.INFERENCE_TENSOR):
                backend.call(lambda x, made=made: x * made, backend.tensor([1.0, 2.0], requires_grad=True))


@rule(
    "mode.inference.results-outside",
    level=Level.MUST,
    sources=[IS_INFERENCE.sentence(3)],
    needs=[Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS],
    mutants=[
        "results-of-inference-tensors-are-inference-tensors",
        "products-of-inference-tensors-are-inference-tensors",
    ],
)
def test_results_outside(backend: Backend, trace: Trace) -> None:
    """What is computed from an inference tensor outside of inference mode, if not a view, can be saved for backward.

    A tensor that is not a view is an inference tensor only if it was allocated during inference mode.
    """
    with backend.inference_mode():
        zeros, number = backend.tensor([0.0, 0.0]), backend.tensor(1.0)
    computed = backend.call(lambda: (backend.exp(zeros), backend.clone(zeros), zeros * 2, zeros + 1))
    numbers = ([1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0])
    for data, result, expected in (
        *(([1.0, 2.0], *each) for each in zip(computed, numbers, strict=True)),
        (3.0, backend.call(lambda: backend.sum(number)), 1.0),
    ):
        x = backend.tensor(data, requires_grad=True)
        backend.backward(backend.call(lambda x, result=result: backend.sum(x * result), x))

        trace.expect_value("x.grad", expected, backend.grad_of(x))


@rule(
    "mode.inference.saved-outside.custom-function",
    level=Level.MUST,
    sources=[INFERENCE.sentence(4), INFERENCE_SECTION.sentence(3)],
    needs=[Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS, Capability.CUSTOM_FUNCTION],
    mutants=["inference-mode-is-no-grad", "functions-save-inference-tensors"],
)
def test_inference_tensor_saved_by_a_function(backend: Backend, trace: Trace) -> None:
    """A custom Function cannot save an inference tensor for backward outside of inference mode."""

    def forward(ctx, x, made):
        ctx.save_for_backward(x, made)
        return x * made

    def backward(ctx, grad):
        _, made = ctx.saved_tensors
        return grad * made, None

    function = backend.custom_function(forward, backward)
    with backend.inference_mode():
        made = backend.tensor([1.0, 2.0])
    with trace.raises(ErrorKind.INFERENCE_TENSOR):
        backend.call(function, backend.tensor([1.0, 2.0], requires_grad=True), made)


@rule(
    "mode.inference.views",
    level=Level.MUST,
    sources=[IS_INFERENCE.sentence(4)],
    needs=[Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS, Capability.VIEWS],
    mutants=[
        "inference-mode-is-no-grad",
        "views-made-in-inference-mode-are-inference-tensors",
        "views-of-recorded-tensors-are-inference-tensors",
        "views-of-views-are-no-inference-tensors",
        "transposed-in-inference-mode-are-inference-tensors",
        "transposed-inference-tensors-are-ordinary",
    ],
)
def test_views_of_inference_tensors(backend: Backend, trace: Trace) -> None:
    """A view of an inference tensor is one, wherever it was made; a view of another tensor is none.

    An inference tensor is told by what it cannot do: be saved for backward.
    """
    normal = [backend.tensor([3.0, 4.0], requires_grad=requires_grad) for requires_grad in (False, True)]
    with backend.inference_mode():
        made = backend.tensor([1.0, 2.0])
        inside, *of_normal = (backend.view(each, 2) for each in (made, *normal))
        columns = [backend.transpose(backend.view(each, 1, 2), 0, 1) for each in normal]
        rows = [backend.expand(each, 2, 2) for each in normal]

    flat, column, row = [1.0, 2.0], [[1.0], [2.0]], [[1.0, 2.0], [1.0, 2.0]]
    for data, view in (
        *((flat, view) for view in (inside, backend.view(made, 2), backend.view(inside, 2))),
        (column, backend.transpose(backend.view(made, 1, 2), 0, 1)),
        (row, backend.expand(made, 2, 2)),
    ):
        with trace.raises(ErrorKind.INFERENCE_TENSOR):
            backend.call(lambda x, view=view: x * view, backend.tensor(data, requires_grad=True))
    for data, views, expected in (
        (flat, of_normal, [3.0, 4.0]),
        (column, columns, [[3.0], [4.0]]),
        (row, rows, [[3.0, 4.0], [3.0, 4.0]]),
    ):
        for view in views:
            x = backend.tensor(data, requires_grad=True)
            backend.backward(backend.call(lambda x, view=view: backend.sum(x * view), x))

            trace.expect_value("x.grad", expected, backend.grad_of(x))


@rule(
    "mode.inference.functional-ok",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[INFERENCE_SECTION, observed("only what is saved for backward is refused")],
    needs=[Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS],
    mutants=["inference-tensors-refused-by-every-recorded-operation"],
)
def test_inference_tensor_not_saved(backend: Backend, trace: Trace) -> None:
    """An inference tensor may be an operand of a recorded operation that does not save it.

    The documentation says that it cannot be used in any recorded computation; torch refuses only to save it.
    """
    with backend.inference_mode():
        made = backend.tensor([1.0, 2.0])

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(lambda x: backend.sum((x + made) * 2), x))

    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))
