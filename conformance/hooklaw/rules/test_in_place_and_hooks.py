"""Tensor hooks and in-place operations: which gradient a hook receives."""

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, notes, observed, rule

IN_PLACE = notes("autograd", "behavior-of-tensor-hooks-when-tensor-is-modified-in-place")
REGISTER_HOOK = docstring("torch.Tensor.register_hook")
HOOKS_IN_PLACE = (Capability.TENSOR_HOOKS, Capability.IN_PLACE)


@rule(
    "tensor-hook.inplace.before",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(2)],
    needs=HOOKS_IN_PLACE,
    mutants=["hook-follows-its-tensor"],
)
def test_before(backend: Backend, trace: Trace) -> None:
    """A hook registered before an in-place operation receives the gradient with respect to the value before it."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook"))
        backend.mul_(y, 3)
        return backend.sum(y * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("hook", [15.0, 15.0]))


@rule(
    "tensor-hook.inplace.after",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(1, 3)],
    needs=HOOKS_IN_PLACE,
    mutants=["hook-bound-to-the-first-grad-fn"],
)
def test_after(backend: Backend, trace: Trace) -> None:
    """A hook registered after every in-place operation receives the gradient with respect to the final value."""

    def forward(x):
        y = x * 2
        backend.mul_(y, 3)
        backend.mul_(y, 7)
        backend.register_hook(y, trace.saw("hook"))
        return backend.sum(y * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("hook", [5.0, 5.0]))


@rule(
    "tensor-hook.inplace.both",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(5)],
    needs=HOOKS_IN_PLACE,
    mutants=["hook-follows-its-tensor", "hook-bound-to-the-first-grad-fn"],
)
def test_both(backend: Backend, trace: Trace) -> None:
    """Hooks registered between in-place operations belong to different Nodes, so the newest fires first."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("before"))
        backend.mul_(y, 3)
        backend.register_hook(y, trace.saw("between"))
        backend.mul_(y, 5)
        backend.register_hook(y, trace.saw("after"))
        return backend.sum(y * 7)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("after", [7.0, 7.0]), ("between", [35.0, 35.0]), ("before", [105.0, 105.0]))


@rule(
    "tensor-hook.inplace.bound-to-grad-fn",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(5)],
    needs=[*HOOKS_IN_PLACE, Capability.AUTOGRAD_GRAD, Capability.RETAIN_GRAPH],
    mutants=["hook-follows-its-tensor", "hook-moves-to-the-in-place-operation"],
)
def test_bound_to_grad_fn(backend: Backend, trace: Trace) -> None:
    """A hook stays with the grad_fn its tensor had at registration, and fires only if backward reaches that Node."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("hook"))
        earlier = backend.sum(y * 7)
        return earlier, backend.mul_(y, 3)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    earlier, y = backend.call(forward, x)
    loss = backend.call(lambda y: backend.sum(y * 5), y)

    backend.grad(loss, [y], retain_graph=True)
    trace.expect()

    backend.grad(loss, [x], retain_graph=True)
    trace.expect(("hook", [15.0, 15.0]))

    backend.grad(earlier, [x], retain_graph=True)
    trace.expect(("hook", [7.0, 7.0]))
    backend.grad(loss + earlier, [x])
    trace.expect(("hook", [22.0, 22.0]))


@rule(
    "tensor-hook.inplace.handle",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(5), REGISTER_HOOK.sentence(5)],
    needs=HOOKS_IN_PLACE,
    mutants=[
        "handle-lost-after-in-place",
        "tensor-hook-handle-removes-the-oldest",
        "tensor-hook-handle-removes-the-newest",
    ],
)
def test_handle(backend: Backend, trace: Trace) -> None:
    """The handle of a hook registered before an in-place operation still removes this hook, and no other, after it."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    handles = [backend.register_hook(y, trace.saw(label)) for label in ("older", "removed", "newer")]
    z = backend.call(lambda y: backend.mul_(y, 3), y)
    backend.register_hook(z, trace.saw("after"))
    loss = backend.call(lambda z: backend.sum(z * 5), z)
    handles[1].remove()
    backend.backward(loss)

    trace.expect(("after", [5.0, 5.0]), ("older", [15.0, 15.0]), ("newer", [15.0, 15.0]))


@rule(
    "tensor-hook.inplace.replace",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(5), REGISTER_HOOK.sentence(4)],
    needs=HOOKS_IN_PLACE,
    mutants=["replacement-not-propagated", "replacement-applied-twice"],
)
def test_replace(backend: Backend, trace: Trace) -> None:
    """What a hook registered before an in-place operation returns goes, once, to the grad_fn at registration."""

    def forward(x):
        y = x * 2
        backend.register_hook(y, trace.saw("before", lambda grad: grad * 10))
        backend.mul_(y, 3)
        backend.register_hook(y, trace.saw("after"))
        return backend.sum(y * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("after", [5.0, 5.0]), ("before", [15.0, 15.0]))
    trace.expect_value("x.grad", [300.0, 300.0], backend.grad_of(x))


@rule(
    "tensor-hook.inplace.base-through-view",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(2)],
    needs=[*HOOKS_IN_PLACE, Capability.VIEWS],
    mutants=[
        "hook-follows-its-tensor",
        "base-keeps-the-gradient-of-what-was-overwritten",
        "changes-through-views-of-views-unrecorded",
    ],
)
def test_base_changed_through_view(backend: Backend, trace: Trace) -> None:
    """A hook registered before its tensor is changed through a view receives the gradient for the value before it."""

    def forward(x, view_of):
        base = x * 2
        backend.register_hook(base, trace.saw("before"))
        backend.mul_(view_of(base), 3)
        backend.register_hook(base, trace.saw("after"))
        return backend.sum(base * 5)

    for view_of in (
        lambda base: backend.view(base, 2, 1),
        lambda base: backend.view(backend.view(base, 2, 1), 1, 2),
    ):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.backward(backend.call(lambda x, view_of=view_of: forward(x, view_of), x))

        trace.expect(("after", [5.0, 5.0]), ("before", [15.0, 15.0]))


@rule(
    "tensor-hook.inplace.base-through-view.elements",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(2)],
    needs=[*HOOKS_IN_PLACE, Capability.VIEWS],
    mutants=["in-place-on-a-view-takes-the-wrong-region"],
    except_under={"bfloat16": "its numbers have more digits than bfloat16 holds"},
)
def test_elements_changed_through_view(backend: Backend, trace: Trace) -> None:
    """A hook registered before its tensor is changed through a transposed view gets each element's own gradient."""
    factors = backend.tensor([[2.0, 3.0], [5.0, 7.0]])
    weights = backend.tensor([[1.0, 10.0], [100.0, 1000.0]])

    def forward(x):
        base = x * 1
        backend.register_hook(base, trace.saw("hook"))
        backend.mul_(backend.transpose(base, 0, 1), factors)
        return backend.sum(base * weights)

    x = backend.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("hook", [[2.0, 50.0], [300.0, 7000.0]]))


@rule(
    "tensor-hook.inplace.view-before",
    level=Level.SHOULD,
    sources=[IN_PLACE.sentence(2)],
    needs=[*HOOKS_IN_PLACE, Capability.VIEWS],
    mutants=["hooks-of-views-dropped-by-in-place"],
)
def test_view_before(backend: Backend, trace: Trace) -> None:
    """A hook registered on a view before an in-place operation receives the gradient for the view's value before it.

    The documentation excepts no view from the rule for tensors, yet also says that such a hook stays with the old
    grad_fn, which an in-place operation on a view takes out of the graph: hence a SHOULD.
    """

    def forward(x):
        view = backend.view(x * 2, 2, 1)
        backend.register_hook(view, trace.saw("hook"))
        backend.mul_(view, 3)
        return backend.sum(view * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("hook", [[15.0], [15.0]]))


@rule(
    "tensor-hook.inplace.view-old-grad-fn",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[IN_PLACE, observed("the hook misses what goes through the base")],
    needs=[*HOOKS_IN_PLACE, Capability.VIEWS],
)
def test_view_old_grad_fn(backend: Backend, trace: Trace) -> None:
    """A hook registered on a view before an in-place operation may see only what earlier consumers of the view send."""

    def forward(x):
        view = backend.view(x * 2, 2, 1)
        backend.register_hook(view, trace.saw("hook"))
        earlier = view * 7
        backend.mul_(view, 3)
        return backend.sum(view * 5 + earlier)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("hook", [[7.0], [7.0]]))


@rule(
    "tensor-hook.inplace.view-after-alias",
    level=Level.MUST,
    sources=[IN_PLACE.sentence(1)],
    needs=[Capability.TENSOR_HOOKS, Capability.IN_PLACE, Capability.VIEWS],
    mutants=["view-keeps-its-old-history"],
)
def test_after_alias(backend: Backend, trace: Trace) -> None:
    """A hook registered on a view after its data changed through another view receives the gradient for the new value.

    The hook is the first thing that asks for the view's history after the change.
    """

    def forward(x):
        base = x * 2
        view = backend.view(base, 2)
        backend.mul_(backend.view(base, 2, 1), 3)
        backend.register_hook(view, trace.saw("hook"))
        return backend.sum(view * 5)

    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.backward(backend.call(forward, x))

    trace.expect(("hook", [5.0, 5.0]))
    trace.expect_value("x.grad", [30.0, 30.0], backend.grad_of(x))
