"""Global hooks on the registration of parameters, buffers and modules."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule

PARAMETER = docstring("torch.nn.modules.module.register_module_parameter_registration_hook")
BUFFER = docstring("torch.nn.modules.module.register_module_buffer_registration_hook")
MODULE = docstring("torch.nn.modules.module.register_module_module_registration_hook")
NEEDS = [Capability.MODULES, Capability.REGISTRATION_HOOKS]


def bare(backend: Backend) -> Any:
    """Make a module without parameters."""
    return backend.module({}, lambda _module, x: x)


@rule(
    "registration-hook.module",
    level=Level.MUST,
    sources=[MODULE],
    needs=NEEDS,
    mutants=["registration-hooks-never-run", "return-of-a-registration-hook-ignored"],
)
def test_module(backend: Backend, trace: Trace) -> None:
    """A module registration hook gets the parent, name and child; a module that it returns replaces the child."""

    def hook(given, name, child):
        trace.log("hook", [given is outer, name, child is inner])
        return other

    outer, inner, other = (bare(backend) for _ in range(3))
    with backend.register_module_module_registration_hook(hook):
        backend.add_module(outer, "inner", inner)

    trace.expect(("hook", [True, "inner", True]))
    trace.expect_value("is the other module", expected=True, observed=outer.inner is other)


@rule(
    "registration-hook.parameter",
    level=Level.MUST,
    sources=[PARAMETER],
    needs=NEEDS,
    mutants=["registration-hooks-never-run", "return-of-a-registration-hook-ignored"],
)
def test_parameter(backend: Backend, trace: Trace) -> None:
    """A parameter registration hook gets the module, name and parameter; a parameter it returns replaces that one."""
    other = backend.module({"weight": backend.tensor([7.0])}, lambda _module, x: x).weight

    def hook(_module, name, parameter):
        trace.log("hook", [name, parameter])
        return other

    with backend.register_module_parameter_registration_hook(hook):
        module = backend.module({"weight": backend.tensor([3.0])}, lambda _module, x: x)

    trace.expect(("hook", ["weight", [3.0]]))
    trace.expect_value("is the other parameter", expected=True, observed=module.weight is other)


@rule(
    "registration-hook.buffer",
    level=Level.MUST,
    sources=[BUFFER],
    needs=NEEDS,
    mutants=["registration-hooks-never-run", "return-of-a-registration-hook-ignored"],
)
def test_buffer(backend: Backend, trace: Trace) -> None:
    """A buffer registration hook gets the module, name and buffer; a buffer it returns replaces that one."""

    def hook(given, name, buffer):
        trace.log("hook", [given is module, name, buffer])
        return buffer * 2

    module = bare(backend)
    with backend.register_module_buffer_registration_hook(hook):
        backend.register_buffer(module, "mean", backend.tensor([3.0]))

    trace.expect(("hook", [True, "mean", [3.0]]))
    trace.expect_value("buffer", [6.0], module.mean)


@rule(
    "registration-hook.buffer.reassign",
    level=Level.MAY,
    sources=[BUFFER],
    needs=NEEDS,
    mutants=["registration-hooks-never-run"],
)
def test_buffer_assigned(backend: Backend, trace: Trace) -> None:
    """A buffer registration hook may also run when another value is assigned to an existing buffer."""
    module = bare(backend)
    backend.register_buffer(module, "mean", backend.tensor([3.0]))
    with backend.register_module_buffer_registration_hook(lambda *given: trace.log("hook", given[1:])):
        module.mean = backend.tensor([4.0])

    trace.expect(("hook", ["mean", [4.0]]))


@rule(
    "registration-hook.order",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("several registration hooks run in order, each with what the one before it returned")],
    needs=NEEDS,
    mutants=["return-of-a-registration-hook-ignored"],
)
def test_order(backend: Backend, trace: Trace) -> None:
    """Several registration hooks may run in order of registration, each with what the one before it returned."""
    module = bare(backend)
    register = backend.register_module_buffer_registration_hook
    with register(lambda *given: given[2] + 1), register(lambda *given: given[2] * 10):
        backend.register_buffer(module, "mean", backend.tensor([0.0]))

    trace.expect_value("buffer", [10.0], module.mean)
