"""The parameters of modules inside the wrapper that shards them: views in the passes, frozen ones, nested wrappers."""

from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
from hooklaw.rules.ranks import RANKS, ROWS, mean, number, own_part, rows, run

NAME = "torch.distributed.fsdp.FullyShardedDataParallel"
FSDP = docstring(NAME)
NO_SYNC = docstring(f"{NAME}.no_sync")
COMM_HOOK = docstring(f"{NAME}.register_comm_hook")
NEEDS = [Capability.FULLY_SHARDED_DATA_PARALLEL, Capability.MODULES]
LENGTH = len(ROWS)
FLAT = {"extra-dimension": "gradients are parts of a flat one, whatever their dimensions are"}


def twos(backend: Backend) -> Any:
    """Return the values of a parameter of four elements."""
    return backend.tensor([2.0] * LENGTH)


@rule(
    "fsdp.parameters-are-views",
    level=Level.MUST,
    sources=[FSDP.sentence(22)],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["fsdp-wrapper-does-nothing"],
    processes=RANKS,
)
def test_views(backend: Backend, trace: Trace) -> None:
    """In the passes of a fully sharded wrapper the module has views in place of its parameters, which are no leaves."""

    def forward(module, x):
        trace.log("leaf in forward", backend.is_leaf(module.weight))
        y = x * module.weight
        backend.register_hook(y, lambda _: trace.log("leaf in backward", backend.is_leaf(module.weight)))
        return y * 1  # the wrapper's own hook is on the output, and makes the views

    for _ in range(2):
        module = backend.module({"weight": twos(backend)}, forward)
        wrapper = backend.fully_sharded_data_parallel(module)
        for _ in range(3):
            run(backend, wrapper, rows(backend))
            trace.expect(("leaf in forward", False), ("leaf in backward", False))
        trace.expect_value("leaf afterwards", True, backend.is_leaf(module.weight))  # noqa: FBT003 - the expected value


@rule(
    "fsdp.frozen-parameters",
    level=Level.MUST,
    sources=[FSDP.sentence(34)],
    needs=[*NEEDS, Capability.REQUIRES_GRAD_FLAG],
    mutants=["fsdp-refuses-frozen-parameters", "fsdp-thaws-parameters"],
    except_under=FLAT,
    processes=RANKS,
)
def test_frozen(backend: Backend, trace: Trace) -> None:
    """A fully sharded wrapper gives a parameter that does not require grad no gradient, and reduces those of others.

    The docstring says so of use_orig_params=True, with which the verb wraps a module.
    """

    def total(weight: Any) -> Any:
        grad = backend.grad_of(weight)
        found = backend.tensor(0.0) if grad is None else backend.sum(grad)  # None in a rank that has no part of it
        backend.all_reduce(found)
        return found

    for _ in range(2):
        weights = {name: twos(backend) for name in ("weight", "frozen", "other")}
        module = backend.module(weights, lambda module, x: x * module.weight * module.frozen + x * module.other)
        backend.set_requires_grad(module.frozen, requires_grad=False)
        wrapper = backend.fully_sharded_data_parallel(module)
        for passes in (1, 2, 3):
            run(backend, wrapper, rows(backend))

            trace.expect_value("frozen.grad", None, backend.grad_of(module.frozen))
            once = passes * mean(backend)[0] * sum(ROWS)
            trace.expect_value("sum of weight.grad, all parts", 2 * once, total(module.weight))
            trace.expect_value("sum of other.grad, all parts", once, total(module.other))


@rule(
    "fsdp.no-sync.nested",
    level=Level.MUST,
    sources=[NO_SYNC.sentence(3)],
    needs=[*NEEDS, Capability.MODULE_PARTS],
    mutants=[
        "no-sync-of-the-outermost-alone",
        "no-sync-does-nothing",
        "no-sync-of-the-first-inside-alone",
        "no-sync-of-the-last-inside-alone",
        "no-sync-of-children-alone",
    ],
    except_under=FLAT,
    processes=RANKS,
)
def test_nested(backend: Backend, trace: Trace) -> None:
    """Inside no_sync of the outermost fully sharded wrapper the wrappers inside it synchronize no gradients either."""

    def weighted(forward: Any) -> Any:
        return backend.module({"weight": twos(backend)}, forward)

    def add(module: Any, name: str, inside: Any) -> Any:
        backend.add_module(module, name, backend.fully_sharded_data_parallel(inside))
        return inside

    def nested() -> list[Any]:
        outer = weighted(lambda module, x: module.second(module.first(x)) * module.weight)
        first = add(outer, "first", weighted(lambda module, x: x * module.weight))
        second = weighted(lambda module, x: module.third(x) * module.weight)
        third = add(second, "third", weighted(lambda module, x: x * module.weight))
        return [outer, first, add(outer, "second", second), third]

    for modules in (nested(), nested()):
        wrapper = backend.fully_sharded_data_parallel(modules[0])
        for _ in range(3):
            for module in modules:
                backend.set_grad(module.weight, None)
            with backend.no_sync(wrapper):
                run(backend, wrapper, rows(backend))
                expected = [8 * number(backend) * row for row in ROWS]
                for module in modules:
                    trace.expect_value("a gradient inside", expected, backend.grad_of(module.weight))
            run(backend, wrapper, rows(backend))

            part = own_part(backend, [16 * mean(backend)[0] * row for row in ROWS])
            for module in modules:
                trace.expect_value("a gradient after a pass outside", part, backend.grad_of(module.weight))


@rule(
    "fsdp.comm-hook.nested",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(7, 11)],
    needs=[*NEEDS, Capability.MODULE_PARTS],
    mutants=["fsdp-comm-hook-of-the-outermost-alone", "fsdp-comm-hook-of-the-first-inside-alone"],
    except_under=FLAT,
    processes=RANKS,
)
def test_comm_hook_of_nested(backend: Backend, trace: Trace) -> None:
    """The communication hook of the outermost wrapper is called for each wrapper, with the gradient of its parameters.

    Those that a wrapper inside it has are not among them. The state is one for all gradients.
    """
    own = [number(backend) * row for row in ROWS]

    def weighted(factor: float) -> Any:
        return backend.module({"weight": twos(backend)}, lambda module, x: x * factor * module.weight)

    for _ in range(2):
        outer = backend.module(
            {"weight": twos(backend)}, lambda module, x: module.first(x) + module.second(x) + x * module.weight
        )
        for name, factor in (("first", 10.0), ("second", 20.0)):
            backend.add_module(outer, name, backend.fully_sharded_data_parallel(weighted(factor)))
        wrapper = backend.fully_sharded_data_parallel(outer)
        state: list[Any] = []

        def hook(given, gradient, _part, state=state):
            trace.log("hook" if given is state else "hook with another state", gradient)

        backend.register_comm_hook(wrapper, state, hook)
        for _ in range(3):
            run(backend, wrapper, rows(backend))
            trace.expect_in_any_order("hook", "hook", "hook")
            expected = [[factor * value for value in own] for factor in (1.0, 10.0, 20.0)]
            trace.expect_value("gradients", expected, sorted(trace.values("hook")))
            trace.clear()
