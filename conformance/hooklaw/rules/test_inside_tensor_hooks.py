"""The state while a tensor hook runs, and exceptions raised by tensor hooks."""

from contextlib import suppress
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule

DURING_BACKWARD = docstring("torch.Tensor.register_post_accumulate_grad_hook")


class UserError(Exception):
    """A user's own exception."""


def logging_grad_mode(backend: Backend, trace: Trace) -> tuple[Any, Any]:
    """Return a leaf and a loss; hooks on the leaf and on an intermediate tensor log the grad mode."""

    def hook(_):
        trace.log("grad mode", backend.is_grad_enabled())

    def forward(x):
        y = x * 2
        backend.register_hook(y, hook)
        return backend.sum(y * y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, hook)
    return x, backend.call(forward, x)


@rule(
    "tensor-hook.order.before-accumulate",
    level=Level.MUST,
    sources=[
        notes("autograd", "the-order-in-which-the-different-hooks-are-fired").sentence(2, 5),
        notes("autograd", "whether-a-particular-hook-will-be-fired").sentence(5),
    ],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["tensor-hook-after-accumulation"],
)
def test_before_accumulation(backend: Backend, trace: Trace) -> None:
    """A leaf's tensor hooks run before its gradient is accumulated: .grad still has the old value."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, lambda _: trace.log("hook", backend.grad_of(x)))

    for _ in range(2):
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

    trace.expect(("hook", None), ("hook", [2.0, 2.0]))


@rule(
    "tensor-hook.mode.no-grad",
    level=Level.MUST,
    sources=[DURING_BACKWARD.sentence(10)],
    needs=[Capability.TENSOR_HOOKS, Capability.GRAD_MODE, Capability.AUTOGRAD_GRAD],
    mutants=[
        "hooks-run-with-grad-mode-on",
        "hooks-run-with-grad-mode-on-in-autograd-grad",
        "backward-records-as-its-caller-does",
    ],
)
def test_no_grad(backend: Backend, trace: Trace) -> None:
    """Tensor hooks run with grad mode off, even if backward was called with grad mode on.

    The docstring says why a post-accumulate-grad hook does: it runs during the backward pass, as tensor hooks do.
    """
    for in_grad in (False, True):
        x, loss = logging_grad_mode(backend, trace)
        if in_grad:
            backend.grad(loss, [x])
        else:
            backend.backward(loss)

        trace.expect(("grad mode", False), ("grad mode", False))
    trace.expect_value("grad mode after backward", expected=True, observed=backend.is_grad_enabled())


@rule(
    "tensor-hook.mode.create-graph",
    level=Level.MUST,
    sources=[DURING_BACKWARD.sentence(10)],
    needs=[
        Capability.TENSOR_HOOKS,
        Capability.GRAD_MODE,
        Capability.CREATE_GRAPH,
        Capability.AUTOGRAD_GRAD,
        Capability.BACKWARD_CREATE_GRAPH,
    ],
    mutants=["hooks-run-with-grad-mode-off", "hooks-run-with-grad-mode-off-in-backward"],
)
def test_create_graph(backend: Backend, trace: Trace) -> None:
    """In a backward with create_graph tensor hooks run with grad mode on.

    The docstring says it of post-accumulate-grad hooks, because they run during the backward pass, as tensor hooks do.
    """
    x, loss = logging_grad_mode(backend, trace)
    backend.grad(loss, [x], create_graph=True)
    trace.expect_value("grad modes in autograd.grad", [True], sorted(set(trace.values("grad mode"))))
    trace.clear()

    x, loss = logging_grad_mode(backend, trace)
    with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
        backend.backward(loss, create_graph=True)
    trace.expect_value("grad modes in backward", [True, True], trace.values("grad mode"))
    backend.set_grad(x, None)


@rule(
    "tensor-hook.mode.create-graph.in-no-grad",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[DURING_BACKWARD.sentence(10), observed("create_graph decides, not the grad mode of the caller")],
    needs=[Capability.TENSOR_HOOKS, Capability.GRAD_MODE, Capability.CREATE_GRAPH, Capability.AUTOGRAD_GRAD],
    mutants=["backward-records-as-its-caller-does"],
)
def test_create_graph_in_no_grad(backend: Backend, trace: Trace) -> None:
    """In a backward with create_graph tensor hooks run with grad mode on, even if the caller is in no_grad."""
    x, loss = logging_grad_mode(backend, trace)
    with backend.no_grad():
        backend.grad(loss, [x], create_graph=True)

    trace.expect_value("grad modes", [True], sorted(set(trace.values("grad mode"))))


@rule(
    "tensor-hook.mode.create-graph.in-no-grad.backward",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[DURING_BACKWARD.sentence(10), observed("create_graph decides, not the grad mode of the caller")],
    needs=[Capability.TENSOR_HOOKS, Capability.GRAD_MODE, Capability.BACKWARD_CREATE_GRAPH],
    mutants=["hooks-run-with-grad-mode-off-in-a-backward-under-no-grad"],
)
def test_backward_in_no_grad(backend: Backend, trace: Trace) -> None:
    """Tensor hooks run with grad mode on in a backward with create_graph that accumulates gradients under no_grad."""
    x, loss = logging_grad_mode(backend, trace)
    with backend.no_grad(), catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
        backend.backward(loss, create_graph=True)

    trace.expect_value("grad modes", [True, True], trace.values("grad mode"))
    backend.set_grad(x, None)


@rule(
    "tensor-hook.exception.propagates",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the exception arrives with its own type, nothing upstream is touched")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "tensor-hook-swallowed",
        "hook-exception-wrapped",
        "hook-exception-without-its-message",
        "pass-goes-on-after-an-error",
    ],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception in a tensor hook ends the backward and reaches its caller; nothing upstream is accumulated."""

    def hook(_):
        raise UserError("from the hook")

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    for tensor in (y, x):
        handle = backend.register_hook(tensor, hook)
        loss = backend.call(backend.sum, tensor)

        with trace.raises_type(UserError, "from the hook"):
            backend.backward(loss)
        trace.expect_value("x.grad", None, backend.grad_of(x))
        handle.remove()

    def forward(a, b):
        branches = a * 2, b * 3
        for branch in branches:
            backend.register_hook(branch, trace.saw("whichever is first", hook))
        return backend.sum(branches[0] + branches[1])

    leaves = [backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2)]
    loss = backend.call(forward, *leaves)
    with trace.raises_type(UserError, "from the hook"):
        backend.backward(loss)
    trace.expect("whichever is first")
    trace.expect_value("gradients of the leaves", [None, None], [backend.grad_of(leaf) for leaf in leaves])


@rule(
    "tensor-hook.exception.next-backward",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an exception leaves the engine usable")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["exception-poisons-the-engine"],
)
def test_next_backward(backend: Backend, trace: Trace) -> None:
    """After a tensor hook raised, a new graph can be built and run normally."""

    def hook(_):
        raise UserError

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    handle = backend.register_hook(x, hook)
    with suppress(Exception):  # in whatever type it arrives: another rule speaks of that
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    handle.remove()
    backend.register_hook(x, trace.saw("hook"))
    backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

    trace.expect(("hook", [3.0, 3.0]))
    trace.expect_value("x.grad", [3.0, 3.0], backend.grad_of(x))


@rule(
    "tensor-hook.exception.next-backward.branches",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("what was under way when a pass ended is forgotten")],
    needs=[Capability.TENSOR_HOOKS, Capability.RETAIN_GRAPH],
    mutants=["failed-pass-leaves-gradients-behind"],
)
def test_branches(backend: Backend, trace: Trace) -> None:
    """Gradients that a pass had computed but not used when a tensor hook raised are not added in the next pass.

    Either branch, if executed first, ends the first pass while the other branch's gradient is pending.
    """
    raised = []

    def raise_once(_):
        if not raised:
            raised.append(True)
            raise UserError

    def forward(x):
        branches = x * 2, x * 3
        for branch in branches:
            backend.register_hook(branch, raise_once)
        return backend.sum(branches[0] + branches[1])

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(forward, x)
    with suppress(Exception):  # in whatever type it arrives: another rule speaks of that
        backend.backward(loss, retain_graph=True)
    trace.expect_value("x.grad of the pass that failed", None, backend.grad_of(x))
    backend.backward(loss)

    trace.expect_value("x.grad", [5.0, 5.0], backend.grad_of(x))


@rule(
    "tensor-hook.exception.graph-after",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("what the pass had executed is freed")],
    needs=[Capability.TENSOR_HOOKS, Capability.GRAPH_FREEING],
    mutants=["saved-tensors-released-at-the-end-of-the-pass"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_graph_after_exception(backend: Backend, trace: Trace) -> None:
    """A graph whose backward was ended by an exception in a tensor hook may be freed as far as it was executed."""

    def hook(_):
        raise UserError

    def forward(x):
        y = x * 2
        backend.register_hook(y, hook)
        return backend.sum(y * y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(forward, x)
    with suppress(Exception):  # in whatever type it arrives: another rule speaks of that
        backend.backward(loss)

    with trace.raises(ErrorKind.GRAPH_FREED):
        backend.backward(loss)
