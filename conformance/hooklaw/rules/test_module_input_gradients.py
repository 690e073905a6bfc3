"""The gradients of a module's inputs that a full backward hook gets, and their replacement."""

from itertools import product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import BACKWARD, OTHERS, Pair, uses_each_value

HOOK = docstring("torch.nn.Module.register_full_backward_hook")
MODULES = notes("modules", "module-hooks")
NEEDS = [Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS]


def doubling(backend: Backend) -> Any:
    """Make a module that doubles its input."""
    return backend.module({}, lambda _module, x: x * 2)


def weighted(backend: Backend) -> Any:
    """Make a module that multiplies its input by a weight."""
    return backend.module({"weight": backend.tensor([3.0, 5.0])}, lambda module, x: x * module.weight)


def leaf(backend: Backend) -> Any:
    """Make the input of a module."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "module.full-backward.kwargs-ignored",
    level=Level.MUST,
    sources=[HOOK.sentence(9)],
    needs=NEEDS,
    mutants=[
        "full-backward-hook-has-one-gradient-too-many",
        "full-backward-hook-gets-zeros",
        "backward-hooks-skipped-for-keyword-arguments",
        "later-keyword-tensors-are-inputs",
        "other-keyword-arguments-are-inputs",
        "one-gradient-beside-keyword-arguments",
    ],
)
def test_keywords_ignored(backend: Backend, trace: Trace) -> None:
    """The grad_input of a full backward hook has the gradients of positional arguments, none of keyword arguments."""
    x, factor = leaf(backend), backend.tensor([3.0, 4.0], requires_grad=True)
    module = backend.module({}, lambda _module, x, factor: x * factor)
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: trace.log("inputs", grad_input))

    backend.backward(backend.sum(backend.call(lambda x, factor: module(x, factor=factor), x, factor)))

    trace.expect(("inputs", [[3.0, 4.0]]))
    trace.expect_value("factor.grad", [1.0, 2.0], backend.grad_of(factor))

    with catch_warnings(action="ignore"):
        backend.backward(backend.sum(backend.call(lambda x, factor: module(x=x, factor=factor), x, factor)))

    trace.expect(("inputs", []))
    trace.expect_value("factor.grad", [2.0, 4.0], backend.grad_of(factor))

    leaves = [backend.tensor([number, number], requires_grad=True) for number in (2.0, 3.0, 5.0, 7.0, 11.0)]
    module = backend.module({}, lambda _module, x, _note, y, by, too, of, **_name: x * by + y * too + of)
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: trace.log("inputs", grad_input))
    backend.backward(
        backend.sum(
            backend.call(lambda x, y, by, too, of: module(x, "note", y, name="text", by=by, too=too, of=of), *leaves)
        )
    )

    trace.expect(("inputs", [[5.0, 5.0], None, [7.0, 7.0]]))
    gradients = [[5.0] * 2, [7.0] * 2, [2.0] * 2, [3.0] * 2, [1.0] * 2]
    trace.expect_value("gradients", gradients, [backend.grad_of(each) for each in leaves])


@rule(
    "module.full-backward.none-for-non-tensor",
    level=Level.MUST,
    sources=[HOOK.sentence(10)],
    needs=NEEDS,
    mutants=[
        "module-hooks-get-gradients-of-tensors-alone",
        "full-backward-hook-gets-gradients-of-outputs-first",
        "containers-of-tensors-have-gradients",
        "returned-containers-of-tensors-have-gradients",
    ],
)
def test_none_for_others(backend: Backend, trace: Trace) -> None:
    """A full backward hook gets None, in its position, for an input or an output that is not a tensor."""
    module = backend.module({}, lambda _module, _name, x, number: ("text", x * number))
    backend.register_full_backward_hook(module, lambda _, *grads: trace.log("hook", grads))

    backend.backward(backend.call(lambda x: backend.sum(module("name", x, 3)[1]), leaf(backend)))

    trace.expect(("hook", [[None, [3.0, 3.0], None], [None, [1.0, 1.0]]]))

    def note(_, grad_input, grad_output):
        trace.log("inputs", grad_input)
        trace.log("outputs", grad_output)

    y = leaf(backend)
    others = [None, {"a": "dict"}, [7], *OTHERS, [y], (y, y), {"a": y}]
    module = backend.module({}, lambda _module, x, *others: (x * 2, *others))
    backend.register_full_backward_hook(module, note)
    backend.backward(backend.call(lambda x: backend.sum(module(x, *others)[0]), leaf(backend)))

    none = [None] * len(others)
    trace.expect(("inputs", [[2.0, 2.0], *none]), ("outputs", [[1.0, 1.0], *none]))


@rule(
    "module.full-backward.double-input-tensor",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a tensor that is given twice has two gradients, which are added afterwards")],
    needs=NEEDS,
)
def test_given_twice(backend: Backend, trace: Trace) -> None:
    """A tensor that is passed as two inputs may have a separate gradient for each in a full backward hook."""
    x = leaf(backend)
    module = backend.module({}, lambda _module, x, y: x * 2 + y * 3)
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: trace.log("inputs", grad_input))

    backend.backward(backend.sum(backend.call(module, x, x)))

    trace.expect(("inputs", [[2.0, 2.0], [3.0, 3.0]]))


@rule(
    "module.full-backward.double-input-tensor.sum",
    level=Level.MUST,
    sources=[docstring("torch.autograd.backward").sentence(2), HOOK.sentence(6)],
    needs=NEEDS,
    mutants=["full-backward-hook-overlooks-a-repeated-input", "full-backward-hook-overlooks-a-repeated-non-leaf"],
)
def test_given_twice_adds(backend: Backend, trace: Trace) -> None:
    """A tensor that is passed as two inputs of a module with a full backward hook gets the sum of both gradients.

    Backward computes the sum of gradients with respect to a leaf, and a hook that returns None changes none of them.
    """
    module = backend.module({}, lambda _module, x, y: x * 2 + y * 3)
    backend.register_full_backward_hook(module, lambda *_: None)

    for label, given, gradient in (("a leaf", lambda x: x, 5.0), ("a non-leaf", lambda x: x * 7, 35.0)):
        x = leaf(backend)
        tensor = backend.call(given, x)
        backend.backward(backend.sum(backend.call(module, tensor, tensor)))

        trace.expect_value(f"x.grad, {label}", [gradient, gradient], backend.grad_of(x))


@rule(
    "module.full-backward.replace",
    level=Level.MUST,
    sources=[HOOK.sentence(8), MODULES.sentence(15)],
    needs=NEEDS,
    mutants=[
        "backward-hook-ignored",
        "full-backward-hook-replaces-for-leaves-alone",
        "backward-hooks-skipped-for-the-identity",
        "gradient-of-a-module-hook-not-copied",
        "named-tuple-of-a-full-backward-hook-ignored",
    ],
)
def test_replaces(backend: Backend, trace: Trace) -> None:
    """A tuple that a full backward hook returns replaces the gradients of the inputs.

    A named tuple is a tuple.
    """
    module, identity, constant = doubling(backend), backend.module({}, lambda _module, x: x), doubling(backend)
    for each in (module, identity):
        backend.register_full_backward_hook(each, lambda _, grad_input, _output: (grad_input[0] * 10,))

    for forward, gradient in ((module, 20.0), (lambda x: module(x * 3), 60.0), (identity, 10.0)):
        x = leaf(backend)
        backend.backward(backend.sum(backend.call(forward, x)))
        trace.expect_value("x.grad", [gradient, gradient], backend.grad_of(x))

    x, returned = leaf(backend), backend.tensor([10.0, 20.0])
    backend.register_full_backward_hook(constant, lambda *_: (returned,))
    for _ in range(3):
        backend.backward(backend.sum(backend.call(constant, x)))
    trace.expect_value("x.grad after three passes", [30.0, 60.0], backend.grad_of(x))

    x, y, pair = leaf(backend), leaf(backend), backend.module({}, lambda _module, x, y: x * 2 + y * 3)
    backend.register_full_backward_hook(pair, lambda _, grads, _output: Pair(grads[0] * 10, grads[1] * 20))
    backend.backward(backend.sum(backend.call(pair, x, y)))
    trace.expect_value("gradients of both", [[20.0, 20.0], [60.0, 60.0]], [backend.grad_of(x), backend.grad_of(y)])

    uses_each_value(backend, trace, BACKWARD)


@rule(
    "module.full-backward.replace.several-inputs",
    level=Level.MUST,
    sources=[HOOK.sentence(7, 8)],
    needs=NEEDS,
    mutants=["backward-hook-ignored", "backward-hook-results-first-alone", "full-backward-hook-replaces-without-gaps"],
)
def test_replaces_several(backend: Backend, trace: Trace) -> None:
    """Each gradient that a full backward hook returns replaces that of the input in its position."""
    x, y = leaf(backend), leaf(backend)
    module = backend.module({}, lambda _module, _name, x, number, y: x * number + y * 3)
    backend.register_full_backward_hook(module, lambda _, grads, _output: (None, grads[1] * 10, None, grads[3] * 20))

    backend.backward(backend.sum(backend.call(lambda x, y: module("name", x, 2, y), x, y)))

    trace.expect_value("x.grad", [20.0, 20.0], backend.grad_of(x))
    trace.expect_value("y.grad", [60.0, 60.0], backend.grad_of(y))


@rule(
    "module.full-backward.return.list",
    level=Level.MUST,
    sources=[MODULES.sentence(15, 17)],
    needs=NEEDS,
    mutants=[
        "backward-hook-ignored",
        "list-of-a-full-backward-hook-refused",
        "list-of-a-full-backward-hook-replaces-the-first-gradient",
        "later-lists-of-a-full-backward-hook-ignored",
        "list-of-one-gradient-ignored",
        "list-of-gradients-with-none-ignored",
        "list-of-a-later-full-backward-hook-ignored",
        "replacement-beside-keyword-arguments-ignored",
    ],
)
def test_replaces_by_a_list(backend: Backend, trace: Trace) -> None:
    """A full backward hook may return a list of gradients instead of a tuple.

    The signature in the docstring speaks of a tuple, but the notes' example returns a list, whose gradients it shows.
    """

    def tenfold(_module, grad_input, _output):
        return [None if grad is None else grad * 10 for grad in grad_input]

    module = backend.module({}, lambda _module, x, y, times=1: x * (2 * times) + y * 3)
    backend.register_full_backward_hook(module, tenfold)
    for named in ({}, {}, {"times": 1}):
        x, y = leaf(backend), leaf(backend)
        backend.backward(backend.sum(backend.call(lambda x, y, named=named: module(x, y, **named), x, y)))

        trace.expect_value("x.grad", [20.0, 20.0], backend.grad_of(x))
        trace.expect_value("y.grad", [30.0, 30.0], backend.grad_of(y))

    for others in ((), ("text",)):
        x, module = leaf(backend), backend.module({}, lambda _module, x, *_others: x * 2)
        for _ in range(2):
            backend.register_full_backward_hook(module, tenfold)
        backend.backward(backend.sum(backend.call(lambda x, module=module, others=others: module(x, *others), x)))

        trace.expect_value("x.grad after two hooks", [200.0, 200.0], backend.grad_of(x))


@rule(
    "module.full-backward.none-keeps",
    level=Level.MUST,
    sources=[HOOK.sentence(6, 8)],
    needs=NEEDS,
    mutants=[
        "none-of-a-module-backward-hook-swaps-the-gradients",
        "none-of-a-module-backward-hook-is-zeros",
        "none-of-a-module-backward-hook-restores-the-gradients",
        "none-of-a-module-backward-hook-restores-several-gradients",
    ],
)
def test_none_keeps(backend: Backend, trace: Trace) -> None:
    """A full backward hook that returns None does not change the gradients of its module's inputs."""
    x, module = leaf(backend), doubling(backend)
    backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))

    backend.backward(backend.sum(backend.call(module, x)))

    trace.expect("hook")
    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))

    y = leaf(backend)
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: (grad_input[0] * 10,))
    backend.register_full_backward_hook(module, lambda *_: trace.log("last"))
    backend.backward(backend.sum(backend.call(module, y)))

    trace.expect("hook", "last")
    trace.expect_value("y.grad", [20.0, 20.0], backend.grad_of(y))

    pair, several = (leaf(backend), leaf(backend)), backend.module({}, lambda _, x, y: x * 2 + y * 5)
    backend.register_full_backward_hook(several, lambda *_: None)
    backend.backward(backend.sum(backend.call(several, *pair)))

    trace.expect_value("gradients of both", [[2.0, 2.0], [5.0, 5.0]], [backend.grad_of(each) for each in pair])

    pair = (leaf(backend), leaf(backend))
    backend.register_full_backward_hook(several, lambda _, grads, _output: (grads[0] * 10, grads[1] * 10))
    backend.register_full_backward_hook(several, lambda *_: None)
    backend.backward(backend.sum(backend.call(several, *pair)))

    trace.expect_value("replaced gradients", [[20.0, 20.0], [50.0, 50.0]], [backend.grad_of(each) for each in pair])


@rule(
    "module.full-backward.replace.params-unaffected",
    level=Level.MUST,
    sources=[HOOK.sentence(8)],
    needs=NEEDS,
    mutants=["full-backward-hook-at-the-outputs"],
)
def test_replaces_none_of_the_weights(backend: Backend, trace: Trace) -> None:
    """What a full backward hook returns for a call of its module does not change the weights' gradients of that call.

    It replaces the gradients of the inputs alone; a call that made these inputs is computed from what it returns.
    """
    module = weighted(backend)
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: (grad_input[0] * 10,))

    backend.backward(backend.sum(backend.call(module, leaf(backend))))

    trace.expect_value("weight.grad", [1.0, 2.0], backend.grad_of(module.weight))


@rule(
    "module.full-backward.replace.no-input-grad-error",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such a hook returns None, or None for all gradients")],
    needs=NEEDS,
    mutants=[
        "wrong-return-of-a-module-hook-accepted",
        "later-gradients-for-constant-inputs-accepted",
        "later-full-backward-hooks-may-return-gradients",
        "bare-gradients-for-constant-inputs-accepted",
    ],
)
def test_nothing_to_replace(backend: Backend, trace: Trace) -> None:
    """If no input requires grad, a gradient that a full backward hook returns for an input is an error."""

    def for_the_second(_module, _input, grad_output):
        return (None, *grad_output)

    def for_the_first(_module, _input, grad_output):
        return (*grad_output, None)

    def nothing(_module, _input, _output):
        return None

    def forward(module, x, y):
        return (x + y) * module.weight

    def given(count):
        return [backend.tensor([1.0, 2.0]) for _ in range(count)]

    refused = []
    for hook in (lambda _module, _input, grad_output: grad_output, lambda _module, _input, grad_output: grad_output[0]):
        module = weighted(backend)
        backend.register_full_backward_hook(module, hook)
        refused.append(backend.call(module, *given(1)))
    for hooks in ((for_the_first,), (for_the_second,), (nothing, for_the_first), (for_the_first, nothing)):
        module = backend.module({"weight": backend.tensor([3.0, 5.0])}, forward)
        for hook in hooks:
            backend.register_full_backward_hook(module, hook)
        refused.append(backend.call(module, *given(2)))

    for output in refused:
        with catch_warnings(action="ignore"), trace.raises(ErrorKind.MODULE_HOOK_RETURN):
            backend.backward(backend.sum(output))


@rule(
    "module.full-backward.return.wrong-length",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says how many gradients were returned and how many were expected")],
    needs=NEEDS,
    mutants=[
        "wrong-return-of-a-module-hook-accepted",
        "missing-gradients-of-a-module-hook-are-kept",
        "surplus-gradients-of-a-module-hook-are-dropped",
        "missing-gradients-after-the-first-are-kept",
        "surplus-tensors-of-a-module-hook-are-dropped",
        "wrong-number-in-a-list-accepted",
    ],
)
def test_wrong_number(backend: Backend, trace: Trace) -> None:
    """A full backward hook that returns more or fewer gradients than the module has inputs is an error."""
    returns = (lambda grads: (*grads, None), lambda grads: (*grads, *grads), lambda grads: grads[1:])
    for count, wrong, kind in product((1, 2), returns, (tuple, list)):
        module = backend.module({}, lambda _module, *inputs: inputs[0] * 2 + inputs[-1] * 3)
        backend.register_full_backward_hook(
            module, lambda _, grad_input, _output, wrong=wrong, kind=kind: kind(wrong(grad_input))
        )
        loss = backend.sum(backend.call(module, *(leaf(backend) for _ in range(count))))
        with trace.raises(ErrorKind.HOOK_RETURN_COUNT):
            backend.backward(loss)


@rule(
    "module.full-backward.inplace-error",
    level=Level.MUST,
    sources=[HOOK.sentence(13)],
    needs=[*NEEDS, Capability.IN_PLACE],
    mutants=[
        "changes-in-place-around-modules-accepted",
        "changes-of-later-inputs-in-place-accepted",
        "changes-of-an-only-input-accepted",
        "changes-of-the-first-of-several-outputs-accepted",
    ],
)
def test_in_place(backend: Backend, trace: Trace) -> None:
    """Modifying an input or output of a module in place is an error if the module has a full backward hook."""

    def uses():
        """Return modules, each with a function that calls it and modifies one of its inputs or outputs."""
        first, second = (backend.module({}, lambda _module, *given, at=at: backend.mul_(given[at], 2)) for at in (0, 1))
        only = backend.module({}, lambda _module, x: backend.mul_(x, 2))
        doubles, twins = doubling(backend), backend.module({}, lambda _module, x: (x * 2, x * 2))
        return (
            (only, lambda x: only(x * 3)),
            (first, lambda x: first(x * 3, x)),
            (second, lambda x: second(x, x * 3)),
            (doubles, lambda x: backend.mul_(doubles(x), 3)),
            (twins, lambda x: backend.mul_(twins(x)[0], 3)),
            (twins, lambda x: backend.mul_(twins(x)[1], 3)),
        )

    for _, use in uses():
        x = leaf(backend)
        backend.backward(backend.sum(backend.call(use, x)))
        trace.expect_value("x.grad without a hook", [6.0, 6.0], backend.grad_of(x))
    for hooked, use in uses():
        backend.register_full_backward_hook(hooked, lambda *_: None)
        with trace.raises(ErrorKind.MODULE_IN_PLACE):
            backend.backward(backend.sum(backend.call(use, leaf(backend))))
