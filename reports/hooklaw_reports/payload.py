"""The page as JSON that is safe inside a script element: what the script draws when a row is opened."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hooklaw.law.rule import Rule
from hooklaw.law.trace import Event
from hooklaw.results.records import Result, Run
from hooklaw.results.verdict import Expectation
from hooklaw_reports.folklore import Folklore, said_of
from hooklaw_reports.marks import OUTCOMES, Mark
from hooklaw_reports.offload import Chart, Point
from hooklaw_reports.page import Page
from hooklaw_reports.runs import place
from hooklaw_reports.sheet import Column, Row, Sheet

MOST_EVENTS = 200
"""A lane shows at most this many events."""
MOST_TEXT = 4000
"""A failure shows at most this many characters."""
WORST_FIRST = list(OUTCOMES)


def payload(page: Page) -> str:
    """Return the JSON."""
    data = {
        "looks": {word: (mark.tone, mark.glyph) for word, mark in OUTCOMES.items()},
        "sheets": {sheet.kind.name: _sheet(sheet, page.folklore) for sheet in page.sheets},
        "charts": {chart.slug: _chart(chart) for chart in (page.offload.charts if page.offload else [])},
    }
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


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


def body(result: Result) -> dict[str, Any]:
    """Return what the page draws for one result, without its empty parts."""
    parts = {
        "detail": _clip(result.detail),
        "where": result.where,
        "program": result.program,
        "expected": _lane(result.expected),
        "observed": _lane(result.observed),
        "checks": [
            [check.label, value_text(check.expected), value_text(check.observed), check.held]
            for check in result.checks[:MOST_EVENTS]
        ],
    }
    first = {} if result.difference is None else {"first": result.difference}
    return _filled(parts) | first


def _sheet(sheet: Sheet, said: Folklore | None) -> dict[str, Any]:
    rows = (row for chapter in sheet.chapters for row in chapter.rows)
    return {
        "law": sheet.kind.law,
        "judged": sheet.kind.judged,
        "backends": [column.name for column in sheet.columns],
        "rules": {row.rule.id: _rule(row.rule, said) | {"groups": _groups(row, sheet.columns)} for row in rows},
    }


def _rule(rule: Rule, said: Folklore | None) -> dict[str, Any]:
    claims = said_of(said, rule.id)
    return ({"said": claims} if claims else {}) | {
        "level": str(rule.level),
        "basis": str(rule.basis),
        "sources": [[str(source), source.url] for source in rule.sources],
        "needs": rule.needs,
        "mutants": rule.mutants,
    }


def _groups(row: Row, columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return what each run did; runs that did the same share one entry, so that the file stays small."""
    groups: dict[bytes, dict[str, Any]] = {}
    for number, (column, mark) in enumerate(zip(columns, row.marks, strict=True)):
        did = _did(row.rule, column.run, mark)
        groups.setdefault(msgspec.json.encode(did), {"on": [], **did})["on"].append(number)
    return sorted(groups.values(), key=lambda group: WORST_FIRST.index(group["word"]))


def _did(rule: Rule, run: Run, mark: Mark) -> dict[str, Any]:
    result = run.results.get(rule.id)
    if result is None:
        return {"word": mark.word, "detail": run.header.not_run or "this run did not have the rule"}
    entry = {"expectation": _entry(result.expectation)} if result.expectation else {}
    return {"word": mark.word, "verdict": str(run.verdict(rule))} | entry | body(result)


def _entry(entry: Expectation) -> dict[str, str]:
    parts = {
        "outcome": " or ".join(entry.outcome),
        "saw": " or ".join(entry.saw),
        "reason": entry.reason,
        "issue": entry.issue,
        "when": entry.when,
        "expires": entry.expires,
        "at": place(entry.file, entry.line),
    }
    return _filled(parts)


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        "title": chart.title,
        "points": [_point(point) for point in chart.points],
        "answers": [[answer.least, answer.before, answer.after, answer.strategy] for answer in chart.answers],
    }


def _point(point: Point) -> dict[str, Any]:
    cell = point.cell
    parts = {"line": point.line, "about": cell.text, "detail": _clip(cell.detail), "timeline": cell.timeline}
    figures = {"name": cell.strategy, "words": point.state.word, "facts": point.facts}
    position = {"x": cell.peak, "y": cell.ratio, "low": cell.ratio_q1, "high": cell.ratio_q3, "shape": point.shape}
    return figures | (position if point.drawn else {}) | _filled(parts)


def _lane(events: Sequence[Event]) -> list[list[str]]:
    """Return a lane as pairs of label and value, without the values that the rule leaves open."""
    shown = [
        [event.label] if event.any_value else [event.label, value_text(event.value)] for event in events[:MOST_EVENTS]
    ]
    left = len(events) - len(shown)
    return [*shown, [f"... {left} more in the record"]] if left else shown


def _clip(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n... {len(text) - MOST_TEXT} more characters in the record"


def _filled(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part}
