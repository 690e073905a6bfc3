"""Distributed modules: functions that distribute a module's inputs and outputs, installed as its hooks."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import UserError
from hooklaw.rules.ranks import RANKS, number, part

DISTRIBUTE_MODULE = docstring("torch.distributed.tensor.distribute_module")
NEEDS = [Capability.DISTRIBUTED_TENSORS, Capability.MODULES]
NESTED = [*NEEDS, Capability.MODULE_PARTS]
VALUES = [2.0, 3.0, 4.0, 5.0]


def weighted(backend: Backend, trace: Trace) -> Any:
    """Make a module that multiplies by VALUES, by another inside it, and logs the placement of its input."""

    def forward(module, x):
        trace.log("forward", backend.placement(x))
        return module.inner(x)

    module = backend.module({}, forward)
    inner = backend.module({"weight": backend.tensor(VALUES)}, lambda inner, x: x * inner.weight)
    backend.add_module(module, "inner", inner)
    return module


def distribute_input(backend: Backend, trace: Trace) -> Any:
    """Return an input function that logs, and distributes the input."""

    def input_fn(_module, inputs):
        trace.log("input_fn", backend.placement(inputs[0]))
        return tuple(backend.from_local(each, "replicate") for each in inputs)

    return input_fn


def gather_output(backend: Backend, trace: Trace) -> Any:
    """Return an output function that logs, and makes the output a plain tensor of twice its values."""

    def output_fn(_module, outputs):
        trace.log("output_fn", backend.placement(outputs))
        return (backend.local_tensor(outputs) if backend.placement(outputs) else outputs) * 2.0

    return output_fn


@rule(
    "dtensor.module.parameters",
    level=Level.MUST,
    sources=[DISTRIBUTE_MODULE.sentence(7, 12)],
    needs=[*NESTED, Capability.REQUIRES_GRAD_FLAG],
    mutants=[
        "distribute-module-does-nothing",
        "distribute-module-leaves-submodules",
        "distribute-module-leaves-deeper-submodules",
        "distribute-module-leaves-buffers",
        "distribute-module-keeps-the-values-of-each-rank",
        "distribute-module-freezes-parameters",
        "distribute-module-unfreezes-parameters",
        "distribute-module-distributes-one-parameter",
        "distribute-module-distributes-one-buffer",
    ],
    processes=RANKS,
)
def test_parameters(backend: Backend, trace: Trace) -> None:
    """Parameters and buffers of a distributed module and its submodules are distributed tensors, replicated by default.

    A tensor that is replicated has the same values in all ranks; it requires grad as before.
    """

    def own() -> Any:
        return backend.tensor([number(backend) * value for value in VALUES])

    sums_of_replicas = [[RANKS * factor * value for value in VALUES] for factor in (1.0, 2.0)]
    for _ in range(2):
        module, inner, deeper = (backend.module({"weight": own(), "other": own()}, lambda _, x: x) for _ in range(3))
        backend.add_module(module, "inner", inner)
        backend.add_module(inner, "deeper", deeper)
        for name in ("offset", "steps"):
            backend.register_buffer(inner, name, own())
        backend.set_requires_grad(inner.other, requires_grad=False)
        backend.distribute_module(module)

        parameters = [(each, name) for each in (module, inner, deeper) for name in ("weight", "other")]
        for each, name in [*parameters, (inner, "offset"), (inner, "steps")]:
            tensor = getattr(each, name)
            trace.expect_value(f"placement of {name}", "replicate", backend.placement(tensor))
            as_before = (each, name) in parameters and (each, name) != (inner, "other")
            trace.expect_value(f"{name} requires grad", as_before, backend.requires_grad(tensor))
            total = backend.detach(backend.local_tensor(tensor)) * 1.0
            backend.all_reduce(total)
            is_one = backend.tolist(total) in sums_of_replicas
            trace.expect_value(f"all ranks have one {name}", True, is_one)  # noqa: FBT003 - the expected value


@rule(
    "dtensor.module.input-fn",
    level=Level.MUST,
    sources=[DISTRIBUTE_MODULE.sentence(3, 8, 9)],
    needs=[*NEEDS, Capability.MODULE_FORWARD],
    mutants=[
        "distribute-module-drops-input-fn",
        "input-fn-in-forward-itself",
        "input-fn-result-ignored",
        "input-fn-skips-distributed-inputs",
        "input-fn-result-for-the-first-input-alone",
        "input-fn-lost-inside-another-module",
        "input-fn-result-reversed",
    ],
    processes=RANKS,
)
def test_input_fn(backend: Backend, trace: Trace) -> None:
    """input_fn runs in each call before forward, which gets what it returns; forward alone runs without it.

    It is installed as a forward pre-hook, which a call runs and forward does not.
    """

    def input_fn(_module, inputs):
        trace.log("input_fn", [backend.placement(each) for each in inputs])
        factors = range(1, 1 + len(inputs))
        return tuple(backend.distribute_tensor(backend.tensor(VALUES) * factor, "replicate") for factor in factors)

    def forward(module, *inputs: Any):
        trace.log("forward", [backend.placement(each) for each in inputs])
        for place, each in enumerate(inputs[1:], 2):
            trace.log(f"input {place}", part(backend, each))
        return inputs[0] * module.weight

    modules = [backend.module({"weight": backend.tensor(VALUES)}, forward) for _ in range(2)]
    plain, sharded = backend.tensor(VALUES), backend.distribute_tensor(backend.tensor(VALUES), "shard")
    for module in modules:
        backend.distribute_module(module, input_fn=input_fn)
        for inputs in ([plain], [plain], [sharded], [plain, sharded]):
            output = backend.call(module, *inputs)
            placements = [backend.placement(each) for each in inputs]
            second = [("input 2", [2 * value for value in VALUES])] if len(inputs) > 1 else []
            trace.expect(("input_fn", placements), ("forward", ["replicate"] * len(inputs)), *second)
            trace.expect_value("the output", [value * value for value in VALUES], part(backend, output))
        backend.forward(module, sharded)
        trace.expect(("forward", ["shard"]))

    backend.call(backend.module({}, lambda _module, x: modules[0](x)), plain)
    trace.expect(("input_fn", [""]), ("forward", ["replicate"]))


@rule(
    "dtensor.module.output-fn",
    level=Level.MUST,
    sources=[DISTRIBUTE_MODULE.sentence(3, 10, 11)],
    needs=[*NESTED, Capability.MODULE_FORWARD],
    mutants=[
        "distribute-module-drops-output-fn",
        "output-fn-in-forward-itself",
        "output-fn-result-ignored",
        "output-fn-skips-plain-outputs",
        "output-fn-for-the-first-output-alone",
        "output-fn-under-no-grad",
        "output-fn-lost-inside-another-module",
        "output-fn-gives-the-first-for-each",
    ],
    processes=RANKS,
)
def test_output_fn(backend: Backend, trace: Trace) -> None:
    """output_fn runs in each call after forward, and what it returns is the output; forward alone runs without it.

    It is installed as a forward hook, which a call runs and forward does not.
    """
    x = backend.distribute_tensor(backend.tensor([1.0] * len(VALUES)), "replicate")
    for _ in range(2):
        module = weighted(backend, trace)
        backend.distribute_module(module, output_fn=gather_output(backend, trace))
        for _ in range(3):
            outputs = backend.call(module, x)
            trace.expect(("forward", "replicate"), ("output_fn", "replicate"))
            trace.expect_value("the output", [2 * value for value in VALUES], backend.detach(outputs))
            trace.expect_value("the output requires grad", True, backend.requires_grad(outputs))  # noqa: FBT003
        backend.forward(module, x)
        trace.expect(("forward", "replicate"))
        backend.call(backend.module({}, lambda _module, x, module=module: module(x)), x)
        trace.expect(("forward", "replicate"), ("output_fn", "replicate"))

    returns_plain = backend.module({}, lambda _module, x: backend.local_tensor(x))
    backend.distribute_module(returns_plain, output_fn=lambda _module, outputs: outputs * 3.0)
    trace.expect_value("in place of a plain output", [3.0] * len(VALUES), backend.call(returns_plain, x))

    returns_two = backend.module({}, lambda _module, x: (x, x * 2.0))
    backend.distribute_module(returns_two, output_fn=lambda _module, outputs: tuple(map(backend.local_tensor, outputs)))
    outputs = backend.call(returns_two, x)
    trace.expect_value("placements of two outputs", ["", ""], [backend.placement(each) for each in outputs])
    expected = [[factor] * len(VALUES) for factor in (1.0, 2.0)]
    trace.expect_value("two outputs", expected, [backend.tolist(each) for each in outputs])


@rule(
    "dtensor.module.other-hooks",
    level=Level.MUST,
    sources=[
        DISTRIBUTE_MODULE.sentence(9, 11),
        docstring("torch.nn.Module.register_forward_pre_hook").sentence(2, 14),
        docstring("torch.nn.Module.register_forward_hook").sentence(2, 12),
    ],
    needs=NESTED,
    mutants=[
        "distribute-module-drops-module-hooks",
        "distribute-module-runs-input-fn-first",
        "input-fn-of-submodules-too",
        "output-fn-of-submodules-too",
    ],
    processes=RANKS,
)
def test_other_hooks(backend: Backend, trace: Trace) -> None:
    """Forward pre-hooks and forward hooks run in the order of registration, input_fn and output_fn among them.

    Both are hooks of the module, so a hook that was registered before the module was distributed runs before them, and
    the modules inside it do not have them.
    """

    def register(module: Any, when: str) -> None:
        backend.register_forward_pre_hook(module, lambda _, inputs: trace.log(f"pre-hook {when}", where(inputs[0])))
        backend.register_forward_hook(module, lambda _, __, outputs: trace.log(f"hook {when}", where(outputs)))

    where = backend.placement
    for _ in range(2):
        module = weighted(backend, trace)
        register(module, "before")
        functions = {"input_fn": distribute_input(backend, trace), "output_fn": gather_output(backend, trace)}
        backend.distribute_module(module, **functions)
        register(module, "after")
        for _ in range(3):
            backend.call(module, backend.tensor([1.0] * len(VALUES)))
            trace.expect(
                ("pre-hook before", ""),
                ("input_fn", ""),
                ("pre-hook after", "replicate"),
                ("forward", "replicate"),
                ("hook before", "replicate"),
                ("output_fn", "replicate"),
                ("hook after", ""),
            )


@rule(
    "dtensor.module.gradients",
    level=Level.MUST,
    sources=[DISTRIBUTE_MODULE.sentence(3), docstring("torch.nn.Module.register_full_backward_hook").sentence(2)],
    needs=[*NESTED, Capability.MODULE_BACKWARD_HOOKS],
    mutants=["distribute-module-drops-module-hooks"],
    processes=RANKS,
)
def test_gradients(backend: Backend, trace: Trace) -> None:
    """Backward through input_fn and output_fn reaches the plain input, and runs the module's full backward hook once.

    The output is a plain tensor again, so a program runs backward from it as from any other.
    """
    for _ in range(2):
        module = weighted(backend, trace)
        backend.register_full_backward_hook(module, lambda *_: trace.log("full backward hook"))
        functions = {"input_fn": distribute_input(backend, trace), "output_fn": gather_output(backend, trace)}
        backend.distribute_module(module, **functions)
        for _ in range(3):
            x = backend.tensor([1.0] * len(VALUES), requires_grad=True)
            outputs = backend.call(module, x)
            trace.expect(("input_fn", ""), ("forward", "replicate"), ("output_fn", "replicate"))
            backend.backward(backend.sum(outputs))

            trace.expect("full backward hook")
            trace.expect_value("x.grad", [2 * value for value in VALUES], backend.grad_of(x))


@rule(
    "dtensor.module.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("input_fn and output_fn are hooks of the module, whose errors reach the caller")],
    needs=NEEDS,
    mutants=["input-fn-error-swallowed", "output-fn-error-swallowed"],
    processes=RANKS,
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An error of input_fn or output_fn reaches the caller of the module, and the next call is right."""

    def function(name: str) -> Any:
        changes = {"input_fn": lambda inputs: (inputs[0] * 3.0,), "output_fn": lambda output: output * 3.0}
        fails = [False, True, False, True, False]

        def run(_module: Any, given: Any) -> Any:
            if fails.pop(0):
                raise UserError(f"from {name}")
            trace.log(name)
            return changes[name](given)

        return run

    def expect_result(name: str, module: Any) -> None:
        trace.log("output", backend.call(module, x))
        trace.expect(name, ("output", [6 * value for value in VALUES]))

    x = backend.tensor(VALUES)
    for name in ("input_fn", "output_fn") * 2:
        module = backend.module({}, lambda _module, x: x * 2.0)
        backend.distribute_module(module, **{name: function(name)})
        expect_result(name, module)
        for _ in range(2):
            with trace.raises_type(UserError, f"from {name}"):
                backend.call(module, x)
            expect_result(name, module)
