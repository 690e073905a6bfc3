"""What a run found, in words: counts with their denominator, and only the cells that need a look."""

import json
from collections.abc import Iterable, Sequence

import msgspec

from hooklaw.law.rule import Rule
from hooklaw.results.naming import names
from hooklaw.results.records import Result, Run
from hooklaw.results.summary import by_chapter, count, counted, denied, lacking, sentence, words
from hooklaw.results.text import code, markdown, printable
from hooklaw.results.verdict import FAILS_AS_DENIED, FAILS_DIFFERENTLY, HOLDS_THOUGH_DENIED, Verdict, as_known

FORMATS = ("text", "json", "markdown")
LIMIT = 1 << 20
"""Bytes that GitHub takes of a step's summary."""
RESERVED = 100
"""Of these, bytes for the line that says how much is left out."""
MOST = 8
"""So many of the capabilities that a backend lacks are named."""
ORDER = ("crash", "timeout", "error", "fail", FAILS_DIFFERENTLY, "fixed")


def cells(run: Run) -> Iterable[tuple[Rule, Result, Verdict]]:
    """Yield every cell that has a result."""
    for rule in run.header.rules:
        if result := run.results.get(rule.id):
            yield rule, result, run.verdict(rule)


def render(runs: Sequence[Run], form: str, *, quiet: bool = False) -> str:
    """Return the summary of some runs as text, JSON or markdown; a quiet text has the verdicts alone."""
    if quiet and form == "text":
        return "".join(f"{printable(_verdict(run))}\n" for run in runs)
    return {"text": _text, "json": _json, "markdown": _markdown}[form](runs)


def within(runs: Sequence[Run], limit: int) -> str:
    """Return the summary as markdown of at most so many bytes: cells that find no room are counted."""
    lines = _markdown(runs).splitlines(keepends=True)
    room = limit - RESERVED
    kept: list[str] = []
    for line in lines:
        room -= len(line.encode())
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    more = f"\n{left} more lines had no room here\n" if left else ""
    return "".join(kept) + more if limit >= RESERVED else ""


def needing_a_look(run: Run) -> list[tuple[str, Rule, Result]]:
    """Return the cells that are not as expected, the worst first."""
    named = words(run)
    found = [(named[rule.id], rule, result) for rule, result, verdict in cells(run) if verdict != Verdict.AS_EXPECTED]
    return sorted(found, key=lambda cell: ORDER.index(cell[0]))


def _text(runs: Sequence[Run]) -> str:
    return "\n".join(printable(line) for run in runs for line in _one(run)) + "\n"


def _verdict(run: Run) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in list(run.header.versions.items())[:2])
    return f"{run.header.subject} ({versions}): {sentence(run)}"


def _one(run: Run) -> list[str]:
    lines = [_verdict(run), *_what_was_judged(run)]
    for what, rule, result in needing_a_look(run):
        lines.append(f"  {what.upper():8} {rule.id} ({rule.level})")
        said = _why_fixed(result) if what == "fixed" else result.detail
        lines.append(f"           {said}" + (f"  [{result.where}]" if result.where else ""))
        lines += [f"           known: {as_known(result.expectation)}"] if result.expectation and what != "fixed" else []
        lines += [f"           stderr: {line}" for line in result.stderr.splitlines()]
    lines += [f"  STALE    {entry.file}:{entry.line}: the entry for {entry.rule!r} {entry.why}" for entry in run.stale]
    lines += [f"  PROBED   {line}" for line in _what_holds_though_denied(run)]
    lost = [rule.id for rule in run.header.rules if rule.id not in run.results]
    lines += [f"  LOST     {rule}" for rule in lost[:10]]
    lines += [f"  LOST     and {len(lost) - 10} more"] if len(lost) > 10 else []  # noqa: PLR2004 - enough to see which
    return lines


def _what_was_judged(run: Run) -> list[str]:
    """Return, where most rules are unsupported, which chapters the counts speak of, and what the others need."""
    counts, lacks = count(run), lacking(run).most_common()
    if counts.unsupported <= counts.judged:
        return []
    chapters = {name: found for name, found in by_chapter(run).items() if found.judged}
    judged = ", ".join(f"{name} {found.passed} of {found.judged}" for name, found in chapters.items())
    needs = ", ".join(f"{name} ({counted(many, 'rule')})" for name, many in lacks[:MOST])
    more = f" and {len(lacks) - MOST} more" if len(lacks) > MOST else ""
    return [f"  JUDGED   {judged or 'no chapter'}", f"  LACKING  {needs}{more}"]


def _what_holds_though_denied(run: Run) -> Iterable[str]:
    """Yield what probing found of each capability, or of several at once: it is stale if no rule bears it out."""
    found: dict[str, dict[str, bool]] = {}
    for rule, result, _ in cells(run):
        if result.detail.startswith((HOLDS_THOUGH_DENIED, FAILS_AS_DENIED)):
            lacks = " and ".join(denied(run, rule))
            found.setdefault(lacks, {})[rule.id] = result.detail.startswith(HOLDS_THOUGH_DENIED)
    for lacks, rules in found.items():
        hold = [rule for rule, held in rules.items() if held]
        if len(hold) == len(rules):
            yield f"{lacks}: stale: denied, yet each rule that lacks nothing else holds: {', '.join(hold)}"
        elif hold:
            some = f"{len(hold)} of {len(rules)} rules that lack nothing else hold"
            yield f"{lacks}: denied, yet {some}: {', '.join(hold)}"


def _why_fixed(result: Result) -> str:
    known = result.expectation
    return f"holds, though {known.file}:{known.line} expects it to {'/'.join(known.outcome)}" if known else "holds"


def _json(runs: Sequence[Run]) -> str:
    made = [
        {
            "backend": run.header.backend,
            "condition": run.header.condition,
            "not_run": run.header.not_run,
            "versions": run.header.versions,
            "complete": run.complete,
            "counts": msgspec.to_builtins(count(run)),
            "chapters": msgspec.to_builtins(by_chapter(run)),
            "lacking": dict(lacking(run).most_common()),
            "cells": [
                {
                    "rule": rule.id,
                    "outcome": result.outcome,
                    "verdict": verdict,
                    "detail": result.detail,
                    "known": as_known(result.expectation) if result.expectation else "",
                }
                for rule, result, verdict in cells(run)
            ],
            "stale": msgspec.to_builtins(run.stale),
        }
        for run in runs
    ]
    return json.dumps(made, indent=1) + "\n"


def _markdown(runs: Sequence[Run]) -> str:
    head = "| backend | hold | judged | known | regressions | fixed | unsupported |\n|---|---|---|---|---|---|---|\n"
    rows: list[str] = []
    for run, called in zip(runs, names(runs), strict=True):
        counts = count(run)
        numbers = (counts.passed, counts.judged, counts.known, counts.regressions, counts.fixed, counts.unsupported)
        not_run = f" (not run: {markdown(run.header.not_run)})" if run.header.not_run else ""
        rows.append(f"| {markdown(called)}{not_run} | {' | '.join(map(str, numbers))} |\n")
    judged = [f"- {markdown(line.strip())}\n" for run in runs for line in _what_was_judged(run)]
    look = [line for run in runs for line in _bullets(run)]
    return head + "".join(rows) + ("\n" + "".join([*judged, *look]) if judged or look else "")


def _bullets(run: Run) -> Iterable[str]:
    subject = markdown(run.header.subject)
    for what, rule, result in needing_a_look(run):
        said = _why_fixed(result) if what == "fixed" else result.detail
        known = f" (known: {as_known(result.expectation)})" if result.expectation and what != "fixed" else ""
        yield f"- **{what}** {code(rule.id)} ({rule.level}) on {subject}: {markdown(said + known)}\n"
    for entry in run.stale:
        place = code(f"{entry.file}:{entry.line}")
        yield f"- **stale** {place}: the entry for {code(entry.rule)} {markdown(entry.why)}\n"
