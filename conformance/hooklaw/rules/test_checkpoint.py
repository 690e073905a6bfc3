"""Checkpoints of both kinds: what has gradients, what they take part in, and what is an error."""

import weakref
from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.checkpoints import CHECKPOINT, KINDS, NEEDS, leaf, region
from hooklaw.rules.hooks import NUMBERS, OTHERS


@rule(
    "checkpoint.reentrant.grads",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(5, 20)],
    needs=NEEDS,
    mutants=[
        "reentrant-checkpoint-forgets-its-parameters",
        "reentrant-checkpoint-reaches-one-captured-leaf",
        "checkpoints-of-one-function-use-the-last-inputs",
    ],
)
def test_reentrant_gradients(backend: Backend, trace: Trace) -> None:
    """A backward without inputs through a reentrant checkpoint reaches its input and the leaves that it captured.

    A leaf may also be used after the checkpoint: its gradient is the sum over both uses.
    """
    for used_again, of_input, of_captured in (
        (False, [30.0, 100.0], [[5.0, 20.0], [15.0, 100.0]]),
        (True, [90.0, 500.0], [[30.0, 200.0], [45.0, 500.0]]),
    ):
        x, weight, scale = leaf(backend), leaf(backend, 3.0, 5.0), leaf(backend, 1.0, 1.0)

        def fn(x, weight=weight, scale=scale):
            return x * x * weight * scale

        def forward(x, fn=fn, weight=weight, used_again=used_again):
            first, second = (backend.checkpoint(fn, value, use_reentrant=True) for value in (x, x * 2))
            return backend.sum((first + second) * weight if used_again else first + second)

        backend.backward(backend.call(forward, x))

        trace.expect_value("x.grad", of_input, backend.grad_of(x))
        trace.expect_value("gradients of captured leaves", of_captured, list(map(backend.grad_of, (weight, scale))))


@rule(
    "checkpoint.reentrant.grad-error",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[CHECKPOINT, observed("it raises where the docstring says that it is not supported")],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.BACKWARD_INPUTS],
    mutants=[
        "checkpoint-use-reentrant-always-false",
        "reentrant-checkpoint-ignores-inputs",
        "reentrant-checkpoint-refuses-its-own-inputs-alone",
    ],
)
def test_reentrant(backend: Backend, trace: Trace) -> None:
    """autograd.grad and a backward with inputs are errors if they pass through a reentrant checkpoint."""
    squared = region(backend, lambda x: x * x, use_reentrant=True)

    for forward in (squared, lambda x: squared(x * 2)):
        x = leaf(backend)
        loss = backend.call(forward, x)
        with trace.raises(ErrorKind.CHECKPOINT_REENTRANT):
            backend.grad(loss, [x])
        backend.call(region(backend, lambda x: x * x, use_reentrant=False), x)
        loss = backend.call(forward, x)
        with trace.raises(ErrorKind.CHECKPOINT_REENTRANT):
            backend.backward(loss, inputs=[x])


@rule(
    "checkpoint.use-reentrant-required",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(12, 38)],
    needs=NEEDS,
    mutants=["checkpoint-use-reentrant-always-false"],
)
def test_kind_required(backend: Backend, trace: Trace) -> None:
    """A checkpoint without use_reentrant is an error."""
    with trace.raises(ErrorKind.CHECKPOINT_KIND):
        backend.call(region(backend, lambda x: x * x), leaf(backend))


@rule(
    "checkpoint.retain-graph",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(5), docstring("torch.Tensor.backward").sentence(5, 14)],
    needs=[*NEEDS, Capability.RETAIN_GRAPH],
    mutants=[
        "checkpoint-recomputed-only-once",
        "later-inputs-of-a-checkpoint-recomputed-only-once",
        "retained-reentrant-checkpoint-reaches-captured-leaves-once",
    ],
)
def test_retain_graph(backend: Backend, trace: Trace) -> None:
    """Each backward through a retained checkpoint, reentrant or not, adds the right gradient."""
    for kind, use_reentrant in KINDS.items():
        x, y, weight = leaf(backend), leaf(backend, 3.0, 5.0), leaf(backend, 1.0, 1.0)
        forward = region(backend, lambda x, y, w=weight: x * x * x * y * w, use_reentrant=use_reentrant)
        loss = backend.call(forward, x, y)
        for retain_graph in (True, True, False):
            backend.backward(loss, retain_graph=retain_graph)

        trace.expect_value(f"x.grad, {kind}", [27.0, 180.0], backend.grad_of(x))
        trace.expect_value(f"y.grad, {kind}", [3.0, 24.0], backend.grad_of(y))
        trace.expect_value(f"gradient of a captured leaf, {kind}", [9.0, 120.0], backend.grad_of(weight))


@rule(
    "checkpoint.several",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(6)],
    needs=NEEDS,
    mutants=[
        "checkpoint-inputs-first-alone",
        "reentrant-inputs-first-alone",
        "checkpoint-outputs-first-alone",
        "reentrant-outputs-first-alone",
        "gradients-for-a-checkpoint-turned-round",
        "reentrant-checkpoint-needs-a-gradient-for-each-output",
        "reentrant-checkpoint-needs-a-gradient-for-its-first-output",
        "checkpoint-overlooks-a-repeated-input",
        "constant-inputs-of-a-checkpoint-get-gradients",
        "checkpoint-detaches-the-inputs-that-it-returns",
        "reentrant-checkpoint-detaches-the-inputs-that-it-returns",
        "checkpoint-that-returns-a-result-twice-detaches-the-second",
    ],
)
def test_several(backend: Backend, trace: Trace) -> None:
    """A checkpoint, reentrant or not, of several inputs and outputs has the gradients of each that requires grad.

    It has them also if a tensor is given or returned twice, if an output is one of the inputs, or if the loss uses only
    some of the outputs.
    """

    def fn(a, constant, b, again):
        return a * b * again, a * b * constant

    uses = {
        "both outputs": (lambda first, second: first + second * 3, [[24.0, 50.0], [7.0, 16.0], None]),
        "the first": (lambda first, _: first, [[6.0, 20.0], [1.0, 4.0], None]),
        "the second": (lambda _, second: second * 3, [[18.0, 30.0], [6.0, 12.0], None]),
    }
    for (kind, use_reentrant), (used, (use, expected)) in product(KINDS.items(), 2 * [*uses.items()]):

        def forward(a, constant, b, use_reentrant=use_reentrant, use=use):
            return backend.sum(use(*backend.checkpoint(fn, a, constant, b, a, use_reentrant=use_reentrant)))

        a, b, constant = leaf(backend), leaf(backend, 3.0, 5.0), backend.tensor([2.0, 2.0])
        backend.backward(backend.call(forward, a, constant, b))

        gradients = [backend.grad_of(a), backend.grad_of(b), backend.grad_of(constant)]
        trace.expect_value(f"gradients of {used}, {kind}", expected, gradients)

    for (kind, use_reentrant), numbers in product(KINDS.items(), NUMBERS[:-1]):
        x, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        forward = region(backend, lambda x, weight: x * weight, use_reentrant=use_reentrant)
        backend.backward(backend.call(forward, x, weight))
        trace.expect_value(f"x.grad that is 0-d or zero, {kind}", numbers, backend.grad_of(x))

    for kind, use_reentrant in KINDS.items():

        def passes_on(x):
            y = x * x
            return x, y, y

        def forward(x, use_reentrant=use_reentrant):
            given, squared, again = backend.checkpoint(passes_on, x, use_reentrant=use_reentrant)
            return backend.sum(given * 3 + squared + again * 2)

        x = leaf(backend)
        backend.backward(backend.call(forward, x))
        trace.expect_value(f"x.grad, of an input that is an output, {kind}", [9.0, 15.0], backend.grad_of(x))


@rule(
    "checkpoint.nested",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(6)],
    needs=NEEDS,
    mutants=[
        "inner-checkpoint-detached",
        "checkpoint-inside-two-detached",
        "second-checkpoint-inside-detached",
        "leaves-captured-in-an-inner-checkpoint-have-no-gradient",
        "checkpoint-inside-one-of-the-other-kind-detached",
    ],
)
def test_nested(backend: Backend, trace: Trace) -> None:
    """A checkpoint inside another, of the same kind or not, has the right gradients.

    Checkpointing can be applied to any part of a model, so also to a part that has a checkpoint inside.
    """
    for (kind, use_reentrant), inner in product(KINDS.items(), KINDS.values()):
        weight = leaf(backend, 1.0, 1.0)

        def inside(fn, x, use_reentrant=inner):
            return backend.checkpoint(fn, x, use_reentrant=use_reentrant)

        def fn(x, inside=inside, weight=weight):
            return inside(lambda x: inside(lambda x: x * x, x) * inside(lambda x: x * x * weight, x), x) * x

        x = leaf(backend)
        backend.backward(backend.call(region(backend, fn, use_reentrant=use_reentrant), x))

        said = f"{kind}, inside reentrant: {inner}"
        trace.expect_value(f"x.grad, {said}", [5.0, 80.0], backend.grad_of(x))
        trace.expect_value(f"gradient of a captured leaf, {said}", [1.0, 32.0], backend.grad_of(weight))


@rule(
    "checkpoint.not-kept-alive",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(4)],
    needs=[*NEEDS, Capability.WEAK_REFERENCES],
    mutants=["checkpoint-recomputes-nothing", "checkpoint-keeps-its-later-products"],
)
def test_not_kept_alive(backend: Backend, trace: Trace) -> None:
    """Tensors that a checkpoint's function makes and does not return are freed before backward."""
    for kind, use_reentrant in KINDS.items():
        made: list[weakref.ref[Any]] = []

        def fn(x, made=made):
            y = x * x
            z = y * y
            made.extend((weakref.ref(y), weakref.ref(z)))
            return backend.exp(z)

        loss = backend.call(region(backend, fn, use_reentrant=use_reentrant), leaf(backend))
        trace.expect_value(f"are freed, {kind}", [True, True], [alive() is None for alive in made])
        backend.backward(loss)


@rule(
    "checkpoint.nonreentrant.no-input-requires-grad",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(23)],
    needs=NEEDS,
    mutants=[
        "checkpoint-needs-an-input-that-requires-grad",
        "checkpoint-use-reentrant-always-true",
        "checkpoint-without-inputs-has-no-gradient",
        "checkpoint-of-several-constants-has-no-gradient",
        "checkpoint-of-numbers-has-no-gradient",
        "checkpoint-of-constants-by-keyword-has-no-gradient",
    ],
)
def test_no_input_requires_grad(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint has gradients for captured leaves even if none of its inputs requires grad."""
    weight, scale, constant = leaf(backend, 3.0, 5.0), leaf(backend, 1.0, 1.0), backend.tensor([1.0, 2.0])

    def fn(*given: Any, factor: Any = constant) -> Any:
        return weight * scale * (given or [factor])[0]

    for inputs, named, expected in (
        ([constant], {}, [[1.0, 2.0], [3.0, 10.0]]),
        ([constant, constant], {}, [[2.0, 4.0], [6.0, 20.0]]),
        ([2.0], {}, [[4.0, 6.0], [12.0, 30.0]]),
        ([], {}, [[5.0, 8.0], [15.0, 40.0]]),
        ([], {"factor": constant}, [[6.0, 10.0], [18.0, 50.0]]),
    ):
        forward = region(backend, fn, use_reentrant=False, **named)
        backend.backward(backend.call(lambda given=inputs, forward=forward: forward(*given)))
        trace.expect_value(
            f"gradients, {len(inputs)} inputs", expected, [backend.grad_of(weight), backend.grad_of(scale)]
        )


@rule(
    "checkpoint.reentrant.no-input-requires-grad",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(21, 22)],
    needs=NEEDS,
    mutants=[
        "checkpoint-use-reentrant-always-false",
        "reentrant-checkpoint-of-several-constants-is-recorded",
        "reentrant-checkpoint-without-inputs-is-recorded",
        "reentrant-checkpoint-of-numbers-is-recorded",
    ],
)
def test_reentrant_needs_an_input(backend: Backend, trace: Trace) -> None:
    """A reentrant checkpoint none of whose inputs requires grad has no gradients: its output does not require grad."""
    weight = leaf(backend, 3.0, 5.0)

    def forward(*inputs: Any) -> Any:
        return backend.checkpoint(lambda *given: sum(given, weight * 2), *inputs, use_reentrant=True)

    for inputs in ([], [2.0], [backend.tensor([1.0, 2.0])], [backend.tensor([1.0, 2.0]) for _ in range(2)]):
        y = backend.call(lambda given=inputs: forward(*given))

        trace.expect_value("output requires grad", expected=False, observed=backend.requires_grad(y))


@rule(
    "checkpoint.nonreentrant.nested-structures",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(24)],
    needs=NEEDS,
    mutants=[
        "checkpoint-overlooks-tensors-in-lists",
        "checkpoint-overlooks-tensors-in-lists-by-keyword",
        "checkpoint-overlooks-tensors-in-a-list-given",
        "checkpoint-overlooks-tensors-in-a-dict-given",
        "checkpoint-overlooks-tensors-in-a-dict-by-keyword",
        "checkpoint-returns-lists-of-constants",
        "checkpoint-returns-dicts-of-constants",
        "checkpoint-use-reentrant-always-true",
    ],
)
def test_nested_structures(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint has gradients for tensors inside lists and dicts, both as inputs and as outputs."""

    def fn(inputs):
        a, b = inputs["pair"]
        trace.log("others", inputs["others"])
        return {"products": [a * b, a * a], "others": inputs["others"]}

    def forward(a, b):
        outputs = backend.checkpoint(fn, {"pair": [a, b], "others": others}, use_reentrant=False)
        trace.log("output", repr(outputs["others"]))
        first, second = outputs["products"]
        return backend.sum(first + second)

    others = [5, "text", None, *OTHERS]
    a, b = leaf(backend), leaf(backend, 3.0, 5.0)
    backend.backward(backend.call(forward, a, b))

    as_given = ("others", trace.snapshot(others))
    trace.expect(as_given, ("output", repr(others)), as_given)
    trace.expect_value("gradients", [[5.0, 9.0], [1.0, 2.0]], [backend.grad_of(a), backend.grad_of(b)])

    by_keyword = region(backend, lambda *, pair: pair[0] * pair[1], use_reentrant=False, pair=[a, b])
    backend.backward(backend.call(by_keyword))
    trace.expect_value("by keyword", [[8.0, 14.0], [2.0, 4.0]], [backend.grad_of(a), backend.grad_of(b)])

    def listed(a, b):
        first, second = backend.checkpoint(lambda pair: [pair[0] * pair[1], pair[0]], [a, b], use_reentrant=False)
        return backend.sum(first * second)

    def named(a, b):
        outputs = backend.checkpoint(
            lambda one, *, more: {"one": one["a"] * one["b"], "more": more["a"]},
            {"a": a, "b": b},
            use_reentrant=False,
            more={"a": a},
        )
        return backend.sum(outputs["one"] * outputs["more"])

    for label, forward in (("list", listed), ("dict", named)):
        a, b = leaf(backend), leaf(backend, 3.0, 5.0)
        backend.backward(backend.call(forward, a, b))
        trace.expect_value(label, [[6.0, 20.0], [1.0, 4.0]], [backend.grad_of(a), backend.grad_of(b)])


@rule(
    "checkpoint.reentrant.nested-structures",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(24)],
    needs=NEEDS,
    mutants=["checkpoint-use-reentrant-always-false"],
)
def test_reentrant_nested_structures(backend: Backend, trace: Trace) -> None:
    """A reentrant checkpoint that is given tensors only inside a list has an output that does not require grad."""

    def forward(x):
        return backend.checkpoint(lambda inputs: inputs[0] * inputs[0], [x], use_reentrant=True)

    y = backend.call(forward, leaf(backend))

    trace.expect_value("output requires grad", expected=False, observed=backend.requires_grad(y))


@rule(
    "checkpoint.nonreentrant.keyword-arguments",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(40)],
    needs=NEEDS,
    mutants=[
        "checkpoint-drops-keyword-arguments",
        "keyword-arguments-lost-in-recomputation",
        "checkpoint-passes-tensors-alone-by-keyword",
        "later-keyword-tensors-of-a-checkpoint-are-constants",
        "keyword-tensors-alone-of-a-checkpoint-are-constants",
        "recomputation-gets-the-keywords-of-the-latest",
    ],
)
def test_keyword_arguments(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint passes keyword arguments on to its function, and tensors among them get gradients."""

    def fn(x, factor=None, number=1.0):
        return x * x * number if factor is None else x * x * factor * number

    def forward(x, factor):
        return backend.sum(backend.checkpoint(fn, x, factor=factor, number=2.0, use_reentrant=False))

    x, factor = leaf(backend), leaf(backend, 3.0, 5.0)
    backend.backward(backend.call(forward, x, factor))

    trace.expect_value("gradients", [[12.0, 40.0], [2.0, 8.0]], [backend.grad_of(x), backend.grad_of(factor)])

    x, one, other = leaf(backend), leaf(backend, 3.0, 5.0), leaf(backend, 1.0, 1.0)
    given = {"number": 1.0, "use_reentrant": False}
    for loss in [backend.call(region(backend, fn, factor=each, **given), x) for each in (one, other)]:
        backend.backward(loss)
    gradients = [backend.grad_of(tensor) for tensor in (x, one, other)]
    trace.expect_value("of two checkpoints", [[8.0, 24.0], [1.0, 4.0], [1.0, 4.0]], gradients)

    a, b = leaf(backend), leaf(backend, 3.0, 5.0)
    by_keyword = {"use_reentrant": False, "a": a, "b": b}
    for inputs in ((), (leaf(backend),)):
        backend.backward(backend.call(region(backend, lambda *_, a, b: a * b, **by_keyword), *inputs))
    trace.expect_value("of two keywords", [[6.0, 10.0], [2.0, 4.0]], [backend.grad_of(a), backend.grad_of(b)])

    def logs(x: Any, **given: Any) -> Any:
        trace.log("keywords", [*given.values()])
        return x * x

    others = dict(zip("abcdefghijkl", (None, {"key": [7]}, 5, "text", (1, 2), *OTHERS), strict=True))
    backend.backward(backend.call(region(backend, logs, use_reentrant=False, **others), x))
    as_given = ("keywords", trace.snapshot([*others.values()]))
    trace.expect(as_given, as_given)

    for numbers in NUMBERS[:-1]:
        x, weight = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers, requires_grad=True)
        product_of = region(backend, lambda x, weight: x * weight, use_reentrant=False, weight=weight)
        backend.backward(backend.call(product_of, x))
        trace.expect_value("gradients", [numbers] * 2, [backend.grad_of(x), backend.grad_of(weight)])


@rule(
    "checkpoint.nonreentrant.backward-inside",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(19)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["checkpoint-use-reentrant-always-true", "backward-lost-in-a-checkpoint"],
)
def test_backward_inside(backend: Backend, trace: Trace) -> None:
    """The function of a non-reentrant checkpoint may differentiate what it computes, and return the gradient."""

    def fn(x):
        (derivative,) = backend.grad(backend.sum(x * x * x), [x], create_graph=True)
        weight = leaf(backend)
        backend.backward(backend.sum(weight * weight * weight))
        inside.append(backend.grad_of(weight))
        return derivative * x

    x, inside = leaf(backend), []
    backend.backward(backend.call(region(backend, fn, use_reentrant=False), x))

    trace.expect_value("x.grad", [9.0, 36.0], backend.grad_of(x))
    trace.expect_value("of backward, each time", [[3.0, 12.0]] * len(inside), inside)


@rule(
    "checkpoint.reentrant.not-recorded",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(5, 18)],
    needs=NEEDS,
    mutants=["checkpoint-use-reentrant-always-false", "reentrant-checkpoint-only-detaches-its-inputs"],
)
def test_not_recorded(backend: Backend, trace: Trace) -> None:
    """A reentrant checkpoint runs its function without recording in forward, and records it in backward."""
    weight = leaf(backend, 3.0, 5.0)

    def fn(x):
        y = x * weight
        trace.log("intermediate requires grad", backend.requires_grad(y))
        return y * x

    loss = backend.call(region(backend, fn, use_reentrant=True), leaf(backend))
    trace.expect(("intermediate requires grad", False))
    backend.backward(loss)
    trace.expect(("intermediate requires grad", True))


@rule(
    "checkpoint.nonreentrant.detached",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(25)],
    needs=NEEDS,
    mutants=[
        "checkpoint-use-reentrant-always-true",
        "checkpoint-with-a-detached-output-keeps-the-first",
        "checkpoint-with-a-detached-output-keeps-the-last",
        "checkpoint-requires-grad-as-its-first-output-does",
        "checkpoint-requires-grad-as-its-last-output-does",
        "only-output-of-a-checkpoint-requires-grad",
    ],
)
def test_detached(backend: Backend, trace: Trace) -> None:
    """A detached output of a non-reentrant checkpoint does not require grad, and the others have their gradients."""
    functions = (
        lambda x: (backend.detach(x * 3), x * x, x * x * x),
        lambda x: (x * x, backend.detach(x * 3), x * x * x),
        lambda x: (x * x, x * x * x, backend.detach(x * 3)),
    )
    for place, fn in enumerate(functions):
        x = leaf(backend)
        outputs = list(backend.call(lambda x, fn=fn: backend.checkpoint(fn, x, use_reentrant=False), x))
        detached = outputs.pop(place)
        trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(detached))
        backend.backward(backend.sum(outputs[0] * detached + outputs[1]))

        trace.expect_value("x.grad", [9.0, 36.0], backend.grad_of(x))

    detached = backend.call(
        lambda x: backend.checkpoint(lambda x: backend.detach(x * x), x, use_reentrant=False), leaf(backend)
    )
    trace.expect_value("alone requires grad", expected=False, observed=backend.requires_grad(detached))


@rule(
    "checkpoint.reentrant.detached",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(26)],
    needs=NEEDS,
    mutants=["detached-checkpoint-has-zero-gradients"],
)
def test_reentrant_detached(backend: Backend, trace: Trace) -> None:
    """A backward through a reentrant checkpoint whose only output is detached inside is an error.

    The docstring promises the error for every region that contains a detached tensor, and gives as the reason that all
    outputs require grad; so a region whose other outputs are not detached, in which nothing is wrong, is left open.
    """
    loss = backend.call(region(backend, lambda x: backend.detach(x * x), use_reentrant=True), leaf(backend))

    with trace.raises(ErrorKind.CHECKPOINT_REENTRANT):
        backend.backward(loss)
