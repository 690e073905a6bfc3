"""Custom Functions: their outputs, what they save, the gradients that their backward gets, and hooks."""

from itertools import pairwise, product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, page, rule
from hooklaw.rules.hooks import NUMBERS, OTHERS

RECORDED = notes("autograd", "setting-requires-grad")
SAVE = docstring("torch.autograd.function.FunctionCtx.save_for_backward")
EXTENDING = notes("extending", "how-to-use")
MATERIALIZE = docstring("torch.autograd.function.FunctionCtx.set_materialize_grads")


@rule(
    "custom-function.materialize-grads",
    level=Level.MUST,
    sources=[MATERIALIZE.sentence(2, 4), EXTENDING.sentence(40)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["custom-functions-get-no-zeros", "custom-functions-get-no-zeros-for-the-first-output"],
)
def test_zeros(backend: Backend, trace: Trace) -> None:
    """By default the backward of a custom Function gets zeros of the output's shape for an unused output."""

    def backward(_ctx, used, vector, scalar):
        trace.log("backward", [used, vector, scalar])
        return used * 2

    function = backend.custom_function(lambda _ctx, x: (x * 2, x * 3, backend.sum(x)), backward)

    def forward(x):
        used, _, _ = function(x)
        return backend.sum(used)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("backward", [[1.0, 1.0], [0.0, 0.0], 0.0]))

    def backward_of_many(_ctx, used, *unused: Any):
        trace.log("backward of many", [used, *unused])
        return used * 2

    many = backend.custom_function(lambda _ctx, x: (x * 2, *map(backend.tensor, NUMBERS)), backward_of_many)
    backend.backward(backend.call(lambda x: backend.sum(many(x)[0]), x))
    trace.expect(("backward of many", [[1.0, 1.0], 0.0, 0.0, [0.0], [0.0, 0.0], []]))

    def backward_of_last(_ctx, unused, used):
        trace.log("backward of the last", [unused, used])
        return used * 3

    of_last = backend.custom_function(lambda _ctx, x: (backend.sum(x), x * 3), backward_of_last)
    backend.backward(backend.call(lambda x: backend.sum(of_last(x)[1]), x))
    trace.expect(("backward of the last", [0.0, [1.0, 1.0]]))


@rule(
    "custom-function.materialize-grads.off",
    level=Level.MUST,
    sources=[MATERIALIZE.sentence(4), EXTENDING.sentence(39)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.FUNCTION_MARKS],
    mutants=[
        "set-materialize-grads-ignored",
        "set-materialize-grads-lasts",
        "set-materialize-grads-ignored-for-vectors",
        "set-materialize-grads-ignored-for-the-first-output",
        "set-materialize-grads-ignored-for-the-later-of-unused-outputs",
        "set-materialize-grads-ignored-from-the-third-call-on",
        "set-materialize-grads-reaches-other-functions",
    ],
)
def test_none_for_zeros(backend: Backend, trace: Trace) -> None:
    """After set_materialize_grads(False) the backward of a custom Function gets None for an unused output."""
    choices = [False, True]

    def function_forward(ctx, x):
        ctx.set_materialize_grads(choices.pop(0))
        return x * 2, backend.sum(x)

    def backward(_ctx, used, unused):
        trace.log("backward", [used, unused])
        return used * 2

    function = backend.custom_function(function_forward, backward)

    for unused in (None, 0.0):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(backend.call(lambda x: backend.sum(function(x)[0]), x))

        trace.expect(("backward", [[1.0, 1.0], unused]))
        trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))

    def forward_of_many(ctx, x):
        ctx.set_materialize_grads(False)
        return (*map(backend.tensor, NUMBERS), x * 2, *map(backend.tensor, NUMBERS))

    def backward_of_many(_ctx, *grads: Any):
        trace.log("backward of many", [*grads])
        return grads[len(NUMBERS)] * 2

    many = backend.custom_function(forward_of_many, backward_of_many)
    nones = [None] * len(NUMBERS)
    for _ in range(3):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(backend.call(lambda x: backend.sum(many(x)[len(NUMBERS)]), x))
        trace.expect(("backward of many", [*nones, [1.0, 1.0], *nones]))

    other = backend.custom_function(lambda _ctx, x: (x * 2, backend.sum(x)), backward)
    backend.backward(backend.call(lambda x: backend.sum(other(x)[0]), x))
    trace.expect(("backward", [[1.0, 1.0], 0.0]))


@rule(
    "custom-function.non-tensor-output",
    level=Level.MUST,
    sources=[docstring("torch.autograd.Function.backward").sentence(4)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "zeros-for-outputs-that-are-no-tensors",
        "zeros-for-outputs-that-are-floats",
        "containers-for-outputs-that-are-containers",
        "outputs-after-the-last-tensor-have-no-gradient",
    ],
)
def test_output_that_is_no_tensor(backend: Backend, trace: Trace) -> None:
    """The backward of a custom Function gets None for an output that is not a tensor."""

    def backward(_ctx, number, grad, *rest: Any):
        trace.log("backward", [number, grad, *rest])
        return grad * 2

    function = backend.custom_function(lambda _ctx, x: (5, x * 2, "note"), backward)

    def forward(x):
        number, output, note = function(x)
        trace.log("others", [number, note])
        return backend.sum(output)

    for _ in range(3):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(backend.call(forward, x))

        trace.expect(("others", [5, "note"]), ("backward", [None, [1.0, 1.0], None]))
        trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))

    def forward_of(*others: Any) -> Any:
        return backend.custom_function(
            lambda _ctx, x: (x * 2, *others),
            lambda _ctx, grad, *rest: (trace.log("of any kind", [grad, *rest]), grad * 2)[1],
        )

    others = [None, {"a": "dict"}, ["a list"], *OTHERS]
    outputs = backend.call(forward_of(*others), x)
    trace.expect_value("outputs of any kind", [[2.0, 4.0], *others], [*outputs])
    backend.backward(backend.sum(outputs[0]))
    trace.expect(("of any kind", [[1.0, 1.0], *[None] * len(others)]))
    trace.expect_value("x.grad", [4.0, 4.0], backend.grad_of(x))


@rule(
    "custom-function.outputs-require-grad",
    level=Level.MUST,
    sources=[EXTENDING.sentence(36), RECORDED.sentence(3)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "function-outputs-first-alone",
        "outputs-of-functions-always-require-grad",
        "outputs-of-functions-require-grad-as-the-last-input-does",
    ],
)
def test_outputs_require_grad(backend: Backend, trace: Trace) -> None:
    """By default all floating-point outputs of a custom Function require grad if one of its inputs does, and only then.

    The note on requires_grad says that an operation is only recorded if one of its inputs requires grad.
    """
    function = backend.custom_function(lambda _ctx, x, y: (x * 2, y * 3), lambda _ctx, first, second: (first, second))

    for flags in ((True, False), (False, True), (False, False)):
        results = backend.call(function, *(backend.tensor([1.0], requires_grad=flag) for flag in flags))
        expected = [any(flags)] * 2
        trace.expect_value("outputs require grad", expected, [backend.requires_grad(result) for result in results])

    for numbers in NUMBERS:
        results = backend.call(function, *(backend.tensor(numbers, requires_grad=True) for _ in range(2)))
        trace.expect_value(f"of {numbers}", [True] * 2, [backend.requires_grad(result) for result in results])


@rule(
    "custom-function.outputs-require-grad.integer",
    level=Level.MUST,
    sources=[EXTENDING.sentence(37)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.INTEGER],
    mutants=["integer-outputs-of-functions-require-grad", "later-integer-outputs-of-functions-require-grad"],
)
def test_integer_output(backend: Backend, trace: Trace) -> None:
    """An integer output of a custom Function does not require grad, and the gradients of other outputs are right."""

    def forward(_ctx, x):
        return backend.tensor([7, 8], dtype="int64"), x * 2, backend.tensor([9, 10], dtype="int64")

    function = backend.custom_function(forward, lambda _ctx, _integer, grad, _later: grad * 2)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    integer, output, later = backend.call(function, x)
    trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(integer))
    trace.expect_value("later: requires grad", expected=False, observed=backend.requires_grad(later))
    backend.backward(backend.sum(output))

    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))


def cube(backend: Backend) -> Any:
    """Make a custom Function that computes x * x * x and saves its input."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * x * 3

    return backend.custom_function(forward, backward)


@rule(
    "custom-function.save-for-backward",
    level=Level.MUST,
    sources=[SAVE.sentence(1, 10), notes("autograd", "saved-tensors").sentence(3), notes("extending", "example")],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "function-saved-reversed",
        "saved-inputs-of-a-function-come-first",
        "tensors-saved-twice-are-saved-once",
    ],
)
def test_saves(backend: Backend, trace: Trace) -> None:
    """The backward of a custom Function reads the tensors that its forward saved, in the same order.

    Nothing but the order says which tensor is which, as in the notes' example.
    """

    def forward(ctx, x, y):
        product = x * y
        ctx.save_for_backward(y, product, y, x)
        return product

    def backward(ctx, grad):
        y, *others, x = ctx.saved_tensors
        trace.log("saved", [y, *others, x])
        return grad * y, grad * x

    function = backend.custom_function(forward, backward)
    for _ in range(3):
        x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0], requires_grad=True)
        backend.backward(backend.call(lambda x, y: backend.sum(function(x, y)), x, y))

        trace.expect(("saved", [[3.0, 4.0], [3.0, 8.0], [3.0, 4.0], [1.0, 2.0]]))
        trace.expect_value("gradients", [[3.0, 4.0], [1.0, 2.0]], [backend.grad_of(x), backend.grad_of(y)])

    def keep(ctx, x):
        ctx.save_for_backward(x)
        return x * 1

    def read(ctx, grad):
        trace.log("saved", [*ctx.saved_tensors])
        return grad

    function = backend.custom_function(keep, read)
    for numbers in NUMBERS:
        backend.backward(backend.call(lambda x: backend.sum(function(x)), backend.tensor(numbers, requires_grad=True)))
        trace.expect(("saved", [numbers]))


@rule(
    "custom-function.saved-after-free",
    level=Level.MUST,
    sources=[
        EXTENDING.sentence(29),
        docstring("torch.Tensor.backward").sentence(14),
        notes("autograd", "graph-retaining").sentence(3),
    ],
    needs=[Capability.CUSTOM_FUNCTION, Capability.RETAIN_GRAPH, Capability.GRAPH_FREEING],
    mutants=["backward-retains", "backward-freed-accepted", "custom-functions-are-always-freed"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_freed(backend: Backend, trace: Trace) -> None:
    """Backward frees what a custom Function saved unless the graph is retained: another backward is an error then.

    The note on threads says that such a backward is an error; the note on extending, that saved tensors are cleared.
    """
    function = cube(backend)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(lambda x: backend.sum(function(x)), x)
    backend.backward(loss, retain_graph=True)
    backend.backward(loss)
    trace.expect_value("x.grad of two passes", [6.0, 24.0], backend.grad_of(x))

    with trace.raises(ErrorKind.GRAPH_FREED):
        backend.backward(loss)


@rule(
    "custom-function.save-none",
    level=Level.MUST,
    sources=[SAVE.sentence(12, 13), notes("extending", "example")],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=[
        "none-cannot-be-saved",
        "none-can-be-saved-between-tensors-alone",
        "none-alone-cannot-be-saved",
        "saved-none-is-not-read",
    ],
)
def test_saves_none(backend: Backend, trace: Trace) -> None:
    """save_for_backward accepts None, alone or beside tensors; backward reads it, and the tensors around it, as saved.

    The notes' example saves an argument that may be None, and reads it in its place.
    """

    def backward(ctx, grad):
        trace.log("are None", [saved is None for saved in ctx.saved_tensors])
        x, y = (saved for saved in ctx.saved_tensors if saved is not None)
        return grad * y, grad * x

    for arrange in (
        lambda x, y: (x, None, y),
        lambda x, y: (None, x, y),
        lambda x, y: (x, y, None),
        lambda x, y: (None, None, x, None, y, None, None),
    ):
        function = backend.custom_function(
            lambda ctx, x, y, arrange=arrange: (ctx.save_for_backward(*arrange(x, y)), x * y)[1], backward
        )
        x, y = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0], requires_grad=True)
        backend.backward(backend.call(lambda x, y, function=function: backend.sum(function(x, y)), x, y))

        trace.expect_value("gradients", [[3.0, 4.0], [1.0, 2.0]], [backend.grad_of(x), backend.grad_of(y)])
        trace.expect(("are None", [saved is None for saved in arrange(x, y)]))

    alone = backend.custom_function(lambda ctx, x: (ctx.save_for_backward(None), x * 2)[1], lambda _ctx, grad: grad * 2)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(lambda x: backend.sum(alone(x)), x))
    trace.expect_value("gradient of what saved None alone", [2.0, 2.0], backend.grad_of(x))


@rule(
    "custom-function.double-backward",
    level=Level.MUST,
    sources=[notes("extending", "example").sentence(10, 11, 12)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=["function-once-differentiable-set-always", "saved-tensors-of-a-function-detached"],
)
def test_double_backward(backend: Backend, trace: Trace) -> None:
    """A custom Function whose backward is made of differentiable operations can be differentiated twice.

    The second derivative flows through the saved input, and through the incoming gradient.
    """
    for _ in range(3):
        function = cube(backend)
        x, w = backend.tensor([1.0, 2.0], requires_grad=True), backend.tensor([3.0, 4.0], requires_grad=True)
        loss = backend.call(lambda x, w, function=function: backend.sum(function(x) * w), x, w)
        (first,) = backend.grad(loss, [x], create_graph=True)
        trace.expect_value("first derivative", [9.0, 48.0], first)

        trace.expect_value("second derivatives", [[18.0, 48.0], [3.0, 12.0]], backend.grad(backend.sum(first), [x, w]))


@rule(
    "custom-function.double-backward.by-backward",
    level=Level.MUST,
    sources=[notes("extending", "example").sentence(10, 11, 12), docstring("torch.Tensor.backward").sentence(17)],
    needs=[Capability.CUSTOM_FUNCTION, Capability.BACKWARD_CREATE_GRAPH],
    mutants=["functions-are-constant-in-a-backward-that-creates-a-graph"],
)
def test_double_backward_by_backward(backend: Backend, trace: Trace) -> None:
    """A custom Function can be differentiated twice by backward with create_graph=True, and another backward."""
    function, x = cube(backend), backend.tensor([1.0, 2.0], requires_grad=True)
    with catch_warnings(action="ignore"):  # torch warns of the cycle of create_graph
        backend.backward(backend.call(lambda x: backend.sum(function(x)), x), create_graph=True)
    first = backend.grad_of(x)
    trace.expect_value("first derivative", [3.0, 12.0], first)
    backend.set_grad(x, None)
    backend.backward(backend.sum(first))

    trace.expect_value("second derivative", [6.0, 12.0], backend.grad_of(x))


@rule(
    "custom-function.hooks",
    level=Level.MUST,
    sources=[
        notes("autograd", "whether-a-particular-hook-will-be-fired").sentence(1),
        docstring("torch.Tensor.register_hook").sentence(2, 4),
    ],
    needs=[Capability.CUSTOM_FUNCTION, Capability.TENSOR_HOOKS],
    mutants=[
        "tensor-hook-on-custom-function-lost",
        "hooks-pass-over-the-first-of-several-outputs",
        "hooks-pass-over-the-middle-of-three-outputs",
    ],
)
def test_tensor_hook(backend: Backend, trace: Trace) -> None:
    """A hook on an output of a custom Function runs, and what it returns is the gradient that backward gets."""

    def forward(x):
        y = function(x)
        backend.register_hook(y, trace.saw("only output", lambda grad: grad * 5))
        first, second = pair(y)
        backend.register_hook(first, trace.saw("first output", lambda grad: grad * 3))
        backend.register_hook(second, trace.saw("second output", lambda grad: grad * 2))
        return backend.sum(first + second * 7)

    function = cube(backend)
    pair = backend.custom_function(lambda _ctx, y: (y * 2, y * 3), lambda _ctx, first, second: first * 2 + second * 3)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    labels = ("first output", "second output", "only output")
    trace.expect_in_any_order(*labels)
    trace.expect_value("gradients", [[[1.0] * 2], [[7.0] * 2], [[48.0] * 2]], [*map(trace.values, labels)])
    trace.expect_value("x.grad", [720.0, 2880.0], backend.grad_of(x))

    three = backend.custom_function(lambda _ctx, x: (x * 2, x * 3, x * 5), lambda _ctx, *grads: grads[0] * grads[1])
    for hooked in range(3):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        outputs = backend.call(three, x)
        backend.register_hook(outputs[hooked], trace.saw("hook", lambda grad: grad * 3))
        backend.backward(backend.call(lambda first, second, third: backend.sum(first + second + third), *outputs))
        trace.expect(("hook", [1.0, 1.0]))
        trace.expect_value("x.grad", [1.0, 1.0] if hooked == 2 else [3.0, 3.0], backend.grad_of(x))


@rule(
    "custom-function.hooks.node",
    level=Level.MUST,
    sources=[
        notes("autograd", "the-order-in-which-the-different-hooks-are-fired").sentence(3, 5, 7),
        page("autograd", "autograd-graph").sentence(2),
        docstring("torch.autograd.graph.Node.register_prehook").sentence(2),
        docstring("torch.autograd.graph.Node.register_hook").sentence(2),
    ],
    needs=[Capability.CUSTOM_FUNCTION, Capability.NODES, Capability.NODE_HOOKS],
    mutants=["node-hook-of-custom-function-lost", "node-hooks-of-later-outputs-lost"],
)
def test_node_hooks(backend: Backend, trace: Trace) -> None:
    """The grad_fn of an output of a custom Function is a Node, whose hooks run around the user's backward."""

    def forward(x):
        y = function(x)
        node = backend.grad_fn(y)
        backend.node_register_prehook(node, lambda grads: (trace.log("before", grads), (grads[0] * 5,))[1])
        backend.node_register_hook(node, lambda results, _: (trace.log("after", results), (results[0] * 2,))[1])
        return backend.sum(y * 7)

    function = cube(backend)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("before", [[7.0, 7.0]]), ("after", [[105.0, 420.0]]))
    trace.expect_value("x.grad", [210.0, 840.0], backend.grad_of(x))

    def backward_of_pair(_ctx, first, second):
        trace.log("backward", [first, second])
        return first * 2 + second * 3

    pair = backend.custom_function(lambda _ctx, x: (x * 2, x * 3), backward_of_pair)
    for place in (0, 1):
        outputs = backend.call(pair, backend.tensor([1.0, 2.0], requires_grad=True))
        node = backend.grad_fn(outputs[place])
        backend.node_register_prehook(node, trace.saw("before"))
        backend.node_register_hook(node, lambda results, _: trace.log("after", results))
        backend.backward(backend.call(lambda first, second: backend.sum(first + second * 7), *outputs))

        grads = [[1.0, 1.0], [7.0, 7.0]]
        trace.expect(("before", grads), ("backward", grads), ("after", [[23.0, 23.0]]))


@rule(
    "custom-function.nested-structures",
    level=Level.MUST,
    sources=[EXTENDING.sentence(11)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["tensors-in-lists-are-inputs", "tensors-in-tuples-are-inputs", "tensors-in-dicts-are-inputs"],
)
def test_tensor_in_a_list(backend: Backend, trace: Trace) -> None:
    """A tensor inside a list, tuple or dict is no input of a custom Function, through which no gradient flows to it."""
    function = backend.custom_function(lambda _ctx, tensors: tensors[0] * 2, lambda _ctx, grad: grad)

    for wrap in (lambda x: [x], lambda x: (x,), lambda x: {0: x}):
        result = backend.call(lambda x, wrap=wrap: function(wrap(x)), backend.tensor([1.0, 2.0], requires_grad=True))

        trace.expect_value("requires grad", expected=False, observed=backend.requires_grad(result))


@rule(
    "custom-function.context-attributes",
    level=Level.MUST,
    sources=[docstring("torch.autograd.Function.forward").sentence(12)],
    needs=[Capability.CUSTOM_FUNCTION],
    mutants=["context-attributes-lost", "context-attributes-shared-by-calls"],
)
def test_attributes(backend: Backend, trace: Trace) -> None:
    """What the forward of a custom Function stores in an attribute of ctx is there in its backward."""
    factors: list[float] = []

    def scale(ctx, x):
        ctx.factor, ctx.note = factors[-1], {"plus": [factors[-1] + 1]}
        return x * 3

    def backward(ctx, grad):
        trace.log("attributes", [getattr(ctx, "factor", None), getattr(ctx, "note", {}).get("plus")])
        return grad * 3

    def forward(x):
        for factor in (3.0, 5.0):
            factors.append(factor)
            x = function(x)
        return backend.sum(x)

    function = backend.custom_function(scale, backward)
    backend.backward(backend.call(forward, backend.tensor([1.0, 2.0], requires_grad=True)))

    trace.expect(("attributes", [5.0, [6.0]]), ("attributes", [3.0, [4.0]]))


@rule(
    "custom-function.returned-input",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the output is a view of the input with the Function in its history")],
    needs=[Capability.CUSTOM_FUNCTION, Capability.TENSOR_HOOKS],
    mutants=[
        "returned-inputs-are-themselves",
        "returned-non-leaves-are-themselves",
        "returned-inputs-among-several-are-themselves",
        "returned-second-inputs-are-themselves",
    ],
)
def test_returned_input(backend: Backend, trace: Trace) -> None:
    """An input that a recorded custom Function returns comes out as another tensor, a non-leaf with its own hooks."""
    alone = backend.custom_function(lambda _ctx, x: x, lambda _ctx, grad: grad * 3)
    second = backend.custom_function(lambda _ctx, _, x: x, lambda _ctx, grad: (None, grad * 3))
    both = backend.custom_function(lambda _ctx, w, x: (w * 2, x), lambda _ctx, *grads: (None, grads[1] * 3))
    w = backend.tensor([3.0, 4.0])

    def run(x, function):
        y = function(x)
        trace.log("same, leaf", [y is x, backend.is_leaf(y)])
        backend.register_hook(y, trace.saw("output"))
        backend.register_hook(x, trace.saw("input"))
        return backend.sum(y) + backend.sum(x * 2)

    for function, times in product((alone, lambda x: second(w, x), lambda x: both(w, x)[1]), (0, 1)):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(
            backend.call(lambda x, function=function, times=times: run(x * 1 if times else x, function), x)
        )

        trace.expect(("same, leaf", [False, False]), ("output", [1.0, 1.0]), ("input", [5.0, 5.0]))


@rule(
    "node.identity.function",
    level=Level.MUST,
    sources=[
        docstring("torch.autograd.graph.Node.name").sentence(1),
        page("autograd", "autograd-graph").sentence(2),
        notes("autograd", "how-autograd-encodes-the-history").sentence(2, 5),
    ],
    needs=[Capability.NODES, Capability.CUSTOM_FUNCTION, Capability.MULTI_OUTPUT],
    mutants=[
        "nodes-of-functions-have-no-name",
        "nodes-of-several-outputs-have-no-name",
        "nodes-of-leaves-have-no-name",
        "edges-end-at-functions",
    ],
)
def test_nodes(backend: Backend, trace: Trace) -> None:
    """A custom Function's Node has a name, like that of several outputs or of a leaf, and edges lead through it."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    doubled = backend.call(backend.custom_function(lambda _ctx, x: x * 2, lambda _ctx, grad: grad * 2), x)
    parts = backend.call(lambda doubled: backend.split(doubled, 1), doubled)
    nodes = [backend.grad_fn(parts[1]), backend.grad_fn(doubled), backend.accumulate_grad(x)]

    trace.expect_value("have a name", [True] * 3, [bool(backend.node_name(node)) for node in nodes])
    for node, after in pairwise(nodes):
        trace.expect_value("leads to the Node before", expected=True, observed=after in backend.node_next(node))
