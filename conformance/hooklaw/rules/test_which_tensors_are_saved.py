"""Which tensors operations save, and so pass to a pack hook."""

from collections.abc import Callable
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.lifetimes import kinds_of_node

SAVED = notes("autograd", "saved-tensors")
HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
SAVE_FOR_BACKWARD = docstring("torch.autograd.function.FunctionCtx.save_for_backward")


@rule(
    "saved-tensor.which.mul.both",
    level=Level.MUST,
    sources=[SAVED.sentence(5), HOOKS.sentence(3)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["second-saved-tensor-not-packed"],
)
def test_both_factors(backend: Backend, trace: Trace) -> None:
    """A product of two tensors that require grad packs both factors: the gradient of each needs the other."""

    def forward(a, b):
        with backend.saved_tensors_hooks(trace.saw("both", backend.detach), lambda packed: packed):
            both = a * b
        return backend.sum(both)

    a = backend.tensor([2.0], requires_grad=True)
    b = backend.tensor([3.0], requires_grad=True)
    backend.backward(backend.call(forward, a, b))

    packed = trace.values("both")
    trace.expect_value("were packed", [True, True], [factor in packed for factor in ([2.0], [3.0])])
    trace.expect_value("gradients", [[3.0], [2.0]], [backend.grad_of(a), backend.grad_of(b)])


@rule(
    "saved-tensor.which.mul",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[SAVED.sentence(5), observed("tensors are saved as needed, and nothing else is")],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["every-operand-saved"],
)
def test_only_what_is_needed(backend: Backend, trace: Trace) -> None:
    """A product saves both factors, once, if both require grad; if one does, it saves only the other factor.

    The notes say that tensors are saved as needed; that nothing else is saved, they do not say.
    """

    def forward(a, b, constant):
        with backend.saved_tensors_hooks(trace.saw("both", backend.detach), lambda packed: packed):
            both = a * b
        with backend.saved_tensors_hooks(trace.saw("single", backend.detach), lambda packed: packed):
            single = a * constant + constant * a
        return backend.sum(both + single)

    a = backend.tensor([2.0], requires_grad=True)
    b = backend.tensor([3.0], requires_grad=True)
    backend.backward(backend.call(forward, a, b, backend.tensor([5.0])))

    trace.expect_value("saved of a * b", [[2.0], [3.0]], sorted(trace.values("both")))
    trace.expect_value("saved of a * constant and constant * a", [[5.0], [5.0]], trace.values("single"))
    trace.expect_value("a.grad", [13.0], backend.grad_of(a))


@rule(
    "saved-tensor.which.constants",
    level=Level.MUST,
    sources=[HOOKS.sentence(3), SAVED.sentence(5)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["constants-not-packed"],
)
def test_constants(backend: Backend, trace: Trace) -> None:
    """A tensor that does not require grad is packed like any other if an operation saves it.

    pack is called every time an operation saves a tensor, and the gradient of a product needs the other factor.
    """

    def forward(x, constant):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), trace.saw("unpack", lambda packed: packed)):
            return backend.sum(x * constant)

    x = backend.tensor([2.0], requires_grad=True)
    backend.backward(backend.call(forward, x, backend.tensor([5.0])))

    for label in ("pack", "unpack"):
        trace.expect_value(f"{label} got the constant", expected=True, observed=[5.0] in trace.values(label))


@rule(
    "saved-tensor.which.in-place",
    level=Level.MUST,
    sources=[HOOKS.sentence(3, 6)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.IN_PLACE, Capability.SIN_COS],
    mutants=[
        "saves-of-in-place-operations-not-packed",
        "saves-of-products-in-place-not-packed",
    ],
)
def test_in_place_operation(backend: Backend, trace: Trace) -> None:
    """What an in-place operation saves is packed, and what unpack returns is used.

    pack is called every time an operation saves a tensor. The cosine here is one that saves its input, as the verb
    says, and the gradient of a product needs the factor.
    """

    def forward(x, change):
        y = x * 1
        with backend.saved_tensors_hooks(
            trace.saw("pack", backend.detach), trace.saw("unpack", lambda packed: packed * 0)
        ):
            change(y)
        return backend.sum(y)

    x = backend.tensor([1.0], requires_grad=True)
    backend.backward(backend.call(lambda x: forward(x, backend.cos_), x))

    trace.expect(("pack", [1.0]), ("unpack", [1.0]))
    trace.expect_value("x.grad", [0.0], backend.grad_of(x))

    x, factor = backend.tensor([1.0], requires_grad=True), backend.tensor([5.0]) * 1
    backend.backward(backend.call(lambda x: forward(x, lambda y: backend.mul_(y, factor)), x))

    trace.expect_value("the factor was packed", expected=True, observed=[5.0] in trace.values("pack"))
    trace.expect_value("x.grad of the product", [0.0], backend.grad_of(x))


@rule(
    "saved-tensor.which.none",
    level=Level.MUST,
    sources=[notes("autograd", "setting-requires-grad").sentence(3), HOOKS.sentence(3)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=["saved-without-grad", "custom-functions-pack-without-grad"],
)
def test_nothing_recorded(backend: Backend, trace: Trace) -> None:
    """An operation none of whose inputs require grad is not recorded, so it saves nothing."""

    def forward(x, constant):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), lambda packed: packed):
            factor = backend.exp(constant * square(constant))
        return backend.sum(x * factor)

    square = kinds_of_node(backend)["custom Function"]
    x = backend.tensor([2.0], requires_grad=True)
    backend.backward(backend.call(forward, x, backend.tensor([0.0])))

    trace.expect()
    trace.expect_value("x.grad", [1.0], backend.grad_of(x))


@rule(
    "saved-tensor.which.none.not-needed",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[SAVED.sentence(5), observed("tensors are saved as needed, and nothing else is")],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["every-operand-saved"],
)
def test_nothing_needed(backend: Backend, trace: Trace) -> None:
    """An operation whose gradient needs no tensor, such as a sum, saves nothing.

    The notes say that tensors are saved as needed; that nothing else is saved, they do not say.
    """

    def forward(x, constant):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), lambda packed: packed):
            y = backend.clone(x + constant)
        return backend.sum(y)  # outside: it may need its input's shape

    x = backend.tensor([2.0], requires_grad=True)
    backend.backward(backend.call(forward, x, backend.tensor([3.0])))

    trace.expect()


def expect_nothing_saved(
    backend: Backend, trace: Trace, operations: Callable[[Any], Any], mode: Callable[[], Any]
) -> None:
    """Expect operations to save nothing in a grad mode, inside a pair of saved-tensor hooks and around it."""

    def pair():
        return backend.saved_tensors_hooks(trace.saw("pack", backend.detach), lambda packed: packed)

    def inside(x):
        with pair(), mode():
            return operations(x)

    def around(x):
        with mode(), pair():
            return operations(x)

    for forward in (inside, around) * 2:
        backend.call(forward, backend.tensor([2.0], requires_grad=True))

        trace.expect()


@rule(
    "saved-tensor.which.none.no-grad",
    level=Level.MUST,
    sources=[notes("autograd", "no-grad-mode").sentence(2)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.GRAD_MODE],
    mutants=["saved-without-grad", "pair-entered-in-no-grad-packs"],
)
def test_nothing_saved_under_no_grad(backend: Backend, trace: Trace) -> None:
    """Under no_grad operations are not recorded, so they save nothing."""

    def operations(x):
        return backend.exp(x), backend.exp(x * x)

    expect_nothing_saved(backend, trace, operations, backend.no_grad)


@rule(
    "saved-tensor.which.none.no-grad.custom-function",
    level=Level.MUST,
    sources=[notes("autograd", "no-grad-mode").sentence(2)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.GRAD_MODE, Capability.CUSTOM_FUNCTION],
    mutants=["custom-functions-pack-in-no-grad"],
)
def test_function_saves_nothing_under_no_grad(backend: Backend, trace: Trace) -> None:
    """Under no_grad custom Functions are not recorded, so they save nothing."""

    def square(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    function = backend.custom_function(square, lambda ctx, grad: grad * ctx.saved_tensors[0] * 2)
    expect_nothing_saved(backend, trace, function, backend.no_grad)


@rule(
    "saved-tensor.which.none.inference-mode",
    level=Level.MUST,
    sources=[notes("autograd", "inference-mode").sentence(2)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.INFERENCE_MODE],
    mutants=["saved-without-grad", "pair-entered-in-inference-mode-packs"],
)
def test_nothing_saved_in_inference_mode(backend: Backend, trace: Trace) -> None:
    """In inference mode operations are not recorded, so they save nothing."""

    def operations(x):
        return backend.exp(x * x)

    expect_nothing_saved(backend, trace, operations, backend.inference_mode)


@rule(
    "saved-tensor.which.none.inference-mode.custom-function",
    level=Level.MUST,
    sources=[notes("autograd", "inference-mode").sentence(2)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.INFERENCE_MODE, Capability.CUSTOM_FUNCTION],
    mutants=["functions-pack-in-inference-mode"],
)
def test_function_saves_nothing_in_inference_mode(backend: Backend, trace: Trace) -> None:
    """In inference mode custom Functions are not recorded, so they save nothing."""
    expect_nothing_saved(backend, trace, kinds_of_node(backend)["custom Function"], backend.inference_mode)


@rule(
    "saved-tensor.which.custom-function",
    level=Level.MUST,
    sources=[HOOKS.sentence(3), SAVE_FOR_BACKWARD.sentence(3), notes("extending", "how-to-use").sentence(32)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "custom-functions-bypass-saved-tensor-hooks",
        "ctx-attributes-packed",
        "outputs-of-custom-functions-not-packed",
        "saves-of-one-tensor-by-a-custom-function-packed-once",
        "constants-of-custom-functions-not-packed",
    ],
)
def test_custom_function(backend: Backend, trace: Trace) -> None:
    """Tensors that a custom Function passes to save_for_backward are packed; attributes of its ctx are not."""

    def save(ctx, a, b):
        product = a * b
        ctx.save_for_backward(a, product, a)
        ctx.b = b
        return product

    def read(ctx, grad):
        _, _, a = ctx.saved_tensors
        return grad * ctx.b, grad * a

    function = backend.custom_function(save, read)

    def forward(a, b):
        with backend.saved_tensors_hooks(
            trace.saw("pack", backend.detach),
            trace.saw("unpack", lambda packed: packed),
        ):
            y = function(a, b)
        return backend.sum(y)  # outside: a sum may save its input

    a = backend.tensor([2.0], requires_grad=True)
    b = backend.tensor([3.0], requires_grad=True)
    backend.backward(backend.call(forward, a, b))

    for label in ("pack", "unpack"):
        trace.expect_value(label, [[2.0], [2.0], [6.0]], sorted(trace.values(label)))
    trace.expect_value("gradients", [[3.0], [2.0]], [backend.grad_of(a), backend.grad_of(b)])

    def save_constant(ctx, a, constant):
        ctx.save_for_backward(constant)
        return a * constant

    function = backend.custom_function(save_constant, lambda ctx, grad: (grad * ctx.saved_tensors[0], None))
    backend.backward(backend.call(forward, a, backend.tensor([5.0])))

    for label in ("pack", "unpack"):
        trace.expect_value(f"{label} of a constant", [5.0], trace.values(label)[-1])


@rule(
    "saved-tensor.which.custom-non-inputs",
    level=Level.MUST,
    sources=[HOOKS.sentence(3), SAVE_FOR_BACKWARD.sentence(3)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=["intermediates-of-custom-functions-not-packed"],
)
def test_custom_function_intermediates(backend: Backend, trace: Trace) -> None:
    """A tensor made and saved inside a custom Function's forward is packed and unpacked like its inputs."""

    def save(ctx, x):
        ctx.save_for_backward(x, x * 5)
        return x * x

    def read(ctx, grad):
        _, intermediate = ctx.saved_tensors
        return grad * intermediate

    function = backend.custom_function(save, read)

    def forward(x):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), trace.saw("unpack", lambda packed: packed)):
            y = function(x)
        return backend.sum(y)

    x = backend.tensor([2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    for label in ("pack", "unpack"):
        trace.expect_value(label, [[2.0], [10.0]], sorted(trace.values(label)))
    trace.expect_value("x.grad", [10.0], backend.grad_of(x))


@rule(
    "saved-tensor.which.custom-none",
    level=Level.MUST,
    sources=[HOOKS.sentence(3), SAVE_FOR_BACKWARD.sentence(12, 13)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=["none-saved-by-a-function-is-packed"],
)
def test_custom_function_saves_none(backend: Backend, trace: Trace) -> None:
    """A None among the tensors that a custom Function saves is not packed.

    pack is called if a tensor is saved, and to save None does nothing.
    """

    def save(ctx, a, b):
        ctx.save_for_backward(None, a, None, b, None)
        return a * b

    def read(ctx, grad):
        a, b = (saved for saved in ctx.saved_tensors if saved is not None)
        return grad * b, grad * a

    function = backend.custom_function(save, read)
    pack = trace.saw("pack", lambda t: t if t is None else backend.detach(t))

    def forward(a, b):
        with backend.saved_tensors_hooks(pack, trace.saw("unpack", lambda packed: packed)):
            y = function(a, b)
        return backend.sum(y)

    a, b = backend.tensor([2.0], requires_grad=True), backend.tensor([3.0], requires_grad=True)
    backend.backward(backend.call(forward, a, b))

    for label in ("pack", "unpack"):
        trace.expect_value(label, [[2.0], [3.0]], sorted(trace.values(label), key=str))
    trace.expect_value("gradients", [[3.0], [2.0]], [backend.grad_of(a), backend.grad_of(b)])


@rule(
    "saved-tensor.which.number",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a number is saved as it is, or not as a tensor that hooks see")],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["floats-packed"],
)
def test_numbers(backend: Backend, trace: Trace) -> None:
    """A Python number in a product, on either side, is not packed."""

    def forward(x):
        with backend.saved_tensors_hooks(trace.saw("pack", lambda t: t), lambda packed: packed):
            y = x * 2 + 3 * x + x * 2.5 + 0.5 * x
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect()
    trace.expect_value("x.grad", [8.0, 8.0], backend.grad_of(x))
