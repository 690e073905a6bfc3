"""Distributed data parallel: the gradients of a module that is replicated in every rank."""

from contextlib import nullcontext
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.ranks import FOUR_RANKS, RANKS, mean, number, own_input, run, two_weights, weighted

DDP = docstring("torch.nn.parallel.DistributedDataParallel")
NO_SYNC = docstring("torch.nn.parallel.DistributedDataParallel.no_sync")
DESIGN = notes("ddp", "internal-design")
NEEDS = [Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES]


@rule(
    "ddp.gradients-averaged",
    level=Level.MUST,
    sources=[DDP.sentence(25), DESIGN.sentence(25)],
    needs=[*NEEDS, Capability.GRAD_MODE],
    mutants=[
        "ddp-reduces-nothing",
        "ddp-sums-gradients",
        "ddp-reduces-the-first-parameter-only",
        "ddp-reduces-nothing-after-no-grad",
        "ddp-reduces-one-module-of-a-backward",
    ],
    processes=RANKS,
)
def test_gradients_averaged(backend: Backend, trace: Trace) -> None:
    """Each backward leaves in .grad of a distributed module's parameters, in every rank, the mean of all ranks.

    An evaluation in no_grad before it makes no difference, and several distributed modules may be in one backward.
    """
    means = {"weight": mean(backend), "other": mean(backend, lambda own: own * own)}
    modules = [two_weights(backend, lambda module, x: x * module.weight + x * x * module.other) for _ in range(2)]
    both = [(module, backend.distributed_data_parallel(module)) for module in modules]
    for each, evaluations in (("first", 0), ("second", 1), ("third", 0)):
        for module, parallel in both:
            for name in means:
                backend.set_grad(getattr(module, name), None)
            with backend.no_grad():
                for _ in range(evaluations):
                    backend.call(parallel, own_input(backend))
            run(backend, parallel)
            for name, expected in means.items():
                said = f"{name}.grad after the {each} pass"
                trace.expect_value(said, expected, backend.grad_of(getattr(module, name)))

    (first, parallel), (second, other) = both
    backend.backward(backend.sum(backend.call(parallel, own_input(backend)) + backend.call(other, own_input(backend))))
    for name, (share,) in means.items():
        grads = [backend.grad_of(getattr(module, name)) for module in (first, second)]
        trace.expect_value(f"{name}.grad of both after one more pass", [[2 * share]] * 2, grads)


@rule(
    "ddp.gradients-averaged.each-parameter",
    level=Level.MUST,
    sources=[DESIGN.sentence(25)],
    needs=[*NEEDS, Capability.MODULE_PARTS, Capability.REQUIRES_GRAD_FLAG],
    mutants=[
        "ddp-reduces-no-deeper-submodules",
        "ddp-reduces-nothing",
        "ddp-reduces-the-first-parameter-only",
        "ddp-reduces-its-own-parameters-only",
        "ddp-counts-shared-parameters-twice",
        "ddp-reduces-nothing-beside-a-frozen-parameter",
        "ddp-thaws-parameters",
    ],
    processes=RANKS,
)
def test_each_parameter(backend: Backend, trace: Trace) -> None:
    """Each parameter of a distributed module gets the mean over the ranks of its own gradients.

    The parameters of its submodules are among them, and one that two modules share. One that does not require grad has
    no gradients.
    """
    for _ in range(2):
        module, inner = (weighted(backend, lambda module, x: x * module.weight + module.inner(x * x)) for _ in range(2))
        weights = {"frozen": backend.tensor([1.0]), "weight": backend.tensor([2.0])}
        inmost = backend.module(weights, lambda module, x: x * module.frozen * module.weight + x * module.shared)
        backend.set_requires_grad(inmost.frozen, requires_grad=False)
        inmost.shared = module.weight
        backend.add_module(module, "inner", inner)
        backend.add_module(inner, "inner", inmost)
        parallel = backend.distributed_data_parallel(module)
        for passes in (1, 2, 3):
            for each in (module, inner, inmost):
                backend.set_grad(each.weight, None)
            run(backend, parallel)
            for each, powers in ((module, (1, 4)), (inner, (2,)), (inmost, (4,))):
                expected = mean(backend, lambda own, powers=powers: sum(own**power for power in powers))
                trace.expect_value(f"gradients after pass {passes}", expected, backend.grad_of(each.weight))
            trace.expect_value("gradient of a frozen parameter", None, backend.grad_of(inmost.frozen))


@rule(
    "ddp.gradients-averaged.strides",
    level=Level.MUST,
    sources=[DDP.sentence(45)],
    needs=[*NEEDS, Capability.VIEWS],
    mutants=["ddp-lays-gradients-out-row-by-row"],
    processes=RANKS,
)
def test_strides(backend: Backend, trace: Trace) -> None:
    """The gradient of a parameter that is not laid out row by row is averaged, each value in its place."""

    def turned(x):
        return backend.transpose(x, 0, 1)

    (share,) = mean(backend)
    expected = [[share * value for value in row] for row in ([1.0, 2.0], [3.0, 4.0])]
    for forward in (lambda module, x: x * module.weight, lambda module, x: turned(x) * turned(module.weight)):
        module = backend.module({"weight": turned(backend.tensor([[2.0, 3.0], [5.0, 7.0]]))}, forward)
        parallel = backend.distributed_data_parallel(module)
        for _ in range(3):
            backend.set_grad(module.weight, None)
            run(backend, parallel, backend.tensor([[1.0, 2.0], [3.0, 4.0]]) * number(backend))
            trace.expect_value("weight.grad", expected, backend.grad_of(module.weight))


@rule(
    "ddp.gradients-averaged.mixed-dtypes",
    level=Level.MUST,
    sources=[DDP.sentence(22)],
    needs=[*NEEDS, Capability.FLOAT16],
    mutants=["ddp-reduces-nothing", "ddp-reduces-one-dtype-only", "ddp-reduces-mixed-dtypes-in-float16"],
    except_under=dict.fromkeys(("float16", "bfloat16"), "nothing is left that float16 loses"),
    processes=RANKS,
)
def test_mixed_dtypes(backend: Backend, trace: Trace) -> None:
    """The gradients of float16 and float32 parameters of one distributed module are averaged."""
    factor = 2 + 2.0**-10  # float16 rounds it to 2
    wide = mean(backend, lambda own: factor * own)
    for _ in range(2):
        weights = {"narrow": backend.tensor([2.0], dtype="float16"), "wide": backend.tensor([3.0])}
        module = backend.module(weights, lambda module, x: x * module.narrow + x * module.wide * factor)
        parallel = backend.distributed_data_parallel(module)
        for _ in range(3):
            for parameter in (module.narrow, module.wide):
                backend.set_grad(parameter, None)
            run(backend, parallel)
            trace.expect_value("narrow.grad", mean(backend), backend.grad_of(module.narrow))
            trace.expect_value("wide.grad", wide, backend.grad_of(module.wide))


@rule(
    "ddp.gradients-accumulate",
    level=Level.SHOULD,
    sources=[observed("the mean is taken of .grad as it is after accumulation; a mean stays what it is")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["ddp-reduces-nothing", "ddp-sums-gradients"],
    processes=RANKS,
)
def test_gradients_accumulate(backend: Backend, trace: Trace) -> None:
    """Two passes of a distributed module accumulate twice the mean of the gradients."""
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * 10 * module.other)
        parallel = backend.distributed_data_parallel(module)
        run(backend, parallel)
        run(backend, parallel)

        trace.expect_value("weight.grad", [2 * mean(backend)[0]], backend.grad_of(module.weight))
        trace.expect_value("other.grad", [20 * mean(backend)[0]], backend.grad_of(module.other))


@rule(
    "ddp.forward-alone",
    level=Level.SHOULD,
    sources=[observed("forward makes ready for the next backward, whether one followed the forward before or not")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["ddp-reduces-nothing-after-a-forward-alone"],
    processes=RANKS,
)
def test_forward_alone(backend: Backend, trace: Trace) -> None:
    """A forward of a distributed module that no backward follows makes no difference to the pass after it."""
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * 10 * module.other)
        parallel = backend.distributed_data_parallel(module)
        for passes, forwards in ((1, 1), (2, 0), (3, 2)):
            for _ in range(forwards):
                backend.call(parallel, own_input(backend))
            run(backend, parallel)
            share = passes * mean(backend)[0]
            trace.expect_value("weight.grad", [share], backend.grad_of(module.weight))
            trace.expect_value("other.grad", [10 * share], backend.grad_of(module.other))


@rule(
    "ddp.no-autograd-grad",
    level=Level.SHOULD,
    sources=[DDP, observed("nothing accumulates, so nothing is reduced")],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    basis=Basis.OBSERVED,
    mutants=["ddp-reduces-in-autograd-grad"],
    processes=RANKS,
)
def test_no_autograd_grad(backend: Backend, trace: Trace) -> None:
    """The gradients that autograd.grad returns for a distributed module are those of the rank alone.

    The docstring says that the module does not work with autograd.grad, and not what happens instead.
    """
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * 10 * module.other)
        outputs = backend.call(backend.distributed_data_parallel(module), own_input(backend))
        grads = backend.grad(backend.sum(outputs), [module.weight, module.other])

        trace.expect_value("the gradients", [[number(backend)], [10 * number(backend)]], list(grads))
        for parameter in (module.weight, module.other):
            trace.expect_value(".grad", None, backend.grad_of(parameter))


@rule(
    "ddp.parameters-broadcast",
    level=Level.MUST,
    sources=[DESIGN.sentence(4)],
    needs=[*NEEDS, Capability.MODULE_PARTS, Capability.REQUIRES_GRAD_FLAG],
    mutants=[
        "ddp-starts-from-each-rank",
        "ddp-starts-from-the-last-rank",
        "ddp-starts-from-one-parameter",
        "ddp-leaves-submodules-as-they-are",
        "ddp-leaves-deeper-submodules-as-they-are",
        "ddp-leaves-frozen-parameters-as-they-are",
        "ddp-leaves-integer-buffers-as-they-are",
        "ddp-leaves-buffers-of-floating-point-numbers-as-they-are",
    ],
    processes=FOUR_RANKS,
)
def test_parameters_broadcast(backend: Backend, trace: Trace) -> None:
    """When a module is distributed, its parameters and buffers become those of rank 0 in all ranks."""

    def made(*values: float) -> Any:
        weight, frozen, scale = (backend.tensor([value * number(backend)]) for value in values)
        offset = backend.tensor([int(values[-1]) * (backend.get_rank() + 1)], dtype="int64")
        module = backend.module({"weight": weight, "frozen": frozen}, lambda _, x: x)
        backend.set_requires_grad(module.frozen, requires_grad=False)
        backend.register_buffer(module, "offset", offset)
        backend.register_buffer(module, "scale", scale)
        return module

    expected = [1.0, 5.0, 10.0, 10.0], [2.0, 7.0, 20.0, 20.0], [3.0, 9.0, 30.0, 30.0]
    for _ in range(2):
        module, inner, inmost = made(1.0, 5.0, 10.0), made(2.0, 7.0, 20.0), made(3.0, 9.0, 30.0)
        backend.add_module(module, "inner", inner)
        backend.add_module(inner, "inner", inmost)
        backend.distributed_data_parallel(module)

        labels = ("its own", "a submodule's", "those of a submodule's submodule")
        for label, each, values in zip(labels, (module, inner, inmost), expected, strict=True):
            seen = [backend.tolist(tensor)[0] for tensor in (each.weight, each.frozen, each.offset, each.scale)]
            trace.expect_value(f"parameters and buffers, {label}", values, seen)


@rule(
    "ddp.parameters-never-broadcast",
    level=Level.MUST,
    sources=[DDP.sentence(28)],
    needs=[*NEEDS, Capability.IN_PLACE, Capability.GRAD_MODE],
    mutants=["ddp-broadcasts-parameters-in-forward"],
    processes=RANKS,
)
def test_parameters_never_broadcast(backend: Backend, trace: Trace) -> None:
    """Once a module is distributed, a rank that changes a parameter keeps its own value through the passes."""
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight * module.other)
        parallel = backend.distributed_data_parallel(module)
        with backend.no_grad():
            backend.mul_(module.weight, number(backend))
            backend.mul_(module.other, number(backend))
        for passes in (1, 2, 3):
            run(backend, parallel)
            for name, first in (("weight", 2.0), ("other", 3.0)):
                value = backend.detach(getattr(module, name))
                trace.expect_value(f"{name} after pass {passes}", [first * number(backend)], value)


@rule(
    "ddp.buffers-broadcast",
    level=Level.MUST,
    sources=[DDP.sentence(30, 63, 103)],
    needs=[
        *NEEDS,
        Capability.MODULE_PARTS,
        Capability.BUFFER_SYNC,
        Capability.IN_PLACE,
        Capability.MODULE_SWITCHES,
    ],
    mutants=[
        "ddp-broadcasts-no-buffers",
        "ddp-broadcasts-no-buffers-in-evaluation",
        "ddp-broadcasts-buffers-after-forward",
        "ddp-broadcasts-one-buffer",
        "ddp-broadcasts-the-buffers-of-its-first-pass",
        "ddp-broadcasts-the-buffers-that-were-there-at-first",
        "ddp-broadcasts-no-integer-buffers",
    ],
    processes=FOUR_RANKS,
)
def test_buffers_broadcast(backend: Backend, trace: Trace) -> None:
    """Before each forward of a distributed module its buffers become those of rank 0 in all ranks.

    Each iteration has one, in training mode and in evaluation mode. A program may change a buffer or assign another.
    """

    def forward(module, x):
        trace.log("steps in forward", module.steps)
        trace.log("offset in forward", module.inner.offset)
        return x * module.weight

    for options in ({}, {"forward_sync_buffers": True}):
        module, inner = weighted(backend, forward), backend.module({}, lambda _, x: x)
        backend.add_module(module, "inner", inner)
        backend.register_buffer(module, "steps", backend.tensor([1.0]))
        backend.register_buffer(inner, "offset", backend.tensor([5], dtype="int64"))
        parallel = backend.distributed_data_parallel(module, **options)
        for passes in (1, 2, 3, 4):
            backend.train(parallel, passes != 3)  # and then in training mode again
            module.steps = module.steps * (number(backend) + 1)  # so all ranks change them, also rank 0
            backend.mul_(inner.offset, backend.get_rank() + 2)
            run(backend, parallel)
            steps, offset = [2.0**passes], [5.0 * 2**passes]
            trace.expect(("steps in forward", steps), ("offset in forward", offset))
            trace.expect_value(f"steps after pass {passes}", steps, module.steps)
            trace.expect_value(f"offset after pass {passes}", offset, inner.offset)


@rule(
    "ddp.buffers-broadcast.after-no-grad",
    level=Level.MUST,
    sources=[DDP.sentence(30, 63, 103)],
    needs=[
        *NEEDS,
        Capability.MODULE_PARTS,
        Capability.BUFFER_SYNC,
        Capability.IN_PLACE,
        Capability.GRAD_MODE,
    ],
    mutants=["ddp-broadcasts-no-buffers", "ddp-broadcasts-one-buffer"],
    processes=RANKS,
)
def test_buffers_broadcast_after_no_grad(backend: Backend, trace: Trace) -> None:
    """A forward of a distributed module after one in no_grad has the buffers of rank 0 in all ranks.

    They are broadcast in every iteration, at the beginning of forward: no iteration is left out.
    """

    def forward(module, x):
        trace.log("steps in forward", module.steps)
        trace.log("more in forward", module.more)
        return x * module.weight

    for _ in range(2):
        module = weighted(backend, forward)
        for name in ("steps", "more"):
            backend.register_buffer(module, name, backend.tensor([1.0]))
        parallel = backend.distributed_data_parallel(module)
        for passes, under in enumerate((backend.no_grad, backend.no_grad, backend.enable_grad, backend.enable_grad), 1):
            for buffer in (module.steps, module.more):
                backend.mul_(buffer, number(backend) + 1)
            with under():
                backend.call(parallel, own_input(backend))
            expected = [2.0**passes]
            trace.expect(("steps in forward", expected), ("more in forward", expected))


@rule(
    "ddp.reducer-hooks",
    level=Level.SHOULD,
    sources=[DESIGN.sentence(14), DDP.sentence(39, 52)],
    needs=NEEDS,
    mutants=["ddp-reduces-late-parameters", "ddp-reduces-late-parameters-later"],
    processes=RANKS,
)
def test_reducer_hooks(backend: Backend, trace: Trace) -> None:
    """A parameter that a module gets after it was distributed keeps the gradient of its own rank.

    The hooks that reduce gradients are registered at construction, so the docstring tells the user to add none later.
    """
    for _ in range(2):
        module = weighted(backend, lambda module, x: x * module.weight * getattr(module, "late", 1.0))
        parallel = backend.distributed_data_parallel(module)
        module.late = weighted(backend).weight
        for _ in range(3):
            for parameter in (module.weight, module.late):
                backend.set_grad(parameter, None)
            run(backend, parallel)

            trace.expect_value("weight.grad", mean(backend, lambda own: 2 * own), backend.grad_of(module.weight))
            trace.expect_value("late.grad", [2 * number(backend)], backend.grad_of(module.late))


@rule(
    "ddp.no-sync",
    level=Level.MUST,
    sources=[NO_SYNC.sentence(1, 2)],
    needs=NEEDS,
    mutants=[
        "no-sync-drops-later-gradients",
        "no-sync-synchronizes",
        "no-sync-lasts",
        "no-sync-drops-gradients",
        "no-sync-ends-with-the-inner-context",
        "no-sync-lasts-after-an-exception",
        "no-sync-applies-to-all-modules",
    ],
    processes=RANKS,
)
def test_no_sync(backend: Backend, trace: Trace) -> None:
    """Passes inside no_sync accumulate the rank's own gradients, and the first pass after it synchronizes them.

    A pass is inside until the outermost context ends, and an exception ends it too. Other modules are synchronized.
    """
    other = weighted(backend)
    parallel_other = backend.distributed_data_parallel(other)
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * 10 * module.other)
        parallel = backend.distributed_data_parallel(module)
        parameters = ((module.weight, 1), (module.other, 10))
        for error in (False, True, False):
            for parameter, _ in parameters:
                backend.set_grad(parameter, None)
            ending = trace.raises_type(ZeroDivisionError, "inside") if error else nullcontext()
            with ending, backend.no_sync(parallel):
                with backend.no_sync(parallel):
                    run(backend, parallel)
                for parameter, factor in parameters:
                    own = factor * number(backend)
                    trace.expect_value("after 1 pass inside", [own], backend.grad_of(parameter))
                run(backend, parallel)
                for parameter, factor in parameters:
                    own = factor * number(backend)
                    trace.expect_value("after 2 passes inside", [2 * own], backend.grad_of(parameter))
                if error:
                    raise ZeroDivisionError("inside no_sync")
            run(backend, parallel)
            for parameter, factor in parameters:
                share = factor * mean(backend)[0]
                trace.expect_value("after a pass outside", [3 * share], backend.grad_of(parameter))
        backend.set_grad(other.weight, None)
        with backend.no_sync(parallel):
            run(backend, parallel_other)

        trace.expect_value("other.grad", mean(backend), backend.grad_of(other.weight))


@rule(
    "ddp.no-sync.forward-outside",
    level=Level.MUST,
    sources=[NO_SYNC.sentence(3)],
    needs=NEEDS,
    mutants=["no-sync-in-backward-too"],
    processes=RANKS,
)
def test_no_sync_forward_outside(backend: Backend, trace: Trace) -> None:
    """If forward ran before no_sync was entered, a backward inside it still synchronizes the gradients."""
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight + x * 10 * module.other)
        parallel = backend.distributed_data_parallel(module)
        for _ in range(3):
            for parameter in (module.weight, module.other):
                backend.set_grad(parameter, None)
            outputs = backend.call(parallel, own_input(backend))
            with backend.no_sync(parallel):
                backend.backward(backend.sum(outputs))
            trace.expect_value("weight.grad", mean(backend), backend.grad_of(module.weight))
            trace.expect_value("other.grad", [10 * mean(backend)[0]], backend.grad_of(module.other))


@rule(
    "ddp.no-sync.find-unused-parameters",
    level=Level.MUST,
    sources=[NO_SYNC.sentence(2)],
    needs=NEEDS,
    mutants=["no-sync-leaves-what-the-pass-after-it-leaves-out"],
    processes=RANKS,
)
def test_no_sync_find_unused(backend: Backend, trace: Trace) -> None:
    """The first pass after no_sync synchronizes what has accumulated for a parameter that it leaves out itself, too.

    Only with find_unused_parameters=True may a pass leave a parameter out.
    """
    used: list[str] = []
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * getattr(module, used[-1]))
        parallel = backend.distributed_data_parallel(module, find_unused_parameters=True)
        for inside, after in (("weight", "other"), ("other", "weight"), ("weight", "other")):
            for parameter in (module.weight, module.other):
                backend.set_grad(parameter, None)
            used.append(inside)
            with backend.no_sync(parallel):
                run(backend, parallel)
            used.append(after)
            run(backend, parallel)
            for name in (inside, after):
                trace.expect_value(f"{name}.grad", mean(backend), backend.grad_of(getattr(module, name)))


@rule(
    "ddp.object-dropped",
    level=Level.MAY,
    sources=[observed("the hooks on the parameters go with the object that registered them, and nothing is said")],
    needs=[*NEEDS, Capability.WEAK_REFERENCES],
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_object_dropped(backend: Backend, trace: Trace) -> None:
    """If a program drops a distributed module between forward and backward, the gradients are not averaged."""
    module = weighted(backend)
    outputs = backend.call(backend.distributed_data_parallel(module), own_input(backend))
    backend.backward(backend.sum(outputs))

    trace.expect_value("weight.grad", [number(backend)], backend.grad_of(module.weight))


@rule(
    "ddp.nothing-to-reduce",
    level=Level.SHOULD,
    sources=[observed("RuntimeError")],
    needs=[*NEEDS, Capability.REQUIRES_GRAD_FLAG],
    basis=Basis.OBSERVED,
    mutants=[
        "ddp-takes-a-frozen-module",
        "ddp-takes-a-frozen-module-of-several-parameters",
        "ddp-refuses-a-module-whose-first-parameter-is-frozen",
    ],
    processes=RANKS,
)
def test_nothing_to_reduce(backend: Backend, trace: Trace) -> None:
    """Distributing a module none of whose parameters requires grad is an error."""
    single = weighted(backend)
    backend.set_requires_grad(single.weight, requires_grad=False)
    for first, second in (("weight", "other"), ("other", "weight")):
        module = two_weights(backend, lambda module, x: x * module.weight * module.other)
        backend.set_requires_grad(getattr(module, first), requires_grad=False)
        backend.distributed_data_parallel(module)  # the other one still requires grad

        backend.set_requires_grad(getattr(module, second), requires_grad=False)
        for frozen in (module, single):
            with trace.raises(ErrorKind.NOTHING_TO_REDUCE):
                backend.distributed_data_parallel(frozen)
