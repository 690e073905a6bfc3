"""What the backward of a custom Function is given."""

from hooklaw.backend import Backend, Capability
from hooklaw.spec import Level, docstring, rule
from hooklaw.trace import Trace


@rule(
    "custom-function.materialize-grads",
    level=Level.MUST,
    sources=[docstring("torch.autograd.function.FunctionCtx.set_materialize_grads")],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["custom-functions-get-no-zeros"],
)
def test_zeros(backend: Backend, trace: Trace) -> None:
    """For an output that nothing uses, backward is given zeros of the output's shape in place of a gradient."""

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
