"""The results of tensor hooks, which replace the gradient."""

from itertools import permutations, product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import TENSOR, nothing, uses_each_value

REGISTER_HOOK = docstring("torch.Tensor.register_hook")
ORDER = notes("autograd", "the-order-in-which-the-different-hooks-are-fired")
FIRED = notes("autograd", "whether-a-particular-hook-will-be-fired")


@rule(
    "tensor-hook.return.none-keeps",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(3, 4)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["none-taken-as-zero", "none-undoes-earlier-replacements"],
)
def test_none(backend: Backend, trace: Trace) -> None:
    """A hook that returns None leaves the gradient as it is."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("y doubled", lambda grad: grad * 2))
        backend.register_hook(y, trace.saw("y"))
        return backend.sum(y * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("x times five", lambda grad: grad * 5))
    backend.register_hook(x, trace.saw("x"))
    backend.backward(backend.call(forward, x))

    trace.expect(("y doubled", [3.0, 3.0]), ("y", [6.0, 6.0]), ("x times five", [12.0, 12.0]), ("x", [60.0, 60.0]))
    trace.expect_value("x.grad", [60.0, 60.0], backend.grad_of(x))


@rule(
    "tensor-hook.replace.leaf",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(4)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "tensor-hook-ignored",
        "leaf-hooks-live-with-their-accumulate-grad",
        "replacements-are-accumulated-uncopied",
        "what-hooks-between-calls-return-is-ignored",
    ],
)
def test_leaf(backend: Backend, trace: Trace) -> None:
    """What a leaf's hook returns is accumulated into .grad instead of the gradient.

    A hook may return one tensor in each pass, and gets its numbers accumulated each time.
    """
    weights = backend.tensor([1.0, 2.0, 3.0])
    x = backend.tensor([0.0, 0.0, 0.0], requires_grad=True)
    instead = backend.tensor([2.0, 3.0, 5.0])
    backend.register_hook(x, trace.saw("hook", lambda _: instead))
    for accumulated in ([2.0, 3.0, 5.0], [4.0, 6.0, 10.0], [6.0, 9.0, 15.0]):
        backend.backward(backend.call(lambda x, weights: backend.sum(x * weights), x, weights))

        trace.expect(("hook", [1.0, 2.0, 3.0]))
        trace.expect_value("x.grad", accumulated, backend.grad_of(x))

    backend.register_hook(x, lambda grad: grad * 10)
    backend.backward(backend.call(lambda x, weights: backend.sum(x * weights), x, weights))
    trace.expect(("hook", [1.0, 2.0, 3.0]))
    trace.expect_value("x.grad with a later hook", [26.0, 39.0, 65.0], backend.grad_of(x))


@rule(
    "tensor-hook.replace.propagates",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(4), ORDER.sentence(2, 5)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "tensor-hook-ignored",
        "replacement-not-propagated",
        "replacements-of-non-leaves-are-accumulated-uncopied",
    ],
)
def test_propagates(backend: Backend, trace: Trace) -> None:
    """What a non-leaf's hook returns is what its grad_fn receives, so every gradient upstream is computed from it."""

    def forward(x):
        y = x * 2
        z = y * 3
        backend.register_hook(y, trace.saw("y"))
        backend.register_hook(z, trace.saw("z", lambda grad: grad * 10))
        return backend.sum(z)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("z", [1.0, 1.0]), ("y", [30.0, 30.0]))
    trace.expect_value("x.grad", [60.0, 60.0], backend.grad_of(x))

    instead = backend.tensor([2.0, 3.0])

    def unchanged(x):
        y = x + 1
        backend.register_hook(y, lambda _: instead)
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for accumulated in ([2.0, 3.0], [4.0, 6.0], [6.0, 9.0]):
        backend.backward(backend.call(unchanged, x))

        trace.expect_value("x.grad, of a tensor that is returned each time", accumulated, backend.grad_of(x))

    uses_each_value(backend, trace, TENSOR)


@rule(
    "tensor-hook.replace.not-downstream",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(4)],
    needs=[Capability.TENSOR_HOOKS, Capability.RETAIN_GRAD],
    mutants=["replacement-written-into-a-shared-gradient"],
)
def test_sibling(backend: Backend, trace: Trace) -> None:
    """A replacement changes only the gradients computed from it: siblings and tensors nearer the root keep theirs."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    sibling = backend.tensor([1.0, 2.0], requires_grad=True)

    def forward(x, sibling):
        total = x + sibling
        backend.retain_grad(total)
        backend.register_hook(total, trace.saw("total"))
        return total, backend.sum(total * 2)

    backend.register_hook(x, lambda grad: grad * 10)
    total, loss = backend.call(forward, x, sibling)
    backend.backward(loss)

    trace.expect(("total", [2.0, 2.0]))
    trace.expect_value("x.grad", [20.0, 20.0], backend.grad_of(x))
    trace.expect_value("sibling.grad", [2.0, 2.0], backend.grad_of(sibling))
    trace.expect_value("total.grad after the pass", [2.0, 2.0], backend.grad_of(total))


@rule(
    "tensor-hook.replace.autograd-grad",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(4), FIRED.sentence(3)],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=[
        "gradient-captured-before-hooks",
        "hooks-of-grad-outputs-skipped",
        "hooks-of-later-grad-outputs-skipped",
        "hooks-of-outputs-among-grad-inputs-skipped",
    ],
)
def test_grad_of_non_leaf(backend: Backend, trace: Trace) -> None:
    """What a non-leaf's hook returns is also what `grad` returns for that tensor."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y, z = backend.call(lambda x: (x * 2, x * 5), x)
    backend.register_hook(y, lambda grad: grad * 10)
    backend.register_hook(z, lambda grad: grad * 100)
    outputs = backend.call(lambda y, z: (backend.sum(y * 3), backend.sum(z * 4)), y, z)
    for output, factor in zip(outputs, (2, 5), strict=True):
        backend.register_hook(output, lambda grad, factor=factor: grad * factor)
    of_y, of_z = backend.grad(list(outputs), [y, z])

    trace.expect_value("gradient of y", [60.0, 60.0], of_y)
    trace.expect_value("gradient of z", [2000.0, 2000.0], of_z)

    output = backend.call(backend.sum, y)
    backend.register_hook(output, lambda grad: grad * 7)
    trace.expect_value("gradient of the output itself", [7.0], backend.grad(output, [output]))


@rule(
    "tensor-hook.replace.autograd-grad.executed",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(4), FIRED.sentence(3)],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=["gradient-captured-before-hooks", "captured-before-the-hooks-of-an-executed-node"],
)
def test_grad_of_executed_non_leaf(backend: Backend, trace: Trace) -> None:
    """What a non-leaf's hook returns is what `grad` returns for it, also if its grad_fn runs for another input."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, lambda grad: grad * 10)
        return y, backend.sum(y * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y, loss = backend.call(forward, x)
    grad, further = backend.grad(loss, [y, x])

    trace.expect_value("gradient of x", [60.0, 60.0], further)
    trace.expect_value("gradient of y", [30.0, 30.0], grad)


@rule(
    "tensor-hook.replace.autograd-grad-leaf",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(4), FIRED.sentence(3)],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=["gradient-captured-before-hooks"],
)
def test_grad_of_leaf(backend: Backend, trace: Trace) -> None:
    """What a leaf's hook returns is also what `grad` returns for that leaf."""
    x, y = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    backend.register_hook(x, lambda grad: grad * 10)
    backend.register_hook(y, lambda grad: grad * 100)
    of_x, of_y = backend.grad(backend.call(lambda x, y: backend.sum(x * 3 + y * 4), x, y), [x, y])

    trace.expect_value("gradient of x", [30.0, 30.0], of_x)
    trace.expect_value("gradient of y", [400.0, 400.0], of_y)


@rule(
    "tensor-hook.order.later-sees-earlier",
    level=Level.MUST,
    sources=[ORDER.sentence(8, 9)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["later-hooks-see-the-original-gradient", "hooks-run-in-reverse-order"],
)
def test_later_sees_earlier(backend: Backend, trace: Trace) -> None:
    """A later hook receives the gradient as the earlier hooks left it, and the last one's result counts."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, lambda grad: grad * 5)
        backend.register_hook(y, trace.saw("second", lambda grad: grad * 2))
        backend.register_hook(y, trace.saw("third"))
        backend.register_hook(y, trace.saw("fourth", lambda grad: grad + 1))
        backend.register_hook(y, trace.saw("fifth"))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("second", [5.0, 5.0]), ("third", [10.0, 10.0]), ("fourth", [10.0, 10.0]), ("fifth", [11.0, 11.0]))
    trace.expect_value("x.grad", [22.0, 22.0], backend.grad_of(x))


@rule(
    "tensor-hook.create-graph.differentiable",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad").sentence(18), REGISTER_HOOK.sentence(4)],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["hook-result-detached", "hook-result-of-a-leaf-detached", "later-hooks-get-constants"],
)
def test_differentiable(backend: Backend, trace: Trace) -> None:
    """In a backward with create_graph, what a tensor hook computes is part of the graph of the gradient.

    The gradient that reaches y is constant, so the second derivative comes from the hooks' factors alone: from that of
    a first hook also through what the second makes of it.
    """
    x = backend.tensor([2.0], requires_grad=True)

    def forward(x):
        y = x * 1
        backend.register_hook(y, lambda grad: grad * (x * x * x))
        backend.register_hook(y, lambda grad: grad * 1)
        return backend.sum(y * 3)

    (first,) = backend.grad(backend.call(forward, x), [x], create_graph=True)
    trace.expect_value("first derivative", [24.0], first)

    (second,) = backend.grad(backend.sum(first), [x])
    trace.expect_value("second derivative", [36.0], second)

    leaf = backend.tensor([2.0], requires_grad=True)
    handle = backend.register_hook(leaf, lambda grad: grad * (leaf * leaf * leaf))
    (of_leaf,) = backend.grad(backend.sum(leaf * 3), [leaf], create_graph=True)
    handle.remove()
    trace.expect_value("first derivative, a leaf's hook", [24.0], of_leaf)
    trace.expect_value("second derivative, a leaf's hook", [36.0], backend.grad(backend.sum(of_leaf), [leaf])[0])


@rule(
    "tensor-hook.create-graph.differentiable.backward",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.backward").sentence(17), REGISTER_HOOK.sentence(4)],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD, Capability.BACKWARD_CREATE_GRAPH],
    mutants=[
        "hook-results-detached-in-backward",
        "hook-results-of-leaves-detached-in-backward",
        "hook-results-of-roots-detached-in-backward",
    ],
)
def test_differentiable_in_backward(backend: Backend, trace: Trace) -> None:
    """What a tensor hook computes in a backward with create_graph is part of the graph of what is accumulated."""
    for place in (0, 1, 2):
        x = backend.tensor([2.0], requires_grad=True)
        handles: list[Any] = []

        def forward(x, place=place, handles=handles):
            y = x * 1
            root = backend.sum(y * 3)
            handles.append(backend.register_hook((x, y, root)[place], lambda grad: grad * backend.sum(x * x * x)))
            return root

        with catch_warnings(action="ignore"):  # torch warns of the cycle
            backend.backward(backend.call(forward, x), create_graph=True)
        handles.pop().remove()
        first = backend.grad_of(x)
        trace.expect_value("x.grad", [24.0], first)
        trace.expect_value("second derivative", [36.0], backend.grad(backend.sum(first), [x])[0])


@rule(
    "tensor-hook.return.wrong-type",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REGISTER_HOOK, observed("the signature is documented, the error is not")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "bad-hook-result-ignored",
        "false-taken-for-none",
        "bad-results-of-later-hooks-ignored",
        "bad-results-before-other-hooks-ignored",
    ],
)
def test_wrong_type(backend: Backend, trace: Trace) -> None:
    """A hook that returns neither a tensor nor None makes the backward fail."""
    for is_leaf, hook in product((False, True), (lambda _: 1.0, lambda _: False, lambda grad: (grad,))):
        for hooks in ([hook], [nothing, hook], [hook, nothing]):
            x = backend.tensor([1.0, 2.0], requires_grad=True)
            tensor = x if is_leaf else backend.call(lambda x: x * 2, x)
            for each in hooks:
                backend.register_hook(tensor, each)
            loss = backend.call(backend.sum, tensor)

            with trace.raises(ErrorKind.HOOK_RETURN_TYPE):
                backend.backward(loss)


@rule(
    "tensor-hook.return.wrong-shape",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REGISTER_HOOK, observed("error for leaf and non-leaf")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "bad-hook-result-ignored",
        "hook-result-broadcast",
        "longer-hook-result-cut",
        "hook-result-reshaped",
        "hook-result-of-one-element-loses-its-dimension",
        "hook-result-without-dimensions-gets-one",
        "bad-results-of-later-hooks-ignored",
        "bad-results-before-other-hooks-ignored",
    ],
)
def test_wrong_shape(backend: Backend, trace: Trace) -> None:
    """A hook that returns a gradient of another shape makes the backward fail, even if it could be broadcast."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    longer, reshaped = backend.tensor([1.0, 1.0, 1.0]), backend.tensor([[1.0, 1.0]])
    for tensor, hook in product((y, x), (backend.sum, lambda _: longer, lambda _: reshaped)):
        for hooks in ([hook], [nothing, hook], [hook, nothing]):
            handles = [backend.register_hook(tensor, each) for each in hooks]
            loss = backend.call(backend.sum, tensor)

            with trace.raises(ErrorKind.HOOK_RETURN_SHAPE):
                backend.backward(loss)
            for handle in handles:
                handle.remove()
    for number, result in ((2.0, [1.0]), ([2.0], 1.0)):
        one, other = backend.tensor(number, requires_grad=True), backend.tensor(result)
        backend.register_hook(one, lambda _, other=other: other)
        with trace.raises(ErrorKind.HOOK_RETURN_SHAPE):
            backend.backward(backend.call(lambda one: one * 2, one))


@rule(
    "tensor-hook.return.wrong-dtype",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REGISTER_HOOK, observed("error, no cast")],
    needs=[Capability.TENSOR_HOOKS, Capability.FLOAT64],
    mutants=["bad-hook-result-ignored", "hook-result-cast", "narrower-hook-result-cast"],
)
def test_wrong_dtype(backend: Backend, trace: Trace) -> None:
    """A hook that returns a gradient of another dtype makes the backward fail."""
    for is_leaf, (dtype, other) in product((False, True), permutations(("float32", "float64"))):
        x = backend.tensor([1.0, 2.0], requires_grad=True, dtype=dtype)
        result = backend.tensor([1.0, 1.0], dtype=other)
        tensor = x if is_leaf else backend.call(lambda x: x * 2, x)
        backend.register_hook(tensor, lambda _, result=result: result)
        loss = backend.call(backend.sum, tensor)

        with trace.raises(ErrorKind.HOOK_RETURN_DTYPE):
            backend.backward(loss)


@rule(
    "tensor-hook.return.autograd-grad",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REGISTER_HOOK, observed("error for a leaf and a non-leaf")],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=["bad-hook-results-ignored-in-autograd-grad"],
)
def test_in_autograd_grad(backend: Backend, trace: Trace) -> None:
    """A hook of an input that returns no tensor, or a gradient of another shape, makes autograd.grad fail."""
    wrong_type, wrong_shape = ErrorKind.HOOK_RETURN_TYPE, ErrorKind.HOOK_RETURN_SHAPE
    hooks: list[tuple[ErrorKind, Any]] = [(wrong_type, lambda _: 1.0), (wrong_type, lambda grad: (grad,))]
    for is_leaf, (kind, hook) in product((False, True), [*hooks, (wrong_shape, backend.sum)]):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        tensor = x if is_leaf else backend.call(lambda x: x * 2, x)
        backend.register_hook(tensor, hook)
        loss = backend.call(lambda tensor: backend.sum(tensor * 3), tensor)

        with trace.raises(kind):
            backend.grad(loss, [tensor])


@rule(
    "tensor-hook.arg.mutate-visible",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[REGISTER_HOOK, observed("the hook is given the gradient itself, which is accumulated")],
    needs=[Capability.TENSOR_HOOKS, Capability.IN_PLACE],
    mutants=["hooks-are-given-a-copy"],
)
def test_argument_changed_in_place(backend: Backend, trace: Trace) -> None:
    """A tensor hook that changes its argument in place, as it should not, may change the accumulated gradient."""

    def hook(grad):
        backend.mul_(grad, 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, hook)
    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))
