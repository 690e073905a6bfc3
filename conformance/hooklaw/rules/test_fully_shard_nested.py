"""Sharded modules inside sharded modules, forward methods, and parameters changed between the passes."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.ranks import RANKS, ROWS, number, whole
from hooklaw.rules.sharded import (
    LAST,
    VALUES,
    WHOLE,
    gradient,
    is_reduced,
    product,
    run,
    several,
    sharded,
    with_several,
)

FULLY_SHARD = docstring("torch.distributed.fsdp.fully_shard")
MODULE_METHODS = "torch.distributed.fsdp.FSDPModule"
FORWARD_METHOD = docstring("torch.distributed.fsdp.register_fsdp_forward_method")
NEEDS = [Capability.FULLY_SHARD, Capability.MODULES]
NESTED = [*NEEDS, Capability.MODULE_PARTS]


def weighted(backend: Backend) -> Any:
    """Make a module with a weight of four elements."""
    return backend.module({"weight": backend.tensor(VALUES)}, lambda module, x: x * module.weight)


def nested(backend: Backend) -> list[Any]:
    """Return a fully sharded module, the two fully sharded modules inside it, and the one inside the second of them."""
    weight, inner = backend.tensor(VALUES), backend.tensor(VALUES)
    outer = backend.module({"weight": weight}, lambda module, x: module.second(module.first(x)) * module.weight)
    second = backend.module({"weight": inner}, lambda module, x: module.third(x) * module.weight)
    first, third = weighted(backend), weighted(backend)
    for parent, name, module in ((outer, "first", first), (outer, "second", second), (second, "third", third)):
        backend.add_module(parent, name, module)
    for module in (first, third, second, outer):
        backend.fully_shard(module)
    return [outer, first, second, third]


def ones(backend: Backend) -> Any:
    """Return an input that requires grad."""
    return backend.tensor([1.0, 1.0, 1.0, 1.0], requires_grad=True)


@rule(
    "fsdp.unshard-reshard.nested",
    level=Level.MUST,
    sources=[
        docstring(f"{MODULE_METHODS}.unshard").sentence(2),
        docstring(f"{MODULE_METHODS}.reshard").sentence(2),
    ],
    needs=NESTED,
    mutants=["unshard-is-recursive", "reshard-is-recursive"],
    processes=RANKS,
)
def test_not_recursive(backend: Backend, trace: Trace) -> None:
    """Neither unshard nor reshard of a fully sharded module reaches the parameters of fully sharded submodules."""
    modules = outer, *inside = nested(backend)

    def are_sharded() -> list[bool]:
        return [backend.is_sharded(module.weight) for module in modules]

    for _ in range(2):
        backend.unshard(outer)
        trace.expect_value(
            "outer and inner sharded after unshard of the outer", [False, True, True, True], are_sharded()
        )
        for module in inside:
            backend.unshard(module)
        backend.reshard(outer)
        trace.expect_value(
            "outer and inner sharded after reshard of the outer", [True, False, False, False], are_sharded()
        )
        for module in inside:
            backend.reshard(module)


@rule(
    "fsdp.fully-shard.reshard-after-forward.default",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(32)],
    needs=NESTED,
    mutants=[
        "fully-shard-never-reshards",
        "fully-shard-always-reshards",
        "fully-shard-reshards-the-first-submodule-alone",
        "fully-shard-reshards-the-last-submodule-alone",
        "fully-shard-reshards-modules-without-sharded-ones-inside",
    ],
    processes=RANKS,
)
def test_default(backend: Backend, trace: Trace) -> None:
    """By default the parameters of the outermost fully sharded module are whole after forward, those inside are not."""
    for _ in range(2):
        modules = nested(backend)
        for with_backward in (False, True, True):
            outputs = backend.call(modules[0], ones(backend))
            are_sharded = [backend.is_sharded(module.weight) for module in modules]
            trace.expect_value("outer and inner sharded after forward", [False, True, True, True], are_sharded)
            if with_backward:
                backend.backward(backend.sum(outputs))


@rule(
    "fsdp.fully-shard.changed-between",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(4, 39)],
    needs=[*NEEDS, Capability.GRAD_MODE, Capability.IN_PLACE],
    mutants=["fully-shard-gathers-once", "fully-shard-gathers-the-second-parameter-once"],
    processes=RANKS,
)
def test_changed_between(backend: Backend, trace: Trace) -> None:
    """Backward gathers fully sharded parameters again, so it computes with parts that were changed after forward.

    With reshard_after_forward=False the parameters can be changed after a reshard, as the documentation says.
    """
    for reshard in (True, False):
        weights = {"weight": backend.tensor(VALUES), "other": backend.tensor([*reversed(VALUES)])}
        module = backend.module(weights, lambda module, x, y: x * module.weight + y * module.other)
        expected = VALUES
        backend.fully_shard(module, reshard_after_forward=reshard)
        for _ in range(3):
            x, y = ones(backend), ones(backend)
            loss = backend.sum(backend.call(module, x, y))
            if not reshard:
                backend.reshard(module)
            for name in weights:
                parameter = getattr(module, name)
                trace.expect_value("sharded before the change", True, backend.is_sharded(parameter))  # noqa: FBT003
                with backend.no_grad():
                    backend.mul_(backend.local_tensor(parameter), 4.0)
            backend.backward(loss)

            said, expected = f"gradients with reshard_after_forward={reshard}", [4 * value for value in expected]
            trace.expect_value(said, [expected, expected[::-1]], [backend.grad_of(x), backend.grad_of(y)])


@rule(
    "fsdp.fully-shard.no-grad",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(3, 7, 37)],
    needs=[*NESTED, Capability.GRAD_MODE],
    mutants=[
        "fully-shard-gathers-zeros-in-no-grad-inside-another",
        "fully-shard-gathers-zeros-in-no-grad",
        "fully-shard-stays-whole-in-no-grad",
        "fully-shard-stays-whole-after-no-grad",
        "fully-shard-gathers-one-parameter-in-no-grad",
    ],
    processes=RANKS,
)
def test_no_grad(backend: Backend, trace: Trace) -> None:
    """In no_grad too the parameters of a fully sharded module are whole in its forward, and not after it.

    With reshard_after_forward=True; a forward with grad mode on is as before.
    """

    def forward(module, x):
        for each in several(module):
            trace.log("in forward", backend.detach(each))
        return product(module, x)

    def are_sharded(module) -> list[bool]:
        return [backend.is_sharded(each) for each in several(module)]

    in_forward = [("in forward", values) for values in WHOLE.values()]
    expected = [value * last for value, last in zip(VALUES, LAST, strict=True)]
    for _ in range(2):
        module = with_several(backend, forward, reshard_after_forward=True)
        for _ in range(2):
            with backend.no_grad():
                result = backend.call(module, ones(backend))
            trace.expect(*in_forward)
            trace.expect_value("result in no_grad", expected, result)
            trace.expect_value("sharded after forward", [True] * 3, are_sharded(module))
            x = ones(backend)
            result = backend.call(module, x)
            trace.expect_value("sharded after a forward with grad mode on", [True] * 3, are_sharded(module))
            backend.backward(backend.sum(result))
            trace.expect(*in_forward)
            trace.expect_value("x.grad", expected, backend.grad_of(x))

    outer = nested(backend)[0]
    for _ in range(2):
        with backend.no_grad():
            result = backend.call(outer, ones(backend))
        trace.expect_value("result of four modules in no_grad", [value**4 for value in VALUES], result)


@rule(
    "fsdp.fully-shard.together",
    level=Level.MUST,
    sources=[FULLY_SHARD.sentence(12, 23)],
    needs=NESTED,
    mutants=["fully-shard-shards-each-of-several-apart", "fully-shard-shards-the-first-of-several"],
    processes=RANKS,
)
def test_together(backend: Backend, trace: Trace) -> None:
    """Modules that are sharded together are one group: when the first of them runs, the parameters of all are whole.

    They are grouped for communication, and a group's parameters are put together at once. Gradients of all are reduced.
    """

    def look(module, x):
        trace.log("sharded", [backend.is_sharded(each.weight) for each in together])
        return x * module.weight

    for _ in range(2):
        together = [backend.module({"weight": backend.tensor(VALUES)}, look) for _ in range(3)]
        outer = backend.module({}, lambda module, x: module.third(module.second(module.first(x))))
        for name, module in zip(("first", "second", "third"), together, strict=True):
            backend.add_module(outer, name, module)
        backend.fully_shard(together, reshard_after_forward=True)
        backend.fully_shard(outer)
        for _ in range(3):
            for module in together:
                backend.set_grad(module.weight, None)
            run(backend, outer)
            trace.expect(*[("sharded", [False] * 3)] * 3)
            after = [(backend.is_sharded(each.weight), is_reduced(backend, each)) for each in together]
            trace.expect_value("sharded and reduced after the pass", [(True, True)] * 3, after)


@rule(
    "fsdp.fully-shard.frozen",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a sharded parameter requires grad if the parameter did")],
    needs=[*NEEDS, Capability.REQUIRES_GRAD_FLAG],
    mutants=[
        "fully-shard-thaws-parameters",
        "fully-shard-reduces-nothing-beside-a-frozen-parameter",
        "fully-shard-leaves-frozen-parameters-whole-after-backward",
    ],
    processes=RANKS,
)
def test_frozen(backend: Backend, trace: Trace) -> None:
    """A parameter that does not require grad has no gradient once its module is fully sharded; those of others do."""

    def gradients(module: Any) -> list[Any]:
        grads = [whole(backend, backend.grad_of(each)) for each in several(module)]
        return [None if grad is None else backend.tolist(grad) for grad in grads]

    plain = with_several(backend)
    run(backend, plain)
    once = gradients(plain)
    for frozen in range(len(WHOLE)):
        module = backend.module({name: backend.tensor(values) for name, values in WHOLE.items()}, product)
        backend.set_requires_grad(several(module)[frozen], requires_grad=False)
        backend.fully_shard(module)
        for passes in (1, 2, 3):
            run(backend, module)
            expected: list[Any] = [[passes * value for value in grad] for grad in once]
            expected[frozen] = None
            trace.expect_value(f"gradients after pass {passes}", expected, gradients(module))

    for reshard in (True, False):
        module = backend.module({"weight": backend.tensor(VALUES)}, lambda module, x: x * module.weight)
        backend.set_requires_grad(module.weight, requires_grad=False)
        backend.fully_shard(module, reshard_after_forward=reshard)
        for _ in range(3):
            x = ones(backend)
            backend.backward(backend.sum(backend.call(module, x)))
            trace.expect_value("x.grad", VALUES, backend.grad_of(x))
            trace.expect_value("gradient", None, backend.grad_of(module.weight))
            trace.expect_value("sharded after backward", True, backend.is_sharded(module.weight))  # noqa: FBT003


@rule(
    "fsdp.forward-method",
    level=Level.MUST,
    sources=[FORWARD_METHOD.sentence(1, 4)],
    needs=NEEDS,
    mutants=[
        "forward-method-not-registered",
        "forward-method-loses-its-result",
        "forward-method-gathers-parameters-in-forward-alone",
    ],
    processes=RANKS,
)
def test_forward_method(backend: Backend, trace: Trace) -> None:
    """A method that is registered as a forward method of a fully sharded module sees whole parameters.

    Backward through its result is that of a forward, so parameters are whole in it too, and gradients are reduced.
    """

    def method(module):
        def called(x, *, factor=0.0):
            trace.log("in the method", "a part" if backend.is_sharded(module.weight) else backend.detach(module.weight))
            return x * module.weight * factor

        return called

    plain = sharded(backend, reshard_after_forward=True)
    run(backend, plain)
    once = gradient(backend, plain)
    results = [number(backend) * row * value for row, value in zip(ROWS, VALUES, strict=True)]
    for _ in range(2):
        module = sharded(backend, reshard_after_forward=True)
        module.other, module.another = method(module), method(module)
        for name in ("other", "another"):
            backend.register_fsdp_forward_method(module, name)
        for passes, name in enumerate(("other", "another") * 3, 1):
            x = backend.tensor([number(backend) * row for row in ROWS], requires_grad=True)
            outputs = backend.call(lambda x, of=(module, name): getattr(*of)(x, factor=1.0), x)
            trace.expect(("in the method", VALUES))
            trace.expect_value("sharded after it", True, backend.is_sharded(module.weight))  # noqa: FBT003
            trace.expect_value("its result", results, outputs)
            backend.backward(backend.sum(outputs))
            trace.expect_value("x.grad", VALUES, backend.grad_of(x))
            trace.expect_value("reduced", True, is_reduced(backend, module))  # noqa: FBT003 - the expected value
            trace.expect_value("weight.grad", [passes * value for value in once], gradient(backend, module))


@rule(
    "fsdp.forward-method.not-sharded",
    level=Level.MUST,
    sources=[FORWARD_METHOD.sentence(5)],
    needs=NEEDS,
    mutants=["forward-methods-of-any-module", "forward-methods-of-sharded-modules-alone"],
    processes=RANKS,
)
def test_not_sharded(backend: Backend, trace: Trace) -> None:
    """Registering a forward method of a module that is not sharded does nothing."""
    module = weighted(backend)
    method = module.other = lambda x: x * number(backend)
    backend.register_fsdp_forward_method(module, "other")

    trace.expect_value("the method is as it was", True, module.other is method)  # noqa: FBT003 - the expected value
    trace.expect_value("its result", [number(backend)] * len(VALUES), module.other(ones(backend)))
