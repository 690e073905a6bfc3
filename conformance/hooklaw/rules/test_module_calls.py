"""Module calls: direct calls of forward, late hooks, and deep copies."""

from copy import deepcopy

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import (
    BACKWARD,
    BACKWARD_PRE,
    GLOBAL_BACKWARD,
    GLOBAL_BACKWARD_PRE,
    GLOBAL_FORWARD,
    GLOBAL_FORWARD_PRE,
    doubling,
    hooked_module,
    leaf,
)

HOOK = docstring("torch.nn.Module.register_forward_hook")
FORWARD = docstring("torch.nn.Module.forward")


@rule(
    "module.forward-pre.direct-forward",
    level=Level.MUST,
    sources=[FORWARD.sentence(3)],
    needs=[Capability.MODULES, Capability.MODULE_FORWARD],
    mutants=["forward-runs-the-module-hooks", "forward-runs-the-module-hooks-inside-another-module"],
)
def test_forward_itself(backend: Backend, trace: Trace) -> None:
    """Module hooks run when the module is called, and not when its forward is called directly."""
    module = doubling(backend)
    backend.register_forward_pre_hook(module, lambda *_: trace.log("pre-hook"))
    backend.register_forward_hook(module, lambda *_: trace.log("hook"))

    backend.call(module, backend.tensor([1.0, 2.0]))
    trace.expect("pre-hook", "hook")

    output = backend.call(lambda x: backend.forward(module, x), backend.tensor([1.0, 2.0]))
    trace.expect()
    trace.expect_value("output", [2.0, 4.0], output)

    outer = backend.module({}, lambda _module, x: backend.forward(module, x) + module(x))
    output = backend.call(outer, backend.tensor([1.0, 2.0]))
    trace.expect("pre-hook", "hook")
    trace.expect_value("output of another", [4.0, 8.0], output)


@rule(
    "module.full-backward.direct-forward",
    level=Level.MUST,
    sources=[FORWARD.sentence(3)],
    needs=[
        Capability.MODULES,
        Capability.MODULE_FORWARD,
        Capability.GLOBAL_MODULE_HOOKS,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
    ],
    mutants=["forward-runs-the-global-hooks", "forward-runs-the-backward-hooks"],
)
def test_forward_itself_of_other_hooks(backend: Backend, trace: Trace) -> None:
    """Backward hooks of a module, and hooks on all modules, do not run for a direct call of its forward."""
    kinds = [
        GLOBAL_FORWARD_PRE,
        GLOBAL_FORWARD,
        BACKWARD_PRE,
        BACKWARD,
        GLOBAL_BACKWARD_PRE,
        GLOBAL_BACKWARD,
    ]
    for kind in kinds:
        with hooked_module(backend, kind, trace.saw("hook")) as module:
            for call in (module, lambda x, module=module: backend.forward(module, x)):
                backend.backward(backend.sum(backend.call(call, leaf(backend))))
        trace.expect("hook")


@rule(
    "module.forward.inplace-input-no-effect",
    level=Level.MUST,
    sources=[HOOK.sentence(6)],
    needs=[Capability.MODULES, Capability.IN_PLACE],
    mutants=["forward-hook-before-forward", "forward-hooks-get-copies-of-later-arguments"],
)
def test_input_changed_too_late(backend: Backend, trace: Trace) -> None:
    """A forward hook may change an input in place, which has no effect on the output that forward computed."""
    module = doubling(backend)
    backend.register_forward_hook(module, lambda _module, args, _output: (backend.mul_(args[0], 10), None)[1])
    x = backend.tensor([1.0, 2.0])

    output = backend.call(module, x)

    trace.expect_value("output", [2.0, 4.0], output)
    trace.expect_value("input", [10.0, 20.0], x)

    y = backend.call(lambda x: x * 1, backend.tensor([1.0, 2.0], requires_grad=True))
    output = backend.call(module, y)
    trace.expect_value("output of a non-leaf", [2.0, 4.0], output)
    trace.expect_value("input that is a non-leaf", [10.0, 20.0], y)

    module, pair = backend.module({}, lambda _module, x, y: x * y), [backend.tensor([2.0]), backend.tensor([3.0])]
    backend.register_forward_hook(module, lambda _module, args, _output: (backend.mul_(args[1], 10), None)[1])
    trace.expect_value("output of two inputs", [6.0], backend.call(module, *pair))
    trace.expect_value("two inputs", [[2.0], [30.0]], pair)

    for given, change, changed in (
        ({"key": 1}, lambda given: given.update(more=2), {"key": 1, "more": 2}),
        ([1], lambda given: given.append(2), [1, 2]),
    ):
        module = backend.module({}, lambda _module, given: len(given))
        backend.register_forward_hook(module, lambda _module, args, _output, change=change: change(args[0]))
        output = module(given)
        trace.expect_value("output of a container", 1, output)
        trace.expect_value("input that is a container", repr(changed), repr(given))


@rule(
    "module.forward.register-during",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a forward hook that a forward hook registers does not run in the current call")],
    needs=[Capability.MODULES],
    mutants=["hook-registered-meanwhile-runs-at-once"],
)
def test_registered_meanwhile(backend: Backend, trace: Trace) -> None:
    """A forward hook that another forward hook registers may run from the next call on."""

    def registers(*_: object) -> None:
        trace.log("first")
        if trace.count("first") == 1:
            backend.register_forward_hook(module, lambda *_: trace.log("second"))

    module = doubling(backend)
    backend.register_forward_hook(module, registers)

    backend.call(module, backend.tensor([1.0]))
    trace.expect("first")
    backend.call(module, backend.tensor([1.0]))
    trace.expect("first", "second")


@rule(
    "module.forward.deepcopy",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("copy.deepcopy of a module copies the hooks, which are given the copy")],
    needs=[Capability.MODULES],
    mutants=["module-hooks-only-on-the-original"],
)
def test_copied(backend: Backend, trace: Trace) -> None:
    """A deep copy of a module may have the hooks of the original, called with the copy."""
    module = doubling(backend)
    for register in (backend.register_forward_pre_hook, backend.register_forward_hook):
        register(module, lambda given, *_: trace.log("is the copy", given is copy))

    copy = deepcopy(module)
    backend.call(copy, backend.tensor([1.0, 2.0]))

    trace.expect(*[("is the copy", True)] * 2)


@rule(
    "module.mode.parameter.no-grad",
    level=Level.MUST,
    sources=[docstring("torch.nn.parameter.Parameter").sentence(8)],
    needs=[Capability.MODULES, Capability.GRAD_MODE],
    mutants=["parameters-made-under-no-grad-are-constants", "later-parameters-made-under-no-grad-are-constants"],
)
def test_parameters_without_recording(backend: Backend, trace: Trace) -> None:
    """A parameter made under no_grad requires grad, inside and afterwards."""
    with backend.no_grad():
        parameters = {"weight": backend.tensor([3.0, 5.0]), "scale": backend.tensor([1.0, 1.0])}
        made = backend.module(parameters, lambda module, x: x * module.weight * module.scale)
        for parameter in (made.weight, made.scale):
            trace.expect_value("requires grad inside", expected=True, observed=backend.requires_grad(parameter))

    backend.backward(backend.sum(backend.call(made, backend.tensor([1.0, 2.0]))))
    trace.expect_value("weight.grad", [1.0, 2.0], backend.grad_of(made.weight))
    trace.expect_value("scale.grad", [3.0, 10.0], backend.grad_of(made.scale))
