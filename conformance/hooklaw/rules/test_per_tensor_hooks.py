"""Per-tensor hooks: a pair registered on one saved tensor after the operation saved it."""

from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, notes, observed, rule

SECTION = notes("autograd", "hooks-for-saved-tensors")
ONE_SAVED_TENSOR = notes("autograd", "registering-hooks-for-a-saved-tensor")
DEFAULT_HOOKS = notes("autograd", "registering-default-hooks-for-saved-tensors")
REGISTER = [Capability.NODES, Capability.SAVED_TENSOR_REGISTER]


@rule(
    "saved-tensor.per-tensor.pack-immediately",
    level=Level.MUST,
    sources=[ONE_SAVED_TENSOR.sentence(3)],
    needs=REGISTER,
    mutants=["per-tensor-pack-deferred", "pack-of-the-second-saved-tensor-deferred"],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_packs_immediately(backend: Backend, trace: Trace) -> None:
    """Registering a pair of hooks on a saved tensor calls pack at once, and only then."""

    def run(operation, place):
        def forward(a, b):
            y = operation(a, b)
            saved = backend.raw_saved_tensors(backend.grad_fn(y))[place]
            trace.log("saved")
            backend.saved_tensor_register_hooks(saved, trace.saw("pack", backend.detach), lambda packed: packed)
            trace.log("registered")
            return backend.sum(y)

        backend.backward(backend.call(forward, *(backend.tensor([0.0], requires_grad=True) for _ in range(2))))

    def product(a, b):
        return a * b

    for operation, place, value in ((lambda a, _: backend.exp(a), 0, 1.0), (product, 0, 0.0), (product, 1, 0.0)):
        run(operation, place)

        trace.expect("saved", ("pack", [value]), "registered")


@rule(
    "saved-tensor.per-tensor.unpack-each-access",
    level=Level.MUST,
    sources=[ONE_SAVED_TENSOR.sentence(4), SECTION.sentence(2, 3)],
    needs=[*REGISTER, Capability.SAVED_TENSOR_ACCESS, Capability.RETAIN_GRAPH],
    mutants=[
        "unpacked-tensor-cached",
        "unpacked-intermediate-cached",
        "unpacked-later-tensors-cached",
        "per-tensor-hooks-ignored-by-backward",
        "per-tensor-hooks-used-in-one-pass",
        "per-tensor-pack-must-return-a-tensor",
        "per-tensor-unpack-receives-a-copy",
        "per-tensor-pack-again-at-later-reads",
    ],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_unpacks_at_each_access(backend: Backend, trace: Trace) -> None:
    """The unpack hook of a saved tensor's own pair runs at every access, by a read or by backward."""
    kept: dict[object, Any] = {}

    def pack(tensor):
        key = object()
        kept[key] = backend.detach(tensor) * 10
        return key

    def register(saved):
        backend.saved_tensor_register_hooks(saved, pack, trace.saw("unpack", kept.__getitem__))

    def exponential(x):
        y = backend.exp(x)
        node = backend.grad_fn(y)
        (saved,) = backend.raw_saved_tensors(node)
        register(saved)
        for _ in range(2):
            trace.log("read", backend.saved_tensors(node))
        return backend.sum(y)

    def product(x):
        y = (x * 2) * (x + 1)
        node = backend.grad_fn(y)
        for saved in backend.raw_saved_tensors(node):
            register(saved)
        for _ in range(2):
            trace.log("read", backend.saved_tensors(node))
        return backend.sum(y)

    for forward, start, values, gradient in (
        (exponential, 0.0, [[10.0]], 10.0),
        (lambda x: exponential(x * 2), 0.0, [[10.0]], 20.0),
        (product, 1.0, [[20.0], [20.0]], 60.0),
    ):
        x = backend.tensor([start], requires_grad=True)
        loss = backend.call(forward, x)
        backend.backward(loss, retain_graph=True)

        unpacked = ["unpack"] * len(values)
        trace.expect(*unpacked, ("read", values), *unpacked, ("read", values), *unpacked)
        trace.expect_value("x.grad", [gradient], backend.grad_of(x))

        backend.set_grad(x, None)
        backend.backward(loss)
        trace.expect(*unpacked)
        trace.expect_value("x.grad of the second backward", [gradient], backend.grad_of(x))
        trace.expect_value("calls of pack", len(values), len(kept))
        kept.clear()


@rule(
    "saved-tensor.per-tensor.only-its-own",
    level=Level.MUST,
    sources=[ONE_SAVED_TENSOR.sentence(1)],
    needs=REGISTER,
    mutants=[
        "pair-of-a-saved-tensor-given-to-its-neighbours",
        "pair-of-a-saved-tensor-given-to-the-first",
        "pair-of-a-saved-tensor-unpacks-its-neighbours",
        "pair-of-a-saved-tensor-given-to-other-nodes",
    ],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_only_its_own(backend: Backend, trace: Trace) -> None:
    """A pair of hooks registered on one saved tensor of a Node does not apply to another saved tensor of that Node.

    Nor to one of another Node that saved the same tensor.
    """

    def gradients(*places: int):
        def forward(a, b):
            y = a * b
            saved = backend.raw_saved_tensors(backend.grad_fn(y))
            for place in places:
                pack = trace.saw(f"pack {place}", backend.detach)
                unpack = trace.saw(f"unpack {place}", lambda packed: packed)
                backend.saved_tensor_register_hooks(saved[place], pack, unpack)
            return backend.sum(y)

        a, b = [backend.tensor([number], requires_grad=True) for number in (2.0, 3.0)]
        backend.backward(backend.call(forward, a, b))
        return [backend.grad_of(a), backend.grad_of(b)]

    for place in (0, 1):
        trace.expect_value("gradients", [[3.0], [2.0]], gradients(place))
        trace.expect(f"pack {place}", f"unpack {place}")

    trace.expect_value("gradients", [[3.0], [2.0]], gradients(0, 1))
    trace.expect_in_any_order("pack 0", "pack 1", "unpack 0", "unpack 1")
    packed = [trace.values(f"pack {place}")[-1] for place in (0, 1)]
    trace.expect_value("packed", [[2.0], [3.0]], sorted(packed))
    trace.expect_value("unpacked", packed, [trace.values(f"unpack {place}")[-1] for place in (0, 1)])

    def products(x, first, second):
        y, z = x * first, x * second
        of_y, of_z = (backend.raw_saved_tensors(backend.grad_fn(product)) for product in (y, z))
        trace.log("saved", len(of_y))
        for saved in of_z:
            backend.saved_tensor_register_hooks(
                saved, trace.saw("pack", backend.detach), trace.saw("unpack", lambda saved: saved)
            )
        return backend.sum(y + z)

    backend.backward(backend.call(products, *(backend.tensor([2.0], requires_grad=True) for _ in range(3))))
    trace.expect(("saved", 2), "pack", "pack", "unpack", "unpack")


@rule(
    "saved-tensor.per-tensor.custom-function",
    level=Level.MUST,
    sources=[ONE_SAVED_TENSOR.sentence(1, 4)],
    needs=[*REGISTER, Capability.CUSTOM_FUNCTION],
    mutants=["per-tensor-hooks-of-custom-functions-ignored", "pairs-of-later-tensors-of-functions-ignored"],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_custom_function(backend: Backend, trace: Trace) -> None:
    """A pair of hooks can be registered on a saved tensor of a custom Function, whose backward reads through it."""

    def save(ctx, a, b, c):
        ctx.save_for_backward(a, b, c)
        return a * b * c

    def read(ctx, grad):
        a, b, c = ctx.saved_tensors
        return grad * b * c, grad * a * c, grad * a * b

    function = backend.custom_function(save, read)

    def forward_with(place):
        def forward(a, b, c):
            y = function(a, b, c)
            first, second, third = backend.raw_saved_tensors(backend.grad_fn(y))
            unpack = trace.saw("unpack", lambda packed: packed * 10)
            backend.saved_tensor_register_hooks(
                (first, second, third)[place], trace.saw("pack", backend.detach), unpack
            )
            return backend.sum(y)

        return forward

    numbers, gradients = [2.0, 3.0, 5.0], [15.0, 10.0, 6.0]
    for place, number in enumerate(numbers):
        tensors = [backend.tensor([each], requires_grad=True) for each in numbers]
        backend.backward(backend.call(forward_with(place), *tensors))

        trace.expect(("pack", [number]), ("unpack", [number]))
        expected = [[each if nr == place else each * 10] for nr, each in enumerate(gradients)]
        trace.expect_value("gradients", expected, [backend.grad_of(tensor) for tensor in tensors])


@rule(
    "saved-tensor.pack.input-detached.per-tensor",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(2)],
    needs=REGISTER,
    mutants=["per-tensor-pack-receives-the-live-tensor"],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_input_is_detached(backend: Backend, trace: Trace) -> None:
    """The pack hook of a saved tensor's own pair gets a detached tensor, whether leaf, intermediate or output."""

    def pack(tensor):
        trace.log("pack", backend.requires_grad(tensor))
        return tensor

    def register(y):
        for saved in backend.raw_saved_tensors(backend.grad_fn(y)):
            backend.saved_tensor_register_hooks(saved, pack, lambda packed: packed)
        return y

    def forward(x):
        y = register(x * x)
        return register(backend.exp(register(y * y)))

    backend.call(forward, backend.tensor([1.0], requires_grad=True))

    trace.expect_value("packs something that requires grad", [False], sorted(set(trace.values("pack"))))


@rule(
    "saved-tensor.per-tensor.after-release",
    level=Level.SHOULD,
    sources=[ONE_SAVED_TENSOR.sentence(5, 6)],
    needs=[*REGISTER, Capability.GRAPH_FREEING],
    mutants=["hooks-accepted-after-release", "hooks-on-inputs-accepted-after-release"],
    except_under={"retained": "the law is of passes that do not retain the graph"},
)
def test_after_release(backend: Backend, trace: Trace) -> None:
    """Registering hooks on a saved tensor that backward has freed is an error.

    The notes forbid it, and say that PyTorch raises an error most of the time but may fail to.
    """
    x = backend.tensor([0.0], requires_grad=True)
    output, square = backend.exp(x), x * x  # not by call: torch corrupts memory if Nodes differ
    (saved,) = backend.raw_saved_tensors(backend.grad_fn(output))
    left, right = backend.raw_saved_tensors(backend.grad_fn(square))
    backend.backward(backend.sum(output))
    backend.backward(backend.sum(square))

    for each in (saved, left, right):
        with trace.raises(ErrorKind.GRAPH_FREED):
            backend.saved_tensor_register_hooks(each, backend.detach, lambda packed: packed)


@rule(
    "saved-tensor.per-tensor.twice",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a saved tensor takes one pair, its own or that of a context")],
    needs=[*REGISTER, Capability.SAVED_TENSOR_HOOKS],
    mutants=["second-pair-replaces-the-first"],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_only_one_pair(backend: Backend, trace: Trace) -> None:
    """Registering hooks on a saved tensor that has a pair, its own or that of a context, may be an error."""

    def give_hooks(y):
        (saved,) = backend.raw_saved_tensors(backend.grad_fn(y))
        backend.saved_tensor_register_hooks(saved, backend.detach, lambda packed: packed)

    def forward(x):
        y = backend.exp(x)
        with backend.saved_tensors_hooks(backend.detach, lambda packed: packed):
            return y, backend.exp(y)

    own, of_context = backend.call(forward, backend.tensor([0.0], requires_grad=True))
    give_hooks(own)

    with trace.raises(ErrorKind.SAVED_HOOKS_ALREADY_SET):
        give_hooks(own)
    with trace.raises(ErrorKind.SAVED_HOOKS_ALREADY_SET):
        give_hooks(of_context)


@rule(
    "saved-tensor.per-tensor.inplace",
    level=Level.MUST,
    sources=[SECTION.sentence(11)],
    needs=[*REGISTER, Capability.IN_PLACE],
    mutants=["pack-in-place-not-detected", "pack-in-place-on-the-second-saved-tensor-not-detected"],
    except_under={"packed": "the saved tensor already has the condition's pair of hooks"},
)
def test_in_place_forbidden(backend: Backend, trace: Trace) -> None:
    """If the pack hook of a saved tensor's own pair changes its input in place, be it leaf or not, this is an error."""
    for operation in (lambda x: x * x, lambda x: backend.exp(x) * backend.exp(x), backend.exp):
        y = backend.call(operation, backend.tensor([1.0], requires_grad=True))
        saved = backend.raw_saved_tensors(backend.grad_fn(y))
        for each in (saved[0], *saved[1:]):
            with trace.raises(ErrorKind.PACK_IN_PLACE):
                backend.saved_tensor_register_hooks(each, lambda t: backend.mul_(t, 2.0), lambda packed: packed)
