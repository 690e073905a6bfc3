"""Tensor parallelism: what hooks see of layers whose parameters, inputs or outputs are split over the ranks."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.ranks import RANKS, number

PARALLEL = "torch.distributed.tensor.parallel"
DTENSOR = docstring("torch.distributed.tensor.DTensor")
PARALLELIZE = docstring(f"{PARALLEL}.parallelize_module")
COLWISE = docstring(f"{PARALLEL}.ColwiseParallel")
ROWWISE = docstring(f"{PARALLEL}.RowwiseParallel")
SEQUENCE = docstring(f"{PARALLEL}.SequenceParallel")
PREPARE_INPUT = docstring(f"{PARALLEL}.PrepareModuleInput")
PREPARE_OUTPUT = docstring(f"{PARALLEL}.PrepareModuleOutput")
LOSS_PARALLEL = docstring(f"{PARALLEL}.loss_parallel")
NEEDS = [Capability.DISTRIBUTED_TENSORS, Capability.TENSOR_PARALLEL, Capability.MODULE_SWITCHES]
TWO_DIMENSIONS = {"extra-dimension": "the weight of a linear layer has two dimensions"}
X = [[1.0, 2.0]]
UP = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
DOWN = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
"""The weights of two linear layers, one after the other."""
OUTPUT = [[170.0, 394.0]]
UP_GRADIENT = [[6.0, 12.0], [8.0, 16.0], [10.0, 20.0], [12.0, 24.0]]
DOWN_GRADIENT = [[5.0, 11.0, 17.0, 23.0], [5.0, 11.0, 17.0, 23.0]]
X_GRADIENT = [[164.0, 200.0]]
"""The gradients of the sum of the outputs, as one device computes them."""


def layers(backend: Backend, *biases: list[float]) -> Any:
    """Make a module of two linear layers, up and down, which may have biases."""
    module = backend.module({}, lambda module, x: module.down(module.up(x)))
    for nr, (name, weight) in enumerate((("up", UP), ("down", DOWN))):
        given = [backend.tensor(bias) for bias in biases[nr : nr + 1]]
        backend.add_module(module, name, backend.linear(backend.tensor(weight), *given))
    return module


def parallelize(backend: Backend, module: Any, where: str = "") -> None:
    """Split the first layer by columns and the second by rows, which are in the module or in one inside it."""
    styles = {"up": backend.parallel_style("ColwiseParallel"), "down": backend.parallel_style("RowwiseParallel")}
    backend.parallelize_module(module, {f"{where}{name}": style for name, style in styles.items()})


def scale(backend: Backend) -> Any:
    """Make a module that multiplies by three."""
    return backend.module({}, lambda _module, x: x * 3.0)


def step(backend: Backend, module: Any) -> Any:
    """Run forward and backward; return the input."""
    x = backend.tensor(X, requires_grad=True)
    backend.backward(backend.sum(backend.call(module, x)))
    return x


def times(factor: int, matrix: list[list[float]]) -> list[list[float]]:
    """Return a matrix each of whose numbers is multiplied."""
    return [[factor * value for value in row] for row in matrix]


def whole(backend: Backend, tensor: Any) -> Any:
    """Return all values of a tensor, which may be a distributed one."""
    return backend.detach(backend.full_tensor(tensor) if backend.placement(tensor) else tensor)


def form(backend: Backend, tensor: Any) -> str:
    """Return whether a tensor is distributed, in words."""
    return "distributed" if backend.placement(tensor) else "plain"


@rule(
    "tensor-parallel.gradients",
    level=Level.MUST,
    sources=[DTENSOR.sentence(1), PARALLELIZE.sentence(4, 13, 17), COLWISE.sentence(1, 5), ROWWISE.sentence(1, 7)],
    needs=NEEDS,
    mutants=[
        "parallelize-module-does-nothing",
        "parallel-outputs-sum-gradients",
        "parallel-inputs-keep-partial-gradients",
        "parallel-rows-add-the-bias-in-each-rank",
        "parallelize-module-leaves-deeper-modules",
    ],
    except_under=TWO_DIMENSIONS | {"bfloat16": "its numbers have more digits than bfloat16 holds"},
    processes=RANKS,
)
def test_gradients(backend: Backend, trace: Trace) -> None:
    """Layers that are split by columns, then by rows, compute the output and the gradients of the layers as a whole.

    The parameters act like those of a single device: each rank has a part of their gradients, and all of the input's. A
    bias is added once. The layers may be in a module inside the module.
    """
    for _ in range(2):
        module = layers(backend)
        parallelize(backend, module)
        for passes in (1, 2, 3):
            x = backend.tensor(X, requires_grad=True)
            output = backend.call(module, x)
            backend.backward(backend.sum(output))

            trace.expect_value("output", OUTPUT, backend.detach(output))
            trace.expect_value("x.grad", X_GRADIENT, backend.grad_of(x))
            for name, weight, once in (
                ("up", module.up.weight, UP_GRADIENT),
                ("down", module.down.weight, DOWN_GRADIENT),
            ):
                grad = backend.grad_of(weight)
                trace.expect_value(f"the gradient of {name}", "distributed", form(backend, grad))
                trace.expect_value(f"the gradient of {name}", times(passes, once), whole(backend, grad))

        module = layers(backend, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0])
        outer = backend.module({}, lambda outer, x: outer.inner(x))
        backend.add_module(outer, "inner", module)
        parallelize(backend, outer, "inner.")
        for passes in (1, 2, 3):
            output = backend.call(outer, backend.tensor(X))
            backend.backward(backend.sum(output))
            trace.expect_value("output of layers with biases", [[201.0, 466.0]], backend.detach(output))
            for layer, once in ((module.up, [6.0, 8.0, 10.0, 12.0]), (module.down, [1.0, 1.0])):
                expected = [passes * value for value in once]
                grad = backend.grad_of(layer.bias)
                trace.expect_value("the gradient of a bias", "distributed", form(backend, grad))
                trace.expect_value("the gradient of a bias", expected, whole(backend, grad))


@rule(
    "tensor-parallel.tensor-hook",
    level=Level.MUST,
    sources=[DTENSOR.sentence(1), docstring("torch.Tensor.register_hook").sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["dtensor-drops-tensor-hooks", "dtensor-hooks-see-the-shard-alone"],
    except_under=TWO_DIMENSIONS,
    processes=RANKS,
)
def test_tensor_hook(backend: Backend, trace: Trace) -> None:
    """A tensor hook on a split weight runs once in each pass and rank; the parts of its gradient are the whole.

    The weight is a distributed tensor, which acts like that of a single device.
    """
    for _ in range(2):
        module = layers(backend)
        parallelize(backend, module)
        seen: list[Any] = []
        backend.register_hook(module.up.weight, lambda grad: trace.log("up", whole(backend, grad)))
        backend.register_hook(module.down.weight, lambda grad: trace.log("down", whole(backend, grad)))
        backend.register_hook(module.up.weight, lambda grad, seen=seen: seen.append(whole(backend, grad)))
        for _ in range(3):
            seen.clear()
            step(backend, module)
            trace.expect(("down", DOWN_GRADIENT), ("up", UP_GRADIENT))
            trace.expect_value("what a second hook saw", [UP_GRADIENT], seen)
            grads = [form(backend, backend.grad_of(layer.weight)) for layer in (module.up, module.down)]
            trace.expect_value("gradients of weights", ["distributed"] * 2, grads)


@rule(
    "tensor-parallel.post-accumulate",
    level=Level.MUST,
    sources=[DTENSOR.sentence(1), docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(2)],
    needs=[*NEEDS, Capability.POST_ACCUMULATE],
    mutants=["dtensor-drops-post-accumulate-hooks", "dtensor-runs-post-accumulate-hooks-early"],
    except_under=TWO_DIMENSIONS,
    processes=RANKS,
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook on a split weight runs once in each pass and rank, after .grad has been updated.

    The weight acts like that of a single device: .grad is the sum over the passes, and each rank has a part of it.
    """
    for _ in range(2):
        module = layers(backend)
        parallelize(backend, module)
        seen: dict[str, list[Any]] = {"up": [], "down": []}

        for name, layer in (("up", module.up), ("down", module.down)):
            for _ in range(2):

                def see(weight, seen=seen[name]):
                    grad = backend.grad_of(weight)
                    seen.append(None if grad is None else whole(backend, grad))

                backend.register_post_accumulate_grad_hook(layer.weight, see)
        for passes in (1, 2, 3):
            step(backend, module)
            for name, once in (("up", UP_GRADIENT), ("down", DOWN_GRADIENT)):
                trace.expect_value(f"what two hooks of {name} saw", [times(passes, once)] * 2, seen[name])
                seen[name].clear()
            grads = [form(backend, backend.grad_of(layer.weight)) for layer in (module.up, module.down)]
            trace.expect_value("gradients of weights", ["distributed"] * 2, grads)


@rule(
    "tensor-parallel.full-backward-hook",
    level=Level.MUST,
    sources=[
        DTENSOR.sentence(1),
        PARALLELIZE.sentence(16),
        docstring("torch.nn.Module.register_full_backward_hook").sentence(2),
    ],
    needs=[*NEEDS, Capability.MODULE_BACKWARD_HOOKS],
    mutants=["parallelize-module-drops-module-hooks"],
    except_under=TWO_DIMENSIONS,
    processes=RANKS,
)
def test_full_backward_hook(backend: Backend, trace: Trace) -> None:
    """A split layer's full backward hook runs once in each pass and rank, and grad_input is that of the whole layer.

    The layer is the one that the hook was registered on, and its weight acts like that of a single device.
    """
    for _ in range(2):
        module = layers(backend)
        seen: list[Any] = []
        for name, layer in (("up", module.up), ("down", module.down)):
            backend.register_full_backward_hook(
                layer, lambda _layer, grads, _, name=name: trace.log(name, whole(backend, grads[0]))
            )
        backend.register_full_backward_hook(
            module.up, lambda _layer, grads, _, seen=seen: seen.append(whole(backend, grads[0]))
        )
        parallelize(backend, module)
        for _ in range(3):
            seen.clear()
            step(backend, module)
            trace.expect(("down", [[6.0, 8.0, 10.0, 12.0]]), ("up", X_GRADIENT))
            trace.expect_value("what a second hook saw", [X_GRADIENT], seen)
            grads = [form(backend, backend.grad_of(layer.weight)) for layer in (module.up, module.down)]
            trace.expect_value("gradients of weights", ["distributed"] * 2, grads)


@rule(
    "tensor-parallel.module-hooks",
    level=Level.SHOULD,
    sources=[observed("a style's functions are hooks of the module, and run in the order of registration")],
    needs=[*NEEDS, Capability.MODULES],
    basis=Basis.OBSERVED,
    mutants=[
        "parallelize-module-runs-its-hooks-first",
        "parallelize-module-drops-module-hooks",
        "parallelize-module-runs-its-hooks-of-rows-first",
    ],
    except_under=TWO_DIMENSIONS,
    processes=RANKS,
)
def test_module_hooks(backend: Backend, trace: Trace) -> None:
    """Forward hooks registered before a layer is split see its plain input and its distributed output.

    Hooks registered later see the distributed input and the plain output, since the style's functions run in between.
    """

    def register(module: Any, when: str) -> None:
        for name, layer, seen in (("up", module.up, backend.placement), ("down", module.down, form_of)):
            backend.register_forward_pre_hook(
                layer, lambda _, inputs, name=name, seen=seen: trace.log(f"{name}: pre-hook {when}", seen(inputs[0]))
            )
            backend.register_forward_hook(
                layer, lambda _, __, outputs, name=name, seen=seen: trace.log(f"{name}: hook {when}", seen(outputs))
            )

    def form_of(tensor: Any) -> str:
        return form(backend, tensor)

    for _ in range(2):
        module = layers(backend)
        register(module, "before")
        parallelize(backend, module)
        register(module, "after")
        for _ in range(3):
            step(backend, module)
            trace.expect(
                ("up: pre-hook before", ""),
                ("up: pre-hook after", "replicate"),
                ("up: hook before", "shard-columns"),
                ("up: hook after", ""),
                ("down: pre-hook before", "plain"),
                ("down: pre-hook after", "distributed"),
                ("down: hook before", "distributed"),
                ("down: hook after", "plain"),
            )


@rule(
    "tensor-parallel.prepare-input",
    level=Level.MUST,
    sources=[PREPARE_INPUT.sentence(1, 2, 3, 4, 8)],
    needs=[*NEEDS, Capability.MODULES],
    mutants=[
        "prepared-inputs-keep-their-layout",
        "prepared-inputs-are-always-replicated",
        "prepared-inputs-are-never-local",
        "prepared-inputs-are-the-first-alone",
        "parallel-inputs-detach",
    ],
    processes=RANKS,
)
def test_prepare_input(backend: Backend, trace: Trace) -> None:
    """A module gets the ranks' inputs as a distributed tensor of the desired layout, and backward goes back through it.

    Forward pre-hooks that run later get the same, since a call gives forward what they were given. With
    use_local_output it is the rank's plain tensor instead. Each of several inputs has its layout, or stays as it is.
    """
    for before, after in (("shard", "replicate"), ("replicate", "shard")):
        own = [number(backend)] if before == "shard" else [1.0, 2.0]
        layouts = {"input_layouts": before, "desired_input_layouts": after}
        for options, placement in (({}, after), ({"use_local_output": True}, "")) * 2:
            module = scale(backend)
            backend.parallelize_module(module, backend.parallel_style("PrepareModuleInput", **layouts, **options))
            backend.register_forward_pre_hook(
                module, lambda _, inputs: trace.log(backend.placement(inputs[0]), whole(backend, inputs[0]))
            )
            for _ in range(3):
                x = backend.tensor(own, requires_grad=True)
                output = backend.call(module, x)
                trace.expect((placement, [1.0, 2.0] if placement or after == "replicate" else [number(backend)]))
                backend.backward(backend.sum(backend.full_tensor(output) if placement else output))

                trace.expect_value("x.grad", [3.0] * len(own), backend.grad_of(x))

    module = backend.module({}, lambda _, x, y, factor: (x * factor, y * factor))
    layouts = {"input_layouts": ("shard", "replicate", ""), "desired_input_layouts": ("replicate", "shard", "")}
    backend.parallelize_module(module, backend.parallel_style("PrepareModuleInput", **layouts))
    backend.register_forward_pre_hook(
        module, lambda _, inputs: trace.log("inputs", [*map(backend.placement, inputs[:2]), inputs[2]])
    )
    x, y = (backend.tensor(own, requires_grad=True) for own in ([number(backend)], [1.0, 2.0]))
    outputs = backend.call(lambda x, y: module(x, y, 3.0), x, y)
    trace.expect(("inputs", ["replicate", "shard", 3.0]))
    for output, given in zip(outputs, (x, y), strict=True):
        backend.backward(backend.sum(backend.full_tensor(output)))
        trace.expect_value("gradient of an input", [3.0] * len(backend.tolist(given)), backend.grad_of(given))


@rule(
    "tensor-parallel.prepare-output",
    level=Level.MUST,
    sources=[PREPARE_OUTPUT.sentence(1, 2, 4, 5)],
    needs=NEEDS,
    mutants=[
        "parallelize-module-does-nothing",
        "prepared-outputs-keep-their-layout",
        "prepared-outputs-are-always-replicated",
        "parallel-outputs-sum-gradients",
        "prepared-outputs-are-always-local",
        "prepared-outputs-are-the-first-alone",
    ],
    processes=RANKS,
)
def test_prepare_output(backend: Backend, trace: Trace) -> None:
    """The ranks' outputs become a tensor of the desired layout, plain by default, and backward goes back through it.

    Each of several outputs has its layout.
    """
    for before, after in (("shard", "replicate"), ("replicate", "shard")):
        own = [number(backend)] if before == "shard" else [1.0, 2.0]
        layouts = {"output_layouts": before, "desired_output_layouts": after}
        for options, placement in (({}, ""), ({"use_local_output": False}, after)) * 2:
            module = scale(backend)
            backend.parallelize_module(module, backend.parallel_style("PrepareModuleOutput", **layouts, **options))
            for _ in range(3):
                x = backend.tensor(own, requires_grad=True)
                output = backend.call(module, x)
                trace.expect_value("placement of the output", placement, backend.placement(output))
                expected = [3.0, 6.0] if placement or after == "replicate" else [3.0 * number(backend)]
                trace.expect_value("output", expected, whole(backend, output))
                backend.backward(backend.sum(backend.full_tensor(output) if placement else output))

                trace.expect_value("x.grad", [3.0] * len(own), backend.grad_of(x))

    module = backend.module({}, lambda _, x, y: (x * 3.0, y * 3.0))
    layouts = {"output_layouts": ("replicate", "shard"), "desired_output_layouts": ("shard", "replicate")}
    backend.parallelize_module(module, backend.parallel_style("PrepareModuleOutput", **layouts))
    x, y = (backend.tensor(own, requires_grad=True) for own in ([1.0, 2.0], [number(backend)]))
    outputs = backend.call(module, x, y)
    expected = [[3.0 * number(backend)], [3.0, 6.0]]
    trace.expect_value("two outputs", expected, [backend.tolist(backend.detach(each)) for each in outputs])
    for output, given in zip(outputs, (x, y), strict=True):
        backend.backward(backend.sum(output))
        trace.expect_value("gradient of an input", [3.0] * len(backend.tolist(given)), backend.grad_of(given))


@rule(
    "tensor-parallel.sequence",
    level=Level.MUST,
    sources=[SEQUENCE.sentence(1, 2, 4), docstring("torch.Tensor.register_hook").sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["dtensor-drops-tensor-hooks", "dtensor-hooks-see-the-shard-alone", "parallelize-module-does-nothing"],
    except_under={
        "extra-dimension": "a layer norm is over the last dimension",
        "complex64": "a layer norm is of real numbers",
    },
    processes=RANKS,
)
def test_sequence(backend: Backend, trace: Trace) -> None:
    """With SequenceParallel a hook on a replicated parameter gets the gradient of the whole sequence, in every rank.

    The computation is that of the layer, of which each rank has a part of the sequence.
    """
    for _ in range(2):
        module = backend.layer_norm(backend.tensor([1.0, 1.0]), backend.tensor([0.0, 0.0]))
        style = backend.parallel_style("SequenceParallel", sequence_dim=0, use_local_output=True)
        backend.parallelize_module(module, style)
        seen: list[Any] = []
        backend.register_hook(module.bias, lambda grad: trace.log(form(backend, grad), whole(backend, grad)))
        backend.register_hook(module.bias, lambda grad, seen=seen: seen.append(whole(backend, grad)))
        of_weight: list[Any] = []
        backend.register_hook(
            module.weight, lambda grad, seen=of_weight: seen.extend(backend.tolist(whole(backend, grad)))
        )
        for _ in range(3):
            seen.clear()
            of_weight.clear()
            output = backend.call(module, backend.tensor([[number(backend), 5.0]]))
            backend.backward(backend.sum(output * backend.tensor([[number(backend), 10.0]])))

            trace.expect(("distributed", [3.0, 20.0]))
            trace.expect_value("what a second hook saw", [[3.0, 20.0]], seen)
            rounded = [round(value, 1) for value in of_weight]  # a row is normalized to -1 and 1, but for an epsilon
            trace.expect_value("what a hook of the weight saw", [-3.0, 20.0], rounded)


@rule(
    "tensor-parallel.loss",
    level=Level.MUST,
    sources=[LOSS_PARALLEL.sentence(1, 3, 4), docstring("torch.Tensor.register_hook").sentence(2)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=[
        "dtensor-drops-tensor-hooks",
        "loss-parallel-sums-gradients",
        "loss-parallel-sums-over-rows",
        "loss-parallel-takes-the-maximum-of-each-rank",
    ],
    except_under={
        "float16": "an eighth comes out of logarithms, which float16 rounds",
        "complex64": "a cross-entropy is of real numbers",
    },
    processes=RANKS,
)
def test_loss(backend: Backend, trace: Trace) -> None:
    """Backward from the cross-entropy of logits that are split by class gives each rank its part of their gradient."""
    rows = [[0.0] * 4, [0.0, 0.0, -1000.0, -1000.0]]  # the second has different maxima on the ranks
    expected = [[0.125, 0.125, -0.375, 0.125], [-0.25, 0.25, 0.0, 0.0]]
    for _ in range(2):
        logits = backend.distribute_tensor(backend.tensor(rows, requires_grad=True), "shard-columns")
        seen: list[Any] = []
        backend.register_hook(logits, lambda grad: trace.log("hook", whole(backend, grad)))
        backend.register_hook(logits, lambda grad, seen=seen: seen.append(whole(backend, grad)))
        for passes in (1, 2, 3):
            seen.clear()
            with backend.loss_parallel():
                backend.backward(backend.cross_entropy(logits, backend.tensor([2, 0], dtype="int64")))

            trace.expect(("hook", expected))
            trace.expect_value("what a second hook saw", [expected], seen)
            grad = backend.grad_of(logits)
            trace.expect_value("placement of the gradient", "shard-columns", backend.placement(grad))
            trace.expect_value("gradient", times(passes, expected), whole(backend, grad))
