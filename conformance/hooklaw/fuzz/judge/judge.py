"""Judgement of a program: the law holds, flags of the engine explain the departure, or the difference is new."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from hooklaw.backend import loading
from hooklaw.fuzz.judge.compare import (
    SCHEDULES,
    Divergence,
    Match,
    Stream,
    by_name,
    by_streams,
    follow,
    in_one,
    same,
    shown,
)
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import Event, Replayed, replay
from hooklaw.model.flags import TORCH, met

USUAL = 4
"""How many flags are tried alone before all flags together."""
FEW = 20
"""How many orders are tried with a part of the flags."""
OFTEN = 20
"""After so many programs that a flag explains, the expected events of further programs are not kept."""


class Difference(NamedTuple):
    """What a backend shows of a program, where that differs from the documentation."""

    observed: list[Event]
    divergence: Divergence
    """Where the engine differs from it: by the law, or with all flags if flags do not explain it."""
    flags: frozenset[str] = frozenset()
    """The flags of the engine that explain it; none if it is new."""


class Judge:
    """Compares a backend with the engine."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self._own: Any = getattr(backend, "replay_program", None)
        self._stream: Stream = by_name if self._own else in_one
        self._close: Callable[[], object] = getattr(backend, "close", lambda: None)
        self._law = engine(())
        self._torch = engine(TORCH)
        self._seen: Counter[str] = Counter()
        self.undecided = 0
        """How many comparisons ended before every order was tried."""

    def __call__(self, program: Sequence[Instruction]) -> Difference | None:
        """Return how the backend differs, None if some legal order of the engine shows the same.

        A comparison that ends before every order was tried is not a difference.
        """
        return self.of(*self.observed(program))

    @property
    def own_way(self) -> bool:
        """Whether the backend replays programs in its own way, with any order between events of different names."""
        return self._own is not None

    def observed(self, program: Sequence[Instruction]) -> Replayed:
        """Return what the backend shows of a program; NotReplayedError passes through."""
        try:
            return self._own(program) if self._own else Replayed(tuple(program), replay(program, self.backend))
        finally:
            self._close()  # or a mutant of the engine would change the engine that judges it

    def of(self, program: Sequence[Instruction], observed: list[Event]) -> Difference | None:
        """Return how the observed events of a program differ."""
        by_law = self._follow(program, self._law, observed, 1)
        if by_law.fits:
            return None
        if self._fits(program, self._torch, observed, 1):
            return self._explained(program, observed, by_law, 1)
        by_law = self._follow(program, self._law, observed, SCHEDULES)
        return None if by_law.fits else self._by_flags(program, observed, by_law)

    def _by_flags(self, program: Sequence[Instruction], observed: list[Event], by_law: Match) -> Difference | None:
        by_flags = self._follow(program, self._torch, observed, SCHEDULES)
        if by_flags.fits:
            return self._explained(program, observed, by_law, FEW)
        alone = self._alone(program, observed)
        if alone:
            return Difference(*self._difference(program, observed, self._law, by_law), alone)
        if by_flags.exhausted:
            return Difference(*self._difference(program, observed, self._torch, by_flags))
        self.undecided += 1
        return None

    def _explained(
        self, program: Sequence[Instruction], observed: list[Event], by_law: Match, schedules: int
    ) -> Difference:
        flags = self._flags(program, observed, schedules, met())
        if any(self._seen[name] <= OFTEN for name in flags):
            return Difference(*self._difference(program, observed, self._law, by_law), flags)
        return Difference(observed, Divergence(by_law.matched, [], by_law.exhausted), flags)

    def _difference(
        self, program: Sequence[Instruction], observed: list[Event], engine: Any, match: Match
    ) -> tuple[list[Event], Divergence]:
        """Return what was observed and where the engine differs from it; sorted by name if that order is open."""
        expected, matched = shown(program, engine, match.path), match.matched
        if self.own_way:
            expected, observed = by_streams(expected, observed, self._stream)
            pairs = enumerate(zip(expected, observed, strict=False))
            shorter = min(len(expected), len(observed))
            matched = next((place for place, pair in pairs if not same(*pair)), shorter)
        return observed, Divergence(matched, expected, match.exhausted)

    def _follow(self, program: Sequence[Instruction], engine: Any, observed: Sequence[Event], schedules: int) -> Match:
        return follow(program, engine, observed, schedules, self._stream)

    def _fits(self, program: Sequence[Instruction], engine: Any, observed: Sequence[Event], schedules: int) -> bool:
        return self._follow(program, engine, observed, schedules).fits

    def _flags(
        self, program: Sequence[Instruction], observed: Sequence[Event], schedules: int, among: frozenset[str]
    ) -> frozenset[str]:
        """Return the flags that explain a trace; flags that explained many traces before are tried first."""
        usual = [name for name, _ in self._seen.most_common() if name in among]
        for name in usual[:USUAL]:
            if self._fits(program, engine([name]), observed, schedules):
                self._seen[name] += 1
                return frozenset([name])
        flags = self._needed(program, observed, schedules, [name for name in TORCH if name in among])
        self._seen.update(flags)
        return flags

    def _needed(
        self, program: Sequence[Instruction], observed: Sequence[Event], schedules: int, rest: Sequence[str]
    ) -> frozenset[str]:
        """Return a minimal set of flags that explains a trace.

        The last flag of the shortest prefix that explains it is needed; the flags before it are searched again.
        """
        needed: set[str] = set()
        while rest and not self._fits(program, engine(needed), observed, schedules):
            few, enough = 0, len(rest)
            while enough - few > 1:
                middle = (few + enough) // 2
                if self._fits(program, engine(needed.union(rest[:middle])), observed, schedules):
                    enough = middle
                else:
                    few = middle
            needed.add(rest[enough - 1])
            rest = rest[: enough - 1]
        return frozenset(needed)

    def _alone(self, program: Sequence[Instruction], observed: Sequence[Event]) -> frozenset[str]:
        """Return a flag that explains a trace by itself, where all flags together do not."""
        return frozenset(next(([name] for name in TORCH if self._fits(program, engine([name]), observed, FEW)), []))


def engine(flags: Iterable[str]) -> Any:
    """Return the reference engine with some flags."""
    return _engine(frozenset(flags))


@cache
def _engine(flags: frozenset[str]) -> Any:
    spec = f"reference:{','.join(sorted(flags))}".rstrip(":")
    return loading.make(spec)  # not `load`: its contract is kept, and a check of each set of flags takes 10 ms


def alike(judge: Callable[[Sequence[Instruction]], Difference | None], flags: frozenset[str]) -> Any:
    """Return a predicate: whether a program still differs in the same way."""

    def still(program: Sequence[Instruction]) -> bool:
        difference = judge(program)
        return difference is not None and difference.flags == flags

    return still
