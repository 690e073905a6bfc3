"""Unpack hooks: when they run, in which grad mode, and their argument."""

from collections.abc import Callable
from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.lifetimes import kinds_of_node

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
SECTION = notes("autograd", "hooks-for-saved-tensors")
ONE_SAVED_TENSOR = notes("autograd", "registering-hooks-for-a-saved-tensor")


class UnpackError(Exception):
    """A user's own exception, which has something beside its arguments."""

    def __init__(self, *arguments: object, code: int = 0) -> None:
        super().__init__(*arguments)
        self.code = code


class Packed:
    """A packed object that is not a tensor."""

    def __init__(self, tensor: object) -> None:
        self.tensor = tensor


@rule(
    "saved-tensor.unpack.per-access",
    level=Level.MUST,
    sources=[ONE_SAVED_TENSOR.sentence(4), SECTION.sentence(9)],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.RETAIN_GRAPH,
        Capability.NODES,
        Capability.SAVED_TENSOR_ACCESS,
    ],
    mutants=["unpacked-tensor-cached", "unpack-called-twice"],
)
def test_per_access(backend: Backend, trace: Trace) -> None:
    """An unpack hook runs at every access: in each backward that needs the tensor, and at each read of it."""

    def run(operation):
        def forward(a, b):
            with backend.saved_tensors_hooks(backend.detach, trace.saw("unpack", lambda packed: packed)):
                y = operation(a, b)
            return backend.sum(y), y

        leaves = [backend.tensor([0.0], requires_grad=True) for _ in range(2)]
        loss, y = backend.call(forward, *leaves)
        for access in (1, 2):
            backend.saved_tensors(backend.grad_fn(y))
            trace.log(f"read {access}")
            backend.backward(loss, retain_graph=True)
            trace.log(f"backward {access}")

    for operation, unpacked in ((lambda a, _: backend.exp(a), ["unpack"]), (lambda a, b: a * b, ["unpack"] * 2)):
        run(operation)

        trace.expect(*unpacked, "read 1", *unpacked, "backward 1", *unpacked, "read 2", *unpacked, "backward 2")


@rule(
    "saved-tensor.unpack.per-access.custom-function",
    level=Level.MUST,
    sources=[HOOKS.sentence(5), ONE_SAVED_TENSOR.sentence(4)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "unpacked-before-the-node-runs",
        "custom-functions-bypass-saved-tensor-hooks",
        "unpacked-for-a-function-cached",
        "saved-tensors-of-functions-read-once",
    ],
)
def test_when_custom_function_reads(backend: Backend, trace: Trace) -> None:
    """A custom Function's saved tensor is unpacked each time its backward reads it, not before that backward starts."""

    def save(ctx, x):
        ctx.save_for_backward(x)
        return x * 3

    def read(ctx, grad):
        trace.log("backward")
        (saved,) = ctx.saved_tensors
        trace.log("read")
        (again,) = ctx.saved_tensors
        trace.log("read again")
        return grad * (saved + again)

    function = backend.custom_function(save, read)

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, trace.saw("unpack", lambda packed: packed)):
            y = function(x)
        return backend.sum(y)  # outside: a sum may save its input

    backend.backward(backend.call(forward, backend.tensor([2.0], requires_grad=True)))

    trace.expect("backward", "unpack", "read", "unpack", "read again")


@rule(
    "saved-tensor.unpack.arg",
    level=Level.MUST,
    sources=[SECTION.sentence(3), HOOKS.sentence(6)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=[
        "unpack-receives-a-copy",
        "unpack-receives-the-saved-tensor",
        "unpacks-another-save",
        "packed-tensors-aliased",
        "packed-containers-rebuilt",
        "saved-tensors-that-pack-returns-are-not-unpacked",
    ],
)
def test_argument(backend: Backend, trace: Trace) -> None:
    """An unpack hook gets one argument: the same object that the pack hook returned."""
    unpacks_the_same_object(backend, trace, backend.exp)


@rule(
    "saved-tensor.unpack.arg.custom-function",
    level=Level.MUST,
    sources=[SECTION.sentence(3), HOOKS.sentence(6)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "unpack-of-functions-receives-a-copy",
        "saved-tensors-of-functions-that-pack-returns-are-not-unpacked",
    ],
)
def test_argument_of_custom_function(backend: Backend, trace: Trace) -> None:
    """For a custom Function's tensor too, an unpack hook gets one argument: the object that the pack hook returned."""
    unpacks_the_same_object(backend, trace, kinds_of_node(backend)["custom Function"])


def unpacks_the_same_object(backend: Backend, trace: Trace, operation: Callable[[Any], Any]) -> None:
    """Expect unpack to get the very object that pack returned for what an operation saves."""

    def run(packed_as, read):
        packed = []

        def pack(tensor):
            packed.append(packed_as(tensor))
            return packed[-1]

        def unpack(*arguments: object):
            trace.log("unpack", [argument is packed[-1] for argument in arguments])
            return read(packed.pop())

        def forward(x):
            with backend.saved_tensors_hooks(pack, unpack):
                y = operation(operation(x))
            return backend.sum(y)

        backend.backward(backend.call(forward, backend.tensor([0.0], requires_grad=True)))

    for packed_as, read in (
        (lambda tensor: Packed(backend.detach(tensor)), lambda packed: packed.tensor),
        (backend.detach, lambda packed: packed),
        (lambda tensor: [backend.detach(tensor)], lambda packed: packed[0]),
        (lambda tensor: (backend.detach(tensor), "note"), lambda packed: packed[0]),
        (lambda tensor: {"tensor": backend.detach(tensor)}, lambda packed: packed["tensor"]),
        (lambda tensor: tensor, lambda packed: packed),
    ):
        run(packed_as, read)

        trace.expect(("unpack", [True]), ("unpack", [True]))


@rule(
    "saved-tensor.unpack.inplace-undetected",
    level=Level.MAY,
    sources=[SECTION.sentence(10, 11), HOOKS.sentence(12)],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.RETAIN_GRAPH, Capability.IN_PLACE],
    mutants=["unpack-in-place-detected"],
)
def test_in_place_undetected(backend: Backend, trace: Trace) -> None:
    """An unpack hook that changes its input in place, though forbidden, may go unnoticed and affect every access."""

    def forward(x):
        with backend.saved_tensors_hooks(
            lambda t: backend.clone(backend.detach(t)),
            lambda packed: backend.mul_(packed, 2.0),
        ):
            return backend.sum(backend.exp(x))

    x = backend.tensor([0.0], requires_grad=True)
    loss = backend.call(forward, x)
    backend.backward(loss, retain_graph=True)
    trace.expect_value("x.grad of the first backward", [2.0], backend.grad_of(x))

    backend.set_grad(x, None)
    backend.backward(loss)
    trace.expect_value("x.grad of the second backward", [4.0], backend.grad_of(x))


@rule(
    "saved-tensor.unpack.grad-mode",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("unpack runs in the grad mode of whoever reads the saved tensor")],
    needs=[
        Capability.SAVED_TENSOR_HOOKS,
        Capability.RETAIN_GRAPH,
        Capability.CREATE_GRAPH,
        Capability.AUTOGRAD_GRAD,
        Capability.NODES,
        Capability.SAVED_TENSOR_ACCESS,
    ],
    mutants=["unpack-runs-with-grad", "unpack-runs-without-grad"],
)
def test_grad_mode(backend: Backend, trace: Trace) -> None:
    """An unpack hook may run in its reader's grad mode: off in backward, on with create_graph or outside."""
    x = backend.tensor([0.0], requires_grad=True)

    def unpack(packed):
        trace.log("unpack with grad", backend.requires_grad(x * 4))
        return packed

    def forward(x):
        with backend.saved_tensors_hooks(backend.detach, unpack):
            y = backend.exp(x)
        return backend.sum(y), y

    loss, y = backend.call(forward, x)
    backend.backward(loss, retain_graph=True)
    backend.grad(loss, [x], create_graph=True)
    backend.saved_tensors(backend.grad_fn(y))

    trace.expect(("unpack with grad", False), ("unpack with grad", True), ("unpack with grad", True))


@rule(
    "saved-tensor.unpack.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an exception raised by unpack comes out of backward")],
    needs=[Capability.SAVED_TENSOR_HOOKS, Capability.CUSTOM_FUNCTION],
    mutants=[
        "pair-exception-wrapped",
        "pair-exception-swallowed",
        "unpacked-during-forward",
        "pair-exception-without-its-message",
        "exceptions-of-unpack-after-its-first-call-swallowed",
        "pair-exception-made-anew-from-its-message",
        "exceptions-of-pairs-copied",
        "unpack-exception-wrapped-in-functions",
    ],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception raised by an unpack hook reaches the caller of the backward that needs the tensor, unchanged."""

    def fails_after(right, operation):
        unpacked = []

        def unpack(packed):
            unpacked.append(packed)
            if len(unpacked) > right:
                raise UnpackError("from the hook", right, code=8)
            return packed

        def forward(x):
            with backend.saved_tensors_hooks(backend.detach, unpack):
                y = operation(operation(operation(x)))
            return backend.sum(y)

        return backend.call(forward, backend.tensor([0.0], requires_grad=True))

    kinds = (backend.exp, kinds_of_node(backend)["custom Function"])
    for right, operation in product(range(3), kinds):
        loss, has = fails_after(right, operation), list[Any]()
        with trace.raises_type(UnpackError, "from the hook"):
            try:
                backend.backward(loss)
            except UnpackError as error:
                has += [*error.args, error.code]
                raise
        trace.expect_value("arguments and code of the exception", ["from the hook", right, 8], has)
