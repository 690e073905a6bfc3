"""The order of the kinds of hooks, for one tensor and along the graph."""

from hooklaw import Backend, Capability, Level, Trace, notes, rule

ORDER = notes("autograd", "the-order-in-which-the-different-hooks-are-fired")


@rule(
    "order.six-steps.leaf",
    level=Level.MUST,
    sources=[ORDER.sentence(2, 3, 5, 6, 7)],
    needs=[Capability.TENSOR_HOOKS, Capability.NODES, Capability.NODE_HOOKS, Capability.POST_ACCUMULATE],
    mutants=[
        "node-post-hook-before-post-accumulate",
        "node-pre-hook-before-tensor-hook",
        "later-post-accumulate-hook-after-node-post-hooks",
    ],
)
def test_leaf(backend: Backend, trace: Trace) -> None:
    """For a leaf the order is: tensor hooks, Node pre-hooks, accumulation, post-accumulate hooks, Node post-hooks.

    They are registered in reverse order.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    node = backend.accumulate_grad(x)

    def step(label):
        def hook(*_: object):
            trace.log(label, backend.grad_of(x) is not None)

        return hook

    for _ in range(2):
        backend.node_register_hook(node, step("node post-hook"))
        backend.register_post_accumulate_grad_hook(x, step("post-accumulate hook"))
        backend.node_register_prehook(node, step("node pre-hook"))
        backend.register_hook(x, step("tensor hook"))

    backend.backward(backend.call(lambda x: backend.sum(x * x), x))

    trace.expect(
        *[("tensor hook", False)] * 2,
        *[("node pre-hook", False)] * 2,
        *[("post-accumulate hook", True)] * 2,
        *[("node post-hook", True)] * 2,
    )


@rule(
    "order.six-steps.non-leaf",
    level=Level.MUST,
    sources=[ORDER.sentence(2, 3, 5, 7)],
    needs=[Capability.TENSOR_HOOKS, Capability.NODES, Capability.NODE_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=["node-post-hook-before-execution", "node-pre-hook-before-tensor-hook"],
)
def test_non_leaf(backend: Backend, trace: Trace) -> None:
    """For a non-leaf the order is: tensor hooks, Node pre-hooks, execution of the Node, Node post-hooks."""

    def execution(_ctx, grad):
        trace.log("execution")
        return grad * 2

    double = backend.custom_function(lambda _ctx, x: x * 2, execution)

    def forward(x):
        y = double(x)
        node = backend.grad_fn(y)
        for _ in range(2):
            backend.node_register_hook(node, trace.saw("node post-hook"))
            backend.node_register_prehook(node, trace.saw("node pre-hook"))
            backend.register_hook(y, trace.saw("tensor hook"))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(*["tensor hook"] * 2, *["node pre-hook"] * 2, "execution", *["node post-hook"] * 2)


@rule(
    "order.retain-grad-before-node-prehook",
    level=Level.MUST,
    sources=[ORDER.sentence(3, 4)],
    needs=[Capability.RETAIN_GRAD, Capability.NODES, Capability.NODE_HOOKS],
    mutants=["retain-grad-before-node-pre-hook"],
)
def test_retain_grad_after_prehook(backend: Backend, trace: Trace) -> None:
    """The retained gradient of a non-leaf is updated after the pre-hooks of its Node have run.

    The id names what torch does. This rule is about the moment; that the pre-hooks' result is what is retained is the
    rule retain-grad.vs-node-prehook.
    """

    def forward(x):
        y = x * 2
        backend.retain_grad(y)
        node = backend.grad_fn(y)
        backend.node_register_prehook(node, lambda _: trace.log("node pre-hook", backend.grad_of(y) is not None))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("node pre-hook", False))


@rule(
    "order.retain-grad-before-execution",
    level=Level.MUST,
    sources=[ORDER.sentence(4, 5)],
    needs=[Capability.RETAIN_GRAD, Capability.CUSTOM_FUNCTION],
    mutants=["retained-gradients-set-after-the-pass", "retain-grad-after-execution"],
)
def test_retain_grad_before_execution(backend: Backend, trace: Trace) -> None:
    """The retained gradient of a non-leaf is updated before its grad_fn is executed."""
    outputs = []

    def execution(_ctx, grad):
        trace.log("execution", backend.grad_of(outputs[0]))
        return grad * 2

    double = backend.custom_function(lambda _ctx, x: x * 2, execution)

    def forward(x):
        y = double(x)
        backend.retain_grad(y)
        outputs.append(y)
        return backend.sum(y * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("execution", [3.0, 3.0]))


@rule(
    "order.upstream-after-downstream",
    level=Level.MUST,
    sources=[ORDER.sentence(7), notes("autograd", "how-autograd-encodes-the-history").sentence(3)],
    needs=[Capability.TENSOR_HOOKS, Capability.NODES, Capability.NODE_HOOKS],
    mutants=[
        "hooks-of-the-graph-run-from-the-leaves",
        "leaf-hooks-run-before-the-post-hooks-of-a-consumer",
        "node-pre-hooks-run-before-the-post-hooks-of-a-consumer",
    ],
)
def test_root_to_leaves(backend: Backend, trace: Trace) -> None:
    """Every hook of a Node runs before any hook of the Nodes that receive gradients from it."""

    def forward(x):
        for label in ("a", "b", "c"):
            x = x * 2
            backend.register_hook(x, trace.saw(f"{label} tensor"))
            backend.node_register_prehook(backend.grad_fn(x), trace.saw(f"{label} pre"))
            backend.node_register_hook(backend.grad_fn(x), trace.saw(f"{label} post"))
        return backend.sum(x)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("leaf"))
    backend.backward(backend.call(forward, x))

    trace.expect(*(f"{label} {hook}" for label in "cba" for hook in ("tensor", "pre", "post")), "leaf")


@rule(
    "node-hook.grad-outputs-after-prehook",
    level=Level.MUST,
    sources=[ORDER.sentence(3, 7, 9)],
    needs=[Capability.NODES, Capability.NODE_HOOKS, Capability.TENSOR_HOOKS],
    mutants=[
        "node-post-hook-sees-the-raw-gradient",
        "node-post-hook-sees-what-the-first-pre-hook-returned",
        "node-post-hook-sees-the-gradient-before-tensor-hooks",
        "node-post-hook-of-a-leaf-sees-the-raw-gradient",
        "node-post-hook-of-a-leaf-sees-the-gradient-before-tensor-hooks",
    ],
)
def test_grad_outputs_after_prehook(backend: Backend, trace: Trace) -> None:
    """The grad_outputs of a Node post-hook are those the Node was executed with: what hooks before it returned."""

    def register_on(tensor, node):
        backend.register_hook(tensor, lambda grad: grad * 5)
        backend.node_register_prehook(node, lambda grad_outputs: (grad_outputs[0] * 2,))
        backend.node_register_hook(node, lambda _, grad_outputs: trace.log("grad_outputs", grad_outputs))
        backend.node_register_prehook(node, lambda grad_outputs: (grad_outputs[0] * 3,))

    def forward(x):
        y = x * 5
        register_on(y, backend.grad_fn(y))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("grad_outputs", [[30.0, 30.0]]))

    leaf = backend.tensor([1.0, 2.0], requires_grad=True)
    of_leaf = backend.accumulate_grad(leaf)
    register_on(leaf, of_leaf)
    backend.backward(backend.call(lambda leaf: backend.sum(leaf * 2), leaf))

    trace.expect(("grad_outputs", [[60.0, 60.0]]))
    del of_leaf
