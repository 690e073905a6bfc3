"""What a run came to, in words, always with its denominator."""

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from hooklaw.outcome import JUDGED, Exit, Outcome, Verdict, describe, exit_of
from hooklaw.records import Run, rules_of


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, e.g. ``1 rule``, ``2 rules``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def place(file: str, line: int) -> str:
    """Return where an entry stands, by folder and file: whose home these lie in is nobody's business."""
    return f"{'/'.join(PurePath(file).parts[-2:])}:{line}" if file else ""


def words(run: Run) -> dict[str, str]:
    """Return what happened to each rule of the run, in one or two words."""
    entries = {rule_id: result.expectation for rule_id, result in run.results.items()}
    return {
        rule.id: describe(run.outcome(rule.id), rule.level, run.verdict(rule), entries.get(rule.id))
        for rule in run.header.rules
    }


def of_verdict(run: Run, verdict: Verdict) -> list[str]:
    """Return the ids of the rules with this verdict."""
    return [rule.id for rule in run.header.rules if run.verdict(rule) is verdict]


def stale_entries(run: Run) -> int:
    """Return how many entries of the expectation file no longer say anything."""
    return len(run.footer.stale) if run.footer else 0


def exit_of_run(run: Run) -> Exit:
    """Return how the run as a whole came out."""
    cells = [(run.outcome(rule.id), run.verdict(rule)) for rule in run.header.rules]
    return exit_of(cells, stale=bool(stale_entries(run)))


def sentence(run: Run) -> str:
    """Return the verdict in words, e.g. ``211 of 230 rules hold, 19 known divergences, 0 regressions``."""
    if run.header.not_run:
        return f"not run: {run.header.not_run}"
    passed, judged = run.count()
    count = Counter(words(run).values())
    known = sum(number for name, number in count.items() if name.startswith("known "))
    allowed = [counted(count["differs"], "allowed difference")] if count["differs"] else []
    first = [f"{passed} of {counted(judged, 'rule')} hold", counted(known, "known divergence"), _regressions(run)]
    further = {
        "fixed": count["fixed"],
        "stale in the expectation file": stale_entries(run),
        "unsupported and not counted": count["unsupported"],
        "not run": count["not-run"],
    }
    return ", ".join([*first, *allowed, *(f"{number} {text}" for text, number in further.items() if number)])


def sentences(runs: Iterable[Run]) -> str:
    """Return the verdicts of several runs in one line."""
    return "; ".join(f"{run.header.backend}: {sentence(run)}" for run in runs)


def headline(runs: list[Run]) -> str:
    """Return what the report is about, e.g. ``230 rules, 3 backends``."""
    names = {run.header.backend for run in runs}
    return f"{counted(len(rules_of(runs)), 'rule')}, {counted(len(names), 'backend')}"


def _regressions(run: Run) -> str:
    ids = of_verdict(run, Verdict.REGRESSION)
    kinds = Counter(run.outcome(rule_id) for rule_id in ids)
    worse = [f"{kinds[one]} {one}" for one in sorted(JUDGED - {Outcome.PASS, Outcome.FAIL}) if kinds[one]]
    return counted(len(ids), "regression") + (f" (of them {', '.join(worse)})" if worse else "")
