"""retain_graph: what a backward pass frees, and what it retains."""

from concurrent.futures import ThreadPoolExecutor
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.lifetimes import kinds_of_node

BACKWARD = docstring("torch.Tensor.backward")
GRAD = docstring("torch.autograd.grad")
THREADS = notes("autograd", "graph-retaining")


@rule(
    "retain-graph.second-backward-error",
    level=Level.MUST,
    sources=[BACKWARD.sentence(14), docstring("torch.autograd.backward").sentence(18), THREADS.sentence(3)],
    needs=[Capability.GRAPH_FREEING],
    mutants=[
        "backward-retains",
        "backward-freed-accepted",
        "shared-graph-copied-per-root",
        "saved-outputs-are-never-freed",
    ],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_second_backward(backend: Backend, trace: Trace) -> None:
    """A second backward through saved tensors that the first has freed is an error that mentions retain_graph."""

    def forward(x, operation):
        y = operation(x)
        return backend.sum(y), backend.sum(y * 3)

    for operation in (lambda x: x * x, backend.exp):  # it saves its inputs, or its output
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        loss, other = backend.call(lambda x, operation=operation: forward(x, operation), x)
        backend.backward(loss)

        for root in (loss, other):
            with trace.raises(ErrorKind.GRAPH_FREED, "retain_graph"):
                backend.backward(root)


@rule(
    "retain-graph.second-backward-error.custom-function",
    level=Level.MUST,
    sources=[BACKWARD.sentence(14), docstring("torch.autograd.backward").sentence(18), THREADS.sentence(3)],
    needs=[Capability.GRAPH_FREEING, Capability.CUSTOM_FUNCTION],
    mutants=["error-of-freed-functions-has-no-advice"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_second_backward_of_function(backend: Backend, trace: Trace) -> None:
    """A second backward through what a custom Function saved, and the first freed, is an error naming retain_graph."""
    function = kinds_of_node(backend)["custom Function"]
    loss = backend.call(lambda x: backend.sum(function(x)), backend.tensor([1.0, 2.0], requires_grad=True))
    backend.backward(loss)

    with trace.raises(ErrorKind.GRAPH_FREED, "retain_graph"):
        backend.backward(loss)


@rule(
    "retain-graph.no-saved-tensors",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[BACKWARD, observed("a Node that saved no tensor has nothing to free")],
    mutants=["walked-root-refused-at-once"],
)
def test_nothing_saved(backend: Backend, trace: Trace) -> None:
    """Backward may run again through a graph that saved no tensor and was not retained, and accumulates again."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(x + 1), x)
    backend.backward(loss)
    backend.backward(loss)

    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


@rule(
    "retain-graph.true-allows",
    level=Level.MUST,
    sources=[BACKWARD.sentence(5, 14)],
    needs=[Capability.RETAIN_GRAPH],
    mutants=["backward-frees", "backward-overwrites", "released-though-retained"],
)
def test_retained(backend: Backend, trace: Trace) -> None:
    """Backward can run any number of times through a graph that each pass retains, and each pass adds its gradients."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(x * x), x)
    for _ in range(3):
        backend.backward(loss, retain_graph=True)

    trace.expect_value("x.grad", [6.0, 12.0], backend.grad_of(x))


@rule(
    "retain-graph.last-frees",
    level=Level.MUST,
    sources=[BACKWARD.sentence(14)],
    needs=[Capability.RETAIN_GRAPH, Capability.GRAPH_FREEING],
    mutants=["backward-frees", "retained-graph-never-freed", "retain-graph-given-as-false-retains"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_last_pass_frees(backend: Backend, trace: Trace) -> None:
    """A retained graph is freed by the first pass that does not retain it; this pass still succeeds."""
    for how in ({}, {"retain_graph": False}):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        loss = backend.call(lambda x: backend.sum(x * x), x)
        backend.backward(loss, retain_graph=True)
        backend.backward(loss, **how)

        trace.expect_value("x.grad", [4.0, 8.0], backend.grad_of(x))
        with trace.raises(ErrorKind.GRAPH_FREED):
            backend.backward(loss)


@rule(
    "retain-graph.default-from-create-graph",
    level=Level.MUST,
    sources=[GRAD.sentence(17)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.RETAIN_GRAPH, Capability.CREATE_GRAPH, Capability.GRAPH_FREEING],
    mutants=["retain-graph-default-always-false", "create-graph-always-retains"],
)
def test_default(backend: Backend, trace: Trace) -> None:
    """Unless retain_graph is given, autograd.grad with create_graph=True retains the graph."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(x * x), x)
    backend.grad(loss, [x], create_graph=True)
    (again,) = backend.grad(loss, [x], create_graph=True, retain_graph=False)

    trace.expect_value("gradient of the second pass", [2.0, 4.0], again)
    with trace.raises(ErrorKind.GRAPH_FREED):
        backend.grad(loss, [x])


@rule(
    "retain-graph.default-from-create-graph.backward",
    level=Level.MUST,
    sources=[BACKWARD.sentence(15), docstring("torch.autograd.backward").sentence(20)],
    needs=[Capability.BACKWARD_CREATE_GRAPH, Capability.RETAIN_GRAPH, Capability.GRAPH_FREEING],
    mutants=["backward-with-create-graph-frees"],
)
def test_default_of_backward(backend: Backend, trace: Trace) -> None:
    """Unless retain_graph is given, a backward with create_graph=True retains the graph."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(x * x), x)
    with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
        backend.backward(loss, create_graph=True)
        backend.set_grad(x, None)
        backend.backward(loss, create_graph=True, retain_graph=False)

    trace.expect_value("x.grad of the second pass", [2.0, 4.0], backend.grad_of(x))
    backend.set_grad(x, None)  # breaks the cycle
    with trace.raises(ErrorKind.GRAPH_FREED):
        backend.backward(loss)


@rule(
    "retain-graph.grad-too",
    level=Level.MUST,
    sources=[GRAD.sentence(15, 17)],
    needs=[Capability.AUTOGRAD_GRAD, Capability.RETAIN_GRAPH, Capability.GRAPH_FREEING],
    mutants=["autograd-grad-retains", "autograd-grad-frees"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_autograd_grad_frees(backend: Backend, trace: Trace) -> None:
    """autograd.grad retains the graph with retain_graph=True, and frees it otherwise, as backward does."""
    for last in ({"retain_graph": None}, {}):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        loss = backend.call(lambda x: backend.sum(x * x), x)
        for how in ({"retain_graph": True}, {"retain_graph": True}, last):
            (gradient,) = backend.grad(loss, [x], **how)
            trace.expect_value("gradient", [2.0, 4.0], gradient)

        with trace.raises(ErrorKind.GRAPH_FREED):
            backend.grad(loss, [x])


@rule(
    "retain-graph.grad-too.batched",
    level=Level.MUST,
    sources=[GRAD.sentence(15, 17, 23)],
    needs=[
        Capability.AUTOGRAD_GRAD,
        Capability.SEED_GRADIENT,
        Capability.BATCHED_GRADIENTS,
        Capability.GRAPH_FREEING,
    ],
    mutants=["batches-retain-the-graph"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_batch_frees(backend: Backend, trace: Trace) -> None:
    """autograd.grad with is_grads_batched=True frees the graph unless it retains it, whatever the number of rows."""
    for rows in ([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        y, batch = backend.call(lambda x: x * x, x), backend.tensor(rows)
        backend.grad(y, [x], batch, is_grads_batched=True)

        with trace.raises(ErrorKind.GRAPH_FREED):
            backend.grad(y, [x], batch, is_grads_batched=True)


@rule(
    "retain-graph.grad-part",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[
        GRAD.sentence(15),
        observed("what lies beyond the inputs was not used to compute the gradient, and is kept"),
    ],
    needs=[Capability.AUTOGRAD_GRAD, Capability.GRAPH_FREEING],
    mutants=["autograd-grad-frees-the-whole-graph"],
)
def test_autograd_grad_frees_a_part(backend: Backend, trace: Trace) -> None:
    """autograd.grad frees only the part of the graph that it went through: what lies beyond its inputs is kept."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * x, x)
    loss = backend.call(lambda y: backend.sum(y * y), y)
    other = backend.call(lambda y: backend.sum(y * 3), y)
    trace.expect_value("gradient", [[2.0, 8.0]], backend.grad(loss, [y]))
    backend.backward(other)

    trace.expect_value("x.grad", [6.0, 12.0], backend.grad_of(x))


@rule(
    "retain-graph.partial-shared",
    level=Level.MUST,
    sources=[BACKWARD.sentence(14), THREADS.sentence(1, 3)],
    needs=[Capability.GRAPH_FREEING],
    mutants=["shared-graph-copied-per-root", "backward-retains"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_shared_part(backend: Backend, trace: Trace) -> None:
    """Backward from a root also frees the part of the graph shared with another root, whose backward then fails."""

    def forward(x):
        shared = x * x
        return backend.sum(shared * 2), backend.sum(shared * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    first, second = backend.call(forward, x)
    backend.backward(first)

    with trace.raises(ErrorKind.GRAPH_FREED):
        backend.backward(second)


@rule(
    "retain-graph.threads-error",
    level=Level.MUST,
    sources=[THREADS.sentence(2, 3)],
    needs=[Capability.THREADS, Capability.GRAPH_FREEING],
    mutants=["shared-graph-copied-per-thread", "backward-retains"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_threads_share_a_graph(backend: Backend, trace: Trace) -> None:
    """Backward through a part of the graph that a backward in another thread has freed fails, naming retain_graph."""

    def forward(x):
        shared = x * x
        return backend.sum(shared * 2), backend.sum(shared * 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    first, second = backend.call(forward, x)
    with ThreadPoolExecutor(max_workers=1) as earlier, ThreadPoolExecutor(max_workers=1) as other:
        earlier.submit(backend.backward, first).result()
        with trace.raises(ErrorKind.GRAPH_FREED, "retain_graph"):
            other.submit(backend.backward, second).result()


@rule(
    "retain-graph.hooks-before-error",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("hooks on the way to a freed Node run in the failing pass too")],
    needs=[Capability.TENSOR_HOOKS, Capability.GRAPH_FREEING],
    mutants=["walked-root-refused-at-once"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_hooks_before_the_error(backend: Backend, trace: Trace) -> None:
    """In a pass that fails at a freed Node, hooks on the way to that Node may run before the error."""

    def forward(x):
        y = x * x
        backend.register_hook(y, trace.saw("tensor hook"))
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(forward, x)
    backend.backward(loss)
    with trace.raises(ErrorKind.GRAPH_FREED):
        backend.backward(loss)

    trace.expect("tensor hook", "tensor hook")


@rule(
    "retain-graph.error-partial-accumulation",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("what a failing pass accumulated before the error stays accumulated")],
    needs=[Capability.GRAPH_FREEING],
    mutants=["failing-pass-rolled-back"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_no_rollback(backend: Backend, trace: Trace) -> None:
    """A pass that fails at a freed Node may leave gradients that it accumulated before."""
    near = backend.tensor([1.0, 2.0], requires_grad=True)
    behind = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda near, behind: backend.sum(behind * behind + near), near, behind)
    backend.backward(loss)
    with trace.raises(ErrorKind.GRAPH_FREED):
        backend.backward(loss)

    trace.expect_value("grad before the freed Node", [2.0, 2.0], backend.grad_of(near))
    trace.expect_value("grad behind the freed Node", [2.0, 4.0], backend.grad_of(behind))
