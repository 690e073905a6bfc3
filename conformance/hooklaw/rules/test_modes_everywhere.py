"""Grad modes wherever they are entered: they hold in their block, in this thread alone, and end with it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hooklaw import Backend, Capability, Level, Trace, docstring, rule
from hooklaw.rules.hooks import leaf
from hooklaw.rules.passes import EVERYWHERE, elsewhere, whenever

NO_GRAD = docstring("torch.no_grad")
ENABLE_GRAD = docstring("torch.enable_grad")
INFERENCE = docstring("torch.autograd.grad_mode.inference_mode")


@rule(
    "mode.every-place",
    level=Level.MUST,
    sources=[NO_GRAD.sentence(1, 4, 7), ENABLE_GRAD.sentence(1, 2), INFERENCE.sentence(2, 5)],
    needs=[*EVERYWHERE, Capability.INFERENCE_MODE],
    mutants=[
        "no-grad-not-entered-in-a-pass",
        "no-grad-lasts-after-an-error-another-thread",
        "no-grad-reaches-other-threads-in-a-module",
        "enable-grad-not-entered-in-a-checkpoint",
        "enable-grad-ends-the-outer-with-pairs",
        "inference-mode-lasts-in-a-module",
        "inference-mode-ends-the-outer-in-a-pass",
    ],
)
def test_modes(backend: Backend, trace: Trace) -> None:
    """no_grad, enable_grad and inference_mode hold in their block, whatever is under way when they are entered.

    They end with it, also by an error and inside another block, and no_grad and inference_mode reach no other thread.
    """
    no, yes = backend.no_grad, backend.enable_grad
    modes = (
        (no, (yes, yes, no, yes), [True, True, False, True]),
        (yes, (no, no, yes, no), [False, False, True, False]),
        (yes, (backend.inference_mode,) * 4, [False] * 4),
    )
    for label, place in whenever(backend).items():
        for outer, inner, records in modes:
            for fails in (False, True):
                seen = list[bool]()

                def act(outer: Any = outer, inner: Any = inner, seen: list[bool] = seen, fails: bool = fails) -> None:  # noqa: FBT001 - bound here
                    with outer():
                        enter(backend, inner, seen, fails=fails)
                        seen.append(is_recorded(backend))

                place(act)
                expected = [*[True] * 4, *records, *records[-2::-1], not records[0]]
                trace.expect_value(f"recorded, {label}", expected, seen)


def enter(backend: Backend, modes: Sequence[Callable[[], Any]], seen: list[bool], *, fails: bool) -> None:
    """Enter modes inside each other; note whether a thread and each part of them record."""
    with suppress(KeyError), modes[0]():
        seen.insert(0, elsewhere(lambda: is_recorded(backend)))
        seen.append(is_recorded(backend))
        if modes[1:]:
            enter(backend, modes[1:], seen, fails=fails)
            seen.append(is_recorded(backend))
        if fails:
            raise KeyError


def is_recorded(backend: Backend) -> bool:
    """Whether an operation is recorded."""
    return backend.requires_grad(leaf(backend) * 2)
