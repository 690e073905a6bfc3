"""Parameters of a distributed module that a pass does not use: found in each pass, or known from a static graph."""

from collections.abc import Callable, Mapping
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.ranks import RANKS, mean, number, own_input, run, two_weights

DDP = docstring("torch.nn.parallel.DistributedDataParallel")
DESIGN = notes("ddp", "internal-design")
NEEDS = [Capability.DISTRIBUTED_DATA_PARALLEL, Capability.MODULES]
STATIC = [*NEEDS, Capability.STATIC_GRAPH]
TEN_FOR_SECOND = {"weight": 1.0, "second": 10.0}
"""Factors of the gradients of a module with three weights."""


def expect_mean_in_each_pass(
    backend: Backend,
    trace: Trace,
    make: Callable[[], Any],
    factors: Mapping[str, float],
    *,
    loss: Any = lambda out: out,
    **options: bool,
) -> None:
    """Distribute two modules and run three passes of each.

    Expect in each pass the mean of the input times a factor for the parameters of these names.
    """
    for _ in range(2):
        module = make()
        parallel = backend.distributed_data_parallel(module, **options)
        for each in ("first", "second", "third"):
            for name in factors:
                backend.set_grad(getattr(module, name), None)
            x = backend.tensor([number(backend)], requires_grad=True)
            backend.backward(backend.sum(loss(backend.call(parallel, x))))
            for name, factor in factors.items():
                expected = mean(backend, lambda own, factor=factor: factor * own)
                trace.expect_value(
                    f"{name}.grad after the {each} pass", expected, backend.grad_of(getattr(module, name))
                )


def three_weights(
    backend: Backend, forward: Callable[..., Any] = lambda module, x: x * module.weight + x * 10 * module.second
) -> Any:
    """Make a module with three parameters, of which forward uses two: weight and second."""
    return backend.module({name: backend.tensor([2.0]) for name in (*TEN_FOR_SECOND, "other")}, forward)


def expect_mean_of_changing(backend: Backend, trace: Trace, **options: bool) -> None:
    """Run passes that each leave other parameters out, and expect the mean of the gradients of those that are used."""
    used: list[tuple[str, ...]] = []

    def forward(module: Any, x: Any) -> Any:
        first, *rest = (x * getattr(module, name) for name in used[-1])
        return sum(rest, first)

    for names in 2 * ((("weight",), ("other",), ("weight",)), (("weight", "second"), ("second", "other"), ("weight",))):
        module = three_weights(backend, forward)
        parallel = backend.distributed_data_parallel(module, find_unused_parameters=True, **options)
        for each in names:
            used.append(each)
            for name in each:
                backend.set_grad(getattr(module, name), None)
            run(backend, parallel)
            for name in each:
                trace.expect_value(f"{name}.grad", mean(backend), backend.grad_of(getattr(module, name)))


@rule(
    "ddp.find-unused-parameters",
    level=Level.MUST,
    sources=[DDP.sentence(74, 75), DESIGN.sentence(17)],
    needs=NEEDS,
    mutants=[
        "ddp-finds-no-unused-parameters",
        "ddp-reduces-nothing",
        "ddp-finds-nothing-in-a-dict",
        "ddp-finds-nothing-beside-other-objects",
        "ddp-averages-one-gradient-beside-an-unused-one",
        "ddp-finds-one-unused-parameter",
    ],
    processes=RANKS,
)
def test_find_unused_parameters(backend: Backend, trace: Trace) -> None:
    """With find_unused_parameters=True, passes that leave a parameter out average the gradients of the others."""

    def nested():
        return two_weights(backend, lambda module, x: {"none": None, "count": 3, "outputs": [x * module.weight]})

    def loss(found):
        return found["outputs"][0]

    def only_the_first():
        return three_weights(backend, lambda module, x: x * module.weight)

    expect_mean_in_each_pass(
        backend, trace, lambda: three_weights(backend), TEN_FOR_SECOND, find_unused_parameters=True
    )
    expect_mean_in_each_pass(backend, trace, nested, {"weight": 1.0}, loss=loss, find_unused_parameters=True)
    expect_mean_in_each_pass(backend, trace, only_the_first, {"weight": 1.0}, find_unused_parameters=True)


@rule(
    "ddp.find-unused-parameters.changing",
    level=Level.MUST,
    sources=[DDP.sentence(74, 75), DESIGN.sentence(17)],
    needs=NEEDS,
    mutants=[
        "ddp-finds-no-unused-parameters",
        "ddp-finds-unused-parameters-once",
        "ddp-leaves-what-the-pass-before-used-too",
    ],
    processes=RANKS,
)
def test_unused_parameters_change(backend: Backend, trace: Trace) -> None:
    """With find_unused_parameters=True each pass may leave another parameter out; the others are averaged."""
    expect_mean_of_changing(backend, trace)


@rule(
    "ddp.static-graph.off",
    level=Level.MUST,
    sources=[DDP.sentence(74, 75, 84)],
    needs=STATIC,
    mutants=["ddp-static-graph-given-as-false-is-static"],
    processes=RANKS,
)
def test_static_graph_off(backend: Backend, trace: Trace) -> None:
    """With static_graph=False and find_unused_parameters=True each pass may leave another parameter out.

    The graph is known to be static when static_graph is True; so it is not if it is False.
    """
    expect_mean_of_changing(backend, trace, static_graph=False)


@rule(
    "ddp.find-unused-parameters.not-in-loss",
    level=Level.MUST,
    sources=[DDP.sentence(76)],
    needs=NEEDS,
    mutants=["ddp-finds-no-unused-parameters"],
    processes=RANKS,
)
def test_not_in_loss(backend: Backend, trace: Trace) -> None:
    """With find_unused_parameters=True passes whose loss has only one of two outputs average the gradients of that one.

    The parameter of the other output is marked as ready, so nothing waits for it.
    """

    def module():
        return two_weights(backend, lambda module, x: (x * module.weight, x * module.other))

    for place, name in enumerate(("weight", "other")):
        expect_mean_in_each_pass(
            backend, trace, module, {name: 1.0}, loss=lambda outputs, at=place: outputs[at], find_unused_parameters=True
        )


@rule(
    "ddp.find-unused-parameters.in-one-rank",
    level=Level.SHOULD,
    sources=[observed("a rank without a gradient counts as zero in the mean")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=["ddp-finds-no-unused-parameters", "ddp-keeps-the-last-gradient-of-an-unused-parameter"],
    processes=RANKS,
)
def test_unused_in_one_rank(backend: Backend, trace: Trace) -> None:
    """With find_unused_parameters=True the mean of a parameter that one rank leaves out has a zero for that rank."""
    used: list[str] = []
    size = backend.get_world_size()
    means = ([1 / size], [(size * (size + 1) / 2 - 1) / size])
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * getattr(module, used[-1]))
        parallel = backend.distributed_data_parallel(module, find_unused_parameters=True)
        for names in (("weight", "other"), ("other", "weight"), ("weight", "other")):
            used.append(names[0] if backend.get_rank() == 0 else names[1])
            for name in names:
                backend.set_grad(getattr(module, name), None)
            run(backend, parallel)
            for name, expected in zip(names, means, strict=True):
                trace.expect_value(f"{name}.grad", expected, backend.grad_of(getattr(module, name)))


@rule(
    "ddp.find-unused-parameters.no-grad",
    level=Level.MAY,
    sources=[observed(".grad stays None where no rank has a gradient")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    processes=RANKS,
)
def test_unused_everywhere(backend: Backend, trace: Trace) -> None:
    """With find_unused_parameters=True a parameter that no rank uses keeps None as .grad."""
    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight)
        parallel = backend.distributed_data_parallel(module, find_unused_parameters=True)
        for passes in (1, 2):
            run(backend, parallel)

            trace.expect_value(f"other.grad after pass {passes}", None, backend.grad_of(module.other))


@rule(
    "ddp.unused-parameter-error",
    level=Level.SHOULD,
    sources=[observed("RuntimeError: the reduction of the pass before has not finished")],
    needs=NEEDS,
    basis=Basis.OBSERVED,
    mutants=[
        "ddp-always-finds-unused-parameters",
        "ddp-lets-later-passes-leave-a-parameter-out",
        "ddp-lets-passes-leave-the-first-parameter-out",
    ],
    processes=RANKS,
)
def test_unused_parameter_error(backend: Backend, trace: Trace) -> None:
    """Without find_unused_parameters a pass of a distributed module after one that left a parameter out is an error."""
    finding = backend.distributed_data_parallel(
        two_weights(backend, lambda module, x: x * module.weight), find_unused_parameters=True
    )
    run(backend, finding)
    used: list[str] = []

    def forward(module, x):
        factor = getattr(module, used[-1]) if used else module.weight * module.other
        return x * factor

    for options in ({}, {"find_unused_parameters": False}):
        for name, before in (("weight", 0), ("other", 0), ("weight", 2), ("other", 2)):
            module = two_weights(backend, forward)
            parallel = backend.distributed_data_parallel(module, **options)
            for _ in range(before):
                run(backend, parallel)
            for parameter in (module.weight, module.other):
                backend.set_grad(parameter, None)
            used.append(name)
            run(backend, parallel)

            with trace.raises(ErrorKind.UNUSED_PARAMETER):
                backend.call(parallel, own_input(backend))
            used.clear()


@rule(
    "ddp.static-graph.unused",
    level=Level.MUST,
    sources=[DDP.sentence(85)],
    needs=STATIC,
    mutants=["ddp-static-graph-ignored", "ddp-averages-one-gradient-beside-an-unused-one"],
    processes=RANKS,
)
def test_static_graph_unused(backend: Backend, trace: Trace) -> None:
    """With static_graph=True, passes that all leave one parameter out average the others, without another option.

    It does not matter whether find_unused_parameters is set, so it is not needed.
    """
    expect_mean_in_each_pass(backend, trace, lambda: three_weights(backend), TEN_FOR_SECOND, static_graph=True)


@rule(
    "ddp.static-graph.find-unused-parameters",
    level=Level.MUST,
    sources=[DDP.sentence(85)],
    needs=STATIC,
    mutants=["ddp-sums-gradients"],
    processes=RANKS,
)
def test_static_graph_find_unused(backend: Backend, trace: Trace) -> None:
    """With static_graph=True and find_unused_parameters=True the gradients are averaged as with static_graph alone."""
    expect_mean_in_each_pass(
        backend,
        trace,
        lambda: three_weights(backend),
        TEN_FOR_SECOND,
        static_graph=True,
        find_unused_parameters=True,
    )


@rule(
    "ddp.static-graph.checkpoint-twice",
    level=Level.MUST,
    sources=[DDP.sentence(87, 89)],
    needs=[*STATIC, Capability.CHECKPOINT],
    mutants=["ddp-static-graph-ignored", "ddp-reduces-the-first-parameter-only"],
    processes=RANKS,
)
def test_static_graph_checkpoint_twice(backend: Backend, trace: Trace) -> None:
    """With static_graph=True a layer may be checkpointed twice with use_reentrant=True: all gradients are averaged."""

    def forward(module, x):
        for _ in range(2):
            x = backend.checkpoint(lambda y: y * module.weight + y * 2 * module.other, x, use_reentrant=True)
        return x

    expect_mean_in_each_pass(
        backend, trace, lambda: two_weights(backend, forward), {"weight": 16.0, "other": 32.0}, static_graph=True
    )


@rule(
    "ddp.static-graph.checkpoint-unused",
    level=Level.MUST,
    sources=[DDP.sentence(87, 90)],
    needs=[*STATIC, Capability.CHECKPOINT],
    mutants=["ddp-static-graph-ignored"],
    processes=RANKS,
)
def test_static_graph_checkpoint_unused(backend: Backend, trace: Trace) -> None:
    """With static_graph=True a checkpointed module may have parameters that no pass uses."""

    def forward(module, x):
        return backend.checkpoint(lambda y: y * module.weight + y * 10 * module.second, x, use_reentrant=True)

    expect_mean_in_each_pass(backend, trace, lambda: three_weights(backend, forward), TEN_FOR_SECOND, static_graph=True)


@rule(
    "ddp.static-graph.outside-forward",
    level=Level.MUST,
    sources=[DDP.sentence(85, 87, 91)],
    needs=STATIC,
    mutants=[
        "ddp-static-graph-ignored-with-find-unused-parameters",
        "ddp-static-graph-ignored-outside-forward",
        "ddp-static-graph-averages-one-parameter-outside-forward",
    ],
    processes=RANKS,
)
def test_static_graph_outside_forward(backend: Backend, trace: Trace) -> None:
    """With static_graph=True a parameter that the program uses outside of forward is averaged too.

    It does not matter whether find_unused_parameters is set.
    """
    for options in ({}, {"find_unused_parameters": True}):
        weights = {"weight": backend.tensor([2.0]), "other": backend.tensor([3.0]), "another": backend.tensor([5.0])}
        module = backend.module(weights, lambda module, x: x * module.weight)
        parallel = backend.distributed_data_parallel(module, static_graph=True, **options)
        for passes in (1, 2, 3):
            for name in weights:
                backend.set_grad(getattr(module, name), None)
            outputs = backend.call(parallel, own_input(backend))
            backend.backward(backend.sum(outputs * module.other * module.another))
            for name, factor in (("another", 6), ("other", 10), ("weight", 15)):
                expected = mean(backend, lambda own, factor=factor: factor * own)
                trace.expect_value(f"{name}.grad after pass {passes}", expected, backend.grad_of(getattr(module, name)))


@rule(
    "ddp.static-graph.hooks",
    level=Level.MUST,
    sources=[
        docstring("torch.Tensor.register_hook").sentence(2),
        docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(2),
    ],
    needs=[*STATIC, Capability.TENSOR_HOOKS, Capability.POST_ACCUMULATE],
    mutants=[
        "ddp-ignores-later-parameter-hooks",
        "ddp-ignores-later-post-accumulate-hooks",
        "ddp-loses-earlier-post-accumulate-hooks",
    ],
    processes=RANKS,
)
def test_static_graph_hooks(backend: Backend, trace: Trace) -> None:
    """With static_graph=True a parameter's hook and its post-accumulate-grad hook run once in each pass.

    The gradient of a parameter is computed, and accumulates, once in each pass of a rank.
    """

    def register(module):
        backend.register_hook(module.weight, lambda _: trace.log("hook"))
        backend.register_post_accumulate_grad_hook(module.weight, lambda _: trace.log("post-accumulate hook"))

    for _ in range(2):
        module = two_weights(backend, lambda module, x: x * module.weight)
        register(module)
        parallel = backend.distributed_data_parallel(module, static_graph=True)
        register(module)
        for _ in range(3):
            run(backend, parallel)
            trace.expect(*["hook"] * 2, *["post-accumulate hook"] * 2)
