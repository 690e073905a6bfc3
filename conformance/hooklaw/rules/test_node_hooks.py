"""Nodes, and Node post-hooks: their arguments, and what they replace."""

from functools import partial
from itertools import product
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, page, rule
from hooklaw.rules.hooks import NUMBERS, nothing

HOOK = docstring("torch.autograd.graph.Node.register_hook")
PREHOOK = docstring("torch.autograd.graph.Node.register_prehook")
GRAPH = page("autograd", "autograd-graph")
ORDER = notes("autograd", "the-order-in-which-the-different-hooks-are-fired")
NODE_HOOKS = [Capability.NODES, Capability.NODE_HOOKS]


@rule(
    "node.identity",
    level=Level.MUST,
    sources=[
        docstring("torch.autograd.graph.Node.name").sentence(1),
        GRAPH.sentence(2),
        notes("autograd", "how-autograd-encodes-the-history").sentence(2, 5),
    ],
    needs=[Capability.NODES],
    mutants=[
        "next-functions-empty",
        "next-functions-lead-to-the-leaves",
        "next-functions-are-the-first",
        "nodes-of-one-input-have-no-name",
    ],
)
def test_identity(backend: Backend, trace: Trace) -> None:
    """The grad_fn of a non-leaf is a Node with a name; edges lead through the Nodes of all operations to the leaf's."""
    x, w = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    first = backend.call(backend.clone, x)
    second = backend.call(lambda first, w: first * w, first, w)
    node, before = backend.grad_fn(second), backend.grad_fn(first)
    of_x, of_w = backend.accumulate_grad(x), backend.accumulate_grad(w)

    for each in (node, before):
        trace.expect_value("has a name", expected=True, observed=bool(backend.node_name(each)))
    for _ in range(3):
        after = backend.node_next(node)
        trace.expect_value("leads to the Node before", expected=True, observed=before in after)
        trace.expect_value("and to a leaf's", expected=True, observed=of_w in after)
    trace.expect_value("which leads to the leaf's", expected=True, observed=backend.node_next(before) == [of_x])


@rule(
    "node.identity.leaf",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.is_leaf").sentence(3), GRAPH.sentence(2)],
    needs=[Capability.NODES, Capability.TENSOR_HOOKS],
    mutants=[
        "leaf-has-a-grad-fn",
        "leaf-with-a-gradient-has-a-grad-fn",
        "leaf-whose-node-was-asked-for-has-a-grad-fn",
        "leaf-with-a-hook-has-a-grad-fn",
    ],
)
def test_leaf_has_none(backend: Backend, trace: Trace) -> None:
    """A leaf has no grad_fn, whether or not it requires grad."""
    for requires_grad in (True, False):
        x = backend.tensor([1.0, 2.0], requires_grad=requires_grad)

        trace.expect_value("x has a grad_fn", expected=False, observed=backend.grad_fn(x) is not None)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(lambda x: backend.sum(x * x), x))
    trace.expect_value("x has a grad_fn after backward", expected=False, observed=backend.grad_fn(x) is not None)

    has_node = backend.accumulate_grad(x) is not None
    seen = [has_node, backend.grad_fn(x) is not None]
    trace.expect_value("x has a Node, and a grad_fn", expected=[True, False], observed=seen)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, lambda grad: grad)
    trace.expect_value("x has a grad_fn under a hook", expected=False, observed=backend.grad_fn(x) is not None)
    backend.backward(backend.call(lambda x: backend.sum(x * x), x))
    trace.expect_value("x has a grad_fn after its hook", expected=False, observed=backend.grad_fn(x) is not None)


@rule(
    "node.identity.leaf.edge",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.is_leaf").sentence(3), GRAPH.sentence(2)],
    needs=[Capability.NODES, Capability.GRADIENT_EDGES],
    mutants=["leaf-whose-edge-was-taken-has-a-grad-fn"],
)
def test_leaf_with_an_edge_has_none(backend: Backend, trace: Trace) -> None:
    """A leaf whose gradient edge was taken has no grad_fn."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    edge = backend.get_gradient_edge(x)

    trace.expect_value("x has a grad_fn", expected=False, observed=backend.grad_fn(x) is not None)
    del edge


@rule(
    "node.metadata",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[docstring("torch.autograd.graph.Node.metadata"), observed("the metadata is a dict that can be written")],
    needs=[Capability.NODES, Capability.NODE_METADATA],
    mutants=["node-metadata-copied", "node-metadata-shared"],
)
def test_metadata(backend: Backend, trace: Trace) -> None:
    """Each Node may have a mapping of its own for user data that lasts as long as the Node."""

    def forward(x):
        y = x * 2
        z = y * 3
        for tensor, data in ((y, "of y"), (z, "of z")):
            backend.node_metadata(backend.grad_fn(tensor))["key"] = data
        return y, z

    y, z = backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True))
    backend.backward(backend.sum(z))
    metadata = [backend.node_metadata(backend.grad_fn(tensor)).get("key") for tensor in (y, z)]

    trace.expect_value("metadata", ["of y", "of z"], metadata)


@rule(
    "node-hook.args",
    level=Level.MUST,
    sources=[HOOK.sentence(3)],
    needs=[*NODE_HOOKS, Capability.MULTI_OUTPUT],
    mutants=[
        "node-post-hook-arguments-swapped",
        "node-post-hook-gets-lists",
        "node-post-hook-gets-the-first-grad-output",
        "later-node-post-hooks-get-lists",
        "node-post-hook-gets-lists-in-its-second-call",
        "node-post-hook-of-a-leaf-gets-lists",
        "node-post-hook-gets-a-list-of-one-grad-input",
    ],
)
def test_arguments(backend: Backend, trace: Trace) -> None:
    """A Node post-hook gets two tuples: the gradients that the Node computed, and those that it was given."""

    def types(grad_inputs, grad_outputs):
        trace.log("tuples", isinstance(grad_inputs, tuple) and isinstance(grad_outputs, tuple))

    def watched(y):
        backend.node_register_hook(backend.grad_fn(y), trace.saw("grad_inputs, grad_outputs", types))

    def product(x, w):
        y = x * w
        watched(y)
        return backend.sum(y * 5)

    def parts(x):
        left, middle, right = backend.split(x, 1)
        watched(left)
        return backend.sum(left * 2 + middle * 5 + right * 3)

    for _ in range(3):
        x = backend.tensor([2.0], requires_grad=True)
        w = backend.tensor([3.0], requires_grad=True)
        backend.backward(backend.call(product, x, w))
        trace.expect(("grad_inputs, grad_outputs", [[[15.0], [10.0]], [[5.0]]]), ("tuples", True))
        backend.backward(backend.call(parts, backend.tensor([1.0, 2.0, 3.0], requires_grad=True)))
        trace.expect(("grad_inputs, grad_outputs", [[[2.0, 5.0, 3.0]], [[2.0], [5.0], [3.0]]]), ("tuples", True))

    x = backend.tensor([2.0], requires_grad=True)
    of_leaf = backend.accumulate_grad(x)
    for number in range(3):
        backend.node_register_hook(of_leaf, types)
        y = backend.call(backend.clone, x)
        for _ in range(3):
            backend.node_register_hook(backend.grad_fn(y), types)
        backend.backward(backend.call(lambda y: backend.sum(y * 3), y))
        trace.expect(*[("tuples", True)] * (3 + number + 1))


@rule(
    "node-hook.replace",
    level=Level.MUST,
    sources=[HOOK.sentence(4)],
    needs=NODE_HOOKS,
    mutants=["node-hook-ignored"],
)
def test_replacement(backend: Backend, trace: Trace) -> None:
    """The tuple that a Node post-hook returns replaces the gradients that the Node computed."""

    def forward(x):
        y = backend.clone(x * 5)
        backend.node_register_hook(backend.grad_fn(y), lambda grad_inputs, _: (grad_inputs[0] * 2,))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect_value("x.grad", [10.0, 10.0], backend.grad_of(x))

    for numbers in NUMBERS:
        x, returned = backend.tensor(numbers, requires_grad=True), backend.tensor(numbers)
        y = backend.call(backend.clone, x)
        backend.node_register_hook(backend.grad_fn(y), lambda *_, returned=returned: (returned,))
        backend.backward(backend.call(backend.sum, y))

        trace.expect_value(f"x.grad, of {numbers} returned", numbers, backend.grad_of(x))


@rule(
    "node-hook.replace.several-inputs",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4)],
    needs=NODE_HOOKS,
    mutants=["node-hook-results-first-alone", "node-post-hook-replaces-without-gaps"],
)
def test_replaces_several(backend: Backend, trace: Trace) -> None:
    """Each gradient in the tuple that a Node post-hook returns replaces the computed gradient in its position."""

    def product(hook):
        def forward(a, b):
            y = a * 5 * b
            backend.node_register_hook(backend.grad_fn(y), hook)
            return backend.sum(y)

        return forward

    for _ in range(3):
        x, w = (backend.tensor(numbers, requires_grad=True) for numbers in ([1.0, 2.0], [3.0, 4.0]))
        backend.backward(backend.call(product(lambda grads, _: (grads[0] * 2, grads[1] * 3)), x, w))
        trace.expect_value("x.grad", [30.0, 40.0], backend.grad_of(x))
        trace.expect_value("w.grad", [15.0, 30.0], backend.grad_of(w))

        constant = backend.tensor([6.0, 7.0])
        backend.backward(backend.call(product(lambda grads, _: (None, grads[1] * 4)), constant, w))
        trace.expect_value("w.grad of both passes", [135.0, 170.0], backend.grad_of(w))


@rule(
    "node-hook.none-keeps",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4)],
    needs=NODE_HOOKS,
    mutants=["none-taken-as-zero", "none-undoes-earlier-replacements"],
)
def test_none_keeps(backend: Backend, trace: Trace) -> None:
    """A Node post-hook that returns None does not change the computed gradients."""

    def forward(x):
        y = x * 5
        node = backend.grad_fn(y)
        backend.node_register_hook(node, lambda grad_inputs, _: (grad_inputs[0] * 2, *grad_inputs[1:]))
        backend.node_register_hook(node, trace.saw("node post-hook"))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect("node post-hook")
    trace.expect_value("x.grad", [10.0, 10.0], backend.grad_of(x))


@rule(
    "node-hook.order",
    level=Level.MUST,
    sources=[ORDER.sentence(8, 9)],
    needs=NODE_HOOKS,
    mutants=[
        "hooks-run-in-reverse-order",
        "later-hooks-see-the-original-gradient",
        "node-post-hooks-of-a-leaf-in-reverse",
        "node-post-hook-takes-the-place-of-a-removed-one",
    ],
)
def test_registration_order(backend: Backend, trace: Trace) -> None:
    """The post-hooks of a Node run in order of registration, each with what the one before it returned."""

    def forward(x):
        y = backend.clone(x)
        node = backend.grad_fn(y)
        backend.node_register_hook(node, trace.saw("doubles", lambda grad_inputs, _: (grad_inputs[0] * 2,)))
        backend.node_register_hook(node, trace.saw("adds one", lambda grad_inputs, _: (grad_inputs[0] + 1,)))
        return backend.sum(y)

    for _ in range(3):
        x = backend.tensor([1.0], requires_grad=True)
        backend.backward(backend.call(forward, x))

        trace.expect(("doubles", [[[1.0]], [[1.0]]]), ("adds one", [[[2.0]], [[1.0]]]))
        trace.expect_value("x.grad", [3.0], backend.grad_of(x))

    of_leaf = backend.accumulate_grad(x)
    handles = [backend.node_register_hook(of_leaf, trace.saw(label)) for label in ("removed", "first")]
    handles[0].remove()
    for label in ("second", "third"):
        backend.node_register_hook(of_leaf, trace.saw(label))
    backend.backward(backend.call(backend.sum, x))

    trace.expect("first", "second", "third")


@rule(
    "node-hook.return.wrong-length",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[HOOK, observed("the signature is documented, the error is not")],
    needs=NODE_HOOKS,
    mutants=[
        "node-hook-return-count-unchecked",
        "fewer-gradients-of-a-node-hook-padded",
        "some-gradients-of-a-node-hook-padded",
        "node-hook-return-of-a-leaf-unchecked",
    ],
)
def test_wrong_length(backend: Backend, trace: Trace) -> None:
    """A Node post-hook that returns more or fewer gradients than the Node computed is an error."""

    def forward(x, y, operation, returned):
        z = operation(x, y)
        backend.node_register_hook(backend.grad_fn(z), lambda grad_inputs, _: returned(*grad_inputs))
        return backend.sum(z)

    x, y = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    of_one, of_two = (lambda x, _: backend.clone(x)), (lambda x, y: x * y)
    for operation, returned in product(
        (of_one, of_two), (lambda *grads: (*grads, grads[0]), lambda *grads: grads[:-1])
    ):
        loss = backend.call(partial(forward, operation=operation, returned=returned), x, y)

        with trace.raises(ErrorKind.HOOK_RETURN_COUNT):
            backend.backward(loss)

    of_leaf = backend.accumulate_grad(x)
    backend.node_register_hook(of_leaf, lambda _, grad_outputs: grad_outputs)
    with trace.raises(ErrorKind.HOOK_RETURN_COUNT):
        backend.backward(backend.call(backend.sum, x))


@rule(
    "node-hook.return.non-tuple",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[HOOK, observed("the signature is documented, the error is not")],
    needs=NODE_HOOKS,
    mutants=["node-hook-bare-tensor-accepted", "node-post-hook-bare-tensor-for-several-accepted"],
)
def test_bare_tensor(backend: Backend, trace: Trace) -> None:
    """A Node post-hook that returns a tensor instead of a tuple is an error."""

    def forward(x, y, operation):
        z = operation(x, y)
        backend.node_register_hook(backend.grad_fn(z), lambda grad_inputs, _: grad_inputs[0] * 2)
        return backend.sum(z)

    x, y = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    for operation in ((lambda x, _: backend.clone(x)), (lambda x, y: x * y)):
        loss = backend.call(partial(forward, operation=operation), x, y)

        with trace.raises(ErrorKind.HOOK_RETURN_TYPE):
            backend.backward(loss)


@rule(
    "node-hook.handle.remove",
    level=Level.MUST,
    sources=[HOOK.sentence(5), PREHOOK.sentence(5)],
    needs=[*NODE_HOOKS, Capability.RETAIN_GRAPH],
    mutants=[
        "node-pre-hook-handle-removes-nothing",
        "node-hook-handle-removes-nothing",
        "node-pre-hook-stays-that-has-run",
        "node-hook-stays-that-has-run",
        "node-hook-handle-removes-the-oldest",
        "removal-waits-for-the-end-of-the-pass",
        "hooks-of-accumulate-grad-not-removed",
    ],
)
def test_remove(backend: Backend, trace: Trace) -> None:
    """After its handle has removed it, a Node pre-hook or post-hook no longer runs, and other hooks still do."""
    handles = []

    def register_on(node):
        for register in (backend.node_register_prehook, backend.node_register_hook):
            register(node, trace.saw("older"))
            register(node, trace.saw("removed at once")).remove()
            handles.append(register(node, trace.saw("removed later")))
            register(node, trace.saw("kept"))

    def remove(*_: object) -> None:
        while handles:
            handles.pop().remove()

    def forward(x):
        y = x * 5
        register_on(backend.grad_fn(y))
        return backend.sum(y)

    for in_backward in (False, True):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        node = backend.accumulate_grad(x)
        register_on(node)
        loss = backend.call(forward, x)
        backend.backward(loss, retain_graph=True)
        trace.expect_in_any_order(*["older", "removed later", "kept"] * 4)

        if in_backward:
            backend.node_register_prehook(backend.grad_fn(loss), remove)
        else:
            remove()
        backend.backward(loss)
        trace.expect_in_any_order(*["older", "kept"] * 4)


@rule(
    "node-hook.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an exception leaves a Node hook unchanged")],
    needs=NODE_HOOKS,
    mutants=[
        "node-pre-hook-swallowed",
        "node-hook-swallowed",
        "node-hook-of-a-leaf-swallowed",
        "hook-exception-wrapped",
        "hook-exception-without-its-message",
        "hook-exception-remade",
    ],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception raised in a Node pre-hook or post-hook reaches the caller of backward unchanged."""
    raised = KeyError("from the hook")

    def stop(_grads, _grad_outputs=None):
        raise raised

    def run(loss):
        try:
            backend.backward(loss)
        except KeyError as error:
            trace.log("the same", error is raised)
            raise

    def forward(register, x):
        y = x * 5
        register(backend.grad_fn(y), stop)
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    of_leaf = backend.accumulate_grad(x)
    for register in (backend.node_register_prehook, backend.node_register_hook):
        loss = backend.call(lambda x, register=register: forward(register, x), x)
        with trace.raises_type(KeyError, "from the hook"):
            run(loss)
        trace.expect(("the same", True))

        handle = register(of_leaf, stop)
        with trace.raises_type(KeyError, "from the hook"):
            run(backend.call(backend.sum, x))
        trace.expect(("the same", True))
        handle.remove()


@rule(
    "node-hook.create-graph.differentiable",
    level=Level.MUST,
    sources=[docstring("torch.autograd.grad").sentence(18), HOOK.sentence(4), PREHOOK.sentence(4)],
    needs=[*NODE_HOOKS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH, Capability.BACKWARD_CREATE_GRAPH],
    mutants=[
        "node-hook-results-detached",
        "node-hook-results-detached-in-backward",
        "autograd-grad-returns-what-post-hooks-were-given",
        "later-node-pre-hooks-get-constants",
        "later-node-post-hooks-get-constants",
        "results-of-pre-hooks-of-a-leaf-detached",
    ],
)
def test_differentiable(backend: Backend, trace: Trace) -> None:
    """In a backward with create_graph, what a Node pre-hook or post-hook computes is part of the graph."""
    x = backend.tensor([2.0], requires_grad=True)
    handles = []

    def hook(grads, _grad_outputs=None):
        return (grads[0] * x,)

    def forward(register, x):
        y = backend.clone(x)
        handles.extend(register(backend.grad_fn(y), hook) for _ in range(2))
        return backend.sum(y * y)

    def by_backward(loss):
        with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
            backend.backward(loss, create_graph=True)
        return backend.grad_of(x)

    for register, run in product(
        (backend.node_register_prehook, backend.node_register_hook),
        (lambda loss: backend.grad(loss, [x], create_graph=True)[0], by_backward),
    ):
        loss = backend.call(lambda x, register=register: forward(register, x), x)
        first = run(loss)
        while handles:
            handles.pop().remove()
        (second,) = backend.grad(backend.sum(first), [x])

        trace.expect_value("first derivative", [16.0], first)
        trace.expect_value("second derivative", [24.0], second)
        backend.set_grad(x, None)

    of_leaf = backend.accumulate_grad(x)
    handle = backend.node_register_prehook(of_leaf, hook)
    first = by_backward(backend.call(lambda x: backend.sum(x * 5), x))
    handle.remove()
    trace.expect_value("first derivative, a leaf's pre-hook", [10.0], first)
    trace.expect_value("second derivative, a leaf's pre-hook", [5.0], backend.grad(backend.sum(first), [x])[0])
    backend.set_grad(x, None)


@rule(
    "node-hook.register-during-execution",
    level=Level.MUST,
    sources=[HOOK.sentence(8)],
    needs=NODE_HOOKS,
    mutants=["late-node-post-hook-waits-for-the-next-pass", "late-node-post-hook-waits-if-there-are-others"],
)
def test_registered_by_prehook(backend: Backend, trace: Trace) -> None:
    """A post-hook that a Node's own pre-hook registers still replaces the grad_inputs of this execution."""

    def forward(x, has_another):
        y = backend.clone(x)
        node = backend.grad_fn(y)

        def register(_grad_outputs):
            backend.node_register_hook(node, lambda grad_inputs, _: (grad_inputs[0] * 2,))

        backend.node_register_prehook(node, register)
        if has_another:
            backend.node_register_hook(node, nothing)
        return backend.sum(y)

    for has_another in (False, True):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(backend.call(partial(forward, has_another=has_another), x))

        trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "node-hook.register-during-execution.custom-backward",
    level=Level.MUST,
    sources=[HOOK.sentence(8)],
    needs=[*NODE_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "late-node-post-hook-waits-for-the-next-pass",
        "late-node-post-hook-of-a-backward-waits-if-there-are-others",
    ],
)
def test_registered_by_backward(backend: Backend, trace: Trace) -> None:
    """A post-hook registered on a Node by the custom backward that it executes still replaces the grad_inputs."""
    nodes = []

    def execution(_ctx, grad):
        backend.node_register_hook(nodes.pop(), lambda grad_inputs, _: (grad_inputs[0] * 2,))
        return grad * 3

    triple = backend.custom_function(lambda _ctx, x: x * 3, execution)

    def forward(x, has_another):
        y = triple(x)
        nodes.append(backend.grad_fn(y))
        if has_another:
            backend.node_register_hook(nodes[0], nothing)
        return backend.sum(y)

    for has_another in (False, True):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(backend.call(partial(forward, has_another=has_another), x))

        trace.expect_value("x.grad", [6.0, 6.0], backend.grad_of(x))


@rule(
    "node.type",
    level=Level.MUST,
    sources=[GRAPH.sentence(2)],
    needs=[Capability.NODES, Capability.NODE_TYPE, Capability.CUSTOM_FUNCTION],
    mutants=["nodes-of-functions-are-no-nodes", "is-node-true", "results-are-nodes"],
)
def test_type(backend: Backend, trace: Trace) -> None:
    """The grad_fn of an output, of an operation or a custom Function, is an instance of Node; a tensor is not."""
    function = backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, grad: grad * 2)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    results = [backend.call(compute, x) for compute in (lambda x: x * 2, backend.exp, function)]

    trace.expect_value("are Nodes", [True] * 3, [backend.is_node(backend.grad_fn(result)) for result in results])
    trace.expect_value("tensors are Nodes", [False] * 4, [backend.is_node(tensor) for tensor in (x, *results)])
