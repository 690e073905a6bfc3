"""Two rules that the toy keeps and one that it breaks."""

from hooklaw.backend.protocol import Capability
from hooklaw.law.rule import Level, docstring, rule

HOOKS = {"sources": [docstring("toy.hook")], "needs": [Capability.TENSOR_HOOKS]}


@rule("toy.order", level=Level.MUST, mutants=["hooks-run-in-reverse-order"], **HOOKS)
def test_order(backend, trace):
    """Hooks on one tensor run in the order of their registration."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("first"))
    backend.register_hook(x, trace.saw("second"))

    backend.backward(backend.sum(x * x))

    trace.expect(("first", [2.0, 4.0]), ("second", [2.0, 4.0]))


@rule("toy.gradient.value", level=Level.MUST, mutants=["gradient-doubled"], **HOOKS)
def test_gradient(backend, trace):
    """The gradient of a sum of squares is twice the input."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)

    backend.backward(backend.sum(x * x))

    trace.expect_value("x.grad", [2.0, 4.0], backend.grad_of(x))


@rule("toy.broken", level=Level.MUST, mutants=["any"], **HOOKS)
def test_broken(backend, trace):
    """Gradients are a hundred times what they are."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.sum(x))

    trace.expect_value("x.grad", [100.0, 100.0], backend.grad_of(x))
