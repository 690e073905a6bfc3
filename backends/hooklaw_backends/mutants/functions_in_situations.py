"""Mutants that are wrong with custom Functions that are recorded in one situation: each fault in each situation."""

from collections.abc import Callable, Iterator
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.custom_functions import Context
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.kinds import doubled
from hooklaw_backends.mutants.situations import Knowing

Wrong = Callable[[Mutant, Hook, Any, tuple[Any, ...]], Any]
"""Runs the backward of a custom Function, given its context and gradients, in a wrong way."""


def _twice(_: Mutant, backward: Hook, ctx: Any, grads: tuple[Any, ...]) -> Any:
    backward(ctx, *grads)
    return backward(ctx, *grads)


def _saved_another(mutant: Mutant, backward: Hook, ctx: Any, grads: tuple[Any, ...]) -> Any:
    return backward(Context(ctx, saved_tensors=lambda: doubled(mutant, ctx.saved_tensors)), *grads)


FAULTS: dict[str, tuple[str, Wrong]] = {
    "function-backward-twice": ("the backward of a custom Function {} runs twice", _twice),
    "function-gets-another-gradient": (
        "the backward of a custom Function {} gets another gradient",
        lambda mutant, backward, ctx, grads: backward(ctx, *doubled(mutant, grads)),
    ),
    "function-saved-another": ("the saved tensors of a custom Function {} have other values", _saved_another),
    "function-returns-another": (
        "the gradients that the backward of a custom Function {} returns are doubled",
        lambda mutant, backward, ctx, grads: doubled(mutant, backward(ctx, *grads)),
    ),
}
SITUATIONS: dict[str, tuple[str, Callable[[Knowing], Any]]] = {
    "in-a-checkpoint": ("in a checkpointed function", lambda mutant: mutant.regions),
    "in-a-module": ("in the forward of a module", lambda mutant: mutant.modules),
}


def _made(holds: Callable[[Knowing], Any], wrong: Wrong) -> type[Mutant]:
    """Return a mutant whose custom Functions are wrong if their forward runs in a situation."""

    def custom_function(self: Any, old: Hook, forward: Hook, backward: Hook, **options: Any) -> Hook:
        def marking(ctx: Any, *inputs: Any) -> Any:
            ctx.runs_in_situation = holds(self)
            return forward(ctx, *inputs)

        def run(ctx: Any, *grads: Any) -> Any:
            return wrong(self, backward, ctx, grads) if ctx.runs_in_situation else backward(ctx, *grads)

        return old(marking, run, **options)

    return overriding("custom_function", base=Knowing)(custom_function)


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for fault, (words, wrong) in FAULTS.items():
        for situation, (where, holds) in SITUATIONS.items():
            yield f"{fault}-{situation}", words.format(where), ("custom-function",), _made(holds, wrong)


vars().update(named(*each) for each in _all())
