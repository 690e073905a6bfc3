"""Anomaly detection: errors for gradients that are NaN."""

from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.passes import EVERY_PASS, ROOTS, Run, every_pass, inside_a_pass, roots

ANOMALY = docstring("torch.autograd.detect_anomaly")


def leaf(backend: Backend) -> Any:
    """Make a leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "detect-anomaly.nan",
    level=Level.MUST,
    sources=[ANOMALY.sentence(4)],
    needs=[Capability.ANOMALY, Capability.CUSTOM_FUNCTION],
    mutants=[
        "anomalies-undetected",
        "anomalies-of-nodes-undetected",
        "anomalies-of-operations-undetected",
        "anomalies-beside-numbers-undetected",
        "anomalies-of-later-gradients-undetected",
        "anomalies-of-earlier-gradients-undetected",
        "anomalies-of-graphs-recorded-before-undetected",
        "anomalies-that-reach-no-leaf-undetected",
        "anomaly-detection-lasts-after-an-exception",
        "detect-anomaly-ends-the-outer",
        "infinite-gradients-are-anomalies",
        "nan-is-always-an-error",
    ],
    except_under={"anomaly": "it runs a pass without anomaly detection, too"},
)
def test_nan(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection a backward in which a Node computes a NaN is an error; otherwise it is not.

    Any Node may compute it: that of a custom Function, or that of an operation. It is the backward that is checked, so
    the forward may have run before the context; and the context ends with the error.
    """
    numbers = [5.0, float("nan")]
    factor = backend.tensor(numbers)
    function = backend.custom_function(lambda _ctx, _w, x: x * 2, lambda _ctx, grad: (grad, grad * factor))

    for compute in (function, lambda w, x: w * x, lambda w, x: x * w):
        w, x = backend.tensor(numbers, requires_grad=True), leaf(backend)
        backend.backward(backend.call(lambda w, x, compute=compute: backend.sum(compute(w, x)), w, x))
        trace.expect_value("x.grad without anomaly detection", numbers, backend.grad_of(x))

        loss = backend.call(lambda w, x, compute=compute: backend.sum(compute(w, x)), w, x)
        with trace.raises(ErrorKind.NOT_A_NUMBER), backend.detect_anomaly():
            with backend.detect_anomaly():
                inside = backend.call(lambda w, x, compute=compute: backend.sum(compute(w, x)), w, x)
                with backend.detect_anomaly():
                    innermost = backend.call(lambda w, x, compute=compute: backend.sum(compute(w, x)), w, x)
                with trace.raises(ErrorKind.NOT_A_NUMBER):
                    backend.backward(innermost)
            with trace.raises(ErrorKind.NOT_A_NUMBER):
                backend.backward(loss)
            backend.backward(inside)

    infinite = backend.tensor([5.0, float("inf")])
    endless = backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, _grad: infinite)
    x = leaf(backend)
    with backend.detect_anomaly():
        backend.backward(backend.call(lambda x: backend.sum(endless(x)), x))
    trace.expect_value("x.grad under anomaly detection", [5.0, float("inf")], backend.grad_of(x))

    with trace.raises(ErrorKind.NOT_A_NUMBER), backend.detect_anomaly():  # of a NaN that the next Node makes nothing of
        backend.backward(backend.call(lambda x: backend.sum(function(x, endless(x))), x))


@rule(
    "detect-anomaly.hooks-run",
    level=Level.MUST,
    sources=[ANOMALY.sentence(2), docstring("torch.Tensor.register_hook").sentence(2, 4)],
    needs=[Capability.ANOMALY, Capability.TENSOR_HOOKS],
    mutants=[
        "hooks-skipped-under-anomaly-detection",
        "hooks-of-leaves-skipped-under-anomaly-detection",
        "later-hooks-skipped-under-anomaly-detection",
        "hooks-run-once-under-anomaly-detection",
    ],
)
def test_hooks_run(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection tensor hooks run and replace gradients as without it.

    Anomaly detection does two things, neither of which concerns hooks.
    """

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook", lambda grad: grad * 2))
        backend.register_hook(y, trace.saw("later hook", lambda grad: grad * 5))
        return backend.sum(y)

    x = leaf(backend)
    backend.register_hook(x, trace.saw("hook of the leaf", lambda grad: grad * 5))
    for accumulated in ([100.0, 100.0], [200.0, 200.0]):
        with backend.detect_anomaly():
            backend.backward(backend.call(forward, x))

        trace.expect(("hook", [1.0, 1.0]), ("later hook", [2.0, 2.0]), ("hook of the leaf", [20.0, 20.0]))
        trace.expect_value("x.grad", accumulated, backend.grad_of(x))


@rule(
    "detect-anomaly.hooks",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[ANOMALY, observed("the next Node passes on the NaN that a hook returned, and is reported")],
    needs=[Capability.ANOMALY, Capability.TENSOR_HOOKS],
    mutants=["anomalies-undetected"],
)
def test_nan_of_a_hook(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection a NaN that a tensor hook returns may be reported as an error of the next Node."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook", lambda grad: grad * float("nan")))
        return backend.sum(y)

    with backend.detect_anomaly():
        loss = backend.call(forward, leaf(backend))
        with trace.raises(ErrorKind.NOT_A_NUMBER):
            backend.backward(loss)


@rule(
    "detect-anomaly.nan.double-backward",
    level=Level.MUST,
    sources=[ANOMALY.sentence(4)],
    needs=[Capability.ANOMALY, Capability.CUSTOM_FUNCTION, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=[
        "anomalies-undetected",
        "anomalies-of-nodes-undetected",
        "anomalies-in-autograd-grad-undetected",
        "anomalies-in-passes-that-create-a-graph-undetected",
        "anomalies-of-gradients-recorded-before-undetected",
        "anomalies-of-operations-in-double-backward-undetected",
    ],
)
def test_double_backward(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection a NaN that the backward of a backward computes is an error.

    Any backward computation is checked, so also that of a gradient, which may have been computed before the context.
    """
    nan = float("nan")
    fails_twice = backend.custom_function(lambda _ctx, grad: grad * 2, lambda _ctx, grad: grad * nan)

    def double(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    function = backend.custom_function(double, lambda ctx, grad: fails_twice(grad * ctx.saved_tensors[0]))
    for differentiate in (
        lambda root, _: backend.backward(root),
        lambda root, x: backend.grad(root, [x]),
        lambda root, x: backend.grad(root, [x], create_graph=True),
    ):
        x = leaf(backend)
        with backend.detect_anomaly():
            (first,) = backend.grad(backend.call(lambda x: backend.sum(function(x)), x), [x], create_graph=True)
            trace.expect_value("first derivative", [2.0, 4.0], first)
            with trace.raises(ErrorKind.NOT_A_NUMBER):
                differentiate(backend.sum(first), x)

        x, factor, infinite = leaf(backend), backend.tensor([5.0, 0.0]), backend.tensor([1.0, float("inf")])
        (first,) = backend.grad(
            backend.call(lambda x, factor=factor: backend.sum(x * x * factor), x), [x], create_graph=True
        )
        with backend.detect_anomaly(), trace.raises(ErrorKind.NOT_A_NUMBER):  # of zero times infinity
            differentiate(backend.sum(first * infinite), x)


def detected_in(backend: Backend, trace: Trace, runs: dict[str, Run]) -> None:
    """Expect a NaN that the Node of a product computes to be an error in each of these passes."""
    for run in runs.values():
        x = leaf(backend)
        root = backend.call(lambda x: backend.sum(x * float("nan")), x)
        with backend.detect_anomaly(), trace.raises(ErrorKind.NOT_A_NUMBER):
            run(root, x)


@rule(
    "detect-anomaly.nan.every-pass",
    level=Level.MUST,
    sources=[ANOMALY.sentence(4)],
    needs=[Capability.ANOMALY, *EVERY_PASS, Capability.TENSOR_HOOKS],
    mutants=[
        "anomalies-in-a-pass-inside-another-undetected",
        "anomalies-in-passes-that-retain-undetected",
        "anomalies-in-a-backward-that-creates-a-graph-undetected",
        "anomalies-of-several-outputs-undetected",
        "anomalies-for-several-inputs-undetected",
    ],
)
def test_every_pass(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection a NaN that a Node computes is an error in each kind of pass.

    In backward and autograd.grad, of several outputs and for several inputs too, in no_grad, with create_graph, and
    inside other passes.
    """
    detected_in(backend, trace, {**every_pass(backend), **inside_a_pass(backend)})


@rule(
    "detect-anomaly.nan.every-root",
    level=Level.MUST,
    sources=[ANOMALY.sentence(4)],
    needs=[Capability.ANOMALY, *ROOTS],
    mutants=[
        "anomalies-from-several-roots-undetected",
        "anomalies-from-edges-undetected",
        "anomalies-in-passes-with-inputs-undetected",
    ],
)
def test_every_root(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection a NaN that a Node computes is an error whatever a backward starts from and is limited to.

    A backward with inputs or a gradient, from the first and last of two roots, and from a gradient edge.
    """
    detected_in(backend, trace, roots(backend))


@rule(
    "detect-anomaly.check-nan",
    level=Level.MUST,
    sources=[ANOMALY.sentence(4), docstring("torch.autograd.set_detect_anomaly").sentence(6)],
    needs=[Capability.ANOMALY, Capability.CUSTOM_FUNCTION, Capability.AUTOGRAD_GRAD],
    mutants=[
        "check-nan-ignored",
        "check-nan-ignored-in-autograd-grad",
        "check-nan-ignored-in-custom-functions",
        "check-nan-set-by-its-default",
    ],
    except_under={"anomaly": "it runs a pass in which NaN is not checked"},
)
def test_check_nan(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection with check_nan=False a NaN in a backward is not an error.

    Any backward computation is checked otherwise: that of an operation or of a custom Function, in any pass.
    """
    nan = float("nan")
    function = backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, grad: grad * nan)

    def loss_of(x: Any, compute: Any) -> Any:
        return backend.call(lambda x: backend.sum(compute(x)), x)

    for compute in (lambda x: x * nan, function):
        for options in ({"check_nan": True}, {}, {}):
            x = leaf(backend)
            with backend.detect_anomaly(check_nan=False):
                backend.backward(loss_of(x, compute))
                (grad,) = backend.grad(loss_of(x, compute), [x])

            trace.expect_value("x.grad", [nan] * 2, backend.grad_of(x))
            trace.expect_value("what autograd.grad returns", [nan] * 2, grad)
            with backend.detect_anomaly(**options), trace.raises(ErrorKind.NOT_A_NUMBER):
                backend.backward(loss_of(x, compute))
            with backend.detect_anomaly(**options), trace.raises(ErrorKind.NOT_A_NUMBER):
                backend.grad(loss_of(x, compute), [x])


@rule(
    "detect-anomaly.traceback",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[ANOMALY, observed("the traceback of the forward operation comes as a warning")],
    needs=[Capability.ANOMALY, Capability.CUSTOM_FUNCTION],
    mutants=["anomalies-undetected"],
)
def test_traceback(backend: Backend, trace: Trace) -> None:
    """Under anomaly detection the error of a Node may come with a warning that has the traceback of its forward.

    The docstring says that the traceback is printed, not where to.
    """

    def fail(_ctx, _grad):
        raise ZeroDivisionError("of the Node")

    def where_forward_ran(x):
        return function(x)

    function = backend.custom_function(lambda _ctx, x: x * 2, fail)
    with backend.detect_anomaly(), catch_warnings(record=True, action="always") as caught:
        loss = backend.sum(where_forward_ran(leaf(backend)))
        with trace.raises_type(ZeroDivisionError, "of the Node"):
            backend.backward(loss)

    said = any("where_forward_ran" in str(warning.message) for warning in caught)
    trace.expect_value("a warning names the function that called forward", expected=True, observed=said)
