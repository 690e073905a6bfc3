"""Custom Functions: mark_dirty, mark_non_differentiable, and the options of the class."""

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import chain, combinations, product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.lifetimes import without_collector

EXTENDING = notes("extending", "how-to-use")
MARK_DIRTY = docstring("torch.autograd.function.FunctionCtx.mark_dirty")
CHECKS = notes("autograd", "in-place-correctness-checks")
SAVE_FOR_BACKWARD = docstring("torch.autograd.function.FunctionCtx.save_for_backward")
DIRTY = [Capability.CUSTOM_FUNCTION, Capability.MARK_DIRTY]
OPTIONS = [Capability.CUSTOM_FUNCTION, Capability.FUNCTION_OPTIONS]


def leaf(backend: Backend) -> Any:
    """Make an input."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "custom-function.mark-dirty.counts",
    level=Level.MUST,
    sources=[MARK_DIRTY.sentence(1), CHECKS.sentence(1, 3)],
    needs=[*DIRTY, Capability.VERSION_COUNTER],
    mutants=[
        "dirty-mark-ignored",
        "dirty-mark-counts-no-change",
        "dirty-marks-first-alone",
        "dirty-marks-last-alone",
    ],
    except_under={
        "packed": "what hooks unpack is not checked for in-place changes",
        "subclass": "results are views there, and a Function that changes a view has one output",
    },
)
def test_dirty_counts(backend: Backend, trace: Trace) -> None:
    """If a tensor saved for backward is later passed to mark_dirty, that backward is an error.

    The program only marks the tensor: the mark alone is what the engine knows of the change.
    """

    def forward(ctx, *tensors: Any):
        ctx.mark_dirty(*tensors)
        return tensors

    function = backend.custom_function(forward, lambda _ctx, *grads: grads)

    def run(x):
        tensors = [x * factor for factor in (1, 2, 3)]
        saved_before = [backend.sum(y * y) for y in tensors]
        function(*tensors)
        return saved_before

    for _ in range(3):
        for loss in backend.call(run, leaf(backend)):
            with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
                backend.backward(loss)


@rule(
    "custom-function.mark-dirty",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[MARK_DIRTY, observed("the marked input is returned as the same object")],
    needs=[*DIRTY, Capability.IN_PLACE],
    mutants=["dirty-mark-ignored", "mark-of-the-other-kind"],
)
def test_dirty(backend: Backend, trace: Trace) -> None:
    """An input changed in place and passed to mark_dirty is returned as the same object, with the Function's history.

    The documentation says that a changed input must be marked, and its example returns it; what comes out it leaves to
    the example.
    """

    def forward(ctx, x):
        backend.mul_(x, 3)
        ctx.mark_dirty(x)
        return x

    def run(x):
        y = x * 1
        return function(y) is y, backend.sum(y * 2)

    function = backend.custom_function(forward, lambda _ctx, grad: grad * 3)
    x = leaf(backend)
    same, loss = backend.call(run, x)
    backend.backward(loss)

    trace.expect_value("is the input", expected=True, observed=same)
    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))


@rule(
    "custom-function.mark-dirty.several",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[MARK_DIRTY, observed("each marked input is returned as the same object")],
    needs=[*DIRTY, Capability.IN_PLACE],
    mutants=["dirty-mark-ignored", "dirty-inputs-among-several-outputs-are-copies"],
    except_under={"subclass": "results are views there, and a Function that changes a view has one output"},
)
def test_dirty_several(backend: Backend, trace: Trace) -> None:
    """Each of several inputs that are changed in place and passed to mark_dirty, none a view, is returned as itself."""

    def forward(ctx, *tensors: Any):
        for tensor in tensors:
            backend.mul_(tensor, 3)
        ctx.mark_dirty(*tensors)
        return (*tensors, tensors[0] * 1)

    def run(x):
        tensors = [x * factor for factor in (1, 2, 3)]
        outputs = function(*tensors)
        same = [output is tensor for output, tensor in zip(outputs, tensors, strict=False)]
        return same, backend.sum(tensors[0] + tensors[1] * 5 + tensors[2] * 7)

    function = backend.custom_function(forward, lambda _ctx, *grads: tuple(grad * 3 for grad in grads[:3]))
    x = leaf(backend)
    same, loss = backend.call(run, x)
    backend.backward(loss)

    trace.expect_value("are the inputs", [True] * 3, same)
    trace.expect_value("x.grad", [96.0, 96.0], backend.grad_of(x))


@rule(
    "custom-function.mark-dirty.order",
    level=Level.MUST,
    sources=[MARK_DIRTY.sentence(4)],
    needs=[*DIRTY, Capability.IN_PLACE],
    mutants=["dirty-marks-before-the-change-ignored", "dirty-marks-after-the-change-ignored"],
)
def test_dirty_before_and_after(backend: Backend, trace: Trace) -> None:
    """An input can be passed to mark_dirty before it is changed in place, or afterwards: the gradients are the same."""

    def changing(ctx, x, *, first):
        if first:
            ctx.mark_dirty(x)
        backend.mul_(x, 3)
        if not first:
            ctx.mark_dirty(x)
        return x

    for first in (True, False):
        function = backend.custom_function(partial(changing, first=first), lambda _ctx, grad: grad * 3)

        def run(x, function=function):
            y = x * 1
            function(y)
            return backend.sum(y * 2)

        x = leaf(backend)
        backend.backward(backend.call(run, x))
        trace.expect_value(f"x.grad, marked {'before' if first else 'after'}", [6.0, 6.0], backend.grad_of(x))


@rule(
    "custom-function.mark-dirty.view",
    level=Level.MUST,
    sources=[
        MARK_DIRTY.sentence(3),
        CHECKS.sentence(4),
        notes("autograd", "in-place-operations-with-autograd").sentence(8),
    ],
    needs=[*DIRTY, Capability.IN_PLACE, Capability.VIEWS],
    mutants=["dirty-mark-ignored", "mark-of-the-other-kind"],
)
def test_dirty_view(backend: Backend, trace: Trace) -> None:
    """If a view that forward changed in place and marked dirty is not refused, gradients are right.

    In-place functions may refuse a tensor that shares its storage; without an error the gradients must be right,
    whichever input the view is. A tensor that is no view must not be refused.
    """

    def forward(ctx, first, second):
        changed, factor = (first, second) if place == 0 else (second, first)
        ctx.save_for_backward(backend.clone(changed), factor)
        ctx.mark_dirty(changed)
        return backend.mul_(changed, factor)

    def backward(ctx, grad):
        before, factor = ctx.saved_tensors
        return (grad * factor, grad * before) if place == 0 else (grad * before, grad * factor)

    def run(x, factor):
        y = x * 1
        changed = backend.view(y, 2) if is_view else y
        function(*((changed, factor) if place == 0 else (factor, changed)))
        return backend.sum(y)

    function = backend.custom_function(forward, backward)
    for place, is_view in product((0, 1), (False, True)):
        x, factor = leaf(backend), backend.tensor([3.0, 4.0], requires_grad=True)
        grads = _gradients(backend, lambda x=x, factor=factor: backend.call(run, x, factor), [x, factor])
        if grads is not None or not is_view:
            label = f"gradients with the {'view' if is_view else 'tensor'} as input {place}"
            trace.expect_value(label, [[3.0, 4.0], [1.0, 2.0]], grads)


def _gradients(backend: Backend, forward: Callable[[], Any], leaves: Sequence[Any]) -> list[Any] | None:
    """Return the gradients of a loss with respect to leaves, or None if it is refused."""
    with suppress(Exception):  # of whatever type: the documentation names none
        backend.backward(forward())
        return [backend.grad_of(leaf) for leaf in leaves]
    return None


@rule(
    "custom-function.mark-non-differentiable",
    level=Level.MUST,
    sources=[docstring("torch.autograd.function.FunctionCtx.mark_non_differentiable").sentence(3, 4)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.FUNCTION_MARKS],
    mutants=[
        "non-differentiable-mark-ignored",
        "mark-of-the-other-kind",
        "non-differentiable-mark-of-a-first-output-ignored",
        "non-differentiable-mark-of-an-only-output-ignored",
    ],
)
def test_not_differentiable(backend: Backend, trace: Trace) -> None:
    """An output passed to mark_non_differentiable does not require grad, and backward gets zeros for it."""

    def forward(ctx, x):
        marked = x * 5, backend.sum(x), x * 7
        ctx.mark_non_differentiable(*marked)
        return x * 2, *marked

    def backward(_ctx, first, *marked: Any):
        trace.log("gradients", [first, *marked])
        return first * 2

    function = backend.custom_function(forward, backward)
    for _ in range(3):
        first, *marked = backend.call(function, leaf(backend))
        trace.expect_value("require grad", [False] * 3, [backend.requires_grad(output) for output in marked])
        backend.backward(backend.sum(first))

        trace.expect(("gradients", [[1.0, 1.0], [0.0, 0.0], 0.0, [0.0, 0.0]]))

    def first_of(count: int, ctx, x):
        outputs = tuple(x * factor for factor in range(2, 2 + count))
        ctx.mark_non_differentiable(outputs[0])
        return outputs if count > 1 else outputs[0]

    for count in (1, 2):
        function = backend.custom_function(partial(first_of, count), lambda _ctx, *grads: grads[-1] * 2)
        outputs = backend.call(function, leaf(backend))
        seen = [backend.requires_grad(output) for output in (outputs if count > 1 else [outputs])]
        trace.expect_value("the first is marked: require grad", [False, True][:count], seen)


def cube(backend: Backend, **options: bool) -> Any:
    """Make a Function with these options that computes x * x * x and reads its saved tensor twice."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0] * ctx.saved_tensors[0] * 3

    return backend.custom_function(forward, backward, **options)


@rule(
    "custom-function.once-differentiable",
    level=Level.MUST,
    sources=[EXTENDING.sentence(57), SAVE_FOR_BACKWARD.sentence(7)],
    needs=[*OPTIONS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["function-once-differentiable-ignored", "once-differentiable-twice-by-backward"],
)
def test_once(backend: Backend, trace: Trace) -> None:
    """Double backward through a custom Function whose backward is once_differentiable is an error."""
    for run in 2 * (lambda root, x: backend.grad(root, [x]), lambda root, _: backend.backward(root)):
        function = cube(backend, once_differentiable=True)
        x = leaf(backend)
        (grad,) = backend.grad(
            backend.call(lambda x, function=function: backend.sum(function(x)), x), [x], create_graph=True
        )

        trace.expect_value("gradient", [3.0, 12.0], grad)
        with trace.raises(ErrorKind.ONCE_DIFFERENTIABLE):
            run(backend.sum(grad), x)


@rule(
    "custom-function.once-differentiable.part",
    level=Level.MUST,
    sources=[EXTENDING.sentence(57), SAVE_FOR_BACKWARD.sentence(7)],
    needs=[*OPTIONS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["function-once-differentiable-ignored"],
)
def test_once_in_part(backend: Backend, trace: Trace) -> None:
    """Differentiating a gradient only part of which came from a once_differentiable custom Function is an error.

    Otherwise that part of the second derivative would silently be missing.
    """
    function = cube(backend, once_differentiable=True)
    x = leaf(backend)
    (grad,) = backend.grad(backend.call(lambda x: backend.sum(function(x) + x * x), x), [x], create_graph=True)

    trace.expect_value("gradient", [5.0, 16.0], grad)
    with trace.raises(ErrorKind.ONCE_DIFFERENTIABLE):
        backend.grad(backend.sum(grad), [x])


@rule(
    "custom-function.once-differentiable.by-backward",
    level=Level.MUST,
    sources=[EXTENDING.sentence(57), SAVE_FOR_BACKWARD.sentence(7)],
    needs=[*OPTIONS, Capability.BACKWARD_CREATE_GRAPH],
    mutants=["function-once-differentiable-ignored", "once-differentiable-after-backward-ignored"],
)
def test_once_by_backward(backend: Backend, trace: Trace) -> None:
    """After backward with create_graph=True through a once_differentiable Function, another backward is an error."""
    function, x = cube(backend, once_differentiable=True), leaf(backend)
    with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
        backend.backward(backend.call(lambda x: backend.sum(function(x)), x), create_graph=True)
    grad = backend.grad_of(x)
    trace.expect_value("gradient", [3.0, 12.0], grad)
    backend.set_grad(x, None)

    with trace.raises(ErrorKind.ONCE_DIFFERENTIABLE):
        backend.backward(backend.sum(grad))


@rule(
    "custom-function.clear-on-access",
    level=Level.MUST,
    sources=[EXTENDING.sentence(46)],
    needs=OPTIONS,
    mutants=["function-clear-saved-tensors-ignored", "saved-tensors-cleared-before-they-are-read"],
)
def test_cleared(backend: Backend, trace: Trace) -> None:
    """With clear_saved_tensors_on_access only the second read of a custom Function's saved tensors is an error."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        trace.log("first read", x)
        return grad * x + grad * ctx.saved_tensors[0]

    for others in ({}, {"clear_saved_tensors_on_access": False}, {}):
        function = backend.custom_function(forward, backward, clear_saved_tensors_on_access=True)
        loss = backend.call(lambda x, function=function: backend.sum(function(x)), leaf(backend))
        with trace.raises(ErrorKind.SAVED_TENSORS_CLEARED):
            backend.backward(loss)

        function, x = backend.custom_function(forward, backward, **others), leaf(backend)
        backend.backward(backend.call(lambda x, function=function: backend.sum(function(x)), x))
        trace.expect(*[("first read", [1.0, 2.0])] * 2)
        trace.expect_value("x.grad through another Function", [2.0, 4.0], backend.grad_of(x))


@rule(
    "custom-function.boxed-grads",
    level=Level.MUST,
    sources=[EXTENDING.sentence(47, 49, 50)],
    needs=OPTIONS,
    mutants=["function-boxed-grads-call-ignored", "boxed-gradients-are-a-tuple", "single-boxed-gradient-is-bare"],
)
def test_boxed(backend: Backend, trace: Trace) -> None:
    """With boxed_grads_call a custom Function's backward gets all gradients in one list, which it may change."""

    def backward(_ctx, grads, *others: Any):
        trace.log("a list", isinstance(grads, list))
        trace.log("gradients", grads)
        if not isinstance(grads, list):
            return grads * 2, *(other * 3 for other in others)
        first, grads[0] = grads[0], None
        return first * 2, grads.pop() * 3

    def run(x, y, **options: bool):
        function = backend.custom_function(lambda _ctx, x, y: (x * 2, y * 3), backward, **options)
        first, second = function(x, y)
        return backend.sum(first + second * 5)

    options: list[dict[str, bool]] = [{"boxed_grads_call": True}, {}, {"boxed_grads_call": False}]
    for how in [*options, options[0], {}, options[0]]:
        x, y = leaf(backend), leaf(backend)
        backend.backward(backend.call(lambda x, y, how=how: run(x, y, **how), x, y))

        boxed = how.get("boxed_grads_call", False)
        trace.expect(("a list", boxed), ("gradients", [[1.0, 1.0], [5.0, 5.0]] if boxed else [1.0, 1.0]))
        trace.expect_value("gradients", [[2.0, 2.0], [15.0, 15.0]], [backend.grad_of(x), backend.grad_of(y)])

    def backward_of_one(_ctx, grads):
        trace.log("a list of one", isinstance(grads, list))
        return grads.pop() * 2 if isinstance(grads, list) else grads * 2

    x, single = leaf(backend), backend.custom_function(lambda _ctx, x: x * 2, backward_of_one, boxed_grads_call=True)
    backend.backward(backend.call(lambda x: backend.sum(single(x)), x))
    trace.expect(("a list of one", True))
    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "custom-function.options.together",
    level=Level.MUST,
    sources=[EXTENDING.sentence(46, 47, 57)],
    needs=[*OPTIONS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=[
        "function-boxed-grads-call-ignored-beside-once-differentiable",
        "function-clear-saved-tensors-ignored-beside-boxed-grads-call",
        "function-once-differentiable-ignored-beside-clear-saved-tensors-on-access",
    ],
)
def test_options_together(backend: Backend, trace: Trace) -> None:
    """Each option of a custom Function acts beside each other one, and beside all."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx, given):
        (x,), boxed = ctx.saved_tensors, isinstance(given, list)
        try:
            cleared = len(ctx.saved_tensors) == 0
        except Exception:  # noqa: BLE001 - of whatever type
            cleared = True
        trace.log("boxed and cleared", [boxed, cleared])
        return (given[0] if boxed else given) * x * 2

    names = ("boxed_grads_call", "clear_saved_tensors_on_access", "once_differentiable")
    for options in chain(combinations(names, 2), [names]):
        function, x = backend.custom_function(forward, backward, **dict.fromkeys(options, True)), leaf(backend)
        loss = backend.call(lambda x, function=function: backend.sum(function(x)), x)
        (grad,) = backend.grad(loss, [x], create_graph=True)

        trace.expect(("boxed and cleared", [name in options for name in names[:2]]))
        trace.expect_value(f"gradient with {' and '.join(options)}", [2.0, 4.0], grad)
        with trace.raises(ErrorKind.ONCE_DIFFERENTIABLE) if names[2] in options else nullcontext():
            backend.grad(backend.sum(grad), [x])


@rule(
    "custom-function.clear-on-access.freed",
    level=Level.MUST,
    sources=[EXTENDING.sentence(42, 43)],
    needs=[*OPTIONS, Capability.WEAK_REFERENCES],
    mutants=[
        "function-clear-saved-tensors-ignored",
        "saved-tensors-of-functions-outlive-the-graph",
        "later-saved-tensors-outlive-their-read",
    ],
)
def test_cleared_and_freed(backend: Backend, trace: Trace) -> None:
    """With clear_saved_tensors_on_access a saved tensor is freed inside backward, when what read it is dropped."""
    alive: list[weakref.ref[Any]] = []

    def forward(ctx, x):
        factors = [backend.clone(x) for _ in range(3)]
        alive.extend(map(weakref.ref, factors))
        ctx.save_for_backward(*factors)
        return x * 2

    def backward(ctx, grad):
        factors = [*ctx.saved_tensors]
        trace.log("factors", factors)
        while factors:
            del factors[0]
            trace.log("are freed", [factor() is None for factor in alive])
        return grad * 2

    with without_collector():
        function = backend.custom_function(forward, backward, clear_saved_tensors_on_access=True)
        backend.backward(backend.sum(function(leaf(backend))))

    freed = [("are freed", [True] * times + [False] * (3 - times)) for times in (1, 2, 3)]
    trace.expect(("factors", [[1.0, 2.0]] * 3), *freed)


@rule(
    "custom-function.boxed-grads.frees",
    level=Level.MUST,
    sources=[EXTENDING.sentence(48, 55)],
    needs=[*OPTIONS, Capability.WEAK_REFERENCES],
    mutants=["boxed-gradients-kept-until-the-end"],
)
def test_boxed_frees(backend: Backend, trace: Trace) -> None:
    """With boxed_grads_call a gradient is freed when a custom Function's backward takes it out of the list."""

    def backward(_ctx, grads):
        alive = [weakref.ref(grad) for grad in grads]
        results = [grad * factor for grad, factor in zip(grads, (2, 3), strict=True)]
        grads[0] = None
        trace.log("freed", [grad() is None for grad in alive])
        grads.pop()
        trace.log("freed", [grad() is None for grad in alive])
        return tuple(results)

    function = backend.custom_function(lambda _ctx, x, y: (x * 2, y * 3), backward, boxed_grads_call=True)

    def run(x, y):
        first, second = function(x, y)
        return backend.sum(first * 5 + second * 7)

    x, y = leaf(backend), leaf(backend)
    backend.backward(backend.call(run, x, y))

    trace.expect(("freed", [True, False]), ("freed", [True, True]))
    trace.expect_value("gradients", [[10.0, 10.0], [21.0, 21.0]], [backend.grad_of(x), backend.grad_of(y)])
