"""Handles: which hook `remove` removes, and when."""

import weakref
from contextlib import suppress

from hooklaw import Backend, Basis, Capability, Level, Trace, docstring, observed, rule

REGISTER_HOOK = docstring("torch.Tensor.register_hook")


@rule(
    "tensor-hook.handle.remove",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(5)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "tensor-hook-handle-removes-nothing",
        "tensor-hook-handle-removes-all",
        "tensor-hook-handle-skips-one-call",
        "tensor-hook-handle-removes-the-oldest",
        "tensor-hook-handle-removes-the-newest",
        "handle-of-a-non-leaf-removes-the-oldest-hook",
    ],
)
def test_remove(backend: Backend, trace: Trace) -> None:
    """After a handle's remove, its own hook is called in no later backward, and all other hooks still are."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    backend.register_hook(x, trace.saw("older"))
    handle = backend.register_hook(x, trace.saw("removed", lambda grad: grad * 10))
    backend.register_hook(x, trace.saw("newer"))
    backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
    trace.expect(("older", [2.0, 2.0]), ("removed", [2.0, 2.0]), ("newer", [20.0, 20.0]))

    handle.remove()
    for _ in range(2):
        backend.set_grad(x, None)
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

        trace.expect(("older", [2.0, 2.0]), ("newer", [2.0, 2.0]))
        trace.expect_value("x.grad", [2.0, 2.0], backend.grad_of(x))

    y = backend.call(lambda x: x * 2, backend.tensor([1.0, 2.0], requires_grad=True))
    handles = [backend.register_hook(y, trace.saw(f"non-leaf {label}")) for label in ("older", "removed", "newer")]
    handles[1].remove()
    backend.backward(backend.call(lambda y: backend.sum(y * 3), y))

    trace.expect(("non-leaf older", [3.0, 3.0]), ("non-leaf newer", [3.0, 3.0]))


@rule(
    "tensor-hook.handle.remove-after-graph",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(5)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "tensor-hook-handle-removes-nothing",
        "tensor-hooks-frozen-at-forward",
        "hooks-of-used-leaves-not-removed",
        "hooks-of-freed-tensors-stay",
    ],
)
def test_remove_after_graph(backend: Backend, trace: Trace) -> None:
    """A hook removed after the graph was built is not called when that graph runs."""
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    handles = [backend.register_hook(x, trace.saw("leaf, from before its use"))]
    y = backend.call(lambda x: x * 2, x)
    handles += [backend.register_hook(x, trace.saw("leaf")), backend.register_hook(y, trace.saw("non-leaf"))]
    loss = backend.call(lambda y: backend.sum(y * 3), y)
    for handle in handles:
        handle.remove()
    backend.backward(loss)

    trace.expect()

    y = backend.call(lambda x: x * 2, x)
    handle = backend.register_hook(y, trace.saw("non-leaf that is gone"))
    loss = backend.call(lambda y: backend.sum(y * 3), y)
    del y
    handle.remove()
    backend.backward(loss)

    trace.expect()


@rule(
    "tensor-hook.handle.remove-during-backward",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(5)],
    needs=[Capability.TENSOR_HOOKS, Capability.RETAIN_GRAPH],
    mutants=[
        "tensor-hook-handle-removes-nothing",
        "tensor-hook-handle-removes-the-oldest",
        "hooks-of-non-leaves-cannot-remove-themselves",
    ],
)
def test_remove_itself(backend: Backend, trace: Trace) -> None:
    """A hook that removes itself while it runs is called in no later backward, and all other hooks still are.

    The docstring says that the handle's remove removes the hook, and excepts no moment.
    """

    def hook(_):
        trace.log("once")
        handle.remove()

    for is_leaf in (True, False):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        tensor = x if is_leaf else backend.call(lambda x: x * 2, x)
        backend.register_hook(tensor, trace.saw("older"))
        handle = backend.register_hook(tensor, hook)
        backend.register_hook(tensor, trace.saw("newer"))
        loss = backend.call(lambda tensor: backend.sum(tensor * 2), tensor)

        backend.backward(loss, retain_graph=True)
        trace.expect("older", "once", "newer")

        for _ in range(2):
            backend.backward(loss, retain_graph=True)
            trace.expect("older", "newer")


@rule(
    "tensor-hook.handle.remove-before-reached",
    level=Level.MUST,
    sources=[REGISTER_HOOK.sentence(5)],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["removal-waits-for-the-end-of-the-pass"],
)
def test_remove_before_reached(backend: Backend, trace: Trace) -> None:
    """A hook removed during a backward that has not reached its tensor yet is not called in that backward.

    The docstring says that the handle's remove removes the hook, and excepts no moment.
    """
    x = backend.tensor([1.0, 2.0], requires_grad=True)
    y = backend.call(lambda x: x * 2, x)
    handles = [backend.register_hook(x, trace.saw("x")), backend.register_hook(y, trace.saw("y"))]

    def hook(_):
        trace.log("z")
        for handle in handles:
            handle.remove()

    def forward(y):
        z = y * 3
        backend.register_hook(z, hook)
        return backend.sum(z)

    backend.backward(backend.call(forward, y))

    trace.expect("z")


@rule(
    "handle.remove.idempotent",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[docstring("torch.utils.hooks.RemovableHandle"), observed("a second remove does nothing")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "second-remove-raises",
        "third-remove-raises",
        "remove-looks-for-an-equal-hook",
        "second-remove-on-a-non-leaf-raises",
        "second-remove-removes-the-hook-before",
    ],
)
def test_remove_twice(backend: Backend, trace: Trace) -> None:
    """Calling a handle's remove again raises nothing and removes nothing else."""
    for non_leaf in (False, True):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        if non_leaf:
            x = backend.call(lambda x: x * 2, x)
        hook = trace.saw("hook")
        backend.register_hook(x, trace.saw("older"))
        handle = backend.register_hook(x, hook)
        for kept in (hook, trace.saw("another")):
            backend.register_hook(x, kept)
        handle.remove()
        for _ in range(2):
            _remove(handle, trace)
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))

        trace.expect("older", "hook", "another")


@rule(
    "handle.ids.unique",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[docstring("torch.utils.hooks.RemovableHandle"), observed("ids only grow")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=[
        "handle-ids-reused",
        "handle-ids-of-non-leaves-reused",
        "second-remove-removes-the-next-of-another-tensor",
        "remove-looks-for-an-equal-hook",
    ],
)
def test_handle_names_its_own_hook(backend: Backend, trace: Trace) -> None:
    """A handle always belongs to its own hook: after its remove, it never removes a hook that is registered later."""
    for non_leaf in (False, True):
        x, other = (backend.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        if non_leaf:
            x = backend.call(lambda x: x * 2, x)
        first = trace.saw("first")
        used_up = backend.register_hook(x, first)
        used_up.remove()
        backend.register_hook(other, trace.saw("of another tensor"))
        backend.register_hook(x, trace.saw("second"))
        backend.register_hook(x, first)
        _remove(used_up, trace)
        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
        backend.backward(backend.call(lambda other: backend.sum(other * 2), other))

        trace.expect("second", "first", "of another tensor")


@rule(
    "handle.remove.after-tensor-freed",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[docstring("torch.utils.hooks.RemovableHandle"), observed("a handle refers to its tensor only weakly")],
    needs=[Capability.TENSOR_HOOKS, Capability.WEAK_REFERENCES],
    mutants=["handle-keeps-its-tensor", "late-remove-raises"],
)
def test_remove_after_tensor_freed(backend: Backend, trace: Trace) -> None:
    """A handle does not keep its tensor alive, and its remove raises nothing after the tensor was freed."""
    for non_leaf in (False, True):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        if non_leaf:
            x = backend.call(lambda x: x * 2, x)
        handle = backend.register_hook(x, trace.saw("hook"))
        freed = weakref.ref(x)
        del x

        trace.expect_value("tensor freed", expected=True, observed=freed() is None)
        _remove(handle, trace)


@rule(
    "handle.context-manager",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[docstring("torch.utils.hooks.RemovableHandle"), observed("leaving the block removes the hook")],
    needs=[Capability.TENSOR_HOOKS],
    mutants=["tensor-hook-handle-removes-nothing", "tensor-hook-handle-removes-the-oldest"],
)
def test_context_manager(backend: Backend, trace: Trace) -> None:
    """A handle may be used as a context manager that removes the hook at the end of the block, however it ends."""
    for fails in (False, True):
        x = backend.tensor([1.0, 2.0], requires_grad=True)
        backend.register_hook(x, trace.saw("older"))
        handle = backend.register_hook(x, trace.saw("hook"))
        trace.expect_value("is a context manager", expected=True, observed=hasattr(handle, "__exit__"))

        with suppress(KeyError), handle:
            backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
            trace.expect("older", "hook")
            if fails:
                raise KeyError

        backend.backward(backend.call(lambda x: backend.sum(x * 2), x))
        trace.expect("older")


def _remove(handle, trace: Trace) -> None:
    """Remove the hook; report an exception as the backend's failure, not as an error of the rule."""
    raised = "nothing"
    try:
        handle.remove()
    except Exception as error:  # noqa: BLE001 - any exception breaks the rule
        raised = type(error).__name__
    trace.expect_value("remove raises", "nothing", raised)
