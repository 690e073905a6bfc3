"""Accumulation into the .grad of leaves: when it appears, how it adds up, and its layout."""

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Capability, Level, Trace, docstring, page, rule
from hooklaw.rules.hooks import NUMBERS
from hooklaw.rules.passes import ROOTS

BACKWARD = docstring("torch.Tensor.backward")
GRAD_FIELD = docstring("torch.Tensor.grad")
LAYOUTS = page("autograd", "default-gradient-layouts")


@rule(
    "grad-accum.adds",
    level=Level.MUST,
    sources=[BACKWARD.sentence(5), docstring("torch.autograd.backward").sentence(5), GRAD_FIELD.sentence(2)],
    mutants=["backward-overwrites", "leaves-share-their-first-gradient"],
)
def test_adds(backend: Backend, trace: Trace) -> None:
    """Each backward adds its gradient to what a leaf's .grad already holds.

    A sum passes one gradient on to both its leaves: what one of them adds to, the other must not hold.
    """
    x, y = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    for weights, accumulated in (([2.0, 3.0], [2.0, 3.0]), ([3.0, 5.0], [5.0, 8.0]), ([4.0, 7.0], [9.0, 15.0])):
        backend.backward(backend.call(lambda x, y, w: backend.sum((x + y) * w), x, y, backend.tensor(weights)))
        trace.expect_value("gradients", [accumulated] * 2, [backend.grad_of(x), backend.grad_of(y)])

    for numbers in NUMBERS:
        z, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        backend.set_grad(z, backend.tensor(numbers))
        for times in (2, 3):
            backend.backward(backend.call(lambda z, weight: backend.sum(z * weight), z, weight))
            trace.expect_value("z.grad", weight * times, backend.grad_of(z))


@rule(
    "grad-accum.adds.create-graph",
    level=Level.MUST,
    sources=[BACKWARD.sentence(5, 17), GRAD_FIELD.sentence(2)],
    needs=[Capability.BACKWARD_CREATE_GRAPH],
    mutants=["gradient-with-a-history-overwritten", "backward-create-graph-overwrites"],
)
def test_adds_to_a_gradient_with_a_history(backend: Backend, trace: Trace) -> None:
    """Each backward adds its gradient to what .grad already holds, whether it or the one before creates a graph."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for nr, create_graph in enumerate((False, True, True, False, False, True)):
        with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            backend.backward(backend.call(lambda x: backend.sum(x * x), x), create_graph=create_graph)

        trace.expect_value(f"x.grad of {nr + 1} passes", [2.0 * (nr + 1), 4.0 * (nr + 1)], backend.grad_of(x))
    backend.set_grad(x, None)  # breaks the cycle


@rule(
    "grad-accum.none-until-first",
    level=Level.MUST,
    sources=[GRAD_FIELD.sentence(1)],
    mutants=["gradient-starts-as-zeros", "detached-tensors-have-the-gradient-of-their-leaf"],
)
def test_none_until_first(backend: Backend, trace: Trace) -> None:
    """A leaf has no .grad until the first backward that computes its gradient."""
    x, other = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    loss = backend.call(lambda x: backend.sum(x * 2), x)

    trace.expect_value("x.grad before", None, backend.grad_of(x))
    backend.backward(backend.call(lambda x: backend.sum(x * 3), other))
    trace.expect_value("x.grad after a backward of another leaf", None, backend.grad_of(x))
    backend.backward(loss)
    trace.expect_value("x.grad after", [2.0, 2.0], backend.grad_of(x))
    trace.expect_value("detached.grad", None, backend.grad_of(backend.detach(x)))

    for numbers in NUMBERS:
        z, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        backend.backward(backend.call(lambda z, weight: backend.sum(z * weight), z, weight))
        trace.expect_value("z.grad that is 0-d, zero or empty", numbers, backend.grad_of(z))


@rule(
    "grad-accum.reset",
    level=Level.MUST,
    sources=[BACKWARD.sentence(5)],
    mutants=["gradient-kept-aside-of-grad"],
)
def test_reset(backend: Backend, trace: Trace) -> None:
    """After .grad was set to None or to zeros, the next backward leaves only its own gradient in it."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for cleared in (None, backend.tensor([0.0, 0.0])):
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
        backend.set_grad(x, cleared)
        backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

        trace.expect_value("x.grad", [3.0, 3.0], backend.grad_of(x))


@rule(
    "grad-accum.grad-no-side-effect",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad").sentence(8)],
    needs=[Capability.AUTOGRAD_GRAD],
    mutants=[
        "autograd-grad-accumulates",
        "autograd-grad-of-several-inputs-accumulates",
        "autograd-grad-of-several-outputs-accumulates",
        "autograd-grad-with-allow-unused-accumulates",
        "failed-autograd-grad-leaves-a-gradient",
        "autograd-grad-accumulates-after-a-failure",
    ],
)
def test_autograd_grad(backend: Backend, trace: Trace) -> None:
    """The gradients that autograd.grad returns are not accumulated into the .grad of any leaf."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    w = backend.tensor([3.0, 4.0], requires_grad=True)
    for before in (None, [9.0, 9.0]):
        for leaf in (x, w):
            backend.set_grad(leaf, before and backend.tensor(before))
        for inputs in ([x], [x, w]):
            grads = backend.grad(backend.call(lambda x, w: backend.sum(x * w), x, w), inputs)

            trace.expect_value("gradients", [[3.0, 4.0], [1.0, 2.0]][: len(inputs)], grads)
            trace.expect_value("x.grad", before, backend.grad_of(x))
            trace.expect_value("w.grad", before, backend.grad_of(w))

            outputs = backend.call(lambda x, w: (backend.sum(x * w), backend.sum(x * 2 + w * 5)), x, w)
            several = backend.grad(outputs, inputs)
            trace.expect_value("gradients of two outputs", [[5.0, 6.0], [6.0, 7.0]][: len(inputs)], several)
            used = backend.grad(backend.call(lambda x: backend.sum(x * 2), x), inputs, allow_unused=True)
            trace.expect_value("gradients, allow_unused", [[2.0, 2.0], None][: len(inputs)], used)
            trace.expect_value("gradients of the leaves", [before] * 2, [backend.grad_of(leaf) for leaf in (x, w)])

            with suppress(Exception):
                backend.grad(backend.call(lambda x: backend.sum(x * 2), x), [x, w])
            trace.expect_value("after a failure", [before] * 2, [backend.grad_of(leaf) for leaf in (x, w)])


@rule(
    "grad-accum.grad-no-side-effect.options",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad").sentence(8)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH, Capability.RETAIN_GRAPH],
    mutants=[
        "autograd-grad-that-creates-a-graph-accumulates",
        "autograd-grad-that-retains-the-graph-accumulates",
        "autograd-grad-with-grad-outputs-accumulates",
        "autograd-grad-that-creates-a-graph-accumulates-beside",
        "autograd-grad-that-retains-the-graph-accumulates-beside",
        "autograd-grad-with-grad-outputs-accumulates-beside",
    ],
)
def test_autograd_grad_with_options(backend: Backend, trace: Trace) -> None:
    """autograd.grad accumulates nothing into the .grad of any leaf with create_graph, retain_graph or grad_outputs."""
    x, other = leaves = [backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2)]
    for before in (None, [9.0, 9.0]):
        for how in ({"create_graph": True}, {"retain_graph": True}, {"create_graph": True, "retain_graph": True}):
            for leaf in leaves:
                backend.set_grad(leaf, before and backend.tensor(before))
            grads = backend.grad(backend.call(lambda x, other: backend.sum(x * x + other), x, other), [x], **how)
            trace.expect_value(f"gradient with {', '.join(how)}", [[2.0, 4.0]], grads)
            trace.expect_value(f"after {', '.join(how)}", [before] * 2, [*map(backend.grad_of, leaves)])

        outputs = backend.call(lambda x, other: x * x + other, x, other)
        grads = backend.grad(outputs, [x], backend.tensor([3.0, 5.0]))
        trace.expect_value("gradient with grad_outputs", [[6.0, 20.0]], grads)
        trace.expect_value("after grad_outputs", [before] * 2, [*map(backend.grad_of, leaves)])


@rule(
    "grad-accum.grad-no-side-effect.materialize-grads",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad").sentence(8)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.MATERIALIZE_GRADS],
    mutants=[
        "autograd-grad-that-materializes-accumulates",
        "autograd-grad-that-materializes-accumulates-beside",
        "autograd-grad-that-materializes-for-one-input-accumulates",
        "autograd-grad-that-materializes-for-one-input-accumulates-beside",
    ],
)
def test_autograd_grad_that_materializes(backend: Backend, trace: Trace) -> None:
    """autograd.grad with materialize_grads=True accumulates nothing into the .grad of any leaf, used or not."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    unused = backend.tensor([3.0, 4.0], requires_grad=True)
    other = backend.tensor([5.0, 6.0], requires_grad=True)
    for before in (None, [9.0, 9.0]):
        for leaf in (x, unused, other):
            backend.set_grad(leaf, before and backend.tensor(before))
        loss = backend.call(lambda x, other: backend.sum(x * 2 + other), x, other)
        grads = backend.grad(loss, [x, unused], materialize_grads=True)
        losses = [backend.call(lambda x, other: backend.sum(x * 3 + other), x, other) for _ in range(2)]
        alone = [backend.grad(outputs, [x], materialize_grads=True)[0] for outputs in (losses[0], losses[1:])]

        trace.expect_value("gradients", [[2.0, 2.0], [0.0, 0.0]], grads)
        trace.expect_value("gradients of a used leaf alone", [[3.0, 3.0]] * 2, alone)
        trace.expect_value("of the leaves", [before] * 3, [backend.grad_of(leaf) for leaf in (x, unused, other)])


@rule(
    "grad-accum.inplace-vs-new",
    level=Level.MUST,
    sources=[LAYOUTS.sentence(6)],
    needs=[Capability.RETAIN_GRAPH],
    mutants=[
        "gradient-replaced-when-accumulated",
        "gradient-replaced-in-the-third-pass",
        "gradient-that-was-set-is-replaced",
    ],
)
def test_held_gradient_changes(backend: Backend, trace: Trace) -> None:
    """A kept reference to .grad shows what every later backward without create_graph adds, since it adds in place."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(x * 2), x)
    backend.backward(loss, retain_graph=True)
    held = backend.grad_of(x)
    for expected in ([4.0, 4.0], [6.0, 6.0]):
        backend.backward(loss, retain_graph=True)

        trace.expect_value("the .grad held since the first pass", expected, held)

    backend.set_grad(x, backend.tensor([10.0, 20.0]))
    held = backend.grad_of(x)
    for expected in ([12.0, 22.0], [14.0, 24.0]):
        backend.backward(loss, retain_graph=True)

        trace.expect_value("the .grad held since it was set", expected, held)


def starts(backend: Backend) -> list[Callable[[Any, Any], Any]]:
    """Return backward passes from a root, for a leaf, that start otherwise or are limited to it; they need `ROOTS`."""
    one, other = backend.tensor(1.0), backend.tensor(1.0, requires_grad=True)
    return [
        lambda root, x: backend.backward(root, inputs=[x]),
        lambda root, _: backend.backward_from_all([root, other]),
        lambda root, _: backend.backward_from_all([other, root]),
        lambda root, _: backend.backward_from_edge(backend.get_gradient_edge(root), one),
    ]


@rule(
    "grad-accum.inplace-vs-new.every-root",
    level=Level.MUST,
    sources=[LAYOUTS.sentence(6)],
    needs=ROOTS,
    mutants=["inputs-get-a-new-gradient", "several-roots-replace-gradients", "edges-replace-gradients"],
)
def test_held_gradient_changes_from_each_root(backend: Backend, trace: Trace) -> None:
    """A kept reference to .grad shows what a backward adds wherever it starts, and if it is limited to inputs.

    From the first and last of two roots, and from a gradient edge.
    """
    for start in starts(backend):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        start(backend.call(lambda x: backend.sum(x * 2), x), x)
        held = backend.grad_of(x)
        for expected in ([4.0, 4.0], [6.0, 6.0]):
            start(backend.call(lambda x: backend.sum(x * 2), x), x)

            trace.expect_value("the .grad held since the first pass", expected, held)


def uses(backend: Backend) -> list[Callable[[Any], Any]]:
    """Return functions that double the sum of a tensor: by itself, as a view, and as a view of an intermediate."""

    def turned(x: Any) -> Any:
        return backend.transpose(x, 0, 1)

    return [
        lambda x: backend.sum(x) * 2,
        lambda x: backend.sum(x * 2),
        lambda x: backend.sum(turned(x) * 2),
        lambda x: backend.sum(turned(x * 2) * 1),
    ]


@rule(
    "grad-accum.layout.match-param",
    level=Level.MUST,
    sources=[LAYOUTS.sentence(3)],
    needs=[Capability.VIEWS, Capability.STRIDES],
    mutants=[
        "gradient-always-contiguous",
        "first-gradient-kept-as-it-is",
        "first-gradient-of-a-view-kept-as-it-is",
        "first-gradient-of-a-sum-kept-as-it-is",
        "gradient-of-three-dimensions-contiguous",
    ],
    except_under={"strided": "the rule names the strides of the leaf"},
)
def test_strides_of_the_leaf(backend: Backend, trace: Trace) -> None:
    """The first .grad of a leaf whose memory is dense and does not overlap has the strides of the leaf."""
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    for use in uses(backend):
        columns = backend.requires_grad_(backend.transpose(backend.tensor(rows), 0, 1))
        planes = backend.requires_grad_(backend.transpose(backend.tensor([rows, rows]), 0, 2))
        for x, strides in (
            (columns, (1, 2)),
            (backend.tensor(rows, requires_grad=True), (2, 1)),
            (planes, (1, 2, 6)),
        ):
            backend.backward(backend.call(use, x))

            trace.expect_value("strides of the leaf", strides, backend.stride(x))
            trace.expect_value("strides of x.grad", strides, backend.stride(backend.grad_of(x)))


@rule(
    "grad-accum.layout.match-param.every-root",
    level=Level.MUST,
    sources=[LAYOUTS.sentence(3, 4)],
    needs=[Capability.VIEWS, Capability.STRIDES, *ROOTS],
    mutants=["gradients-of-inputs-contiguous", "gradients-from-several-roots-contiguous"],
    except_under={"strided": "the rule names the strides of the leaf"},
)
def test_strides_from_each_root(backend: Backend, trace: Trace) -> None:
    """The first .grad has the strides of a dense leaf wherever a backward starts, and if it is limited to inputs.

    From the first and last of two roots, and from a gradient edge.
    """
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    for start, use in product(starts(backend), uses(backend)):
        x = backend.requires_grad_(backend.transpose(backend.tensor(rows), 0, 1))
        start(backend.call(use, x), x)

        trace.expect_value("strides of x.grad", (1, 2), backend.stride(backend.grad_of(x)))


@rule(
    "grad-accum.layout.otherwise-contiguous",
    level=Level.MUST,
    sources=[LAYOUTS.sentence(4)],
    needs=[Capability.VIEWS, Capability.STRIDES, Capability.MULTI_OUTPUT],
    mutants=[
        "gradient-keeps-overlapping-strides",
        "gradient-keeps-gaps",
        "gradient-made-anew-keeps-gaps",
        "gradient-with-gaps-closed-up-keeps-the-order-of-its-strides",
        "first-gradient-of-a-view-kept-as-it-is",
    ],
    except_under={"strided": "the rule names the strides of the leaf"},
)
def test_contiguous_otherwise(backend: Backend, trace: Trace) -> None:
    """The first .grad of a leaf whose memory overlaps or has gaps is contiguous, row after row."""
    for use in uses(backend):
        overlapping = backend.expand(backend.tensor([[1.0], [2.0]]), 2, 3)
        rows = backend.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
        columns = backend.split(backend.transpose(rows, 0, 1), 2)
        with_gaps = backend.transpose(columns[0], 0, 1)
        for leaf, strides, contiguous in (
            (overlapping, (1, 0), (3, 1)),
            (with_gaps, (4, 1), (2, 1)),
            (columns[1], (1, 4), (2, 1)),
        ):
            x = backend.requires_grad_(leaf)
            trace.expect_value("strides of the leaf", strides, backend.stride(x))
            for _ in range(2):  # the second time .grad is None again
                backend.backward(backend.call(use, x))

                trace.expect_value("strides of x.grad", contiguous, backend.stride(backend.grad_of(x)))
                backend.set_grad(x, None)


@rule(
    "grad-accum.layout.inplace",
    level=Level.MUST,
    sources=[LAYOUTS.sentence(6), page("autograd", "manual-gradient-layouts").sentence(2)],
    needs=[Capability.VIEWS, Capability.STRIDES, Capability.MULTI_OUTPUT],
    mutants=["gradient-laid-out-anew", "later-gradient-of-a-view-lays-grad-out", "gaps-of-a-gradient-closed-up"],
    except_under={"strided": "the rule names the strides of the leaf"},
)
def test_in_place(backend: Backend, trace: Trace) -> None:
    """A backward without create_graph keeps the strides of an existing .grad, also those that the user gave it."""
    for use in uses(backend):
        columns, ones = (backend.transpose(backend.tensor([[1.0, 1.0]] * 3), 0, 1) for _ in range(2))
        rows, other_rows = (backend.tensor([[1.0] * 3] * 2, requires_grad=True) for _ in range(2))
        with_gaps, _ = backend.split(backend.transpose(backend.tensor([[1.0] * 4] * 3), 0, 1), 2)
        for x, mine, strides in (
            (rows, ones, (1, 2)),
            (other_rows, with_gaps, (1, 4)),
            (backend.requires_grad_(columns), backend.tensor([[1.0] * 3] * 2), (3, 1)),
        ):
            backend.set_grad(x, mine)
            with catch_warnings(action="ignore"):  # torch warns that the layout is not the leaf's
                backend.backward(backend.call(use, x))

            trace.expect_value("x.grad", [[3.0] * 3] * 2, backend.grad_of(x))
            trace.expect_value("strides of x.grad", strides, backend.stride(backend.grad_of(x)))


@rule(
    "grad-accum.layout.create-graph-new",
    level=Level.MUST,
    sources=[LAYOUTS.sentence(7)],
    needs=[Capability.BACKWARD_CREATE_GRAPH],
    mutants=["backward-create-graph-ignored", "backward-create-graph-changes-a-gradient-that-requires-grad"],
)
def test_create_graph_replaces(backend: Backend, trace: Trace) -> None:
    """A backward with create_graph puts the sum into a new .grad and does not change the old .grad tensor."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    for before, after in (([2.0, 2.0], [4.0, 6.0]), ([4.0, 6.0], [6.0, 10.0])):
        held = backend.grad_of(x)
        with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            backend.backward(backend.call(lambda x: backend.sum(x * x), x), create_graph=True)

        trace.expect_value("the .grad held since the pass before", before, held)
        trace.expect_value("x.grad", after, backend.grad_of(x))
    backend.set_grad(x, None)
