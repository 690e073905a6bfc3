"""Data parallel: hooks on and inside a module whose replicas each run in a thread."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule, tutorial

DATA_PARALLEL = docstring("torch.nn.DataParallel")
TUTORIAL = tutorial("intermediate/autograd_saved_tensors_hooks_tutorial")
DEFAULT_HOOKS = notes("autograd", "registering-default-hooks-for-saved-tensors")


class ReplicaError(Exception):
    """Raised by a hook in one replica."""


def weighted(backend: Backend, forward: Any) -> Any:
    """Make a module with one weight, 2."""
    return backend.module({"weight": backend.tensor([2.0])}, forward)


def one_row_each(backend: Backend) -> Any:
    """Make an input with one row for each replica: 1, 2, ..."""
    return backend.tensor([[row] for row in numbers(backend)], requires_grad=True)


def numbers(backend: Backend) -> list[float]:
    """Return the values of the rows."""
    return [place + 1.0 for place in range(backend.replica_count())]


def row_of(backend: Backend, tensor: Any) -> str:
    """Return the row, and so the replica, that a tensor belongs to, by its value."""
    return f"row {int(backend.tolist(tensor)[0][0])}"


def squared_gradient(backend: Backend) -> list[float]:
    """Return the gradient of sum((x * weight) ** 2) with respect to the weight of a single module."""
    return [sum(4 * row * row for row in numbers(backend))]


def two_weighted(backend: Backend) -> Any:
    """Make a module with the parameters weight, 2, and other, 3, which gives (x * weight) ** 2 + x * other."""

    def forward(module, x):
        y = x * module.weight
        return y * y + x * module.other

    return backend.module({"weight": backend.tensor([2.0]), "other": backend.tensor([3.0])}, forward)


def expect_gradients(backend: Backend, trace: Trace, module: Any) -> None:
    """Expect in a module with two weights the gradients that all rows give."""
    trace.expect_value("weight.grad", squared_gradient(backend), backend.grad_of(module.weight))
    trace.expect_value("other.grad", [sum(numbers(backend))], backend.grad_of(module.other))


@rule(
    "data-parallel.hooks-inside-forward",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(1), TUTORIAL.sentence(54)],
    needs=[Capability.DATA_PARALLEL, Capability.MODULES, Capability.SAVED_TENSOR_HOOKS],
    mutants=["saved-tensor-hooks-only-in-the-main-thread", "replicas-ignore-what-unpack-hooks-return"],
)
def test_hooks_inside_forward(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks entered inside the forward of a data-parallel module apply in each replica."""

    def forward(module, x):
        y = x * module.weight
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), trace.saw("unpack", lambda kept: kept * 3)):
            return y * y

    module = weighted(backend, forward)
    squares = backend.call(backend.data_parallel(module), one_row_each(backend))
    trace.expect_in_any_order(*["pack", "pack"] * backend.replica_count())
    packed = [[[2 * row]] for row in numbers(backend) for _ in range(2)]
    trace.expect_value("packed by all replicas", packed, sorted(trace.values("pack")))

    backend.backward(backend.sum(squares))
    trace.expect_in_any_order(*["unpack", "unpack"] * backend.replica_count())
    expected = [3 * value for value in squared_gradient(backend)]
    trace.expect_value("weight.grad", expected, backend.grad_of(module.weight))


@rule(
    "data-parallel.hooks-around-threads",
    level=Level.MUST,
    sources=[DEFAULT_HOOKS.sentence(9, 10)],
    needs=[Capability.DATA_PARALLEL, Capability.MODULES, Capability.SAVED_TENSOR_HOOKS],
    mutants=["saved-tensors-hooks-reaches-other-threads"],
)
def test_hooks_around(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks entered around the call of a data-parallel module do not apply in its replicas."""

    def forward(module, x):
        y = x * module.weight
        return y * y

    module = weighted(backend, forward)
    x = one_row_each(backend)
    with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), trace.saw("unpack", lambda kept: kept)):
        squares = backend.call(backend.data_parallel(module), x)
    backend.backward(backend.sum(squares))

    trace.expect()
    trace.expect_value("weight.grad", squared_gradient(backend), backend.grad_of(module.weight))


def expect_each_hook_in_each_replica(backend: Backend, trace: Trace, module: Any, *, of: Any) -> None:
    """Expect that in each call each hook of a module runs once for each row, which its arguments show.

    There are two of each kind, of which one is registered before the module is made parallel.
    """

    def of_row(label):
        return lambda _module, values, *_: trace.log(f"{label}, {row_of(backend, values[0])}")

    def register(when):
        backend.register_forward_pre_hook(of, of_row(f"forward pre-hook {when}"))
        backend.register_forward_hook(of, of_row(f"forward hook {when}"))
        backend.register_full_backward_pre_hook(of, of_row(f"backward pre-hook {when}"))
        backend.register_full_backward_hook(of, of_row(f"full backward hook {when}"))

    def of_each(*kinds: str) -> list[str]:
        return [f"{kind} {when}, row {int(row)}" for kind in kinds for when in ("first", "later") for row in rows]

    rows = numbers(backend)
    register("first")
    parallel = backend.data_parallel(module)
    register("later")

    for _ in range(2):
        x = one_row_each(backend)
        outputs = backend.call(parallel, x)
        trace.expect_in_any_order(*of_each("forward pre-hook", "forward hook"))

        backend.backward(backend.sum(outputs * backend.detach(x)))
        trace.expect_in_any_order(*of_each("backward pre-hook", "full backward hook"))


@rule(
    "data-parallel.module-hooks-count",
    level=Level.MUST,
    sources=[DATA_PARALLEL.sentence(16)],
    needs=[
        Capability.DATA_PARALLEL,
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
    ],
    mutants=[
        "module-hooks-run-once-for-all-replicas",
        "backward-pre-hooks-run-once-for-all-replicas",
        "backward-hooks-run-for-one-replica-only",
        "replicas-have-hooks-in-the-first-call-only",
        "module-hooks-only-in-the-main-thread",
        "replicas-lack-hooks-registered-later",
        "replicas-lack-backward-hooks-registered-earlier",
        "replicas-have-one-hook-of-each-kind",
    ],
)
def test_module_hooks_count(backend: Backend, trace: Trace) -> None:
    """Forward and backward hooks of a data-parallel module run once in each replica."""
    module = weighted(backend, lambda _module, x: x * 1)

    expect_each_hook_in_each_replica(backend, trace, module, of=module)


@rule(
    "data-parallel.submodule-hooks-count",
    level=Level.MUST,
    sources=[DATA_PARALLEL.sentence(16)],
    needs=[
        Capability.DATA_PARALLEL,
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
        Capability.MODULE_PARTS,
    ],
    mutants=[
        "module-hooks-run-once-for-all-replicas",
        "submodule-hooks-run-once-for-all-replicas",
        "backward-pre-hooks-run-once-for-all-replicas",
        "backward-hooks-run-for-one-replica-only",
        "replicas-have-hooks-in-the-first-call-only",
        "module-hooks-only-in-the-main-thread",
        "replicas-lack-hooks-of-deeper-submodules",
    ],
)
def test_submodule_hooks_count(backend: Backend, trace: Trace) -> None:
    """Forward and backward hooks of a submodule of a data-parallel module run once in each replica."""
    for place in range(2):
        outer, inner = (weighted(backend, lambda module, x: module.inner(x * 1)) for _ in range(2))
        inmost = weighted(backend, lambda _module, x: x * 1)
        backend.add_module(outer, "inner", inner)
        backend.add_module(inner, "inner", inmost)

        expect_each_hook_in_each_replica(backend, trace, outer, of=(inner, inmost)[place])


@rule(
    "data-parallel.module-hooks-return",
    level=Level.MUST,
    sources=[
        DATA_PARALLEL.sentence(16),
        docstring("torch.nn.Module.register_forward_pre_hook").sentence(5),
        docstring("torch.nn.Module.register_forward_hook").sentence(5),
        docstring("torch.nn.Module.register_full_backward_pre_hook").sentence(5),
        docstring("torch.nn.Module.register_full_backward_hook").sentence(8),
    ],
    needs=[
        Capability.DATA_PARALLEL,
        Capability.MODULES,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
    ],
    mutants=["replicas-ignore-what-module-hooks-return"],
)
def test_module_hooks_return(backend: Backend, trace: Trace) -> None:
    """What the hooks of a data-parallel module return takes the place of inputs, outputs and gradients in each replica.

    A hook is called in each of them, and is that of the module.
    """
    module = weighted(backend, lambda module, x: x * module.weight)
    backend.register_forward_pre_hook(module, lambda _, inputs: (inputs[0] * 2,))
    backend.register_forward_hook(module, lambda _, __, output: output * 3)
    backend.register_full_backward_pre_hook(module, lambda _, grads: (grads[0] * 2,))
    backend.register_full_backward_hook(module, lambda _, grads, __: (grads[0] * 5,))
    parallel = backend.data_parallel(module)
    rows = numbers(backend)
    for _ in range(3):
        x = one_row_each(backend)
        outputs = backend.call(parallel, x)
        trace.expect_value("outputs", [[12 * row] for row in rows], backend.detach(outputs))

        backend.backward(backend.sum(outputs))
        trace.expect_value("x.grad", [[120.0] for _ in rows], backend.grad_of(x))


@rule(
    "data-parallel.order-per-device",
    level=Level.MUST,
    sources=[DATA_PARALLEL.sentence(17, 18)],
    needs=[Capability.DATA_PARALLEL, Capability.MODULES],
    mutants=["forward-pre-hook-after-forward", "forward-hook-before-forward"],
)
def test_order_per_replica(backend: Backend, trace: Trace) -> None:
    """In each replica of a module the forward pre-hook runs before the replica's forward, the forward hook after it."""

    def step(label):
        return lambda _, args, *_output: trace.log(f"{label}, {row_of(backend, args[0])}")

    def forward(module, x):
        trace.log(f"forward, {row_of(backend, x)}")
        return x * module.weight

    module = weighted(backend, forward)
    backend.register_forward_hook(module, step("forward hook"))
    backend.register_forward_pre_hook(module, step("forward pre-hook"))
    backend.call(backend.data_parallel(module), one_row_each(backend))

    rows = [f"row {int(row)}" for row in numbers(backend)]
    steps = ("forward pre-hook", "forward", "forward hook")
    trace.expect_in_any_order(*(f"{label}, {row}" for row in rows for label in steps))
    for row in rows:
        trace.expect_before(f"forward pre-hook, {row}", f"forward, {row}")
        trace.expect_before(f"forward, {row}", f"forward hook, {row}")


@rule(
    "data-parallel.gradients-summed",
    level=Level.MUST,
    sources=[DATA_PARALLEL.sentence(4), docstring("torch.Tensor.register_hook").sentence(2)],
    needs=[Capability.DATA_PARALLEL, Capability.MODULES, Capability.MODULE_PARTS, Capability.TENSOR_HOOKS],
    mutants=[
        "gradient-of-one-replica-only",
        "submodule-gradients-of-one-replica-only",
        "parameter-hook-once-a-replica",
        "later-gradients-of-one-replica-only",
        "replicas-have-gradients-in-the-first-call-only",
    ],
)
def test_gradients_summed(backend: Backend, trace: Trace) -> None:
    """The gradients of all replicas are summed into the original module; its parameter hooks run once, with the sum.

    A hook runs when a gradient of its tensor is computed, and the parameter of the original module has the sum alone.
    """
    inner = two_weighted(backend)
    module = weighted(backend, lambda module, x: x * module.weight + module.inner(x))
    backend.add_module(module, "inner", inner)
    for label, parameter in (("own", module.weight), ("weight", inner.weight), ("other", inner.other)):
        backend.register_hook(parameter, trace.saw(label))
    parallel = backend.data_parallel(module)
    for _ in range(2):
        for parameter in (module.weight, inner.weight, inner.other):
            backend.set_grad(parameter, None)
        backend.backward(backend.sum(backend.call(parallel, one_row_each(backend))))

        trace.expect_in_any_order("own", "weight", "other")
        trace.expect_value("own weight.grad", [sum(numbers(backend))], backend.grad_of(module.weight))
        expect_gradients(backend, trace, inner)
    of_weight, of_other = squared_gradient(backend), [sum(numbers(backend))]
    for label, expected in (("own", of_other), ("weight", of_weight), ("other", of_other)):
        trace.expect_value(f"what the hook {label} saw", [expected, expected], trace.values(label))


@rule(
    "data-parallel.post-accumulate-hooks",
    level=Level.MUST,
    sources=[
        DATA_PARALLEL.sentence(4),
        docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(2),
    ],
    needs=[Capability.DATA_PARALLEL, Capability.MODULES, Capability.POST_ACCUMULATE],
    mutants=["post-accumulate-hook-once-a-replica"],
)
def test_post_accumulate_hooks(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook on a data-parallel module's parameter runs once in each pass, when .grad is the sum.

    It runs after the gradients of the parameter have accumulated, which are those of all replicas.
    """
    module = two_weighted(backend)
    expected = {"weight": squared_gradient(backend), "other": [sum(numbers(backend))]}
    for name in expected:
        backend.register_post_accumulate_grad_hook(
            getattr(module, name), lambda parameter, name=name: trace.log(name, backend.grad_of(parameter))
        )
    parallel = backend.data_parallel(module)
    for _ in range(3):
        for name in expected:
            backend.set_grad(getattr(module, name), None)
        backend.backward(backend.sum(backend.call(parallel, one_row_each(backend))))
        for name, gradient in expected.items():
            trace.expect_value(f"what the hook of {name} saw", [gradient], trace.values(name))
        trace.clear()


@rule(
    "data-parallel.exception-type",
    level=Level.SHOULD,
    sources=[observed("an exception in a replica is raised by the call, with its own type")],
    needs=[Capability.DATA_PARALLEL, Capability.MODULES],
    basis=Basis.OBSERVED,
    mutants=[
        "exception-in-a-replica-is-lost",
        "exception-changes-its-type",
        "exception-in-the-first-replica-is-lost",
        "errors-of-forward-hooks-in-replicas-are-lost",
    ],
)
def test_exception_type(backend: Backend, trace: Trace) -> None:
    """An exception that a hook raises in one replica of a module reaches the caller with its own type."""

    def failing_in(row):
        def fail(_, args, *_output: object) -> None:
            if row_of(backend, args[0]) == row:
                raise ReplicaError(f"from {row}")

        return fail

    for row in [f"row {int(row)}" for row in numbers(backend)]:
        for register in (backend.register_forward_pre_hook, backend.register_forward_hook):
            module = weighted(backend, lambda module, x: x * module.weight)
            register(module, failing_in(row))
            parallel = backend.data_parallel(module)
            with trace.raises_type(ReplicaError, f"from {row}"):
                backend.call(parallel, one_row_each(backend))


@rule(
    "data-parallel.checkpoint",
    level=Level.MUST,
    sources=[DATA_PARALLEL.sentence(4), docstring("torch.utils.checkpoint.checkpoint").sentence(6)],
    needs=[Capability.DATA_PARALLEL, Capability.MODULES, Capability.CHECKPOINT],
    mutants=["gradient-of-one-replica-only", "later-gradients-of-one-replica-only"],
)
def test_checkpoint_around(backend: Backend, trace: Trace) -> None:
    """A data-parallel module inside a non-reentrant checkpoint has the gradients of all replicas.

    Checkpointing can be applied to any part of a model, and the gradients of the replicas are summed.
    """
    module = two_weighted(backend)
    parallel = backend.data_parallel(module)
    outputs = backend.checkpoint(parallel, one_row_each(backend), use_reentrant=False)
    backend.backward(backend.sum(outputs))

    expect_gradients(backend, trace, module)
