"""Forward pre-hooks of a module: their arguments, and how they replace those of forward."""

from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, notes, observed, rule
from hooklaw.rules.hooks import EARLIER, NUMBERS, OTHERS, Pair, removed_in_place

HOOK = docstring("torch.nn.Module.register_forward_pre_hook")
GLOBAL = docstring("torch.nn.modules.module.register_module_forward_pre_hook")
TENSOR_HOOK = docstring("torch.Tensor.register_hook")
MODULES = notes("modules", "module-hooks")


def doubling(backend: Backend, trace: Trace) -> Any:
    """Make a module that logs its input and doubles it."""

    def forward(_module, x):
        trace.log("forward", x)
        return x * 2

    return backend.module({}, forward)


@rule(
    "module.forward-pre.before",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 8), MODULES.sentence(8)],
    needs=[Capability.MODULES],
    mutants=[
        "forward-pre-hook-after-forward",
        "forward-pre-hook-given-the-owner-registered-last",
        "forward-pre-hook-given-the-owner-registered-first",
        "module-hook-gets-bare-arguments",
        "module-hook-gets-the-first-argument",
        "forward-hooks-get-tensors-alone",
        "forward-hooks-skipped-without-positional-arguments",
    ],
)
def test_before_forward(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook runs before forward in every call, with the module and the tuple of its arguments."""

    def pre_hook(given, args):
        trace.log("pre-hook", [given is module, isinstance(args, tuple), args])

    modules = [
        backend.module({}, lambda _module, x, *args: (trace.log("forward", [x, *args]), x * 2)[1]) for _ in range(3)
    ]
    _, module, _ = modules
    for each in modules:
        backend.register_forward_pre_hook(each, pre_hook)

    for call, args in 3 * (
        (module, [[1.0]]),
        (lambda x: module(x, "text", 7), [[1.0], "text", 7]),
        (lambda x: module(x, {"a": "dict"}, [True], None, *OTHERS), [[1.0], {"a": "dict"}, [True], None, *OTHERS]),
        (lambda x: module(x=x), []),
    ):
        backend.call(call, backend.tensor([1.0]))

        given = trace.snapshot(args)
        trace.expect(("pre-hook", [True, True, given]), ("forward", given or [[1.0]]))

    for numbers in NUMBERS:
        backend.call(module, backend.tensor(numbers))
        trace.expect(("pre-hook", [True, True, [numbers]]), ("forward", [numbers]))


@rule(
    "module.forward-pre.argument.tensor-hook",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 8), TENSOR_HOOK.sentence(2, 4)],
    needs=[Capability.MODULES, Capability.TENSOR_HOOKS],
    mutants=["forward-pre-hooks-get-copies-of-the-arguments", "forward-pre-hooks-get-copies-of-several-arguments"],
)
def test_tensor_hook_on_an_argument(backend: Backend, trace: Trace) -> None:
    """A tensor hook that a forward pre-hook registers on an argument runs in backward, and what it returns is used."""

    def pre_hook(_module, args):
        for number, arg in enumerate(args, start=1):
            backend.register_hook(arg, trace.saw("argument", lambda grad, number=number: grad * (10 * number)))

    module = backend.module({}, lambda _module, *args: args[0] * 2 + args[-1] * 3)
    backend.register_forward_pre_hook(module, pre_hook)
    for gradients in ([None, [250.0, 250.0]], [[20.0, 20.0], [300.0, 300.0]]):
        x, y = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        args = [x, backend.call(lambda y: y * 5, y)] if gradients[0] else [backend.call(lambda y: y * 5, y)]
        backend.backward(backend.sum(backend.call(module, *args)))

        trace.expect_in_any_order(*["argument"] * len(args))
        trace.expect_value("gradients", gradients, [backend.grad_of(x), backend.grad_of(y)])


@rule(
    "module.forward-pre.replace-single",
    level=Level.MUST,
    sources=[HOOK.sentence(5, 6, 7)],
    needs=[Capability.MODULES],
    mutants=[
        "forward-pre-hook-ignored",
        "value-of-a-pre-hook-replaces-the-first-argument",
        "falsy-value-of-a-pre-hook-ignored",
        "dict-of-a-pre-hook-is-keyword-arguments",
    ],
)
def test_replaced_by_one_value(backend: Backend, trace: Trace) -> None:
    """A single value that a forward pre-hook without with_kwargs=True returns becomes the argument of forward."""
    values = (lambda args: args[0] + 10, lambda args: [args[0] + 10], lambda args: {"x": args[0] + 10}, lambda _: 0)
    x = backend.tensor([1.0, 2.0])
    for value in values:
        module = backend.module({}, lambda _, *args, **named: (trace.log("forward", [args, sorted(named)]), x * 2)[1])
        backend.register_forward_pre_hook(module, lambda _, args, value=value: value(args))
        backend.call(module, x, x)

    given = ([[11.0, 12.0]], [[[11.0, 12.0]]], [[["x", [11.0, 12.0]]]], [0])
    trace.expect(*(("forward", [args, []]) for args in given))

    for value in (*map(backend.tensor, NUMBERS), {"a": "dict"}, 7, "text", *OTHERS[:-3], *OTHERS[-2:]):
        module = backend.module({}, lambda _module, *args: (trace.log("forward", args), x)[1])
        backend.register_forward_pre_hook(module, lambda *_, value=value: value)
        backend.call(module, x, x)
        trace.expect(("forward", trace.snapshot([value])))


@rule(
    "module.forward-pre.replace-tuple",
    level=Level.MUST,
    sources=[HOOK.sentence(5, 6, 7)],
    needs=[Capability.MODULES],
    mutants=[
        "tuple-of-a-pre-hook-is-one-argument",
        "forward-pre-hook-results-reversed",
        "forward-pre-hook-returned-empty-container-lost",
        "none-in-the-tuple-of-a-pre-hook-keeps-an-argument",
        "named-tuple-of-a-pre-hook-is-one-argument",
        "later-results-of-forward-hooks-are-constants",
    ],
)
def test_replaced_by_a_tuple(backend: Backend, trace: Trace) -> None:
    """A tuple that a forward pre-hook without with_kwargs=True returns becomes the positional arguments of forward.

    It may have any number of values. A named tuple is a tuple.
    """

    def forward(_module, *args: Any):
        trace.log("forward", args)
        return x * 2

    x = backend.tensor([1.0, 2.0])
    counts = 3 * [*range(4)]
    for count in counts:
        module = backend.module({}, forward)
        backend.register_forward_pre_hook(module, lambda _, args, count=count: (None, args[0] + 1, args[0] + 2)[:count])
        backend.call(module, x, *[x] * (count - 1))

    passed = [None, [2.0, 3.0], [3.0, 4.0]]
    trace.expect(*(("forward", passed[:count]) for count in counts))

    module = backend.module({}, forward)
    backend.register_forward_pre_hook(module, lambda _, args: Pair(args[0], "text"))
    backend.call(module, x)
    trace.expect(("forward", [[1.0, 2.0], "text"]))

    x, module = backend.tensor([1.0, 2.0], requires_grad=True), backend.module({}, lambda _module, x, y: x + y * 7)
    backend.register_forward_pre_hook(module, lambda _, args: (args[0] * 3, args[0] * 5))
    backend.backward(backend.sum(backend.call(module, x)))
    trace.expect_value("x.grad", [38.0, 38.0], backend.grad_of(x))


@rule(
    "module.forward-pre.none-keeps",
    level=Level.MUST,
    sources=[HOOK.sentence(8)],
    needs=[Capability.MODULES],
    mutants=["none-of-a-module-hook-is-a-replacement", "none-of-a-pre-hook-restores-the-arguments"],
)
def test_none_keeps(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook that returns None does not change the arguments of forward."""
    module = backend.module({}, lambda _module, x: (trace.log("forward", x), x)[1])
    backend.register_forward_pre_hook(module, lambda *_: trace.log("pre-hook"))
    backend.call(module, backend.tensor([1.0, 2.0]))
    trace.expect("pre-hook", ("forward", [1.0, 2.0]))

    backend.register_forward_pre_hook(module, lambda _, args: (args[0] + 10,))
    backend.register_forward_pre_hook(module, lambda *_: trace.log("last"))
    backend.call(module, backend.tensor([1.0, 2.0]))
    trace.expect("pre-hook", "last", ("forward", [11.0, 12.0]))


@rule(
    "module.forward-pre.kwargs-hidden",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4)],
    needs=[Capability.MODULES],
    mutants=[
        "keyword-arguments-given-to-every-module-hook",
        "keyword-arguments-among-the-positional",
        "keyword-arguments-among-the-positional-of-later-pre-hooks",
        "keyword-arguments-among-several-positional-of-pre-hooks",
        "value-of-a-pre-hook-replaces-the-keyword-arguments",
        "tuple-of-a-pre-hook-replaces-the-keyword-arguments",
    ],
)
def test_keywords_hidden(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook registered without with_kwargs does not get the keyword arguments; forward does."""
    module = backend.module({}, lambda _module, x, factor=1: x * factor)
    backend.register_forward_pre_hook(module, lambda *given: trace.log("pre-hook", [len(given), given[1]]))

    output = backend.call(lambda x: module(x, factor=3), backend.tensor([1.0, 2.0]))

    trace.expect(("pre-hook", [2, [[1.0, 2.0]]]))
    trace.expect_value("output", [3.0, 6.0], output)

    for replace in (lambda _: None, lambda args: args[0] * 10, lambda args: (args[0] * 10,)):
        module = backend.module({}, lambda _module, x, *_others, factor=1, added=0: x * factor + added)
        for label in EARLIER:
            backend.register_forward_pre_hook(module, lambda *given, label=label: trace.log(label, [*given[1:]]))
        backend.register_forward_pre_hook(module, lambda _, args, replace=replace: replace(args))
        output = backend.call(lambda x, module=module: module(x, 5, factor=3, added=7), backend.tensor([1.0, 2.0]))

        trace.expect(*((label, [[[1.0, 2.0], 5]]) for label in EARLIER))
        tenfold = replace(([1.0],)) is not None
        trace.expect_value("output beside others", [37.0, 67.0] if tenfold else [10.0, 13.0], output)


@rule(
    "module.forward-pre.with-kwargs",
    level=Level.MUST,
    sources=[HOOK.sentence(9, 10, 11)],
    needs=[Capability.MODULES, Capability.FORWARD_PRE_HOOK_KWARGS],
    mutants=[
        "forward-pre-hook-ignored",
        "with-kwargs-ignored",
        "keyword-arguments-of-a-pre-hook-are-added",
        "with-kwargs-of-a-pre-hook-counts-for-all",
        "forward-pre-hook-with-kwargs-set-by-its-default",
        "pre-hooks-with-kwargs-get-those-of-the-caller",
        "pre-hooks-without-kwargs-restore-those-of-the-caller",
        "empty-keyword-arguments-of-a-pre-hook-ignored",
        "empty-arguments-of-a-pre-hook-with-kwargs-ignored",
        "new-keyword-arguments-of-a-pre-hook-dropped",
        "later-arguments-of-a-pre-hook-with-kwargs-ignored",
        "later-keyword-arguments-of-a-pre-hook-ignored",
        "keyword-tensors-that-a-pre-hook-returns-are-constants",
        "hooks-with-kwargs-skipped-without-positional-arguments",
    ],
)
def test_with_keywords(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook with with_kwargs=True gets the keyword arguments, and returns (args, kwargs) to change any."""

    def hook(_module, args, kwargs):
        trace.log("kwargs", sorted(kwargs.items()))
        return (args[0] + 10,), {"factor": kwargs["factor"] * 2}

    module = backend.module({}, lambda _module, x, factor=1, added=0: x * factor + added)
    backend.register_forward_pre_hook(module, hook, with_kwargs=True)
    backend.register_forward_pre_hook(module, lambda _, args, *others: (args[0] + 1 + len(others),))
    backend.register_forward_pre_hook(module, hook, with_kwargs=True)
    backend.register_forward_pre_hook(module, lambda *given: trace.log("False", len(given)), with_kwargs=False)
    backend.register_forward_pre_hook(module, lambda *given: trace.log("without", len(given)))

    output = backend.call(lambda x: module(x, factor=3, added=7), backend.tensor([1.0, 2.0]))

    trace.expect(("kwargs", [["added", 7], ["factor", 3]]), ("kwargs", [["factor", 6]]), ("False", 2), ("without", 2))
    trace.expect_value("output", [264.0, 276.0], output)

    x = backend.tensor([1.0, 2.0])
    empties = (lambda *_: ((), {}), lambda _, args, _kwargs: (args, {}), lambda _, _args, kwargs: ((), kwargs))
    for empty in empties:
        module = backend.module({}, lambda _, *args, **named: (trace.log("forward", [args, sorted(named)]), x * 2)[1])
        backend.register_forward_pre_hook(module, lambda _, args, _kwargs: (args, {"factor": 3}), with_kwargs=True)
        backend.register_forward_pre_hook(module, empty, with_kwargs=True)
        backend.call(module, x)

    trace.expect(("forward", [[], []]), ("forward", [[[1.0, 2.0]], []]), ("forward", [[], ["factor"]]))

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    module = backend.module({}, lambda _module, x, factor: x * factor)
    backend.register_forward_pre_hook(
        module, lambda _, args, kwargs: (args, {"factor": kwargs["factor"] * 5}), with_kwargs=True
    )
    backend.backward(backend.call(lambda x: backend.sum(module(x, factor=x * 3)), x))
    trace.expect_value("x.grad", [30.0, 60.0], backend.grad_of(x))

    def tenfold(_module, args, kwargs):
        return tuple(value * 10 for value in args), {name: value * 100 for name, value in kwargs.items()}

    module = backend.module(
        {}, lambda _module, *args, **named: (trace.log("forward", [args, sorted(named.items())]), x)[1]
    )
    backend.register_forward_pre_hook(module, tenfold, with_kwargs=True)
    backend.call(lambda x: module(x, 2, 3, first=4, second=5, third=6), backend.tensor([1.0]))
    trace.expect(("forward", [[[10.0], 20, 30], [["first", 400], ["second", 500], ["third", 600]]]))
    backend.call(lambda x: module(first=x), backend.tensor([1.0]))
    trace.expect(("forward", [[], [["first", [100.0]]]]))


@rule(
    "module.forward-pre.with-kwargs.none-keeps",
    level=Level.MUST,
    sources=[HOOK.sentence(11)],
    needs=[Capability.MODULES, Capability.FORWARD_PRE_HOOK_KWARGS],
    mutants=[
        "none-of-a-pre-hook-with-kwargs-drops-them",
        "none-of-a-pre-hook-with-kwargs-restores-the-arguments",
        "none-of-a-pre-hook-with-kwargs-keeps-the-first-argument-alone",
        "none-of-a-pre-hook-with-kwargs-keeps-the-first-keyword-alone",
    ],
)
def test_with_keywords_returns_none(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook with with_kwargs=True that returns None changes neither args nor kwargs of forward."""
    module = backend.module({}, lambda _module, x, factor=1: x * factor)
    backend.register_forward_pre_hook(module, lambda *_: trace.log("pre-hook"), with_kwargs=True)

    output = backend.call(lambda x: module(x, factor=3), backend.tensor([1.0, 2.0]))

    trace.expect("pre-hook")
    trace.expect_value("output", [3.0, 6.0], output)

    for hook in (lambda _, args, _kwargs: ((args[0] + 10,), {"factor": 5}), lambda *_: trace.log("last")):
        backend.register_forward_pre_hook(module, hook, with_kwargs=True)
    output = backend.call(lambda x: module(x, factor=3), backend.tensor([1.0, 2.0]))

    trace.expect("pre-hook", "last")
    trace.expect_value("output", [55.0, 60.0], output)

    module = backend.module({}, lambda _module, x, y=0, factor=1, added=0: x * factor + y + added)
    backend.register_forward_pre_hook(module, lambda *_: None, with_kwargs=True)
    given = backend.tensor([1.0, 2.0]), backend.tensor([10.0, 14.0])
    output = backend.call(lambda x, y: module(x, y, factor=3, added=7), *given)
    trace.expect_value("output of several", [20.0, 27.0], output)


@rule(
    "module.forward-pre.with-kwargs.bad-return",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such a hook returns None or a tuple of args and kwargs")],
    needs=[Capability.MODULES, Capability.FORWARD_PRE_HOOK_KWARGS],
    mutants=[
        "wrong-return-of-a-module-hook-accepted",
        "any-tuple-of-a-pre-hook-with-kwargs-accepted",
        "list-of-a-pre-hook-with-kwargs-accepted",
    ],
)
def test_with_keywords_returns_one(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook with with_kwargs=True that returns anything but None or (args, kwargs) is an error."""
    returns = (
        lambda args: args[0],
        lambda args: args,
        lambda args: (args, {}, None),
        lambda args: [args, {}],
        lambda _: (),
        lambda _: 0,
    )
    for wrong in returns:
        module = doubling(backend, trace)
        backend.register_forward_pre_hook(module, lambda _, args, _kwargs, wrong=wrong: wrong(args), with_kwargs=True)
        with trace.raises(ErrorKind.MODULE_HOOK_RETURN):
            backend.call(module, backend.tensor([1.0, 2.0]))


@rule(
    "module.forward-pre.order",
    level=Level.MUST,
    sources=[HOOK.sentence(14)],
    needs=[Capability.MODULES],
    mutants=[
        "module-hooks-run-in-reverse-order",
        "forward-pre-hook-ignored",
        "results-of-forward-hooks-are-constants",
        "third-forward-pre-hook-gets-what-the-first-returned",
    ],
)
def test_order(backend: Backend, trace: Trace) -> None:
    """Forward pre-hooks run in order of registration, each with what the hook before it returned."""
    x, module = backend.tensor([1.0, 2.0], requires_grad=True), doubling(backend, trace)
    backend.register_forward_pre_hook(module, lambda _, args: args[0] + 1)
    backend.register_forward_pre_hook(module, lambda _, args: args[0] * 10)
    backend.register_forward_pre_hook(module, lambda _, args: args[0] + 2)

    backend.backward(backend.sum(backend.call(module, x)))

    trace.expect(("forward", [22.0, 32.0]))
    trace.expect_value("x.grad", [20.0, 20.0], backend.grad_of(x))


@rule(
    "module.forward-pre.prepend",
    level=Level.MUST,
    sources=[HOOK.sentence(13)],
    needs=[Capability.MODULES, Capability.FORWARD_HOOK_PREPEND, Capability.FORWARD_PRE_HOOK_KWARGS],
    mutants=[
        "forward-pre-hook-prepend-ignored",
        "prepended-hooks-as-registered",
        "forward-pre-hooks-with-keywords-run-last",
    ],
)
def test_prepend(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook registered with prepend=True runs before those that the module already has."""
    module = backend.module({}, lambda _module, x: x * 2)
    for label, options in (
        ("first", {}),
        ("second, prepended", {"prepend": True, "with_kwargs": True}),
        ("third, prepended", {"prepend": True}),
        ("fourth", {}),
        ("fifth", {"prepend": False}),
        ("sixth, prepended", {"prepend": True}),
    ):
        backend.register_forward_pre_hook(module, lambda *_, label=label: trace.log(label), **options)

    backend.call(module, backend.tensor([1.0, 2.0]))

    trace.expect("sixth, prepended", "third, prepended", "second, prepended", "first", "fourth", "fifth")


@rule(
    "module.forward-pre.prepend.kwargs",
    level=Level.MUST,
    sources=[HOOK.sentence(3, 4, 9, 10, 13)],
    needs=[Capability.MODULES, Capability.FORWARD_HOOK_PREPEND, Capability.FORWARD_PRE_HOOK_KWARGS],
    mutants=[
        "prepended-hooks-get-keywords",
        "prepended-hooks-with-kwargs-get-none",
        "later-prepended-hooks-with-kwargs-get-none",
        "keywords-that-a-prepended-pre-hook-returns-ignored",
    ],
)
def test_prepended_keywords(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook with prepend=True gets and replaces keyword arguments exactly if with_kwargs=True."""

    def doubling(_module, args, *given: Any):
        trace.log("with", [args, *(sorted(kwargs.items()) for kwargs in given)])
        return (args, {name: value * 2 for name, value in given[0].items()}) if given else None

    module = backend.module({}, lambda _module, x, factor=1: x * factor)
    for _ in range(2):
        backend.register_forward_pre_hook(module, lambda *given: trace.log("without", len(given)), prepend=True)
        backend.register_forward_pre_hook(module, doubling, prepend=True, with_kwargs=True)
        backend.register_forward_pre_hook(
            module, lambda *given: trace.log("False", len(given)), prepend=True, with_kwargs=False
        )
    for factor in (3, 5, 7):
        output = backend.call(lambda x, factor=factor: module(x, factor=factor), backend.tensor([1.0, 2.0]))

        trace.expect(
            *(("False", 2), ("with", [[[1.0, 2.0]], [["factor", factor]]]), ("without", 2)),
            *(("False", 2), ("with", [[[1.0, 2.0]], [["factor", factor * 2]]]), ("without", 2)),
        )
        trace.expect_value("output", [4.0 * factor, 8.0 * factor], output)


@rule(
    "module.forward-pre.global-first",
    level=Level.MUST,
    sources=[HOOK.sentence(15), GLOBAL.sentence(10)],
    needs=[Capability.MODULES, Capability.FORWARD_HOOK_PREPEND, Capability.GLOBAL_MODULE_HOOKS],
    mutants=["global-module-hooks-run-last", "global-forward-pre-hooks-run-after-later-ones"],
)
def test_global_first(backend: Backend, trace: Trace) -> None:
    """A global forward pre-hook runs before every forward pre-hook of the module itself, even a prepended hook."""
    module = backend.module({}, lambda _module, x: x * 2)
    backend.register_forward_pre_hook(module, lambda *_: trace.log("own"))
    handle = backend.register_module_forward_pre_hook(lambda *_: trace.log("global"))
    backend.register_forward_pre_hook(module, lambda *_: trace.log("own, prepended"), prepend=True)
    backend.register_forward_pre_hook(module, lambda *_: trace.log("own, later"))

    backend.call(lambda x: backend.sum(module(x)), backend.tensor([1.0, 2.0]))
    handle.remove()

    trace.expect("global", "own, prepended", "own", "own, later")


@rule(
    "module.forward-pre.global-modify",
    level=Level.MUST,
    sources=[GLOBAL.sentence(1, 7, 8, 9)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "global-module-hooks-on-the-outermost-module",
        "forward-pre-hook-ignored",
        "global-forward-pre-hook-ignored",
        "tuple-of-a-pre-hook-is-one-argument",
        "value-of-a-pre-hook-replaces-the-first-argument",
        "own-forward-hooks-beside-global-ones",
        "short-tuple-of-a-global-pre-hook-is-filled-up",
        "long-tuple-of-a-global-pre-hook-is-cut",
        "global-forward-pre-hook-returned-empty-container-lost",
        "none-of-a-global-pre-hook-restores-the-arguments",
    ],
)
def test_global_replaces(backend: Backend, trace: Trace) -> None:
    """A global forward pre-hook may replace the arguments of each module, also inside another, by a value or a tuple.

    A single value becomes the only argument.
    """
    output = backend.tensor([1.0, 2.0])
    inner = backend.module({}, lambda _module, *args: (trace.log("forward", args), output)[1])
    outer = backend.module({}, lambda _module, *args: inner(*args))
    backend.register_forward_pre_hook(inner, lambda _, args: (args[0] * 10, *args[1:]))
    for returned, passed in 3 * (
        (lambda x, *_: x + 1, [[30.0, 40.0]]),
        (lambda x, *others: (x + 1, *(other + 5 for other in others)), [[30.0, 40.0], [11.0, 12.0], [11.0, 12.0]]),
    ):
        hooks = (lambda _, args, returned=returned: returned(*args), lambda *_: None)
        handles = [backend.register_module_forward_pre_hook(hook) for hook in hooks]
        backend.call(lambda *inputs: backend.sum(outer(*inputs)), *[backend.tensor([1.0, 2.0])] * 3)
        for handle in handles:
            handle.remove()

        trace.expect(("forward", passed))

    for value in (*map(backend.tensor, NUMBERS), {"a": "dict"}, 7, "text", *OTHERS[:-3], *OTHERS[-2:]):
        module = backend.module({}, lambda _module, *args: (trace.log("forward", args), output)[1])
        handle = backend.register_module_forward_pre_hook(lambda *_, value=value: value)
        backend.call(module, output, output)
        handle.remove()

        trace.expect(("forward", trace.snapshot([value])))

    for values in ((), (output,), (output, "text", output)):
        module = backend.module({}, lambda _module, *args: (trace.log("forward", args), output)[1])
        handle = backend.register_module_forward_pre_hook(lambda *_, values=values: values)
        backend.call(module, output, output)
        handle.remove()

        trace.expect(("forward", trace.snapshot([*values])))


@rule(
    "module.forward-pre.handle",
    level=Level.MUST,
    sources=[HOOK.sentence(19)],
    needs=[Capability.MODULES],
    mutants=[
        "forward-pre-hook-handle-removes-nothing",
        "forward-pre-hook-handle-skips-one-call",
        "forward-pre-hook-handle-removes-the-oldest",
        "forward-pre-hook-handle-removes-all-equal",
        "forward-pre-hook-handle-removes-the-first-equal",
        "handles-remove-equal-hooks-of-other-modules",
    ],
)
def test_handle(backend: Backend, trace: Trace) -> None:
    """The handle of a forward pre-hook removes this hook, and no other, from all later calls of the module.

    If the same function is registered once more, that is another hook.
    """

    def run(module):
        backend.call(module, backend.tensor([1.0, 2.0]))

    removed_in_place(
        trace, lambda: backend.module({}, lambda _module, x: x * 2), backend.register_forward_pre_hook, run
    )


@rule(
    "module.forward-pre.removes-itself",
    level=Level.MUST,
    sources=[HOOK.sentence(2, 19)],
    needs=[Capability.MODULES],
    mutants=["forward-pre-hooks-cannot-remove-themselves", "forward-pre-hook-handle-removes-the-oldest"],
)
def test_removes_itself(backend: Backend, trace: Trace) -> None:
    """A forward pre-hook may remove itself while it runs: the call goes on, and later calls do not run it.

    The docstring says that the handle's remove removes the hook, and excepts no moment.
    """
    module = doubling(backend, trace)
    handles: list[Any] = []

    def once(_module, _args):
        trace.log("hook")
        handles[0].remove()

    backend.register_forward_pre_hook(module, lambda *_: trace.log("older"))
    handles.append(backend.register_forward_pre_hook(module, once))
    backend.register_forward_pre_hook(module, lambda *_: trace.log("next"))
    x = backend.tensor([1.0, 2.0])
    for _ in range(3):
        module(x)

    later = ("older", "next", ("forward", [1.0, 2.0]))
    trace.expect("older", "hook", "next", ("forward", [1.0, 2.0]), *later, *later)
