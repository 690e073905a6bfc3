"""Backward pre-hooks of a module: their arguments, when they run, and what they replace."""

from collections import namedtuple
from functools import partial
from itertools import product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import (
    BACKWARD_PRE,
    EARLIER,
    OTHERS,
    gets_each_value,
    removed_in_place,
    runs_backward,
    uses_each_value,
)

HOOK = docstring("torch.nn.Module.register_full_backward_pre_hook")
GLOBAL = docstring("torch.nn.modules.module.register_module_full_backward_pre_hook")
MODULES = notes("modules", "module-hooks")
NEEDS = [Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS]
Four = namedtuple("Four", "first second third fourth")  # noqa: PYI024 - the types of its fields do not matter


def weighted(backend: Backend) -> Any:
    """Make a module that multiplies its input by a weight."""
    return backend.module({"weight": backend.tensor([3.0, 5.0])}, lambda module, x: x * module.weight)


def leaf(backend: Backend) -> Any:
    """Make the input of a module."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "module.full-backward-pre.args",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 3, 4), MODULES.sentence(13)],
    needs=[*NEEDS, Capability.MODULE_BACKWARD_HOOKS, Capability.TENSOR_HOOKS],
    mutants=[
        "module-backward-hooks-deferred-to-the-end",
        "backward-pre-hook-given-the-owner-registered-first",
        "backward-pre-hook-given-the-owner-registered-last",
    ],
)
def test_arguments(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook gets the module and the tuple of its outputs' gradients before the module's backward."""

    def forward(_module, x):
        y = x * 2
        backend.register_hook(y, trace.saw("inside"))
        return y * 3

    def pre_hook(given, grad_output):
        trace.log("pre-hook", [given is module, isinstance(grad_output, tuple), *grad_output])

    modules = [backend.module({}, forward) for _ in range(2)]
    for each in modules:
        backend.register_full_backward_hook(each, lambda *_: trace.log("hook"))
        backend.register_full_backward_pre_hook(each, pre_hook)

    for module in modules:
        backend.backward(backend.sum(backend.call(module, leaf(backend)) * 5))

        trace.expect(("pre-hook", [True, True, [5.0, 5.0]]), "inside", "hook")


@rule(
    "module.full-backward-pre.every-time",
    level=Level.MUST,
    sources=[HOOK.sentence(2)],
    needs=[*NEEDS, Capability.RETAIN_GRAPH],
    mutants=[
        "backward-pre-hook-lost-second-call",
        "backward-pre-hook-lost-second-pass",
        "own-backward-hooks-of-inner-modules-ignored",
        "forward-hooks-replace-nothing-beside-backward-hooks",
        "backward-hooks-skipped-beside-forward-hooks",
        "backward-pre-hook-ignored-second-pass",
        "module-backward-hooks-replace-for-one-call-only",
        "backward-pre-hook-runs-in-one-pass-without-input-gradients",
        "backward-pre-hook-gets-gradients-from-an-earlier-pass",
    ],
)
def test_every_time(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook runs in every backward, for each call of its module.

    What it returns counts each time, also inside another module and beside forward hooks; whether an input requires
    grad or not. For an output that a backward does not reach it gets None or zeros.
    """

    def pre_hook(_, grad_output):
        trace.log("pre-hook", grad_output)
        return (grad_output[0] * 2,)

    x, module = leaf(backend), weighted(backend)
    outer = backend.module({}, lambda _module, x: module(module(x)))
    backend.register_forward_pre_hook(module, lambda _, args: (args[0] * 2,))
    backend.register_forward_hook(module, lambda _module, _args, output: output + 1)
    backend.register_full_backward_pre_hook(module, pre_hook)

    loss = backend.call(lambda x: backend.sum(outer(x)), x)
    for retain_graph in (True, True, False):
        backend.backward(loss, retain_graph=retain_graph)

    trace.expect(*[("pre-hook", [[1.0, 1.0]]), ("pre-hook", [[12.0, 20.0]])] * 3)
    trace.expect_value("loss", 254.0, loss)
    trace.expect_value("x.grad", [432.0, 1200.0], backend.grad_of(x))

    module = weighted(backend)
    backend.register_full_backward_pre_hook(module, pre_hook)
    loss = backend.sum(backend.call(module, backend.tensor([1.0, 2.0])))
    for retain_graph in (True, True, False):
        backend.backward(loss, retain_graph=retain_graph)

    trace.expect(*[("pre-hook", [[1.0, 1.0]])] * 3)
    trace.expect_value("weight.grad", [6.0, 12.0], backend.grad_of(module.weight))

    zeros, module = backend.tensor([0.0, 0.0]), backend.module({}, lambda _module, x: (x * 2, x * 3))
    backend.register_full_backward_pre_hook(
        module, lambda _, grads: trace.log("pre-hook", [zeros if grad is None else grad for grad in grads])
    )
    for output in 2 * backend.call(module, leaf(backend)):
        backend.backward(backend.sum(output), retain_graph=True)

    first, second = [[1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]
    trace.expect(*[("pre-hook", first), ("pre-hook", second)] * 2)

    gets_each_value(backend, trace, BACKWARD_PRE)


@rule(
    "module.full-backward-pre.autograd-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 5)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    mutants=[
        "backward-pre-hook-lost-autograd-grad",
        "backward-pre-hook-ignored",
        "backward-pre-hooks-skipped-for-weights-alone",
    ],
)
def test_autograd_grad(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook runs in autograd.grad too, which computes its result from what the pre-hook returns."""
    module = weighted(backend)
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: (grad_output[0] * 10,))

    for x in (leaf(backend), leaf(backend) * 3):
        (grad,) = backend.grad(backend.sum(backend.call(module, x)), [x])
        trace.expect_value("gradient", [30.0, 50.0], grad)
    (grad,) = backend.grad(backend.sum(backend.call(module, leaf(backend))), [module.weight])
    trace.expect_value("gradient of the weight alone", [10.0, 20.0], grad)


@rule(
    "module.full-backward-pre.several-outputs",
    level=Level.MUST,
    sources=[HOOK.sentence(4, 5)],
    needs=NEEDS,
    mutants=[
        "backward-pre-hook-ignored",
        "backward-pre-hook-results-first-alone",
        "backward-pre-hook-replaces-without-gaps",
        "backward-pre-hooks-silent-for-named-tuples",
        "named-tuple-of-a-backward-pre-hook-ignored",
    ],
)
def test_several_outputs(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook gets the gradients of all outputs in their order, and may replace each of them.

    So it may if the outputs are a named tuple, which is a tuple, and if it returns one.
    """

    def pre_hook(_, grad_output):
        trace.log("pre-hook", grad_output)
        return grad_output[0] * 4, grad_output[1] * 2, None, grad_output[3] * 8

    def forward(module, x):
        doubled, other, _, tripled = module(x)
        return backend.sum(doubled * 5) + backend.sum(other * 11) + backend.sum(tripled * 7)

    for outputs in (lambda *four: four, Four):
        x = leaf(backend)
        module = backend.module({}, lambda _module, x, outputs=outputs: outputs(x * 2, x * 6, "text", x * 3))
        backend.register_full_backward_pre_hook(module, lambda _, grads, outputs=outputs: outputs(*pre_hook(_, grads)))
        backend.backward(backend.call(partial(forward, module), x))

        trace.expect(("pre-hook", [[5.0, 5.0], [11.0, 11.0], None, [7.0, 7.0]]))
        trace.expect_value("x.grad", [340.0, 340.0], backend.grad_of(x))


@rule(
    "module.full-backward-pre.none-for-non-tensor",
    level=Level.MUST,
    sources=[HOOK.sentence(6)],
    needs=NEEDS,
    mutants=[
        "backward-pre-hook-gets-gradients-of-tensors-alone",
        "backward-hooks-skipped-if-an-output-needs-no-gradient",
        "backward-hooks-wait-for-every-output",
        "later-backward-pre-hooks-get-zeros-for-none",
        "backward-pre-hook-gets-a-tuple-for-a-list-of-tensors",
    ],
)
def test_none_for_others(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook gets None, in its position, for an output that is not a tensor."""
    module = backend.module({}, lambda _module, x: (backend.detach(x), "text", x * 3, 7, x * 5))
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: trace.log("pre-hook", grad_output[1:4]))

    backend.backward(backend.call(lambda x: backend.sum(module(x)[2]), leaf(backend)))

    trace.expect(("pre-hook", [None, [1.0, 1.0], None]))

    others = [None, {"a": "dict"}, [7], [leaf(backend)], *OTHERS]
    module = backend.module({}, lambda _module, x: (*others, x * 3))
    for label in EARLIER:
        backend.register_full_backward_pre_hook(module, lambda _, grads, label=label: trace.log(label, grads))
    for _ in range(3):
        backend.backward(backend.call(lambda x: backend.sum(module(x)[-1]), leaf(backend)))

        trace.expect(*((label, [*[None] * len(others), [1.0, 1.0]]) for label in EARLIER))


@rule(
    "module.full-backward-pre.none-keeps",
    level=Level.MUST,
    sources=[HOOK.sentence(5)],
    needs=NEEDS,
    mutants=[
        "none-of-a-module-backward-hook-is-zeros",
        "none-of-a-module-backward-hook-restores-the-gradients",
        "none-of-a-module-backward-hook-restores-several-gradients",
    ],
)
def test_none_keeps(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook that returns None does not change the gradients of its module's outputs."""
    x, module = leaf(backend), weighted(backend)
    backend.register_full_backward_pre_hook(module, lambda *_: trace.log("pre-hook"))

    backend.backward(backend.sum(backend.call(module, x)))

    trace.expect("pre-hook")
    trace.expect_value("x.grad", [3.0, 5.0], backend.grad_of(x))
    trace.expect_value("weight.grad", [1.0, 2.0], backend.grad_of(module.weight))

    y = leaf(backend)
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: (grad_output[0] * 10,))
    backend.register_full_backward_pre_hook(module, lambda *_: trace.log("last"))
    backend.backward(backend.sum(backend.call(module, y)))

    trace.expect("pre-hook", "last")
    trace.expect_value("y.grad", [30.0, 50.0], backend.grad_of(y))

    z, several = leaf(backend), backend.module({}, lambda _module, x: (x * 2, x * 3))
    backend.register_full_backward_pre_hook(several, lambda _, grads: (grads[0] * 10, grads[1] * 100))
    backend.register_full_backward_pre_hook(several, lambda *_: None)
    first, second = backend.call(several, z)
    backend.backward(backend.sum(first + second * 5))

    trace.expect_value("z.grad", [1520.0, 1520.0], backend.grad_of(z))


@rule(
    "module.full-backward-pre.registered-after-forward",
    level=Level.SHOULD,
    sources=[notes("autograd", "special-hooks").sentence(4)],
    needs=NEEDS,
    mutants=["later-backward-pre-hooks-of-a-module-looked-up-late"],
)
def test_registered_late(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook runs only for calls of its module after its registration.

    The notes say how torch does it, "As the forward is computed, hooks are registered", which is less than a promise.
    """
    module, expected = weighted(backend), list[str]()
    for label in EARLIER:
        output = backend.call(module, leaf(backend))
        backend.register_full_backward_pre_hook(module, lambda *_, label=label: trace.log(label))
        backend.backward(backend.sum(output))

        trace.expect(*expected)
        expected.append(label)

    backend.backward(backend.sum(backend.call(module, leaf(backend))))
    trace.expect(*expected)


@rule(
    "module.full-backward-pre.handle",
    level=Level.MUST,
    sources=[HOOK.sentence(14)],
    needs=NEEDS,
    mutants=[
        "backward-pre-hook-handle-removes-nothing",
        "backward-pre-hook-handle-skips-one-call",
        "backward-pre-hook-handle-removes-the-oldest",
        "backward-pre-hook-handle-removes-all-equal",
        "backward-pre-hook-handle-removes-the-first-equal",
        "handles-remove-equal-hooks-of-other-modules",
        "backward-and-global-hooks-cannot-remove-themselves",
    ],
)
def test_handle(backend: Backend, trace: Trace) -> None:
    """The handle of a backward pre-hook removes this hook, and no other, from all later calls of the module.

    If the same function is registered once more, that is another hook. A hook may also remove itself.
    """
    register = backend.register_full_backward_pre_hook
    removed_in_place(trace, lambda: weighted(backend), register, partial(runs_backward, backend), removes_itself=True)


@rule(
    "module.full-backward-pre.replace",
    level=Level.MUST,
    sources=[HOOK.sentence(5)],
    needs=NEEDS,
    mutants=["backward-pre-hook-ignored", "backward-hooks-skipped-for-the-identity"],
)
def test_replaces(backend: Backend, trace: Trace) -> None:
    """The gradients of a module's weights and inputs are computed from what its backward pre-hook returns."""
    x, module = leaf(backend), weighted(backend)
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: (grad_output[0] * 10,))

    backend.backward(backend.sum(backend.call(module, x)))

    trace.expect_value("x.grad", [30.0, 50.0], backend.grad_of(x))
    trace.expect_value("weight.grad", [10.0, 20.0], backend.grad_of(module.weight))

    y, identity = leaf(backend), backend.module({}, lambda _module, y: y)
    backend.register_full_backward_pre_hook(identity, lambda _, grad_output: (grad_output[0] * 10,))
    backend.backward(backend.sum(backend.call(identity, y)))

    trace.expect_value("y.grad", [10.0, 10.0], backend.grad_of(y))

    uses_each_value(backend, trace, BACKWARD_PRE)


@rule(
    "module.full-backward-pre.replace.seen",
    level=Level.MUST,
    sources=[HOOK.sentence(5)],
    needs=[*NEEDS, Capability.MODULE_BACKWARD_HOOKS],
    mutants=[
        "backward-pre-hook-ignored",
        "replacement-of-a-pre-hook-hidden-without-input-gradients",
        "replacement-of-a-pre-hook-seen-for-the-first-output-alone",
        "replacement-of-a-pre-hook-seen-by-the-first-hook-alone",
    ],
)
def test_replacement_is_seen(backend: Backend, trace: Trace) -> None:
    """A module's full backward hooks get what its backward pre-hook returns as the outputs' gradients."""
    module = weighted(backend)
    for label in EARLIER:
        backend.register_full_backward_hook(module, lambda *given, label=label: trace.log(label, given[2]))
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: (grad_output[0] * 10,))

    for x in (leaf(backend), backend.tensor([1.0, 2.0])):
        with catch_warnings(action="ignore"):
            backend.backward(backend.sum(backend.call(module, x)))

        trace.expect(*((label, [[10.0, 10.0]]) for label in EARLIER))

    module = backend.module({}, lambda _module, x: (x * 2, x * 3, x * 5))
    backend.register_full_backward_hook(module, lambda _module, _input, grad_output: trace.log("hook", grad_output))
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: tuple(grad * 10 for grad in grad_output))
    outputs = backend.call(module, leaf(backend))
    backend.backward(backend.sum(outputs[0] + outputs[1] * 2 + outputs[2] * 3))

    trace.expect(("hook", [[10.0, 10.0], [20.0, 20.0], [30.0, 30.0]]))


@rule(
    "module.full-backward.return.bare-tensor",
    level=Level.MUST,
    sources=[HOOK.sentence(3)],
    needs=NEEDS,
    mutants=[
        "backward-pre-hook-of-a-module-returns-tuples-alone",
        "zeros-of-a-backward-pre-hook-ignored-without-a-tuple",
        "later-backward-pre-hooks-of-a-module-return-tuples-alone",
    ],
)
def test_returns_a_tensor(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook of a module with one output may return a gradient instead of a tuple."""
    x, module = leaf(backend), weighted(backend)
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: grad_output[0] * 10)

    backend.backward(backend.sum(backend.call(module, x)))

    trace.expect_value("x.grad", [30.0, 50.0], backend.grad_of(x))

    for factor, gradient in ((2.0, [60.0, 100.0]), (0.0, [0.0, 0.0])):
        y = leaf(backend)
        backend.register_full_backward_pre_hook(module, lambda _, grads, factor=factor: grads[0] * factor)
        backend.backward(backend.sum(backend.call(module, y)))
        trace.expect_value("y.grad", gradient, backend.grad_of(y))


@rule(
    "module.full-backward-pre.order",
    level=Level.MUST,
    sources=[HOOK.sentence(5, 11, 12, 13), GLOBAL.sentence(5)],
    needs=[*NEEDS, Capability.BACKWARD_HOOK_PREPEND, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "module-hooks-run-in-reverse-order",
        "backward-pre-hook-prepend-ignored",
        "global-module-hooks-run-last",
        "prepended-hooks-as-registered",
    ],
)
def test_order(backend: Backend, trace: Trace) -> None:
    """Backward pre-hooks run in order, global, prepended (last first), others; each gets the previous result."""

    def times(factor):
        return lambda _, grad_output: (trace.log("hook", [factor, *grad_output]), (grad_output[0] * factor,))[1]

    x, module = leaf(backend), weighted(backend)
    backend.register_full_backward_pre_hook(module, times(2))
    backend.register_full_backward_pre_hook(module, times(4))
    handle = backend.register_module_full_backward_pre_hook(times(8))
    backend.register_full_backward_pre_hook(module, times(0.5), prepend=True)
    backend.register_full_backward_pre_hook(module, times(16), prepend=True)
    backend.register_full_backward_pre_hook(module, times(1))
    backend.register_full_backward_pre_hook(module, times(0.25), prepend=False)
    backend.register_full_backward_pre_hook(module, times(0.125), prepend=True)

    backend.backward(backend.call(lambda x: backend.sum(module(x)), x))
    handle.remove()

    trace.expect(
        ("hook", [8, [1.0, 1.0]]),
        ("hook", [0.125, [8.0, 8.0]]),
        ("hook", [16, [1.0, 1.0]]),
        ("hook", [0.5, [16.0, 16.0]]),
        ("hook", [2, [8.0, 8.0]]),
        ("hook", [4, [16.0, 16.0]]),
        ("hook", [1, [64.0, 64.0]]),
        ("hook", [0.25, [64.0, 64.0]]),
    )
    trace.expect_value("x.grad", [48.0, 80.0], backend.grad_of(x))


@rule(
    "module.full-backward-pre.wrong-length",
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
        "backward-pre-hook-may-return-a-tensor-for-several",
    ],
)
def test_wrong_number(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook that returns more or fewer gradients than the module has outputs is an error."""
    returns = (lambda grads: (*grads, None), lambda grads: (*grads, grads[0]), lambda grads: grads[1:])
    for count, wrong in (*product((1, 2), returns), (2, lambda grads: grads[0])):
        module = backend.module({}, lambda _module, x, count=count: tuple(x * 2 for _ in range(count)))
        backend.register_full_backward_pre_hook(module, lambda _, grad_output, wrong=wrong: wrong(grad_output))
        loss = backend.call(lambda x, module=module: backend.sum(module(x)[0]), leaf(backend))
        with trace.raises(ErrorKind.HOOK_RETURN_COUNT):
            backend.backward(loss)


@rule(
    "module.full-backward-pre.no-input-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 5)],
    needs=NEEDS,
    mutants=[
        "module-hooks-silent-without-input-gradients",
        "backward-hooks-skipped-for-keyword-arguments",
        "backward-pre-hooks-skipped-without-inputs",
        "backward-pre-hook-gets-the-first-output-without-input-gradients",
        "backward-pre-hook-judges-by-the-first-output-without-input-gradients",
    ],
)
def test_no_input_requires_grad(backend: Backend, trace: Trace) -> None:
    """A backward pre-hook runs even if no input requires grad, and replaces the gradient that the parameters get.

    So it does if there is no input at all, and if a gradient comes to any of several outputs.
    """
    default = backend.tensor([1.0, 2.0])
    module = backend.module({"weight": backend.tensor([3.0, 5.0])}, lambda module, x=default: x * module.weight)
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: (grad_output[0] * 10,))

    for number, call in enumerate((module, lambda x: module(x=x), lambda _: module()), start=1):
        with catch_warnings(action="ignore"):
            backend.backward(backend.sum(backend.call(call, backend.tensor([1.0, 2.0]))))

        trace.expect_value("weight.grad", [10.0 * number, 20.0 * number], backend.grad_of(module.weight))

    def tenfold(_, grad_output):
        return tuple(None if grad is None else grad * 10 for grad in grad_output)

    for used, gradient in ((1, [10.0, 20.0]), (2, [20.0, 20.0])):
        module = weighted(backend)
        several = backend.module({}, lambda _, x, module=module: (x, module(x), module.weight * 2))
        backend.register_full_backward_pre_hook(several, tenfold)
        with catch_warnings(action="ignore"):
            backend.backward(backend.sum(backend.call(several, backend.tensor([1.0, 2.0]))[used]))

        trace.expect_value("weight.grad of several outputs", gradient, backend.grad_of(module.weight))


@rule(
    "module.full-backward.pre-hook.inplace",
    level=Level.MUST,
    sources=[HOOK.sentence(9)],
    needs=[*NEEDS, Capability.IN_PLACE],
    mutants=[
        "changes-in-place-around-modules-accepted",
        "changes-of-later-inputs-in-place-accepted",
        "changes-of-an-only-input-accepted-beside-pre-hooks",
    ],
)
def test_in_place(backend: Backend, trace: Trace) -> None:
    """Modifying an input of a module in place is an error if the module has a backward pre-hook."""
    for count, at in ((1, 0), (2, 0), (2, 1)):
        module = backend.module({}, lambda _module, *given, at=at: backend.mul_(given[at], 2))
        backend.register_full_backward_pre_hook(module, lambda *_: None)

        def forward(x, module=module, count=count):
            return backend.sum(module(*(x * 1, x * 3)[:count]))

        with trace.raises(ErrorKind.MODULE_IN_PLACE):
            backend.backward(backend.call(forward, leaf(backend)))
