"""The module wrapper that shards parameters: its communication hooks, and no_sync."""

from contextlib import nullcontext
from typing import Any

from hooklaw import Backend, Capability, ErrorKind, Level, Trace, docstring, rule
from hooklaw.rules.ranks import RANKS, ROWS, mean, number, own_part, rows, run

FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
COMM_HOOK = docstring(f"{FSDP}.register_comm_hook")
NO_SYNC = docstring(f"{FSDP}.no_sync")
NEEDS = [Capability.FULLY_SHARDED_DATA_PARALLEL, Capability.MODULES]
LENGTH = len(ROWS)
FLAT = {"extra-dimension": "gradients are parts of a flat one, whatever their dimensions are"}


def wrapped(backend: Backend, **options: bool) -> tuple[Any, Any]:
    """Make a module with a weight of four elements, wrap it, and return the module and its wrapper."""
    module = backend.module({"weight": backend.tensor([2.0] * LENGTH)}, lambda module, x: x * module.weight)
    return module, backend.fully_sharded_data_parallel(module, **options)


def with_two(backend: Backend) -> Any:
    """Make a module with two weights of four elements."""
    weights = {name: backend.tensor([2.0] * LENGTH) for name in ("weight", "other")}
    return backend.module(weights, lambda module, x: x * module.weight + x * x * module.other)


def own_gradients(backend: Backend) -> list[list[float]]:
    """Return what the rank's rows give as the gradients of two weights."""
    own = [number(backend) * row for row in ROWS]
    return [own, [value * value for value in own]]


def passed(backend: Backend, gradient: Any, gradients: list[list[float]]) -> list[bool]:
    """Return for each of some gradients whether it is in a flat one."""
    values = backend.tolist(gradient)
    return [each in [values[at:][:LENGTH] for at in range(len(values))] for each in gradients]


def storing(backend: Backend, trace: Trace, state: Any = None) -> Any:
    """Return a communication hook of a state that stores ten times the rank's own part of the gradient."""

    def hook(given, gradient, part):
        trace.log("hook" if given is state else "hook with another state", gradient)
        parts = backend.split(gradient, LENGTH // backend.get_world_size())
        backend.copy_(part, parts[backend.get_rank()] * 10)

    return hook


@rule(
    "fsdp.comm-hook.before-first-forward",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(2, 5, 11, 12, 15)],
    needs=[*NEEDS, Capability.MULTI_OUTPUT],
    mutants=[
        "fsdp-comm-hook-ignored",
        "fsdp-comm-hook-without-state",
        "fsdp-comm-hook-with-a-copy-of-the-state",
        "fsdp-comm-hook-gets-the-first-gradient-alone",
    ],
    except_under=FLAT,
    processes=RANKS,
)
def test_before_first_forward(backend: Backend, trace: Trace) -> None:
    """A communication hook registered before the first forward runs in each pass that syncs, and stores the gradient.

    Where parameters are sharded it is passed its state, the whole gradient of the rank, and a tensor for the rank's
    part of the reduced one.
    """
    for _ in range(2):
        module, wrapper = wrapped(backend)
        state: list[float] = []
        backend.register_comm_hook(wrapper, state, storing(backend, trace, state))
        for _ in range(3):
            backend.set_grad(module.weight, None)
            run(backend, wrapper, rows(backend))
            own = [number(backend) * row for row in ROWS]
            trace.expect(("hook", own))
            expected = own_part(backend, [10 * value for value in own])
            trace.expect_value("weight.grad", expected, backend.grad_of(module.weight))

    own = own_gradients(backend)

    def hook(_, gradient, _part):
        trace.log("is passed the gradient of each parameter", passed(backend, gradient, own))

    wrapper = backend.fully_sharded_data_parallel(with_two(backend))
    backend.register_comm_hook(wrapper, None, hook)
    for _ in range(2):
        run(backend, wrapper, rows(backend))
        trace.expect(("is passed the gradient of each parameter", [True, True]))


@rule(
    "fsdp.comm-hook.once",
    level=Level.SHOULD,
    sources=[COMM_HOOK.sentence(4)],
    needs=[*NEEDS, Capability.MULTI_OUTPUT],
    mutants=["fsdp-comm-hook-replaced-by-the-second"],
    processes=RANKS,
)
def test_once(backend: Backend, trace: Trace) -> None:
    """A second communication hook on one fully sharded module is an error.

    The docstring says "should", where that of DistributedDataParallel says "can only": it obliges the user.
    """
    for _ in range(2):
        _, wrapper = wrapped(backend)
        hook = storing(backend, trace)
        backend.register_comm_hook(wrapper, None, hook)

        for second in (storing(backend, trace), hook):
            with trace.raises(ErrorKind.COMM_HOOK_TWICE):
                backend.register_comm_hook(wrapper, None, second)


@rule(
    "fsdp.comm-hook.no-shard",
    level=Level.MUST,
    sources=[COMM_HOOK.sentence(9, 14)],
    needs=[*NEEDS, Capability.IN_PLACE],
    mutants=["fsdp-comm-hook-ignored", "fsdp-comm-hook-called-for-each-parameter"],
    except_under=FLAT,
    processes=RANKS,
)
def test_no_shard(backend: Backend, trace: Trace) -> None:
    """With NO_SHARD a communication hook is passed the whole gradient of the rank, which it may change in place."""
    own = own_gradients(backend)

    def hook(_, gradient):
        trace.log("is passed the gradient of each parameter", passed(backend, gradient, own))
        backend.mul_(gradient, 10.0)

    for _ in range(2):
        module = with_two(backend)
        wrapper = backend.fully_sharded_data_parallel(module, no_shard=True)
        backend.register_comm_hook(wrapper, None, hook)
        for _ in range(3):
            for name in ("weight", "other"):
                backend.set_grad(getattr(module, name), None)
            run(backend, wrapper, rows(backend))

            trace.expect(("is passed the gradient of each parameter", [True, True]))
            for name, gradient in zip(("weight", "other"), own, strict=True):
                expected = [10 * value for value in gradient]
                trace.expect_value(f"{name}.grad", expected, backend.grad_of(getattr(module, name)))


@rule(
    "fsdp.no-sync",
    level=Level.MUST,
    sources=[NO_SYNC.sentence(1, 2)],
    needs=NEEDS,
    mutants=[
        "no-sync-does-nothing",
        "no-sync-drops-gradients",
        "no-sync-keeps-the-last-pass-only",
        "no-sync-ends-for-one-pass",
        "no-sync-lasts-after-an-exception",
        "fsdp-gives-all-ranks-the-first-part",
    ],
    except_under=FLAT,
    processes=RANKS,
)
def test_no_sync(backend: Backend, trace: Trace) -> None:
    """Passes of a fully sharded module inside no_sync accumulate, and the first pass after it synchronizes them.

    An exception ends it too.
    """
    for _ in range(2):
        module, wrapper = wrapped(backend)
        for error in (False, True, False):
            backend.set_grad(module.weight, None)
            ending = trace.raises_type(ZeroDivisionError, "inside") if error else nullcontext()
            with ending, backend.no_sync(wrapper):
                for passes in (1, 2):
                    run(backend, wrapper, rows(backend))
                    expected = [passes * number(backend) * row for row in ROWS]
                    trace.expect_value(f"after {passes} inside", expected, backend.grad_of(module.weight))
                if error:
                    raise ZeroDivisionError("inside no_sync")
            for passes in (3, 4):
                run(backend, wrapper, rows(backend))
                expected = own_part(backend, [passes * mean(backend)[0] * row for row in ROWS])
                trace.expect_value("after a pass outside", expected, backend.grad_of(module.weight))
