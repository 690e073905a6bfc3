"""Event, Check and Trace: what hooks saw, in order, and what the rule expects."""

import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from hooklaw.backend.blame import is_adapters
from hooklaw.backend.protocol import Backend, ErrorKind

FLOATS = frozenset({float})
_are_close = partial(math.isclose, rel_tol=1e-5, abs_tol=1e-6)
LONGEST = 16
"""A record keeps at most this many numbers of a value."""


class Mismatch(AssertionError):  # noqa: N818 - it is a finding, not an error
    """The backend did not do what the rule says."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """A labelled event, observed or expected, with the value that was seen."""

    label: str
    value: Any = None
    any_value: bool = False
    """In an expected event: the rule leaves the value open."""

    def __post_init__(self) -> None:
        """Raise TypeError for a label that no record can hold."""
        if not isinstance(self.label, str):  # pyright: ignore[reportUnnecessaryIsInstance] - rules need no types
            raise TypeError(f"the label of an event is a text, not {self.label!r}")


_BLANK = Event("")


class Check(msgspec.Struct, frozen=True):
    """A value that a rule expects, and the observed value."""

    label: str
    expected: Any
    observed: Any
    held: bool


class Trace:
    """The events and checks of one rule.

    Hooks made by `saw` only log; the rule asserts afterwards. Each `expect` compares the events since the previous
    `expect`, so a rule of several passes asserts after each pass.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._mark = 0
        self.observed: list[Event] = []
        self.expected: list[Event] = []
        self.checks: list[Check] = []
        self.difference: int | None = None
        """Index of the first event that differs from the expected one."""

    def clear(self) -> None:
        """Forget everything, before the next example of a property."""
        self._mark = 0
        self.observed.clear()
        self.expected.clear()
        self.checks.clear()
        self.difference = None

    def saw(self, label: str, action: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return a hook that logs its label and arguments, then returns ``action(*args)``, else None."""

        def hook(*args: Any) -> Any:
            self.log(label, args[0] if len(args) == 1 else list(args))
            return None if action is None else action(*args)

        return hook

    def log(self, label: str, value: Any = None) -> None:
        """Log an event; its class is not called, since torch 2.11 refuses that in what it compiles."""
        self.observed.append(msgspec.structs.replace(_BLANK, label=label, value=self.snapshot(value)))

    def count(self, label: str) -> int:
        """Return how often a label was logged in the whole rule."""
        return sum(event.label == label for event in self.observed)

    def values(self, label: str) -> list[Any]:
        """Return the values logged under a label in the whole rule."""
        return [event.value for event in self.observed if event.label == label]

    def expect(self, *events: str | tuple[str, Any]) -> None:
        """Expect exactly these events, in this order; a label alone leaves the value open.

        Raises Mismatch, which names the first difference.
        """
        begin = len(self.expected)
        seen, wanted = self._since_last(), [_event(event) for event in events]
        self.expected += wanted
        for place, (want, got) in enumerate(zip(wanted, seen, strict=False)):
            if not agree(want, got):
                self.difference = begin + place
                raise Mismatch(f"event {place + 1} should be {show(want)}, was {show(got)}; saw {_all(seen)}")
        if len(seen) != len(wanted):
            self.difference = begin + min(len(seen), len(wanted))
            raise Mismatch(f"expected {len(wanted)} events ({_all(wanted, 'none')}), saw {_all(seen)}")

    def expect_in_any_order(self, *events: str) -> None:
        """Expect exactly these labels, each as often as it is given, in any order."""
        seen, wanted = self._since_last(), [Event(label, any_value=True) for label in events]
        held = Counter(events) == Counter(event.label for event in seen)
        self.expected += [Event(event.label, any_value=True) for event in seen] if held else wanted
        if not held:
            raise Mismatch(f"expected in any order {', '.join(events) or 'nothing'}; saw {_all(seen)}")

    def expect_before(self, first: str, then: str) -> None:
        """Expect both labels, every `first` before every `then`; the next `expect` still sees these events."""
        labels = [event.label for event in self.observed]
        places = [place for place, label in enumerate(labels) if label == first]
        if not places or then not in labels or places[-1] > labels.index(then):
            self.expected += [Event(first, any_value=True), Event(then, any_value=True)]
            raise Mismatch(f"expected every {first!r} before every {then!r}; saw {_all(self.observed)}")

    def expect_value(self, label: str, expected: Any, observed: Any) -> None:
        """Expect a value: numbers to 1 part in 100,000, everything else exactly; tensors are compared as lists."""
        self._check(label, self._read(expected), self._read(observed))

    @contextmanager
    def raises(self, kind: ErrorKind, phrase: str = "") -> Generator[None]:
        """Expect an error of this kind from the block, and a phrase in its text if the documentation gives one."""
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
        """Expect an exception of these types, e.g. one that a hook raised."""
        types = types if isinstance(types, tuple) else (types,)
        names = " or ".join(kind.__name__ for kind in types)
        wanted = f"{name or names}{f' saying {phrase!r}' if phrase else ''}"
        try:
            yield
        except Mismatch:
            raise
        except types as error:
            got = self._raised(error, types)
            self._judge("raises", wanted, got, held=phrase.lower() in str(error).lower())
        except Exception as error:
            got = self._raised(error, types)
            self.checks.append(Check("raises", wanted, got, held=False))
            raise Mismatch(f"expected {wanted} ({names}), raised {got}") from error
        else:
            self._judge("raises", wanted, "no error", held=False)

    def _raised(self, error: BaseException, wanted: tuple[type[BaseException], ...]) -> str:
        """Return in a line what was raised; raise it again if the adapter is to blame, whatever the rule expects."""
        if is_adapters(error, self._backend, wanted):
            raise error
        return f"{type(error).__name__}: {_first_line(error)}"

    def snapshot(self, value: Any) -> Any:
        """Return the value as plain data for a record, shortened if it is long."""
        return _shorten(self._read(value))

    def _read(self, value: Any) -> Any:
        if self._backend.is_tensor(value):
            return _plain(self._backend.tolist(value))
        if isinstance(value, list | tuple):
            return [*value] if _are_finite(value) else [self._read(item) for item in value]
        if isinstance(value, dict):
            return [[self._read(key), self._read(item)] for key, item in value.items()]
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
        compare = _are_close if _are_finite(expected) and _are_finite(observed) else same
        return len(expected) == len(observed) and all(map(compare, expected, observed))
    if isinstance(expected, bool) or isinstance(observed, bool):
        return expected is observed
    if isinstance(expected, int | float) and isinstance(observed, int | float):
        return _are_close(expected, observed)
    return bool(expected == observed)


def agree(expected: Event, observed: Event) -> bool:
    """Whether the observed event is the expected one."""
    return expected.label == observed.label and (expected.any_value or same(expected.value, observed.value))


def show(event: Event) -> str:
    """Return an event as text."""
    return repr(event.label) if event.any_value or event.value is None else f"{event.label!r} with {event.value}"


def _event(wanted: str | tuple[str, Any]) -> Event:
    return Event(wanted, any_value=True) if isinstance(wanted, str) else Event(wanted[0], _plain(wanted[1]))


def _all(events: Sequence[Event], none: str = "nothing") -> str:
    return ", ".join(show(event) for event in events) or none


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def _are_finite(values: Sequence[Any]) -> bool:
    """Whether these are finite floats and nothing else, by which a long list is read without a call for each."""
    return FLOATS.issuperset(map(type, values)) and all(map(math.isfinite, values))


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case complex():
            return [_plain(value.real), _plain(value.imag)]
        case list() | tuple():
            return [*value] if _are_finite(value) else [_plain(item) for item in value]
        case _:
            return type(value).__name__


def _size(value: Any) -> int:
    if not isinstance(value, list):
        return 1
    return len(value) if FLOATS.issuperset(map(type, value)) else sum(map(_size, value))


def _shorten(value: Any) -> Any:
    if not isinstance(value, list) or _size(value) <= LONGEST:
        return value
    numbers: list[Any] = []
    _flatten(value, numbers)
    return [*numbers[: LONGEST // 2], f"... {_size(value)} values"]


def _flatten(value: Any, into: list[Any]) -> None:
    for item in value:
        if isinstance(item, list):
            _flatten(item, into)
        else:
            into.append(item)
