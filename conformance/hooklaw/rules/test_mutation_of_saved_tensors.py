"""allow_mutation_on_saved_tensors, a context in which saved tensors may be changed in place."""

import weakref
from contextlib import suppress
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.lifetimes import kinds_of_node

MUTATION = docstring("torch.autograd.graph.allow_mutation_on_saved_tensors")
NEEDS = [Capability.ALLOW_MUTATION, Capability.IN_PLACE]


@rule(
    "allow-mutation.works",
    level=Level.MUST,
    sources=[MUTATION.sentence(1, 2)],
    needs=[*NEEDS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "mutation-of-saved-tensors-not-allowed",
        "mutation-of-saved-tensors-unnoticed",
        "only-the-first-mutation-of-a-tensor-allowed",
        "mutation-of-what-functions-saved-unnoticed",
        "mutation-of-outputs-that-functions-saved-unnoticed",
        "cosine-in-place-of-a-saved-tensor-refused",
    ],
)
def test_works(backend: Backend, trace: Trace) -> None:
    """Inside allow_mutation_on_saved_tensors a saved tensor may be changed in place; backward uses the saved value."""

    def once(x):
        y = x * 1
        loss = backend.sum(y * y)
        backend.mul_(y, 10)
        return loss

    def twice(x):
        y = x * 1
        loss = backend.sum(y * y)
        backend.mul_(y, 10)
        loss = loss + backend.sum(y * y)
        backend.mul_(y, 10)
        return loss

    def output(x):
        y = backend.exp(x * 0)
        loss = backend.sum(y * x)
        backend.cos_(y)
        return loss

    def of_function(x):
        y = x * 1
        loss = backend.sum(square(y))
        backend.mul_(y, 10)
        return loss

    def output_of_function(x):
        y = double(x)
        loss = backend.sum(y)
        backend.mul_(backend.detach(y), 10)
        return loss

    def save(ctx, x):
        y = x * 2
        ctx.save_for_backward(y)
        return y

    square = kinds_of_node(backend)["custom Function"]
    double = backend.custom_function(save, lambda ctx, grad: grad * ctx.saved_tensors[0])
    cases = [(once, [2.0, 4.0]), (twice, [202.0, 404.0]), (output, [1.0, 1.0]), (of_function, [2.0, 4.0])]
    for forward, expected in (*cases, (output_of_function, [2.0, 4.0])):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        with backend.allow_mutation_on_saved_tensors():
            backend.backward(backend.call(forward, x))

        trace.expect_value(f"x.grad, changed {forward.__name__}", expected, backend.grad_of(x))


@rule(
    "allow-mutation.works.leaf",
    level=Level.MUST,
    sources=[MUTATION.sentence(2)],
    needs=[*NEEDS, Capability.GRAD_MODE],
    mutants=["mutation-of-saved-tensors-not-allowed", "mutation-of-saved-tensors-unnoticed"],
)
def test_leaf(backend: Backend, trace: Trace) -> None:
    """Inside allow_mutation_on_saved_tensors a saved leaf may be changed under no_grad; backward uses its old value."""

    def forward(x):
        loss = backend.sum(x * x)
        with backend.no_grad():
            backend.mul_(x, 10)
        return loss

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    with backend.allow_mutation_on_saved_tensors():
        backend.backward(backend.call(forward, x))

    trace.expect_value("x", [10.0, 20.0], x)
    trace.expect_value("x.grad", [2.0, 4.0], backend.grad_of(x))


@rule(
    "allow-mutation.works.part",
    level=Level.MUST,
    sources=[MUTATION.sentence(2)],
    needs=[*NEEDS, Capability.MULTI_OUTPUT],
    mutants=["mutation-of-saved-tensors-not-allowed", "mutation-of-saved-tensors-unnoticed"],
)
def test_part(backend: Backend, trace: Trace) -> None:
    """Inside allow_mutation_on_saved_tensors any part of a saved tensor may be changed; backward uses its old value."""

    def forward(x):
        y = x * 1
        loss = backend.sum(y * y)
        backend.mul_(backend.split(backend.detach(y), 1)[part], 10)
        return loss

    for part in (0, 1):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        with backend.allow_mutation_on_saved_tensors():
            backend.backward(backend.call(forward, x))

        trace.expect_value(f"x.grad where part {part} was changed", [2.0, 4.0], backend.grad_of(x))


@rule(
    "allow-mutation.works.whole",
    level=Level.MUST,
    sources=[MUTATION.sentence(2)],
    needs=[*NEEDS, Capability.MULTI_OUTPUT],
    mutants=[
        "mutation-of-saved-tensors-not-allowed",
        "mutation-of-saved-tensors-unnoticed",
        "changes-of-a-whole-unnoticed-in-its-parts",
    ],
)
def test_whole(backend: Backend, trace: Trace) -> None:
    """Inside allow_mutation_on_saved_tensors a tensor any part of which is saved may be changed in place.

    Backward uses the old value of the part.
    """

    def product(x, factor):
        loss = backend.sum(x * backend.split(factor, 1)[part])
        backend.mul_(factor, 10)
        return loss

    for part, expected in enumerate(([3.0], [4.0], [5.0])):
        x, factor = backend.tensor([1.0], requires_grad=True), backend.tensor([3.0, 4.0, 5.0])
        with backend.allow_mutation_on_saved_tensors():
            backend.backward(backend.call(product, x, factor))

        trace.expect_value(f"x.grad where part {part} was saved", expected, backend.grad_of(x))


@rule(
    "allow-mutation.backward-inside",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[MUTATION, observed("it raises where the docstring says that backward should run inside too")],
    needs=[Capability.ALLOW_MUTATION],
    mutants=[
        "mutation-context-open-until-backward",
        "mutation-of-saved-tensors-not-allowed",
        "outputs-of-a-mutation-context-are-read-after-it",
    ],
)
def test_backward_outside(backend: Backend, trace: Trace) -> None:
    """After an allow_mutation_on_saved_tensors context, a backward that reads a tensor saved inside is an error.

    So it is for an input of an operation and for an output.
    """
    for operation in (lambda x: x * x, backend.exp):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        with backend.allow_mutation_on_saved_tensors():
            loss = backend.call(lambda x, operation=operation: backend.sum(operation(x)), x)

        with trace.raises(ErrorKind.OUTSIDE_MUTATION):
            backend.backward(loss)


@rule(
    "allow-mutation.not-nested",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that these contexts cannot be nested")],
    needs=[Capability.ALLOW_MUTATION],
    mutants=["mutation-of-saved-tensors-not-allowed"],
)
def test_nested(backend: Backend, trace: Trace) -> None:
    """Nesting allow_mutation_on_saved_tensors may be an error."""
    with (
        backend.allow_mutation_on_saved_tensors(),
        trace.raises(ErrorKind.NESTED_MUTATION),
        backend.allow_mutation_on_saved_tensors(),
    ):
        pass


@rule(
    "allow-mutation.not-nested.outer",
    level=Level.MUST,
    sources=[MUTATION.sentence(2)],
    needs=[Capability.ALLOW_MUTATION, Capability.IN_PLACE],
    mutants=[
        "refused-mutation-context-ends-the-outer-one",
        "refused-mutation-context-lets-later-saved-tensors-change",
    ],
)
def test_outer_goes_on(backend: Backend, trace: Trace) -> None:
    """After nesting allow_mutation_on_saved_tensors, be it an error or not, the outer context works as before.

    Forward and backward run under the same context manager, which is all that the docstring asks for.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    factors = [backend.tensor([3.0, 4.0]), backend.tensor([5.0, 6.0])]

    def product(factor):
        return backend.call(lambda x, factor: backend.sum(x * factor), x, factor)

    with backend.allow_mutation_on_saved_tensors():
        losses = [product(factors[0])]
        with suppress(Exception), backend.allow_mutation_on_saved_tensors():
            pass
        losses.append(product(factors[1]))
        for factor in factors:
            backend.mul_(factor, 10)
        for loss, expected in zip(losses, ([3.0, 4.0], [8.0, 10.0]), strict=True):
            backend.backward(loss)

            trace.expect_value("x.grad", expected, backend.grad_of(x))


@rule(
    "allow-mutation.cleared",
    level=Level.MUST,
    sources=[MUTATION.sentence(7)],
    needs=[*NEEDS, Capability.WEAK_REFERENCES],
    mutants=[
        "mutation-context-open-until-backward",
        "mutation-of-saved-tensors-not-allowed",
        "mutation-context-left-by-an-exception-is-not-cleared",
        "mutation-context-keeps-saved-outputs",
        "changed-tensors-live-on",
    ],
)
def test_cleared(backend: Backend, trace: Trace) -> None:
    """A tensor saved inside an allow_mutation_on_saved_tensors context, changed or not, is freed when the context ends.

    The docstring says that the state is cleared then; this state is what holds the saved tensors.
    """

    def forward(x):
        y, output, changed = x * 1, backend.exp(x * 0), x * 2
        loss = backend.sum(y * y * output + changed * changed)
        backend.mul_(changed, 10)
        return loss, y, output, changed

    for fails in (False, True):
        with suppress(KeyError), backend.allow_mutation_on_saved_tensors():
            loss, *saved = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))
            alive = [weakref.ref(each) for each in saved]
            saved.clear()
            if fails:
                raise KeyError
        freed = [each() is None for each in alive]
        backend.backward(
            backend.call(backend.sum, backend.tensor([1.0], requires_grad=True))
        )  # ends what still waits for it
        trace.expect_value("are freed after it", [True] * 3, freed)
        trace.expect_value("loss", [25.0], [backend.tolist(loss)])


@rule(
    "allow-mutation.outer-only",
    level=Level.MUST,
    sources=[MUTATION.sentence(3)],
    needs=[*NEEDS, Capability.VERSION_COUNTER],
    mutants=[
        "version-not-checked",
        "mutation-allowed-for-good",
        "mutation-allowed-for-good-after-an-error",
        "tensors-changed-inside-may-change-for-good",
    ],
    except_under={"packed": "what hooks unpack is not checked for in-place changes"},
)
def test_outside(backend: Backend, trace: Trace) -> None:
    """After allow_mutation_on_saved_tensors, backward again raises an error for a saved tensor changed in place.

    So it does after an exception has left the context.
    """

    def change(x):
        y = x * 1
        loss = backend.sum(y * y)
        return loss, backend.mul_(y, 10)

    for fails in (False, True):
        changed = list[Any]()
        with suppress(KeyError), backend.allow_mutation_on_saved_tensors():
            changed += backend.call(change, backend.tensor([1.0, 2.0], requires_grad=True))
            if fails:
                raise KeyError
        y = changed[1]
        loss = backend.call(lambda y: backend.sum(y * y), y)
        backend.mul_(y, 10)

        with trace.raises(ErrorKind.SAVED_TENSOR_MODIFIED):
            backend.backward(loss)


@rule(
    "allow-mutation.double-backward",
    level=Level.MUST,
    sources=[MUTATION.sentence(1, 2)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["mutation-of-saved-tensors-not-allowed", "hooks-ignored-during-backward"],
)
def test_double_backward(backend: Backend, trace: Trace) -> None:
    """Inside the context the backward of a backward too uses saved tensors as they were before in-place changes.

    The docstring says that in-place changes of saved tensors are allowed, of whichever backward.
    """

    def forward(x):
        y = x * 1
        return backend.sum(y * y * y), y

    def derivatives(*, before):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        with backend.allow_mutation_on_saved_tensors():
            loss, y = backend.call(forward, x)
            if before:
                backend.mul_(y, 0)
            (first,) = backend.grad(loss, [x], create_graph=True)
            if not before:
                backend.mul_(y, 0)
            (second,) = backend.grad(backend.sum(first), [x])
        return [first, second]

    for before in (True, False):
        changed = "before" if before else "after"
        trace.expect_value(f"changed {changed} the first", [[3.0, 12.0], [6.0, 12.0]], derivatives(before=before))


@rule(
    "allow-mutation.works.conj",
    level=Level.MUST,
    sources=[MUTATION.sentence(2)],
    needs=[*NEEDS, Capability.LAZY_BITS, Capability.COMPLEX],
    mutants=["mutation-of-saved-tensors-not-allowed"],
    except_under={"complex64": "the rule needs complex numbers, which the condition makes real"},
)
def test_conjugate(backend: Backend, trace: Trace) -> None:
    """Inside the context a saved conjugate view may be changed in place, or its base; backward uses the old value."""

    def forward(x, base):
        y = x * 1
        view = backend.conj(y)
        product = view * view
        backend.mul_(y if base else view, 10)
        return product

    for base in (True, False):
        x = backend.tensor([1.0 + 1.0j], requires_grad=True, dtype="complex64")
        with backend.allow_mutation_on_saved_tensors():
            product = backend.call(lambda x, base=base: forward(x, base), x)
            backend.backward(product, backend.tensor([1.0 + 0.0j], dtype="complex64"))

        trace.expect_value(f"x.grad, {'the base' if base else 'the view'} changed", [2.0 - 2.0j], backend.grad_of(x))
