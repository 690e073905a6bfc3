"""Comparison: a search for an order of ready nodes in which the engine shows what a backend has shown.

The law orders nodes by the graph alone. So the engine runs a program again and again, with another ready node chosen
each time, until it shows every observed event; a run ends at the first event that differs. For a backend that leaves
more open than the law does, only the events of each name are compared in their order.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from math import isfinite
from typing import Any, NamedTuple, cast

from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.run import Event, Replay
from hooklaw.model.schedule import chosen_by

CLOSE = {"float64": 1e-7, "float32": 1e-4}
"""The tolerance for two values of a dtype, relative to the larger."""
HUGE = 1e25
"""Larger values depend on the order of additions, which is not law."""
SCHEDULES = 400
"""How many orders are tried before a comparison ends undecided."""


Stream = Callable[[Event], str | None]
"""Names the stream of an event, within which order is law; None if the event is not compared."""


def in_one(_: Event) -> str | None:
    """Put all events in one stream."""
    return ""


def by_name(event: Event) -> str | None:
    """Put the events of each name in a stream; a compiler chooses what is saved and how often it is read."""
    name = str(event[0])
    if name.endswith((".pack", ".unpack", ".saved")):
        return None
    return f"error {event[1]}" if name == "error" else name


def streams(events: Sequence[Event], stream: Stream = by_name) -> dict[str, list[Event]]:
    """Return the events of each stream."""
    found: dict[str, list[Event]] = {}
    for event in events:
        name = stream(event)
        if name is not None:
            found.setdefault(name, []).append(event)
    return found


class Divergence(NamedTuple):
    """Where the engine leaves the observed trace, in the order of nodes that matches most events."""

    matched: int
    """How many events agree."""
    expected: list[Event]
    """What the engine shows."""
    exhausted: bool
    """Whether every order was tried; if not, some order may fit."""


class _MismatchError(BaseException):
    """Ends a run of the engine; no hook of the program can catch it."""


class _Guide:
    """Chooses nodes by a path, then the usual node; checks each event against the observed trace."""

    def __init__(self, observed: dict[str, list[Event]], start: tuple[int, ...], stream: Stream) -> None:
        self._observed = observed
        self._start = start
        self._stream = stream
        self._places: Counter[str] = Counter()
        self.path: list[int] = []
        self.widths: list[int] = []
        self.matched = 0

    def choose(self, ready: int) -> int:
        place = len(self.path)
        number = min(self._start[place], ready - 1) if place < len(self._start) else 0
        self.path.append(number)
        self.widths.append(ready)
        return number

    def log(self, event: Event) -> None:
        name = self._stream(event)
        if name is None:
            return
        there, place = self._observed.get(name, ()), self._places[name]
        if place >= len(there) or not same(event, there[place]):
            raise _MismatchError
        self._places[name] += 1
        self.matched += 1


class Match(NamedTuple):
    """How many events the engine matches, in the order of nodes that matches most."""

    fits: bool
    matched: int
    path: tuple[int, ...]
    exhausted: bool


def follow(
    program: Sequence[Instruction], engine: Any, observed: Sequence[Event], schedules: int, stream: Stream = in_one
) -> Match:
    """Search for an order in which the engine shows what was observed; the best order is varied first."""
    order = count()
    wanted = streams(observed, stream)
    ahead: list[tuple[int, int, int, tuple[int, ...]]] = [(0, 0, next(order), ())]
    best: tuple[int, tuple[int, ...]] = (-1, ())
    for _ in range(schedules):
        if not ahead:
            break
        _, deviations, _, start = heapq.heappop(ahead)
        guide = _guided(program, engine, wanted, start, stream)
        if guide is None:
            return Match(fits=True, matched=len(observed), path=start, exhausted=False)
        best = max(best, (guide.matched, tuple(guide.path)))
        for place in range(len(start), len(guide.path)):
            for number in range(1, guide.widths[place]):
                then = (*guide.path[:place], number)
                heapq.heappush(ahead, (-guide.matched, deviations + 1, next(order), then))
    return Match(fits=False, matched=best[0], path=best[1], exhausted=not ahead)


def _guided(
    program: Sequence[Instruction],
    engine: Any,
    observed: dict[str, list[Event]],
    start: tuple[int, ...],
    stream: Stream,
) -> _Guide | None:
    """Run the engine; return None if it shows all that was observed, else how far it came."""
    guide = _Guide(observed, start, stream)
    engine.reset()
    with chosen_by(guide.choose):
        try:
            Replay(engine, guide.log).all(program)
        except _MismatchError:
            return guide
    return None if guide.matched == sum(map(len, observed.values())) else guide


def shown(program: Sequence[Instruction], engine: Any, path: tuple[int, ...] = ()) -> list[Event]:
    """Return what the engine shows in the order of nodes that a path gives."""
    events: list[Event] = []
    guide = _Guide({}, path, in_one)
    engine.reset()
    with chosen_by(guide.choose):
        Replay(engine, events.append).all(program)
    return events


def by_streams(expected: Sequence[Event], observed: Sequence[Event], stream: Stream) -> tuple[list[Event], list[Event]]:
    """Return two traces with the events of each stream together, equal streams first."""
    lanes = streams(expected, stream), streams(observed, stream)
    names = sorted({**lanes[0], **lanes[1]}, key=lambda name: not same(lanes[0].get(name), lanes[1].get(name)))
    first, second = ([event for name in names for event in lane.get(name, ())] for lane in lanes)
    return first, second


def same(first: Any, second: Any, close: float = CLOSE["float64"]) -> bool:
    """Whether two observed values are equal, numbers up to rounding."""
    if first == second:
        return True
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return _all_same(cast("Sequence[Any]", first), cast("Sequence[Any]", second), close)
    if isinstance(first, float) and isinstance(second, float):
        return _near(first, second, close)
    return False


def _all_same(first: Sequence[Any], second: Sequence[Any], close: float) -> bool:
    if len(first) != len(second):
        return False
    if first and isinstance(first[0], str):
        close = CLOSE.get(first[0], close)
    return all(same(part, other, close) for part, other in zip(first, second, strict=True))


def _near(first: float, second: float, close: float) -> bool:
    size = max(abs(first), abs(second))
    if not isfinite(size) or size > HUGE:
        return not (abs(first) <= HUGE and abs(second) <= HUGE) or first == second
    return abs(first - second) <= close * max(1.0, size)
