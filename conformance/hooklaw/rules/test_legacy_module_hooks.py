"""Legacy backward hooks of a module (register_backward_hook), on the last Node of its forward."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import removed_alone, weighted

HOOK = docstring("torch.nn.Module.register_backward_hook")
GLOBAL = docstring("torch.nn.modules.module.register_module_backward_hook")
EXCLUSIVE = observed("an error at the registration says that the two kinds exclude each other")
NEEDS = [Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS, Capability.LEGACY_MODULE_BACKWARD_HOOKS]


def leaf(backend: Backend) -> Any:
    """Make the input of a module."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


def called(backend: Backend, module: Any, *inputs: Any) -> Any:
    """Call a module inside the forward part of a rule, where a mode may compile the function around it."""

    def forward(*inputs: Any) -> Any:
        return module(*inputs)

    return backend.call(forward, *inputs)


def expect_runs_inside(backend: Backend, trace: Trace, register: Callable[..., Any]) -> None:
    """Expect hooks of a kind to run in a backward inside another, and if they were registered in a backward."""

    def loss_of(module):
        return backend.sum(called(backend, module, leaf(backend)))

    def of_inner(label):
        return lambda module, *_: trace.log(label) if module is inner else None

    def begin(module: Any, *_: Any) -> None:
        if module is outer:
            handles.append(register(inner, of_inner("registered in a backward")))
            backend.backward(loss)

    inner, outer = (backend.module({}, lambda _module, x: backend.exp(x)) for _ in range(2))
    handles = [register(inner, of_inner("registered before")), register(outer, begin)]
    loss = loss_of(inner)
    backend.backward(loss_of(outer))
    trace.expect("registered before")
    backend.backward(loss_of(inner))
    for handle in handles:
        handle.remove()

    trace.expect_in_any_order("registered before", "registered in a backward")


@rule(
    "module.legacy-backward.runs",
    level=Level.MUST,
    sources=[HOOK.sentence(1), GLOBAL.sentence(1)],
    needs=[*NEEDS, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "legacy-module-hook-never-runs",
        "global-legacy-backward-hook-lost-second-call",
        "legacy-backward-hook-silent-without-input-gradients",
    ],
)
def test_runs(backend: Backend, trace: Trace) -> None:
    """A legacy backward hook runs in a backward through the only output of its module, a global one for every module.

    The docstrings call them backward hooks on the module and hooks common to all modules; what they get is left open,
    and so is which of several outputs counts. Also in a backward inside another, if it was registered in the forward of
    another module or during a backward, and if no input requires grad but a weight does.
    """
    inner, outer = (backend.module({}, lambda _module, x: backend.exp(x)) for _ in range(2))
    backend.register_backward_hook(inner, trace.saw("own"))
    handle = backend.register_module_backward_hook(
        lambda module, *_: trace.log("global, inner" if module is inner else "global, outer")
    )
    with catch_warnings(action="ignore"):
        backend.backward(backend.sum(backend.call(lambda x: outer(inner(x)), leaf(backend))))
    handle.remove()

    trace.expect_in_any_order("global, outer", "global, inner", "own")
    for register in (backend.register_backward_hook, lambda _, hook: backend.register_module_backward_hook(hook)):
        expect_runs_inside(backend, trace, register)
    register_inside = backend.module(
        {}, lambda _module, x: (backend.register_backward_hook(inner, trace.saw("in forward")), x)[1]
    )
    register_inside(leaf(backend))
    backend.backward(backend.sum(called(backend, inner, leaf(backend))))
    trace.expect_in_any_order("own", "in forward")

    module = weighted(backend)
    backend.register_backward_hook(module, lambda *_: trace.log("without input gradients"))
    with catch_warnings(action="ignore"):
        backend.backward(backend.sum(called(backend, module, backend.tensor([1.0, 2.0]))))
    trace.expect("without input gradients")


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
    mutants=[
        "legacy-module-hook-never-runs",
        "legacy-backward-hook-given-the-owner-registered-last",
        "legacy-backward-hook-given-the-owner-registered-first",
        "legacy-module-hook-gets-no-gradients-of-outputs",
    ],
)
def test_still_works(backend: Backend, trace: Trace) -> None:
    """A legacy backward hook of a module, though deprecated, runs with the module and two tuples of gradients."""

    def hook(given, *grads: Any):
        trace.log("hook", [given is module, *(isinstance(each, tuple) for each in grads)])
        trace.log("of the outputs", grads[1])

    modules = [backend.module({}, lambda _module, x: x * x) for _ in range(2)]
    for each in modules:
        backend.register_backward_hook(each, hook)

    for module in modules:
        backend.backward(backend.sum(backend.call(module, leaf(backend)) * 5))

        trace.expect(("hook", [True, True, True]), ("of the outputs", [[5.0, 5.0]]))


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


@rule(
    "module.legacy-backward.replaces",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the tuple that the hook returns replaces the gradients of the last Node's inputs")],
    needs=[*NEEDS, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "legacy-module-hook-replaces-nothing",
        "legacy-module-hook-never-runs",
        "legacy-module-hook-replaces-nothing-for-one-input",
        "later-legacy-module-hooks-replace-nothing",
        "legacy-module-hook-replaces-once",
    ],
)
def test_replaces(backend: Backend, trace: Trace) -> None:
    """What a legacy backward hook returns, of a module or a global one, replaces the gradients of the inputs."""

    def tenfold(_module, grads, _outputs):
        return tuple(grad * 10 for grad in grads)

    registrations = (backend.register_backward_hook, lambda _, hook: backend.register_module_backward_hook(hook))
    for register, one in product(registrations, (True, False)):
        module = backend.module({}, lambda _module, x, y, one=one: backend.sum(x) if one else x * y)
        handles = []
        for factor in (10.0, 100.0):
            handles.append(register(module, trace.saw("hook", tenfold)))
            for _ in range(2):
                x, y = leaf(backend), backend.tensor([3.0, 5.0], requires_grad=True)
                with catch_warnings(action="ignore"):
                    backend.backward(backend.sum(called(backend, module, x, y)))

                trace.expect(*["hook"] * len(handles))
                expected = [[factor] * 2, None] if one else [[3 * factor, 5 * factor], [factor, 2 * factor]]
                trace.expect_value("gradients", expected, [backend.grad_of(x), backend.grad_of(y)])
        for handle in handles:
            handle.remove()


@rule(
    "module.legacy-backward.wrong-length",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the error names both counts")],
    needs=[*NEEDS, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "legacy-module-hook-replaces-nothing",
        "missing-gradients-of-a-legacy-hook-are-kept",
        "surplus-none-of-a-legacy-hook-is-dropped",
    ],
)
def test_wrong_length(backend: Backend, trace: Trace) -> None:
    """A legacy backward hook, of a module or a global one, that returns too few or too many gradients is an error.

    Another hook runs in the next backward.
    """
    registrations = (backend.register_backward_hook, lambda _, hook: backend.register_module_backward_hook(hook))
    returns = (lambda grads: (*grads[1:],), lambda grads: (*grads, grads[0]), lambda grads: (*grads, None))
    for register, forward, wrong in product(registrations, (lambda x, _: backend.exp(x), lambda x, y: x * y), returns):
        module = backend.module({}, lambda _module, x, y, forward=forward: forward(x, y))
        handle = register(module, lambda _, grads, _outputs, wrong=wrong: wrong(grads))
        with catch_warnings(action="ignore"):
            loss = backend.sum(called(backend, module, leaf(backend), leaf(backend)))
        handle.remove()

        with trace.raises(ErrorKind.HOOK_RETURN_COUNT):
            backend.backward(loss)
        handle = register(module, trace.saw("hook"))
        with catch_warnings(action="ignore"):
            backend.backward(backend.sum(called(backend, module, leaf(backend), leaf(backend))))
        handle.remove()
        trace.expect("hook")


@rule(
    "module.legacy-backward.global",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[GLOBAL, observed("global hooks are collected before the module's own at each call of a module")],
    needs=[*NEEDS, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "global-legacy-backward-hook-lost-second-call",
        "global-legacy-hooks-of-older-modules-alone",
        "global-legacy-hooks-run-after-later-ones",
    ],
)
def test_global(backend: Backend, trace: Trace) -> None:
    """A global legacy backward hook runs for every module, before the module's own legacy hooks."""
    modules: dict[str, Any] = {}

    def make(name):
        modules[name] = backend.module({}, lambda _module, x: backend.exp(x))
        return modules[name]

    inner, middle = make("inner"), make("middle")
    backend.register_backward_hook(inner, trace.saw("own"))
    handle = backend.register_module_backward_hook(
        lambda module, *_: trace.log("global", next(name for name, made in modules.items() if made is module))
    )
    outer = make("outer")
    backend.register_backward_hook(middle, trace.saw("own, later"))
    with catch_warnings(action="ignore"):
        backend.backward(backend.sum(backend.call(lambda x: outer(middle(inner(x))), leaf(backend))))
    handle.remove()

    trace.expect(("global", "outer"), ("global", "middle"), "own, later", ("global", "inner"), "own")


@rule(
    "module.legacy-backward.remove",
    level=Level.MUST,
    sources=[HOOK.sentence(3), GLOBAL.sentence(3)],
    needs=[*NEEDS, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "legacy-backward-hook-handle-removes-nothing",
        "global-legacy-backward-hook-handle-removes-nothing",
        "legacy-backward-hook-handle-skips-one-call",
        "global-legacy-backward-hook-handle-skips-one-call",
        "legacy-backward-hook-lost-second-call",
        "legacy-backward-hook-handle-removes-the-oldest",
        "global-legacy-backward-hook-handle-removes-all-equal",
        "legacy-backward-hook-handle-removes-those-of-other-kinds",
    ],
)
def test_remove(backend: Backend, trace: Trace) -> None:
    """After its handle's remove, a legacy backward hook, of a module or a global one, does not run for later calls.

    The handle removes no other hook, not even the same function if it is registered once more.
    """
    modules = [backend.module({}, lambda _module, x: backend.exp(x)) for _ in range(2)]
    of_one = {
        f"{kind} of {nr}": partial(register, module)
        for nr, module in enumerate(modules)
        for kind, register in (("legacy", backend.register_backward_hook), ("forward", backend.register_forward_hook))
    }
    of_all = {"legacy": backend.register_module_backward_hook, "forward": backend.register_module_forward_hook}
    for places, only in ((of_one, None), (of_all, modules[0])):
        removed_alone(
            trace,
            places,
            lambda: [backend.backward(backend.sum(called(backend, each, leaf(backend)))) for each in modules],
            module=only,
        )


@rule(
    "module.legacy-backward.remove.after-forward",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("forward gives the hook to the last Node, where the handle does not find it")],
    needs=[*NEEDS, Capability.GLOBAL_MODULE_HOOKS],
    mutants=["legacy-module-hooks-removed-late"],
)
def test_remove_after_forward(backend: Backend, trace: Trace) -> None:
    """A legacy backward hook removed between a module's forward and its backward may still run in that backward."""
    for register in (backend.register_backward_hook, lambda _, hook: backend.register_module_backward_hook(hook)):
        module = backend.module({}, lambda _module, x: backend.exp(x))
        handle = register(module, trace.saw("hook"))
        with catch_warnings(action="ignore"):
            loss = backend.sum(called(backend, module, leaf(backend)))
        handle.remove()
        backend.backward(loss)

        trace.expect("hook")


@rule(
    "module.legacy-backward.warns",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a warning recommends register_full_backward_hook")],
    needs=NEEDS,
    mutants=["warnings-of-a-call-are-lost"],
)
def test_warns(backend: Backend, trace: Trace) -> None:
    """Calling a module may warn if its legacy backward hook will not get the gradients of the module's inputs.

    So it is if forward makes several Nodes, if the outputs are from different Nodes, or if they are in a dict.
    """
    forwards = {
        "several Nodes": lambda _module, x: backend.exp(backend.exp(x)),
        "different Nodes": lambda _module, x: (backend.exp(x), x * x),
        "a dict": lambda _module, x: {"y": backend.exp(x)},
    }
    for what, forward in forwards.items():
        module = backend.module({}, forward)
        backend.register_backward_hook(module, lambda *_: None)
        with catch_warnings(record=True, action="always") as caught:
            called(backend, module, leaf(backend))

        said = any("backward hook" in str(warning.message) for warning in caught)
        trace.expect_value(f"warns of {what}", expected=True, observed=said)
