"""Event and Trace: what hooks saw, in order, and what the rule expected instead."""

import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from hooklaw.backend.protocol import Backend, ErrorKind

LONGEST = 16
"""A record keeps at most this many numbers of one value."""


class Mismatch(AssertionError):  # noqa: N818 - it is a finding, not a fault
    """The backend did not do what the rule says."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened, or should have: who saw it, and the value it saw."""

    label: str
    value: Any = None
    any_value: bool = False
    """In an expected event: the rule leaves the value open."""


class Check(msgspec.Struct, frozen=True):
    """One value that a rule states, beside the value that was found."""

    label: str
    expected: Any
    observed: Any
    held: bool


class Trace:
    """What happened while a rule ran.

    Hooks made by `saw` log and return None, or what their action returns; the rule asserts afterwards. Each
    `expect...` speaks of the events since the one before it, so a rule of several passes asserts after each pass.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._mark = 0
        self.observed: list[Event] = []
        self.expected: list[Event] = []
        self.checks: list[Check] = []
        self.difference: int | None = None
        """Where the observed lane leaves the expected one, counted from 0."""

    def clear(self) -> None:
        """Forget everything: a property starts each of its examples so."""
        self._mark = 0
        self.observed.clear()
        self.expected.clear()
        self.checks.clear()
        self.difference = None

    def saw(self, label: str, action: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return a hook that logs its label and arguments, then returns what `action` makes of them, or None."""

        def hook(*args: Any) -> Any:
            self.log(label, args[0] if len(args) == 1 else list(args))
            return None if action is None else action(*args)

        return hook

    def log(self, label: str, value: Any = None) -> None:
        """Log an event from the rule's own code."""
        self.observed.append(Event(label, self.snapshot(value)))

    def count(self, label: str) -> int:
        """Return how often an event was seen, over the whole rule."""
        return sum(event.label == label for event in self.observed)

    def values(self, label: str) -> list[Any]:
        """Return what was seen under a label, over the whole rule."""
        return [event.value for event in self.observed if event.label == label]

    def expect(self, *events: str | tuple[str, Any]) -> None:
        """Demand exactly these events, in this order; a bare label leaves the value open.

        Raises Mismatch that names the first difference.
        """
        begin = len(self.expected)
        seen, wanted = self._since_last(), [_event(one) for one in events]
        self.expected += wanted
        for place, (want, got) in enumerate(zip(wanted, seen, strict=False)):
            if not agree(want, got):
                self.difference = begin + place
                raise Mismatch(f"event {place + 1} should be {show(want)}, was {show(got)}; saw {_all(seen)}")
        if len(seen) != len(wanted):
            self.difference = begin + min(len(seen), len(wanted))
            raise Mismatch(f"expected {len(wanted)} events ({_all(wanted, 'none')}), saw {_all(seen)}")

    def expect_in_any_order(self, *events: str) -> None:
        """Demand exactly these labels, as often as named, in whatever order."""
        seen = self._since_last()
        wanted, got = Counter(events), Counter(event.label for event in seen)
        labels = events if wanted != got else [event.label for event in seen]
        self.expected += [Event(one, any_value=True) for one in labels]
        if wanted != got:
            raise Mismatch(f"expected in any order {', '.join(events) or 'nothing'}; saw {_all(seen)}")

    def expect_before(self, first: str, then: str) -> None:
        """Demand that both were seen, and the last `first` before the first `then`; takes up no events."""
        labels = [event.label for event in self.observed]
        places = [place for place, label in enumerate(labels) if label == first]
        if not places or then not in labels or places[-1] > labels.index(then):
            self.expected += [Event(first, any_value=True), Event(then, any_value=True)]
            raise Mismatch(f"expected every {first!r} before every {then!r}; saw {_all(self.observed)}")

    def expect_value(self, label: str, expected: Any, observed: Any) -> None:
        """Demand a value: numbers to 1 part in 100,000, everything else exactly. Tensors are read."""
        self._check(label, self._read(expected), self._read(observed))

    @contextmanager
    def raises(self, kind: ErrorKind, phrase: str = "") -> Generator[None]:
        """Demand an error of this kind from the block, with a phrase in its text where the documentation gives one."""
        types = tuple(self._backend.errors.get(kind, (RuntimeError,)))
        with self.raises_type(types, phrase, name=str(kind)):
            yield

    @contextmanager
    def raises_type(
        self,
        types: type[BaseException] | tuple[type[BaseException], ...],
        phrase: str = "",
        *,
        name: str = "",
    ) -> Generator[None]:
        """Demand an exception of this very type, e.g. the user's own out of a hook."""
        names = " or ".join(one.__name__ for one in (types if isinstance(types, tuple) else (types,)))
        wanted = f"{name or names}{f' saying {phrase!r}' if phrase else ''}"
        try:
            yield
        except Mismatch:
            raise
        except types as error:
            got = f"{type(error).__name__}: {_first_line(error)}"
            self._judge("raises", wanted, got, held=phrase.lower() in str(error).lower())
        except Exception as error:
            got = f"{type(error).__name__}: {_first_line(error)}"
            self.checks.append(Check("raises", wanted, got, held=False))
            raise Mismatch(f"expected {wanted} ({names}), raised {got}") from error
        else:
            self._judge("raises", wanted, "no error", held=False)

    def snapshot(self, value: Any) -> Any:
        """Return the value as plain data that can stand in a record, long ones shortened."""
        return _shorten(self._read(value))

    def _read(self, value: Any) -> Any:
        if self._backend.is_tensor(value):
            return _plain(self._backend.tolist(value))
        if isinstance(value, list | tuple):
            return [self._read(one) for one in value]
        return _plain(value)

    def _since_last(self) -> list[Event]:
        seen = self.observed[self._mark :]
        self._mark = len(self.observed)
        return seen

    def _check(self, label: str, expected: Any, observed: Any) -> None:
        self._judge(label, expected, observed, held=same(expected, observed))

    def _judge(self, label: str, expected: Any, observed: Any, *, held: bool) -> None:
        expected, observed = _shorten(expected), _shorten(observed)
        self.checks.append(Check(label, expected, observed, held))
        if not held:
            raise Mismatch(f"{label} should be {expected}, was {observed}")


def same(expected: Any, observed: Any) -> bool:
    """Compare plain values: numbers to 1 part in 100,000, nested lists by element, everything else exactly."""
    if isinstance(expected, list) and isinstance(observed, list):
        return len(expected) == len(observed) and all(map(same, expected, observed))
    if isinstance(expected, bool) or isinstance(observed, bool):
        return expected is observed
    if isinstance(expected, int | float) and isinstance(observed, int | float):
        return math.isclose(expected, observed, rel_tol=1e-5, abs_tol=1e-6)
    return bool(expected == observed)


def agree(expected: Event, observed: Event) -> bool:
    """Tell whether what was seen is what was expected."""
    return expected.label == observed.label and (expected.any_value or same(expected.value, observed.value))


def show(event: Event) -> str:
    """Return an event in words."""
    return repr(event.label) if event.any_value or event.value is None else f"{event.label!r} with {event.value}"


def _event(wanted: str | tuple[str, Any]) -> Event:
    return Event(wanted, any_value=True) if isinstance(wanted, str) else Event(wanted[0], _plain(wanted[1]))


def _all(events: Sequence[Event], none: str = "nothing") -> str:
    return ", ".join(show(event) for event in events) or none


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case complex():
            return [_plain(value.real), _plain(value.imag)]
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return type(value).__name__


def _size(value: Any) -> int:
    return sum(_size(one) for one in value) if isinstance(value, list) else 1


def _shorten(value: Any) -> Any:
    if not isinstance(value, list) or _size(value) <= LONGEST:
        return value
    numbers: list[Any] = []
    _flatten(value, numbers)
    return [*numbers[: LONGEST // 2], f"... {_size(value)} values"]


def _flatten(value: Any, into: list[Any]) -> None:
    for one in value:
        if isinstance(one, list):
            _flatten(one, into)
        else:
            into.append(one)
