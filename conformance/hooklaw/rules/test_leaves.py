"""requires_grad, is_leaf, and which tensors accumulate a gradient."""

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import NUMBERS

FLAG = notes("autograd", "setting-requires-grad")
LEAF = docstring("torch.Tensor.is_leaf")
DETACH = docstring("torch.Tensor.detach")
REGISTER_HOOK = docstring("torch.Tensor.register_hook")
POST_ACCUMULATE = docstring("torch.Tensor.register_post_accumulate_grad_hook")


@rule(
    "requires-grad.propagation",
    level=Level.MUST,
    sources=[FLAG.sentence(3, 8)],
    mutants=[
        "result-requires-grad-with-its-first-input",
        "constants-are-recorded",
        "exponentials-of-constants-are-recorded",
    ],
)
def test_propagates(backend: Backend, trace: Trace) -> None:
    """The result of a differentiable operation in grad mode requires grad exactly if one of its inputs does."""
    for left, right in product((False, True), repeat=2):
        first = backend.tensor([1.0], requires_grad=left)
        second = backend.tensor([2.0], requires_grad=right)
        result = backend.call(lambda x, y: x * y, first, second)

        trace.expect_value(f"{left} and {right} give", expected=left or right, observed=backend.requires_grad(result))

    for operation, flag in product((backend.exp, backend.sum, backend.clone, lambda x: x + x), (False, True)):
        result = backend.call(operation, backend.tensor([1.0], requires_grad=flag))
        trace.expect_value(f"{flag} alone gives", expected=flag, observed=backend.requires_grad(result))

    for numbers in NUMBERS:
        result = backend.call(lambda x: x * 2, backend.tensor(numbers, requires_grad=True))
        trace.expect_value(f"{numbers} gives", expected=True, observed=backend.requires_grad(result))


@rule(
    "requires-grad.non-leaf-always",
    level=Level.MUST,
    sources=[FLAG.sentence(8)],
    needs=[Capability.REQUIRES_GRAD_FLAG],
    mutants=[
        "flag-of-a-non-leaf-is-set",
        "flag-of-a-non-leaf-is-set-at-the-second-try",
        "results-of-frozen-leaves-require-no-grad",
    ],
)
def test_not_a_leaf(backend: Backend, trace: Trace) -> None:
    """A tensor that has a grad_fn requires grad, and this cannot be switched off."""
    x = backend.tensor([1.0, 2.0])
    backend.set_requires_grad(x, requires_grad=True)  # fails where nothing can be switched
    y = backend.call(lambda x: x * 2, x)

    for _ in range(2):
        with suppress(Exception):  # another rule says whether it is an error
            backend.set_requires_grad(y, requires_grad=False)
        trace.expect_value("requires grad", expected=True, observed=backend.requires_grad(y))
    backend.backward(backend.sum(y * 3))

    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))
    backend.set_requires_grad(x, requires_grad=False)
    trace.expect_value("requires grad, its leaf frozen", expected=True, observed=backend.requires_grad(y))


@rule(
    "requires-grad.non-leaf-always.error",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("to set the flag of a tensor that is no leaf to false is an error")],
    needs=[Capability.REQUIRES_GRAD_FLAG],
    mutants=[
        "flag-of-a-non-leaf-is-set",
        "flag-of-a-non-leaf-is-ignored",
        "flag-of-a-non-leaf-is-ignored-after-an-error",
        "flag-of-a-non-leaf-that-is-a-scalar-is-ignored",
        "flag-of-a-result-of-a-result-is-ignored",
        "flag-of-a-non-leaf-is-ignored-after-a-backward",
    ],
)
def test_not_a_leaf_is_told(backend: Backend, trace: Trace) -> None:
    """Setting requires_grad of a non-leaf to False is an error."""
    y = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))

    with trace.raises(ErrorKind.REQUIRES_GRAD_OF_NON_LEAF):
        backend.set_requires_grad(y, requires_grad=False)

    for numbers in NUMBERS:
        z = backend.tensor(numbers, requires_grad=True)
        for result in backend.call(lambda z: (z * 1, backend.clone(z * 1), backend.exp(z), backend.sum(z)), z):
            with trace.raises(ErrorKind.REQUIRES_GRAD_OF_NON_LEAF):
                backend.set_requires_grad(result, requires_grad=False)
    backend.backward(backend.call(backend.sum, y))
    with trace.raises(ErrorKind.REQUIRES_GRAD_OF_NON_LEAF):
        backend.set_requires_grad(y, requires_grad=False)


@rule(
    "requires-grad.default",
    level=Level.MUST,
    sources=[FLAG.sentence(1, 13)],
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
    sources=[FLAG.sentence(10, 11)],
    needs=[Capability.REQUIRES_GRAD_FLAG],
    mutants=[
        "freezing-has-no-effect",
        "used-leaves-are-never-frozen",
        "frozen-for-one-pass",
        "frozen-until-another-is",
    ],
)
def test_frozen(backend: Backend, trace: Trace) -> None:
    """A leaf whose requires_grad is switched off gets no gradient from later computations; other leaves do."""
    for used_before in (False, True):
        data = ([1.0, 2.0], [10.0, 20.0], [3.0, 4.0])
        first, second, free = (backend.tensor(each, requires_grad=True) for each in data)
        if used_before:
            backend.backward(backend.call(lambda x, y: backend.sum(x * 5 + y * 5), first, second))
        for frozen in (first, second):
            backend.set_requires_grad(frozen, requires_grad=False)

        for of_free in ([11.0, 22.0], [22.0, 44.0]):
            backend.backward(backend.call(lambda x, y, z: backend.sum(x * z + y * z), first, second, free))

            of_before = [5.0, 5.0] if used_before else None
            for frozen in (first, second):
                trace.expect_value("gradient of a frozen leaf", of_before, backend.grad_of(frozen))
            trace.expect_value("gradient of the other", of_free, backend.grad_of(free))

    for numbers in NUMBERS:
        frozen, free = (backend.tensor(numbers, requires_grad=True) for _ in range(2))
        backend.set_requires_grad(frozen, requires_grad=False)
        backend.backward(backend.call(lambda x, y: backend.sum(x * y), frozen, free))
        trace.expect_value("gradients", [None, numbers], [backend.grad_of(frozen), backend.grad_of(free)])


@rule(
    "requires-grad.freeze.thawed",
    level=Level.MUST,
    sources=[FLAG.sentence(4)],
    needs=[Capability.REQUIRES_GRAD_FLAG],
    mutants=[
        "frozen-for-good",
        "frozen-for-good-by-the-third-time",
        "frozen-for-good-once-used",
        "each-freezing-needs-a-thawing",
        "graphs-from-before-a-freezing-miss-their-leaf",
        "zeros-are-frozen-for-good",
    ],
)
def test_thawed(backend: Backend, trace: Trace) -> None:
    """A leaf whose requires_grad was switched off and on again accumulates gradients as before."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for accumulated in ([3.0, 3.0], [6.0, 6.0], [9.0, 9.0]):
        for flag in (False, True):
            backend.set_requires_grad(x, requires_grad=flag)

        backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

        trace.expect_value("x.grad", accumulated, backend.grad_of(x))

    for numbers in NUMBERS:
        x, y = (backend.tensor(numbers, requires_grad=True) for _ in range(2))
        root = backend.call(lambda x, y: backend.sum(x * y), x, y)
        for flag in (False, False, True):
            backend.set_requires_grad(x, requires_grad=flag)
            backend.call(lambda x: x * 5, x)
        for each in (root, backend.call(lambda x, y: backend.sum(x * y), x, y)):
            backend.set_grad(x, None)
            backend.backward(each)
            trace.expect_value("x.grad, before and after it was frozen", numbers, backend.grad_of(x))


@rule(
    "requires-grad.freeze.tensor-hooks",
    level=Level.MUST,
    sources=[FLAG.sentence(4), REGISTER_HOOK.sentence(2, 5)],
    needs=[Capability.REQUIRES_GRAD_FLAG, Capability.TENSOR_HOOKS],
    mutants=["freezing-drops-tensor-hooks", "freezing-drops-later-hooks", "third-freezing-drops-hooks"],
)
def test_tensor_hooks_of_a_thawed_leaf(backend: Backend, trace: Trace) -> None:
    """The tensor hooks of a leaf run once its requires_grad was switched off and on again, and can be removed."""
    keeps_hooks(backend, trace, backend.register_hook)


@rule(
    "requires-grad.freeze.post-accumulate-hooks",
    level=Level.MUST,
    sources=[FLAG.sentence(4), POST_ACCUMULATE.sentence(2, 8)],
    needs=[Capability.REQUIRES_GRAD_FLAG, Capability.POST_ACCUMULATE],
    mutants=["freezing-drops-post-accumulate-hooks", "freezing-drops-later-hooks", "third-freezing-drops-hooks"],
)
def test_post_accumulate_hooks_of_a_thawed_leaf(backend: Backend, trace: Trace) -> None:
    """A leaf's post-accumulate-grad hooks run once its requires_grad was off and on again, and can be removed."""
    keeps_hooks(backend, trace, backend.register_post_accumulate_grad_hook)


def keeps_hooks(backend: Backend, trace: Trace, register: Callable[[Any, Any], Any]) -> None:
    """Expect three hooks of a leaf to run after each of three freezings, and not while it is frozen."""
    x, other = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    handles = [register(x, lambda _, label=label: trace.log(label)) for label in ("first", "second", "third")]
    for _ in range(3):
        backend.set_requires_grad(x, requires_grad=False)
        backend.backward(backend.call(lambda x, other: backend.sum(x * other), x, other))
        trace.expect()
        backend.set_requires_grad(x, requires_grad=True)
        for _ in range(2):
            backend.backward(backend.call(lambda x: backend.sum(x * 3), x))
            trace.expect("first", "second", "third")
    handles[1].remove()
    backend.backward(backend.call(lambda x: backend.sum(x * 3), x))
    trace.expect("first", "third")


@rule(
    "leaf.no-grad-is-leaf",
    level=Level.MUST,
    sources=[LEAF.sentence(1)],
    needs=[Capability.GRAD_MODE],
    mutants=[
        "results-are-never-leaves",
        "results-of-a-single-constant-are-no-leaves",
        "results-under-no-grad-are-no-leaves",
    ],
)
def test_constants_are_leaves(backend: Backend, trace: Trace) -> None:
    """A tensor that does not require grad is a leaf, even if an operation made it."""
    a, b = backend.tensor([1.0]), backend.tensor([2.0])
    product_of_constants = backend.call(lambda x, y: x * y, a, b)
    detached = backend.detach(backend.call(lambda x: x * 2, backend.tensor([1.0], requires_grad=True)))

    trace.expect_value("is a leaf", expected=True, observed=backend.is_leaf(product_of_constants))
    trace.expect_value("detached: is a leaf", expected=True, observed=backend.is_leaf(detached))
    for operation in (backend.exp, backend.sum, backend.clone):
        trace.expect_value("of one: is a leaf", expected=True, observed=backend.is_leaf(backend.call(operation, a)))
    with backend.no_grad():
        unrecorded = backend.call(lambda x: x * 2, backend.tensor([1.0], requires_grad=True))
    trace.expect_value("made in no_grad: is a leaf", expected=True, observed=backend.is_leaf(unrecorded))


@rule(
    "leaf.no-grad-is-leaf.view",
    level=Level.MUST,
    sources=[LEAF.sentence(1)],
    needs=[Capability.VIEWS],
    mutants=["views-are-never-leaves"],
)
def test_views_of_constants_are_leaves(backend: Backend, trace: Trace) -> None:
    """A view of a tensor that does not require grad is a leaf, and so is a view of a detached tensor."""
    constant = backend.tensor([1.0, 2.0])
    detached = backend.detach(backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True)))
    for tensor in (constant, detached):
        view = backend.call(lambda x: backend.view(x, 2, 1), tensor)
        for each in (view, backend.call(lambda x: backend.transpose(x, 0, 1), view)):
            trace.expect_value("is a leaf", expected=True, observed=backend.is_leaf(each))


@rule(
    "leaf.user-created",
    level=Level.MUST,
    sources=[LEAF.sentence(2, 3)],
    needs=[Capability.NODES],
    mutants=["is-leaf-true", "leaf-only-without-requires-grad"],
)
def test_made_by_the_user(backend: Backend, trace: Trace) -> None:
    """A tensor that requires grad is a leaf exactly if it has no grad_fn."""
    x = backend.tensor([1.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)

    for label, tensor, leaf in (("made by the user", x, True), ("made by an operation", y, False)):
        trace.expect_value(f"{label}: is a leaf", leaf, backend.is_leaf(tensor))
        trace.expect_value(f"{label}: has no grad_fn", leaf, backend.grad_fn(tensor) is None)


@rule(
    "leaf.user-created.parameters",
    level=Level.MUST,
    sources=[LEAF.sentence(2, 3)],
    needs=[Capability.MODULES, Capability.VIEWS],
    mutants=["parameters-are-no-leaves", "views-of-leaves-are-leaves"],
)
def test_parameters_and_views(backend: Backend, trace: Trace) -> None:
    """Each parameter of a module is a leaf, and a view of a leaf that requires grad is not."""
    given = {"weight": backend.tensor([1.0, 2.0]), "bias": backend.tensor([3.0, 4.0])}
    module = backend.module(given, lambda module, x: x * module.weight + module.bias)
    for x in (module.weight, module.bias, backend.tensor([1.0, 2.0], requires_grad=True)):
        trace.expect_value("is a leaf", expected=True, observed=backend.is_leaf(x))
        view = backend.call(lambda x: backend.view(x, 2, 1), x)
        trace.expect_value("view: is a leaf", expected=False, observed=backend.is_leaf(view))


@rule(
    "leaf.of-constants",
    level=Level.MUST,
    sources=[LEAF.sentence(1, 3, 4), docstring("torch.Tensor.grad").sentence(1)],
    needs=[Capability.REQUIRES_GRAD_FLAG, Capability.GRAD_MODE],
    mutants=[
        "results-are-never-leaves",
        "only-given-data-makes-leaves",
        "results-under-no-grad-are-no-leaves-once-they-require-grad",
        "gradient-starts-as-zeros-once-it-is-required",
    ],
)
def test_made_of_constants(backend: Backend, trace: Trace) -> None:
    """A tensor computed without recording is a leaf after it was made to require grad, and gets a gradient.

    It has none before backward.
    """
    made = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0]))
    backend.set_requires_grad(made, requires_grad=True)
    trace.expect_value("is a leaf", expected=True, observed=backend.is_leaf(made))
    trace.expect_value("its gradient before", None, backend.grad_of(made))

    backend.backward(backend.call(lambda x: backend.sum(x * x), made))

    trace.expect_value("its gradient", [4.0, 8.0], backend.grad_of(made))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    with backend.no_grad():
        made = backend.call(lambda x: x * 2, x)
    backend.set_requires_grad(made, requires_grad=True)
    trace.expect_value("made in no_grad: is a leaf", expected=True, observed=backend.is_leaf(made))
    backend.backward(backend.call(lambda x: backend.sum(x * x), made))
    trace.expect_value("gradients", [[4.0, 8.0], None], [backend.grad_of(made), backend.grad_of(x)])

    for numbers in NUMBERS:
        made = backend.call(lambda x: x * 1, backend.tensor(numbers))
        backend.set_requires_grad(made, requires_grad=True)
        backend.backward(backend.call(lambda x, weight: backend.sum(x * weight), made, backend.tensor(numbers)))
        trace.expect_value("its gradient", numbers, backend.grad_of(made))


@rule(
    "leaf.only-leaf-grad",
    level=Level.MUST,
    sources=[
        FLAG.sentence(4),
        LEAF.sentence(4, 5),
        docstring("torch.Tensor.backward").sentence(21),
        docstring("torch.autograd.backward").sentence(25),
    ],
    mutants=["constants-accumulate-zeros", "every-intermediate-gradient-retained", "root-gets-its-gradient"],
)
def test_who_accumulates(backend: Backend, trace: Trace) -> None:
    """Backward without inputs sets .grad of leaves that require grad, and of other tensors only if they retain it."""

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
        trace.expect_value("loss.grad", None, backend.grad_of(loss))


@rule(
    "detach.shares-no-grad",
    level=Level.MUST,
    sources=[DETACH.sentence(2, 4)],
    needs=[Capability.STORAGE],
    mutants=["detach-copies", "detach-copies-constants", "detach-copies-what-is-detached", "detach-keeps-the-history"],
)
def test_detached(backend: Backend, trace: Trace) -> None:
    """A detached tensor does not require grad, and shares the data of the tensor it was detached from."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    others = [backend.tensor(numbers, requires_grad=True) for numbers in NUMBERS]
    for tensor in (x, backend.call(lambda x: x * 2, x), backend.tensor([1.0, 2.0]), backend.detach(x), *others):
        detached = backend.detach(tensor)

        trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(detached))
        trace.expect_value("same data", expected=True, observed=backend.data_ptr(detached) == backend.data_ptr(tensor))


@rule(
    "detach.shares-no-grad.hooks",
    level=Level.MUST,
    sources=[DETACH.sentence(1)],
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
    sources=[DETACH.sentence(5), notes("autograd", "in-place-correctness-checks").sentence(4)],
    needs=[Capability.IN_PLACE, Capability.VERSION_COUNTER],
    mutants=["detach-copies", "version-not-checked", "detached-tensor-has-its-own-version", "detach-copies-leaves"],
    except_under={"packed": "what hooks unpack is not checked for in-place changes"},
)
def test_detached_and_changed(backend: Backend, trace: Trace) -> None:
    """If a tensor or its detached alias is changed in place after the other was saved, backward is an error.

    The docstring says that such changes may trigger errors in correctness checks; the section on these checks says that
    gradients are right wherever there is no error.
    """

    def forward(x):
        y = x * 2
        detached = backend.detach(y)
        return y, detached, backend.sum(y * y), backend.sum(x * detached)

    for change_original in (False, True):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        y, detached, of_y, of_detached = backend.call(forward, x)
        backend.mul_(y if change_original else detached, 10)

        with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
            backend.backward(of_detached if change_original else of_y)

    leaf = backend.tensor([1.0, 2.0], requires_grad=True)
    detached, of_leaf = backend.call(lambda x: (backend.detach(x), backend.sum(x * x)), leaf)
    backend.mul_(detached, 10)

    with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
        backend.backward(of_leaf)


@rule(
    "detach.in-place",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.detach_").sentence(1)],
    needs=[Capability.DETACH_IN_PLACE],
    mutants=[
        "detach-in-place-detaches-a-copy",
        "detach-in-place-of-a-leaf-does-nothing",
        "detach-in-place-cuts-earlier-uses",
    ],
)
def test_detached_in_place(backend: Backend, trace: Trace) -> None:
    """detach_ makes a tensor a leaf that does not require grad.

    It detaches this tensor alone: what was computed from it before keeps its history.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y, loss = backend.call(lambda x: (y := x * 2, backend.sum(y * 3)), x)
    backend.detach_(y)
    backend.backward(loss)
    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))

    for tensor in (backend.call(lambda x: x * 2, x), x):
        trace.expect_value("is a leaf before", expected=tensor is x, observed=backend.is_leaf(tensor))
        backend.detach_(tensor)

        trace.expect_value("is a leaf", expected=True, observed=backend.is_leaf(tensor))
        trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(tensor))


@rule(
    "detach.in-place.saved",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("an error asks for detach instead, if an operation saved the tensor as its input")],
    needs=[Capability.DETACH_IN_PLACE],
    mutants=["detach-in-place-detaches-a-copy"],
    except_under={"packed": "what hooks unpack is not the tensor that was saved"},
)
def test_detached_after_saving(backend: Backend, trace: Trace) -> None:
    """After detach_ of a tensor that an operation saved as its input, this operation's backward may be an error."""

    def forward(x):
        y = x * 1
        loss = backend.sum(y * y)
        backend.detach_(y)
        return loss

    loss = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))
    with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
        backend.backward(loss)


@rule(
    "leaf.only-leaf-grad.warns",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a warning says that .grad of a non-leaf is not populated, and how to retain it")],
    needs=[Capability.RETAIN_GRAD],
    mutants=["reading-a-gradient-never-warns", "reading-the-gradient-of-a-constant-warns"],
)
def test_reading_warns(backend: Backend, trace: Trace) -> None:
    """Reading .grad of a non-leaf that does not retain its gradient may warn; that of any other tensor does not."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y, retaining, constant = x * 2, x * 3, backend.tensor([1.0, 2.0])
    backend.retain_grad(retaining)

    for what, tensor, expected in (
        ("leaf", x, False),
        ("retaining", retaining, False),
        ("constant", constant, False),
        ("made of constants", constant * 2, False),
        ("detached", backend.detach(y), False),
        ("non-leaf", y, True),
    ):
        with catch_warnings(record=True, action="always") as caught:
            backend.grad_of(tensor)
        trace.expect_value(f"warns, {what}", expected, bool(caught))


@rule(
    "detach.in-place.view",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.detach_").sentence(2)],
    needs=[Capability.DETACH_IN_PLACE, Capability.VIEWS],
    mutants=[
        "detach-of-a-view-accepted",
        "views-of-leaves-are-detached-in-place",
        "views-of-constants-are-detached-in-place",
        "views-of-views-are-detached-in-place",
        "transposed-views-are-detached-in-place",
    ],
)
def test_view_not_detached(backend: Backend, trace: Trace) -> None:
    """Detaching a view in place is an error."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for view in backend.call(lambda x: (backend.view(x * 2, 2, 1), backend.view(x, 2, 1)), x):
        with trace.raises(ErrorKind.VIEW_DETACHED):
            backend.detach_(view)

    def others(x):
        y = backend.view(x * 2, 2, 1)
        return backend.view(y, 2), backend.transpose(y, 0, 1), backend.expand(y, 2, 3)

    of_constant = backend.call(lambda x: backend.view(x, 2, 1), backend.tensor([1.0, 2.0]))
    for view in (*backend.call(others, x), of_constant):
        with trace.raises(ErrorKind.VIEW_DETACHED):
            backend.detach_(view)
