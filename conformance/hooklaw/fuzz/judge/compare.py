"""Comparison: the engine is asked for an order of ready Nodes in which it shows what a backend has shown.

The law orders Nodes by the graph alone. So the engine runs a program again and again, another ready Node chosen each
time, until it shows every event that was observed; a choice is given up at the first event that differs.
Of a backend that leaves open more than the law does, only the events of each name are compared in their order.
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
"""How near two values of a dtype must be, relative to the larger."""
HUGE = 1e25
"""Beyond, sums lose what is added to them, so that values depend on an order which is not law."""
SCHEDULES = 400
"""How many orders are tried before a comparison is given up."""


Stream = Callable[[Event], str | None]
"""Names the stream that an event belongs to, in which order is law; None where the event is not compared."""


def in_one(_: Event) -> str | None:
    """Put all events in one stream."""
    return ""


def by_name(event: Event) -> str | None:
    """Put the events of each name in a stream; what is saved, and how often it is read, is a compiler's choice."""
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
    """Where the engine and the observed trace part, in the order of Nodes that comes furthest."""

    matched: int
    """How many events agree."""
    expected: list[Event]
    """What the engine shows."""
    exhausted: bool
    """Whether every order was tried; if not, there may be one that fits."""


class _PartedError(BaseException):
    """Ends a run of the engine; no hook of the program must catch it."""


class _Guide:
    """Chooses as it was told, then the usual Node; checks each event against the observed one."""

    def __init__(self, observed: dict[str, list[Event]], told: tuple[int, ...], stream: Stream) -> None:
        self._observed = observed
        self._told = told
        self._stream = stream
        self._places: Counter[str] = Counter()
        self.path: list[int] = []
        self.widths: list[int] = []
        self.matched = 0

    def choose(self, ready: int) -> int:
        place = len(self.path)
        number = min(self._told[place], ready - 1) if place < len(self._told) else 0
        self.path.append(number)
        self.widths.append(ready)
        return number

    def log(self, event: Event) -> None:
        name = self._stream(event)
        if name is None:
            return
        there, place = self._observed.get(name, ()), self._places[name]
        if place >= len(there) or not same(event, there[place]):
            raise _PartedError
        self._places[name] += 1
        self.matched += 1


class Reach(NamedTuple):
    """How far the engine came, in the order of Nodes in which it came furthest."""

    fits: bool
    matched: int
    path: tuple[int, ...]
    exhausted: bool


def diverges(
    program: Sequence[Instruction],
    engine: Any,
    observed: Sequence[Event],
    schedules: int = SCHEDULES,
    stream: Stream = in_one,
) -> Divergence | None:
    """Return None where some legal order of the engine shows what was observed, else where they part."""
    reach = follow(program, engine, observed, schedules, stream)
    if reach.fits:
        return None
    return Divergence(reach.matched, shown(program, engine, reach.path), reach.exhausted)


def follow(
    program: Sequence[Instruction], engine: Any, observed: Sequence[Event], schedules: int, stream: Stream = in_one
) -> Reach:
    """Look for an order in which the engine shows what was observed: that which comes furthest is varied first."""
    order = count()
    wanted = streams(observed, stream)
    ahead: list[tuple[int, int, int, tuple[int, ...]]] = [(0, 0, next(order), ())]
    best: tuple[int, tuple[int, ...]] = (-1, ())
    for _ in range(schedules):
        if not ahead:
            break
        _, deviations, _, told = heapq.heappop(ahead)
        guide = _guided(program, engine, wanted, told, stream)
        if guide is None:
            return Reach(fits=True, matched=len(observed), path=told, exhausted=False)
        best = max(best, (guide.matched, tuple(guide.path)))
        for place in range(len(told), len(guide.path)):
            for number in range(1, guide.widths[place]):
                then = (*guide.path[:place], number)
                heapq.heappush(ahead, (-guide.matched, deviations + 1, next(order), then))
    return Reach(fits=False, matched=best[0], path=best[1], exhausted=not ahead)


def _guided(
    program: Sequence[Instruction],
    engine: Any,
    observed: dict[str, list[Event]],
    told: tuple[int, ...],
    stream: Stream,
) -> _Guide | None:
    """Run the engine; return None where it shows all that was observed, else how far it came."""
    guide = _Guide(observed, told, stream)
    engine.reset()
    with chosen_by(guide.choose):
        try:
            Replay(engine, guide.log).all(program)
        except _PartedError:
            return guide
    return None if guide.matched == sum(map(len, observed.values())) else guide


def shown(program: Sequence[Instruction], engine: Any, told: tuple[int, ...] = ()) -> list[Event]:
    """Return what the engine shows in the order of Nodes that these choices give."""
    events: list[Event] = []
    guide = _Guide({}, told, in_one)
    engine.reset()
    with chosen_by(guide.choose):
        Replay(engine, events.append).all(program)
    return events


def by_streams(expected: Sequence[Event], observed: Sequence[Event], stream: Stream) -> tuple[list[Event], list[Event]]:
    """Return two traces with the events of each stream together, those streams first that are alike."""
    lanes = streams(expected, stream), streams(observed, stream)
    names = sorted({**lanes[0], **lanes[1]}, key=lambda name: not same(lanes[0].get(name), lanes[1].get(name)))
    first, second = ([event for name in names for event in lane.get(name, ())] for lane in lanes)
    return first, second


def same(first: Any, second: Any, close: float = CLOSE["float64"]) -> bool:
    """Tell whether two things that were seen are alike, numbers up to rounding."""
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
    return all(same(one, other, close) for one, other in zip(first, second, strict=True))


def _near(first: float, second: float, close: float) -> bool:
    size = max(abs(first), abs(second))
    if not isfinite(size) or size > HUGE:
        return not (abs(first) <= HUGE and abs(second) <= HUGE) or first == second
    return abs(first - second) <= close * max(1.0, size)
