"""Tensor hooks: when they fire, and with which gradient."""

from functools import partial
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import TENSOR, gets_each_value

REGISTER_HOOK = docstring("torch.Tensor.register_hook")
FIRED = notes("autograd", "whether-a-particular-hook-will-be-fired")


@rule(
    "tensor-hook.fire.every-gradient",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=[Capability.TENSOR_HOOKS, Capability.RETAIN_GRAPH],
    mutants=[
        "tensor-hook-lost-second-pass",
        "hooks-on-a-graph-that-ran-lost",
        "hook-of-a-non-leaf-that-ran-is-not-removed",
    ],
)
def test_every_gradient(backend: Backend, trace: Trace) -> None:
    """A tensor's hook fires each time its gradient is computed: once in every backward through a retained graph."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("y"))
        return y, backend.sum(y * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("x"))
    y, loss = backend.call(forward, x)

    for _ in range(3):
        backend.backward(loss, retain_graph=True)

        trace.expect(("y", [3.0, 3.0]), ("x", [6.0, 6.0]))

    handle = backend.register_hook(y, trace.saw("registered later"))
    backend.backward(loss, retain_graph=True)
    trace.expect(("y", [3.0, 3.0]), ("registered later", [3.0, 3.0]), ("x", [6.0, 6.0]))

    handle.remove()
    backend.backward(loss)
    trace.expect(("y", [3.0, 3.0]), ("x", [6.0, 6.0]))

    gets_each_value(backend, trace, TENSOR)


@rule(
    "tensor-hook.fire.every-graph",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["tensor-hook-lost-second-pass"],
)
def test_every_graph(backend: Backend, trace: Trace) -> None:
    """A leaf's hook fires in the backward of every graph that the leaf is used in, whenever that graph was built."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    before = backend.call(lambda x: backend.sum(x * 2), x)
    backend.register_hook(x, trace.saw("hook"))
    after = backend.call(lambda x: backend.sum(x * 3), x)

    backend.backward(after)
    backend.backward(before)

    trace.expect(("hook", [3.0, 3.0]), ("hook", [2.0, 2.0]))


@rule(
    "tensor-hook.fire.total-gradient",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2), FIRED.sentence(1)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "tensor-hook-fires-per-edge",
        "node-runs-before-all-its-gradients-arrived",
        "gradients-summed-after-the-hooks",
    ],
)
def test_total_gradient(backend: Backend, trace: Trace) -> None:
    """A hook of a tensor with several consumers is called once in a backward, with the sum of their gradients."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("y"))
        return backend.sum(y * 3 + y * 4 + x * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("x"))
    backend.backward(backend.call(forward, x))

    trace.expect(("y", [7.0, 7.0]), ("x", [19.0, 19.0]))


@rule(
    "tensor-hook.arg.gradient",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 3)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["tensor-hook-receives-the-value"],
)
def test_argument(backend: Backend, trace: Trace) -> None:
    """The only argument of a tensor's hook is the gradient with respect to it, with its shape, dtype and device."""

    def hook(grad):
        trace.log("gradient", grad)
        trace.log("kind", [list(backend.shape(grad)), backend.dtype(grad), backend.device(grad)])

    def forward(x):
        y = x * 3
        backend.register_hook(y, hook)
        return backend.sum(y * y)

    x = backend.tensor([[1.0], [2.0]], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("gradient", [[6.0], [12.0]]), ("kind", [[2, 1], "float32", backend.device(x)]))

    copy = backend.call(backend.clone, x)
    backend.register_hook(copy, trace.saw("gradient of a clone"))
    backend.backward(backend.call(lambda copy: backend.sum(copy * 3), copy))
    trace.expect(("gradient of a clone", [[3.0], [3.0]]))


@rule(
    "tensor-hook.arg.gradient.broadcast",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 3)],
    needs=[Capability.TENSOR_HOOKS, Capability.BROADCASTING],
    mutants=[
        "gradients-fit-after-the-hooks",
        "gradients-of-non-leaves-fit-after-the-hooks",
        "gradients-of-single-values-fit-after-the-hooks",
    ],
)
def test_argument_of_a_broadcast_tensor(backend: Backend, trace: Trace) -> None:
    """The hook of a tensor that an operation broadcasts gets the gradient in the tensor's own shape.

    The gradient with respect to a tensor has the tensor's shape: it sums up those of the copies that broadcasting made.
    """

    def forward(x, column, table):
        y = x * 2
        backend.register_hook(y, trace.saw("y"))
        return backend.sum(y * table + column)

    x = backend.tensor([1.0, 2.0, 3.0], requires_grad=True)
    column = backend.tensor([[1.0], [2.0]], requires_grad=True)
    table = backend.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    loss = backend.call(forward, x, column, table)
    for leaf, label in ((x, "x"), (column, "column")):
        backend.register_hook(leaf, trace.saw(label))
    backend.backward(loss)

    trace.expect_value("gradient of y", [[5.0, 7.0, 9.0]], trace.values("y"))
    trace.expect_value("gradient of x", [[10.0, 14.0, 18.0]], trace.values("x"))
    trace.expect_value("gradient of column", [[[3.0], [3.0]]], trace.values("column"))

    for number, gradients in ((2.0, [21.0, 42.0]), ([2.0], [[21.0], [42.0]])):
        single = backend.tensor(number, requires_grad=True)
        doubled = backend.call(lambda single: single * 2, single)
        for each in (single, doubled):
            backend.register_hook(each, trace.saw("single"))
        backend.backward(backend.call(lambda doubled: backend.sum(doubled * table), doubled))

        trace.expect_value(f"gradients of {number}", gradients, trace.values("single")[-2:])


@rule(
    "tensor-hook.arg.gradient.float64",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 3)],
    needs=[Capability.TENSOR_HOOKS, Capability.FLOAT64],
    mutants=["hooks-of-float64-tensors-see-float32", "hooks-of-non-leaves-see-rounded-gradients"],
    except_under={"float64": "it asks for float64 by name"},
)
def test_argument_of_a_float64_tensor(backend: Backend, trace: Trace) -> None:
    """The hook of a float64 tensor gets a float64 gradient, exact to that precision."""

    def hook(grad):
        trace.log("dtype", backend.dtype(grad))
        trace.log("beyond float32", [number * 2**40 - 2**40 for number in backend.tolist(grad)])

    def forward(x, w):
        y = x * w
        backend.register_hook(y, hook)
        return backend.sum(y * w)

    x = backend.tensor([1.0 + 2**-40], requires_grad=True, dtype="float64")
    w = backend.tensor([1.0 + 2**-40], dtype="float64")
    backend.register_hook(x, hook)
    backend.backward(backend.call(forward, x, w))

    dtype = ("dtype", "float64")
    trace.expect(dtype, ("beyond float32", [1.0]), dtype, ("beyond float32", [2.0]))


@rule(
    "tensor-hook.fire.root",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 4)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["root-hook-skipped", "replaced-gradient-of-a-root-reaches-the-first-input-alone"],
)
def test_root(backend: Backend, trace: Trace) -> None:
    """A hook on the root of a backward fires with the gradient 1, and may replace it for the whole graph."""

    def forward(x):
        loss = backend.sum(x * 2)
        backend.register_hook(loss, trace.saw("root", lambda grad: grad * 3))
        return loss

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("root", 1.0))
    trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))

    leaf = backend.tensor(5.0, requires_grad=True)
    backend.register_hook(leaf, trace.saw("leaf", lambda grad: grad * 7))
    backend.backward(leaf)

    trace.expect(("leaf", 1.0))
    trace.expect_value("leaf.grad", 7.0, backend.grad_of(leaf))

    factors = [backend.tensor(number, requires_grad=True) for number in (2.0, 5.0)]
    product = backend.call(lambda left, right: left * right, *factors)
    backend.register_hook(product, trace.saw("product", lambda grad: grad * 3))
    backend.backward(product)

    trace.expect(("product", 1.0))
    trace.expect_value("gradients of the factors", [15.0, 6.0], [backend.grad_of(factor) for factor in factors])


@rule(
    "tensor-hook.fire.root-given-gradient",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2), docstring("torch.Tensor.backward").sentence(11)],
    needs=[Capability.TENSOR_HOOKS, Capability.SEED_GRADIENT],
    mutants=["root-hook-skipped", "root-hook-sees-ones", "hook-of-a-scalar-root-sees-one"],
)
def test_root_given_gradient(backend: Backend, trace: Trace) -> None:
    """A hook on the root of a backward, even if the root is a leaf, fires with the gradient passed to backward."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("root"))
        return y

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x), backend.tensor([3.0, 4.0]))

    trace.expect(("root", [3.0, 4.0]))

    backend.register_hook(x, trace.saw("leaf"))
    backend.backward(x, backend.tensor([5.0, 6.0]))

    trace.expect(("leaf", [5.0, 6.0]))

    scalar = backend.tensor(1.0, requires_grad=True)
    backend.register_hook(scalar, trace.saw("scalar leaf"))
    backend.backward(backend.call(forward, scalar), backend.tensor(3.0))
    trace.expect(("root", 3.0), ("scalar leaf", 6.0))
    backend.backward(scalar, backend.tensor(5.0))
    trace.expect(("scalar leaf", 5.0))


@rule(
    "tensor-hook.fire.unused",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["tensor-hooks-of-the-whole-graph-fire"],
)
def test_unused(backend: Backend, trace: Trace) -> None:
    """A hook on a tensor that the root does not depend on never fires."""

    def forward(x, other):
        unused = x * 3
        backend.register_hook(unused, trace.saw("unused intermediate"))
        return backend.sum(x * 2), other * 2

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    other = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(other, trace.saw("unused leaf"))
    loss, _ = backend.call(forward, x, other)
    backend.backward(loss)

    trace.expect()


@rule(
    "tensor-hook.fire.view-apart",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=[Capability.TENSOR_HOOKS, Capability.VIEWS],
    mutants=["hook-on-a-view-is-on-its-base", "view-of-a-shape-made-once"],
)
def test_view_apart(backend: Backend, trace: Trace) -> None:
    """A hook on a view is not called for a loss that was computed from the base or from another view of it.

    There is no gradient with respect to a tensor that the loss was not computed from, whatever its data.
    """

    def forward(x):
        used = backend.view(x, 2, 1)
        backend.register_hook(used, trace.saw("used"))
        return backend.sum(used * 3) + backend.sum(x * 4)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(backend.view(x, 2, 1), trace.saw("made before"))
    loss = backend.call(forward, x)
    backend.register_hook(backend.view(x, 2, 1), trace.saw("made after"))
    backend.backward(loss)

    trace.expect(("used", [[3.0], [3.0]]))
    trace.expect_value("x.grad", [7.0, 7.0], backend.grad_of(x))


@rule(
    "tensor-hook.fire.only-when-needed",
    level=Level.MUST,
    sources=[FIRED.sentence(1)],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=[
        "tensor-hooks-of-the-whole-graph-fire",
        "limited-pass-executes-the-whole-graph",
        "gradients-beyond-a-non-leaf-input-computed",
    ],
)
def test_only_when_needed(backend: Backend, trace: Trace) -> None:
    """A tensor hook fires only if the gradient of its tensor is needed for the requested gradients."""

    def forward(a, b):
        c = b * 2
        backend.register_hook(c, trace.saw("c"))
        return backend.sum(a * 2 + c)

    a = backend.tensor([1.0, 2.0], requires_grad=True)
    b = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(b, trace.saw("b"))
    backend.grad(backend.call(forward, a, b), [a])
    trace.expect()

    backend.register_hook(a, trace.saw("a"))
    y = backend.call(lambda a: a * 2, a)
    backend.grad(backend.call(lambda y: backend.sum(y * 3), y), [y])
    trace.expect()


@rule(
    "tensor-hook.fire.only-when-needed.backward",
    level=Level.MUST,
    sources=[FIRED.sentence(1)],
    needs=[Capability.TENSOR_HOOKS, Capability.BACKWARD_INPUTS],
    mutants=["limited-backward-spares-other-leaves-alone", "backward-with-inputs-runs-every-tensor-hook"],
)
def test_only_when_needed_in_backward(backend: Backend, trace: Trace) -> None:
    """In a backward with inputs, a hook of a tensor whose gradient these inputs do not need does not run."""

    def forward(a, b):
        c = b * 2
        backend.register_hook(c, trace.saw("non-leaf"))
        return backend.sum(a * 2 + c)

    a, b = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    backend.register_hook(b, trace.saw("leaf"))
    for _ in range(2):
        backend.backward(backend.call(forward, a, b), inputs=[a])
        trace.expect()

    backend.register_hook(a, trace.saw("beyond the input"))
    y = backend.call(lambda a: a * 2, a)
    backend.backward(backend.call(lambda y: backend.sum(y * 3), y), inputs=[y])
    trace.expect()


@rule(
    "tensor-hook.fire.autograd-grad-inputs",
    level=Level.MUST,
    sources=[FIRED.sentence(2, 3)],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=[
        "hooks-of-grad-inputs-skipped",
        "hooks-of-later-grad-inputs-skipped",
        "later-hooks-of-a-non-leaf-grad-input-skipped",
    ],
)
def test_grad_inputs(backend: Backend, trace: Trace) -> None:
    """The hooks of a non-leaf that is an input of `grad` run, whether or not its grad_fn is executed.

    A second call of `backend.call` takes y, so that y is an input of what follows in every mode.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for places in ("y", "yx", "xy"):
        y = backend.call(lambda x: x * 2, x)
        for _ in range(3):
            backend.register_hook(y, trace.saw("hook"))
        loss = backend.call(lambda y: backend.sum(y * 3), y)
        backend.grad(loss, [{"x": x, "y": y}[place] for place in places])

        trace.expect(*[("hook", [3.0, 3.0])] * 3)


@rule(
    "tensor-hook.fire.autograd-grad-leaf",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2), FIRED.sentence(3)],
    needs=[Capability.TENSOR_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=["hooks-of-grad-inputs-skipped", "hooks-of-later-grad-inputs-skipped"],
)
def test_grad_leaf(backend: Backend, trace: Trace) -> None:
    """The tensor hooks of a leaf that is an input of `grad` run, although nothing is accumulated in it."""
    for first_hooked in (True, False):
        x, y = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        hooked = x if first_hooked else y
        backend.register_hook(hooked, trace.saw("hook"))
        backend.grad(backend.call(lambda x, y: backend.sum(x * 3 + y * 3), x, y), [x, y])

        trace.expect(("hook", [3.0, 3.0]))
        trace.expect_value("x.grad", None, backend.grad_of(hooked))


@rule(
    "tensor-hook.multi-output-node",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2), FIRED.sentence(1)],
    needs=[Capability.TENSOR_HOOKS, Capability.MULTI_OUTPUT],
    mutants=[
        "tensor-hooks-shared-by-the-node",
        "handle-of-a-later-output-removes-nothing",
        "handle-of-an-output-removes-the-hooks-of-others",
    ],
)
def test_multi_output_node(backend: Backend, trace: Trace) -> None:
    """Hooks on different outputs of one Node are separate: each sees the gradient of its own output only."""

    def forward(x):
        a, b = backend.split(x, 2)
        backend.register_hook(a, trace.saw("a"))
        backend.register_hook(b, trace.saw("b"))
        backend.register_hook(b, trace.saw("removed")).remove()
        return backend.sum(a * 2 + b * 3)

    x = backend.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect_in_any_order("a", "b")
    trace.expect_value("gradient of a", [2.0, 2.0], trace.values("a")[0])
    trace.expect_value("gradient of b", [3.0, 3.0], trace.values("b")[0])


@rule(
    "tensor-hook.multi-output-unused",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("called once with None")],
    needs=[Capability.TENSOR_HOOKS, Capability.MULTI_OUTPUT],
)
def test_multi_output_unused(backend: Backend, trace: Trace) -> None:
    """A hook on an unused output of a Node whose other outputs are used may be called, with None for its gradient."""

    def forward(x):
        used, unused = backend.split(x, 2)
        backend.register_hook(unused, trace.saw("unused"))
        return backend.sum(used * 2)

    x = backend.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("unused", None))


@rule(
    "tensor-hook.view-and-base",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2), docstring("torch.Tensor.detach").sentence(1)],
    needs=[Capability.TENSOR_HOOKS, Capability.VIEWS],
    mutants=["tensor-hook-fires-per-edge", "views-are-constants"],
)
def test_view_and_base(backend: Backend, trace: Trace) -> None:
    """A hook on a base receives the gradients through its views, and none through a detached tensor.

    What comes through a view is part of the gradient with respect to the base; a detached tensor has left the graph.
    """

    def forward(x):
        base = x * 2
        backend.register_hook(base, trace.saw("base"))
        view, detached = backend.view(base, 2, 1), backend.detach(base)
        return backend.sum(view * 3) + backend.sum(base * 4) + backend.sum(detached * 100)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("base", [7.0, 7.0]))


class CallableObject:
    """A hook that is not a function, and has no name."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __call__(self, grad: Any) -> Any:
        """Log the gradient, and return another."""
        self.trace.log("hook", grad)
        return grad * 10


@rule(
    "tensor-hook.callable-object",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[REGISTER_HOOK, observed("nothing but a call is asked of a hook")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["hooks-must-be-functions", "hooks-that-are-methods-lost"],
)
def test_callable_object(backend: Backend, trace: Trace) -> None:
    """A hook may be any callable object, for example one without a name or a partial function."""
    called = CallableObject(trace)
    for hook in (called, called.__call__, partial(CallableObject.__call__, called)):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.register_hook(x, hook)
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

        trace.expect(("hook", [2.0, 2.0]))
        trace.expect_value("x.grad", [20.0, 20.0], backend.grad_of(x))


@rule(
    "tensor-hook.arg.kept",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a gradient that something else refers to is copied into .grad")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "kept-gradients-become-grad",
        "kept-gradients-of-non-leaves-become-grad",
        "kept-gradients-become-grad-of-leaves-without-hooks",
        "gradients-kept-in-a-later-pass-become-grad",
        "kept-gradients-without-dimensions-become-grad",
    ],
)
def test_kept_gradient(backend: Backend, trace: Trace) -> None:
    """A gradient that a tensor's hook kept does not change when a later backward adds to a leaf's .grad.

    Unless the tensor is a view of that leaf, or the hook kept a view of the gradient: either may share its memory.
    """
    kept: list[Any] = []

    def forward(x):
        y = x + 1
        backend.register_hook(y, kept.append)
        return backend.sum(y * 2)

    for numbers, twos, sevens in (([1.0, 2.0], [2.0, 2.0], [7.0, 7.0]), (3.0, 2.0, 7.0)):
        kept.clear()
        x = backend.tensor(numbers, requires_grad=True)
        handle = backend.register_hook(x, kept.append)
        for _ in range(2):
            backend.backward(backend.call(forward, x))
        handle.remove()
        backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

        trace.expect_value("kept", [twos] * 4, kept)
        trace.expect_value("x.grad", sevens, backend.grad_of(x))

        kept.clear()
        x = backend.tensor(numbers, requires_grad=True)
        for _ in range(2):
            backend.backward(backend.call(forward, x))
        trace.expect_value("kept, where the leaf has no hook", [twos] * 2, kept)
