"""Full backward hooks of a module: when they run, for which calls and in which passes."""

from collections import namedtuple
from functools import partial
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import BACKWARD, gets_each_value, removed_in_place, runs_backward

HOOK = docstring("torch.nn.Module.register_full_backward_hook")
GLOBAL = docstring("torch.nn.modules.module.register_module_full_backward_hook")
MODULES = notes("modules", "module-hooks")
NO_GRAD = docstring("torch.no_grad")
SPECIAL = notes("autograd", "special-hooks")
NEEDS = [Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS]
Triple = namedtuple("Triple", "first second third")  # noqa: PYI024 - the types of its fields do not matter


class UserError(Exception):
    """Raised by a user's hook."""


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
    "module.full-backward.args",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 6, 7), MODULES.sentence(13)],
    needs=NEEDS,
    mutants=[
        "gradients-of-a-module-swapped",
        "full-backward-hook-gets-the-first-output",
        "backward-hook-given-the-owner-registered-last",
        "full-backward-hooks-silent-for-named-tuples",
    ],
)
def test_arguments(backend: Backend, trace: Trace) -> None:
    """A full backward hook gets the module, the tuple of its inputs' gradients and the tuple of its outputs'.

    It is called every time they are computed, so also if the outputs are a named tuple, which is a tuple.
    """

    def hook(given, grad_input, grad_output):
        tuples = isinstance(grad_input, tuple), isinstance(grad_output, tuple)
        trace.log("hook", [given is one, given is several, *tuples])
        trace.log("gradients", [grad_input, grad_output])

    def forward(x, y):
        first, second, third = several(x, y)
        return backend.sum(one(first) * 5) + backend.sum(second * 11) + backend.sum(third)

    for triple in 2 * (lambda *three: three, Triple):
        several = backend.module({}, lambda _module, x, y, triple=triple: triple(x * 2 + y * 3, y * 7, x * 13))
        one = doubling(backend)
        for module in (one, several):
            backend.register_full_backward_hook(module, hook)

        backend.backward(backend.call(forward, leaf(backend), leaf(backend)))

        trace.expect(
            ("hook", [True, False, True, True]),
            ("gradients", [[[10.0, 10.0]], [[5.0, 5.0]]]),
            ("hook", [False, True, True, True]),
            ("gradients", [[[33.0, 33.0], [107.0, 107.0]], [[10.0, 10.0], [11.0, 11.0], [1.0, 1.0]]]),
        )

    gets_each_value(backend, trace, BACKWARD)


@rule(
    "module.full-backward.fire.inputs",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=[
        "full-backward-hook-at-the-outputs",
        "module-backward-hooks-deferred-to-the-end",
        "full-backward-hook-early-for-a-constant",
        "full-backward-hook-judges-by-the-first-input",
        "full-backward-hooks-wait-for-every-input",
        "full-backward-hook-overlooks-the-last-input",
    ],
)
def test_fires_for_the_inputs(backend: Backend, trace: Trace) -> None:
    """A full backward hook runs when the inputs' gradients are computed: after the module's Nodes, before upstream.

    So it does if any of the inputs requires grad: only if none does, the hook runs for the outputs. Beside an input
    whose gradient is computed, one that forward does not use changes nothing.
    """

    def inside(_module, x, y, *_unused: Any):
        product = x * y
        backend.register_hook(product, trace.saw("inside"))
        return product * 2

    def forward(x, constant, given):
        y = x * 2
        backend.register_hook(y, trace.saw("upstream"))
        return backend.sum(module(*given(y, constant, x)))

    module, constant = backend.module({}, inside), backend.tensor([3.0, 3.0])
    backend.register_full_backward_hook(module, lambda *_: trace.log("module"))

    for given in (
        lambda y, constant, x: (y, constant, x),
        lambda y, constant, x: (constant, y, x),
        lambda y, constant, _: (constant, y),
    ):
        backend.backward(backend.call(partial(forward, given=given), leaf(backend), constant))

        trace.expect("inside", "module", "upstream")


@rule(
    "module.full-backward.fire.no-input-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(4)],
    needs=NEEDS,
    mutants=[
        "module-hooks-silent-without-input-gradients",
        "full-backward-hook-gets-the-first-output",
        "full-backward-hook-runs-once-without-input-gradients",
        "full-backward-hook-waits-for-every-output-without-input-gradients",
        "full-backward-hook-judges-by-the-first-output-without-input-gradients",
    ],
)
def test_fires_for_the_outputs(backend: Backend, trace: Trace) -> None:
    """If no input of a module requires grad, a full backward hook runs when the outputs' gradients are computed.

    So it does for each call, and if a gradient comes to any of several outputs.
    """

    def forward(x):
        first, second = module(x)
        return backend.sum(first * 7) + backend.sum(second * 11)

    weight = backend.tensor([3.0, 5.0])
    module = backend.module({"weight": weight}, lambda module, x: (x * module.weight, module.weight * 2))
    backend.register_full_backward_hook(module, lambda _module, _input, grad_output: trace.log("hook", grad_output))

    for _ in range(2):
        with catch_warnings(action="ignore"):
            backend.backward(backend.call(forward, backend.tensor([1.0, 2.0])))

        trace.expect(("hook", [[7.0, 7.0], [11.0, 11.0]]))

    module = backend.module({"weight": weight}, lambda module, x: (x, x * module.weight, module.weight * 2))
    backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))
    for used in (1, 2):
        with catch_warnings(action="ignore"):
            backend.backward(backend.sum(backend.call(module, backend.tensor([1.0, 2.0]))[used]))

        trace.expect("hook")


@rule(
    "module.full-backward.fire.no-input-grad.none",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a hook that runs for the outputs gets None for each input")],
    needs=NEEDS,
    mutants=["module-hooks-silent-without-input-gradients"],
)
def test_none_for_the_inputs(backend: Backend, trace: Trace) -> None:
    """If no input of a module requires grad, a full backward hook may get None for the gradient of each input."""
    weight = backend.tensor([3.0, 5.0])
    module = backend.module({"weight": weight}, lambda module, x, y: x * module.weight + y)
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: trace.log("hook", grad_input))

    with catch_warnings(action="ignore"):
        backend.backward(backend.sum(backend.call(module, backend.tensor([1.0, 2.0]), backend.tensor([3.0, 4.0]))))

    trace.expect(("hook", [None, None]))


@rule(
    "module.full-backward.fire.no-input-grad.timing",
    level=Level.MUST,
    sources=[HOOK.sentence(4)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=["module-backward-hooks-deferred-to-the-end", "backward-hook-waits-for-its-parameters"],
)
def test_fires_before_the_weights(backend: Backend, trace: Trace) -> None:
    """If no input requires grad, a full backward hook runs before the parameters' gradients are computed.

    It runs when the outputs' gradients are computed, and the parameters' gradients are computed from these.
    """
    module = weighted(backend)
    backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))
    backend.register_hook(module.weight, trace.saw("weight"))

    with catch_warnings(action="ignore"):
        backend.backward(backend.sum(backend.call(module, backend.tensor([1.0, 2.0]))))

    trace.expect("hook", "weight")

    function = backend.custom_function(lambda _ctx, _x, weight: weight * 3, lambda _ctx, grad: (None, computed(grad)))
    computed = trace.saw("computed", lambda grad: grad * 3)
    module = backend.module({"weight": backend.tensor([3.0, 5.0])}, lambda module, x: function(x, module.weight))
    backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))
    backend.register_hook(module.weight, trace.saw("weight"))

    with catch_warnings(action="ignore"):
        backend.backward(backend.sum(backend.call(module, backend.tensor([1.0, 2.0]))))

    trace.expect("hook", "computed", "weight")


@rule(
    "module.full-backward.fire.no-output-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(5)],
    needs=NEEDS,
    mutants=[
        "module-backward-hooks-called-for-nothing",
        "backward-hooks-skipped-if-an-output-needs-no-gradient",
        "backward-hooks-skipped-if-the-last-output-needs-no-gradient",
        "backward-hooks-wait-for-every-output",
        "full-backward-hooks-called-for-several-constant-outputs",
    ],
)
def test_silent_without_outputs(backend: Backend, trace: Trace) -> None:
    """If no output of a module requires grad, its full backward hooks do not run.

    They run if any output requires grad, even if no gradient comes to another output.
    """
    module = backend.module({}, lambda _module, x: backend.detach(x))
    pair = backend.module({}, lambda _module, x: (backend.detach(x), backend.detach(x * 2)))
    some = backend.module({}, lambda _module, x: (backend.detach(x), x * 2, x * 3, backend.detach(x)))
    for each, label in ((module, "none requires grad"), (pair, "neither requires grad"), (some, "some require grad")):
        backend.register_full_backward_hook(each, lambda *_, label=label: trace.log(label))

    backend.backward(backend.call(lambda x: backend.sum(module(x) * x), leaf(backend)))
    trace.expect()

    backend.backward(backend.call(lambda x: backend.sum(pair(x)[0] * pair(x)[1] * x), leaf(backend)))
    trace.expect()

    backend.backward(backend.call(lambda x: backend.sum(some(x)[1]), leaf(backend)))
    trace.expect("some require grad")


@rule(
    "module.full-backward.order",
    level=Level.MUST,
    sources=[HOOK.sentence(8, 15, 16, 17), GLOBAL.sentence(5)],
    needs=[*NEEDS, Capability.BACKWARD_HOOK_PREPEND, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "module-hooks-run-in-reverse-order",
        "backward-hook-prepend-ignored",
        "global-module-hooks-run-last",
        "prepended-hooks-as-registered",
    ],
)
def test_order(backend: Backend, trace: Trace) -> None:
    """Full backward hooks run in order, global, prepended (last first), others; each gets the previous result."""

    def times(factor):
        return lambda _, grad_input, _output: (trace.log("hook", factor), (grad_input[0] * factor,))[1]

    x, module = leaf(backend), doubling(backend)
    backend.register_full_backward_hook(module, times(2))
    backend.register_full_backward_hook(module, times(4))
    handle = backend.register_module_full_backward_hook(times(8))
    backend.register_full_backward_hook(module, times(3), prepend=True)
    backend.register_full_backward_hook(module, times(16), prepend=True)
    backend.register_full_backward_hook(module, times(1))
    backend.register_full_backward_hook(module, times(0.5), prepend=False)
    backend.register_full_backward_hook(module, times(0.25), prepend=True)

    backend.backward(backend.call(lambda x: backend.sum(module(x)), x))
    handle.remove()

    trace.expect(*(("hook", factor) for factor in (8, 0.25, 16, 3, 2, 4, 1, 0.5)))
    trace.expect_value("x.grad", [768.0, 768.0], backend.grad_of(x))


@rule(
    "module.full-backward.module-reused",
    level=Level.MUST,
    sources=[HOOK.sentence(2)],
    needs=NEEDS,
    mutants=[
        "backward-hook-lost-second-call",
        "own-backward-hooks-of-inner-modules-ignored",
        "forward-hooks-replace-nothing-beside-backward-hooks",
        "backward-hooks-skipped-beside-forward-hooks",
        "module-backward-hooks-replace-for-one-call-only",
    ],
)
def test_called_twice(backend: Backend, trace: Trace) -> None:
    """The full backward hook of a module that is called twice in a graph runs for each call.

    So it does if the module calls itself, and beside forward hooks; what it returns counts for each call.
    """

    def hook(_module, grad_input, grad_output):
        trace.log("hook", grad_output)
        return (grad_input[0] * 4, *grad_input[1:])

    module = doubling(backend)
    itself = backend.module({}, lambda module, x, *again: module(x * 3) * 5 if again else x * 2)
    for each in (module, itself):
        backend.register_full_backward_hook(each, hook)
        backend.register_forward_pre_hook(each, lambda _, args: (args[0] + 1, *args[1:]))
        backend.register_forward_hook(each, lambda _module, _args, output: output + 1)

    for forward, seen, total, gradient in (
        (lambda x: module(module(x)), [1.0, 8.0], 30.0, 64.0),
        (lambda x: itself(x, "again"), [5.0, 1.0], 182.0, 480.0),
    ):
        x = leaf(backend)
        loss = backend.call(lambda x, forward=forward: backend.sum(forward(x)), x)
        backend.backward(loss)

        trace.expect(*(("hook", [[number, number]]) for number in seen))
        trace.expect_value("loss", total, loss)
        trace.expect_value("x.grad", [gradient, gradient], backend.grad_of(x))


@rule(
    "module.full-backward.retain-graph",
    level=Level.MUST,
    sources=[HOOK.sentence(2)],
    needs=[*NEEDS, Capability.RETAIN_GRAPH],
    mutants=[
        "backward-hook-lost-second-call",
        "backward-hook-lost-second-pass",
        "full-backward-hook-gets-the-gradients-of-the-first-pass",
        "backward-hook-ignored-second-pass",
        "full-backward-hook-runs-in-one-pass-without-input-gradients",
        "full-backward-hook-gets-gradients-of-outputs-from-an-earlier-pass",
        "full-backward-hook-gets-gradients-of-inputs-from-an-earlier-pass",
    ],
)
def test_retained_graph(backend: Backend, trace: Trace) -> None:
    """Each backward through a retained graph runs a full backward hook again, with the gradients of that backward.

    What the hook returns counts each time. If no input requires grad, the hook runs again, too. For an input or output
    that a backward does not reach there is None or zeros, even if an earlier backward reached it.
    """

    def forward(x):
        y = module(x)
        return tuple(backend.sum(y * factor) for factor in (1, 3, 5))

    def hook(_module, grad_input, grad_output):
        trace.log("hook", [grad_input, grad_output])
        return (grad_input[0] * 10,)

    x, module = leaf(backend), doubling(backend)
    backend.register_full_backward_hook(module, hook)

    first, second, third = backend.call(forward, x)
    for loss in (first, second, second, third):
        backend.backward(loss, retain_graph=loss is not third)

    trace.expect(*(("hook", [[[2 * factor] * 2], [[factor] * 2]]) for factor in (1.0, 3.0, 3.0, 5.0)))
    trace.expect_value("x.grad", [240.0, 240.0], backend.grad_of(x))

    module = weighted(backend)
    backend.register_full_backward_hook(module, lambda _module, _input, grad_output: trace.log("hook", grad_output))
    losses = backend.call(forward, backend.tensor([1.0, 2.0]))
    with catch_warnings(action="ignore"):
        for loss in losses:
            backend.backward(loss, retain_graph=True)

    trace.expect(*(("hook", [[factor] * 2]) for factor in (1.0, 3.0, 5.0)))

    zeros = backend.tensor([0.0, 0.0])
    module = backend.module({}, lambda _module, x, y: (x * 2, y * 3))
    backend.register_full_backward_hook(
        module,
        lambda _, *both: trace.log("hook", [[zeros if grad is None else grad for grad in some] for some in both]),
    )
    for output in 2 * backend.call(module, leaf(backend), leaf(backend)):
        backend.backward(backend.sum(output), retain_graph=True)

    first, second = (
        [[[2.0, 2.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]]],
        [[[0.0, 0.0], [3.0, 3.0]], [[0.0, 0.0], [1.0, 1.0]]],
    )
    trace.expect(*[("hook", first), ("hook", second)] * 2)


@rule(
    "module.full-backward.retain-graph.nested",
    level=Level.MUST,
    sources=[HOOK.sentence(2)],
    needs=[*NEEDS, Capability.RETAIN_GRAPH, Capability.TENSOR_HOOKS],
    mutants=["passes-share-the-gradients-of-a-module"],
)
def test_nested_pass(backend: Backend, trace: Trace) -> None:
    """If a backward runs inside another backward, a full backward hook runs in both, with the gradients of each."""
    inner: list[Any] = []

    def once(_grad):
        if inner:
            backend.backward(inner.pop(), retain_graph=True)

    def inside(_module, x):
        y = x * 2
        backend.register_hook(y, once)
        return y

    def forward(x):
        y = module(x)
        return backend.sum(y), backend.sum(y * 3)

    module = backend.module({}, inside)
    backend.register_full_backward_hook(module, lambda _, *grads: trace.log("hook", grads))

    small, large = backend.call(forward, leaf(backend))
    inner.append(small)
    backend.backward(large)

    trace.expect(("hook", [[[2.0, 2.0]], [[1.0, 1.0]]]), ("hook", [[[6.0, 6.0]], [[3.0, 3.0]]]))


@rule(
    "module.full-backward.autograd-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 8)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    mutants=[
        "backward-hook-lost-autograd-grad",
        "backward-hook-ignored",
        "full-backward-hook-not-in-autograd-grad-without-input-gradients",
    ],
)
def test_autograd_grad(backend: Backend, trace: Trace) -> None:
    """A full backward hook runs in autograd.grad too, and autograd.grad returns what the hook returns.

    So it runs if no input of its module requires grad, but a weight does.
    """
    module = backend.module({}, lambda _module, constant, first, second: constant + first * 2 + second * 3)
    backend.register_full_backward_hook(module, lambda _, grads, _output: (None, grads[1] * 10, grads[2] * 100))

    for inputs in ([leaf(backend), leaf(backend) * 3], [leaf(backend) * 3, leaf(backend)]):
        loss = backend.sum(backend.call(module, backend.tensor([1.0, 2.0]), *inputs))
        gradients = backend.grad(loss, inputs)
        trace.expect_value("gradients", [[20.0, 20.0], [300.0, 300.0]], gradients)

    module = weighted(backend)
    backend.register_full_backward_hook(module, lambda _module, _input, grad_output: trace.log("hook", grad_output))
    with catch_warnings(action="ignore"):
        backend.grad(backend.sum(backend.call(module, backend.tensor([1.0, 2.0]))), [module.weight])

    trace.expect(("hook", [[1.0, 1.0]]))


@rule(
    "module.full-backward.registered-after-forward",
    level=Level.SHOULD,
    sources=[SPECIAL.sentence(4)],
    needs=NEEDS,
    mutants=[
        "backward-hooks-of-a-module-looked-up-late",
        "later-backward-hooks-of-a-module-looked-up-late",
        "hooks-between-calls-ignored",
    ],
)
def test_registered_late(backend: Backend, trace: Trace) -> None:
    """A full backward hook runs only for calls of its module after its registration.

    The notes say how torch does it, "As the forward is computed, hooks are registered", which is less than a promise.
    """
    module = doubling(backend)
    output = backend.call(module, leaf(backend))
    backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))

    backend.backward(backend.sum(output))
    trace.expect()
    output = backend.call(module, leaf(backend))
    backend.register_full_backward_hook(module, lambda *_: trace.log("another hook"))
    backend.backward(backend.sum(output))
    trace.expect("hook")
    backend.backward(backend.sum(backend.call(module, leaf(backend))))
    trace.expect("hook", "another hook")


@rule(
    "module.full-backward.handles",
    level=Level.MUST,
    sources=[HOOK.sentence(18)],
    needs=NEEDS,
    mutants=[
        "backward-hook-handle-removes-nothing",
        "backward-hook-handle-skips-one-call",
        "backward-hook-handle-removes-the-oldest",
        "backward-hook-handle-removes-all-equal",
        "backward-hook-handle-removes-the-first-equal",
        "handles-remove-equal-hooks-of-other-modules",
        "backward-and-global-hooks-cannot-remove-themselves",
    ],
)
def test_handle(backend: Backend, trace: Trace) -> None:
    """The handle of a full backward hook removes this hook, and no other, from all later calls of the module.

    If the same function is registered once more, that is another hook. A hook may also remove itself.
    """
    register = backend.register_full_backward_hook
    removed_in_place(trace, lambda: doubling(backend), register, partial(runs_backward, backend), removes_itself=True)


@rule(
    "module.mode.backward-hook.no-grad-forward",
    level=Level.MUST,
    sources=[NO_GRAD.sentence(4)],
    needs=[*NEEDS, Capability.GRAD_MODE],
    mutants=["module-with-backward-hooks-records"],
)
def test_without_recording(backend: Backend, trace: Trace) -> None:
    """Under no_grad what a module with a full backward hook computes is the same, and does not require grad."""
    module = weighted(backend)
    backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))

    with backend.no_grad():
        output = backend.call(module, leaf(backend))

    trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(output))
    trace.expect_value("output", [3.0, 10.0], output)


@rule(
    "module.full-backward.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an exception in a backward hook of a module leaves backward")],
    needs=NEEDS,
    mutants=["backward-hook-swallowed", "full-backward-hook-swallowed-without-input-gradients"],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception raised in a full backward hook reaches the caller of backward with its own type.

    An input of the module may require grad or not.
    """

    def fail(*_: object) -> None:
        raise UserError("from the hook")

    module = weighted(backend)
    backend.register_full_backward_hook(module, fail)
    for x in (leaf(backend), backend.tensor([1.0, 2.0])):
        loss = backend.sum(backend.call(module, x))

        with catch_warnings(action="ignore"), trace.raises_type(UserError, "from the hook"):
            backend.backward(loss)
