"""Optimizer hooks around the step, and zero_grad."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, page, rule
from hooklaw.rules.hooks import NUMBERS
from hooklaw.rules.steps import as_given, expect_modifies, expect_removes, passing, prepared

PRE = docstring("torch.optim.Optimizer.register_step_pre_hook")
POST = docstring("torch.optim.Optimizer.register_step_post_hook")
PRE_OF_ALL = docstring("torch.optim.optimizer.register_optimizer_step_pre_hook")
POST_OF_ALL = docstring("torch.optim.optimizer.register_optimizer_step_post_hook")
ZERO_GRAD = docstring("torch.optim.Optimizer.zero_grad")
NEEDS = [Capability.OPTIMIZERS]


@rule(
    "optim.step-pre.before",
    level=Level.MUST,
    sources=[PRE.sentence(1, 2, 3)],
    needs=NEEDS,
    mutants=[
        "step-hooks-change-places",
        "step-pre-hook-gets-no-arguments",
        "step-takes-the-gradients-before-its-pre-hooks",
        "first-gradients-that-a-step-hook-sets-unused",
    ],
)
def test_before(backend: Backend, trace: Trace) -> None:
    """A step pre-hook runs before the optimizer's step, with the optimizer and the arguments of the step.

    So the step uses a gradient that the hook has set.
    """

    def closure():
        return backend.tensor(0.0)

    def steps(gradient):
        x, optimizer = prepared(backend)
        backend.set_grad(x, gradient)

        def hook(given, args, kwargs):
            trace.log("hook", [given is optimizer, isinstance(args, tuple), kwargs == {"closure": closure}, x])
            backend.set_grad(x, backend.tensor([2.0]))

        backend.register_step_pre_hook(optimizer, hook)
        backend.step(optimizer, closure=closure)

        trace.expect(("hook", [True, True, True, [5.0]]))
        trace.expect_value("parameter", [3.0], x)

    for gradient in (backend.tensor([1.0]), None):
        steps(gradient)


@rule(
    "optim.step-post.after",
    level=Level.MUST,
    sources=[POST.sentence(1, 2, 3)],
    needs=NEEDS,
    mutants=[
        "step-hooks-change-places",
        "step-post-hook-gets-no-arguments",
        "step-post-hook-gets-keywords-alone",
        "step-post-hooks-get-the-arguments-of-the-caller",
    ],
)
def test_after(backend: Backend, trace: Trace) -> None:
    """A step post-hook runs after the optimizer's step, with the optimizer and the arguments of the step."""
    x, optimizer = prepared(backend)

    def closure():
        return backend.tensor(0.0)

    def hook(given, args, kwargs):
        trace.log("hook", [given is optimizer, isinstance(args, tuple), kwargs == {"closure": closure}, x])

    backend.register_step_post_hook(optimizer, hook)
    for left in (4.0, 3.0, 2.0):
        backend.step(optimizer, closure=closure)

        trace.expect(("hook", [True, True, True, [left]]))

    for each in passing(closure):
        _, optimizer = prepared(backend)
        backend.register_step_pre_hook(optimizer, each)
        backend.register_step_post_hook(
            optimizer, lambda _, args, kwargs: trace.log("has the closure", closure in (*args, *kwargs.values()))
        )
        backend.step(optimizer)

        trace.expect(("has the closure", True))


@rule(
    "optim.step-pre.modify",
    level=Level.MUST,
    sources=[PRE.sentence(2, 4)],
    needs=NEEDS,
    mutants=[
        "step-pre-hook-ignored",
        "step-pre-hook-replaces-keywords-alone",
        "step-pre-hooks-get-the-arguments-of-the-caller",
        "step-pre-hook-ignored-second-call",
        "arguments-of-a-step-win-over-those-of-its-hooks",
    ],
)
def test_changes_arguments(backend: Backend, trace: Trace) -> None:
    """A step pre-hook may return new arguments for the optimizer's step.

    Pre-hooks that return the arguments as they got them, whether they run before or after it, change nothing of this.
    """

    def closure():
        trace.log("closure of the hook")
        return backend.tensor(0.0)

    for hook in passing(closure):
        _, optimizer = prepared(backend)
        register = partial(backend.register_step_pre_hook, optimizer)
        expect_modifies(backend, trace, optimizer, register, hook)


@rule(
    "optim.step-pre.none-keeps",
    level=Level.MUST,
    sources=[PRE.sentence(2)],
    needs=NEEDS,
    mutants=["none-of-a-step-hook-drops-the-arguments", "none-of-a-step-hook-restores-the-arguments"],
)
def test_none_keeps(backend: Backend, trace: Trace) -> None:
    """A step pre-hook that returns None does not change the arguments of the optimizer's step."""

    def closure():
        trace.log("closure")
        return backend.tensor(0.0)

    _, optimizer = prepared(backend)
    backend.register_step_pre_hook(optimizer, lambda *_: None)
    backend.step(optimizer, closure=closure)
    trace.expect("closure")

    for hook in passing(closure):
        _, optimizer = prepared(backend)
        backend.register_step_pre_hook(optimizer, hook)
        backend.register_step_pre_hook(optimizer, lambda *_: None)
        backend.step(optimizer)
        trace.expect("closure")


@rule(
    "optim.step-pre.modify.wrong-return",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("an error says that such a hook returns None or both kinds of arguments")],
    needs=NEEDS,
    mutants=[
        "step-pre-hook-ignored",
        "falsy-return-of-a-step-hook-ignored",
        "any-tuple-of-a-step-hook-accepted",
        "list-of-a-step-hook-accepted",
        "wrong-return-of-a-global-step-hook-ignored",
        "dict-of-a-step-hook-ignored",
    ],
)
def test_wrong_return(backend: Backend, trace: Trace) -> None:
    """A step pre-hook that returns anything but None or (args, kwargs) is an error."""
    _, optimizer = prepared(backend)
    for register in (partial(backend.register_step_pre_hook, optimizer), backend.register_optimizer_step_pre_hook):
        for wrong in (1, 0, (), ((),), ((), {}, None), [(), {}], {"closure": None}):
            handle = register(lambda *_, wrong=wrong: wrong)

            with trace.raises(ErrorKind.STEP_HOOK_RETURN):
                backend.step(optimizer)
            handle.remove()


@rule(
    "optim.step-pre.args-self",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("the args of a step begin with the optimizer, as those of the function step do")],
    needs=NEEDS,
)
def test_first_argument(backend: Backend, trace: Trace) -> None:
    """The args that a step pre-hook gets may begin with the optimizer itself."""
    _, optimizer = prepared(backend)
    backend.register_step_pre_hook(
        optimizer, lambda _, args, _kwargs: trace.log("is the optimizer", args[:1] == (optimizer,))
    )

    backend.step(optimizer)

    trace.expect(("is the optimizer", True))


@rule(
    "optim.global-hooks",
    level=Level.MUST,
    sources=[PRE_OF_ALL.sentence(1, 2), POST_OF_ALL.sentence(1, 2)],
    needs=NEEDS,
    mutants=[
        "global-step-pre-hook-lost",
        "global-step-post-hook-lost",
        "global-step-post-hook-before-the-step",
        "global-step-pre-hook-handle-removes-nothing",
        "global-step-post-hook-handle-removes-nothing",
        "global-step-hooks-of-earlier-optimizers",
        "step-post-hook-gets-no-arguments",
        "global-step-post-hooks-get-the-arguments-of-the-caller",
    ],
)
def test_all_optimizers(backend: Backend, trace: Trace) -> None:
    """A global step hook runs for every optimizer, a pre-hook before the step and a post-hook after it.

    This includes an optimizer made after the registration. Both get the optimizer and the arguments of its step.
    """

    def closure():
        return backend.tensor(0.0)

    def hook(label):
        return lambda given, args, kwargs: trace.log(
            label, [given is first, given is second, isinstance(args, tuple), kwargs == {"closure": closure}, x, y]
        )

    x, first = prepared(backend)
    before = backend.register_optimizer_step_pre_hook(hook("before"))
    after = backend.register_optimizer_step_post_hook(hook("after"))
    y, second = prepared(backend)
    for optimizer in (first, second):
        backend.step(optimizer, closure=closure)
    before.remove()
    after.remove()
    backend.step(first)

    trace.expect(
        ("before", [True, False, True, True, [5.0], [5.0]]),
        ("after", [True, False, True, True, [4.0], [5.0]]),
        ("before", [False, True, True, True, [4.0], [5.0]]),
        ("after", [False, True, True, True, [4.0], [4.0]]),
    )

    for each in passing(closure):
        handles = [
            backend.register_optimizer_step_pre_hook(each),
            backend.register_optimizer_step_post_hook(
                lambda _, args, kwargs: trace.log("has the closure", closure in (*args, *kwargs.values()))
            ),
        ]
        backend.step(first)
        for handle in handles:
            handle.remove()
        trace.expect(("has the closure", True))


@rule(
    "optim.global-hooks.modify",
    level=Level.MUST,
    sources=[PRE_OF_ALL.sentence(2)],
    needs=NEEDS,
    mutants=[
        "global-step-pre-hook-ignored",
        "step-pre-hook-replaces-keywords-alone",
        "global-step-pre-hook-ignored-second-call",
        "arguments-of-a-step-win-over-those-of-its-hooks",
        "own-step-pre-hooks-get-none-of-the-global-arguments",
        "global-arguments-of-a-step-for-earlier-optimizers",
    ],
)
def test_global_changes_arguments(backend: Backend, trace: Trace) -> None:
    """A global step pre-hook may return new arguments for the step of an optimizer.

    It changes nothing of this if a pre-hook of the optimizer returns the arguments as it got them.
    """
    _, optimizer = prepared(backend)
    backend.register_step_pre_hook(optimizer, as_given)

    def closure():
        trace.log("closure of the hook")
        return backend.tensor(0.0)

    for hook in passing(closure):
        expect_modifies(backend, trace, optimizer, backend.register_optimizer_step_pre_hook, hook)
        handle = backend.register_optimizer_step_pre_hook(hook)
        backend.step(prepared(backend)[1])
        handle.remove()
        trace.expect("closure of the hook")


@rule(
    "optim.global-hooks.handle",
    level=Level.MUST,
    sources=[PRE_OF_ALL.sentence(4), POST_OF_ALL.sentence(4)],
    needs=NEEDS,
    mutants=[
        "global-step-pre-hook-handle-removes-nothing",
        "global-step-post-hook-handle-removes-nothing",
        "global-step-pre-hook-handle-removes-the-oldest",
        "global-step-post-hook-handle-removes-the-newest",
        "global-step-pre-hook-handle-removes-those-of-other-kinds",
        "global-step-post-hook-handle-removes-all-equal",
        "step-hooks-skipped-without-gradients",
        "handles-of-global-step-hooks-remove-own-ones",
    ],
)
def test_global_handles(backend: Backend, trace: Trace) -> None:
    """The handle of a global step pre-hook or post-hook removes this hook, and no other, from all later steps."""
    _, optimizer = prepared(backend)
    places = {
        "pre": backend.register_optimizer_step_pre_hook,
        "post": backend.register_optimizer_step_post_hook,
        "own pre": partial(backend.register_step_pre_hook, optimizer),
        "own post": partial(backend.register_step_post_hook, optimizer),
    }
    expect_removes(backend, trace, places, optimizer)


@rule(
    "optim.step-hooks.order-remove",
    level=Level.MUST,
    sources=[PRE.sentence(6), POST.sentence(5)],
    needs=NEEDS,
    mutants=[
        "step-pre-hook-handle-removes-nothing",
        "step-post-hook-handle-removes-nothing",
        "step-pre-hook-handle-removes-the-oldest",
        "step-post-hook-handle-removes-the-newest",
        "step-pre-hook-handle-removes-those-of-other-kinds",
        "step-post-hook-handle-removes-those-of-other-owners",
        "step-post-hook-handle-removes-all-equal",
        "step-hooks-skipped-without-gradients",
    ],
)
def test_handles(backend: Backend, trace: Trace) -> None:
    """The handle of a step pre-hook or post-hook removes this hook, and no other, from all later steps."""
    optimizers = [prepared(backend)[1] for _ in range(2)]
    places = {
        f"{kind} of {nr}": partial(register, optimizer)
        for nr, optimizer in enumerate(optimizers)
        for kind, register in (("pre", backend.register_step_pre_hook), ("post", backend.register_step_post_hook))
    }
    expect_removes(backend, trace, places, *optimizers)


@rule(
    "optim.step-hooks.order",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("step hooks of each kind run in order of registration")],
    needs=NEEDS,
    mutants=["step-hooks-in-reverse", "step-post-hooks-in-reverse"],
)
def test_order(backend: Backend, trace: Trace) -> None:
    """The step pre-hooks of an optimizer run in order of registration, and so do its step post-hooks."""
    _, optimizer = prepared(backend)
    for nr in (1, 2, 3):
        backend.register_step_pre_hook(optimizer, lambda *_, nr=nr: trace.log("before", nr))
        backend.register_step_post_hook(optimizer, lambda *_, nr=nr: trace.log("after", nr))

    backend.step(optimizer)

    trace.expect(*(("before", nr) for nr in (1, 2, 3)), *(("after", nr) for nr in (1, 2, 3)))


@rule(
    "optim.step.not-recorded",
    level=Level.MUST,
    sources=[docstring("torch.optim.SGD").sentence(17)],
    needs=NEEDS,
    mutants=["step-is-recorded", "step-with-a-closure-is-recorded"],
)
def test_not_recorded(backend: Backend, trace: Trace) -> None:
    """An optimizer's step is not recorded: its parameter stays a leaf, and a later backward does not pass the step."""
    for arguments in ({}, {"closure": lambda: backend.tensor(0.0)}):
        x, optimizer = prepared(backend)
        backend.step(optimizer, **arguments)
        trace.expect_value("parameter", [4.0], x)
        trace.expect_value("is a leaf", expected=True, observed=backend.is_leaf(x))

        backend.set_grad(x, None)
        backend.backward(backend.call(lambda x: backend.sum(x * x), x))
        trace.expect_value("x.grad", [8.0], backend.grad_of(x))

    tensors = [backend.tensor(numbers, requires_grad=True) for numbers in NUMBERS[:-1]]
    optimizer = backend.sgd(tensors, lr=1.0)
    backend.backward(
        backend.call(lambda *tensors: sum(map(backend.sum, tensors[1:]), backend.sum(tensors[0])), *tensors)
    )
    backend.step(optimizer)
    trace.expect_value("parameters", [2.0, -1.0, [-1.0], [-1.0, -1.0]], tensors)
    trace.expect_value("are leaves", [True] * 4, [*map(backend.is_leaf, tensors)])


@rule(
    "zero-grad.set-to-none-default",
    level=Level.MUST,
    sources=[ZERO_GRAD.sentence(1, 2, 3)],
    needs=NEEDS,
    mutants=["zero-grad-set-to-none-set-by-its-absence", "zero-grad-parameters-first-alone"],
)
def test_none(backend: Backend, trace: Trace) -> None:
    """An optimizer's zero_grad sets all gradients to None by default, and to zeros with set_to_none=False."""
    tensors = [backend.tensor([5.0], requires_grad=True) for _ in range(3)]
    optimizer = backend.sgd(tensors, lr=1.0)
    for _ in range(3):
        for tensor in tensors:
            backend.set_grad(tensor, backend.tensor([1.0]))

        backend.zero_grad(optimizer, set_to_none=False)
        trace.expect_value("with zeros", [[0.0]] * 3, [backend.grad_of(tensor) for tensor in tensors])
        backend.zero_grad(optimizer)
        trace.expect_value("by default", [None] * 3, [backend.grad_of(tensor) for tensor in tensors])

    tensors = [backend.tensor(numbers, requires_grad=True) for numbers in NUMBERS]
    optimizer = backend.sgd(tensors, lr=1.0)
    for tensor, numbers in zip(tensors, NUMBERS, strict=True):
        backend.set_grad(tensor, backend.tensor(numbers))
    backend.zero_grad(optimizer)
    trace.expect_value("of gradients that are 0-d, zero or empty", [None] * 5, [*map(backend.grad_of, tensors)])


@rule(
    "zero-grad.none-after-backward",
    level=Level.MUST,
    sources=[ZERO_GRAD.sentence(8)],
    needs=NEEDS,
    mutants=["backward-writes-zeros-for-the-rest", "backward-writes-first-zeros"],
)
def test_none_after_backward(backend: Backend, trace: Trace) -> None:
    """After zero_grad(set_to_none=True) and a backward, .grad is None for parameters that got no gradient in it."""
    x, y, never = (backend.tensor([5.0], requires_grad=True) for _ in range(3))
    optimizer = backend.sgd([x, y, never], lr=1.0)
    backend.backward(backend.call(lambda x, y: backend.sum(x * y), x, y))
    backend.zero_grad(optimizer, set_to_none=True)
    backend.backward(backend.call(lambda x: backend.sum(x * x), x))

    trace.expect_value("gradients", [[10.0], None, None], [*map(backend.grad_of, (x, y, never))])


@rule(
    "zero-grad.layout",
    level=Level.MUST,
    sources=[page("autograd", "default-gradient-layouts").sentence(9)],
    needs=[*NEEDS, Capability.VIEWS, Capability.STRIDES],
    mutants=[
        "zero-grad-lays-gradients-out-anew",
        "zero-grad-lays-later-gradients-out-anew",
        "zero-grad-lays-gradients-out-anew-in-later-calls",
    ],
)
def test_layout(backend: Backend, trace: Trace) -> None:
    """An optimizer's zero_grad that writes zeros keeps the strides of each gradient.

    The page says so of zero_grad in general; one that sets gradients to None leaves no strides to keep.
    """
    parameters = [backend.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True) for _ in range(2)]
    optimizer = backend.sgd(parameters, lr=1.0)
    for _ in range(3):
        for x in parameters:
            backend.set_grad(x, backend.transpose(backend.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), 0, 1))
        strides = [backend.stride(backend.grad_of(x)) for x in parameters]
        backend.zero_grad(optimizer, set_to_none=False)

        trace.expect_value("gradients", [[[0.0] * 3] * 2] * 2, [backend.grad_of(x) for x in parameters])
        trace.expect_value("strides", strides, [backend.stride(backend.grad_of(x)) for x in parameters])


@rule(
    "zero-grad.step-skip",
    level=Level.MUST,
    sources=[ZERO_GRAD.sentence(9)],
    needs=NEEDS,
    mutants=["step-takes-none-for-zero", "step-takes-none-for-the-last-gradient", "step-needs-every-gradient"],
)
def test_skipped(backend: Backend, trace: Trace) -> None:
    """An optimizer's step skips a parameter whose gradient is None, but not a parameter whose gradient is zero."""
    for options, after in (
        ({"weight_decay": 1.0}, 0.0),
        ({}, 5.0),
        ({"weight_decay": 0.0}, 5.0),
        ({"weight_decay": 1.0}, 0.0),
        ({}, 5.0),
        ({"weight_decay": 1.0}, 0.0),
    ):
        first, second, skipped, last = tensors = [backend.tensor([5.0], requires_grad=True) for _ in range(4)]
        optimizer = backend.sgd(tensors, lr=1.0, **options)
        for y in (first, second, last):
            backend.set_grad(y, backend.tensor([0.0]))

        backend.step(optimizer)

        trace.expect_value("with None", [5.0], skipped)
        trace.expect_value("with zero", [[after]] * 3, [first, second, last])

    x, optimizer = prepared(backend)
    for gradient in (backend.tensor([1.0]), None):
        backend.set_grad(x, gradient)
        backend.step(optimizer)
        trace.expect_value(f"with {gradient}", [4.0], x)


@rule(
    "zero-grad.hooks",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("zero_grad runs no hook")],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["zero-grad-runs-tensor-hooks", "zero-grad-that-sets-to-none-runs-tensor-hooks"],
)
def test_no_hooks(backend: Backend, trace: Trace) -> None:
    """An optimizer's zero_grad may reset gradients without running any tensor hook."""
    runs_none(backend, trace, lambda x: backend.register_hook(x, trace.saw("hook")))


@rule(
    "zero-grad.hooks.post-accumulate",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("zero_grad runs no hook")],
    needs=[*NEEDS, Capability.POST_ACCUMULATE],
    mutants=[
        "zero-grad-runs-post-accumulate-hooks",
        "zero-grad-that-writes-zeros-runs-post-accumulate-hooks",
    ],
)
def test_no_post_accumulate_hooks(backend: Backend, trace: Trace) -> None:
    """An optimizer's zero_grad may reset gradients without running any post-accumulate-grad hook."""
    runs_none(backend, trace, lambda x: backend.register_post_accumulate_grad_hook(x, lambda _: trace.log("hook")))


def runs_none(backend: Backend, trace: Trace, register: Callable[[Any], Any]) -> None:
    """Expect zero_grad to run no hook that is registered on one of three parameters, with each option."""
    parameters = [backend.tensor([5.0], requires_grad=True) for _ in range(3)]
    optimizer = backend.sgd(parameters, lr=1.0)
    for x in parameters:
        register(x)
    for options in ({"set_to_none": False}, {}, {"set_to_none": True}, {"set_to_none": False}):
        for x in parameters:
            backend.set_grad(x, backend.tensor([1.0]))

        backend.zero_grad(optimizer, **options)

        trace.expect()


@rule(
    "optim.global-hooks.order",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("global pre-hooks come first, global post-hooks last")],
    needs=NEEDS,
    mutants=[
        "global-step-pre-hooks-after-others-in-later-steps",
        "later-global-step-pre-hooks-after-others",
        "own-step-post-hooks-last-in-later-steps",
    ],
)
def test_order_of_global_hooks(backend: Backend, trace: Trace) -> None:
    """A global step pre-hook runs before the pre-hooks of the optimizer, a global step post-hook after its own."""

    def register_own(optimizer):
        backend.register_step_pre_hook(optimizer, lambda *_: trace.log("own pre-hook"))
        backend.register_step_post_hook(optimizer, lambda *_: trace.log("own post-hook"))

    def register_global():
        return [
            backend.register_optimizer_step_pre_hook(lambda *_: trace.log("global pre-hook")),
            backend.register_optimizer_step_post_hook(lambda *_: trace.log("global post-hook")),
        ]

    hooks = ["global pre-hook", "own pre-hook", "own post-hook", "global post-hook"]
    (_, earlier), (_, later) = prepared(backend), prepared(backend)
    register_own(earlier)
    handles = register_global()
    register_own(later)
    for optimizer in (earlier, later) * 3:
        backend.step(optimizer)
    trace.expect(*hooks * 6)

    for optimizer in (earlier, later):
        register_own(optimizer)
    handles += register_global()
    for optimizer in (earlier, later):
        backend.step(optimizer)
    for handle in handles:
        handle.remove()

    trace.expect(*[hook for hook in hooks for _ in range(2)] * 2)
