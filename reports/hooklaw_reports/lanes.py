"""The events and values of one result as text that can stand in a page."""

from collections.abc import Sequence
from typing import Any

from hooklaw.law.trace import Event
from hooklaw.results.records import Result

MOST_EVENTS = 200
"""A lane shows at most this many events."""
MOST_TEXT = 4000
"""A failure shows at most this many characters."""


def value_text(value: Any) -> str:
    """Return a value as Python writes it, floats to six digits."""
    match value:
        case float():
            short = f"{value:.6g}"
            return short if any(mark in short for mark in ".ein") else f"{short}.0"
        case str():
            return value
        case list():
            return f"[{', '.join(map(value_text, value))}]"  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return str(value)


def clip(text: str) -> str:
    """Return the text, its end replaced by a count where it is very long."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n... {len(text) - MOST_TEXT} more characters in the record"


def lane(events: Sequence[Event]) -> list[list[str]]:
    """Return a lane as pairs of label and value, the value left out where the rule leaves it open."""
    shown = [[one.label] if one.any_value else [one.label, value_text(one.value)] for one in events[:MOST_EVENTS]]
    left = len(events) - len(shown)
    return [*shown, [f"... {left} more in the record"]] if left else shown


def body(result: Result) -> dict[str, Any]:
    """Return what the page draws for one result; empty parts are left out."""
    parts = {
        "detail": clip(result.detail),
        "where": result.where,
        "program": result.program,
        "expected": lane(result.expected),
        "observed": lane(result.observed),
        "checks": [
            [check.label, value_text(check.expected), value_text(check.observed), check.held]
            for check in result.checks[:MOST_EVENTS]
        ],
    }
    found = {} if result.difference is None else {"first": result.difference}
    return {name: part for name, part in parts.items() if part} | found
