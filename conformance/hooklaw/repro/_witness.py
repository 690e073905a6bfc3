"""The witness: what a script notes and compares, in the place of a trace."""

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from hooklaw.backend.protocol import Backend

events: list[list[Any]] = []
judged: list[list[Any]] = []


def plain(backend: Backend, value: Any) -> Any:
    """Return a value with lists in the place of tensors, and of dicts, whose items stand for them."""
    value = backend.tolist(value) if backend.is_tensor(value) else value
    value = [*value.items()] if isinstance(value, dict) else value
    return [plain(backend, item) for item in value] if isinstance(value, (list, tuple)) else value


def same(expected: Any, observed: Any) -> bool:
    """Compare numbers to 1 part in 100,000, and everything else exactly."""
    if isinstance(expected, list) and isinstance(observed, list):
        return len(expected) == len(observed) and all(map(same, expected, observed))
    if isinstance(expected, float) and isinstance(observed, float):
        return math.isclose(expected, observed, rel_tol=1e-5, abs_tol=1e-6) or str(expected) == str(observed)
    return expected == observed


def log(backend: Backend, label: str, value: Any = None) -> None:
    """Note and print an event."""
    events.append([label, plain(backend, value)])
    print(*events[-1])


def saw(backend: Backend, label: str, action: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a hook that notes its arguments, and returns what the action makes of them."""

    def hook(*args: Any) -> Any:
        log(backend, label, args[0] if len(args) == 1 else args)
        return action and action(*args)

    return hook


def since_last() -> list[list[Any]]:
    """Return the events since the last look."""
    seen = events[len(judged) :]
    judged.extend(seen)
    return seen


def expect(backend: Backend, *wanted: str | tuple[str, Any]) -> None:
    """Demand exactly these events, in this order; a bare label leaves the value open."""
    seen = since_last()
    expected = [[event] if isinstance(event, str) else plain(backend, event) for event in wanted]
    agree = [same(one, event[: len(one)]) for one, event in zip(expected, seen)]
    assert all(agree) and len(expected) == len(seen), f"expected {expected}, saw {seen}"


def expect_in_any_order(*wanted: str) -> None:
    """Demand exactly these labels."""
    seen = [label for label, _ in since_last()]
    assert sorted(seen) == sorted(wanted), f"expected in any order {wanted}, saw {seen}"


def expect_before(first: str, then: str) -> None:
    """Demand that both were seen, and the first before the other."""
    seen = [label for label, _ in events]
    assert first in seen and first not in seen[seen.index(then) :], f"expected {first} before {then}, saw {seen}"


def expect_value(backend: Backend, label: str, expected: Any, observed: Any) -> None:
    """Demand a value."""
    expected, observed = plain(backend, expected), plain(backend, observed)
    assert same(expected, observed), f"{label} should be {expected}, was {observed}"


def clear() -> None:
    """Forget all events."""
    events.clear()
    judged.clear()


def count(label: str) -> int:
    """Return how often an event was seen."""
    return sum(event[0] == label for event in events)


def values(label: str) -> list[Any]:
    """Return what was seen under a label."""
    return [value for seen, value in events if seen == label]


def snapshot(backend: Backend, value: Any) -> Any:
    """Return a value as plain data."""
    return plain(backend, value)


@contextmanager
def raises(types: type[BaseException] | tuple[type[BaseException], ...], phrase: str = "") -> Generator[None]:
    """Demand an exception of a type that says a phrase."""
    try:
        yield
    except types as error:
        assert phrase.lower() in str(error).lower(), f"expected {phrase!r} in: {error}"
    else:
        raise AssertionError(f"expected {types}, nothing was raised")
