"""What mutants know of each distributed module, and the situations in which they are wrong with one."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import distributed

from hooklaw_backends.mutants.base import Mutant, fresh
from hooklaw_backends.mutants.situations import SECOND, THIRD

Row = tuple[str, str, tuple[str, ...], type[Mutant]]
"""The name of a mutant, its fault in words, how the ids of the rules begin that it is tried on, and its class."""


class Wrapper:
    """A module that was distributed, and what it has been through."""

    def __init__(self, number: int, parallel: Any, options: dict[str, Any]) -> None:
        self.number = number
        """Which distributed module of the rule it is, from 1."""
        self.options = options
        self.module = parallel.module
        self.parameters: list[Any] = [*parallel.module.parameters()]
        self.passes = 0
        """How many passes were begun."""
        self.unsynced = 0
        self.joined = 0
        """How many times no_sync and join were called."""


class KnowingWrappers(Mutant):
    """A mutant that knows which modules are distributed; it changes nothing."""

    watched = frozenset({"distributed_data_parallel", "no_sync", "join"})
    """Verbs that it overrides only to know when they are called."""
    wrappers = fresh(list[Wrapper])
    failures = 0
    """How many communication hooks have raised."""

    def reset(self) -> None:
        super().reset()
        self.wrappers, self.failures = [], 0

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        made = super().distributed_data_parallel(module, **options)
        its = made.__dict__["known_as"] = Wrapper(len(self.wrappers) + 1, made, options)
        self.wrappers.append(its)

        def count(*_: object) -> None:
            its.passes += 1

        made.register_forward_pre_hook(count)
        return made

    def no_sync(self, parallel: Any) -> Any:
        if its := known(parallel):
            its.unsynced += 1
        return super().no_sync(parallel)

    def join(self, parallel: Any, **options: bool) -> Any:
        if its := known(parallel):
            its.joined += 1
        return super().join(parallel, **options)

    def wrapper_of(self, owner: int) -> Wrapper | None:
        """Return the distributed module that has a parameter or module of this id."""
        parts = ({*map(id, its.parameters), *map(id, its.module.modules())} for its in self.wrappers)
        return next((its for its, own in zip(self.wrappers, parts, strict=True) if owner in own), None)


def known(parallel: Any) -> Wrapper | None:
    """Return what is known of a distributed module, or None if it is sharded."""
    return getattr(parallel, "known_as", None)


class Situation(NamedTuple):
    """A situation of a distributed module, in which a mutant is wrong."""

    name: str
    words: str
    holds: Callable[[KnowingWrappers, Wrapper], bool]


def _in_rank(number: int) -> Situation:
    return Situation(f"in-rank-{number}", f"in rank {number}", lambda *_: distributed.get_rank() == number)


ALWAYS = Situation("", "", lambda *_: True)
RANK_0, RANK_1 = _in_rank(0), _in_rank(1)
LATER_RANKS = Situation("in-later-ranks", "in rank 2 and later ones", lambda *_: distributed.get_rank() >= SECOND)
SECOND_MODULE = Situation(
    "second-module", "for the second distributed module and later ones", lambda _, its: its.number >= SECOND
)
LATER = Situation(
    "later",
    "from the third pass on of the second distributed module and later ones",
    lambda _, its: its.number >= SECOND and its.passes >= THIRD,
)
"""One for both: a rule that kills the mutant tries a second module, and three passes of it."""
EARLIER = Situation(
    "earlier", "for a distributed module that is not the latest", lambda mutant, its: its is not mutant.wrappers[-1]
)
AFTER_NO_SYNC = Situation("after-no-sync", "once no_sync was called", lambda _, its: its.unsynced > 0)
AFTER_A_FAILURE = Situation("after-a-failure", "once one has raised", lambda mutant, _: mutant.failures > 0)
EACH_RANK = (RANK_0, RANK_1)


def row(name: str, said: str, chapters: tuple[str, ...], situation: Situation, made: type[Mutant]) -> Row:
    """Return what a mutant is, whose name and fault end in the situation."""
    words = (said, situation.words) if situation.words else (said,)
    return f"{name}-{situation.name}".strip("-"), ", ".join(words), chapters, made
