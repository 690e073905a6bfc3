"""Hooks registered inside a function, around its calls, and between two of them; parts that a compiler cannot join.

A mode may compile the function once and run the result again. Each call must be as if the function ran anew.
"""

from collections.abc import Callable
from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
from hooklaw.rules.hooks import EARLIER

REGISTER_HOOK = docstring("torch.Tensor.register_hook")
SAVED = docstring("torch.autograd.graph.saved_tensors_hooks")
FULL_BACKWARD = docstring("torch.nn.Module.register_full_backward_hook")
NEEDS = [Capability.TENSOR_HOOKS]


def leaf(backend: Backend) -> Any:
    """Make a leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


def times(number: float) -> Callable[[Any], Any]:
    """Return a hook that multiplies the gradient."""
    return lambda grad: grad * number


@rule(
    "tensor-hook.calls.on-result",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 4)],
    needs=NEEDS,
    mutants=["hooks-between-calls-ignored", "results-of-a-call-overwrite-those-before"],
)
def test_on_result(backend: Backend, trace: Trace) -> None:
    """A hook registered on the result of any call of a function runs in its backward and can replace the gradient.

    The results of all calls are made first, and their backward runs in the opposite order. No call changes the result
    of another.
    """

    def forward(x):
        return x * 3

    leaves = [backend.tensor([number, 2.0], requires_grad=True) for number in (1.0, 5.0, 7.0)]
    results = [backend.call(forward, x) for x in leaves]
    trace.expect_value("results", [[3.0, 6.0], [15.0, 6.0], [21.0, 6.0]], results)
    for number, result in enumerate(results):
        backend.register_hook(result, trace.saw(f"call {number}", times(10.0**number)))

    for number in (2, 1, 0):
        backend.backward(backend.sum(results[number]))

        trace.expect((f"call {number}", [1.0, 1.0]))
        trace.expect_value("x.grad", [3 * 10.0**number] * 2, backend.grad_of(leaves[number]))


@rule(
    "tensor-hook.calls.leaf-between",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 5)],
    needs=NEEDS,
    mutants=[
        "hooks-between-calls-ignored",
        "later-hooks-between-the-same-calls-ignored",
        "hooks-between-later-calls-ignored",
        "hooks-between-calls-run-once",
        "hooks-between-calls-stay-after-two-calls",
        "hooks-between-later-calls-stay",
    ],
)
def test_leaf_between(backend: Backend, trace: Trace) -> None:
    """A hook registered on a leaf between two calls of a function runs after the second, and not once removed."""

    def forward(x):
        return backend.sum(x * 3)

    x = leaf(backend)
    backend.backward(backend.call(forward, x))
    handle = backend.register_hook(x, trace.saw("hook"))
    backend.backward(backend.call(forward, x))
    trace.expect(("hook", [3.0, 3.0]))

    handle.remove()
    backend.backward(backend.call(forward, x))
    trace.expect()

    backend.register_hook(x, trace.saw("another hook"))
    backend.backward(backend.call(forward, x))
    trace.expect("another hook")

    x, handles = leaf(backend), dict[str, Any]()
    for label in EARLIER:
        backend.backward(backend.call(forward, x))
        trace.expect_in_any_order(*handles)
        for each in (label, f"{label}, too"):
            handles[each] = backend.register_hook(x, trace.saw(each))
    while handles:
        backend.backward(backend.call(forward, x))
        trace.expect_in_any_order(*handles)
        handles.pop(next(iter(handles))).remove()
    backend.backward(backend.call(forward, x))
    trace.expect()


@rule(
    "post-acc.calls.between",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.register_post_accumulate_grad_hook").sentence(2, 8)],
    needs=[Capability.POST_ACCUMULATE],
    mutants=["hooks-between-calls-ignored", "post-accumulate-hooks-between-later-calls-ignored"],
)
def test_post_accumulate_between(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook registered between two calls runs after the second, and not once removed."""

    def forward(x):
        return backend.sum(x * 3)

    x = leaf(backend)
    backend.backward(backend.call(forward, x))
    hook = trace.saw("hook", lambda x: trace.log("grad", backend.grad_of(x)))
    handle = backend.register_post_accumulate_grad_hook(x, hook)
    backend.backward(backend.call(forward, x))
    trace.expect("hook", ("grad", [6.0, 6.0]))

    handle.remove()
    backend.backward(backend.call(forward, x))
    trace.expect()

    backend.register_post_accumulate_grad_hook(x, trace.saw("another hook"))
    backend.backward(backend.call(forward, x))
    trace.expect("another hook")

    x, handles = leaf(backend), dict[str, Any]()
    for label in EARLIER:
        backend.backward(backend.call(forward, x))
        trace.expect_in_any_order(*handles)
        handles[label] = backend.register_post_accumulate_grad_hook(x, trace.saw(label))
    while handles:
        backend.backward(backend.call(forward, x))
        trace.expect_in_any_order(*handles)
        handles.pop(next(iter(handles))).remove()
    backend.backward(backend.call(forward, x))
    trace.expect()


@rule(
    "tensor-hook.calls.intermediate",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 4)],
    needs=NEEDS,
    mutants=["hooks-in-later-calls-ignored", "hooks-in-later-calls-see-the-first"],
)
def test_intermediate(backend: Backend, trace: Trace) -> None:
    """A hook that a function registers on an intermediate result runs after each call, on that call's gradient."""

    def forward(x, factor):
        y = x * 2
        backend.register_hook(y, trace.saw("hook", times(10.0)))
        return backend.sum(y * factor)

    for number in (1.0, 5.0, 7.0):
        x = leaf(backend)
        backend.backward(backend.call(forward, x, backend.tensor([number, number])))

        trace.expect(("hook", [number, number]))
        trace.expect_value("x.grad", [20 * number] * 2, backend.grad_of(x))


@rule(
    "tensor-hook.calls.sometimes",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 4)],
    needs=NEEDS,
    mutants=["hooks-in-later-calls-ignored"],
)
def test_sometimes(backend: Backend, trace: Trace) -> None:
    """A function that registers a hook in some of its calls has it run after these calls, and no others."""
    registers = False

    def forward(x):
        y = x * 2
        if registers:
            backend.register_hook(y, trace.saw("hook", times(10.0)))
        return backend.sum(y * 3)

    for registers in (False, True, False, True):
        x = leaf(backend)
        backend.backward(backend.call(forward, x))

        trace.expect(*[("hook", [3.0, 3.0])] * registers)
        trace.expect_value("x.grad", [60.0, 60.0] if registers else [6.0, 6.0], backend.grad_of(x))


@rule(
    "tensor-hook.calls.in-parts",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 4)],
    needs=NEEDS,
    mutants=["hooks-in-later-calls-ignored", "hooks-on-intermediates-ignored"],
)
def test_in_parts(backend: Backend, trace: Trace) -> None:
    """Hooks on intermediate results run, whatever the function does between them, in its first call and later.

    Reading a value is what most compilers cannot join with what comes before and after.
    """

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("y", times(2.0)))
        trace.log("read", y)
        z = y * 3
        trace.log("read", z)
        backend.register_hook(z, trace.saw("z", times(4.0)))
        return backend.sum(z * 5)

    for _ in range(2):
        x = leaf(backend)
        loss = backend.call(forward, x)
        trace.expect(("read", [2.0, 4.0]), ("read", [6.0, 12.0]))

        backend.backward(loss)
        trace.expect(("z", [5.0, 5.0]), ("y", [60.0, 60.0]))
        trace.expect_value("x.grad", [240.0, 240.0], backend.grad_of(x))


@rule(
    "retain-grad.calls",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.retain_grad").sentence(2)],
    needs=[Capability.RETAIN_GRAD],
    mutants=["retained-gradients-in-later-calls-ignored", "leaf-shares-the-gradient-that-a-result-retains"],
)
def test_retain_grad(backend: Backend, trace: Trace) -> None:
    """An intermediate result that a function retains and returns gets its gradient after each call.

    It keeps that gradient in the calls that follow, although it was that of the leaf too.
    """

    def forward(x, factor):
        y = x + 1
        backend.retain_grad(y)
        return backend.sum(y * factor), y

    x, results = leaf(backend), []
    for number in (3.0, 5.0):
        loss, y = backend.call(forward, x, backend.tensor([number, number]))
        results.append(y)
        backend.backward(loss)

        trace.expect_value("y.grad", [number, number], backend.grad_of(y))
    trace.expect_value("y.grad of the first call", [3.0, 3.0], backend.grad_of(results[0]))


@rule(
    "saved-tensor.calls.around-some",
    level=Level.MUST,
    sources=[SAVED.sentence(3, 5)],
    needs=[Capability.SAVED_TENSOR_HOOKS],
    mutants=["saved-tensor-hooks-around-later-calls-ignored", "first-pair-around-all-calls"],
)
def test_around_some(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks around a later call of a function pack what that call saves, and not what others save."""

    def forward(x):
        return backend.sum(backend.exp(x))

    def pair(number):
        return trace.saw(f"pack {number}", backend.detach), trace.saw(f"unpack {number}", lambda kept: kept)

    def expect_hooks(labels):
        x = backend.tensor([0.0], requires_grad=True)
        backend.backward(backend.call(forward, x))
        trace.expect_value("x.grad", [1.0], backend.grad_of(x))
        called = [label for label in ("pack 1", "unpack 1", "pack 2", "unpack 2") if trace.values(label)]
        trace.expect_value("are called", labels, called)
        trace.clear()

    expect_hooks([])
    for number in (1, 2):
        with backend.saved_tensors_hooks(*pair(number)):
            expect_hooks([f"pack {number}", f"unpack {number}"])
    expect_hooks([])


@rule(
    "module.full-backward.register-between-calls",
    level=Level.MUST,
    sources=[FULL_BACKWARD.sentence(2, 3, 8)],
    needs=[Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS],
    mutants=["hooks-between-calls-ignored"],
)
def test_full_backward_between(backend: Backend, trace: Trace) -> None:
    """A full backward hook registered between two calls of a module replaces gradients of the second, until removed."""
    module = backend.module({}, lambda _module, x: x * 3)

    def gradient():
        x = leaf(backend)
        backend.backward(backend.call(lambda x: backend.sum(module(x)), x))
        return backend.grad_of(x)

    trace.expect_value("without a hook", [3.0, 3.0], gradient())
    hook = trace.saw("hook", lambda _module, grad_input, _grad_output: (grad_input[0] * 10,))
    handle = backend.register_full_backward_hook(module, hook)
    trace.expect_value("with a hook", [30.0, 30.0], gradient())
    trace.expect("hook")
    handle.remove()
    trace.expect_value("once removed", [3.0, 3.0], gradient())
    trace.expect()
    backend.register_full_backward_hook(module, trace.saw("another hook"))
    trace.expect_value("with another hook", [3.0, 3.0], gradient())
    trace.expect("another hook")
