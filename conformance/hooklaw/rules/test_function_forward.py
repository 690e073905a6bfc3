"""Custom Functions: what their forward gets, and what of it is in the graph."""

import weakref
from contextlib import suppress
from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, rule
from hooklaw.rules.checkpoints import CHECKPOINT, KINDS, region
from hooklaw.rules.hooks import OTHERS
from hooklaw.rules.lifetimes import without_collector

FORWARD = docstring("torch.autograd.Function.forward")
SAVE = docstring("torch.autograd.function.FunctionCtx.save_for_backward")
EXTENDING = notes("extending", "how-to-use")
EXAMPLE = notes("extending", "example")
BACKWARD_HOOK = docstring("torch.nn.Module.register_full_backward_hook")
BACKWARD_PRE_HOOK = docstring("torch.nn.Module.register_full_backward_pre_hook")
TWICE = [Capability.CUSTOM_FUNCTION, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH]


def leaf(backend: Backend) -> Any:
    """Make an input."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "custom-function.any-argument",
    level=Level.MUST,
    sources=[FORWARD.sentence(5), EXTENDING.sentence(9)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "functions-get-tensors-and-numbers-alone",
        "functions-get-lists-of-detached-tensors",
        "functions-get-tuples-as-lists",
        "functions-get-no-callables",
    ],
)
def test_arguments(backend: Backend, trace: Trace) -> None:
    """The forward of a custom Function gets arguments of any kind as they were passed, outside function transforms."""
    tensors = [leaf(backend), backend.tensor([1.0])]
    given: list[Any] = [5, "name", None, {"key": [1.0]}, [1.0], True, object(), *OTHERS, tensors, {"key": tensors}]
    given += [(1, 2), ("name", 2.0), tuple(tensors), len, lambda value: value]

    def forward(_ctx: Any, x: Any, *others: Any) -> Any:
        differ = [type(passed) for got, passed in zip(others, given, strict=True) if got is not passed]
        trace.log("not as passed", list(map(str, differ)))
        return x * 2

    function = backend.custom_function(forward, lambda _ctx, grad: (grad * 2, *[None] * len(given)))
    x = leaf(backend)
    backend.backward(backend.call(lambda x: backend.sum(function(x, *given)), x))

    trace.expect(("not as passed", []))
    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "custom-function.forward-not-recorded",
    level=Level.MUST,
    sources=[EXTENDING.sentence(10)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "forward-of-a-function-is-recorded",
        "failing-forward-of-a-function-leaves-grad-mode-off",
        "custom-functions-are-always-recorded",
        "function-inside-a-function-turns-grad-mode-on",
        "forward-of-a-function-is-recorded-in-a-pass",
    ],
)
def test_not_recorded(backend: Backend, trace: Trace) -> None:
    """What a custom Function's forward computes from inputs that require grad does not require grad; its outputs do.

    An exception of another forward, before, makes no difference.
    """

    def fail(_ctx, _x):
        raise ZeroDivisionError

    inner = backend.custom_function(lambda _ctx, x: x * 1, lambda _ctx, grad: grad)

    def forward(_ctx, x):
        made, double = inner(x), x * 2
        trace.log("require grad inside", [backend.requires_grad(made), backend.requires_grad(double)])
        return double * 3

    function = backend.custom_function(forward, lambda _ctx, grad: grad * 10)
    x = leaf(backend)
    with suppress(ZeroDivisionError):
        backend.call(backend.custom_function(fail, lambda _ctx, grad: grad), x)
    output = backend.call(function, x)
    trace.expect(("require grad inside", [False, False]))
    trace.expect_value("the output requires grad", expected=True, observed=backend.requires_grad(output))
    backend.backward(backend.sum(output))

    trace.expect_value("x.grad, by the Function's own formula", [10.0, 10.0], backend.grad_of(x))

    def calling(_ctx, grad):
        function(x)
        return grad

    backend.backward(backend.call(lambda x: backend.sum(backend.custom_function(lambda _ctx, x: x * 1, calling)(x)), x))
    trace.expect(("require grad inside", [False, False]))


@rule(
    "custom-function.double-backward.intermediate",
    level=Level.MUST,
    sources=[SAVE.sentence(8), EXAMPLE.sentence(9, 13)],
    needs=TWICE,
    mutants=["function-once-differentiable-set-always", "saved-tensors-of-a-function-detached"],
)
def test_intermediate_output(backend: Backend, trace: Trace) -> None:
    """Second derivatives flow through a tensor that a custom Function computes, returns and saves.

    The documentation says that an intermediate tensor is to be an output for this, with a gradient of its own.
    """

    def forward(ctx, x):
        slope = x * x * 3
        ctx.save_for_backward(x, slope)
        return x * x * x, slope

    def backward(ctx, grad, grad_slope):
        x, slope = ctx.saved_tensors
        return grad * slope + grad_slope * x * 6

    function = backend.custom_function(forward, backward)
    x = leaf(backend)
    (first,) = backend.grad(backend.call(lambda x: backend.sum(function(x)[0]), x), [x], create_graph=True)
    trace.expect_value("first derivative", [3.0, 12.0], first)

    trace.expect_value("second derivative", [[6.0, 12.0]], backend.grad(backend.sum(first), [x]))


@rule(
    "custom-function.double-backward.context-attribute",
    level=Level.MUST,
    sources=[EXAMPLE.sentence(12)],
    needs=TWICE,
    mutants=["forward-of-a-function-is-recorded"],
)
def test_context_attribute(backend: Backend, trace: Trace) -> None:
    """No second derivative flows through a tensor that forward computed and stored in an attribute of ctx.

    The note says so of tensors stored in ctx; an input among them, which has a history of its own, is not tried.
    """

    def forward(ctx, x):
        ctx.slope = x * 2
        return x * x

    function = backend.custom_function(forward, lambda ctx, grad: grad * ctx.slope)
    x, w = leaf(backend), backend.tensor([3.0, 4.0], requires_grad=True)
    loss = backend.call(lambda x, w: backend.sum(function(x) * w), x, w)
    (first,) = backend.grad(loss, [x], create_graph=True)
    trace.expect_value("first derivative", [6.0, 16.0], first)

    second = backend.grad(backend.sum(first) + backend.sum(x * 5), [x, w])
    trace.expect_value("derivatives of the first derivative and 5 x", [[5.0, 5.0], [2.0, 4.0]], second)


@rule(
    "custom-function.context-attributes.every-pass",
    level=Level.MUST,
    sources=[FORWARD.sentence(12)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.RETAIN_GRAPH],
    mutants=["context-attributes-cleared-by-backward"],
)
def test_context_attribute_in_every_pass(backend: Backend, trace: Trace) -> None:
    """What the forward of a custom Function stored in an attribute of ctx is there in each backward of its graph."""

    def forward(ctx, x):
        ctx.factor = 3.0
        return x * 3

    def backward(ctx, grad):
        trace.log("factor", getattr(ctx, "factor", None))
        return grad * 3

    function, x = backend.custom_function(forward, backward), leaf(backend)
    loss = backend.call(lambda x: backend.sum(function(x)), x)
    for retain in (True, True, False):
        backend.backward(loss, retain_graph=retain)
        trace.expect(("factor", 3.0))


@rule(
    "custom-function.saved-output.no-cycle",
    level=Level.MUST,
    sources=[EXTENDING.sentence(31)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.WEAK_REFERENCES],
    mutants=["saved-output-of-a-function-kept-by-its-context", "saved-output-among-several-kept-by-its-context"],
    except_under={"packed": "the law is of tensors that no hook packs"},
)
def test_no_cycle(backend: Backend, trace: Trace) -> None:
    """An output that a custom Function saved for backward is freed with the last reference to it."""

    def forward(ctx, x):
        y = backend.exp(x)
        ctx.save_for_backward(y)
        return y

    one = backend.custom_function(forward, lambda ctx, grad: grad * ctx.saved_tensors[0])
    two = backend.custom_function(
        lambda ctx, x: (x * 2, forward(ctx, x)), lambda ctx, first, second: first * 2 + second * ctx.saved_tensors[0]
    )
    for label, run in (("the only output", one), ("the second of two", lambda x: two(x)[1])):
        with without_collector():
            y = backend.call(run, leaf(backend))
            alive = weakref.ref(y)
            del y

            trace.expect_value(f"{label} is freed", expected=True, observed=alive() is None)


def logged_square(backend: Backend, trace: Trace) -> Any:
    """Return a custom Function that squares, and logs what its forward and backward get and what was saved."""

    def square(ctx: Any, x: Any) -> Any:
        trace.log("forward", x)
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        trace.log("backward", [grad, x])
        return grad * x * 2

    return backend.custom_function(square, backward)


@rule(
    "custom-function.in-a-checkpoint",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(5), SAVE.sentence(1, 10)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.CHECKPOINT],
    mutants=[
        "function-backward-twice-in-a-checkpoint",
        "function-gets-another-gradient-in-a-checkpoint",
        "function-saved-another-in-a-checkpoint",
        "function-returns-another-in-a-checkpoint",
    ],
)
def test_in_a_checkpoint(backend: Backend, trace: Trace) -> None:
    """A custom Function in a checkpoint, reentrant or not, is run again in backward, and differentiated once.

    What it saved is not kept alive, so its backward gets what the second run saved.
    """
    function = logged_square(backend, trace)
    for use_reentrant in KINDS.values():
        x = leaf(backend)
        for expected in ([18.0, 36.0], [36.0, 72.0]):
            loss = backend.call(region(backend, lambda x: function(x * 3), use_reentrant=use_reentrant), x)
            trace.expect(("forward", [3.0, 6.0]))
            backend.backward(loss)

            trace.expect(("forward", [3.0, 6.0]), ("backward", [[1.0, 1.0], [3.0, 6.0]]))
            trace.expect_value("x.grad", expected, backend.grad_of(x))


@rule(
    "custom-function.in-a-module",
    level=Level.MUST,
    sources=[BACKWARD_HOOK.sentence(2, 8), BACKWARD_PRE_HOOK.sentence(2, 5)],
    needs=[
        Capability.CUSTOM_FUNCTION,
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
    ],
    mutants=[
        "function-backward-twice-in-a-module",
        "function-gets-another-gradient-in-a-module",
        "function-saved-another-in-a-module",
        "function-returns-another-in-a-module",
    ],
)
def test_in_a_module(backend: Backend, trace: Trace) -> None:
    """Full backward hooks of a module run around the backward of a custom Function in its forward, and are used."""
    function = logged_square(backend, trace)
    before, after = (trace.saw(label, lambda grads: (grads[0] * 10,)) for label in ("pre-hook", "hook"))
    for inner, forward in ((1.0, lambda _, x: function(x)), (5.0, lambda _, x: function(x) * 5)):
        module, x = backend.module({}, forward), leaf(backend)
        backend.register_full_backward_pre_hook(module, lambda _, grads: before(grads))
        backend.register_full_backward_hook(module, lambda _, grads, _outputs: after(grads))
        backend.backward(backend.call(lambda x, module=module: backend.sum(module(x)), x))

        trace.expect(
            ("forward", [1.0, 2.0]),
            ("pre-hook", [[1.0, 1.0]]),
            ("backward", [[10.0 * inner, 10.0 * inner], [1.0, 2.0]]),
            ("hook", [[20.0 * inner, 40.0 * inner]]),
        )
        trace.expect_value("x.grad", [200.0 * inner, 400.0 * inner], backend.grad_of(x))
