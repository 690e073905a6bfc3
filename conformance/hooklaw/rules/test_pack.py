"""Pack hooks: when they run, what they get, what they may return, and what is an error."""

from collections.abc import Callable
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule, tutorial
from hooklaw.rules.hooks import NUMBERS
from hooklaw.rules.lifetimes import kinds_of_node

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
SECTION = notes("autograd", "hooks-for-saved-tensors")
DEFAULT_HOOKS = notes("autograd", "registering-default-hooks-for-saved-tensors")
TUTORIAL = tutorial("intermediate/autograd_saved_tensors_hooks_tutorial")


class PackError(Exception):
    """A user's own exception, which has something beside its arguments."""

    def __init__(self, *arguments: object, code: int = 0) -> None:
        super().__init__(*arguments)
        self.code = code


@rule(
    "saved-tensor.pack.once",
    level=Level.MUST,
    sources=[SECTION.sentence(9)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.RETAIN_GRAPH],
    mutants=["packed-again-by-backward", "saved-leaves-packed-twice"],
)
def test_once(backend: Backend, trace: Trace) -> None:
    """A pack hook is called once for each save, however many backward passes follow."""

    def forward(x):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), lambda packed: packed):
            y = x * x
            z = backend.exp(y * y)
        return backend.sum(z)  # outside: a sum may save its input

    loss = backend.call(forward, backend.tensor([0.0], requires_grad=True))
    for retain in (True, True, False):
        backend.backward(loss, retain_graph=retain)

    trace.expect(*["pack"] * 5)  # the leaf and the intermediate are saved twice, the output once

    for numbers in NUMBERS:
        backend.backward(backend.call(forward, backend.tensor(numbers, requires_grad=True)))
        trace.expect(*["pack"] * 5)


@rule(
    "saved-tensor.pack.once.custom-function",
    level=Level.MUST,
    sources=[SECTION.sentence(9)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.RETAIN_GRAPH, Capability.CUSTOM_FUNCTION],
    mutants=["packed-for-a-function-again-at-later-reads"],
)
def test_once_for_a_function(backend: Backend, trace: Trace) -> None:
    """A pack hook is called once for each tensor that a custom Function saves, however many backward passes follow."""
    function = kinds_of_node(backend)["custom Function"]

    def forward(x):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), lambda packed: packed):
            y = function(x)
        return backend.sum(y)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    loss = backend.call(forward, x)
    for retain in (True, True, False):
        backend.backward(loss, retain_graph=retain)

    trace.expect("pack")
    trace.expect_value("x.grad", [6.0, 12.0], backend.grad_of(x))


@rule(
    "saved-tensor.pack.during-forward",
    level=Level.MUST,
    sources=[HOOKS.sentence(3, 5), TUTORIAL.sentence(26)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["packed-at-context-exit", "packed-by-backward", "unpacked-during-forward"],
)
def test_during_forward(backend: Backend, trace: Trace) -> None:
    """A pack hook runs when the operation saves the tensor, an unpack hook not before backward needs it."""

    def forward(x):
        with backend.saved_tensors_hooks(
            trace.saw("pack", backend.detach),
            trace.saw("unpack", lambda packed: packed),
        ):
            y = backend.exp(x * x)
            trace.log("operation done")
        return backend.sum(y)

    loss = backend.call(forward, backend.tensor([0.0], requires_grad=True))
    trace.log("forward done")
    backend.backward(loss)

    trace.expect(*["pack"] * 3, "operation done", "forward done", *["unpack"] * 3)


@rule(
    "saved-tensor.pack.per-save",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(11, 14), HOOKS.sentence(3)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=[
        "saves-of-one-tensor-packed-once",
        "saves-of-one-intermediate-packed-once",
        "outputs-not-packed-again-as-inputs",
    ],
)
def test_per_save(backend: Backend, trace: Trace) -> None:
    """Each save of a tensor is packed separately, even if one operation saves the same tensor twice."""
    unpacked = []

    def pack(tensor):
        trace.log("pack")
        return [backend.detach(tensor)]

    def unpack(packed):
        unpacked.append(packed)
        return packed[0]

    def sixth_power(x):
        with backend.saved_tensors_hooks(pack, unpack):
            y = x * x
            z = y * y * y
        return backend.sum(z)  # outside: a sum may save its input

    def squared_output(x):
        with backend.saved_tensors_hooks(pack, unpack):
            y = backend.exp(x)
            z = y * y
        return backend.sum(z)

    for forward, start, saves, gradient in ((sixth_power, 2.0, 6, 192.0), (squared_output, 0.0, 3, 2.0)):
        x = backend.tensor([start], requires_grad=True)
        backend.backward(backend.call(forward, x))

        trace.expect(*["pack"] * saves)
        trace.expect_value("distinct packed objects unpacked", saves, len(set(map(id, unpacked))))
        trace.expect_value("x.grad", [gradient], backend.grad_of(x))
        unpacked.clear()


@rule(
    "saved-tensor.pack.any-object",
    level=Level.MUST,
    sources=[SECTION.sentence(2), HOOKS.sentence(8), TUTORIAL.sentence(30, 35)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=[
        "pack-must-return-a-tensor",
        "packed-containers-flattened",
        "falsy-packed-objects-are-not-unpacked",
        "packed-functions-are-called",
        "packed-sets-and-bytes-become-lists",
        "falsy-packed-by-products-is-not-unpacked",
    ],
)
def test_any_object(backend: Backend, trace: Trace) -> None:
    """A pack hook may return any Python object, also None."""
    packs_any_object(backend, trace, backend.exp, 0.0, 1.0)

    def forward(packed, x):
        with backend.saved_tensors_hooks(lambda _: packed, trace.saw("unpack input", lambda _: backend.tensor([10.0]))):
            y = x * x
        return backend.sum(y)

    for packed in (None, 0, (), ("name", 7), ["in", "a list"], {"in": "a dict"}):
        x = backend.tensor([1.0], requires_grad=True)
        backend.backward(backend.call(lambda x, packed=packed: forward(packed, x), x))
        trace.expect_value("gradient, inputs packed", [20.0], backend.grad_of(x))
        trace.expect_value("unpacked", trace.snapshot(packed), trace.values("unpack input")[-1])


def packs_any_object(
    backend: Backend, trace: Trace, operation: Callable[[Any], Any], start: float, gradient: float
) -> None:
    """Expect unpack to get each object that pack returns for what an operation of one tensor saves."""

    def gradient_with(packed):
        kept = []

        def pack(tensor):
            kept.append(backend.detach(tensor))
            return packed

        def forward(x):
            with backend.saved_tensors_hooks(pack, trace.saw("unpack", lambda _: kept[0])):
                y = operation(x)
            return backend.sum(y)

        x = backend.tensor([start], requires_grad=True)
        backend.backward(backend.call(forward, x))
        return backend.grad_of(x)

    objects = ["name", "", 7, 0, None, True, False, 1.5, ("name", 7), (), backend.tensor([5.0]), object()]
    objects += [0.0, [], {}, ["in", "a list"], {"in": {"a": "dict"}}, *map(backend.tensor, NUMBERS)]
    objects += [lambda: "called", {"in", "a set"}, b"bytes"]
    trace.expect_value("gradients", [[gradient]] * len(objects), [gradient_with(packed) for packed in objects])
    for some in (slice(0, 12), slice(12, 22), slice(22, None)):
        trace.expect_value("unpacked", trace.snapshot(objects[some]), trace.values("unpack")[some])


@rule(
    "saved-tensor.pack.any-object.custom-function",
    level=Level.MUST,
    sources=[SECTION.sentence(2), TUTORIAL.sentence(30), HOOKS.sentence(3)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "pack-must-return-a-tensor",
        "none-packed-by-a-custom-function-is-not-unpacked",
        "falsy-packed-by-functions-is-not-unpacked",
        "containers-packed-by-functions-flattened",
        "containers-packed-of-the-output-of-a-function-flattened",
        "falsy-packed-by-functions-after-another-is-not-unpacked",
    ],
)
def test_any_object_in_custom_function(backend: Backend, trace: Trace) -> None:
    """A pack hook may return any Python object, e.g. a tuple, for a custom Function's tensors too."""
    kept = []

    def save(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def read(ctx, grad):
        (saved,) = ctx.saved_tensors
        return grad * saved * 2

    def save_both(ctx, x):
        output = x * x
        ctx.save_for_backward(x, output)
        return output

    def read_both(ctx, grad):
        saved, output = ctx.saved_tensors
        return grad * (saved + output)

    square, of_both = backend.custom_function(save, read), backend.custom_function(save_both, read_both)

    def gradient_with(pack, unpack, function=square, start=3.0):
        def forward(x):
            with backend.saved_tensors_hooks(pack, unpack):
                y = function(x)
            return backend.sum(y)

        x = backend.tensor([start], requires_grad=True)
        backend.backward(backend.call(forward, x))
        return backend.grad_of(x)

    packs_any_object(backend, trace, square, 3.0, 6.0)
    in_dict = gradient_with(lambda t: {"tensor": backend.detach(t)}, lambda packed: packed["tensor"])
    in_tuple = gradient_with(lambda t: (backend.detach(t), "note"), lambda packed: packed[0])
    as_none = gradient_with(lambda t: kept.append(backend.detach(t)), lambda _: kept[0] * 10)
    trace.expect_value("gradient, packed in a dict", [6.0], in_dict)
    trace.expect_value("gradient, packed in a tuple", [6.0], in_tuple)
    trace.expect_value("gradient, packed as None", [60.0], as_none)

    unpack = trace.saw("unpack input and output", lambda _: backend.tensor([10.0]))
    for packed in (None, 0, (), ("name", 7), ["in", "a list"], {"in": "a dict"}):
        of_input_and_output = gradient_with(lambda _, packed=packed: packed, unpack, of_both, 1.0)
        trace.expect_value("gradient, input and output packed", [20.0], of_input_and_output)
        trace.expect_value("unpacked", trace.snapshot([packed] * 2), trace.values("unpack input and output")[-2:])


@rule(
    "saved-tensor.pack.inplace-forbidden",
    level=Level.MUST,
    sources=[SECTION.sentence(11)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.IN_PLACE, Capability.CUSTOM_FUNCTION],
    mutants=[
        "pack-in-place-not-detected",
        "pack-in-place-not-detected-on-leaves",
        "pack-in-place-not-detected-in-custom-functions",
        "pack-in-place-not-detected-on-constants",
        "pack-in-place-not-detected-on-outputs-of-custom-functions",
        "pack-in-place-detected-in-the-first-call-alone",
    ],
)
def test_in_place_forbidden(backend: Backend, trace: Trace) -> None:
    """A pack hook that changes its input in place, a leaf, an intermediate or an output, is an error.

    So it is in the hook's first call and in a later one.
    """

    def in_place(operation, right=0):
        packed = list[None]()

        def pack(tensor):
            packed.append(None)
            return backend.detach(backend.mul_(tensor, 2.0) if len(packed) > right else tensor)

        def forward(x):
            y = x * 1
            with backend.saved_tensors_hooks(pack, lambda packed: packed):
                return operation(x, y)

        backend.call(forward, backend.tensor([1.0], requires_grad=True))

    function, of_output = kinds_of_node(backend)["custom Function"], saving_output(backend)
    constant = backend.tensor([3.0])
    operations = (lambda x, _: x * x, lambda _, y: y * y, lambda x, _: backend.exp(x), lambda _, y: function(y))
    for operation in (*operations, lambda x, _: x * constant, lambda _, y: of_output(y)):
        with trace.raises(ErrorKind.PACK_IN_PLACE):
            in_place(operation)
    for right in (1, 2):
        with trace.raises(ErrorKind.PACK_IN_PLACE):
            in_place(lambda x, _: backend.exp(backend.exp(backend.exp(x))), right)


def saving_output(backend: Backend) -> Callable[[Any], Any]:
    """Return a custom Function that computes an exponential and saves its output."""

    def forward(ctx, x):
        y = backend.exp(x)
        ctx.save_for_backward(y)
        return y

    return backend.custom_function(forward, lambda ctx, grad: grad * ctx.saved_tensors[0])


@rule(
    "saved-tensor.pack.input-live",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(2)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.NODES, Capability.CUSTOM_FUNCTION],
    mutants=[
        "pack-receives-a-detached-tensor",
        "pack-receives-a-view",
        "pack-receives-another-leaf",
        "pack-receives-a-detached-tensor-in-custom-functions",
        "pack-receives-another-leaf-in-custom-functions",
        "outputs-of-custom-functions-packed-detached",
    ],
)
def test_input_is_live(backend: Backend, trace: Trace) -> None:
    """A pack hook gets a saved tensor, be it leaf, intermediate or output, that still has its place in the graph."""
    packed, leaves = [], []

    def pack(tensor):
        packed.append((backend.requires_grad(tensor), backend.is_leaf(tensor), backend.grad_fn(tensor)))
        if backend.is_leaf(tensor):
            leaves.append(tensor)
        return backend.detach(tensor)

    def forward(x):
        y = x * 1
        with backend.saved_tensors_hooks(pack, lambda packed: packed):
            return x * x, y, y * y, backend.exp(y)

    def of_function(x):
        y = x * 1
        with backend.saved_tensors_hooks(pack, lambda packed: packed):
            return y, function(y)

    x = backend.tensor([1.0], requires_grad=True)
    _, y, _, output = backend.call(forward, x)

    saved = [x, x, y, y, output]
    flags = [[True, backend.is_leaf(tensor)] for tensor in saved]
    trace.expect_value("require grad, are leaves", flags, [seen[:2] for seen in packed])
    same = [backend.grad_fn(tensor) == seen[2] for tensor, seen in zip(saved, packed, strict=True)]
    trace.expect_value("have the grad_fn of the saved tensor", [True] * len(saved), same)
    for passes, kept in enumerate(leaves, start=1):
        backend.backward(backend.call(lambda kept: backend.sum(kept * 3), kept))
        trace.expect_value("gradient of the leaf through what was packed", [3.0 * passes], backend.grad_of(x))

    square = function = kinds_of_node(backend)["custom Function"]
    y, _ = backend.call(of_function, x)
    requires_grad, is_leaf, grad_fn = packed[-1]
    seen = [requires_grad, is_leaf, grad_fn == backend.grad_fn(y)]
    trace.expect_value("saved by a custom Function", [True, False, True], seen)

    function = saving_output(backend)
    _, output = backend.call(of_function, x)
    requires_grad, is_leaf, grad_fn = packed[-1]
    seen = [requires_grad, is_leaf, grad_fn == backend.grad_fn(output)]
    trace.expect_value("output saved by its custom Function", [True, False, True], seen)

    def of_leaf(x):
        with backend.saved_tensors_hooks(pack, lambda packed: packed):
            return square(x)

    backend.set_grad(x, None)
    backend.call(of_leaf, x)
    backend.backward(backend.call(lambda kept: backend.sum(kept * 3), leaves[-1]))
    trace.expect_value("gradient of the leaf that a custom Function saved", [3.0], backend.grad_of(x))


@rule(
    "saved-tensor.pack.no-grad",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(8)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "pack-runs-with-grad",
        "pack-runs-with-grad-in-custom-functions",
        "pack-runs-with-grad-from-its-third-call",
        "packs-of-later-contexts-run-with-grad",
    ],
)
def test_no_grad(backend: Backend, trace: Trace) -> None:
    """A pack hook runs with grad mode off: its results, even from another leaf, do not require grad."""
    other = backend.tensor([3.0], requires_grad=True)

    def pack(tensor):
        trace.log("pack", [backend.requires_grad(tensor * 4), backend.requires_grad(other * 4)])
        return backend.detach(tensor)

    def forward(x):
        with backend.saved_tensors_hooks(pack, lambda packed: packed):
            return backend.exp(x), function(x), backend.exp(x)

    function = kinds_of_node(backend)["custom Function"]
    for _ in range(3):
        backend.call(forward, backend.tensor([0.0], requires_grad=True))

        trace.expect(*[("pack", [False, False])] * 3)


@rule(
    "saved-tensor.pack.ops-not-recursive",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("what pack computes, and unpack in a backward that creates no graph, is not itself packed")],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["pack-runs-with-grad"],
)
def test_not_recursive(backend: Backend, trace: Trace) -> None:
    """Operations inside pack, or inside unpack in a backward, are not packed by the same hooks inside their context.

    Both run with grad mode off there, so nothing is recorded. With create_graph what unpack computes may be recorded.
    """
    factor = backend.tensor([2.0], requires_grad=True)

    def multiply(tensor):
        if trace.count("pack") < 5:
            backend.exp(tensor * factor)
        return backend.detach(tensor)

    def hooks():
        return backend.saved_tensors_hooks(trace.saw("pack", multiply), trace.saw("unpack", multiply))

    def forward(x):
        with hooks():
            y = backend.exp(x)
        return backend.sum(y)

    loss = backend.call(forward, backend.tensor([0.0], requires_grad=True))
    with hooks():
        backend.backward(loss)

    trace.expect("pack", "unpack")


@rule(
    "saved-tensor.pack.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an exception raised by pack comes out of the operation that saves")],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "pair-exception-wrapped",
        "pair-exception-swallowed",
        "packed-by-backward",
        "pair-exception-without-its-message",
        "pack-exception-wrapped-in-custom-functions",
        "exceptions-of-pack-made-anew",
        "exceptions-of-pairs-copied",
        "exception-of-pack-in-a-function-leaves-grad-mode-off",
    ],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception raised by a pack hook reaches the caller of the operation that saves, unchanged.

    After it the operation works.
    """

    def pack(_):
        raise PackError("from the hook", 7, code=8)

    def run(operation):
        def forward(x):
            with backend.saved_tensors_hooks(pack, lambda packed: packed):
                y = operation(x)
                trace.log("operation done")
                return y

        backend.call(forward, backend.tensor([0.0], requires_grad=True))

    for operation in (backend.exp, kinds_of_node(backend)["custom Function"]):
        has = list[Any]()
        with trace.raises_type(PackError, "from the hook"):
            try:
                run(operation)
            except PackError as error:
                has += [*error.args, error.code]
                raise
        trace.expect_value("arguments and code of the exception", ["from the hook", 7, 8], has)
        trace.expect()
        afterwards = backend.call(operation, backend.tensor([0.0], requires_grad=True))
        trace.expect_value("is recorded afterwards", expected=True, observed=backend.requires_grad(afterwards))


@rule(
    "saved-tensor.pack.arguments",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("Python's own TypeError reaches the caller")],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["errors-of-pack-swallowed"],
)
def test_too_many_arguments(backend: Backend, trace: Trace) -> None:
    """A pack hook that needs more than one argument makes the operation that saves a tensor an error."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    with (
        backend.saved_tensors_hooks(lambda tensor, _more: tensor, lambda packed: packed),
        trace.raises_type(TypeError),
    ):
        backend.exp(x)
