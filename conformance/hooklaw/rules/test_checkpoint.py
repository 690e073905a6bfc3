"""Checkpoints, which are recomputed in backward: their gradients, and the hooks that run in them."""

from typing import Any

from hooklaw import Backend, Capability, ErrorKind, Level, Trace, docstring, rule

CHECKPOINT = docstring("torch.utils.checkpoint.checkpoint")
EARLY_STOP = docstring("torch.utils.checkpoint.set_checkpoint_early_stop")
NEEDS = [Capability.CHECKPOINT]
KINDS = {"reentrant": True, "non-reentrant": False}


def leaf(backend: Backend) -> Any:
    """Make an input of a checkpoint."""
    return backend.tensor([1.0, 2.0], requires_grad=True)


def region(backend: Backend, fn: Any, **how: Any) -> Any:
    """Return a forward that sums the result of a checkpoint."""
    return lambda x: backend.sum(backend.checkpoint(fn, x, **how))


@rule(
    "checkpoint.nonreentrant.grads",
    level=Level.MUST,
    sources=[CHECKPOINT],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD, Capability.BACKWARD_INPUTS],
    mutants=["checkpoint-is-reentrant"],
)
def test_every_kind_of_backward(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint has the right gradients in autograd.grad and in a backward with inputs too."""
    x, forward = leaf(backend), region(backend, lambda x: x * x * x, use_reentrant=False)

    trace.expect_value("autograd.grad", [[3.0, 12.0]], backend.grad(backend.call(forward, x), [x]))
    backend.backward(backend.call(forward, x), inputs=[x])
    trace.expect_value("backward with inputs", [3.0, 12.0], backend.grad_of(x))
    backend.backward(backend.call(forward, x))
    trace.expect_value("and once more", [6.0, 24.0], backend.grad_of(x))


@rule(
    "checkpoint.reentrant.grad-error",
    level=Level.MUST,
    sources=[CHECKPOINT],
    needs=[*NEEDS, Capability.AUTOGRAD_GRAD],
    mutants=["checkpoint-is-never-reentrant"],
)
def test_reentrant(backend: Backend, trace: Trace) -> None:
    """autograd.grad through a reentrant checkpoint is an error."""
    x, forward = leaf(backend), region(backend, lambda x: x * x, use_reentrant=True)

    backend.backward(backend.call(forward, x))
    trace.expect_value("x.grad", [2.0, 4.0], backend.grad_of(x))
    loss = backend.call(forward, x)
    with trace.raises(ErrorKind.CHECKPOINT_REENTRANT):
        backend.grad(loss, [x])


@rule(
    "checkpoint.use-reentrant-required",
    level=Level.MUST,
    sources=[CHECKPOINT],
    needs=NEEDS,
    mutants=["checkpoint-is-never-reentrant"],
)
def test_kind_required(backend: Backend, trace: Trace) -> None:
    """A checkpoint without use_reentrant is an error."""
    with trace.raises(ErrorKind.CHECKPOINT_KIND):
        backend.call(region(backend, lambda x: x * x), leaf(backend))


@rule(
    "checkpoint.forward-hooks-recomputed",
    level=Level.MUST,
    sources=[CHECKPOINT],
    needs=[*NEEDS, Capability.MODULES],
    mutants=["checkpoint-keeps-everything"],
)
def test_forward_hooks(backend: Backend, trace: Trace) -> None:
    """Forward hooks of a module in a checkpoint run in forward, and again when backward recomputes it."""
    for kind, use_reentrant in KINDS.items():
        module = backend.module({}, lambda _module, x: x * x)
        backend.register_forward_hook(module, lambda *_, kind=kind: trace.log(f"hook, {kind}"))

        loss = backend.call(
            region(backend, lambda x, module=module: module(x) * x, use_reentrant=use_reentrant), leaf(backend)
        )
        trace.expect(f"hook, {kind}")
        backend.backward(loss)
        trace.expect(f"hook, {kind}")


@rule(
    "checkpoint.early-stop",
    level=Level.MUST,
    sources=[CHECKPOINT, EARLY_STOP],
    needs=NEEDS,
    mutants=["checkpoint-recomputes-everything", "checkpoint-is-reentrant"],
)
def test_early_stop(backend: Backend, trace: Trace) -> None:
    """Recomputing a non-reentrant checkpoint stops when every needed tensor is there, unless early_stop=False."""

    def fn(x):
        y = x * x
        trace.log("after the last operation that saves")
        return y

    for early_stop, expected in ((True, 1), (False, 2)):
        before = trace.count("after the last operation that saves")
        forward = region(backend, fn, use_reentrant=False, early_stop=early_stop)
        backend.backward(backend.call(forward, leaf(backend)))
        seen = trace.count("after the last operation that saves") - before

        trace.expect_value(f"with early_stop {early_stop}, times", expected, seen)


@rule(
    "checkpoint.determinism",
    level=Level.MUST,
    sources=[CHECKPOINT],
    needs=NEEDS,
    mutants=["recomputation-unchecked"],
)
def test_other_shapes(backend: Backend, trace: Trace) -> None:
    """A non-reentrant checkpoint whose recomputed tensors have other shapes than the saved ones is an error."""
    calls: list[int] = []

    def fn(x):
        calls.append(0)
        y = x * x if len(calls) == 1 else backend.sum(x) * backend.sum(x)
        return backend.exp(y)

    loss = backend.call(region(backend, fn, use_reentrant=False), leaf(backend))

    with trace.raises(ErrorKind.CHECKPOINT_MISMATCH):
        backend.backward(loss)


@rule(
    "checkpoint.tensor-hooks-inside",
    level=Level.MAY,
    sources=[CHECKPOINT],
    needs=[*NEEDS, Capability.TENSOR_HOOKS],
    mutants=["checkpoint-is-reentrant"],
)
def test_tensor_hook_inside(backend: Backend, trace: Trace) -> None:
    """A hook on a tensor inside a non-reentrant checkpoint may run once, as registered in forward."""
    graphs: list[int] = []

    def fn(x):
        graphs.append(len(graphs) + 1)
        y = x * x
        backend.register_hook(y, lambda _grad, nr=graphs[-1]: trace.log("hook of graph", nr))
        return y * x

    backend.backward(backend.call(region(backend, fn, use_reentrant=False), leaf(backend)))

    trace.expect(("hook of graph", 1))


@rule(
    "checkpoint.full-backward-hook",
    level=Level.MAY,
    sources=[CHECKPOINT],
    needs=[*NEEDS, Capability.MODULES, Capability.MODULE_BACKWARD_HOOKS],
)
def test_backward_hook_inside(backend: Backend, trace: Trace) -> None:
    """A full backward hook of a module in a checkpoint, reentrant or not, may run once in a backward."""
    for kind, use_reentrant in KINDS.items():
        module = backend.module({}, lambda _module, x: x * x)
        backend.register_full_backward_hook(module, lambda *_, kind=kind: trace.log(f"hook, {kind}"))
        forward = region(backend, lambda x, module=module: module(x) * x, use_reentrant=use_reentrant)
        backend.backward(backend.call(forward, leaf(backend)))

    trace.expect(*(f"hook, {kind}" for kind in KINDS))


@rule(
    "checkpoint.saved-hooks-outside",
    level=Level.MAY,
    sources=[CHECKPOINT],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    mutants=["checkpoint-keeps-everything"],
)
def test_pair_outside(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks around a checkpoint may pack its inputs, but not the tensors saved inside."""
    x = leaf(backend)
    with backend.saved_tensors_hooks(trace.saw("pack", lambda t: t), trace.saw("unpack", lambda t: t)):
        loss = backend.call(region(backend, lambda x: backend.exp(x * x), use_reentrant=False), x)
    backend.backward(loss)

    trace.expect(("pack", [1.0, 2.0]), ("unpack", [1.0, 2.0]))


@rule(
    "checkpoint.saved-hooks-inside",
    level=Level.MAY,
    sources=[CHECKPOINT],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    mutants=["pairs-ignored-in-a-region"],
)
def test_pair_inside(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks inside a checkpoint may pack the tensors saved there, with the right gradients."""

    def fn(x):
        with backend.saved_tensors_hooks(trace.saw("pack", lambda t: t), trace.saw("unpack", lambda t: t)):
            return x * x * x

    x = leaf(backend)
    loss = backend.call(region(backend, fn, use_reentrant=False), x)
    backend.backward(loss)

    trace.expect_value("packed and unpacked", expected=True, observed=trace.count("pack") >= trace.count("unpack") > 0)
    trace.expect_value("x.grad", [3.0, 12.0], backend.grad_of(x))


@rule(
    "checkpoint.disabled-hooks",
    level=Level.MAY,
    sources=[docstring("torch.autograd.graph.disable_saved_tensors_hooks")],
    needs=[*NEEDS, Capability.DISABLE_SAVED_TENSOR_HOOKS],
    mutants=["checkpoint-is-reentrant", "checkpoint-keeps-everything"],
)
def test_disabled(backend: Backend, trace: Trace) -> None:
    """Inside disable_saved_tensors_hooks a non-reentrant checkpoint may be an error with the given message."""
    with (
        backend.disable_saved_tensors_hooks("no hooks here"),
        trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, "no hooks here"),
    ):
        backend.call(region(backend, lambda x: x * x, use_reentrant=False), leaf(backend))
