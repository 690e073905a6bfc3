"""The option debug of a checkpoint, and its context: what the error of a recomputation that differs says."""

from contextlib import suppress
from typing import Any

from hooklaw import Backend, Capability, ErrorKind, Level, Trace, docstring, rule
from hooklaw.rules.checkpoints import CHECKPOINT, NEEDS, WITH_OPTIONS, leaf, logging_its_end, of_another_dtype, region

DEBUG = docstring("torch.utils.checkpoint.set_checkpoint_debug_enabled")


def mismatched(backend: Backend, **how: bool) -> Any:
    """Return the sum of a checkpoint that computes something else when it is recomputed."""
    runs: list[int] = []

    def fn(x):
        runs.append(0)
        return backend.sin(x * x) if len(runs) == 1 else backend.cos(backend.exp(backend.split(x, 1)[0]))

    return backend.sum(backend.checkpoint(fn, leaf(backend), use_reentrant=False, **how))


@rule(
    "checkpoint.debug",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(50), DEBUG.sentence(1)],
    needs=[*NEEDS, Capability.CHECKPOINT_DEBUG, Capability.SIN_COS, Capability.MULTI_OUTPUT],
    mutants=[
        "checkpoint-debug-ignored",
        "set-checkpoint-debug-enabled-not-entered",
        "checkpoint-debug-names-no-product",
        "debug-names-the-last-operation-of-the-recomputation",
    ],
)
def test_debug(backend: Backend, trace: Trace) -> None:
    """With debug, the error of a non-reentrant checkpoint names the operations that ran in forward, and again.

    The option debug does it for one checkpoint, set_checkpoint_debug_enabled for those made inside.
    """

    def in_context():
        with backend.set_checkpoint_debug_enabled(True):
            return mismatched(backend)

    for made in (lambda: mismatched(backend, debug=True), in_context):
        for operation in ("mul", "sin", "exp", "cos"):
            loss = made()
            with trace.raises(ErrorKind.CHECKPOINT_MISMATCH, operation):
                backend.backward(loss)


@rule(
    "checkpoint.debug.options",
    level=Level.MUST,
    sources=[CHECKPOINT.sentence(16, 46, 50)],
    needs=[*WITH_OPTIONS, Capability.CHECKPOINT_DEBUG, Capability.SIN_COS, Capability.MULTI_OUTPUT, Capability.FLOAT64],
    mutants=[
        "checkpoint-debug-ignored-beside-early-stop",
        "checkpoint-debug-ignored-beside-preserve-rng-state",
        "checkpoint-early-stop-ignored-beside-debug",
        "checkpoint-determinism-check-ignored-beside-debug",
    ],
)
def test_debug_and_others(backend: Backend, trace: Trace) -> None:
    """With debug the options early_stop and determinism_check of a checkpoint act as without, and debug beside them."""
    others: list[dict[str, bool]] = [{"early_stop": False}, {"preserve_rng_state": False}]
    for how in [*others, others[0] | others[1]]:
        loss = mismatched(backend, debug=True, **how)
        with trace.raises(ErrorKind.CHECKPOINT_MISMATCH, "cos"):
            backend.backward(loss)

    for how in ({}, others[0]):
        x, fn = leaf(backend), logging_its_end(trace, of_another_dtype(backend))
        forward = region(backend, fn, use_reentrant=False, debug=True, determinism_check="none", **how)
        backend.backward(backend.call(forward, x))

        trace.expect(*["end"] * (1 + len(how)))
        trace.expect_value("x.grad", [2.0, 3.0], backend.grad_of(x))


@rule(
    "checkpoint.debug.context-overrides",
    level=Level.MUST,
    sources=[DEBUG.sentence(3, 4)],
    needs=[*NEEDS, Capability.CHECKPOINT_DEBUG, Capability.SIN_COS, Capability.MULTI_OUTPUT],
    mutants=[
        "set-checkpoint-debug-enabled-not-entered",
        "set-checkpoint-debug-enabled-ends-the-outer",
        "set-checkpoint-debug-enabled-lasts-after-an-error",
        "set-checkpoint-debug-enabled-lasts",
        "checkpoint-debug-context-of-none-turns-it-on",
    ],
)
def test_debug_context(backend: Backend, trace: Trace) -> None:
    """set_checkpoint_debug_enabled overrides the option debug of the checkpoints made inside; None does not."""

    def names(loss: Any) -> bool:
        try:
            backend.backward(loss)
        except Exception as error:  # noqa: BLE001 - what it says is compared
            return all(name in str(error) for name in ("mul", "sin", "exp", "cos"))
        return False

    for enabled, debug, expected in (
        (False, True, False),
        (True, False, True),
        (None, True, True),
        (None, False, False),
    ):
        with backend.set_checkpoint_debug_enabled(enabled):
            within = list[Any]()
            with suppress(ZeroDivisionError), backend.set_checkpoint_debug_enabled(not enabled):
                with suppress(ZeroDivisionError), backend.set_checkpoint_debug_enabled(enabled):
                    within.append(mismatched(backend, debug=debug))
                    raise ZeroDivisionError
                within.append(mismatched(backend, debug=debug))
                raise ZeroDivisionError
            losses = [mismatched(backend, debug=debug)]
        losses.append(mismatched(backend, **({"debug": True} if debug else {})))

        named = [names(loss) for loss in losses]
        trace.expect_value(f"operations are named, inside {enabled} and after it", [expected, debug], named)
        named = [names(loss) for loss in within]
        trace.expect_value("operations are named, inside that two contexts deeper", [expected, not enabled], named)
