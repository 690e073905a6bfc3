"""What a run found, in words: counts with their denominator, and only the cells that need a look."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hooklaw.outcome import HOLDS_THOUGH_DENIED, Outcome, Verdict, describe
from hooklaw.records import Result, Run
from hooklaw.spec import Rule

FORMATS = ("text", "json", "markdown")
ORDER = ("crash", "timeout", "error", "fail", "fixed")


class Counts(msgspec.Struct, frozen=True):
    """How many rules a run judged, and what came of them."""

    passed: int
    judged: int
    known: int
    differs: int
    regressions: int
    fixed: int
    unsupported: int
    not_run: int
    lost: int


def count(run: Run) -> Counts:
    """Count a run's cells by what they mean."""
    words = Counter(word(run, rule) for rule in run.header.rules if rule.id in run.results)
    passed, judged = run.count()
    known = sum(number for name, number in words.items() if name.startswith("known "))
    regressions = sum(verdict is Verdict.REGRESSION for _, _, verdict in cells(run))
    return Counts(
        passed=passed,
        judged=judged,
        known=known,
        differs=words["differs"],
        regressions=regressions,
        fixed=words["fixed"],
        unsupported=words["unsupported"],
        not_run=words["not-run"],
        lost=run.header.collected - len(run.results),
    )


def cells(run: Run) -> Iterable[tuple[Rule, Result, Verdict]]:
    """Yield every cell that has a result."""
    for rule in run.header.rules:
        if result := run.results.get(rule.id):
            yield rule, result, run.verdict(rule)


def word(run: Run, rule: Rule) -> str:
    """Return a cell in one or two words."""
    result = run.results[rule.id]
    return describe(result.outcome, rule.level, run.verdict(rule), result.expectation)


def sentence(run: Run) -> str:
    """Return what a run found, in one sentence with its denominator."""
    found = count(run)
    if run.header.not_run:
        return f"not run: {run.header.not_run}"
    parts = [f"{found.passed} of {found.judged} rules hold"]
    parts += [f"{found.known} known divergences"] * bool(found.known)
    parts += [f"{found.differs} differ where the law says MAY"] * bool(found.differs)
    parts.append(f"{found.regressions} regressions")
    parts += [f"{found.fixed} fixed"] * bool(found.fixed)
    parts += [f"{found.unsupported} unsupported ones left out"] * bool(found.unsupported)
    parts += [f"{found.not_run} not run"] * bool(found.not_run)
    parts += [f"{found.lost} LOST: the run is incomplete"] * bool(found.lost)
    return ", ".join(parts)


def render(runs: Sequence[Run], form: str) -> str:
    """Return the summary of some runs as text, JSON or markdown."""
    return {"text": _text, "json": _json, "markdown": _markdown}[form](runs)


def needing_a_look(run: Run) -> list[tuple[str, Rule, Result]]:
    """Return the cells that are not as expected, the worst first."""
    found = [(word(run, rule), rule, result) for rule, result, verdict in cells(run) if verdict != Verdict.AS_EXPECTED]
    return sorted(found, key=lambda cell: ORDER.index(cell[0]))


def _text(runs: Sequence[Run]) -> str:
    return "\n".join(line for run in runs for line in _one(run)) + "\n"


def _one(run: Run) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in list(run.header.versions.items())[:2])
    lines = [f"{run.header.backend} ({versions}): {sentence(run)}"]
    for what, rule, result in needing_a_look(run):
        lines.append(f"  {what.upper():8} {rule.id} ({rule.level})")
        said = _why_fixed(result) if what == "fixed" else result.detail
        lines.append(f"           {said}" + (f"  [{result.where}]" if result.where else ""))
    lines += [f"  STALE    {one.file}:{one.line}: the entry for {one.rule!r} {one.why}" for one in _stale(run)]
    lines += [
        f"  PROBED   {rule.id}: {result.detail}" for rule, result, _ in cells(run) if _holds_though_denied(result)
    ]
    lost = [rule.id for rule in run.header.rules if rule.id not in run.results]
    lines += [f"  LOST     {rule}" for rule in lost[:10]]
    lines += [f"  LOST     and {len(lost) - 10} more"] if len(lost) > 10 else []  # noqa: PLR2004 - enough to see which
    return lines


def _holds_though_denied(result: Result) -> bool:
    return result.outcome is Outcome.UNSUPPORTED and result.detail.startswith(HOLDS_THOUGH_DENIED)


def _why_fixed(result: Result) -> str:
    known = result.expectation
    return f"holds, though {known.file}:{known.line} expects it to {'/'.join(known.outcome)}" if known else "holds"


def _stale(run: Run) -> list[Any]:
    return run.footer.stale if run.footer else []


def _json(runs: Sequence[Run]) -> str:
    made = [
        {
            "backend": run.header.backend,
            "versions": run.header.versions,
            "complete": run.complete,
            "counts": msgspec.to_builtins(count(run)),
            "cells": [
                {"rule": rule.id, "outcome": result.outcome, "verdict": verdict, "detail": result.detail}
                for rule, result, verdict in cells(run)
            ],
            "stale": msgspec.to_builtins(_stale(run)),
        }
        for run in runs
    ]
    return json.dumps(made, indent=1) + "\n"


def _markdown(runs: Sequence[Run]) -> str:
    head = "| backend | hold | judged | known | regressions | fixed | unsupported |\n|---|---|---|---|---|---|---|\n"
    rows: list[str] = []
    for run in runs:
        one = count(run)
        numbers = (one.passed, one.judged, one.known, one.regressions, one.fixed, one.unsupported)
        rows.append(f"| {run.header.backend} | {' | '.join(map(str, numbers))} |\n")
    look = [
        f"- **{what}** `{rule.id}` on {run.header.backend}: {result.detail}\n"
        for run in runs
        for what, rule, result in needing_a_look(run)
    ]
    return head + "".join(rows) + ("\n" + "".join(look) if look else "")
