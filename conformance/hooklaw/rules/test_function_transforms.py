"""Hooks inside functions that func.grad, func.vjp and vmap transform, and around them."""

from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule

GRAD = docstring("torch.func.grad")
VJP = docstring("torch.func.vjp")
VMAP = docstring("torch.vmap")
HOOK = docstring("torch.Tensor.register_hook")
NO_ROOT = {"complex64": "a complex result needs a given gradient, and func.grad takes none"}


@rule(
    "func.grad.tensor-hook",
    level=Level.MUST,
    sources=[GRAD.sentence(1, 11), HOOK.sentence(2, 4)],
    needs=[Capability.FUNC, Capability.TENSOR_HOOKS],
    mutants=[
        "hooks-skipped-in-transforms",
        "hooks-in-transforms-return-nothing",
        "later-hooks-in-transforms-ignored",
        "hooks-of-a-transform-run-in-its-first-call-alone",
    ],
    except_under=NO_ROOT,
)
def test_grad(backend: Backend, trace: Trace) -> None:
    """A tensor hook that a function registers runs when func.grad differentiates it, and can replace the gradient.

    func.grad computes gradients, and a hook runs every time a gradient of its tensor is computed.
    """

    def function(x):
        y = x * 2
        backend.register_hook(x, trace.saw("argument", lambda grad: grad + 1))
        backend.register_hook(y, trace.saw("intermediate", lambda grad: grad * 10))
        backend.register_hook(y, trace.saw("after it", lambda grad: grad + 2))
        return backend.sum(y * 3)

    differentiated = backend.func_grad(function)
    for _ in range(3):
        gradient = differentiated(backend.tensor([1.0, 2.0]))

        trace.expect(("intermediate", [3.0, 3.0]), ("after it", [30.0, 30.0]), ("argument", [64.0, 64.0]))
        trace.expect_value("gradient", [65.0, 65.0], gradient)

    squares, numbers = backend.func_grad(lambda x: backend.sum(x * x)), ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0])
    gradients = [squares(backend.tensor(each)) for each in numbers]
    trace.expect_value("gradients of three calls", [[2.0, 4.0], [6.0, 8.0], [10.0, 12.0]], gradients)


@rule(
    "func.grad.nested.tensor-hook",
    level=Level.MUST,
    sources=[GRAD.sentence(2), HOOK.sentence(2, 4)],
    needs=[Capability.FUNC, Capability.TENSOR_HOOKS],
    mutants=[
        "hooks-skipped-in-transforms",
        "hooks-in-nested-transforms-return-nothing",
        "hooks-inside-three-transforms-return-nothing",
        "hooks-in-nested-transforms-return-constants",
    ],
    except_under=NO_ROOT,
)
def test_nested(backend: Backend, trace: Trace) -> None:
    """What a tensor hook returns inside a nested func.grad is differentiated by the outer one.

    The transform can be nested to compute higher derivatives, and what the hook returns is the gradient.
    """

    def outer(x):
        def inner(z):
            y = z * z
            backend.register_hook(y, trace.saw("hook", lambda grad: grad * 10))
            return backend.sum(y * x)

        return backend.sum(backend.func_grad(inner)(x))

    second = backend.func_grad(outer)(backend.tensor([1.0, 2.0]))

    trace.expect(("hook", [1.0, 2.0]))
    trace.expect_value("gradient", [40.0, 80.0], second)

    third = backend.func_grad(lambda x: backend.sum(backend.func_grad(outer)(x)))(backend.tensor([1.0, 2.0]))

    trace.expect(("hook", [1.0, 2.0]))
    trace.expect_value("third derivative", [40.0, 40.0], third)


@rule(
    "func.vjp.tensor-hook",
    level=Level.MUST,
    sources=[VJP.sentence(1, 8), HOOK.sentence(2, 4)],
    needs=[Capability.FUNC, Capability.TENSOR_HOOKS],
    mutants=["hooks-skipped-in-transforms", "hooks-of-vjp-run-once", "hooks-of-the-latest-vjp-alone"],
)
def test_vjp(backend: Backend, trace: Trace) -> None:
    """A tensor hook that a function registers runs each time the function that func.vjp returned is called.

    Each call computes the gradients for its own cotangents, and a hook runs every time that happens.
    """

    def function(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook", lambda grad: grad * 10))
        return y * x

    pullbacks = []
    for numbers, expected in (([3.0, 4.0], [18.0, 32.0]), ([5.0, 6.0], [50.0, 72.0]), ([1.0, 2.0], [2.0, 8.0])):
        output, pullback = backend.func_vjp(function, backend.tensor(numbers))
        trace.expect_value("output", expected, output)
        pullbacks.append((pullback, numbers))
    for factor, (pullback, numbers) in product((1.0, 2.0, 3.0), pullbacks):
        (gradient,) = pullback(backend.tensor([factor, factor]))

        trace.expect(("hook", [factor * number for number in numbers]))
        trace.expect_value("gradient", [factor * 22 * number for number in numbers], gradient)


@rule(
    "func.vjp.several-outputs",
    level=Level.MUST,
    sources=[VJP.sentence(12), HOOK.sentence(2, 4)],
    needs=[Capability.FUNC, Capability.TENSOR_HOOKS],
    mutants=["cotangents-of-vjp-turned-round", "vjp-of-the-first-output-alone", "vjp-of-the-outer-outputs-alone"],
)
def test_several_outputs(backend: Backend, trace: Trace) -> None:
    """func.vjp takes a cotangent for each output of its function, and the hooks of each output get its own.

    The hooks replace their gradients by multiples that differ, so cotangents at the wrong output change the gradient.
    """

    def function(x):
        first, second, third = x * 2, x * 3, x * 4
        backend.register_hook(first, trace.saw("first", lambda grad: grad * 10))
        backend.register_hook(second, trace.saw("second", lambda grad: grad * 100))
        backend.register_hook(third, trace.saw("third", lambda grad: grad * 4))
        return first, second, third

    outputs, pullback = backend.func_vjp(function, backend.tensor([1.0, 2.0]))
    (gradient,) = pullback(tuple(map(backend.tensor, ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]))))

    trace.expect_value("outputs", [[2.0, 4.0], [3.0, 6.0], [4.0, 8.0]], [*outputs])
    trace.expect_in_any_order("first", "second", "third")
    trace.expect_value("gradient", [1000.0, 1336.0], gradient)


@rule(
    "func.vjp.structures",
    level=Level.MUST,
    sources=[VJP.sentence(13)],
    needs=[Capability.FUNC],
    mutants=[
        "cotangents-of-vjp-turned-round",
        "vjp-finds-no-output-in-structures",
        "vjp-finds-no-output-in-dicts-of-lists",
    ],
)
def test_structures(backend: Backend, trace: Trace) -> None:
    """func.vjp gives the outputs of its function in their structure of dicts and lists, and takes cotangents in it."""
    x = backend.tensor([1.0, 2.0])
    outputs, pullback = backend.func_vjp(lambda x: {"several": [x * 2, x * 3], "one": x * x}, x)
    (gradient,) = pullback(
        {"several": [backend.tensor([1.0, 2.0]), backend.tensor([3.0, 4.0])], "one": backend.tensor([5.0, 6.0])}
    )

    trace.expect_value("outputs", [[[2.0, 4.0], [3.0, 6.0]], [1.0, 4.0]], [outputs["several"], outputs["one"]])
    trace.expect_value("gradient", [21.0, 40.0], gradient)

    outputs, pullback = backend.func_vjp(lambda x: [{"double": x * 2, "triple": x * 3}, x * x], x)
    cotangents = [*map(backend.tensor, ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]))]
    (gradient,) = pullback([{"double": cotangents[0], "triple": cotangents[1]}, cotangents[2]])
    parts = [outputs[0]["double"], outputs[0]["triple"], outputs[1]]
    trace.expect_value("outputs in a list", [[2.0, 4.0], [3.0, 6.0], [1.0, 4.0]], parts)
    trace.expect_value("gradient of those in a list", [21.0, 40.0], gradient)


@rule(
    "func.grad.no-grad",
    level=Level.MUST,
    sources=[GRAD.sentence(20, 22)],
    needs=[Capability.FUNC, Capability.GRAD_MODE],
    mutants=[
        "no-grad-ignored-in-transforms",
        "transforms-heed-the-no-grad-around",
        "no-grad-inside-another-ignored-in-transforms",
        "no-grad-ignored-in-nested-transforms",
        "no-grad-ignored-in-later-calls-of-a-gradient-function",
        "transforms-heed-a-later-no-grad-around",
        "gradient-functions-heed-the-no-grad-around-their-call",
    ],
    except_under=NO_ROOT,
)
def test_grad_under_no_grad(backend: Backend, trace: Trace) -> None:
    """func.grad respects no_grad inside its function, and not no_grad around the call."""

    def function(x):
        with backend.no_grad():
            constant = x * x
        return backend.sum(x * 3 - constant)

    x = backend.tensor([1.0, 2.0])
    made = backend.func_grad(function)
    for _ in range(3):
        trace.expect_value("gradient, no_grad inside", [3.0, 3.0], made(x))
        with backend.no_grad():
            gradients = [made(x), backend.func_grad(function)(x)]
        trace.expect_value("gradients, no_grad around too", [[3.0, 3.0]] * 2, gradients)

    nested = backend.func_grad(lambda x: backend.sum(backend.func_grad(function)(x) * x))
    trace.expect_value("gradient, no_grad inside two transforms", [3.0, 3.0], nested(x))
    with backend.no_grad():
        gradient = nested(x)
    trace.expect_value("gradient, no_grad around two transforms too", [3.0, 3.0], gradient)


@rule(
    "func.vjp.no-grad",
    level=Level.MUST,
    sources=[VJP.sentence(19, 21)],
    needs=[Capability.FUNC, Capability.GRAD_MODE],
    mutants=[
        "no-grad-ignored-in-transforms",
        "transforms-heed-the-no-grad-around",
        "no-grad-inside-another-ignored-by-vjp",
        "functions-of-vjp-heed-the-no-grad-around-their-call",
        "vjp-under-no-grad-is-used-there-alone",
    ],
)
def test_vjp_under_no_grad(backend: Backend, trace: Trace) -> None:
    """func.vjp respects no_grad inside its function, and not no_grad around the call."""

    def function(x):
        with backend.no_grad():
            constant = x * x
        return x * 3 - constant

    x, ones = backend.tensor([1.0, 2.0]), backend.tensor([1.0, 1.0])
    trace.expect_value("gradient, no_grad inside", [[3.0, 3.0]], backend.func_vjp(function, x)[1](ones))
    for label, differentiated, expected in (
        ("around", lambda x: x * x, [[2.0, 4.0]]),
        ("around and inside", function, [[3.0, 3.0]]),
    ):
        _, outside = backend.func_vjp(differentiated, x)
        with backend.no_grad():
            _, inside = backend.func_vjp(differentiated, x)
            gradients = [inside(ones), outside(ones)]
        trace.expect_value(f"gradients, no_grad {label}", [expected] * 3, [*gradients, inside(ones)])


@rule(
    "func.vjp.multi-grad",
    level=Level.MUST,
    sources=[VJP.sentence(1), docstring("torch.autograd.graph.register_multi_grad_hook").sentence(3, 5)],
    needs=[Capability.FUNC, Capability.MULTI_GRAD],
    mutants=["multi-grad-hooks-skipped-in-transforms", "multi-grad-hooks-of-vjp-run-once"],
)
def test_multi_grad(backend: Backend, trace: Trace) -> None:
    """A multi-grad hook that a function registers runs once in a call of what func.vjp returned, with all gradients.

    The call computes the gradients of all the hook's tensors.
    """

    def function(x):
        y, z = x * 2, x * 3
        backend.register_multi_grad_hook([y, z], trace.saw("hook"))
        return y + z * 5

    _, pullback = backend.func_vjp(function, backend.tensor([1.0, 2.0]))
    for _ in range(2):
        gradients = pullback(backend.tensor([1.0, 10.0]))

        trace.expect(("hook", [[1.0, 10.0], [5.0, 50.0]]))
        trace.expect_value("gradients", [[17.0, 170.0]], gradients)


@rule(
    "func.vjp.node-hooks",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("inside a transform a tensor has a grad_fn, whose hooks run")],
    needs=[Capability.FUNC, Capability.NODES, Capability.NODE_HOOKS],
    mutants=[
        "node-hooks-skipped-in-transforms",
        "node-hooks-of-vjp-run-once",
    ],
)
def test_node_hooks(backend: Backend, trace: Trace) -> None:
    """Hooks that a function registers on a Node of its own run in a call of what func.vjp returned."""

    def function(x):
        y = x * 2
        backend.node_register_prehook(backend.grad_fn(y), trace.saw("pre-hook"))
        backend.node_register_hook(backend.grad_fn(y), trace.saw("post-hook"))
        return y * 3

    _, pullback = backend.func_vjp(function, backend.tensor([1.0, 2.0]))
    for _ in range(2):
        pullback(backend.tensor([1.0, 1.0]))

        trace.expect(("pre-hook", [[3.0, 3.0]]), "post-hook")


@rule(
    "func.vjp.hooks-outside",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the function has tensors of its own, and only a pass outside reaches those that were given")],
    needs=[Capability.FUNC, Capability.TENSOR_HOOKS],
    mutants=["transforms-run-the-hooks-outside", "results-of-transforms-are-constants"],
)
def test_hooks_outside(backend: Backend, trace: Trace) -> None:
    """Hooks on an argument of func.vjp, or on a leaf that its function captures, run only in a backward outside."""
    x, w = (backend.tensor(values, requires_grad=True) for values in ([1.0, 2.0], [5.0, 7.0]))
    y = x * 3
    for label, tensor in (("leaf", x), ("computed", y), ("captured leaf", w)):
        backend.register_hook(tensor, trace.saw(label))
    z = backend.tensor([1.0, 1.0])
    for _ in range(3):
        gradients = backend.func_vjp(lambda x, y, z: x * x * y * w * z, x, y, z)[1](backend.tensor([1.0, 1.0]))

        trace.expect()
        trace.expect_value("gradients", [[30.0, 168.0], [5.0, 28.0], [15.0, 168.0]], gradients)
    backend.backward(gradients[0], backend.tensor([1.0, 1.0]))
    trace.expect_in_any_order("leaf", "computed", "captured leaf")
    trace.expect_value("gradients outside", [[60.0, 168.0], [6.0, 24.0]], [backend.grad_of(x), backend.grad_of(w)])


@rule(
    "func.vjp.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the transform ends with the exception, and leaves no state behind")],
    needs=[Capability.FUNC, Capability.TENSOR_HOOKS],
    mutants=["transforms-fail-after-an-exception", "hooks-in-transforms-lost-after-an-exception"],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception that a hook raises inside func.vjp reaches the caller, and a transform afterwards works."""

    def fail(_grad: object) -> None:
        raise KeyError("of the hook")

    def function(x):
        y = x * 2
        backend.register_hook(y, fail)
        return y * 3

    x, ones = backend.tensor([1.0, 2.0]), backend.tensor([1.0, 1.0])
    with trace.raises_type(KeyError, "of the hook"):
        backend.func_vjp(function, x)[1](ones)

    trace.expect_value("gradients afterwards", [[2.0, 4.0]], backend.func_vjp(lambda x: x * x, x)[1](ones))

    def hooked(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook", lambda grad: grad * 10))
        return y * 3

    trace.expect_value("gradients with a hook", [[60.0, 60.0]], backend.func_vjp(hooked, x)[1](ones))
    trace.expect(("hook", [3.0, 3.0]))


@rule(
    "func.vjp.disabled-hooks",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a transform needs no saved-tensor hooks, and restores the message of who disabled them")],
    needs=[Capability.FUNC, Capability.SAVED_TENSOR_HOOKS, Capability.DISABLE_SAVED_TENSOR_HOOKS],
    mutants=["transforms-need-saved-tensor-hooks", "transforms-end-the-disabling"],
    except_under={"packed": "the rule forbids the hooks that the condition brings"},
)
def test_disabled(backend: Backend, trace: Trace) -> None:
    """func.vjp works inside disable_saved_tensors_hooks, and after it hooks are disabled with the same message."""
    x, ones = backend.tensor([1.0, 2.0]), backend.tensor([1.0, 1.0])

    def use_hooks() -> Any:
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed):
            return x * x

    with backend.disable_saved_tensors_hooks("no hooks here"):
        trace.expect_value("gradients", [[2.0, 4.0]], backend.func_vjp(lambda x: x * x, x)[1](ones))
        with trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, "no hooks here"):
            use_hooks()
    trace.expect_value("after the context", [1.0, 4.0], use_hooks())


@rule(
    "func.vjp.saved-tensor-hooks",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the error says that saved-tensor hooks are not yet supported")],
    needs=[Capability.FUNC, Capability.SAVED_TENSOR_HOOKS],
    mutants=["transforms-suspend-saved-tensor-hooks"],
)
def test_saved_tensor_hooks(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks inside the function of func.vjp, or around the call, may be an error."""

    def packing(x):
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed):
            return x * x

    x = backend.tensor([1.0, 2.0])
    with trace.raises(ErrorKind.SAVED_HOOKS_DISABLED):
        backend.func_vjp(packing, x)
    with (
        trace.raises(ErrorKind.SAVED_HOOKS_DISABLED),
        backend.saved_tensors_hooks(backend.detach, lambda packed: packed),
    ):
        backend.func_vjp(lambda x: x * x, x)


@rule(
    "func.vmap.tensor-hook",
    level=Level.MUST,
    sources=[GRAD.sentence(1, 16), HOOK.sentence(4)],
    needs=[Capability.FUNC, Capability.VMAP, Capability.TENSOR_HOOKS],
    mutants=["hooks-in-transforms-return-nothing"],
    except_under=NO_ROOT,
)
def test_per_sample(backend: Backend, trace: Trace) -> None:
    """What a tensor hook returns inside func.grad under vmap is the gradient of each sample.

    The composition computes a gradient for each sample, and a hook's result is used in place of the gradient.
    """

    def function(x):
        y = x * 2
        backend.register_hook(y, lambda grad: grad * 10)
        return backend.sum(y * y)

    mapped, samples = backend.vmap(backend.func_grad(function)), [[1.0, 2.0], [3.0, 4.0]]
    for batch in (samples, samples[::-1], samples):
        gradients = [[80.0 * number for number in sample] for sample in batch]
        trace.expect_value("gradients", gradients, mapped(backend.tensor(batch)))


@rule(
    "func.vmap.jacobian",
    level=Level.MUST,
    sources=[VMAP.sentence(35), HOOK.sentence(2, 4)],
    needs=[Capability.VMAP, Capability.AUTOGRAD_GRAD, Capability.SEED_GRADIENT, Capability.TENSOR_HOOKS],
    mutants=[
        "vmap-calls-once-per-sample",
        "vmap-transposes",
        "hooks-return-nothing-in-batches",
        "hooks-of-leaves-return-nothing-in-vmap",
        "later-hooks-return-nothing-in-vmap",
        "vmap-repeats-the-gradient-of-the-first-input",
    ],
)
def test_jacobian(backend: Backend, trace: Trace) -> None:
    """autograd.grad under vmap gives a Jacobian in one call, with what a hook returns in each row.

    One call computes the gradient of the hook's tensor once, so the hook runs once, for all rows.
    """

    def hook(grad):
        trace.log("hook")
        return grad * 10

    def function(x, w):
        y = x * 2
        backend.register_hook(y, hook)
        backend.register_hook(y, lambda grad: grad * 3)
        z = y * backend.sum(x) + w * w
        backend.register_hook(w, lambda grad: grad * 7)
        return z

    x, w = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 5.0], requires_grad=True)
    z = backend.call(function, x, w)

    def row(unit):
        trace.log("call")
        of_x, of_w = backend.grad(z, [x, w], unit)
        return of_x + of_w

    jacobian = backend.vmap(row)(backend.tensor([[1.0, 0.0], [0.0, 1.0]]))

    trace.expect("call", "hook")
    trace.expect_value("sum of the Jacobians", [[224.0, 2.0], [4.0, 254.0]], jacobian)
