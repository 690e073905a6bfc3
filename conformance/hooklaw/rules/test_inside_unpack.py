"""Inside an unpack hook: operations, backward passes and registrations."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule

SECTION = notes("autograd", "hooks-for-saved-tensors")
TENSOR_HOOK = docstring("torch.Tensor.register_hook")
NEEDS = [Capability.SAVED_TENSOR_HOOKS]


def first_time(action: Any) -> Any:
    """Return an unpack hook that runs an action the first time, and gives back what was packed."""
    done: list[bool] = []

    def unpack(packed: Any) -> Any:
        if not done:
            done.append(True)
            action()
        return packed

    return unpack


@rule(
    "saved-tensor.unpack.inside.recorded",
    level=Level.MUST,
    sources=[SECTION.sentence(5)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["autograd-metadata-of-the-unpacked-tensor-kept", "history-of-an-unpacked-constant-kept"],
)
def test_operations(backend: Backend, trace: Trace) -> None:
    """No gradient flows through what an unpack hook computes: its result has the saved tensor's place in the graph.

    The notes say that autograd-related metadata of the result is overwritten; with create_graph it could matter.
    """
    factor = backend.tensor([1.0], requires_grad=True)
    shift = backend.tensor([-2.0])

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed * factor):
            return backend.sum(x * x * x + backend.exp(x + shift))

    x = backend.tensor([2.0], requires_grad=True)
    (first,) = backend.grad(backend.call(forward, x), [x], create_graph=True)
    second = backend.grad(backend.sum(first), [x, factor], allow_unused=True)

    trace.expect_value("first derivative", [13.0], first)
    trace.expect_value("of x, of the factor", [[13.0], None], second)

    def with_constant(x, constant):
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed * factor):
            product = x * constant
        return backend.sum(product + x * x)

    (first,) = backend.grad(backend.call(with_constant, x, backend.tensor([5.0])), [x], create_graph=True)
    second = backend.grad(backend.sum(first), [x, factor], allow_unused=True)

    trace.expect_value("first derivative with a constant", [9.0], first)
    trace.expect_value("of x, of the factor, with a constant", [[2.0], None], second)


@rule(
    "saved-tensor.unpack.inside.hooks-of-result",
    level=Level.MUST,
    sources=[SECTION.sentence(5)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH, Capability.TENSOR_HOOKS],
    mutants=["autograd-metadata-of-the-unpacked-tensor-kept"],
)
def test_hooks_of_result(backend: Backend, trace: Trace) -> None:
    """A tensor hook on what an unpack hook returns does not run, since that tensor is not part of the graph.

    The notes say that autograd-related metadata of the result is overwritten; with create_graph it could matter.
    """
    shift = backend.tensor([-2.0])

    def unpack(packed):
        result = backend.tensor(packed, requires_grad=True)
        backend.register_hook(result, trace.saw("hook", lambda grad: grad * 10))
        return result

    def forward(x):
        with backend.saved_tensors_hooks(backend.tolist, unpack):
            return backend.sum(x * x * x + backend.exp(x + shift))

    x = backend.tensor([2.0], requires_grad=True)
    (first,) = backend.grad(backend.call(forward, x), [x], create_graph=True)
    (second,) = backend.grad(backend.sum(first), [x])

    trace.expect()
    trace.expect_value("second derivative", [13.0], second)


@rule(
    "saved-tensor.unpack.inside.backward",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a backward through another graph works inside an unpack hook, as in a reentrant checkpoint")],
    needs=NEEDS,
    mutants=["backward-inside-unpack-does-nothing"],
)
def test_backward(backend: Backend, trace: Trace) -> None:
    """An unpack hook may run backward through another graph; leaves of both graphs get the sum of both gradients."""
    x, other = [backend.tensor([number], requires_grad=True) for number in (2.0, 3.0)]
    inner = backend.call(lambda x, other: backend.sum(x * other), x, other)

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, first_time(lambda: backend.backward(inner))):
            return backend.sum(x * x * x)

    backend.backward(backend.call(forward, x))

    trace.expect_value("gradients", [[15.0], [2.0]], [backend.grad_of(x), backend.grad_of(other)])


@rule(
    "saved-tensor.unpack.inside.forward",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("with enable_grad an unpack hook can build a graph of its own and run backward through it")],
    needs=[*NEEDS, Capability.GRAD_MODE],
    mutants=["backward-inside-unpack-does-nothing", "unpack-cannot-record"],
)
def test_forward(backend: Backend, trace: Trace) -> None:
    """An unpack hook may record a graph of its own under enable_grad, and run backward through it."""
    own = backend.tensor([5.0], requires_grad=True)

    def differentiate():
        with backend.enable_grad():
            backend.backward(backend.sum(own * own))

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, first_time(differentiate)):
            return backend.sum(x * x)

    x = backend.tensor([2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect_value("gradients", [[4.0], [10.0]], [backend.grad_of(x), backend.grad_of(own)])


@rule(
    "saved-tensor.unpack.inside.register",
    level=Level.MUST,
    sources=[TENSOR_HOOK.sentence(2), docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.POST_ACCUMULATE],
    mutants=["hooks-registered-inside-unpack-wait-for-the-next-pass"],
)
def test_register(backend: Backend, trace: Trace) -> None:
    """Hooks that an unpack hook registers on tensors whose gradients are not yet computed run in the same backward.

    Such a hook is called every time a gradient of the tensor is computed, or accumulated, after it was registered.
    """

    def forward(x):
        y = x * 2

        def register():
            trace.log("unpack")
            backend.register_hook(y, trace.saw("hook of the intermediate"))
            backend.register_hook(x, trace.saw("hook of the leaf"))
            backend.register_post_accumulate_grad_hook(x, trace.saw("post-accumulate hook"))

        with backend.saved_tensors_hooks(backend.detach, first_time(register)):
            return backend.sum(backend.exp(y))

    backend.backward(backend.call(forward, backend.tensor([0.0], requires_grad=True)))

    trace.expect("unpack", ("hook of the intermediate", [1.0]), ("hook of the leaf", [2.0]), "post-accumulate hook")


@rule(
    "saved-tensor.unpack.inside.retain-grad",
    level=Level.MUST,
    sources=[
        docstring("torch.Tensor.retain_grad").sentence(2),
        notes("autograd", "the-order-in-which-the-different-hooks-are-fired").sentence(4),
    ],
    needs=[*NEEDS, Capability.RETAIN_GRAD],
    mutants=[
        "retain-grad-inside-unpack-ignored",
        "only-the-first-retain-grad-inside-unpack-counts",
        "retain-grad-inside-unpack-keeps-that-of-the-result",
    ],
)
def test_retain_grad(backend: Backend, trace: Trace) -> None:
    """An unpack hook can retain a gradient that is not yet computed: after that backward it is in .grad.

    After retain_grad a tensor has its .grad populated during backward, and its gradient is computed later in it.
    """

    def forward(x):
        y, z = x * 2, x * 3
        with backend.saved_tensors_hooks(backend.detach, first_time(lambda: [*map(backend.retain_grad, (y, z))])):
            return backend.sum(y * z), y, z

    loss, y, z = backend.call(forward, backend.tensor([3.0], requires_grad=True))
    backend.backward(loss)

    trace.expect_value("y.grad and z.grad", [[9.0], [6.0]], [backend.grad_of(y), backend.grad_of(z)])


@rule(
    "saved-tensor.unpack.inside.post-hook-on-running-node",
    level=Level.MUST,
    sources=[docstring("torch.autograd.graph.Node.register_hook").sentence(8)],
    needs=[*NEEDS, Capability.NODES, Capability.NODE_HOOKS],
    mutants=["hooks-registered-inside-unpack-wait-for-the-next-pass"],
)
def test_post_hook_on_running_node(backend: Backend, trace: Trace) -> None:
    """A post-hook that an unpack hook registers on the Node being executed can replace this execution's grad_inputs.

    A Node unpacks its saved tensors while it is executed: the docstring's case of a hook that is registered while the
    Node has already begun execution.
    """
    made: list[Any] = []

    def post_hook(grad_inputs, _grad_outputs):
        return tuple(grad * 10 for grad in grad_inputs)

    def forward(x):
        register = first_time(lambda: backend.node_register_hook(backend.grad_fn(made[0]), post_hook))
        with backend.saved_tensors_hooks(backend.detach, register):
            made.append(backend.exp(x))
        return backend.sum(made[0])

    x = backend.tensor([0.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect_value("x.grad", [10.0], backend.grad_of(x))


@rule(
    "saved-tensor.unpack.inside.register-on-running-node",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("pre-hooks and the tensor's hooks had their turn before the Node unpacks")],
    needs=[*NEEDS, Capability.NODES, Capability.NODE_HOOKS, Capability.TENSOR_HOOKS],
)
def test_register_on_running_node(backend: Backend, trace: Trace) -> None:
    """A pre-hook or tensor hook that an unpack hook registers for the Node being executed may miss that backward."""
    made: list[Any] = []

    def register():
        trace.log("unpack")
        backend.node_register_prehook(backend.grad_fn(made[0]), trace.saw("pre-hook"))
        backend.register_hook(made[0], trace.saw("tensor hook"))

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, first_time(register)):
            made.append(backend.exp(x))
        return backend.sum(made[0])

    backend.backward(backend.call(forward, backend.tensor([0.0], requires_grad=True)))

    trace.expect("unpack")
