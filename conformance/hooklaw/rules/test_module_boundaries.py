"""The boundary of a module with backward hooks: views of its inputs and outputs."""

from collections.abc import Callable
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import Pair, weighted

HOOK = docstring("torch.nn.Module.register_full_backward_hook")
NEEDS = [Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS]


def doubling(backend: Backend) -> Any:
    """Make a module that doubles its input."""
    return backend.module({}, lambda _module, x: x * 2)


def leaf(backend: Backend) -> Any:
    """Make the input of a module."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


def expect_views(backend: Backend, trace: Trace, register: Callable[..., Any]) -> None:
    """Expect that a hook of this kind makes its module pass views in and out."""
    inside: list[Any] = []

    def forward(_module, *inputs: Any):
        inside[:] = [*inputs, *(each * 2 for each in inputs)]
        return tuple(inside[3:])

    given, hooked = [leaf(backend), leaf(backend), backend.tensor([5.0, 6.0])], backend.module({}, forward)
    register(hooked, lambda *_: None)
    outputs = backend.call(hooked, *given)

    labels = [f"{which} {kind}" for kind in ("input", "output") for which in ("first", "second", "constant")]
    for label, before, after in zip(labels, [*given, *inside[3:]], [*inside[:3], *outputs], strict=True):
        trace.expect_value(f"{label} is the same tensor", expected=False, observed=before is after)
        shared = backend.data_ptr(before) == backend.data_ptr(after)
        trace.expect_value(f"{label} has the same data", expected=True, observed=shared)
    for label, tensor in zip(labels, inside[:2], strict=False):
        trace.expect_value(f"{label} is a leaf inside", expected=False, observed=backend.is_leaf(tensor))

    for outputs in (lambda y: (y,), lambda y: ("text", y, 7)):
        module = backend.module({}, lambda _module, x, outputs=outputs: outputs(x * 2))
        register(module, lambda *_: None)
        expected = trace.snapshot(outputs(backend.tensor([2.0, 4.0])))
        trace.expect_value("outputs of which one is a tensor", expected, backend.call(module, leaf(backend)))


@rule(
    "module.full-backward.views",
    level=Level.MUST,
    sources=[HOOK.sentence(11, 12)],
    needs=[*NEEDS, Capability.STORAGE],
    mutants=[
        "forward-is-given-copies",
        "forward-is-given-what-the-caller-gave",
        "forward-is-given-constants-themselves",
        "tuple-of-one-output-unpacked-beside-backward-hooks",
        "outputs-that-are-no-tensors-lost-beside-backward-hooks",
    ],
)
def test_views(backend: Backend, trace: Trace) -> None:
    """If a module has a full backward hook, and an input requires grad, its inputs and outputs are passed as views.

    The docstring says it of every call; if no input requires grad, torch passes the inputs as they are.
    Forward gets a view of each input, and the caller one of each output. A tuple of one output stays a tuple, and what
    is not a tensor stays as it is, since the docstring speaks of each tensor.
    """
    expect_views(backend, trace, backend.register_full_backward_hook)


@rule(
    "module.full-backward-pre.views",
    level=Level.MUST,
    sources=[docstring("torch.nn.Module.register_full_backward_pre_hook").sentence(7, 8)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_PRE_HOOKS, Capability.STORAGE],
    mutants=[
        "forward-is-given-copies",
        "forward-is-given-what-the-caller-gave",
        "forward-is-given-constants-themselves",
        "tuple-of-one-output-unpacked-beside-backward-hooks",
        "outputs-that-are-no-tensors-lost-beside-backward-hooks",
    ],
)
def test_views_for_pre_hooks(backend: Backend, trace: Trace) -> None:
    """If a module has a backward pre-hook, and an input requires grad, its inputs and outputs are passed as views.

    The docstring says it of every call; if no input requires grad, torch passes the inputs as they are.
    Forward gets a view of each input, and the caller one of each output. A tuple of one output stays a tuple, and what
    is not a tensor stays as it is, since the docstring speaks of each tensor.
    """
    expect_views(backend, trace, backend.register_full_backward_pre_hook)


@rule(
    "module.full-backward.output-dict",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a warning at the call says that the output must be a tensor or a tuple of tensors")],
    needs=NEEDS,
    mutants=["module-backward-hooks-called-for-nothing", "warnings-of-a-call-are-lost"],
)
def test_output_in_a_container(backend: Backend, trace: Trace) -> None:
    """If the output is not a tensor or a tuple, a full backward hook does not run, and the module's call warns."""
    module = backend.module({}, lambda _module, x, container: container(x * 2))
    backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))

    for container in (lambda y: [y], lambda y: {"y": y}):
        with catch_warnings(record=True, action="always") as caught:
            output = backend.call(lambda x, container=container: module(x, container), leaf(backend))
        backend.backward(backend.sum(output["y"] if isinstance(output, dict) else output[0]))
        trace.expect_value("warned", expected=True, observed=bool(caught))

    trace.expect()


@rule(
    "module.full-backward.namedtuple-output",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a named tuple is returned as a named tuple")],
    needs=NEEDS,
    mutants=["namedtuple-becomes-a-tuple"],
)
def test_named_tuple(backend: Backend, trace: Trace) -> None:
    """An output that is a named tuple may keep its type if its module has a full backward hook."""
    module = backend.module({}, lambda _module, x: Pair(x * 2, x * 3))
    backend.register_full_backward_hook(module, lambda *_: None)

    output = backend.call(module, leaf(backend))

    trace.expect_value("type of the output", "Pair", type(output).__name__)


@rule(
    "module.full-backward.unused-output",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the hook gets None, not zeros, for an output that nothing used")],
    needs=NEEDS,
    mutants=["unused-outputs-have-zeros"],
)
def test_unused_output(backend: Backend, trace: Trace) -> None:
    """The gradient of an unused output that a full backward hook gets may be None."""
    module = backend.module({}, lambda _module, x: (x * 2, x * 3))
    backend.register_full_backward_hook(module, lambda _, *grads: trace.log("hook", grads))
    one = [1.0, 1.0]

    for used, (factor, outputs) in enumerate(((2.0, [one, None]), (3.0, [None, one]))):
        backend.backward(backend.call(lambda x, used=used: backend.sum(module(x)[used]), leaf(backend)))
        trace.expect(("hook", [[[factor, factor]], outputs]))


@rule(
    "module.full-backward.kwargs-only",
    level=Level.MAY,
    sources=[HOOK.sentence(4, 9)],
    needs=NEEDS,
    mutants=["module-hooks-silent-without-input-gradients"],
)
def test_keywords_alone(backend: Backend, trace: Trace) -> None:
    """A module called with keyword arguments alone may count as a module without inputs, even if they require grad.

    Its full backward hooks then run for the gradients of the outputs. That grad_input ignores keywords is another rule.
    """
    module = doubling(backend)
    backend.register_full_backward_hook(module, lambda _module, _input, grad_output: trace.log("hook", grad_output))

    with catch_warnings(action="ignore"):
        backend.backward(backend.call(lambda x: backend.sum(module(x=x)), leaf(backend)))

    trace.expect(("hook", [[1.0, 1.0]]))


@rule(
    "module.full-backward.no-tensor-input",
    level=Level.MUST,
    sources=[HOOK.sentence(4)],
    needs=NEEDS,
    mutants=[
        "module-hooks-silent-without-input-gradients",
        "module-hooks-without-inputs-get-the-first-output-alone",
        "module-hooks-without-inputs-run-for-each-output",
    ],
)
def test_no_inputs(backend: Backend, trace: Trace) -> None:
    """A full backward hook of a module that is called without inputs runs for the gradients of the outputs.

    If no input requires grad, the docstring says, the hook fires for the outputs: here there is no input at all.
    """
    module = backend.module({"weight": backend.tensor([3.0, 5.0])}, lambda module: module.weight * 2)
    backend.register_full_backward_hook(module, lambda _module, _input, grad_output: trace.log("hook", grad_output))

    with catch_warnings(action="ignore"):
        backend.backward(backend.call(lambda: backend.sum(module())))

    trace.expect(("hook", [[1.0, 1.0]]))
    trace.expect_value("weight.grad", [2.0, 2.0], backend.grad_of(module.weight))

    of_two = backend.module(
        {"weight": backend.tensor([3.0, 5.0])}, lambda module: (module.weight * 2, module.weight * 3)
    )
    backend.register_full_backward_hook(of_two, lambda _module, _input, grad_output: trace.log("hook", grad_output))

    def total():
        first, second = of_two()
        return backend.sum(first) + backend.sum(second * 7)

    with catch_warnings(action="ignore"):
        backend.backward(backend.call(total))

    trace.expect(("hook", [[1.0, 1.0], [7.0, 7.0]]))
    trace.expect_value("weight.grad", [23.0, 23.0], backend.grad_of(of_two.weight))


@rule(
    "module.full-backward.none-for-nograd-tensor",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the hook gets zeros, not None, for such an input")],
    needs=NEEDS,
    mutants=["constants-have-no-gradient"],
)
def test_constant_among_the_inputs(backend: Backend, trace: Trace) -> None:
    """The gradient of an input tensor that does not require grad may be zeros if another input requires grad."""
    module = backend.module({}, lambda _module, x, y: x * 2 + y * 3)
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: trace.log("inputs", grad_input))

    backend.backward(backend.sum(backend.call(module, leaf(backend), backend.tensor([5.0, 6.0]))))

    trace.expect(("inputs", [[2.0, 2.0], [0.0, 0.0]]))


@rule(
    "module.full-backward.weight-only-grad",
    level=Level.MAY,
    sources=[HOOK.sentence(3)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    mutants=["module-backward-hooks-called-for-nothing", "full-backward-hook-at-the-outputs"],
)
def test_weight_alone(backend: Backend, trace: Trace) -> None:
    """A full backward hook may not run if only a weight's gradient is computed, and not the input's."""
    module = backend.module({"weight": backend.tensor([3.0, 5.0])}, lambda module, x: x * module.weight)
    backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))

    backend.grad(backend.sum(backend.call(module, leaf(backend))), [module.weight])

    trace.expect()


@rule(
    "module.full-backward.removed-after-forward",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the hooks of a call are those at the call, whatever is removed later")],
    needs=NEEDS,
    mutants=["backward-hooks-of-a-module-looked-up-late"],
)
def test_removed_late(backend: Backend, trace: Trace) -> None:
    """A full backward hook that is removed after the call of its module may run in the backward of that call."""
    module = doubling(backend)
    handle = backend.register_full_backward_hook(module, lambda *_: trace.log("hook"))
    output = backend.call(module, leaf(backend))
    handle.remove()

    backend.backward(backend.sum(output))

    trace.expect("hook")


@rule(
    "module.full-backward.double-backward",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a gradient that comes to a module's input on another way than its output calls no hook")],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["module-backward-hooks-called-for-nothing"],
)
def test_gradient_of_a_gradient(backend: Backend, trace: Trace) -> None:
    """In a double backward, a gradient that reaches a module's input by that alone may call no full backward hook."""
    x, module = leaf(backend), backend.module({}, lambda _module, x: x * x)
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: trace.log("hook", grad_input))

    (grad,) = backend.grad(backend.sum(backend.call(module, x)), [x], create_graph=True)
    trace.expect(("hook", [[2.0, 4.0]]))
    backend.backward(backend.sum(grad))

    trace.expect()


@rule(
    "module.full-backward.create-graph",
    level=Level.MUST,
    sources=[HOOK.sentence(8), docstring("torch.autograd.grad").sentence(18)],
    needs=[*NEEDS, Capability.MODULE_BACKWARD_PRE_HOOKS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=[
        "results-of-module-backward-hooks-are-constants",
        "later-results-of-module-backward-hooks-are-constants",
        "later-results-of-backward-pre-hooks-are-constants",
        "results-of-backward-pre-hooks-are-constants-without-input-gradients",
        "create-graph-ignored",
    ],
)
def test_differentiable(backend: Backend, trace: Trace) -> None:
    """A gradient computed with create_graph can be differentiated through what module backward hooks return.

    What a hook returns is used in place of the gradient in subsequent computations, and of these create_graph makes a
    graph.
    """
    x, inner, outer = (backend.tensor([number], requires_grad=True) for number in (2.0, 3.0, 5.0))
    module = doubling(backend)
    backend.register_full_backward_pre_hook(module, lambda _, grad_output: (grad_output[0] * outer,))
    backend.register_full_backward_hook(module, lambda _, grad_input, _output: (grad_input[0] * inner,))

    (first,) = backend.grad(backend.call(lambda x: backend.sum(module(x)), x), [x], create_graph=True)
    second = backend.grad(backend.sum(first), [outer, inner])

    trace.expect_value("first derivative", [30.0], first)
    trace.expect_value("of the factors", [[6.0], [10.0]], second)

    x, y, factor, outer = (backend.tensor([number], requires_grad=True) for number in (2.0, 3.0, 5.0, 7.0))
    module = backend.module({}, lambda _module, x, y: (x * 2, y * 3))
    backend.register_full_backward_pre_hook(module, lambda _, grads: (grads[0] * outer, grads[1] * outer))
    backend.register_full_backward_hook(module, lambda _, grads, _output: (grads[0] * factor, grads[1] * factor))

    first, second = backend.call(module, x, y)
    both = backend.grad(backend.sum(first + second), [x, y], create_graph=True)
    second = backend.grad(backend.sum(both[0] + both[1] * 10), [factor, outer])

    trace.expect_value("gradients of both inputs", [[70.0], [105.0]], [*both])
    trace.expect_value("of the factors of both", [[224.0], [160.0]], second)

    module, factor = weighted(backend), leaf(backend)
    backend.register_full_backward_pre_hook(module, lambda _, grads: (grads[0] * factor,))
    total = backend.sum(backend.call(module, backend.tensor([5.0, 7.0])))
    (first,) = backend.grad(total, [module.weight], create_graph=True)
    (second,) = backend.grad(backend.sum(first), [factor])

    trace.expect_value("gradient of a weight", [5.0, 14.0], first)
    trace.expect_value("of the factor of a weight's", [5.0, 7.0], second)


@rule(
    "module.full-backward.views.requires-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(11)],
    needs=NEEDS,
    mutants=["inputs-of-modules-all-require-grad"],
)
def test_inputs_keep_their_flag(backend: Backend, trace: Trace) -> None:
    """In a module with a full backward hook an argument of forward requires grad exactly if it does outside.

    The docstring says that forward gets a view of each tensor, and a view requires grad if its tensor does.
    """

    def forward(_module, *args: Any):
        trace.log("require grad", [backend.requires_grad(each) for each in args])
        return args[0] * args[1]

    x, constant = leaf(backend), backend.tensor([3.0, 4.0])
    for given in ((x, constant), (constant, x), (constant, constant)):
        module = backend.module({}, forward)
        backend.register_full_backward_hook(module, lambda *_: None)
        module(*given)

        trace.expect(("require grad", [each is x for each in given]))
