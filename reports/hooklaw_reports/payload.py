"""What the page draws when a rule is opened, as JSON that is safe inside a script element."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hooklaw.law.rule import Rule
from hooklaw.results.records import Run, rules_of
from hooklaw.results.summary import words as words_of
from hooklaw.results.verdict import Expectation
from hooklaw_reports import sentences
from hooklaw_reports.columns import facts
from hooklaw_reports.kinds import Kind, names, sorted_out
from hooklaw_reports.lanes import body, clip
from hooklaw_reports.offload import Chart, Point, offload
from hooklaw_reports.view import LOOK

WORST_FIRST = list(LOOK)


def payload(runs: Sequence[Run]) -> str:
    """Return the JSON; backends that did the same on a rule share one entry, so that the file stays small."""
    shown = offload(runs)
    data = {
        "looks": LOOK,
        "sheets": {kind.name: _sheet(kind, its) for kind, its in sorted_out(runs)},
        "charts": {chart.slug: _chart(chart) for chart in shown.charts} if shown else {},
    }
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


def _sheet(kind: Kind, runs: Sequence[Run]) -> dict[str, Any]:
    found = [words_of(run) for run in runs]
    return {
        "law": kind.law,
        "judged": kind.judged,
        "backends": names(runs),
        "rules": {rule.id: _facts(rule) | {"groups": _groups(rule, runs, found)} for rule in rules_of(runs)},
    }


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        "title": chart.title,
        "points": [_point(point) for point in chart.points],
        "answers": [[one.least, one.before, one.after, one.strategy] for one in chart.answers],
    }


def _point(point: Point) -> dict[str, Any]:
    cell = point.cell
    parts = {"line": point.line, "about": cell.text, "detail": clip(cell.detail), "law": point.law}
    place = {"x": cell.peak, "y": cell.ratio, "low": cell.ratio_q1, "high": cell.ratio_q3, "shape": point.shape}
    figures = {"name": cell.strategy, "words": point.words, "facts": facts(cell)}
    return figures | (place if point.drawn else {}) | {name: part for name, part in parts.items() if part}


def _facts(rule: Rule) -> dict[str, Any]:
    return {
        "level": str(rule.level),
        "basis": str(rule.basis),
        "sources": [[str(source), source.url] for source in rule.sources],
        "needs": rule.needs,
        "mutants": rule.mutants,
    }


def _groups(rule: Rule, runs: Sequence[Run], found: list[dict[str, str]]) -> list[dict[str, Any]]:
    groups: dict[bytes, dict[str, Any]] = {}
    for column, (run, words) in enumerate(zip(runs, found, strict=True)):
        did = _did(rule, run, words)
        groups.setdefault(msgspec.json.encode(did), {"on": [], **did})["on"].append(column)
    return sorted(groups.values(), key=lambda group: WORST_FIRST.index(group["word"]))


def _did(rule: Rule, run: Run, words: dict[str, str]) -> dict[str, Any]:
    result = run.results.get(rule.id)
    if rule.id not in words:
        return {"word": "not-run", "detail": run.header.not_run or "this run did not have the rule"}
    if result is None:
        return {"word": words[rule.id], "detail": run.header.not_run}
    entry = {"expectation": _entry(result.expectation)} if result.expectation else {}
    return {"word": words[rule.id], "verdict": str(run.verdict(rule))} | entry | body(result)


def _entry(entry: Expectation) -> dict[str, str]:
    parts = {
        "outcome": " or ".join(entry.outcome),
        "reason": entry.reason,
        "issue": entry.issue,
        "when": entry.when,
        "expires": entry.expires,
        "at": sentences.place(entry.file, entry.line),
    }
    return {name: part for name, part in parts.items() if part}
