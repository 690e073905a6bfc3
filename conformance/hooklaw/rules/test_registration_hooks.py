"""Global hooks on the registration of parameters, buffers and modules."""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import NUMBERS

PARAMETER = docstring("torch.nn.modules.module.register_module_parameter_registration_hook")
BUFFER = docstring("torch.nn.modules.module.register_module_buffer_registration_hook")
MODULE = docstring("torch.nn.modules.module.register_module_module_registration_hook")
NEEDS = [Capability.MODULES, Capability.REGISTRATION_HOOKS]


def bare(backend: Backend, parameters: Mapping[str, Any] | None = None) -> Any:
    """Make a module that does nothing."""
    return backend.module(parameters or {}, lambda _module, x: x)


@contextmanager
def until_removed(handle: Any) -> Generator[None]:
    """Remove the hook of a handle at the end of the block."""
    try:
        yield
    finally:
        handle.remove()


def kinds(backend: Backend) -> list[tuple[Callable[..., Any], Callable[[], Any], Callable[[Any], Any]]]:
    """Return for each kind the verb that registers a hook, a maker of values, and a function that registers a value."""

    def module_with(value):
        made = bare(backend)
        backend.add_module(made, "value", value)
        return made

    def buffer_in(value):
        made = bare(backend)
        backend.register_buffer(made, "value", value)
        return made

    def number():
        return backend.tensor([0.0])  # falsy, as what a hook returns may be

    return [
        (backend.register_module_parameter_registration_hook, number, lambda value: bare(backend, {"value": value})),
        (backend.register_module_buffer_registration_hook, number, buffer_in),
        (backend.register_module_module_registration_hook, lambda: bare(backend), module_with),
    ]


@rule(
    "registration-hook.module",
    level=Level.MUST,
    sources=[MODULE.sentence(3, 4, 5)],
    needs=NEEDS,
    mutants=[
        "module-registration-hook-lost",
        "module-registration-hook-ignored",
        "registration-hook-gets-no-module",
        "module-registration-hook-lost-second-call",
        "module-registration-hook-runs-for-parameters",
        "module-registration-hook-runs-for-buffers",
    ],
)
def test_module(backend: Backend, trace: Trace) -> None:
    """A module registration hook gets the parent, name and child; a module that it returns replaces the child."""

    def hook(given, name, child):
        trace.log("hook", [given is outer, name, child is inner])
        return other

    outer, inner, other = (bare(backend) for _ in range(3))
    with until_removed(backend.register_module_module_registration_hook(hook)):
        for name in ("first", "second"):
            backend.add_module(outer, name, inner)
        backend.register_buffer(bare(backend, {"weight": backend.tensor([3.0])}), "mean", backend.tensor([5.0]))

    trace.expect(("hook", [True, "first", True]), ("hook", [True, "second", True]))
    trace.expect_value("is the other module", [True, True], [outer.first is other, outer.second is other])


@rule(
    "registration-hook.parameter",
    level=Level.MUST,
    sources=[PARAMETER.sentence(3, 4, 5)],
    needs=NEEDS,
    mutants=[
        "parameter-registration-hook-lost",
        "parameter-registration-hook-ignored",
        "registration-hook-gets-no-module",
        "parameter-registration-hook-lost-second-call",
        "parameter-registration-hook-runs-for-buffers",
        "parameter-registration-hook-runs-for-modules",
        "falsy-return-of-a-registration-hook-ignored",
    ],
)
def test_parameter(backend: Backend, trace: Trace) -> None:
    """A parameter registration hook gets the module, name and parameter; a parameter that it returns replaces it."""
    other = bare(backend, {"weight": backend.tensor([0.0])}).weight
    seen: list[Any] = []

    def hook(module, name, parameter):
        seen.append(module)
        trace.log("hook", [name, parameter])
        return other if backend.is_tensor(parameter) else None

    with until_removed(backend.register_module_parameter_registration_hook(hook)):
        made = bare(backend, {"weight": backend.tensor([3.0]), "bias": backend.tensor([5.0])})
        outer = bare(backend)
        backend.register_buffer(outer, "mean", backend.tensor([6.0]))
        backend.add_module(outer, "inner", bare(backend))

    trace.expect(("hook", ["weight", [3.0]]), ("hook", ["bias", [5.0]]))
    trace.expect_value("is the module", [True, True], [given is made for given in seen])
    trace.expect_value("is the other parameter", [True, True], [made.weight is other, made.bias is other])

    for numbers in NUMBERS:
        other = bare(backend, {"weight": backend.tensor(numbers)}).weight
        with until_removed(backend.register_module_parameter_registration_hook(lambda *_, other=other: other)):
            made = bare(backend, {"weight": backend.tensor(numbers)})
        trace.expect_value("is the other parameter", expected=True, observed=made.weight is other)


@rule(
    "registration-hook.buffer",
    level=Level.MUST,
    sources=[BUFFER.sentence(3, 4, 5)],
    needs=NEEDS,
    mutants=[
        "buffer-registration-hook-lost",
        "buffer-registration-hook-ignored",
        "registration-hook-gets-no-module",
        "buffer-registration-hook-lost-second-call",
        "buffer-registration-hook-runs-for-parameters",
        "buffer-registration-hook-runs-for-modules",
        "falsy-return-of-a-registration-hook-ignored",
    ],
)
def test_buffer(backend: Backend, trace: Trace) -> None:
    """A buffer registration hook gets the module, name and buffer; a buffer that it returns replaces it."""

    def hook(given, name, buffer):
        trace.log("hook", [given is module, name, buffer])
        return buffer - 3 if backend.is_tensor(buffer) else None

    module = bare(backend)
    with until_removed(backend.register_module_buffer_registration_hook(hook)):
        backend.register_buffer(module, "mean", backend.tensor([3.0]))
        backend.register_buffer(module, "variance", backend.tensor([5.0]))
        backend.add_module(module, "inner", bare(backend, {"weight": backend.tensor([7.0])}))

    trace.expect(("hook", [True, "mean", [3.0]]), ("hook", [True, "variance", [5.0]]))
    trace.expect_value("buffers", [[0.0], [2.0]], [module.mean, module.variance])

    for numbers in NUMBERS:
        ordinary, other = backend.tensor([5.0]), backend.tensor(numbers)
        for given, returned in ((ordinary, other), (other, ordinary)):
            with until_removed(backend.register_module_buffer_registration_hook(lambda *_, new=returned: new)):
                made = bare(backend)
                backend.register_buffer(made, "mean", given)
            trace.expect_value("buffer", returned, made.mean)


@rule(
    "registration-hook.none-keeps",
    level=Level.MUST,
    sources=[PARAMETER.sentence(4, 5), BUFFER.sentence(4, 5), MODULE.sentence(4, 5)],
    needs=NEEDS,
    mutants=["none-of-a-registration-hook-is-a-replacement"],
)
def test_none_keeps(backend: Backend, trace: Trace) -> None:
    """If a registration hook returns None, the object that it got is registered, so its changes of it stay.

    The docstrings say that the hook can modify the input; it is the same object that is registered.
    """
    for register, make, register_value in kinds(backend):
        seen: list[Any] = []
        with until_removed(register(lambda _module, _name, given, seen=seen: seen.append(given))):
            registered = register_value(make()).value
        trace.expect_value("hook ran once", 1, len(seen))
        trace.expect_value("is what the hook got", expected=True, observed=registered is seen[0])


@rule(
    "registration-hook.handle",
    level=Level.MUST,
    sources=[PARAMETER.sentence(6), BUFFER.sentence(6), MODULE.sentence(6)],
    needs=NEEDS,
    mutants=[
        "parameter-registration-hook-handle-removes-nothing",
        "buffer-registration-hook-handle-removes-nothing",
        "module-registration-hook-handle-removes-nothing",
        "parameter-registration-hook-handle-removes-the-oldest",
        "buffer-registration-hook-handle-removes-all-equal",
        "module-registration-hook-handle-removes-the-newest",
        "parameter-registration-hook-handle-removes-those-of-other-kinds",
    ],
)
def test_handle(backend: Backend, trace: Trace) -> None:
    """The handle of a registration hook removes this hook, and no other, for all later registrations.

    If the same function is registered once more, that is another hook.
    """

    def logging(label):
        return lambda *_: trace.log(label)

    def register_values():
        for _, make, register_value in every:
            register_value(make())

    every, ages = kinds(backend), ("older", "twice", "twice", "newer")
    for removed in range(len(every)):
        labels = [f"{age}, kind {kind}" for kind in range(len(every)) for age in ages]
        hooks = {label: logging(label) for label in labels}
        handles = [every[place // len(ages)][0](hooks[label]) for place, label in enumerate(labels)]
        handle = handles.pop(len(ages) * removed + 1)
        with ExitStack() as stack:
            for other in handles:
                stack.enter_context(until_removed(other))
            register_values()
            trace.expect_in_any_order(*labels)
            handle.remove()
            labels.remove(f"twice, kind {removed}")
            register_values()
            register_values()
            trace.expect_in_any_order(*labels * 2)


@rule(
    "registration-hook.buffer.reassign",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the hook runs for such an assignment too; the docstring speaks of register_buffer alone")],
    needs=NEEDS,
    mutants=["buffer-registration-hook-lost"],
)
def test_buffer_assigned(backend: Backend, trace: Trace) -> None:
    """A buffer registration hook may also run when another value is assigned to an existing buffer."""
    owner = bare(backend)
    backend.register_buffer(owner, "mean", backend.tensor([3.0]))
    with until_removed(backend.register_module_buffer_registration_hook(lambda *given: trace.log("hook", given[1:]))):
        owner.mean = backend.tensor([4.0])

    trace.expect(("hook", ["mean", [4.0]]))


@rule(
    "registration-hook.order",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("several registration hooks run in order, each with what the hook before it returned")],
    needs=NEEDS,
    mutants=[
        "parameter-registration-hook-ignored",
        "buffer-registration-hook-ignored",
        "module-registration-hook-ignored",
        "none-of-a-registration-hook-restores-the-value",
        "falsy-return-of-a-registration-hook-ignored",
    ],
)
def test_order(backend: Backend, trace: Trace) -> None:
    """Several registration hooks run in order of registration, each with what the hook before it returned."""
    for register, make, register_value in kinds(backend):
        first, second = (register_value(make()).value for _ in range(2))
        seen: list[Any] = []

        def returning(result, seen=seen):
            return lambda _module, _name, given: seen.append(given) or result

        with ExitStack() as stack:
            for result in (first, None, second, None):
                stack.enter_context(until_removed(register(returning(result))))
            registered = register_value(make()).value

        trace.expect_value("calls of hooks", 4, len(seen))
        got = [value is returned for value, returned in zip(seen[1:], (first, first, second), strict=True)]
        trace.expect_value("each got what was returned last", [True] * 3, got)
        trace.expect_value("is what was returned last", expected=True, observed=registered is second)
