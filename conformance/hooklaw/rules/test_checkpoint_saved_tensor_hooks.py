"""Saved-tensor hooks and checkpoints: pairs inside, around forward and around backward, and disabled hooks."""

from itertools import product
from typing import Any

from hooklaw import Backend, Basis, Capability, ErrorKind, Level, Trace, docstring, observed, rule
from hooklaw.rules.checkpoints import CHECKPOINT, KINDS, NEEDS, leaf, region
from hooklaw.rules.hooks import UserError

HOOKS = docstring("torch.autograd.graph.saved_tensors_hooks")
MESSAGE = "from the checkpointed function"


@rule(
    "checkpoint.saved-hooks-inside.grads",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(6), HOOKS.sentence(11)],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    mutants=["unpack-hook-doubled-made-in-a-checkpoint"],
)
def test_gradients_with_a_pair_inside(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks inside a checkpoint, reentrant or not, leave the gradients as they are without hooks."""
    for kind, use_reentrant in KINDS.items():

        def fn(x):
            with backend.saved_tensors_hooks(lambda t: [backend.detach(t)], lambda packed: packed[0]):
                y = backend.exp(x * x)
            return y * x

        x, plain = leaf(backend), leaf(backend)
        backend.backward(backend.call(region(backend, fn, use_reentrant=use_reentrant), x))
        backend.backward(backend.sum(backend.exp(plain * plain) * plain))

        trace.expect_value(f"x.grad, {kind}", backend.grad_of(plain), backend.grad_of(x))


@rule(
    "checkpoint.saved-hooks-inside",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("forward packs with the pair inside, and backward unpacks with it and recomputes nothing")],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    mutants=["pairs-ignored-in-a-region"],
)
def test_pair_inside(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks inside a non-reentrant checkpoint may pack and unpack all that is saved there, only once."""

    def fn(x):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), trace.saw("unpack", lambda t: t)):
            return backend.exp(backend.exp(x))

    loss = backend.call(region(backend, fn, use_reentrant=False), leaf(backend))
    trace.log("forward done")
    backend.backward(loss)

    trace.expect("pack", "pack", "forward done", "unpack", "unpack")


@rule(
    "checkpoint.saved-hooks-outside",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a checkpoint saves its inputs as an operation does, and packs nothing else outside itself")],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    mutants=["checkpoint-recomputes-nothing", "checkpoint-packs-its-first-input-alone"],
)
def test_pair_outside(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks around a checkpoint, reentrant or not, may pack its inputs, but not what is saved inside."""
    for use_reentrant, size in product(KINDS.values(), (1, 2)):
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), trace.saw("unpack", lambda t: t)):
            z = backend.call(
                lambda *inputs, kind=use_reentrant: backend.checkpoint(
                    lambda *given: backend.exp(given[0] * given[-1]), *inputs, use_reentrant=kind
                ),
                *[leaf(backend) for _ in range(size)],
            )
        backend.backward(backend.sum(z))

        trace.expect(*[("pack", [1.0, 2.0])] * size, *[("unpack", [1.0, 2.0])] * size)


@rule(
    "checkpoint.saved-hooks-around-backward",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the recomputation of a reentrant checkpoint saves inside the context around backward"), HOOKS],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    mutants=["checkpoint-use-reentrant-always-false", "one-save-of-a-recomputation-packed-around-backward"],
)
def test_pair_around_backward(backend: Backend, trace: Trace) -> None:
    """Saved-tensor hooks around a backward pack and unpack what the recomputation of a reentrant checkpoint saves."""
    for times in (1, 2, 3):
        x, plain = leaf(backend), leaf(backend)

        def fn(x, times=times):
            return sum((backend.exp(x) for _ in range(times - 1)), backend.exp(x))

        loss = backend.call(region(backend, fn, use_reentrant=True), x)
        with backend.saved_tensors_hooks(trace.saw("pack", backend.detach), trace.saw("unpack", lambda t: t * 10)):
            backend.backward(loss)

        trace.expect(*["pack"] * times, *["unpack"] * times)
        backend.backward(backend.sum(fn(plain) * 10))
        trace.expect_value("x.grad", backend.grad_of(plain), backend.grad_of(x))


@rule(
    "checkpoint.disabled-hooks",
    level=Level.MAY,
    basis=Basis.OBSERVED,
    sources=[observed("a non-reentrant checkpoint is itself made of saved-tensor hooks")],
    needs=[*NEEDS, Capability.DISABLE_SAVED_TENSOR_HOOKS],
    mutants=["checkpoint-use-reentrant-always-true", "checkpoint-recomputes-nothing"],
    except_under={"packed": "the rule forbids the hooks that the condition brings"},
)
def test_disabled(backend: Backend, trace: Trace) -> None:
    """Inside disable_saved_tensors_hooks a non-reentrant checkpoint may be an error with the given message."""
    with (
        backend.disable_saved_tensors_hooks("no hooks here"),
        trace.raises(ErrorKind.SAVED_HOOKS_DISABLED, "no hooks here"),
    ):
        backend.call(region(backend, lambda x: x * x, use_reentrant=False), leaf(backend))


@rule(
    "checkpoint.nonreentrant.after-error",
    level=Level.SHOULD,
    basis=Basis.OBSERVED,
    sources=[observed("the error of a function ends its checkpoint, however long the error is kept")],
    needs=[*NEEDS, Capability.SAVED_TENSOR_HOOKS],
    mutants=[
        "failed-checkpoint-keeps-its-hooks-active",
        "second-failed-checkpoint-keeps-its-hooks-active",
        "checkpoint-that-failed-inside-another-keeps-its-hooks-active",
    ],
)
def test_after_error(backend: Backend, trace: Trace) -> None:
    """The error of a checkpointed function leaves no saved-tensor hooks active, even while the exception is kept."""

    def fail(x):
        saved.append(x * x)
        raise UserError(MESSAGE)

    def fail_inside(x):
        return backend.checkpoint(fail, x * 2, use_reentrant=False)

    def pack(tensor):
        packs.append(None)
        return backend.detach(tensor)

    packs, saved, kept = list[None](), list[Any](), list[Exception]()
    for functions in ([fail], [fail_inside], [fail, fail, fail]):
        try:
            for fn in functions:
                keep_error(backend, kept, fn)
            expect_plain(backend, trace)
            with backend.saved_tensors_hooks(pack, lambda packed: packed):
                for fn in functions:
                    keep_error(backend, kept, fn)
                packs.clear()
                expect_plain(backend, trace)
                trace.expect_value("is packed in its context", expected=True, observed=bool(packs))
            packs.clear()
            expect_plain(backend, trace)
            trace.expect_value("packed outside", 0, len(packs))
            trace.expect_value("errors", 2 * len(functions), len(kept))
        finally:
            saved.clear()
            kept.clear()  # or hooks that are still active would reach the next rule


def keep_error(backend: Backend, kept: list[Exception], fn: Any) -> None:
    """Keep the exception of a checkpointed function that fails."""
    try:
        backend.checkpoint(fn, leaf(backend), use_reentrant=False)
    except Exception as error:  # the framework's own, if it wraps the user's
        if MESSAGE not in str(error):
            raise
        kept.append(error)


def expect_plain(backend: Backend, trace: Trace) -> None:
    """Expect an operation to have its gradient, without any checkpoint."""
    x = leaf(backend)
    backend.backward(backend.call(lambda x: backend.sum(x * x), x))
    trace.expect_value("x.grad", [2.0, 4.0], backend.grad_of(x))
