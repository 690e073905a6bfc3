"""What is computed while recording is off."""

from hooklaw.backend import Backend, Capability
from hooklaw.spec import Level, docstring, rule
from hooklaw.trace import Trace


@rule(
    "mode.no-grad.result",
    level=Level.MUST,
    sources=[docstring("torch.no_grad")],
    needs=[Capability.GRAD_MODE],
    mutants=["recorded-under-no-grad"],
)
def test_result(backend: Backend, trace: Trace) -> None:
    """What is computed under no_grad requires no grad, whatever it is computed from."""

    def forward(x):
        with backend.no_grad():
            return x * 2, backend.sum(x)

    results = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))

    trace.expect_value("require grad", [False, False], [backend.requires_grad(one) for one in results])


@rule(
    "mode.no-grad.result.view",
    level=Level.MUST,
    sources=[docstring("torch.no_grad")],
    needs=[Capability.GRAD_MODE, Capability.VIEWS],
    mutants=["recorded-under-no-grad", "views-under-no-grad-require-grad"],
)
def test_view(backend: Backend, trace: Trace) -> None:
    """A view made under no_grad requires no grad either."""

    def forward(x):
        y = x * 2
        with backend.no_grad():
            return backend.view(x, 2), backend.view(y, 2)

    views = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))

    trace.expect_value("require grad", [False, False], [backend.requires_grad(one) for one in views])
