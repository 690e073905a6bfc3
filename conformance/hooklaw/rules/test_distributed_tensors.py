"""Distributed tensors: hooks on them, the placements of their gradients, and modules made of them."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.ranks import RANKS, number, part, whole

TENSOR = "torch.distributed.tensor"
DTENSOR = docstring(f"{TENSOR}.DTensor")
FROM_LOCAL = docstring(f"{TENSOR}.DTensor.from_local")
TO_LOCAL = docstring(f"{TENSOR}.DTensor.to_local")
FULL_TENSOR = docstring(f"{TENSOR}.DTensor.full_tensor")
REDISTRIBUTE = docstring(f"{TENSOR}.DTensor.redistribute")
REGISTER_HOOK = docstring("torch.Tensor.register_hook")
POST_ACCUMULATE = docstring("torch.Tensor.register_post_accumulate_grad_hook")
NEEDS = [Capability.DISTRIBUTED_TENSORS]
PLACEMENTS = ("shard", "replicate")
VALUES = [2.0, 3.0, 4.0, 5.0, 6.0]
"""Their number is odd, so that the parts of two ranks differ in size."""
SQUARES = [4.0, 6.0, 8.0, 10.0, 12.0]
"""The gradient of the sum of the squares of VALUES."""
MATRIX = [[value, 2 * value, 4 * value] for value in VALUES]


def leaf(backend: Backend, placement: str = "shard") -> Any:
    """Return a distributed leaf with VALUES."""
    return backend.distribute_tensor(backend.tensor(VALUES, requires_grad=True), placement)


def square(backend: Backend, x: Any, look: Any = lambda _: None) -> None:
    """Run backward from the sum of the squares of a distributed tensor, which every rank has whole; look at both."""

    def forward(x):
        squares = x * x
        look(squares)
        total = backend.sum(squares)
        look(total)
        return total

    backend.backward(backend.full_tensor(backend.call(forward, x)))


def weigh(backend: Backend, local: Any) -> None:
    """Run backward from the sum of the squares of a tensor of the rank, times the rank's number."""
    backend.backward(backend.call(lambda local: backend.sum(local * local * number(backend)), local))


def of_all_ranks(backend: Backend) -> float:
    """Return the sum of the numbers of all ranks."""
    size = backend.get_world_size()
    return size * (size + 1) / 2


@rule(
    "dtensor.tensor-hook",
    level=Level.MUST,
    sources=[DTENSOR.sentence(1), REGISTER_HOOK.sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["dtensor-drops-tensor-hooks", "dtensor-hooks-see-the-shard-alone", "dtensor-hooks-see-even-parts"],
    processes=RANKS,
)
def test_tensor_hook(backend: Backend, trace: Trace) -> None:
    """In each pass a tensor hook on a distributed tensor runs once in every rank, with the gradient of all values.

    A distributed tensor is a tensor to its program, as on one device, so a hook sees what it sees there.
    """
    for placement in PLACEMENTS:
        x = leaf(backend, placement)
        seen: list[Any] = []
        backend.register_hook(x, lambda grad, label=placement: trace.log(label, whole(backend, grad)))
        backend.register_hook(x, lambda grad, seen=seen: seen.append(whole(backend, grad)))
        for _ in range(3):
            seen.clear()
            square(backend, x)
            trace.expect((placement, SQUARES))
            trace.expect_value(f"{placement}: what a second hook saw", [SQUARES], seen)


@rule(
    "dtensor.tensor-hook.replace",
    level=Level.MUST,
    sources=[DTENSOR.sentence(1), REGISTER_HOOK.sentence(4)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=[
        "dtensor-drops-tensor-hooks",
        "dtensor-ignores-what-hooks-return",
        "dtensor-drops-tensor-hooks-of-non-leaves",
        "dtensor-drops-tensor-hooks-of-sums",
        "dtensor-keeps-one-tensor-hook",
    ],
    processes=RANKS,
)
def test_replace(backend: Backend, trace: Trace) -> None:
    """What a tensor hook on a distributed tensor returns takes the place of the gradient.

    The sum of a tensor that is split is one of which each rank has a part of the value.
    """
    for placement in PLACEMENTS:
        x = leaf(backend, placement)
        for factor in (2.0, 5.0):
            backend.register_hook(x, lambda grad, factor=factor: grad * factor)
        for passes in (1, 2, 3):
            square(backend, x, lambda each: backend.register_hook(each, lambda grad: grad * 2.0))
            expected = [40 * passes * value for value in SQUARES]
            trace.expect_value(f"{placement}: x.grad", expected, whole(backend, backend.grad_of(x)))


@rule(
    "dtensor.tensor-hook.placement",
    level=Level.SHOULD,
    sources=[observed("the gradient of an operation on each rank's part is in parts too")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    basis=Basis.OBSERVED,
    mutants=["dtensor-hooks-see-replicas"],
    processes=RANKS,
)
def test_placement(backend: Backend, trace: Trace) -> None:
    """The gradient that a tensor hook on a distributed leaf gets, and .grad, have the placement of the leaf.

    Where each use of the leaf gives a gradient of that placement, as its product with itself does.
    """
    for placement in PLACEMENTS * 2:
        x = leaf(backend, placement)
        backend.register_hook(x, lambda grad: trace.log("hook", backend.placement(grad)))
        for _ in range(3):
            square(backend, x)
            trace.expect(("hook", placement))
            trace.expect_value("placement of x.grad", placement, backend.placement(backend.grad_of(x)))


@rule(
    "dtensor.post-accumulate",
    level=Level.MUST,
    sources=[DTENSOR.sentence(1), POST_ACCUMULATE.sentence(2)],
    needs=[*NEEDS, Capability.POST_ACCUMULATE],
    mutants=["dtensor-drops-post-accumulate-hooks", "dtensor-runs-post-accumulate-hooks-early"],
    processes=RANKS,
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook on a distributed tensor runs once in each pass, after .grad has been updated."""
    for placement in PLACEMENTS:
        x = leaf(backend, placement)
        seen: list[Any] = []

        def hook(tensor, label=placement):
            trace.log(label, whole(backend, backend.grad_of(tensor)))

        def second_hook(tensor, seen=seen):
            seen.append(whole(backend, backend.grad_of(tensor)))

        backend.register_post_accumulate_grad_hook(x, hook)
        backend.register_post_accumulate_grad_hook(x, second_hook)
        for passes in (1, 2, 3):
            seen.clear()
            square(backend, x)
            expected = [passes * value for value in SQUARES]
            trace.expect((placement, expected))
            trace.expect_value(f"{placement}: what a second hook saw", [expected], seen)


@rule(
    "dtensor.saved-tensors",
    level=Level.SHOULD,
    sources=[observed("operations save distributed tensors, above the operations on each rank's part")],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    basis=Basis.OBSERVED,
    mutants=["dtensor-packs-parts", "dtensor-packs-nothing"],
    processes=RANKS,
)
def test_saved_tensors(backend: Backend, trace: Trace) -> None:
    """Pack hooks get distributed tensors with their placement, and backward computes with what unpack hooks return."""
    for placement in PLACEMENTS * 2:
        x = leaf(backend, placement)
        packed: list[str] = []

        def pack(tensor, packed=packed):
            packed.append(backend.placement(tensor))
            return tensor

        with backend.saved_tensors_hooks(pack, lambda tensor: tensor * 10.0):
            product = backend.call(lambda x: x * x, x)
        backend.backward(backend.full_tensor(backend.sum(product)))
        trace.expect_value("placements of what was packed", [placement], sorted({*packed}))
        trace.expect_value("x.grad", [10 * value for value in SQUARES], whole(backend, backend.grad_of(x)))


@rule(
    "dtensor.from-local.partial",
    level=Level.MUST,
    sources=[FROM_LOCAL.sentence(23)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["from-local-keeps-partial-gradients", "from-local-sums-gradients-that-are-whole"],
    processes=RANKS,
)
def test_from_local_partial(backend: Backend, trace: Trace) -> None:
    """The gradient of a tensor of which from_local made a partial tensor is whole in each rank, reduced if it was not.

    Redistributed to Replicate, a partial gradient is summed over the ranks, and one that each rank has whole stays as
    it is; a hook on the tensor sees it.
    """
    size = backend.get_world_size()
    for _ in range(3):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.register_hook(x, lambda grad: trace.log("hook", grad))
        partial = backend.from_local(x, "partial")
        weigh(backend, backend.local_tensor(partial, grad_placement="partial"))

        expected = [2 * of_all_ranks(backend), 4 * of_all_ranks(backend)]
        trace.expect(("hook", expected))
        trace.expect_value("x.grad", expected, backend.grad_of(x))

        total = backend.full_tensor(backend.from_local(x, "partial"))
        backend.backward(backend.call(lambda total: backend.sum(total * total), total))
        trace.expect(("hook", [2.0 * size, 4.0 * size]))


@rule(
    "dtensor.from-local.requires-grad",
    level=Level.MUST,
    sources=[FROM_LOCAL.sentence(20), TO_LOCAL.sentence(10)],
    needs=NEEDS,
    mutants=["from-local-detaches", "from-local-detaches-non-leaves", "local-tensor-detaches"],
    processes=RANKS,
)
def test_requires_grad(backend: Backend, trace: Trace) -> None:
    """What from_local makes of a tensor requires grad if the tensor does, and so does the local tensor of that."""
    for placement in (*PLACEMENTS, "partial"):
        for requires_grad in (True, False):
            leaf = backend.tensor([1.0, 2.0], requires_grad=requires_grad)
            for x in (leaf, leaf * 2):
                made = backend.from_local(x, placement)
                trace.expect_value(f"{placement}: made by from_local", requires_grad, backend.requires_grad(made))
                local = backend.local_tensor(made)
                trace.expect_value(f"{placement}: its local tensor", requires_grad, backend.requires_grad(local))


@rule(
    "dtensor.from-local.gradients",
    level=Level.MUST,
    sources=[FROM_LOCAL.sentence(20, 21, 22)],
    needs=NEEDS,
    mutants=[
        "from-local-detaches",
        "from-local-gives-all-the-gradient-of-the-first",
        "from-local-keeps-partial-gradients-of-replicas",
    ],
    processes=RANKS,
)
def test_from_local_gradients(backend: Backend, trace: Trace) -> None:
    """Backward through from_local of each rank's rows gives each rank the gradient of its own rows.

    Where the ranks have the same values, it gives each the whole gradient, summed over the ranks that have parts of it.
    """
    for _ in range(3):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        weigh(backend, backend.local_tensor(backend.from_local(x, "replicate"), grad_placement="partial"))
        trace.expect_value("x.grad", [2 * of_all_ranks(backend), 4 * of_all_ranks(backend)], backend.grad_of(x))

        x = backend.tensor([number(backend), 10 * number(backend)], requires_grad=True)
        square(backend, backend.from_local(x, "shard"))

        trace.expect_value("x.grad", [2 * number(backend), 20 * number(backend)], backend.grad_of(x))


@rule(
    "dtensor.to-local.grad-placement",
    level=Level.MUST,
    sources=[TO_LOCAL.sentence(3, 5)],
    needs=NEEDS,
    mutants=["local-tensor-ignores-grad-placement"],
    processes=RANKS,
)
def test_to_local_grad_placement(backend: Backend, trace: Trace) -> None:
    """With "partial" as grad_placements of to_local, the gradient is the sum of what the ranks computed."""
    for _ in range(3):
        x = leaf(backend, "replicate")
        for passes in (1, 2):
            weigh(backend, backend.local_tensor(x, grad_placement="partial"))

            expected = [passes * of_all_ranks(backend) * value for value in SQUARES]
            trace.expect_value("x.grad", expected, whole(backend, backend.grad_of(x)))


@rule(
    "dtensor.to-local.default",
    level=Level.MUST,
    sources=[TO_LOCAL.sentence(2, 6)],
    needs=NEEDS,
    mutants=["local-tensor-takes-gradients-as-partial"],
    processes=RANKS,
)
def test_to_local_default(backend: Backend, trace: Trace) -> None:
    """Without grad_placements, the gradient of what to_local returns is placed as the distributed tensor."""
    for placement in PLACEMENTS * 2:
        x = leaf(backend, placement)
        local = backend.local_tensor(x)
        weigh(backend, local)
        grad = backend.grad_of(x)
        trace.expect_value("placement of x.grad", placement, backend.placement(grad))
        expected = [2 * number(backend) * value for value in backend.tolist(local)]
        trace.expect_value("the rank's part of x.grad", expected, part(backend, grad))


@rule(
    "dtensor.full-tensor.grad-placement",
    level=Level.MUST,
    sources=[FULL_TENSOR.sentence(5, 7, 10)],
    needs=NEEDS,
    mutants=["full-tensor-ignores-grad-placement"],
    processes=RANKS,
)
def test_full_tensor_grad_placement(backend: Backend, trace: Trace) -> None:
    """With "partial" as grad_placements of full_tensor, the gradient is the sum of what the ranks computed."""
    for placement in PLACEMENTS * 2:
        x = leaf(backend, placement)
        for passes in (1, 2):
            weigh(backend, backend.full_tensor(x, grad_placement="partial"))
            expected = [passes * of_all_ranks(backend) * value for value in SQUARES]
            trace.expect_value(f"{placement}: x.grad", expected, whole(backend, backend.grad_of(x)))


@rule(
    "dtensor.full-tensor.default",
    level=Level.MUST,
    sources=[FULL_TENSOR.sentence(8, 10)],
    needs=NEEDS,
    mutants=["full-tensor-takes-gradients-as-partial", "full-tensor-keeps-grad-placement"],
    processes=RANKS,
)
def test_full_tensor_default(backend: Backend, trace: Trace) -> None:
    """Without grad_placements, the gradient of what full_tensor returns is taken as replicated, and not summed."""
    for placement in PLACEMENTS * 2:
        x = leaf(backend, placement)
        backend.full_tensor(x, grad_placement="partial")
        backend.backward(backend.call(lambda full: backend.sum(full * full), backend.full_tensor(x)))
        expected = [2 * value for value in backend.tolist(part(backend, x))]
        grad = part(backend, backend.grad_of(x))
        trace.expect_value(f"{placement}: the rank's part of x.grad", expected, grad)


@rule(
    "dtensor.redistribute.twice-differentiable",
    level=Level.MUST,
    sources=[REDISTRIBUTE.sentence(23)],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.CREATE_GRAPH],
    mutants=[
        "redistribute-is-differentiable-once",
        "redistribute-to-shards-is-differentiable-once",
        "redistribute-of-sums-is-differentiable-once",
        "redistribute-of-sums-to-shards-is-differentiable-once",
        "redistribute-between-shards-is-differentiable-once",
    ],
    processes=RANKS,
)
def test_redistribute(backend: Backend, trace: Trace) -> None:
    """The gradient of a gradient through redistribute is that of the same program without redistribute."""

    def of_each(step: Any, values: list[Any] = VALUES) -> list[Any]:
        return [of_each(step, value) if isinstance(value, list) else step(value) for value in values]

    moves = (("shard", "replicate", VALUES), ("replicate", "shard", VALUES), ("shard", "shard-columns", MATRIX))
    for before, after, values in moves:
        x = backend.distribute_tensor(backend.tensor(values, requires_grad=True), before)

        def cubes(x, after=after):
            moved = backend.redistribute(x, after)
            trace.log("moved", backend.placement(moved))
            return backend.sum(moved * moved * moved)

        (first,) = backend.grad(backend.full_tensor(backend.call(cubes, x)), [x], create_graph=True)
        trace.expect(("moved", after))
        trace.expect_value(f"gradient, to {after}", of_each(lambda value: 3 * value**2, values), whole(backend, first))
        (second,) = backend.grad(backend.full_tensor(backend.sum(first)), [x])
        expected = of_each(lambda value: 6 * value, values)
        trace.expect_value(f"gradient of it, to {after}", expected, whole(backend, second))

    def squared(x):
        total = backend.redistribute(backend.sum(x * x), "replicate")
        trace.log("moved", backend.placement(total))
        return total * total

    def sum_of_squares(x):
        total = backend.redistribute(backend.from_local(x, "partial"), "shard")
        trace.log("moved", backend.placement(total))
        return backend.sum(total * total)

    own, size = backend.tensor(VALUES, requires_grad=True), backend.get_world_size()
    (first,) = backend.grad(backend.full_tensor(backend.call(sum_of_squares, own)), [own], create_graph=True)
    trace.expect(("moved", "shard"))
    trace.expect_value("gradient, of a sum to shards", [2 * size * value for value in VALUES], first)
    (second,) = backend.grad(backend.sum(first), [own])  # all ranks have this sum: it counts once
    trace.expect_value("gradient of it, of a sum to shards", [2.0] * len(VALUES), second)

    x, total = leaf(backend), sum(value**2 for value in VALUES)
    (first,) = backend.grad(backend.full_tensor(backend.call(squared, x)), [x], create_graph=True)
    trace.expect(("moved", "replicate"))
    trace.expect_value("gradient, of a sum", [4 * total * value for value in VALUES], whole(backend, first))
    (second,) = backend.grad(backend.full_tensor(backend.sum(first)), [x])
    expected = [4 * total + 8 * sum(VALUES) * value for value in VALUES]
    trace.expect_value("gradient of it, of a sum", expected, whole(backend, second))


@rule(
    "dtensor.one-rank",
    level=Level.MUST,
    sources=[DTENSOR.sentence(1), REGISTER_HOOK.sentence(2), POST_ACCUMULATE.sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS, Capability.POST_ACCUMULATE],
    mutants=[
        "dtensor-drops-tensor-hooks",
        "dtensor-drops-post-accumulate-hooks",
        "dtensor-drops-tensor-hooks-of-non-leaves",
        "dtensor-keeps-one-post-accumulate-hook",
    ],
    processes=1,
)
def test_one_rank(backend: Backend, trace: Trace) -> None:
    """In a group of one rank, hooks on a distributed tensor run as on a tensor that is not distributed.

    A rank that has all values is the single device whose abstraction a distributed tensor provides.
    """
    labels = ("first", "second")
    for placement in PLACEMENTS:
        x = leaf(backend, placement)
        for label in labels:

            def see(grad, label=label):
                trace.log(f"{label} tensor hook", part(backend, grad))

            def hook(tensor, label=label):
                trace.log(f"{label} post-accumulate hook", part(backend, backend.grad_of(tensor)))

            backend.register_hook(x, see)
            backend.register_post_accumulate_grad_hook(x, hook)

        def look(each):
            backend.register_hook(each, lambda grad: trace.log("hook of a non-leaf", part(backend, grad)))

        for passes in (1, 2, 3):
            square(backend, x, look)
            ones = [1.0] * len(VALUES)
            before = [(f"{label} tensor hook", SQUARES) for label in labels]
            accumulated = [passes * value for value in SQUARES]
            after = [(f"{label} post-accumulate hook", accumulated) for label in labels]
            trace.expect(("hook of a non-leaf", 1.0), ("hook of a non-leaf", ones), *before, *after)
