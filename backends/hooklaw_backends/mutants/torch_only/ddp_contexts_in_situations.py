"""Mutants of no_sync and join: each fault in each situation.

No rule need name them: they are tried on the rules whose ids begin with the row's `chapters`.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple

import torch

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.situations import SECOND, THIRD
from hooklaw_backends.mutants.torch_only.wrappers import (
    ALWAYS,
    RANK_1,
    SECOND_MODULE,
    KnowingWrappers,
    Row,
    Situation,
    known,
    row,
)

Context = AbstractContextManager[Any]
THIRD_NO_SYNC = Situation(
    "later",
    "from the third context on of the second distributed module and later ones",
    lambda _, its: its.number >= SECOND and its.unsynced >= THIRD,
)
SECOND_JOIN = Situation(
    "later",
    "from the second context on of the second distributed module and later ones",
    lambda _, its: its.number >= SECOND and its.joined >= SECOND,
)


@contextmanager
def _nothing(context: Context, parallel: Any) -> Generator[None]:
    yield


@contextmanager
def _lasts(context: Context, parallel: Any) -> Generator[None]:
    try:
        with context:
            yield
    finally:
        parallel.require_backward_grad_sync = False


@contextmanager
def _swallows(context: Context, parallel: Any) -> Generator[None]:
    with suppress(Exception), context:
        yield


@contextmanager
def _drops(context: Context, parallel: Any) -> Generator[None]:
    with context:
        yield
    parallel.module.zero_grad()


@contextmanager
def _keeps(context: Context, parallel: Any) -> Generator[None]:
    with context:
        yield
        own = [each.detach().clone() for each in parallel.module.parameters()]
    with torch.no_grad():
        for each, value in zip(parallel.module.parameters(), own, strict=True):
            each.copy_(value)


class Fault(NamedTuple):
    """A fault of a context, and where it is tried."""

    words: str
    context: Callable[[Context, Any], Context]
    chapters: tuple[str, ...]
    situations: tuple[Situation, ...]


FAULTS = {
    "no_sync": {
        "nothing": Fault("does nothing", _nothing, ("ddp.no-sync", "ddp.comm-hook.no-sync"), (THIRD_NO_SYNC,)),
        "lasts": Fault("lasts", _lasts, ("ddp.no-sync", "ddp.comm-hook.no-sync"), (THIRD_NO_SYNC,)),
        "swallows": Fault("ignores an error inside", _swallows, ("ddp.no-sync",), (ALWAYS, THIRD_NO_SYNC)),
        "drops": Fault("drops gradients at its end", _drops, ("ddp.no-sync",), (THIRD_NO_SYNC, RANK_1)),
    },
    "join": {
        "nothing": Fault("does nothing", _nothing, ("ddp.join.no-hang",), (SECOND_JOIN,)),
        "keeps": Fault("leaves each rank its parameters", _keeps, ("ddp.join.model",), (SECOND_JOIN, RANK_1)),
    },
}
"""The faults of each verb.

Left out is an error inside join, of which no page speaks.
"""


def _made(verb: str, fault: Fault, situation: Situation) -> type[Mutant]:
    def enter(self: Any, old: Hook, parallel: Any, **options: Any) -> Context:
        context, its = old(parallel, **options), known(parallel)
        return fault.context(context, parallel) if its and situation.holds(self, its) else context

    return overriding(verb, base=KnowingWrappers)(enter)


class _Joining(KnowingWrappers):
    """A mutant that knows whether join is under way."""

    watched = frozenset({"join"})
    is_inside = False

    def reset(self) -> None:
        super().reset()
        self.is_inside = False

    @contextmanager
    def join(self, parallel: Any, **options: bool) -> Generator[None]:
        with super().join(parallel, **options):
            self.is_inside = True
            try:
                yield
            finally:
                self.is_inside = False


def _doubled(situation: Situation) -> type[Mutant]:
    """Return a mutant that doubles the gradients of a backward inside join."""

    def backward(self: Any, old: Hook, *given: Any, **how: Any) -> None:
        old(*given, **how)
        for its in self.wrappers if self.is_inside else ():
            for each in its.parameters if situation.holds(self, its) else ():
                each.grad = None if each.grad is None else each.grad * 2

    return overriding("backward", base=_Joining)(backward)


def _all() -> Iterator[Row]:
    for verb, faults in FAULTS.items():
        for name, fault in faults.items():
            for situation in fault.situations:
                of, said = f"{verb.replace('_', '-')}-{name}", f"{verb} {fault.words}"
                yield row(of, said, fault.chapters, situation, _made(verb, fault, situation))
    said = "gradients inside join are doubled"
    for situation in (RANK_1, SECOND_MODULE):
        yield row("join-doubles-gradients", said, ("ddp.join.divide",), situation, _doubled(situation))


vars().update(named(*each) for each in _all())
