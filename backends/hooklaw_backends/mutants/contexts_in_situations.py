"""Mutants that are wrong with save_on_cpu, or with a context that a checkpoint is given, in one situation.

They are made as those of hooks are. Left out is what only an accelerator shows, that save_on_cpu moves nothing; and the
situations that a rule on them cannot reach with the capabilities that it needs: threads, no_grad, modules, other roots.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.kinds import BACKWARD, FORWARD, doubled
from hooklaw_backends.mutants.situations import Knowing, Situation


def _kept_another(situation: Situation) -> type[Mutant]:
    """Return a mutant in which save_on_cpu gives back twice a tensor."""

    def save_on_cpu(self: Any, _: Hook, **_options: bool) -> AbstractContextManager[Any]:
        its = self.registration("save_on_cpu")

        def another(tensor: Any) -> Any:
            its.calls.append(None)
            return doubled(self, tensor) if situation.holds(self, its) else tensor

        unnoticed: Any = super(Knowing, self)  # it is no pair of the user's
        return unnoticed.saved_tensors_hooks(self.detach, another)

    return overriding("save_on_cpu", base=Knowing)(save_on_cpu)


class _Choosing:
    """A context that is chosen when it is entered."""

    def __init__(self, choose: Callable[[], AbstractContextManager[Any]]) -> None:
        self.choose, self.chosen = choose, list[Any]()

    def __enter__(self) -> Any:
        self.chosen.append(self.choose())
        return self.chosen[-1].__enter__()

    def __exit__(self, *error: object) -> Any:
        return self.chosen.pop().__exit__(*error)


class _LeftAtOnce:
    """A context that is left as soon as it is entered."""

    def __init__(self, context: AbstractContextManager[Any]) -> None:
        self.context = context

    def __enter__(self) -> None:
        with self.context:
            pass

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


def _absent(_: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    return nullcontext()


def _replaced(
    place: int, instead: Callable[[AbstractContextManager[Any]], AbstractContextManager[Any]], situation: Situation
) -> type[Mutant]:
    """Return a mutant that enters another context instead of the first or the second of a checkpoint."""

    def checkpoint(self: Any, old: Hook, *given: Any, context_fn: Any = None, **how: Any) -> Any:
        if context_fn is None:
            return old(*given, **how)
        its = self.registration("context_fn")

        def choose(context: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
            its.calls.append(None)
            return instead(context) if situation.holds(self, its) else context

        def contexts() -> Any:
            pair = list(context_fn())
            pair[place] = _Choosing(partial(choose, pair[place]))
            return tuple(pair)

        return old(*given, context_fn=contexts, **how)

    return overriding("checkpoint", base=Knowing)(checkpoint)


def _swapped(situation: Situation) -> type[Mutant]:
    """Return a mutant that runs a checkpoint's function in the second of its contexts, then in the first."""

    def checkpoint(self: Any, old: Hook, *given: Any, context_fn: Any = None, **how: Any) -> Any:
        if context_fn is None:
            return old(*given, **how)
        its = self.registration("context_fn")
        its.calls.append(None)
        swap = situation.holds(self, its)
        return old(*given, context_fn=lambda: context_fn()[::-1] if swap else context_fn(), **how)

    return overriding("checkpoint", base=Knowing)(checkpoint)


IN_BACKWARD = tuple(each.name for each in BACKWARD)
NEVER = ("no-grad", "made-in-no-grad", "second-call", "third-call", "second-call-alone", "another-thread")
"""A checkpoint is recorded once, not in no_grad, and asks for its contexts in the thread that enters the first."""
IN_CALL = tuple(each.name for each in FORWARD if each.name not in NEVER)
CHAPTERS = ("checkpoint.context", "checkpoint.selective")
TABLE = {
    "save-on-cpu-given-another": (
        "save_on_cpu {} gives another value back",
        tuple(name for name in IN_BACKWARD if name != "after-a-failure"),  # its hooks do not raise
        _kept_another,
        ("save-on-cpu",),
    ),
    "forward-context-lost": (
        "the first context of a checkpoint {} is not entered",
        IN_CALL,
        partial(_replaced, 0, _absent),
        CHAPTERS,
    ),
    "recomputation-context-lost": (
        "the second context of a checkpoint {} is not entered",
        tuple(name for name in IN_BACKWARD if name != "made-in-no-grad"),
        partial(_replaced, 1, _absent),
        CHAPTERS,
    ),
    "recomputation-context-left-at-once": (
        "the second context of a checkpoint {} is left as soon as it is entered",
        tuple(name for name in IN_BACKWARD if name != "made-in-no-grad"),
        partial(_replaced, 1, _LeftAtOnce),
        CHAPTERS,
    ),
    "contexts-swapped": (
        "the contexts of a checkpoint {} change places",
        IN_CALL,
        _swapped,
        CHAPTERS,
    ),
}


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for name, (words, tried, make, chapters) in TABLE.items():
        for situation in [each for each in dict.fromkeys((*FORWARD, *BACKWARD)) if each.name in tried]:
            yield f"{name}-{situation.name}", words.format(situation.words), chapters, make(situation)


vars().update(named(*each) for each in _all())
