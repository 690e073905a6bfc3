"""Forward hooks with always_call=True, which run even if the call of their module fails."""

from functools import partial
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule
from hooklaw.rules.hooks import EARLIER, OTHERS, UserError, doubling, fail, saw

HOOK = docstring("torch.nn.Module.register_forward_hook")
GLOBAL = docstring("torch.nn.modules.module.register_module_forward_hook")


@rule(
    "module.forward.always-call",
    level=Level.MUST,
    sources=[HOOK.sentence(17, 19)],
    needs=[Capability.MODULES, Capability.ALWAYS_CALL, Capability.FORWARD_HOOK_KWARGS],
    mutants=[
        "removed-always-called-hooks-run-if-forward-fails",
        "always-called-hook-replaces-an-error",
        "forward-hook-always-call-ignored",
        "forward-hook-always-call-set-always",
        "only-the-first-always-called-hook",
        "arguments-lost-after-a-failure",
        "arguments-without-keywords-lost-after-a-failure",
        "always-called-hooks-skipped-if-an-inner-module-fails",
        "always-called-hooks-hide-what-an-error-says",
    ],
)
def test_always_called(backend: Backend, trace: Trace) -> None:
    """If forward fails, only forward hooks registered with always_call=True run, and the caller gets the error.

    A hook that was removed does not run either.
    """

    def noting(label):
        return lambda _module, args, _output: (trace.log(label), seen.update({label: args}))[1]

    def with_keywords(_module, args, kwargs, _output):
        trace.log("second")
        seen["second"] = [args, sorted(kwargs.items())]
        return args[0]

    seen: dict[str, Any] = {}
    inner = backend.module({}, fail)
    for fails in (fail, lambda _module, x, **_: inner(x), fail):
        module = backend.module({}, fails)
        backend.register_forward_hook(module, noting("removed"), always_call=True).remove()
        for label in ("first", "ordinary"):
            backend.register_forward_hook(module, noting(label), always_call=label == "first")
        backend.register_forward_hook(module, with_keywords, with_kwargs=True, always_call=True)
        backend.register_forward_hook(module, noting("ordinary too"))

        with trace.raises_type(UserError, "of the user"):
            backend.call(lambda x, module=module: module(x, factor=3), backend.tensor([1.0, 2.0]))

        trace.expect_in_any_order("first", "second")
        given = [[1.0, 2.0]]
        trace.expect_value("arguments", [given, [given, [["factor", 3]]]], [seen.pop("first"), seen.pop("second")])


@rule(
    "module.forward.always-call.once",
    level=Level.MUST,
    sources=[HOOK.sentence(17)],
    needs=[Capability.MODULES, Capability.ALWAYS_CALL],
    mutants=[
        "always-called-hook-called-twice",
        "always-called-hook-skipped-if-it-ran-before",
        "always-called-hook-skipped-after-a-failing-hook",
        "later-always-called-hooks-called-twice-if-a-hook-fails",
        "always-called-hook-called-again-once-it-failed",
        "always-called-hooks-after-a-failing-one-skipped",
        "always-called-hooks-after-a-failing-one-skipped-if-forward-fails",
    ],
)
def test_always_called_once(backend: Backend, trace: Trace) -> None:
    """A forward hook with always_call=True runs once in each call, even if it or another hook fails.

    Another hook with always_call=True may fail too, and before both forward.
    """
    module = doubling(backend)
    backend.register_forward_hook(module, saw(trace, "always called"), always_call=True)
    backend.call(module, backend.tensor([1.0, 2.0]))
    trace.expect("always called")

    for register in (backend.register_forward_hook, backend.register_forward_pre_hook):
        register(module, fail)
        with trace.raises_type(UserError):
            backend.call(module, backend.tensor([1.0, 2.0]))
        trace.expect("always called")

    module = doubling(backend)
    backend.register_forward_hook(module, fail)
    backend.register_forward_hook(module, saw(trace, "always called"), always_call=True)
    with trace.raises_type(UserError):
        backend.call(module, backend.tensor([1.0, 2.0]))
    trace.expect("always called")

    module = doubling(backend)
    for label in EARLIER:
        backend.register_forward_hook(module, saw(trace, label), always_call=True)
    backend.register_forward_hook(module, fail)
    with trace.raises_type(UserError):
        backend.call(module, backend.tensor([1.0, 2.0]))
    trace.expect_in_any_order(*EARLIER)

    for forward in (lambda _module, x: x * 2, fail):
        module = backend.module({}, forward)
        for label in EARLIER:
            hook = (lambda *_: (trace.log("second"), fail())) if label == "second" else saw(trace, label)
            backend.register_forward_hook(module, hook, always_call=True)
        with catch_warnings(action="ignore"), trace.raises_type(UserError):
            backend.call(module, backend.tensor([1.0, 2.0]))
        trace.expect_in_any_order(*EARLIER)


@rule(
    "module.forward.always-call.replace",
    level=Level.MUST,
    sources=[HOOK.sentence(5, 7)],
    needs=[Capability.MODULES, Capability.ALWAYS_CALL],
    mutants=[
        "output-of-an-always-called-hook-ignored",
        "output-of-later-always-called-hooks-ignored",
        "output-of-an-always-called-hook-ignored-after-a-failure",
        "falsy-output-of-an-always-called-hook-ignored",
        "always-called-hook-gets-what-forward-returned",
        "results-of-always-called-hooks-are-constants",
    ],
)
def test_replaces_the_output(backend: Backend, trace: Trace) -> None:
    """What a forward hook with always_call=True returns becomes the output of a call that does not fail."""
    x, module = backend.tensor([1.0, 2.0], requires_grad=True), doubling(backend)
    backend.register_forward_hook(module, lambda _module, _args, output: output + 1, always_call=True)
    output = backend.call(module, x)
    backend.backward(backend.sum(output))

    trace.expect_value("output", [3.0, 5.0], output)
    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))

    module = backend.module({}, lambda _module, x, fails: fail() if fails else x * 2)
    for number in (1, 10, 100):
        backend.register_forward_hook(
            module,
            lambda _module, _args, output, number=number: output + number if backend.is_tensor(output) else None,
            always_call=number != 10,
        )
    for _ in range(2):
        output = backend.call(lambda x: module(x, False), backend.tensor([1.0, 2.0]))  # noqa: FBT003 - by position
        trace.expect_value("output of three hooks", [113.0, 115.0], output)
        with trace.raises_type(UserError):
            backend.call(lambda x: module(x, True), backend.tensor([1.0, 2.0]))  # noqa: FBT003 - by position

    for result in OTHERS:
        module = doubling(backend)
        backend.register_forward_hook(module, lambda *_, result=result: result, always_call=True)
        output = backend.call(module, backend.tensor([1.0, 2.0]))
        trace.expect_value("output", repr(result), repr(output))


@rule(
    "module.forward.always-call.prehook-error",
    level=Level.MUST,
    sources=[HOOK.sentence(17)],
    needs=[Capability.MODULES, Capability.ALWAYS_CALL],
    mutants=[
        "forward-hook-always-call-ignored",
        "always-called-hook-needs-forward",
        "always-called-hook-skipped-if-a-later-pre-hook-fails",
    ],
)
def test_always_called_after_a_pre_hook(backend: Backend, trace: Trace) -> None:
    """A forward hook with always_call=True runs even if a forward pre-hook failed and forward never began."""
    for pre_hooks in ((fail,), (saw(trace, "before"), fail)):
        module = doubling(backend)
        for pre_hook in pre_hooks:
            backend.register_forward_pre_hook(module, pre_hook)
        backend.register_forward_hook(module, saw(trace, "always called"), always_call=True)

        with trace.raises_type(UserError):
            backend.call(module, backend.tensor([1.0, 2.0]))

        trace.expect(*["before"] * (len(pre_hooks) - 1), "always called")


@rule(
    "module.forward.always-call.own-error",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("an always-called hook that fails after another error is a warning")],
    needs=[Capability.MODULES, Capability.ALWAYS_CALL],
    mutants=["error-after-another-is-lost"],
)
def test_always_called_fails(backend: Backend, trace: Trace) -> None:
    """If a hook with always_call=True fails too, the caller may get the first error, and a warning of the second."""

    def fail_too(*_: object) -> None:
        trace.log("always called")
        raise ValueError("of the hook")

    module = backend.module({}, fail)
    backend.register_forward_hook(module, fail_too, always_call=True)

    with catch_warnings(record=True, action="always") as caught, trace.raises_type(UserError):
        backend.call(module, backend.tensor([1.0, 2.0]))

    trace.expect("always called")
    warned = any("of the hook" in str(warning.message) for warning in caught)
    trace.expect_value("warned of the second error", expected=True, observed=warned)


@rule(
    "module.forward.always-call.global",
    level=Level.MUST,
    sources=[GLOBAL.sentence(9, 10, 12)],
    needs=[Capability.MODULES, Capability.ALWAYS_CALL, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "forward-hook-always-call-ignored",
        "global-forward-hook-always-call-ignored",
        "forward-hook-always-call-set-always",
        "global-forward-hook-always-call-set-always",
        "global-module-hooks-run-last",
        "global-hooks-see-a-failure-once",
    ],
)
def test_global_always_called(backend: Backend, trace: Trace) -> None:
    """If forward fails, a global forward hook runs only if always_call=True, and before those of the module."""
    module = backend.module({}, fail)
    backend.register_forward_hook(module, saw(trace, "own"), always_call=True)
    backend.register_forward_hook(module, saw(trace, "own, not always called"))
    handles = [
        backend.register_module_forward_hook(saw(trace, "global, not always called"), always_call=False),
        backend.register_module_forward_hook(saw(trace, "global"), always_call=True),
        backend.register_module_forward_hook(saw(trace, "later global"), always_call=True),
        backend.register_module_forward_hook(saw(trace, "later global, not always called")),
        backend.register_module_forward_hook(saw(trace, "last global"), always_call=True),
    ]
    outer = backend.module({}, lambda _module, x: module(x))
    with trace.raises_type(UserError):
        backend.call(lambda x: backend.sum(outer(x)), backend.tensor([1.0, 2.0]))
    for handle in handles:
        handle.remove()

    trace.expect("global", "later global", "last global", "own", "global", "later global", "last global")


@rule(
    "module.forward.always-call.global.once",
    level=Level.MUST,
    sources=[GLOBAL.sentence(9), HOOK.sentence(17)],
    needs=[Capability.MODULES, Capability.ALWAYS_CALL, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "always-called-hooks-skipped-if-a-global-hook-fails",
        "always-called-hooks-skipped-if-a-global-pre-hook-fails",
        "global-always-called-hooks-called-twice-if-a-hook-fails",
        "global-always-called-hooks-skipped-if-a-global-pre-hook-fails",
        "global-forward-hook-always-call-ignored",
    ],
)
def test_global_always_called_once(backend: Backend, trace: Trace) -> None:
    """A global forward hook with always_call=True, and one of a module, runs once in each call even if another fails.

    The hook that fails may be global or the module's own, a forward hook or a forward pre-hook.
    """

    def of_module(hook):
        return lambda given, *rest: hook(given, *rest) if given is module else None

    module = doubling(backend)
    handles = [
        backend.register_module_forward_hook(of_module(saw(trace, label)), always_call=True) for label in EARLIER
    ]
    backend.register_forward_hook(module, saw(trace, "own"), always_call=True)
    backend.call(lambda x: backend.sum(module(x)), backend.tensor([1.0, 2.0]))
    trace.expect_in_any_order(*EARLIER, "own")
    for register in (
        partial(backend.register_forward_hook, module),
        partial(backend.register_forward_pre_hook, module),
        backend.register_module_forward_hook,
        backend.register_module_forward_pre_hook,
    ):
        failing = register(of_module(fail))
        with trace.raises_type(UserError):
            backend.call(lambda x: backend.sum(module(x)), backend.tensor([1.0, 2.0]))
        failing.remove()
        trace.expect_in_any_order(*EARLIER, "own")
    for handle in handles:
        handle.remove()


@rule(
    "module.forward.always-call.global.replace",
    level=Level.MUST,
    sources=[GLOBAL.sentence(7, 9)],
    needs=[Capability.MODULES, Capability.ALWAYS_CALL, Capability.GLOBAL_MODULE_HOOKS],
    mutants=["results-of-global-always-called-hooks-ignored", "results-of-later-global-always-called-hooks-ignored"],
)
def test_global_replaces_the_output(backend: Backend, trace: Trace) -> None:
    """What a global forward hook with always_call=True returns becomes the output of a call that does not fail."""
    module = doubling(backend)
    handles = [
        backend.register_module_forward_hook(
            lambda given, _args, output, more=more: output + more if given is module else None, always_call=more != 10
        )
        for more in (1, 10, 100)
    ]
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        output = backend.call(module, x)
        trace.expect_value("output of three hooks", [113.0, 115.0], output)
    backend.backward(backend.sum(output))
    for handle in handles:
        handle.remove()

    trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))
    trace.expect_value("output without hooks", [2.0, 4.0], backend.call(module, x))


@rule(
    "module.forward.always-call.global.kwargs",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the signature of register_module_forward_hook has with_kwargs; its docstring does not name it")],
    needs=[
        Capability.MODULES,
        Capability.ALWAYS_CALL,
        Capability.GLOBAL_MODULE_HOOKS,
        Capability.GLOBAL_HOOK_KWARGS,
    ],
    mutants=[
        "keyword-arguments-lost-after-a-failure",
        "keyword-arguments-of-later-global-hooks-lost-after-a-failure",
        "keyword-arguments-lost-after-the-first-failure",
        "keyword-arguments-but-the-first-lost-after-a-failure",
        "keyword-arguments-that-are-none-lost-after-a-failure",
    ],
)
def test_global_always_called_with_keywords(backend: Backend, trace: Trace) -> None:
    """A global forward hook with always_call=True and with_kwargs=True gets kwargs even if forward fails."""

    def hook(given, _args, kwargs, _output):
        if given in modules:
            trace.log("factor", kwargs.get("factor"))

    works, fails = modules = [backend.module({}, forward) for forward in (lambda _, x, factor: x * factor, fail)]
    handle = backend.register_module_forward_hook(hook, with_kwargs=True, always_call=True)

    backend.call(lambda x: works(x, factor=5), backend.tensor([1.0, 2.0]))
    trace.expect(("factor", 5))
    with catch_warnings(action="ignore"), trace.raises_type(UserError):
        backend.call(lambda x: fails(x, factor=3), backend.tensor([1.0, 2.0]))
    handle.remove()

    trace.expect(("factor", 3))

    keywords = {"none": None, "flag": False, "text": "", "tensor": backend.tensor([0.0]), "factor": 3}
    expected = trace.snapshot([*keywords.values()])
    handles = [
        backend.register_module_forward_hook(
            lambda given, _args, kwargs, _output, label=label: (
                trace.log(label, [kwargs.get(name, "lost") for name in keywords]) if given is fails else None
            ),
            with_kwargs=True,
            always_call=True,
        )
        for label in EARLIER
    ]
    for _ in range(3):
        with catch_warnings(action="ignore"), trace.raises_type(UserError):
            backend.call(lambda x: fails(x, **keywords), backend.tensor([1.0, 2.0]))
        trace.expect(*((label, expected) for label in EARLIER))
    for handle in handles:
        handle.remove()
