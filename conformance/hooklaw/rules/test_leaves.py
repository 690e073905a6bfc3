"""requires_grad, is_leaf, and which tensors accumulate a gradient."""

from contextlib import suppress
from itertools import product
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule

FLAG = notes("autograd", "setting-requires-grad")
LEAF = docstring("torch.Tensor.is_leaf")
DETACH = docstring("torch.Tensor.detach")


@rule(
    "requires-grad.propagation",
    level=Level.MUST,
    sources=[FLAG],
    mutants=["result-requires-grad-with-its-first-input", "constants-are-recorded"],
)
def test_propagates(backend: Backend, trace: Trace) -> None:
    """The result of an operation requires grad if at least one of its inputs does, and only then."""
    for left, right in product((False, True), repeat=2):
        first = backend.tensor([1.0], requires_grad=left)
        second = backend.tensor([2.0], requires_grad=right)
        result = backend.call(lambda x, y: x * y, first, second)

        trace.expect_value(f"{left} and {right} give", expected=left or right, observed=backend.requires_grad(result))


@rule(
    "requires-grad.non-leaf-always",
    level=Level.MUST,
    sources=[FLAG],
    needs=[Capability.REQUIRES_GRAD_FLAG],
    mutants=["flag-of-a-non-leaf-is-set"],
)
def test_not_a_leaf(backend: Backend, trace: Trace) -> None:
    """A non-leaf that depends on a tensor that requires grad requires grad, and this cannot be switched off."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)

    with suppress(Exception):  # another rule says whether it is an error
        backend.set_requires_grad(y, requires_grad=False)
    trace.expect_value("requires grad", expected=True, observed=backend.requires_grad(y))
    backend.backward(backend.sum(y * 3))

    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))


@rule(
    "requires-grad.non-leaf-always.error",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("to set the flag of a tensor that is no leaf to false is an error")],
    needs=[Capability.REQUIRES_GRAD_FLAG],
    mutants=["flag-of-a-non-leaf-is-set", "flag-of-a-non-leaf-is-ignored"],
)
def test_not_a_leaf_is_told(backend: Backend, trace: Trace) -> None:
    """Setting requires_grad of a non-leaf to False is an error."""
    y = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))

    with trace.raises(ErrorKind.REQUIRES_GRAD_OF_NON_LEAF):
        backend.set_requires_grad(y, requires_grad=False)


@rule(
    "requires-grad.default",
    level=Level.MUST,
    sources=[FLAG],
    needs=[Capability.MODULES],
    mutants=["parameters-are-frozen", "every-tensor-requires-grad"],
)
def test_default(backend: Backend, trace: Trace) -> None:
    """A tensor does not require grad by default; a parameter of a module does."""
    given = backend.tensor([3.0, 5.0])
    module = backend.module({"weight": given}, lambda module, x: x * module.weight)

    trace.expect_value("tensor", expected=False, observed=backend.requires_grad(given))
    trace.expect_value("parameter", expected=True, observed=backend.requires_grad(module.weight))


@rule(
    "requires-grad.freeze",
    level=Level.MUST,
    sources=[FLAG, docstring("torch.nn.Module.requires_grad_")],
    needs=[Capability.REQUIRES_GRAD_FLAG],
    mutants=["freezing-has-no-effect"],
)
def test_frozen(backend: Backend, trace: Trace) -> None:
    """A leaf whose requires_grad is switched off gets no gradient from later computations; other leaves do."""
    frozen, free = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    backend.set_requires_grad(frozen, requires_grad=False)

    backend.backward(backend.call(lambda x, y: backend.sum(x * y), frozen, free))

    trace.expect_value("gradient of the frozen leaf", None, backend.grad_of(frozen))
    trace.expect_value("gradient of the other", [1.0, 2.0], backend.grad_of(free))


@rule(
    "requires-grad.freeze.thawed",
    level=Level.MUST,
    sources=[FLAG],
    needs=[Capability.REQUIRES_GRAD_FLAG],
    mutants=["frozen-for-good"],
)
def test_thawed(backend: Backend, trace: Trace) -> None:
    """A leaf whose requires_grad was switched off and on again accumulates gradients as before."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for flag in (False, True):
        backend.set_requires_grad(x, requires_grad=flag)

    backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

    trace.expect_value("x.grad", [3.0, 3.0], backend.grad_of(x))


@rule(
    "leaf.no-grad-is-leaf",
    level=Level.MUST,
    sources=[LEAF],
    mutants=["results-are-never-leaves"],
)
def test_constants_are_leaves(backend: Backend, trace: Trace) -> None:
    """A tensor that does not require grad is a leaf, even if an operation made it."""
    a, b = backend.tensor([1.0]), backend.tensor([2.0])

    trace.expect_value("is a leaf", expected=True, observed=backend.is_leaf(backend.call(lambda x, y: x * y, a, b)))


@rule(
    "leaf.user-created",
    level=Level.MUST,
    sources=[LEAF],
    mutants=["results-are-leaves-too", "leaf-only-without-requires-grad"],
)
def test_made_by_the_user(backend: Backend, trace: Trace) -> None:
    """A tensor that requires grad is a leaf if the user made it, and not if an operation did."""
    x = backend.tensor([1.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)

    trace.expect_value("made by the user", expected=True, observed=backend.is_leaf(x))
    trace.expect_value("made by an operation", expected=False, observed=backend.is_leaf(y))


@rule(
    "leaf.only-leaf-grad",
    level=Level.MUST,
    sources=[FLAG, LEAF],
    mutants=["constants-accumulate-zeros", "every-intermediate-gradient-retained"],
)
def test_who_accumulates(backend: Backend, trace: Trace) -> None:
    """Backward sets .grad of the leaves that require grad, and of no other tensor."""

    def forward(x, constant):
        y = x * constant
        return y, backend.sum(y)

    x, constant = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0])
    y, loss = backend.call(forward, x, constant)
    backend.backward(loss)

    trace.expect_value("x.grad", [3.0, 4.0], backend.grad_of(x))
    trace.expect_value("gradient of the constant", None, backend.grad_of(constant))
    with catch_warnings(action="ignore"):  # torch warns when it is read
        trace.expect_value("y.grad", None, backend.grad_of(y))


@rule(
    "detach.shares-no-grad",
    level=Level.MUST,
    sources=[DETACH],
    needs=[Capability.STORAGE],
    mutants=["detach-copies", "detach-keeps-the-history"],
)
def test_detached(backend: Backend, trace: Trace) -> None:
    """A detached tensor does not require grad, and shares the data of the tensor it was detached from."""
    y = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))
    detached = backend.detach(y)

    trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(detached))
    trace.expect_value("same data", expected=True, observed=backend.data_ptr(detached) == backend.data_ptr(y))


@rule(
    "detach.shares-no-grad.hooks",
    level=Level.MUST,
    sources=[DETACH],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["detach-keeps-the-history"],
)
def test_detached_from_hooks(backend: Backend, trace: Trace) -> None:
    """A computation from a detached tensor sends no gradient to the hooks and leaves before the detach."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("y"))
        return backend.sum(x * backend.detach(y))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect()
    trace.expect_value("x.grad", [2.0, 4.0], backend.grad_of(x))


@rule(
    "detach.shares-no-grad.version",
    level=Level.MUST,
    sources=[DETACH],
    needs=[Capability.IN_PLACE, Capability.VERSION_COUNTER],
    mutants=["detach-copies", "version-not-checked"],
)
def test_detached_and_changed(backend: Backend, trace: Trace) -> None:
    """An in-place change through a detached tensor is detected for the original tensor if that was saved."""

    def forward(x):
        y = x * 2
        return y, backend.sum(y * y)

    y, loss = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))
    backend.mul_(backend.detach(y), 10)

    with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
        backend.backward(loss)
