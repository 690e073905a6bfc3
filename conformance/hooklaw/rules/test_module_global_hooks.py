"""Hooks on all modules at once: for which modules they run, what they get, and their handles."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any
from warnings import catch_warnings

from hooklaw import Backend, Capability, Level, Trace, docstring, notes, rule
from hooklaw.rules.hooks import GLOBAL_BACKWARD, GLOBAL_BACKWARD_PRE, NUMBERS, OTHERS, gets_each_value, uses_each_value

PRE = docstring("torch.nn.modules.module.register_module_forward_pre_hook")
FORWARD = docstring("torch.nn.modules.module.register_module_forward_hook")
BACKWARD_PRE = docstring("torch.nn.modules.module.register_module_full_backward_pre_hook")
BACKWARD = docstring("torch.nn.modules.module.register_module_full_backward_hook")
MODULES = notes("modules", "module-hooks")


def doubling(backend: Backend) -> Any:
    """Make a module that doubles its input."""
    return backend.module({}, lambda _module, x: x * 2)


def leaf(backend: Backend) -> Any:
    """Make the input of a module."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "module.forward.global-replace",
    level=Level.MUST,
    sources=[FORWARD.sentence(1, 7, 12)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "global-module-hooks-on-the-outermost-module",
        "forward-hook-ignored",
        "global-forward-hook-ignored",
        "own-forward-hooks-beside-global-ones",
        "global-module-hooks-on-the-first-inner-module",
        "global-forward-hooks-get-what-forward-returned",
    ],
)
def test_global_replaces(backend: Backend, trace: Trace) -> None:
    """What a global forward hook returns becomes the output of each module, also of a module inside another.

    Other global hooks get it, and so do the module's own forward hooks, which run after the global hooks.
    """
    inner = doubling(backend)
    outer = backend.module({}, lambda _module, x: inner(x))
    backend.register_forward_hook(inner, lambda _module, _args, output: output * 10)
    handles = [
        backend.register_module_forward_hook(
            lambda given, _args, output, more=more: output + more if given in {inner, outer} else None
        )
        for more in (1, 3)
    ]

    output = backend.call(outer, backend.tensor([1.0, 2.0]))
    for handle in handles:
        handle.remove()

    trace.expect_value("output", [64.0, 84.0], output)

    one, other = (doubling(backend) for _ in range(2))
    both = backend.module({}, lambda _module, x: one(x) + other(x) * 10)
    handle = backend.register_module_forward_hook(
        lambda given, _args, output: output + 1 if given in {one, other} else None
    )
    output = backend.call(both, backend.tensor([1.0, 2.0]))
    handle.remove()

    trace.expect_value("output of two inside another", [33.0, 55.0], output)

    module = backend.module({}, lambda _module, x: (x, x * 2, x * 3))
    handle = backend.register_module_forward_hook(
        lambda given, _args, outputs: (
            (trace.log("outputs", outputs), tuple(output * 10 for output in outputs))[1] if given is module else None
        )
    )
    for _ in range(3):
        outputs = backend.call(module, backend.tensor([1.0]))

        trace.expect(("outputs", [[1.0], [2.0], [3.0]]))
        trace.expect_value("several outputs", [[10.0], [20.0], [30.0]], [*outputs])
    handle.remove()

    for result in (*map(backend.tensor, NUMBERS), {"a": "dict"}, 7, "text", *OTHERS):
        handle = backend.register_module_forward_hook(
            lambda given, *_, result=result: result if given is module else None
        )
        output = backend.call(module, backend.tensor([1.0]))
        handle.remove()
        trace.expect_value("any output", result, output)


@rule(
    "module.forward.sees-modified-input.global",
    level=Level.MUST,
    sources=[PRE.sentence(7), MODULES.sentence(15)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "arguments-that-a-global-pre-hook-replaced-not-seen",
        "arguments-that-a-global-pre-hook-replaced-not-seen-by-global-hooks",
    ],
)
def test_sees_replaced_arguments(backend: Backend, trace: Trace) -> None:
    """A forward hook, global or of a module, gets the arguments that a global forward pre-hook put in place of others.

    The example in the notes shows that a forward hook gets replaced inputs; a global hook replaces them likewise.
    """

    def saw(label):
        return lambda given, args, _output: trace.log(label, args) if given is module else None

    module = backend.module({}, lambda _module, x, y: x * y)
    backend.register_forward_hook(module, saw("own"))
    handles = [
        backend.register_module_forward_pre_hook(
            lambda given, args: (args[0] + 10, args[1] + 20) if given is module else None
        ),
        backend.register_module_forward_hook(saw("global")),
    ]
    output = backend.call(lambda x, y: backend.sum(module(x, y)), backend.tensor([1.0]), backend.tensor([2.0]))
    for handle in handles:
        handle.remove()

    trace.expect(("global", [[11.0], [22.0]]), ("own", [[11.0], [22.0]]))
    trace.expect_value("output", 242.0, output)


@rule(
    "module.forward.global-kwargs-hidden",
    level=Level.MUST,
    sources=[PRE.sentence(5, 6), FORWARD.sentence(5, 6)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS],
    mutants=[
        "keyword-arguments-given-to-global-hooks",
        "module-hook-gets-the-first-argument",
        "result-of-a-global-pre-hook-drops-the-keyword-arguments",
    ],
)
def test_global_keywords_hidden(backend: Backend, trace: Trace) -> None:
    """Global forward pre-hooks and forward hooks without with_kwargs get positional arguments alone, forward gets all.

    The docstring names no exception; with_kwargs is in the signature of forward hooks alone.
    """

    def saw(label):
        return lambda given, *rest: trace.log(label, rest) if given is module else None

    module = backend.module({}, lambda _module, x, _name, _number, factor=1: x * factor)
    handles = [
        backend.register_module_forward_pre_hook(saw("pre-hook")),
        backend.register_module_forward_hook(saw("hook")),
    ]
    given = [[1.0, 2.0], "name", 7]
    for _ in range(3):
        output = backend.call(lambda x: module(x, "name", 7, factor=3), backend.tensor([1.0, 2.0]))

        trace.expect(("pre-hook", [given]), ("hook", [given, [3.0, 6.0]]))
        trace.expect_value("output", [3.0, 6.0], output)
    for handle in handles:
        handle.remove()

    for replaced in (lambda args: args[0] * 10, lambda args: (args[0] * 10,)):
        module = backend.module({}, lambda _module, x, factor=1: x * factor)
        handle = backend.register_module_forward_pre_hook(
            lambda given, args, module=module, replaced=replaced: replaced(args) if given is module else None
        )
        output = backend.call(lambda x, module=module: module(x, factor=3), backend.tensor([1.0, 2.0]))
        handle.remove()
        trace.expect_value("output of replaced arguments", [30.0, 60.0], output)

    tensors = [*map(backend.tensor, NUMBERS)]
    others = [{"a": "dict"}, [True], None, 7, *OTHERS]
    for made, further in (*((made, others) for made in tensors), *((made, tensors) for made in others)):
        module = backend.module({}, lambda *_, made=made: made)
        handles = [
            backend.register_module_forward_pre_hook(saw("pre-hook")),
            backend.register_module_forward_hook(saw("hook")),
        ]
        backend.call(module, *further)
        for handle in handles:
            handle.remove()

        given = trace.snapshot(further)
        trace.expect(("pre-hook", [given]), ("hook", [given, trace.snapshot(made)]))


@rule(
    "module.global.all-modules",
    level=Level.MUST,
    sources=[BACKWARD.sentence(1, 3)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, Capability.MODULE_BACKWARD_HOOKS],
    mutants=["global-module-hooks-on-the-outermost-module", "global-module-hooks-on-the-first-inner-module"],
)
def test_all_modules(backend: Backend, trace: Trace) -> None:
    """A global full backward hook runs for a module inside another module too, and first for the inner one."""
    first, second = (doubling(backend) for _ in range(2))
    outer = backend.module({}, lambda _module, x: second(first(x)) * 3)
    labels = {"first": first, "second": second, "outer": outer}
    handle = backend.register_module_full_backward_hook(
        lambda given, grad_input, _output: trace.log(
            next(label for label, module in labels.items() if module is given), grad_input
        )
    )

    backend.backward(backend.call(lambda x: backend.sum(outer(x)), leaf(backend)))
    handle.remove()

    trace.expect(("second", [[6.0, 6.0]]), ("first", [[12.0, 12.0]]), ("outer", [[12.0, 12.0]]))


def expect_same_as_own(
    backend: Backend, trace: Trace, registrations: Sequence[Callable[..., Any]], hook: Callable[..., Any]
) -> None:
    """Expect that a hook gets and replaces the same gradients, whichever way it was registered.

    It is registered twice, on a module that is called inside another, and directly with constants.
    """

    def forward(module, x, y, number, z):
        return x * module.weight * number, y * 7, "text", z * 11

    def several(module, *inputs: Any):
        first, second, _, third = module(*inputs[:2], 3, inputs[2])
        return backend.sum(first) + backend.sum(second * 2) + backend.sum(third * 3)

    def twice(module, x, y, z):
        first, second, _, third = module(x, y, 2, z)
        return several(module, first, second, third)

    seen: list[Any] = []
    for register in registrations:
        module = backend.module({"weight": backend.tensor([3.0, 5.0])}, forward)
        handles = [
            register(module, lambda given, *grads, module=module: hook(*grads) if given is module else None)
            for _ in range(2)
        ]
        leaves = [leaf(backend) for _ in range(3)]
        for function in (several, twice):
            outer = backend.module({}, lambda _, *inputs, call=function, module=module: call(module, *inputs))
            backend.backward(backend.call(outer, *leaves))
        with catch_warnings(action="ignore"):
            constants = [backend.tensor([1.0, 2.0]) for _ in range(3)]
            backend.backward(backend.call(lambda *inputs, module=module: several(module, *inputs), *constants))
        for handle in handles:
            handle.remove()
        seen.append([*trace.values("hook"), *map(backend.grad_of, (*leaves, module.weight))])
        trace.clear()

    trace.expect_value("gradients that the global hook gets and leaves", *seen)


@rule(
    "module.global.backward-same",
    level=Level.MUST,
    sources=[BACKWARD.sentence(3)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, Capability.MODULE_BACKWARD_HOOKS],
    mutants=[
        "global-backward-hook-ignored",
        "global-backward-hooks-get-gradients-of-tensors-alone",
        "keyword-tensors-are-inputs-of-global-hooks",
        "later-global-backward-hooks-get-the-gradients-of-the-first",
        "global-backward-hooks-replace-nothing-for-inner-modules",
        "list-of-a-global-backward-hook-ignored",
    ],
)
def test_same_as_own(backend: Backend, trace: Trace) -> None:
    """A global full backward hook gets and replaces the gradients that the same hook of the module would.

    So do two of them, also for a module that another calls.
    """

    def hook(grad_input, grad_output):
        trace.log("hook", [grad_input, grad_output])
        return tuple(grad * 10 if backend.is_tensor(grad) else None for grad in grad_input)

    registrations = [
        backend.register_full_backward_hook,
        lambda _, hook: backend.register_module_full_backward_hook(hook),
    ]
    expect_same_as_own(backend, trace, registrations, hook)

    def returning_a_list(given, grad_input, _grad_output):
        if given is not module:
            return None
        trace.log("hook", grad_input)
        return [None if grad is None else grad * 10 for grad in grad_input]

    module = backend.module({}, lambda _module, x, y, factor: x * factor + y * 3)
    leaves = [leaf(backend) for _ in range(3)]
    handle = backend.register_module_full_backward_hook(returning_a_list)
    root = backend.call(lambda x, y, factor: backend.sum(module(x, y, factor=factor)), *leaves)
    backend.backward(root)
    handle.remove()

    trace.expect(("hook", [[1.0, 2.0], [3.0, 3.0]]))
    trace.expect_value("gradients", [[10.0, 20.0], [30.0, 30.0], [1.0, 2.0]], [*map(backend.grad_of, leaves)])

    gets_each_value(backend, trace, GLOBAL_BACKWARD)
    uses_each_value(backend, trace, GLOBAL_BACKWARD)


@rule(
    "module.global.backward-pre-same",
    level=Level.MUST,
    sources=[BACKWARD_PRE.sentence(3)],
    needs=[Capability.MODULES, Capability.GLOBAL_MODULE_HOOKS, Capability.MODULE_BACKWARD_PRE_HOOKS],
    mutants=[
        "global-backward-pre-hook-ignored",
        "global-backward-hooks-get-gradients-of-tensors-alone",
        "later-global-backward-hooks-get-the-gradients-of-the-first",
        "global-backward-hooks-replace-nothing-for-inner-modules",
        "global-backward-pre-hooks-on-the-outermost-module",
    ],
)
def test_same_as_own_pre_hook(backend: Backend, trace: Trace) -> None:
    """A global backward pre-hook gets and replaces the gradients that the same pre-hook of the module would.

    So do two of them, also for a module that another calls.
    """

    def hook(grad_output):
        trace.log("hook", grad_output)
        return tuple(grad * 10 if backend.is_tensor(grad) else grad for grad in grad_output)

    registrations = [
        backend.register_full_backward_pre_hook,
        lambda _, hook: backend.register_module_full_backward_pre_hook(hook),
    ]
    expect_same_as_own(backend, trace, registrations, hook)

    gets_each_value(backend, trace, GLOBAL_BACKWARD_PRE)
    uses_each_value(backend, trace, GLOBAL_BACKWARD_PRE)


@rule(
    "module.global.later-modules",
    level=Level.MUST,
    sources=[PRE.sentence(1), FORWARD.sentence(1), BACKWARD_PRE.sentence(1), BACKWARD.sentence(1)],
    needs=[
        Capability.MODULES,
        Capability.GLOBAL_MODULE_HOOKS,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
    ],
    mutants=["global-module-hooks-run-last"],
)
def test_later_modules(backend: Backend, trace: Trace) -> None:
    """A global module hook of any kind also runs for a module that was made after its registration."""

    def saw(label):
        return lambda given, *_: trace.log(label) if given in later else None

    later: list[Any] = []
    handles = [
        backend.register_module_forward_pre_hook(saw("pre-hook")),
        backend.register_module_forward_hook(saw("hook")),
        backend.register_module_full_backward_pre_hook(saw("backward pre-hook")),
        backend.register_module_full_backward_hook(saw("backward hook")),
    ]
    later.append(doubling(backend))
    backend.backward(backend.call(lambda x: backend.sum(later[0](x)), leaf(backend)))
    for handle in handles:
        handle.remove()

    trace.expect("pre-hook", "hook", "backward pre-hook", "backward hook")


@rule(
    "module.global.removal",
    level=Level.MUST,
    sources=[PRE.sentence(11), FORWARD.sentence(11), BACKWARD_PRE.sentence(6), BACKWARD.sentence(6)],
    needs=[
        Capability.MODULES,
        Capability.GLOBAL_MODULE_HOOKS,
        Capability.MODULE_BACKWARD_HOOKS,
        Capability.MODULE_BACKWARD_PRE_HOOKS,
    ],
    mutants=[
        "global-forward-pre-hook-handle-removes-nothing",
        "global-forward-hook-handle-removes-nothing",
        "global-backward-pre-hook-handle-removes-nothing",
        "global-backward-hook-handle-removes-nothing",
        "global-forward-pre-hook-handle-skips-one-call",
        "global-forward-hook-handle-skips-one-call",
        "global-backward-pre-hook-handle-skips-one-call",
        "global-backward-hook-handle-skips-one-call",
        "global-forward-hook-handle-removes-those-of-other-kinds",
        "global-forward-hook-handle-removes-the-oldest",
        "global-forward-hook-handle-removes-all",
        "global-forward-hook-handle-removes-all-equal",
        "backward-and-global-hooks-cannot-remove-themselves",
    ],
)
def test_handles(backend: Backend, trace: Trace) -> None:
    """The handle of a global forward or full backward hook, or pre-hook, removes it and no other from later calls.

    If the same function is registered once more, that is another hook. A hook may also remove itself.
    """

    def run():
        backend.backward(backend.call(lambda x: backend.sum(module(x)), leaf(backend)))

    def saw(label):
        return lambda given, *_: trace.log(label) if given is module else None

    def registered(kind, register):
        def once(given, *_: Any):
            if given is module:
                trace.log(f"once {kind}")
                itself.remove()

        older, twice = register(saw(f"older {kind}")), saw(f"twice {kind}")
        itself = register(once)
        return [older, register(twice), register(twice)]

    module = doubling(backend)
    kinds = {
        "pre-hook": backend.register_module_forward_pre_hook,
        "hook": backend.register_module_forward_hook,
        "backward pre-hook": backend.register_module_full_backward_pre_hook,
        "backward hook": backend.register_module_full_backward_hook,
    }
    handles = {kind: registered(kind, register) for kind, register in kinds.items()}
    left = [f"{label} {kind}" for kind in kinds for label in ("older", "twice", "twice")]
    run()
    trace.expect_in_any_order(*left, *(f"once {kind}" for kind in kinds))
    run()
    trace.expect_in_any_order(*left)
    for kind in kinds:
        handles[kind].pop(1).remove()
        left.remove(f"twice {kind}")
        run()
        run()
        trace.expect_in_any_order(*left * 2)
    for handle in chain(*handles.values()):
        handle.remove()
    run()
    trace.expect()
