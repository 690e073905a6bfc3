"""What a run came to, counted and in words, always with its denominator: said once for the terminal and the report."""

from collections import Counter

import msgspec

from hooklaw.law.rule import Rule
from hooklaw.results.records import Run, RunKind
from hooklaw.results.verdict import JUDGED, Exit, Outcome, Verdict, describe, exit_of


class Nouns(msgspec.Struct, frozen=True):
    """What the parts of a run are called in a sentence."""

    law: str
    laws: str
    known: str
    regression: str


NOUNS = {
    RunKind.RULES: Nouns("rule", "rules", "known divergence{}", "regression{}"),
    RunKind.PACKER: Nouns("property", "properties", "SHOULD{} broken", "MUST{} broken"),
}
"""``{}`` is where the plural's s goes."""


class Counts(msgspec.Struct, frozen=True):
    """How many rules a run judged, and what came of them."""

    passed: int
    judged: int
    known: int
    differs: int
    regressions: int
    fixed: int
    stale: int
    unsupported: int
    not_run: int
    lost: int


class ChapterCounts(msgspec.Struct, frozen=True):
    """How many rules of a chapter hold, were judged, and are unsupported."""

    passed: int
    judged: int
    unsupported: int


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, e.g. ``1 rule``, ``2 rules``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


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


def exit_of_run(run: Run, *, allow_not_run: bool = False) -> Exit:
    """Return how a run as a whole came out; one that judged nothing is broken, unless that is allowed."""
    cells = [(run.outcome(rule.id), run.verdict(rule)) for rule in run.header.rules]
    return exit_of(cells, stale=bool(run.stale), allow_not_run=allow_not_run)


def count(run: Run) -> Counts:
    """Count a run's cells by what they mean."""
    said = words(run)
    number = Counter(said[rule_id] for rule_id in run.results)
    passed, judged = run.count()
    return Counts(
        passed=passed,
        judged=judged,
        known=sum(many for name, many in number.items() if name.startswith("known ")),
        differs=number["differs"],
        regressions=len(of_verdict(run, Verdict.REGRESSION)),
        fixed=number["fixed"],
        stale=len(run.stale),
        unsupported=number["unsupported"],
        not_run=number["not-run"],
        lost=run.header.collected - len(run.results),
    )


def sentence(run: Run, nouns: Nouns | None = None) -> str:
    """Return the verdict in words, e.g. ``211 of 230 rules hold, 19 known divergences, 0 regressions``."""
    if run.header.not_run:
        return f"not run: {run.header.not_run}"
    found = count(run)
    nouns = nouns or NOUNS[run.header.run_kind]
    law = nouns.law if found.judged == 1 else nouns.laws
    first = [f"{found.passed} of {found.judged} {law} hold", _many(found.known, nouns.known)]
    allowed = [counted(found.differs, "allowed difference")] if found.differs else []
    further = {
        "fixed": found.fixed,
        "stale in the expectation file": found.stale,
        "unsupported and not counted": found.unsupported,
        "not run": found.not_run,
        "LOST, the run is incomplete": found.lost,
    }
    rest = [f"{number} {text}" for text, number in further.items() if number]
    return ", ".join([*first, _regressions(run, nouns.regression), *allowed, *rest])


def _many(number: int, noun: str) -> str:
    return f"{number} {noun.format('' if number == 1 else 's')}"


def _regressions(run: Run, noun: str) -> str:
    ids = of_verdict(run, Verdict.REGRESSION)
    kinds = Counter(run.outcome(rule_id) for rule_id in ids)
    worse = [f"{kinds[one]} {one}" for one in sorted(JUDGED - {Outcome.PASS, Outcome.FAIL}) if kinds[one]]
    return _many(len(ids), noun) + (f" (of them {', '.join(worse)})" if worse else "")


def by_chapter(run: Run) -> dict[str, ChapterCounts]:
    """Return, for each chapter of the run, how many of its rules hold, were judged and are unsupported."""
    found: dict[str, list[Outcome]] = {}
    for rule in run.header.rules:
        found.setdefault(rule.chapter, []).append(run.outcome(rule.id))
    return {
        chapter: ChapterCounts(
            passed=outcomes.count(Outcome.PASS),
            judged=sum(outcome in JUDGED for outcome in outcomes),
            unsupported=outcomes.count(Outcome.UNSUPPORTED),
        )
        for chapter, outcomes in found.items()
    }


def denied(run: Run, rule: Rule) -> list[str]:
    """Return the capabilities that the backend lacks, of those that a rule needs."""
    result = run.results.get(rule.id)
    if not result or result.outcome is not Outcome.UNSUPPORTED:
        return []
    return [str(need) for need in rule.needs if f" {need}: " in f" {result.detail}"]


def lacking(run: Run) -> Counter[str]:
    """Return the capabilities that the backend lacks, with the number of rules that need them."""
    return Counter(need for rule in run.header.rules for need in denied(run, rule))
