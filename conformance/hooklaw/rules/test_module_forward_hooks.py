"""Forward hooks of a module: their arguments, what they replace, their order, and their handles."""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import EARLIER, NUMBERS, OTHERS, Pair, UserError, doubling, fail, removed_in_place, saw

HOOK = docstring("torch.nn.Module.register_forward_hook")
TENSOR_HOOK = docstring("torch.Tensor.register_hook")
GLOBAL = docstring("torch.nn.modules.module.register_module_forward_hook")
MODULES = notes("modules", "module-hooks")
FORWARD_PRE = docstring("torch.nn.Module.register_forward_pre_hook")


@rule(
    "module.forward.after",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 7), MODULES.sentence(8)],
    needs=[Capability.MODULES],
    mutants=[
        "forward-hook-before-forward",
        "module-hook-gets-bare-arguments",
        "output-of-a-module-hook-in-a-tuple",
        "module-hook-gets-the-first-argument",
        "forward-hooks-get-tensors-alone",
        "forward-hooks-skipped-without-positional-arguments",
    ],
)
def test_after_forward(backend: Backend, trace: Trace) -> None:
    """A forward hook runs after forward, with the module, the tuple of its arguments, and the output."""

    def forward(_module, x, *args: Any):
        trace.log("forward", [x, *args])
        return x * 2

    def hook(given, args, output):
        trace.log("hook", [given is module, isinstance(args, tuple), args, output])

    module = backend.module({}, forward)
    backend.register_forward_hook(module, hook)

    for call, args in 3 * (
        (module, [[1.0]]),
        (lambda x: module(x, "text", 7), [[1.0], "text", 7]),
        (lambda x: module(x, {"a": "dict"}, [True], None, *OTHERS), [[1.0], {"a": "dict"}, [True], None, *OTHERS]),
        (lambda x: module(x=x), []),
    ):
        backend.call(call, backend.tensor([1.0]))

        given = trace.snapshot(args)
        trace.expect(("forward", given or [[1.0]]), ("hook", [True, True, given, [2.0]]))

    for numbers in NUMBERS:
        backend.call(module, backend.tensor(numbers))
        trace.expect("forward", ("hook", [True, True, [numbers], trace.snapshot(backend.tensor(numbers) * 2)]))


@rule(
    "module.forward.output.tensor-hook",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 7), TENSOR_HOOK.sentence(2, 4)],
    needs=[Capability.MODULES, Capability.TENSOR_HOOKS],
    mutants=["forward-hooks-get-a-copy-of-the-output", "forward-hooks-get-copies-of-several-outputs"],
)
def test_tensor_hook_on_the_output(backend: Backend, trace: Trace) -> None:
    """A tensor hook that a forward hook registers on the output runs in backward, and what it returns is used."""

    def hook(_module, _args, output):
        backend.register_hook(output, trace.saw("output", lambda grad: grad * 10))

    def hook_each(module, args, outputs):
        for output in outputs:
            hook(module, args, output)

    module = backend.module({}, lambda _module, x: x * 2)
    backend.register_forward_hook(module, hook)
    for _ in range(2):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(backend.call(lambda x: backend.sum(module(x) * 3), x))

        trace.expect(("output", [3.0, 3.0]))
        trace.expect_value("x.grad", [60.0, 60.0], backend.grad_of(x))

    several = backend.module({}, lambda _module, x: (x * 2, x * 3))
    backend.register_forward_hook(several, hook_each)
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    first, second = backend.call(several, x)
    backend.backward(backend.sum(first * 5 + second * 7))

    trace.expect_in_any_order("output", "output")
    trace.expect_value("x.grad of several", [310.0, 310.0], backend.grad_of(x))


@rule(
    "module.forward.replace",
    level=Level.MUST,
    sources=[HOOK.sentence(5, 7), MODULES.sentence(15)],
    needs=[Capability.MODULES],
    mutants=[
        "forward-hook-ignored",
        "module-hooks-run-in-reverse-order",
        "results-of-forward-hooks-are-constants",
        "forward-hook-gets-detached-arguments",
        "third-forward-hook-gets-what-the-first-returned",
        "later-results-of-forward-hooks-are-constants",
    ],
)
def test_replaces_the_output(backend: Backend, trace: Trace) -> None:
    """What a forward hook returns becomes the output of the module, and the next forward hook gets it."""
    x, module = backend.tensor([1.0, 2.0], requires_grad=True), doubling(backend)
    backend.register_forward_hook(module, lambda _module, args, output: output + args[0])
    backend.register_forward_hook(module, lambda _module, _args, output: output * 10)
    backend.register_forward_hook(module, lambda _module, _args, output: output + 7)

    output = backend.call(module, x)
    backend.backward(backend.sum(output))

    trace.expect_value("output", [37.0, 67.0], output)
    trace.expect_value("x.grad", [30.0, 30.0], backend.grad_of(x))

    x, several = backend.tensor([1.0, 2.0], requires_grad=True), backend.module({}, lambda _module, x: (x * 2, x * 3))
    backend.register_forward_hook(several, lambda _module, _args, outputs: (outputs[1] * 5, outputs[0] * 7))
    first, second = backend.call(several, x)
    backend.backward(backend.sum(first + second * 10))

    trace.expect_value("outputs", [[15.0, 30.0], [14.0, 28.0]], [first, second])
    trace.expect_value("x.grad of several", [155.0, 155.0], backend.grad_of(x))


@rule(
    "module.forward.sees-modified-input",
    level=Level.MUST,
    sources=[MODULES.sentence(15), HOOK],
    needs=[Capability.MODULES],
    mutants=[
        "forward-hook-gets-the-arguments-of-the-caller",
        "forward-hook-gets-what-the-first-pre-hook-left",
        "forward-hook-gets-the-arguments-of-the-caller-if-their-number-changed",
    ],
)
def test_sees_replaced_arguments(backend: Backend, trace: Trace) -> None:
    """A forward hook gets the arguments of forward, which forward pre-hooks may have replaced.

    The docstring speaks of the arguments "given to the module", but the example in the notes adds a hook's inputs to
    the output after a pre-hook replaced them, and prints numbers that only the replaced inputs give.
    """
    module = doubling(backend)
    backend.register_forward_pre_hook(module, lambda _, args: args[0] + 10)
    backend.register_forward_pre_hook(module, lambda _, args: args[0] * 3)
    backend.register_forward_hook(module, lambda _module, args, _output: trace.log("hook", args))

    backend.call(module, backend.tensor([1.0, 2.0]))

    trace.expect(("hook", [[33.0, 36.0]]))

    for count in (0, 2):
        module = backend.module({}, lambda _module, *args: len(args))
        backend.register_forward_pre_hook(module, lambda _, args, count=count: args * count)
        backend.register_forward_hook(module, lambda _module, args, _output: trace.log("hook", args))
        backend.call(module, backend.tensor([1.0, 2.0]))
        trace.expect(("hook", [[1.0, 2.0]] * count))


@rule(
    "module.forward.kwargs-hidden",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4)],
    needs=[Capability.MODULES],
    mutants=[
        "keyword-arguments-given-to-every-module-hook",
        "keyword-arguments-among-the-positional",
        "keyword-arguments-among-the-positional-of-later-forward-hooks",
        "keyword-arguments-among-several-positional",
        "keyword-arguments-that-are-none-lost-in-hooked-modules",
    ],
)
def test_keywords_hidden(backend: Backend, trace: Trace) -> None:
    """A forward hook registered without with_kwargs gets the positional arguments alone; forward gets all."""
    module = backend.module({}, lambda _module, x, factor=1: x * factor)
    backend.register_forward_hook(module, lambda *given: trace.log("hook", [len(given), given[1]]))

    output = backend.call(lambda x: module(x, factor=3), backend.tensor([1.0, 2.0]))

    trace.expect(("hook", [3, [[1.0, 2.0]]]))
    trace.expect_value("output", [3.0, 6.0], output)

    keywords = dict(zip("abcdefghijk", (None, {"key": [7]}, 5, "text", *OTHERS), strict=True))
    module = backend.module({}, lambda _module, x, *_, **given: (trace.log("forward", [*given.values()]), x)[1])
    forward = ("forward", trace.snapshot([*keywords.values()]))
    backend.call(lambda x: module(x, **keywords), backend.tensor([1.0, 2.0]))
    trace.expect(forward)
    for label in EARLIER:
        backend.register_forward_hook(module, lambda *given, label=label: trace.log(label, [len(given), given[1]]))
    for _ in range(3):
        backend.call(lambda x: module(x, 5, **keywords), backend.tensor([1.0, 2.0]))
        trace.expect(forward, *((label, [3, [[1.0, 2.0], 5]]) for label in EARLIER))


@rule(
    "module.forward.kwargs",
    level=Level.MUST,
    sources=[HOOK.sentence(8, 9)],
    needs=[Capability.MODULES, Capability.FORWARD_HOOK_KWARGS],
    mutants=[
        "keyword-arguments-given-to-every-module-hook",
        "with-kwargs-ignored",
        "none-for-no-keyword-arguments",
        "with-kwargs-hides-the-positional-arguments",
        "forward-hook-with-kwargs-set-by-its-default",
        "with-kwargs-hides-the-later-positional-arguments",
        "with-kwargs-gives-the-first-keyword-alone",
        "with-kwargs-gives-the-last-keyword-alone",
        "with-kwargs-of-a-forward-hook-counts-for-later-ones",
        "hooks-with-kwargs-skipped-without-positional-arguments",
    ],
)
def test_keywords(backend: Backend, trace: Trace) -> None:
    """A forward hook registered with_kwargs gets the keyword arguments between the positional ones and the output."""

    def with_keywords(_module, args, kwargs, output):
        trace.log("with", [args, isinstance(kwargs, dict) and sorted(kwargs.items()), output])

    module = backend.module({}, lambda _module, x, y, factor=1, share=0: x * factor + y * share)
    backend.register_forward_hook(module, lambda *given: trace.log("without", len(given)))
    backend.register_forward_hook(module, with_keywords, with_kwargs=True)
    backend.register_forward_hook(module, lambda *given: trace.log("False", len(given)), with_kwargs=False)

    x, y = backend.tensor([1.0, 2.0]), backend.tensor([3.0, 4.0])
    backend.call(lambda x, y: module(x, y, factor=3, share=2), x, y)
    keywords = [["factor", 3], ["share", 2]]
    trace.expect(("without", 3), ("with", [[[1.0, 2.0], [3.0, 4.0]], keywords, [9.0, 14.0]]), ("False", 3))
    backend.call(module, x, y)

    trace.expect(("without", 3), ("with", [[[1.0, 2.0], [3.0, 4.0]], [], [1.0, 2.0]]), ("False", 3))
    backend.call(lambda x, y: module(x=x, y=y), x, y)

    keywords = [["x", [1.0, 2.0]], ["y", [3.0, 4.0]]]
    trace.expect(("without", 3), ("with", [[], keywords, [1.0, 2.0]]), ("False", 3))


@rule(
    "module.forward.kwargs.modified",
    level=Level.MUST,
    sources=[HOOK.sentence(8), MODULES.sentence(15)],
    needs=[Capability.MODULES, Capability.FORWARD_HOOK_KWARGS, Capability.FORWARD_PRE_HOOK_KWARGS],
    mutants=[
        "replaced-keyword-arguments-not-seen",
        "forward-hook-gets-the-keywords-that-the-first-pre-hook-left",
        "dropped-keyword-arguments-seen",
        "added-keyword-arguments-not-seen",
        "forward-hooks-with-kwargs-get-the-arguments-of-the-caller",
        "arguments-that-a-pre-hook-with-kwargs-replaced-not-seen",
    ],
)
def test_sees_replaced_keywords(backend: Backend, trace: Trace) -> None:
    """A forward hook with with_kwargs=True gets the arguments of forward and its keywords, as pre-hooks left them.

    The example in the notes shows it of arguments, and with_kwargs=True passes those given to forward by keyword.
    """
    module = backend.module({}, lambda _module, x, factor=1, **_others: x * factor)
    for name, added in (("first", 2), ("second", 4)):
        backend.register_forward_pre_hook(
            module,
            lambda _, args, kwargs, name=name, added=added: (
                (args[0] + added,),
                {"factor": kwargs["factor"] + added, name: added},
            ),
            with_kwargs=True,
        )
    backend.register_forward_hook(
        module,
        lambda _module, args, kwargs, _output: trace.log("given", [args, sorted(kwargs.items())]),
        with_kwargs=True,
    )

    backend.call(lambda x: module(x, factor=3, dropped=5), backend.tensor([1.0, 2.0]))

    trace.expect(("given", [[[7.0, 8.0]], [["factor", 9], ["second", 4]]]))


@rule(
    "module.forward.kwargs.replace",
    level=Level.MUST,
    sources=[HOOK.sentence(8, 9)],
    needs=[Capability.MODULES, Capability.FORWARD_HOOK_KWARGS],
    mutants=[
        "output-of-a-hook-with-kwargs-ignored",
        "falsy-output-of-a-hook-with-kwargs-ignored",
        "results-of-forward-hooks-with-kwargs-are-constants",
        "forward-hooks-with-kwargs-get-what-forward-returned",
    ],
)
def test_replaces_the_output_with_keywords(backend: Backend, trace: Trace) -> None:
    """What a forward hook with with_kwargs=True returns becomes the output of the module; None keeps the output."""
    module = backend.module({}, lambda _module, x, factor=1: x * factor)
    for times in (1, 10):
        backend.register_forward_hook(
            module, lambda _, _args, given, output, times=times: output + given["factor"] * times, with_kwargs=True
        )
    backend.register_forward_hook(module, lambda *_: None, with_kwargs=True)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    output = backend.call(lambda x: module(x, factor=3), x)
    backend.backward(backend.sum(output))

    trace.expect_value("output", [36.0, 39.0], output)
    trace.expect_value("x.grad", [3.0, 3.0], backend.grad_of(x))

    for result in OTHERS:
        module = doubling(backend)
        backend.register_forward_hook(module, lambda *_, result=result: result, with_kwargs=True)
        output = backend.call(module, backend.tensor([1.0, 2.0]))
        trace.expect_value("output", repr(result), repr(output))


@rule(
    "module.forward.none-keeps",
    level=Level.MUST,
    sources=[HOOK.sentence(7)],
    needs=[Capability.MODULES],
    mutants=["none-of-a-forward-hook-is-the-output", "none-of-a-forward-hook-restores-the-output"],
)
def test_none_keeps(backend: Backend, trace: Trace) -> None:
    """A forward hook that returns None does not change the output of the module."""
    module = doubling(backend)
    backend.register_forward_hook(module, saw(trace, "hook"))

    output = backend.call(module, backend.tensor([1.0, 2.0]))

    trace.expect("hook")
    trace.expect_value("output", [2.0, 4.0], output)

    backend.register_forward_hook(module, lambda _module, _args, output: output * 10)
    backend.register_forward_hook(module, saw(trace, "last"))
    output = backend.call(module, backend.tensor([1.0, 2.0]))

    trace.expect("hook", "last")
    trace.expect_value("output", [20.0, 40.0], output)


@rule(
    "module.forward.order-prepend",
    level=Level.MUST,
    sources=[HOOK.sentence(11, 12, 13), GLOBAL.sentence(12)],
    needs=[
        Capability.ALWAYS_CALL,
        Capability.MODULES,
        Capability.FORWARD_HOOK_PREPEND,
        Capability.FORWARD_HOOK_KWARGS,
        Capability.GLOBAL_MODULE_HOOKS,
    ],
    mutants=[
        "forward-hook-prepend-ignored",
        "global-module-hooks-run-last",
        "module-hooks-run-in-reverse-order",
        "prepended-hooks-as-registered",
        "forward-hooks-with-keywords-run-last",
        "always-called-hooks-run-last",
        "prepend-of-an-always-called-hook-ignored",
        "always-called-hooks-in-reverse-order-if-forward-fails",
    ],
)
def test_order(backend: Backend, trace: Trace) -> None:
    """Global forward hooks run first, then the prepended, last first, then others in order of registration.

    So do those with always_call=True if forward fails.
    """
    module = backend.module({}, lambda _module, x, fails=False: fail() if fails else x * 2)
    backend.register_forward_hook(module, saw(trace, "first"), with_kwargs=True, always_call=True)
    backend.register_forward_hook(module, saw(trace, "second"))
    handle = backend.register_module_forward_hook(saw(trace, "global"))
    backend.register_forward_hook(module, saw(trace, "third, prepended"), prepend=True, with_kwargs=True)
    backend.register_forward_hook(module, saw(trace, "fourth, prepended"), prepend=True, always_call=True)
    backend.register_forward_hook(module, saw(trace, "fifth"))
    backend.register_forward_hook(module, saw(trace, "sixth"), prepend=False)
    backend.register_forward_hook(module, saw(trace, "seventh, prepended"), prepend=True)

    backend.call(lambda x: backend.sum(module(x)), backend.tensor([1.0, 2.0]))
    handle.remove()

    prepended = ["seventh, prepended", "fourth, prepended", "third, prepended"]
    trace.expect("global", *prepended, "first", "second", "fifth", "sixth")

    with trace.raises_type(UserError):
        backend.call(lambda x: module(x, fails=True), backend.tensor([1.0, 2.0]))
    trace.expect("fourth, prepended", "first")


@rule(
    "module.forward.non-tensor-output",
    level=Level.MUST,
    sources=[MODULES.sentence(15), HOOK.sentence(7)],
    needs=[Capability.MODULES],
    mutants=[
        "forward-hook-for-tensors-alone",
        "forward-hook-ignored",
        "falsy-output-of-a-forward-hook-ignored",
        "tuple-of-one-output-unpacked",
        "named-tuple-of-a-forward-hook-becomes-a-tuple",
    ],
)
def test_any_output(backend: Backend, trace: Trace) -> None:
    """The output of a module and the result of its forward hook may be of any type.

    The notes say that a forward hook gets outputs as they are, and that its result is used from then on; no type is
    named.
    """
    for made, result in 3 * (
        ({"of a": "dict"}, ["a", "list"]),
        (("in a tuple",), 0),
        (0, ()),
        (None, ("in a tuple",)),
        (Pair("named", 1), Pair(0, "tuple")),
        (("one", "of", "several"), ("several", "others", 0)),
        *zip((7, *OTHERS), (*reversed(OTHERS), 7), strict=True),
    ):
        module = backend.module({}, lambda _module, _x, made=made: made)
        backend.register_forward_hook(
            module, lambda _module, _args, output, result=result: (trace.log("hook", repr(output)), result)[1]
        )
        output = backend.call(module, backend.tensor([1.0, 2.0]))

        trace.expect(("hook", repr(made)))
        trace.expect_value("output", repr(result), repr(output))

    for numbers in NUMBERS:
        results = [{"tensor": backend.tensor(numbers)}, [backend.tensor(numbers)], backend.tensor(numbers)]
        for result in results:
            module = backend.module({}, lambda _module, x: x)
            backend.register_forward_hook(module, lambda *_, result=result: result)

            trace.expect_value("output", result, backend.call(module, backend.tensor([1.0, 2.0])))

    for made, change, changed in (
        ({"key": 1}, lambda output: output.update(more=2), {"key": 1, "more": 2}),
        ([1], lambda output: output.append(2), [1, 2]),
    ):
        module = backend.module({}, lambda _module, _x, made=made: made)
        backend.register_forward_hook(module, lambda _module, _args, output, change=change: change(output))
        output = backend.call(module, backend.tensor([1.0, 2.0]))

        trace.expect_value("output that the hook changed", repr(changed), repr(output))


@rule(
    "module.forward.exception",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an exception in a hook around forward leaves the call of the module")],
    needs=[Capability.MODULES],
    mutants=["forward-pre-hook-swallowed", "forward-hook-swallowed"],
)
def test_exception(backend: Backend, trace: Trace) -> None:
    """An exception of a forward pre-hook or forward hook reaches the caller; no later hook runs without always_call."""
    for register in (backend.register_forward_pre_hook, backend.register_forward_hook):
        module = doubling(backend)
        handle = register(module, fail)
        register(module, saw(trace, "later hook of its kind"))
        backend.register_forward_hook(module, saw(trace, "later hook"))
        with trace.raises_type(UserError):
            backend.call(module, backend.tensor([1.0, 2.0]))
        trace.expect()

        handle.remove()
        backend.call(module, backend.tensor([1.0, 2.0]))
        trace.expect("later hook of its kind", "later hook")


@rule(
    "module.forward.handle",
    level=Level.MUST,
    sources=[HOOK.sentence(19)],
    needs=[Capability.MODULES],
    mutants=[
        "forward-hook-handle-removes-nothing",
        "forward-hook-handle-skips-one-call",
        "forward-hook-handle-removes-the-oldest",
        "forward-hook-handle-removes-all-equal",
        "forward-hook-handle-removes-the-first-equal",
        "handles-remove-equal-hooks-of-other-modules",
    ],
)
def test_handle(backend: Backend, trace: Trace) -> None:
    """The handle of a forward hook removes this hook, and no other, from all later calls of the module.

    If the same function is registered once more, that is another hook.
    """

    def run(module):
        backend.call(module, backend.tensor([1.0, 2.0]))

    removed_in_place(trace, lambda: doubling(backend), backend.register_forward_hook, run)


@rule(
    "module.forward.handle.inside",
    level=Level.MUST,
    sources=[HOOK.sentence(19)],
    needs=[Capability.MODULES],
    mutants=["forward-hook-handle-removes-nothing", "forward-hook-handle-removes-the-oldest"],
)
def test_handle_inside(backend: Backend, trace: Trace) -> None:
    """A forward hook that removes itself while it runs is called in no later call, and all other hooks still are.

    The docstring says that the handle's remove removes the hook, and excepts no moment.
    """
    module = doubling(backend)
    backend.register_forward_hook(module, saw(trace, "older"))
    handles = [backend.register_forward_hook(module, lambda *_: (trace.log("removes itself"), handles[0].remove())[1])]
    backend.register_forward_hook(module, saw(trace, "newer"))

    for _ in range(3):
        backend.call(module, backend.tensor([1.0, 2.0]))

    trace.expect("older", "removes itself", "newer", *["older", "newer"] * 2)


@rule(
    "module.forward.no-grad",
    level=Level.MUST,
    sources=[HOOK.sentence(2), FORWARD_PRE.sentence(2)],
    needs=[Capability.MODULES, Capability.GRAD_MODE],
    mutants=["forward-hook-lost-no-grad", "hooks-of-inner-modules-only-where-it-is-recorded"],
)
def test_without_recording(backend: Backend, trace: Trace) -> None:
    """Forward pre-hooks and forward hooks run whether grad mode is on or off."""
    inner = doubling(backend)
    outer = backend.module({}, lambda _module, x: inner(x))
    for module, label in ((inner, "inner"), (outer, "outer")):
        backend.register_forward_pre_hook(module, saw(trace, f"{label} pre-hook"))
        backend.register_forward_hook(module, saw(trace, f"{label} hook"))

    for mode in (backend.no_grad, backend.enable_grad):
        with mode():
            backend.call(outer, backend.tensor([1.0, 2.0], requires_grad=True))

        trace.expect("outer pre-hook", "inner pre-hook", "inner hook", "outer hook")


@rule(
    "module.global.mixed-always",
    level=Level.MUST,
    sources=[HOOK.sentence(2), FORWARD_PRE.sentence(2)],
    needs=[Capability.MODULES],
    mutants=[
        "forward-hook-before-forward",
        "forward-pre-hook-after-forward",
        "forward-hooks-skipped-if-the-module-calls-itself",
    ],
)
def test_nested(backend: Backend, trace: Trace) -> None:
    """The forward hooks of a module run around those of the modules that its forward calls.

    A pre-hook runs before forward is invoked and a hook after it computed its output, so those of a module that
    forward calls run in between.
    """
    inner = doubling(backend)
    outer = backend.module({}, lambda _module, x: inner(x))
    itself = backend.module({}, lambda module, x, again=True: module(x, again=False) if again else x * 2)
    for label, module in (("inner", inner), ("outer", outer), ("its own", itself)):
        backend.register_forward_hook(module, saw(trace, f"{label} hook"))
        backend.register_forward_pre_hook(module, saw(trace, f"{label} pre-hook"))

    backend.call(outer, backend.tensor([1.0, 2.0]))
    trace.expect("outer pre-hook", "inner pre-hook", "inner hook", "outer hook")

    backend.call(itself, backend.tensor([1.0, 2.0]))
    trace.expect(*["its own pre-hook"] * 2, *["its own hook"] * 2)


@rule(
    "module.forward.prepend.kwargs",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4, 8, 11)],
    needs=[Capability.MODULES, Capability.FORWARD_HOOK_PREPEND, Capability.FORWARD_HOOK_KWARGS],
    mutants=[
        "prepended-hooks-get-keywords",
        "prepended-hooks-with-kwargs-get-none",
        "later-prepended-hooks-with-kwargs-get-none",
    ],
)
def test_prepended_keywords(backend: Backend, trace: Trace) -> None:
    """A forward hook with prepend=True gets the keyword arguments exactly if it has with_kwargs=True."""

    def with_keywords(_module, args, *given: Any):
        kwargs, output = given if given[1:] else ({}, *given)
        trace.log("with", [args, sorted(kwargs.items()), output])

    module = backend.module({}, lambda _module, x, factor=1: x * factor)
    for _ in range(2):
        backend.register_forward_hook(module, lambda *given: trace.log("without", len(given)), prepend=True)
        backend.register_forward_hook(module, with_keywords, prepend=True, with_kwargs=True)
        backend.register_forward_hook(
            module, lambda *given: trace.log("False", len(given)), prepend=True, with_kwargs=False
        )
    for factor in (3.0, 5.0, 7.0):
        backend.call(lambda x, factor=factor: module(x, factor=factor), backend.tensor([1.0, 2.0]))

        gets = ("with", [[[1.0, 2.0]], [["factor", factor]], [factor, 2.0 * factor]])
        trace.expect(*(("False", 3), gets, ("without", 3)) * 2)
