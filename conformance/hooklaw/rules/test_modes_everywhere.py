"""Grad modes wherever they are entered: they hold in their block, in this thread alone, and end with it."""

from collections.abc import Callable
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
    modes = (
        (backend.no_grad, backend.enable_grad, False),
        (backend.enable_grad, backend.no_grad, True),
        (backend.inference_mode, backend.enable_grad, False),
    )
    for label, place in whenever(backend).items():
        for mode, outer, records in modes:
            for fails in (False, True):
                seen = list[bool]()

                def act(mode: Any = mode, outer: Any = outer, seen: list[bool] = seen, fails: bool = fails) -> None:  # noqa: FBT001 - bound here
                    with outer():
                        enter(backend, mode, seen, fails=fails)

                place(act)
                expected = [True, records, records, records, not records]
                trace.expect_value(f"recorded, {label}", expected, seen)


def enter(backend: Backend, mode: Callable[[], Any], seen: list[bool], *, fails: bool) -> None:
    """Enter a mode and once more inside it; note whether a thread and each part of it record."""

    def is_recorded() -> bool:
        return backend.requires_grad(leaf(backend) * 2)

    def fail() -> None:
        if fails:
            raise KeyError

    with suppress(KeyError), mode():
        seen.extend([elsewhere(is_recorded), is_recorded()])
        with suppress(KeyError), mode():
            seen.append(is_recorded())
            fail()
        seen.append(is_recorded())
        fail()
    seen.append(is_recorded())
