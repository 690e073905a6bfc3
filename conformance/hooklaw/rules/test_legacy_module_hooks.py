"""Legacy backward hooks of a module (register_backward_hook), on the last Node of its forward."""

from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule

HOOK = docstring("torch.nn.Module.register_backward_hook")
EXCLUSIVE = observed("an error at the registration says that the two kinds exclude each other")
NEEDS = [Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, Capability.LEGACY_MODULE_BACKWARD_HOOKS]


def leaf(backend: Backend) -> Any:
    """Make the input of a module."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "module.legacy-backward.mutually-exclusive",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[EXCLUSIVE],
    needs=NEEDS,
    mutants=["both-kinds-of-module-backward-hooks-accepted"],
)
def test_exclude_each_other(backend: Backend, trace: Trace) -> None:
    """A module takes full backward hooks or legacy backward hooks; registering both kinds is an error."""
    older, full = (backend.module({}, lambda _module, x: x * 2) for _ in range(2))
    backend.register_backward_hook(older, lambda *_: None)
    backend.register_full_backward_hook(full, lambda *_: None)

    with trace.raises(ErrorKind.MODULE_HOOK_KINDS):
        backend.register_full_backward_hook(older, lambda *_: None)
    with trace.raises(ErrorKind.MODULE_HOOK_KINDS):
        backend.register_backward_hook(full, lambda *_: None)


@rule(
    "module.legacy-backward.global-exclusive",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[EXCLUSIVE],
    needs=[*NEEDS, Capability.GLOBAL_MODULE_HOOKS],
    mutants=["both-kinds-of-module-backward-hooks-accepted"],
)
def test_exclude_each_other_everywhere(backend: Backend, trace: Trace) -> None:
    """Registering a global legacy backward hook is an error if there is a global full backward hook."""
    handle = backend.register_module_full_backward_hook(lambda *_: None)
    try:
        with trace.raises(ErrorKind.MODULE_HOOK_KINDS):
            backend.register_module_backward_hook(lambda *_: None)
    finally:
        handle.remove()


@rule(
    "module.legacy-backward.global-exclusive.full",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[EXCLUSIVE],
    needs=[*NEEDS, Capability.GLOBAL_MODULE_HOOKS],
    mutants=["both-kinds-of-module-backward-hooks-accepted"],
)
def test_full_excluded_everywhere(backend: Backend, trace: Trace) -> None:
    """Registering a global full backward hook is an error if there is a global legacy backward hook."""
    handle = backend.register_module_backward_hook(lambda *_: None)
    try:
        with trace.raises(ErrorKind.MODULE_HOOK_KINDS):
            backend.register_module_full_backward_hook(lambda *_: None)
    finally:
        handle.remove()


@rule(
    "module.legacy-backward.deprecated",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[HOOK, observed("the hook gets the module and two tuples; the docstring names no arguments")],
    needs=NEEDS,
    mutants=["legacy-module-hook-never-runs"],
)
def test_still_works(backend: Backend, trace: Trace) -> None:
    """A legacy backward hook of a module, though deprecated, runs with the module and two tuples of gradients."""
    module = backend.module({}, lambda _module, x: x * x)
    backend.register_backward_hook(
        module, lambda given, *grads: trace.log("hook", [given is module, *(isinstance(each, tuple) for each in grads)])
    )

    backend.backward(backend.sum(backend.call(module, leaf(backend))))

    trace.expect(("hook", [True, True, True]))


@rule(
    "module.legacy-backward.last-node-only",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the hook is registered on the grad_fn of the output")],
    needs=NEEDS,
    mutants=["legacy-module-hook-never-runs", "legacy-module-hook-is-a-full-one"],
)
def test_last_node(backend: Backend, trace: Trace) -> None:
    """If forward records several Nodes, a legacy backward hook may get the gradients of the last Node's inputs."""
    module = backend.module({}, lambda _module, x: (x * 2) * 3)
    backend.register_backward_hook(module, lambda _, grads, _outputs: trace.log("first of the inputs", grads[0]))

    with catch_warnings(action="ignore"):
        backend.backward(backend.sum(backend.call(module, leaf(backend))))

    trace.expect(("first of the inputs", [3.0, 3.0]))
