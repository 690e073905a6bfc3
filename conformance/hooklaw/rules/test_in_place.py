"""In-place operations without hooks: errors, the version counter, and the right gradients."""

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import NUMBERS

OPERATIONS = notes("autograd", "in-place-operations-with-autograd")
CHECKS = notes("autograd", "in-place-correctness-checks")
INCREMENT = docstring("torch.autograd.graph.increment_version")


@rule(
    "inplace.leaf-error",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a leaf that requires grad is refused by in-place operations")],
    needs=[Capability.IN_PLACE, Capability.GRAD_MODE],
    mutants=[
        "leaf-changed-in-place",
        "leaf-multiplied-by-a-tensor",
        "leaf-without-dimensions-changed-in-place",
        "leaf-with-a-gradient-changed-in-place",
    ],
)
def test_leaf(backend: Backend, trace: Trace) -> None:
    """In grad mode an in-place operation on a leaf that requires grad is an error, and does not change the leaf."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)

    with trace.raises(ErrorKind.LEAF_IN_PLACE):
        backend.call(lambda x: backend.mul_(x, 2), x)
    trace.expect_value("x", [1.0, 2.0], x)

    for numbers in NUMBERS:
        x, factor = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        for _ in range(2):
            for by in (2, factor, x):
                with trace.raises(ErrorKind.LEAF_IN_PLACE):
                    backend.call(lambda x, by=by: backend.mul_(x, by), x)
                trace.expect_value("x", numbers, x)
            backend.backward(backend.call(lambda x: backend.sum(x * 3), x))


@rule(
    "inplace.leaf-error.origins",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a leaf that requires grad is refused by in-place operations")],
    needs=[Capability.IN_PLACE, Capability.GRAD_MODE, Capability.MODULES, Capability.REQUIRES_GRAD_FLAG],
    mutants=["parameters-changed-in-place", "leaves-made-to-require-grad-changed-in-place"],
)
def test_leaf_of_any_origin(backend: Backend, trace: Trace) -> None:
    """In grad mode an in-place operation on a parameter, or on a leaf that was made to require grad, is an error.

    It does not change the leaf.
    """
    module = backend.module({"weight": backend.tensor([1.0, 2.0])}, lambda module, x: x * module.weight)
    switched, copied = backend.tensor([1.0, 2.0]), backend.call(lambda x: x * 1, backend.tensor([1.0, 2.0]))
    backend.set_requires_grad(switched, requires_grad=True)
    backend.requires_grad_(copied)
    for x in (module.weight, switched, copied):
        with trace.raises(ErrorKind.LEAF_IN_PLACE):
            backend.call(lambda x: backend.mul_(x, 2), x)
        trace.expect_value("x", [1.0, 2.0], x)


@rule(
    "inplace.leaf.no-grad",
    level=Level.MUST,
    sources=[notes("autograd", "no-grad-mode").sentence(5, 6)],
    needs=[Capability.IN_PLACE, Capability.GRAD_MODE, Capability.TENSOR_HOOKS],
    mutants=["leaves-never-changed-in-place", "every-change-in-place-refused", "hooks-of-a-leaf-lost-when-it-changes"],
)
def test_leaf_without_recording(backend: Backend, trace: Trace) -> None:
    """Under no_grad a leaf that requires grad may be changed in place; in grad mode it is then used as a leaf.

    It is the same leaf, so its hooks run as before.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("hook"))
    with backend.no_grad():
        backend.mul_(x, 3)
    trace.expect_value("x", [3.0, 6.0], x)
    trace.expect_value("x is a leaf", expected=True, observed=backend.is_leaf(x))

    backend.backward(backend.call(lambda x: backend.sum(x * x), x))

    trace.expect(("hook", [6.0, 12.0]))
    trace.expect_value("x.grad", [6.0, 12.0], backend.grad_of(x))


@rule(
    "inplace.leaf.no-grad.hooks",
    level=Level.MUST,
    sources=[
        notes("autograd", "no-grad-mode").sentence(5, 6),
        docstring("torch.autograd.graph.register_multi_grad_hook").sentence(3, 5),
        docstring("torch.autograd.graph.Node.register_prehook").sentence(2),
        docstring("torch.autograd.graph.Node.register_hook").sentence(2),
    ],
    needs=[
        Capability.IN_PLACE,
        Capability.GRAD_MODE,
        Capability.MULTI_GRAD,
        Capability.NODES,
        Capability.NODE_HOOKS,
    ],
    mutants=["multi-grad-hooks-of-a-leaf-lost-when-it-changes", "node-hooks-of-a-leaf-lost-when-it-changes"],
)
def test_hooks_of_a_changed_leaf(backend: Backend, trace: Trace) -> None:
    """Multi-grad hooks of a leaf, and hooks on its Node, run as before once it was changed in place under no_grad."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    node = backend.accumulate_grad(x)
    backend.register_multi_grad_hook([x], lambda _: trace.log("all"))
    backend.register_multi_grad_hook([x], lambda _: trace.log("any"), mode="any")
    backend.node_register_prehook(node, lambda _: trace.log("pre-hook"))
    backend.node_register_hook(node, lambda *_: trace.log("post-hook"))
    for _ in range(2):
        with backend.no_grad():
            backend.mul_(x, 3)
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

        trace.expect_in_any_order("all", "any", "pre-hook", "post-hook")


@rule(
    "inplace.version-counter",
    level=Level.MUST,
    sources=[CHECKS.sentence(1, 2, 3)],
    needs=[Capability.IN_PLACE, Capability.VERSION_COUNTER],
    mutants=["version-not-checked", "change-to-the-same-values-goes-uncounted", "second-factor-saved-as-a-copy"],
    except_under={"packed": "what hooks unpack is not checked for in-place changes"},
)
def test_every_change_counts(backend: Backend, trace: Trace) -> None:
    """An in-place operation on a saved tensor makes backward an error even if it does not change the values.

    Unless hooks have packed what was saved, or a context allows its mutation.
    """

    def forward(x):
        y, z = x * 2, x * 3
        return (y, z), backend.sum(y * z)

    for nr, numbers in product((0, 1), ([1.0, 2.0], *NUMBERS)):
        saved, loss = backend.call(forward, backend.tensor(numbers, requires_grad=True))
        backend.mul_(saved[nr], 1)

        with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
            backend.backward(loss)


@rule(
    "inplace.version-counter.leaf",
    level=Level.MUST,
    sources=[CHECKS.sentence(1, 2, 3)],
    needs=[Capability.IN_PLACE, Capability.VERSION_COUNTER, Capability.GRAD_MODE],
    mutants=["changes-of-leaves-under-no-grad-uncounted", "version-not-checked"],
    except_under={"packed": "what hooks unpack is not checked for in-place changes"},
)
def test_change_of_a_leaf_counts(backend: Backend, trace: Trace) -> None:
    """A change in place of a saved leaf under no_grad, as by an optimizer's step, makes backward an error.

    Unless hooks have packed what was saved, or a context allows its mutation.
    """
    x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    for changed in (x, w):
        loss = backend.call(lambda x, w: backend.sum(x * w), x, w)
        with backend.no_grad():
            backend.mul_(changed, 3)

        with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
            backend.backward(loss)


@rule(
    "inplace.version-counter.out-of-place",
    level=Level.MUST,
    sources=[CHECKS.sentence(2, 3)],
    needs=[Capability.IN_PLACE, Capability.VERSION_COUNTER],
    mutants=["every-operation-counts-as-a-change"],
)
def test_other_operations_do_not_count(backend: Backend, trace: Trace) -> None:
    """An out-of-place operation on a saved tensor is no error, and neither is an in-place one before it was saved."""

    def forward(x):
        y = x * 2
        backend.mul_(y, 3)
        loss = backend.sum(y * y)
        return loss, y * 5, backend.exp(y), backend.sum(y), backend.clone(y), backend.detach(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, *_ = backend.call(forward, x)
    backend.backward(loss)

    trace.expect_value("x.grad", [72.0, 144.0], backend.grad_of(x))


@rule(
    "inplace.unsaved-ok",
    level=Level.MUST,
    sources=[CHECKS.sentence(3, 4)],
    needs=[Capability.IN_PLACE],
    mutants=["every-change-in-place-refused"],
)
def test_unsaved(backend: Backend, trace: Trace) -> None:
    """A tensor that no operation saved may be changed in place, and the gradients are those of the new value."""

    def forward(x):
        y = x + 1
        backend.mul_(y, 5)
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect_value("x.grad", [5.0, 5.0], backend.grad_of(x))


@rule(
    "inplace.product",
    level=Level.MUST,
    sources=[notes("autograd", "setting-requires-grad").sentence(3), CHECKS.sentence(4)],
    needs=[Capability.IN_PLACE],
    mutants=[
        "constants-changed-in-place-stay-constant",
        "factors-in-place-get-no-gradient",
        "factors-in-place-get-the-new-value",
        "constants-changed-in-place-require-grad",
    ],
)
def test_product(backend: Backend, trace: Trace) -> None:
    """A tensor multiplied in place requires grad exactly if it or the factor did, and both get their gradients.

    The factor's gradient is the tensor's value before the change.
    """
    x, w = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([5.0, 7.0], requires_grad=True)
    for tensor, of_x in ((backend.call(lambda x: x * 2, x), [10.0, 14.0]), (backend.tensor([2.0, 4.0]), None)):
        y = backend.call(backend.mul_, tensor, w)
        trace.expect_value("requires grad", expected=True, observed=backend.requires_grad(y))
        for each in (x, w):
            backend.set_grad(each, None)
        backend.backward(backend.call(backend.sum, y))

        trace.expect_value("gradients", [of_x, [2.0, 4.0]], [*map(backend.grad_of, (x, w))])

    for factor in (3, backend.tensor([3.0, 5.0])):
        constant = backend.call(lambda c, factor=factor: backend.mul_(c, factor), backend.tensor([2.0, 4.0]))
        trace.expect_value("requires grad, of constants", expected=False, observed=backend.requires_grad(constant))


@rule(
    "inplace.storage-shared-error",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[
        OPERATIONS,
        docstring("torch.Tensor.detach"),
        observed("torch does not raise the error of the note"),
    ],
    needs=[Capability.IN_PLACE, Capability.VIEWS],
    mutants=["changes-of-viewed-tensors-refused"],
)
def test_with_a_view(backend: Backend, trace: Trace) -> None:
    """A tensor that has a view may be changed in place; the view then has the new values.

    The note says that in-place functions raise an error if another tensor refers to the storage of the changed one.
    The docstring of detach says that such a change is seen by both and may trigger an error; so neither is a MUST.
    """

    def forward(x):
        y = x * 2
        view = backend.view(y, 2)
        backend.mul_(y, 5)
        return view, backend.sum(view)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    view, loss = backend.call(forward, x)
    backend.backward(loss)

    trace.expect_value("view", [10.0, 20.0], view)


@rule(
    "inplace.view.gradients",
    level=Level.MUST,
    sources=[CHECKS.sentence(4), OPERATIONS.sentence(8)],
    needs=[Capability.IN_PLACE, Capability.VIEWS],
    mutants=[
        "view-keeps-its-old-history",
        "base-keeps-the-gradient-of-what-was-overwritten",
        "every-change-in-place-refused",
    ],
)
def test_gradients_with_views(backend: Backend, trace: Trace) -> None:
    """If a tensor that shares its data with a view is changed in place without an error, gradients are right.

    In-place functions may refuse a tensor that shares its storage; without an error the gradients must be right,
    whether the base, the view or another view was changed, and also for what used the old values. A tensor without
    views is changed first: there a framework without in-place operations fails, as it refuses everything.
    """

    def alone(x: Any) -> Any:
        y = x * 2
        backend.mul_(y, 3)
        return backend.sum(y * 5)

    def forward(x: Any, changed: str, used: str) -> Any:
        base = x * 2
        tensors = {"base": base, "view": backend.view(base, 2), "other view": backend.view(base, 2)}
        earlier = backend.sum(tensors[changed] * 7)
        backend.mul_(tensors[changed], 3)
        return earlier + backend.sum(tensors[used] * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(alone, x))
    trace.expect_value("changed without a view: x.grad", [30.0, 30.0], backend.grad_of(x))
    for changed, used in product(("base", "view", "other view"), ("base", "view")):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        if _succeeds(lambda x=x, changed=changed, used=used: backend.backward(backend.call(forward, x, changed, used))):
            trace.expect_value(f"{changed} changed, {used} used: x.grad", [44.0, 44.0], backend.grad_of(x))


def _succeeds(action: Callable[[], Any]) -> bool:
    """Run an action; return whether it raised nothing."""
    with suppress(Exception):  # of whatever type: the documentation names none
        action()
        return True
    return False


@rule(
    "version.increment",
    level=Level.MUST,
    sources=[INCREMENT.sentence(1, 5, 6)],
    needs=[Capability.INCREMENT_VERSION, Capability.VERSION_COUNTER],
    mutants=[
        "increment-version-lost",
        "versions-first-alone",
        "versions-last-alone",
        "a-single-increment-is-lost",
        "increments-of-non-leaves-are-lost",
    ],
    except_under={"packed": "what hooks unpack is not checked for in-place changes"},
)
def test_increment(backend: Backend, trace: Trace) -> None:
    """increment_version on a saved tensor, alone or in a list, once or repeatedly, makes backward an error."""
    several = (lambda x, y: [y, x], lambda x, y: [x, y], lambda x, y: [y, x, y])
    for given, times in product((lambda x, _: x, *several, *several), (1, 2)):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        y, loss = backend.call(lambda x: (x * 1, backend.sum(x * x)), x)
        for _ in range(times):
            backend.increment_version(given(x, y))

        with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
            backend.backward(loss)

    for numbers, times in product((*NUMBERS, [1.0, 2.0]), (None, 1)):
        x = backend.tensor(numbers, requires_grad=True)
        saved = x if times is None else backend.call(lambda x, times=times: x * times, x)
        loss = backend.call(lambda saved: backend.sum(saved * saved), saved)
        backend.increment_version(saved)

        with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
            backend.backward(loss)


@rule(
    "version.increment.inference",
    level=Level.MUST,
    sources=[INCREMENT.sentence(7)],
    needs=[Capability.INCREMENT_VERSION, Capability.INFERENCE_MODE, Capability.INFERENCE_TENSORS],
    mutants=[
        "increment-of-inference-tensors-refused",
        "increment-of-inference-tensors-in-a-list-refused",
        "increment-of-a-list-ends-at-an-inference-tensor",
        "increment-of-a-list-with-an-inference-tensor-lost",
    ],
    except_under={"packed": "what hooks unpack is not checked for in-place changes"},
)
def test_increment_of_an_inference_tensor(backend: Backend, trace: Trace) -> None:
    """increment_version accepts an inference tensor, which has no version counter, and does nothing to it."""
    with backend.inference_mode():
        made = backend.tensor([1.0, 2.0])

    backend.increment_version(made)
    backend.increment_version([made])

    trace.expect_value("values", [1.0, 2.0], made)
    for given in (lambda x: [made, x], lambda x: [x, made]):  # the other one is incremented
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        loss = backend.call(lambda x: backend.sum(x * x), x)
        backend.increment_version(given(x))
        with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
            backend.backward(loss)
