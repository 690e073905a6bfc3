"""Node pre-hooks: their arguments, what they replace, and when they run."""

from itertools import product

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import NODE, NODE_PRE, gets_each_value, nothing, uses_each_value

PREHOOK = docstring("torch.autograd.graph.Node.register_prehook")
EXECUTION = notes("autograd", "backward-hooks-execution")
ORDER = notes("autograd", "the-order-in-which-the-different-hooks-are-fired")
FIRED = notes("autograd", "whether-a-particular-hook-will-be-fired")
NODE_HOOKS = [Capability.NODES, Capability.NODE_HOOKS]


@rule(
    "node-prehook.args",
    level=Level.MUST,
    sources=[PREHOOK.sentence(3)],
    needs=[*NODE_HOOKS, Capability.MULTI_OUTPUT],
    mutants=[
        "node-pre-hook-gets-a-bare-tensor",
        "node-pre-hook-gets-grad-inputs",
        "node-pre-hook-gets-a-list-of-one",
        "node-pre-hook-of-a-leaf-gets-a-list",
        "later-node-pre-hooks-get-lists",
    ],
)
def test_arguments(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook gets one tuple: the gradients of all the Node's outputs."""

    def forward(x):
        left, middle, right = backend.split(x, 1)
        hook = trace.saw("node pre-hook", lambda grads: trace.log("a tuple", isinstance(grads, tuple)))
        backend.node_register_prehook(backend.grad_fn(left), hook)
        return backend.sum(left * 2 + middle * 5 + right * 3)

    for _ in range(3):
        x = backend.tensor([1.0, 2.0, 3.0], requires_grad=True)
        backend.backward(backend.call(forward, x))

        trace.expect(("node pre-hook", [[2.0], [5.0], [3.0]]), ("a tuple", True))

    x = backend.tensor([2.0], requires_grad=True)
    y = backend.call(backend.clone, x)
    nodes = [backend.grad_fn(y), backend.accumulate_grad(x)]
    for node in nodes * 3:
        backend.node_register_prehook(node, lambda grads: trace.log("a tuple", isinstance(grads, tuple)))
    backend.backward(backend.call(lambda y: backend.sum(y * 3), y))
    trace.expect(*[("a tuple", True)] * 6)


@rule(
    "node-prehook.replace",
    level=Level.MUST,
    sources=[PREHOOK.sentence(4)],
    needs=NODE_HOOKS,
    mutants=["node-pre-hook-ignored", "accumulate-grad-pre-hook-replaces-nothing"],
)
def test_replacement(backend: Backend, trace: Trace) -> None:
    """A Node is executed with the tuple of gradients that its pre-hook returns."""

    def forward(x):
        y = x * 5
        backend.node_register_prehook(backend.grad_fn(y), lambda grads: (grads[0] * 2,))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    node = backend.accumulate_grad(x)
    backend.node_register_prehook(node, lambda grads: (grads[0] * 3,))
    backend.backward(backend.call(forward, x))

    trace.expect_value("x.grad", [30.0, 30.0], backend.grad_of(x))

    uses_each_value(backend, trace, NODE_PRE)


@rule(
    "node-prehook.replace.several-outputs",
    level=Level.MUST,
    sources=[PREHOOK.sentence(3, 4)],
    needs=[*NODE_HOOKS, Capability.MULTI_OUTPUT],
    mutants=[
        "node-pre-hook-results-first-alone",
        "node-post-hook-sees-the-raw-gradient-of-later-outputs",
        "next-node-pre-hook-sees-the-raw-gradient-of-later-outputs",
    ],
)
def test_replaces_several(backend: Backend, trace: Trace) -> None:
    """Each gradient in the tuple that a Node pre-hook returns replaces that of the Node's output in its position."""

    def forward(x):
        left, middle, right = backend.split(x * 5, 1)
        node = backend.grad_fn(left)
        backend.node_register_prehook(node, lambda grads: (grads[0] * 2, grads[1] * 7, grads[2] * 3))
        backend.node_register_prehook(node, trace.saw("next pre-hook"))
        backend.node_register_hook(node, lambda _, grad_outputs: trace.log("grad_outputs", grad_outputs))
        return backend.sum(left + middle + right)

    for _ in range(3):
        x = backend.tensor([1.0, 2.0, 3.0], requires_grad=True)
        backend.backward(backend.call(forward, x))

        trace.expect(("next pre-hook", [[2.0], [7.0], [3.0]]), ("grad_outputs", [[2.0], [7.0], [3.0]]))
        trace.expect_value("x.grad", [10.0, 35.0, 15.0], backend.grad_of(x))


@rule(
    "node-prehook.none-keeps",
    level=Level.MUST,
    sources=[PREHOOK.sentence(3, 4)],
    needs=NODE_HOOKS,
    mutants=["none-taken-as-zero", "none-undoes-earlier-replacements", "none-of-a-pre-hook-of-a-leaf-taken-as-zero"],
)
def test_none_keeps(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook that returns None does not change the gradients."""

    def forward(x):
        y = x * 5
        node = backend.grad_fn(y)
        backend.node_register_prehook(node, lambda grads: (grads[0] * 2,))
        backend.node_register_prehook(node, trace.saw("node pre-hook"))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    of_leaf = backend.accumulate_grad(x)
    backend.node_register_prehook(of_leaf, trace.saw("pre-hook of the leaf"))
    backend.backward(backend.call(forward, x))

    trace.expect("node pre-hook", "pre-hook of the leaf")
    trace.expect_value("x.grad", [10.0, 10.0], backend.grad_of(x))


@rule(
    "node-prehook.order",
    level=Level.MUST,
    sources=[ORDER.sentence(8, 9)],
    needs=NODE_HOOKS,
    mutants=[
        "hooks-run-in-reverse-order",
        "later-hooks-see-the-original-gradient",
        "node-pre-hooks-in-reverse",
        "node-pre-hooks-of-a-leaf-in-reverse",
        "node-pre-hook-takes-the-place-of-a-removed-one",
    ],
)
def test_registration_order(backend: Backend, trace: Trace) -> None:
    """The pre-hooks of a Node run in order of registration, each with what the one before it returned."""

    def register_on(node):
        removed = backend.node_register_prehook(node, nothing)
        backend.node_register_prehook(node, trace.saw("doubles", lambda grads: (grads[0] * 2,)))
        removed.remove()
        backend.node_register_prehook(node, trace.saw("adds one", lambda grads: (grads[0] + 1,)))

    def forward(x):
        y = x * 5
        register_on(backend.grad_fn(y))
        return backend.sum(y)

    for _ in range(3):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(backend.call(forward, x))

        trace.expect(("doubles", [[1.0, 1.0]]), ("adds one", [[2.0, 2.0]]))
        trace.expect_value("x.grad", [15.0, 15.0], backend.grad_of(x))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    of_leaf = backend.accumulate_grad(x)
    register_on(of_leaf)
    backend.backward(backend.call(lambda x: backend.sum(x * 3), x))

    trace.expect(("doubles", [[3.0, 3.0]]), ("adds one", [[6.0, 6.0]]))
    trace.expect_value("x.grad of the leaf's Node", [7.0, 7.0], backend.grad_of(x))


@rule(
    "node-prehook.sees-tensor-hooks",
    level=Level.MUST,
    sources=[ORDER.sentence(2, 3, 9)],
    needs=[*NODE_HOOKS, Capability.TENSOR_HOOKS, Capability.MULTI_OUTPUT],
    mutants=[
        "node-pre-hook-before-tensor-hook",
        "node-pre-hook-before-tensor-hooks-of-later-outputs",
        "node-pre-hook-sees-the-raw-gradient",
        "node-pre-hook-before-the-second-tensor-hook",
        "accumulate-grad-pre-hook-sees-the-raw-gradient",
    ],
)
def test_sees_tensor_hooks(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook gets the gradient that the tensor hooks on the Node's output returned."""

    def forward(x):
        y = x * 5
        backend.node_register_prehook(backend.grad_fn(y), trace.saw("node pre-hook"))
        backend.register_hook(y, lambda grad: grad * 2)
        backend.register_hook(y, lambda grad: grad * 3)
        return backend.sum(y)

    def in_parts(x):
        parts = backend.split(x, 1)
        backend.node_register_prehook(backend.grad_fn(parts[0]), trace.saw("pre-hook of several outputs"))
        for part, factor in zip(parts, (2, 3, 5), strict=True):
            backend.register_hook(part, lambda grad, factor=factor: grad * factor)
        return backend.sum(parts[0] + parts[1] + parts[2])

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    node = backend.accumulate_grad(x)
    backend.node_register_prehook(node, trace.saw("pre-hook of the leaf"))
    backend.register_hook(x, lambda grad: grad * 7)
    backend.backward(backend.call(forward, x))

    trace.expect(("node pre-hook", [[6.0, 6.0]]), ("pre-hook of the leaf", [[210.0, 210.0]]))

    backend.backward(backend.call(in_parts, backend.tensor([1.0, 2.0, 3.0], requires_grad=True)))
    trace.expect(("pre-hook of several outputs", [[2.0], [3.0], [5.0]]))


@rule(
    "node-prehook.not-captured",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[EXECUTION, observed("autograd.grad captures the gradient between the tensor hooks and the pre-hooks")],
    needs=[*NODE_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=["node-pre-hook-changes-captured-gradient"],
)
def test_captured_gradient_is_untouched(backend: Backend, trace: Trace) -> None:
    """autograd.grad returns the gradient with respect to a tensor as it was before the pre-hooks of its grad_fn.

    For a tensor further up the graph the Node is executed, so what its pre-hooks return counts.
    """

    def forward(x):
        y = x * 5
        backend.node_register_prehook(backend.grad_fn(y), lambda grads: (grads[0] * 2,))
        return backend.sum(y * 3), y

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, y = backend.call(forward, x)
    of_y, of_x = backend.grad(loss, [y, x])

    trace.expect_value("gradient of the Node's own tensor", [3.0, 3.0], of_y)
    trace.expect_value("gradient of its input", [30.0, 30.0], of_x)


@rule(
    "node-prehook.return.wrong-length",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[PREHOOK, observed("the signature is documented, the error is not")],
    needs=[*NODE_HOOKS, Capability.MULTI_OUTPUT],
    mutants=[
        "node-hook-return-count-unchecked",
        "fewer-gradients-of-a-node-hook-padded",
        "some-gradients-of-a-node-pre-hook-padded",
        "node-pre-hook-return-of-a-leaf-uncounted",
    ],
)
def test_wrong_length(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook that returns more or fewer gradients than the Node has outputs is an error."""

    def of_one(x, returned):
        y = x * 5
        backend.node_register_prehook(backend.grad_fn(y), lambda grads: returned(*grads))
        return backend.sum(y)

    def of_two(x, returned):
        left, right = backend.split(x * 5, 1)
        backend.node_register_prehook(backend.grad_fn(left), lambda grads: returned(*grads))
        return backend.sum(left + right)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for forward, returned in product((of_one, of_two), (lambda *grads: (*grads, grads[0]), lambda *grads: grads[:-1])):
        loss = backend.call(lambda x, forward=forward, returned=returned: forward(x, returned), x)

        with trace.raises(ErrorKind.HOOK_RETURN_COUNT):
            backend.backward(loss)

    of_leaf = backend.accumulate_grad(x)
    for returned in ((lambda grads: (*grads, grads[0])), lambda grads: grads[:-1]):
        handle = backend.node_register_prehook(of_leaf, returned)
        with trace.raises(ErrorKind.HOOK_RETURN_COUNT):
            backend.backward(backend.call(backend.sum, x))
        handle.remove()


@rule(
    "node-prehook.return.non-tuple",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[PREHOOK, observed("the signature is documented, the error is not")],
    needs=[*NODE_HOOKS, Capability.MULTI_OUTPUT],
    mutants=[
        "node-hook-bare-tensor-accepted",
        "node-pre-hook-bare-tensor-for-several-accepted",
        "node-pre-hook-bare-tensor-of-a-leaf-accepted",
    ],
)
def test_bare_tensor(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook that returns a tensor instead of a tuple is an error."""

    def of_one(x):
        y = x * 5
        backend.node_register_prehook(backend.grad_fn(y), lambda grads: grads[0] * 2)
        return backend.sum(y)

    def of_two(x):
        left, right = backend.split(x * 5, 1)
        backend.node_register_prehook(backend.grad_fn(left), lambda grads: grads[0] * 2)
        return backend.sum(left + right)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for forward in (of_one, of_two):
        loss = backend.call(forward, x)

        with trace.raises(ErrorKind.HOOK_RETURN_TYPE):
            backend.backward(loss)

    of_leaf = backend.accumulate_grad(x)
    backend.node_register_prehook(of_leaf, lambda grads: grads[0] * 2)
    with trace.raises(ErrorKind.HOOK_RETURN_TYPE):
        backend.backward(backend.call(backend.sum, x))


@rule(
    "node-hook.fire.every-backward",
    level=Level.MUST,
    sources=[PREHOOK.sentence(2), docstring("torch.autograd.graph.Node.register_hook").sentence(2)],
    needs=[*NODE_HOOKS, Capability.RETAIN_GRAPH],
    mutants=[
        "node-hook-lost-second-call",
        "node-pre-hook-lost-second-call",
        "hooks-of-accumulate-grad-run-once",
        "node-hooks-get-the-gradients-of-the-first-pass",
        "node-pre-hooks-registered-in-a-backward-wait",
        "node-hooks-of-a-root-that-is-a-leaf-lost",
    ],
)
def test_every_backward(backend: Backend, trace: Trace) -> None:
    """A pre-hook and a post-hook of a Node run in every backward in which the Node computes a gradient."""

    def register_on(node, of=""):
        backend.node_register_prehook(node, trace.saw(f"pre-hook{of}"))
        backend.node_register_hook(node, lambda _, grad_outputs: trace.log(f"post-hook{of}", grad_outputs))

    def forward(x):
        y = x * 5
        register_on(backend.grad_fn(y))
        return [backend.sum(y * factor) for factor in (2, 3)]

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    node = backend.accumulate_grad(x)
    register_on(node, " of the leaf")
    losses = backend.call(forward, x)
    for loss, grads in zip(losses * 2, ([2.0, 2.0], [3.0, 3.0]) * 2, strict=True):
        backend.backward(loss, retain_graph=True)

        of_leaf = "pre-hook of the leaf", "post-hook of the leaf"
        trace.expect(("pre-hook", [grads]), ("post-hook", [grads]), *of_leaf)

    y = backend.call(lambda x: x * 5, backend.tensor([1.0, 2.0], requires_grad=True))
    loss = backend.call(lambda y: backend.sum(y * 3), y)
    backend.node_register_prehook(backend.grad_fn(loss), lambda _: register_on(backend.grad_fn(y)))
    backend.backward(loss)

    trace.expect("pre-hook", "post-hook")

    root = backend.tensor(5.0, requires_grad=True)
    node = backend.accumulate_grad(root)
    register_on(node)
    backend.backward(root)

    trace.expect(("pre-hook", [1.0]), ("post-hook", [1.0]))

    for kind in (NODE_PRE, NODE):
        gets_each_value(backend, trace, kind)


@rule(
    "node-prehook.fire.only-executed",
    level=Level.MUST,
    sources=[FIRED.sentence(8, 15)],
    needs=[*NODE_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=["autograd-grad-executes-the-nodes-of-its-inputs", "autograd-grad-executes-the-nodes-of-several-inputs"],
)
def test_not_executed(backend: Backend, trace: Trace) -> None:
    """If autograd.grad asks for a non-leaf and for nothing that its grad_fn leads to, that Node's hooks do not run."""

    def forward(x, w):
        y = x * 5
        node = backend.grad_fn(y)
        backend.node_register_prehook(node, trace.saw("node pre-hook"))
        backend.node_register_hook(node, trace.saw("node post-hook"))
        return backend.sum(y * w), y

    x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    for others in ([], [w]):
        loss, y = backend.call(forward, x, w)
        of_y, *_ = backend.grad(loss, [y, *others])

        trace.expect()
        trace.expect_value("gradient", [1.0, 2.0], of_y)


@rule(
    "node-prehook.fire.dependent-input",
    level=Level.MUST,
    sources=[FIRED.sentence(8, 15)],
    needs=[*NODE_HOOKS, Capability.AUTOGRAD_GRAD],
    mutants=["autograd-grad-never-runs-node-hooks", "autograd-grad-runs-no-node-hooks-of-its-later-inputs"],
)
def test_executed_for_another_input(backend: Backend, trace: Trace) -> None:
    """If another input of autograd.grad needs a tensor's grad_fn executed, the hooks of that Node run once."""

    def forward(x):
        y = x * 5
        node = backend.grad_fn(y)
        backend.node_register_prehook(node, trace.saw("node pre-hook"))
        backend.node_register_hook(node, trace.saw("node post-hook"))
        return backend.sum(y * 3), y

    for places in ((0, 1), (1, 0)):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        loss, y = backend.call(forward, x)
        backend.grad(loss, [(y, x)[place] for place in places])

        trace.expect("node pre-hook", "node post-hook")


@rule(
    "node-prehook.fire.backward-inputs",
    level=Level.MAY,
    sources=[
        FIRED.sentence(13, 14),
        docstring("torch.autograd.backward").sentence(11, 12),
        docstring("torch.Tensor.backward").sentence(8, 9),
    ],
    needs=[*NODE_HOOKS, Capability.BACKWARD_INPUTS],
    mutants=["backward-spares-the-nodes-of-its-inputs"],
)
def test_executed_for_backward_inputs(backend: Backend, trace: Trace) -> None:
    """If a non-leaf is in the inputs of backward, its grad_fn may be executed too, and then its Node hooks run."""

    def forward(x):
        y = x * 5
        node = backend.grad_fn(y)
        backend.node_register_prehook(node, trace.saw("node pre-hook"))
        backend.node_register_hook(node, trace.saw("node post-hook"))
        return backend.sum(y * 3), y

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss, y = backend.call(forward, x)
    backend.backward(loss, inputs=[y])

    trace.expect("node pre-hook", "node post-hook")


@rule(
    "node-hook.fire.undefined",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("hooks run, with None for each gradient")],
    needs=[*NODE_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=["undefined-gradients-skip-node-hooks"],
)
def test_undefined(backend: Backend, trace: Trace) -> None:
    """Where no gradient is computed for a Node's outputs, its hooks may run all the same, with None."""
    dead_end = backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, _grad: None)

    def forward(x):
        y = x * 5
        node = backend.grad_fn(y)
        backend.node_register_prehook(node, trace.saw("node pre-hook"))
        backend.node_register_hook(node, lambda _, grad_outputs: trace.log("node post-hook", grad_outputs))
        return backend.sum(dead_end(y))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("node pre-hook", [None]), ("node post-hook", [None]))
    trace.expect_value("x.grad", None, backend.grad_of(x))


@rule(
    "node-prehook.fire.backward-inputs.others",
    level=Level.MUST,
    sources=[FIRED.sentence(8), docstring("torch.autograd.backward").sentence(24)],
    needs=[*NODE_HOOKS, Capability.BACKWARD_INPUTS],
    mutants=["backward-inputs-option-ignored"],
)
def test_other_leaf(backend: Backend, trace: Trace) -> None:
    """The hooks and pre-hooks of a leaf's AccumulateGrad do not run if the leaf is not among backward's inputs.

    A Node's hooks run only when the Node is executed, and backward ignores the leaves that are not among its inputs.
    The note that all hooks are executed, with inputs or without, speaks of the hooks of the inputs themselves.
    """
    x, other = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    nodes = {"x": backend.accumulate_grad(x), "other": backend.accumulate_grad(other)}
    for label, node in nodes.items():
        backend.node_register_prehook(node, lambda *_, label=label: trace.log(f"{label} pre-hook"))
        backend.node_register_hook(node, lambda *_, label=label: trace.log(f"{label} hook"))
    backend.backward(backend.call(lambda x, other: backend.sum(x * other), x, other), inputs=[x])

    trace.expect("x pre-hook", "x hook")


@rule(
    "node-prehook.handle.remove-next",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the hooks of an execution are fixed when it begins")],
    needs=NODE_HOOKS,
    mutants=["node-pre-hooks-of-an-execution-change"],
)
def test_removes_the_next(backend: Backend, trace: Trace) -> None:
    """A Node pre-hook that an earlier pre-hook of the same execution removes may still run in that execution."""

    def forward(x):
        y = x * 2
        handles = []
        backend.node_register_prehook(backend.grad_fn(y), lambda _: trace.log("first") or handles[0].remove())
        handles.append(backend.node_register_prehook(backend.grad_fn(y), lambda _: trace.log("removed")))
        return backend.sum(y)

    backend.backward(backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True)))

    trace.expect("first", "removed")
