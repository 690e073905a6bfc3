"""Hooks that a function registers on its own arguments, and their handles; functions and modules called again.

A mode may compile the function; what it registers must be as if it were not compiled.
"""

from typing import Any

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule

REGISTER_HOOK = docstring("torch.Tensor.register_hook")
POST_ACCUMULATE = docstring("torch.Tensor.register_post_accumulate_grad_hook")
NEEDS = [Capability.TENSOR_HOOKS]


def leaf(backend: Backend) -> Any:
    """Make a leaf."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


@rule(
    "tensor-hook.register.on-argument",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2, 4)],
    needs=NEEDS,
    mutants=["hooks-on-arguments-ignored", "hooks-on-an-argument-given-twice-run-once"],
)
def test_on_argument(backend: Backend, trace: Trace) -> None:
    """A hook that a function registers on its argument runs in backward, and replaces the gradient.

    The docstring promises it of every hook, wherever it is registered.
    """

    def forward(x, y):
        backend.register_hook(x, trace.saw("first", lambda grad: grad * 10))
        backend.register_hook(y, trace.saw("second", lambda grad: grad * 20))
        return backend.sum(x * 3) + backend.sum(y * 5)

    x, y = leaf(backend), leaf(backend)
    backend.backward(backend.call(forward, x, y * 2))

    trace.expect_in_any_order("first", "second")
    trace.expect_value("gradients", [[30.0, 30.0], [200.0, 200.0]], [backend.grad_of(x), backend.grad_of(y)])

    x = leaf(backend)
    backend.backward(backend.call(forward, x, x))
    trace.expect(("first", [8.0, 8.0]), ("second", [80.0, 80.0]))
    trace.expect_value("x.grad, given twice", [1600.0, 1600.0], backend.grad_of(x))


@rule(
    "tensor-hook.register.on-argument.returned",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=[*NEEDS, Capability.SEED_GRADIENT],
    mutants=["hooks-on-arguments-ignored", "hooks-on-non-leaves-that-are-returned-ignored"],
)
def test_returned(backend: Backend, trace: Trace) -> None:
    """A hook that a function registers on an argument that it returns runs in a backward from this result."""

    def forward(x, y):
        backend.register_hook(x, trace.saw("hook", lambda grad: grad * 10))
        return x, y * y

    for label, given in (("a leaf", lambda x: x), ("a non-leaf", lambda x: x * 1)):
        x = leaf(backend)
        same, _ = backend.call(forward, given(x), backend.tensor([3.0, 5.0]))
        backend.backward(same, backend.tensor([1.0, 2.0]))

        trace.expect(("hook", [1.0, 2.0]))
        trace.expect_value(f"x.grad, {label}", [10.0, 20.0], backend.grad_of(x))


@rule(
    "tensor-hook.register.on-argument.several",
    level=Level.MUST,
    sources=[
        notes("autograd", "the-order-in-which-the-different-hooks-are-fired").sentence(8, 9),
        REGISTER_HOOK.sentence(4),
    ],
    needs=NEEDS,
    mutants=["hooks-on-arguments-ignored", "hooks-on-arguments-replace-each-other"],
)
def test_several(backend: Backend, trace: Trace) -> None:
    """All hooks that a function registers on one of its arguments run, each with the result of the one before.

    The notes give the order of registration; the docstring says that each may replace the gradient.
    """

    def forward(x):
        backend.register_hook(x, trace.saw("first", lambda grad: grad * 10))
        y = x * 3
        backend.register_hook(x, trace.saw("second", lambda grad: grad + 1))
        return backend.sum(y)

    x = leaf(backend)
    backend.backward(backend.call(forward, x))

    trace.expect(("first", [3.0, 3.0]), ("second", [30.0, 30.0]))
    trace.expect_value("x.grad", [31.0, 31.0], backend.grad_of(x))


@rule(
    "tensor-hook.register.on-argument.closure",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=NEEDS,
    mutants=["hooks-on-arguments-ignored", "calls-repeat-the-hooks-of-the-first"],
)
def test_closure(backend: Backend, trace: Trace) -> None:
    """A hook that a function registers on its argument may use what the function computed, in each of its calls."""

    def forward(x, factor):
        tenfold = factor * 10

        def inner(grad):
            return grad * tenfold

        def hook(grad):
            trace.log("hook", grad)
            return inner(grad)

        backend.register_hook(x, hook)
        return backend.sum(x * 3)

    for number in (1.0, 2.0):
        x = leaf(backend)
        backend.backward(backend.call(forward, x, backend.tensor([number, number])))

        trace.expect(("hook", [3.0, 3.0]))
        trace.expect_value("x.grad", [30.0 * number] * 2, backend.grad_of(x))


@rule(
    "tensor-hook.register.on-argument.each-call",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(2)],
    needs=NEEDS,
    mutants=[
        "hooks-on-arguments-ignored",
        "calls-repeat-the-hooks-of-the-first",
        "calls-remove-the-hooks-of-earlier-calls",
    ],
)
def test_each_call(backend: Backend, trace: Trace) -> None:
    """Each call of a function registers the hook that the function has at that call, beside those of earlier calls."""
    hooks = {"first": lambda grad: grad * 2, "second": lambda grad: grad * 4}
    label = ""

    def forward(x):
        backend.register_hook(x, trace.saw(label, hooks[label]))
        return backend.sum(x * 3)

    x = leaf(backend)
    registered = []
    for label, gradient in (("first", 6.0), ("second", 24.0), ("first", 48.0)):
        registered.append(label)
        backend.set_grad(x, None)
        backend.backward(backend.call(forward, x))

        trace.expect(*registered)
        trace.expect_value("x.grad", [gradient, gradient], backend.grad_of(x))


@rule(
    "post-acc.register.on-argument",
    level=Level.MUST,
    sources=[POST_ACCUMULATE.sentence(2, 8)],
    needs=[Capability.POST_ACCUMULATE],
    mutants=[
        "hooks-on-arguments-ignored",
        "calls-remove-the-hooks-of-earlier-calls",
        "post-accumulate-handles-made-in-a-call-remove-nothing",
        "post-accumulate-handles-of-a-call-remove-nothing-after-it",
    ],
)
def test_post_accumulate(backend: Backend, trace: Trace) -> None:
    """A post-accumulate-grad hook that a function registers on its argument runs after accumulation, until removed."""

    def forward(x, y):
        backend.register_post_accumulate_grad_hook(x, trace.saw("removed")).remove()
        backend.register_post_accumulate_grad_hook(x, lambda owner: trace.log("first", backend.grad_of(owner)))
        backend.register_post_accumulate_grad_hook(y, lambda owner: trace.log("second", backend.grad_of(owner)))
        return backend.sum(x * 3) + backend.sum(y * 5)

    x, y = leaf(backend), leaf(backend)
    for call in (1, 2):
        backend.backward(backend.call(forward, x, y))

        trace.expect_in_any_order(*["first", "second"] * call)

    seen = [trace.values(label) for label in ("first", "second")]
    trace.expect_value("gradients", [[[3.0, 3.0], *[[6.0, 6.0]] * 2], [[5.0, 5.0], *[[10.0, 10.0]] * 2]], seen)
    trace.clear()

    handles: list[Any] = []

    def keeps(x):
        handles.append(backend.register_post_accumulate_grad_hook(x, trace.saw("kept")))
        return backend.sum(x * 3)

    x = leaf(backend)
    backend.backward(backend.call(keeps, x))
    trace.expect("kept")
    handles.pop().remove()
    backend.backward(backend.sum(x * 3))
    trace.expect()


@rule(
    "tensor-hook.handle.in-forward",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(5)],
    needs=NEEDS,
    mutants=["handles-made-in-a-call-remove-nothing", "handles-made-in-a-call-remove-the-oldest"],
)
def test_removed_inside(backend: Backend, trace: Trace) -> None:
    """A function may remove a hook that it registered on its argument, and register another hook."""

    def forward(x):
        backend.register_hook(x, trace.saw("older"))
        handle = backend.register_hook(x, trace.saw("removed"))
        y = x * 3
        handle.remove()
        backend.register_hook(x, trace.saw("hook", lambda grad: grad * 10))
        return backend.sum(y)

    for label, given in (("a leaf", lambda x: x), ("a non-leaf", lambda x: x * 1)):
        x = leaf(backend)
        backend.backward(backend.call(forward, given(x)))

        trace.expect("older", ("hook", [3.0, 3.0]))
        trace.expect_value(f"x.grad, {label}", [30.0, 30.0], backend.grad_of(x))


@rule(
    "tensor-hook.handle.in-forward.twice",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("a second remove does nothing")],
    needs=NEEDS,
    mutants=["second-remove-raises"],
)
def test_removed_twice_inside(backend: Backend, trace: Trace) -> None:
    """A function may remove twice a hook that it registered on its argument; its other hooks still run."""

    def forward(x):
        handle = backend.register_hook(x, trace.saw("removed"))
        backend.register_hook(x, trace.saw("hook"))
        y = x * 3
        for _ in range(2):
            handle.remove()
        return backend.sum(y)

    backend.backward(backend.call(forward, leaf(backend)))

    trace.expect(("hook", [3.0, 3.0]))


@rule(
    "tensor-hook.handle.in-forward.returned",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(5)],
    needs=NEEDS,
    mutants=["handles-made-in-a-call-remove-nothing", "handles-made-in-a-call-remove-the-oldest"],
)
def test_handle_returned(backend: Backend, trace: Trace) -> None:
    """Handles that a function returns remove the hooks that it registered on its argument, each its own."""

    def forward(x):
        handles = [backend.register_hook(x, trace.saw(label)) for label in ("first", "second")]
        return backend.sum(x * 3), *handles, handles[0]

    x = leaf(backend)
    loss, first, second, same = backend.call(forward, x)
    trace.expect_value("one handle returned twice", expected=True, observed=first is same)
    backend.backward(loss)
    trace.expect("first", "second")

    for handle, left in ((second, ["first"]), (first, [])):
        handle.remove()
        backend.backward(backend.sum(x * 3))
        trace.expect(*left)


@rule(
    "tensor-hook.handle.in-forward.kept",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(5)],
    needs=NEEDS,
    mutants=[
        "handles-made-in-a-call-remove-nothing",
        "handles-made-in-a-call-remove-the-oldest",
        "handles-on-non-leaves-remove-nothing-after-their-call",
    ],
)
def test_handle_kept(backend: Backend, trace: Trace) -> None:
    """A handle that a function leaves in a list of its caller removes the hook registered on the argument."""
    handles: list[Any] = []

    def forward(x):
        backend.register_hook(x, trace.saw("stays"))
        handles.append(backend.register_hook(x, trace.saw("hook")))
        return backend.sum(x * 3)

    x = leaf(backend)
    backend.backward(backend.call(forward, x))
    trace.expect("stays", "hook")

    handles.pop().remove()
    backend.backward(backend.sum(x * 3))
    trace.expect("stays")

    loss = backend.call(forward, leaf(backend) * 1)
    handles.pop().remove()
    backend.backward(loss)
    trace.expect("stays")


@rule(
    "module.forward.register-between-calls",
    level=Level.MUST,
    sources=[
        docstring("torch.nn.Module.register_forward_hook").sentence(2, 19),
        docstring("torch.nn.Module.register_forward_pre_hook").sentence(2, 19),
    ],
    needs=[Capability.MODULES],
    mutants=["forward-hooks-after-the-first-call-ignored", "forward-hooks-beside-earlier-ones-ignored"],
)
def test_between_calls(backend: Backend, trace: Trace) -> None:
    """A forward hook or pre-hook registered after a call of a module runs in the next call, and not once removed.

    The docstrings say that a hook runs every time, and that its handle removes it; a call before changes neither.
    """
    module = backend.module({}, lambda _module, x: x * 3)
    x = backend.tensor([1.0, 2.0])

    def forward(x):
        return module(x)

    trace.expect_value("without hooks", [3.0, 6.0], backend.call(forward, x))
    handles = []
    for number, output in ((1, [60.0, 90.0]), (2, [900.0, 1200.0])):
        handles += [
            backend.register_forward_pre_hook(module, trace.saw("pre-hook", lambda _, args: (args[0] + 1,))),
            backend.register_forward_hook(module, trace.saw("hook", lambda _, _args, output: output * 10)),
        ]
        trace.expect_value("with hooks", output, backend.call(forward, x))
        trace.expect(*["pre-hook"] * number, *["hook"] * number)
    for handle in handles:
        handle.remove()
    trace.expect_value("once removed", [3.0, 6.0], backend.call(forward, x))
    trace.expect()
