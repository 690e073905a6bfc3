"""The result of an unpack hook: backward uses it, in the saved tensor's place in the graph."""

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule, tutorial
from hooklaw.rules.lifetimes import kinds_of_node

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
SECTION = notes("autograd", "hooks-for-saved-tensors")
DEFAULT_HOOKS = notes("autograd", "registering-default-hooks-for-saved-tensors")
TUTORIAL = tutorial("intermediate/autograd_saved_tensors_hooks_tutorial")


@rule(
    "saved-tensor.identity.violation-visible",
    level=Level.MUST,
    sources=[TUTORIAL.sentence(28)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["unpacked-tensor-ignored"],
)
def test_violation_is_visible(backend: Backend, trace: Trace) -> None:
    """Backward uses an unpack hook's result: a pair that changes the tensor changes the gradient, without an error."""
    factor, shift = backend.tensor([3.0, 5.0]), backend.tensor([-1.0, -2.0])

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed * 10):
            y = x * 2
            return backend.sum(x * x + y * y + x * factor + backend.exp(x + shift))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect_value("x.grad", [140.0, 260.0], backend.grad_of(x))


@rule(
    "saved-tensor.retain-graph.same-data",
    level=Level.MUST,
    sources=[SECTION.sentence(9), TUTORIAL.sentence(49)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.RETAIN_GRAPH],
    mutants=["unpacked-tensor-cached", "unpacked-constant-cached"],
)
def test_every_backward_unpacks(backend: Backend, trace: Trace) -> None:
    """Every backward that needs a saved tensor calls the unpack hook, which returns the same data each time.

    saved-tensor.unpack.per-access says it of reads too, for a backend on which a saved tensor can be read.
    """

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, trace.saw("unpack", lambda packed: packed)):
            y = x * backend.exp(x)
        return backend.sum(y)  # outside: a sum may save its input

    x = backend.tensor([0.0], requires_grad=True)
    loss = backend.call(forward, x)
    for last in (False, False, True):
        backend.backward(loss, retain_graph=not last)
        trace.expect(*["unpack"] * 3)

    data = sorted([[0.0], [1.0], [1.0]] * 3)
    trace.expect_value("unpacked: the leaf, and the output for both Nodes", data, sorted(trace.values("unpack")))
    trace.expect_value("x.grad", [3.0], backend.grad_of(x))

    def with_constant(x, constant):
        with backend.saved_tensors_hooks(backend.detach, trace.saw("unpack", lambda packed: packed)):
            y = x * constant
        return backend.sum(y)

    loss = backend.call(with_constant, x, backend.tensor([5.0]))
    for last in (False, False, True):
        before = trace.values("unpack").count([5.0])
        backend.backward(loss, retain_graph=not last)
        trace.expect_value("reads of a constant", 1, trace.values("unpack").count([5.0]) - before)


@rule(
    "saved-tensor.unpack.must-return-tensor",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[HOOKS, observed("it raises where the docstring says that the hook should return a tensor")],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "unpack-result-of-any-type-accepted",
        "unpacking-to-none-means-the-original",
        "unpack-result-of-any-type-accepted-in-custom-functions",
        "first-of-an-unpacked-tuple-used",
        "falsy-unpacked-objects-mean-the-original",
    ],
)
def test_must_return_a_tensor(backend: Backend, trace: Trace) -> None:
    """An unpack hook that returns something other than a tensor, e.g. a number, None or a list, is an error."""

    def backward(operation, unpack):
        def forward(x):
            with backend.saved_tensors_hooks(backend.detach, unpack):
                y = operation(x)
            return backend.sum(y)

        backend.backward(backend.call(forward, backend.tensor([0.0], requires_grad=True)))

    for operation in (backend.exp, kinds_of_node(backend)["custom Function"]):
        for unpack in (
            *(lambda _, result=result: result for result in (7, 0, None, False, "", (), {})),
            lambda packed: [packed],
            lambda packed: (packed,),
            lambda packed: {"tensor": packed},
        ):
            with trace.raises(ErrorKind.UNPACK_RETURN_TYPE):
                backward(operation, unpack)


@rule(
    "saved-tensor.unpack.wrong-shape",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the shape of the result is not compared with that of the saved tensor")],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["unpacked-shape-checked"],
)
def test_wrong_shape(backend: Backend, trace: Trace) -> None:
    """An unpack hook may return a tensor of another shape than the saved one, which is used without an error."""
    other = backend.tensor([5.0])

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, lambda _: other):
            y = backend.exp(x)
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0, 3.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect_value("x.grad", [5.0, 5.0, 5.0], backend.grad_of(x))


@rule(
    "saved-tensor.unpack.wrong-dtype",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the dtype of the result is not compared with that of the saved tensor")],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.FLOAT64],
    mutants=["unpacked-dtype-checked"],
)
def test_wrong_dtype(backend: Backend, trace: Trace) -> None:
    """An unpack hook may return a tensor of another dtype than the saved one; the gradient keeps its own dtype."""
    other = backend.tensor([5.0], dtype="float64")

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, lambda _: other):
            y = backend.exp(x)
        return backend.sum(y)

    x = backend.tensor([1.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect_value("x.grad", [5.0], backend.grad_of(x))
    trace.expect_value("dtype of x.grad", "float32", backend.dtype(backend.grad_of(x)))


@rule(
    "saved-tensor.unpack.metadata-restored",
    level=Level.MUST,
    sources=[SECTION.sentence(5), DEFAULT_HOOKS.sentence(7)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["autograd-metadata-of-the-unpacked-tensor-kept", "unpacked-outputs-stay-detached"],
)
def test_metadata_restored(backend: Backend, trace: Trace) -> None:
    """An unpack hook's result takes the saved tensor's place in the graph: even a detached result has derivatives."""
    shift = backend.tensor([-2.0])

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed):
            square = x * x
            return backend.sum(square * square + backend.exp(x + shift))

    x = backend.tensor([2.0], requires_grad=True)
    (first,) = backend.grad(backend.call(forward, x), [x], create_graph=True)
    trace.expect_value("first derivative", [33.0], first)

    (second,) = backend.grad(backend.sum(first), [x])
    trace.expect_value("second derivative", [49.0], second)


@rule(
    "saved-tensor.unpack.metadata-restored.custom-function",
    level=Level.MUST,
    sources=[SECTION.sentence(5), DEFAULT_HOOKS.sentence(7)],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.AUTOGRAD_GRAD,
        Capability.CREATE_GRAPH,
        Capability.CUSTOM_FUNCTION,
    ],
    mutants=["functions-read-detached-tensors-under-hooks"],
)
def test_metadata_restored_in_custom_function(backend: Backend, trace: Trace) -> None:
    """An unpack hook's result takes the place of a custom Function's saved tensor in the graph, even if detached."""

    def save(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    def read(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y * 2 + grad * x * 4

    function = backend.custom_function(save, read)

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed):
            y = function(x)
        return backend.sum(y + x * x * x)

    x = backend.tensor([2.0], requires_grad=True)
    (first,) = backend.grad(backend.call(forward, x), [x], create_graph=True)
    trace.expect_value("first derivative", [28.0], first)

    (second,) = backend.grad(backend.sum(first), [x])
    trace.expect_value("second derivative", [48.0], second)


@rule(
    "saved-tensor.unpack.leaf-metadata",
    level=Level.MUST,
    sources=[SECTION.sentence(5)],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.CREATE_GRAPH,
        Capability.AUTOGRAD_GRAD,
        Capability.NODES,
        Capability.SAVED_TENSOR_ACCESS,
        Capability.SAVED_TENSOR_REGISTER,
    ],
    mutants=[
        "autograd-metadata-of-the-unpacked-tensor-kept",
        "unpacked-leaf-accumulates-into-itself",
        "per-tensor-hooks-cut-the-graph",
    ],
    except_under={"packed": "the saved tensors already have the condition's pair of hooks"},
)
def test_leaf_metadata(backend: Backend, trace: Trace) -> None:
    """A saved leaf is unpacked to a leaf that requires grad, whose gradient accumulates into the original."""
    pair = backend.detach, lambda packed: packed

    def pair_of_context(x):
        with backend.saved_tensors_hooks(*pair):
            return x * x

    def own_pairs(x):
        y = x * x
        for saved in backend.raw_saved_tensors(backend.grad_fn(y)):
            backend.saved_tensor_register_hooks(saved, *pair)
        return y

    for forward in (pair_of_context, own_pairs):
        x = backend.tensor([3.0], requires_grad=True)
        y = backend.call(forward, x)
        saved = backend.saved_tensors(backend.grad_fn(y))
        seen = {(backend.is_leaf(read), backend.requires_grad(read)) for read in saved}
        trace.expect_value("is a leaf, requires grad", [[True, True]], sorted(seen))

        (first,) = backend.grad(backend.sum(y), [x], create_graph=True)
        backend.backward(backend.sum(first))
        trace.expect_value("x.grad", [2.0], backend.grad_of(x))
