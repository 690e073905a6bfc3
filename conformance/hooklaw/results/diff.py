"""The difference of two record files: which run stands against which, and what became of each rule."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from hooklaw.errors import RecordConflictError
from hooklaw.law.rule import Level, Rule
from hooklaw.results.records import Result, Run, RunKind, rules_of
from hooklaw.results.seen import seen
from hooklaw.results.text import name
from hooklaw.results.verdict import JUDGED, Exit, Outcome, Verdict, exit_of, worst


class Change(StrEnum):
    """What became of a rule, the worst first."""

    REGRESSED = "regressed"
    DIFFERENTLY = "fails-differently"
    LOST = "lost"
    """It was judged, and now it is unsupported or not run."""
    FIXED = "fixed"
    NEW = "new"
    """It is judged for the first time."""
    GONE = "gone"
    """It was judged, and is not among the rules of the new run."""
    ALLOWED = "allowed"
    """A MAY rule does something else."""
    STILL = "still-failing"
    UNCHANGED = "unchanged"

    @property
    def words(self) -> str:
        """The change in words."""
        return self.replace("-", " ")


WORSE = frozenset({Change.REGRESSED, Change.DIFFERENTLY, Change.LOST})


class Changed(msgspec.Struct, frozen=True):
    """A rule in both runs."""

    rule: Rule
    change: Change
    verdict: Verdict
    old: Result | None
    new: Result | None


class Comparison(msgspec.Struct, frozen=True):
    """Two runs of the same subject, or a run without its like."""

    old: Run | None
    new: Run | None
    cells: list[Changed]
    """Every rule that was judged in one of them."""

    @property
    def counts(self) -> Counter[Change]:
        """How many rules there are of each change."""
        return Counter(cell.change for cell in self.cells)

    @property
    def exit(self) -> Exit:
        """The exit: broken, a regression, something fixed, or nothing of these."""
        cells = ((cell.new.outcome if cell.new else Outcome.NOT_RUN, cell.verdict) for cell in self.cells)
        return exit_of(cells, allow_not_run=True)


def compare(old: Sequence[Run], new: Sequence[Run]) -> list[Comparison]:
    """Return the comparison of each run with its like, in the order of the new runs; those without come last.

    Raises RecordConflictError if a run has several like it, or is a benchmark.
    """
    for run in (*old, *new):
        if run.header.run_kind is RunKind.BENCHMARK:
            raise RecordConflictError(f"{run.file} holds a benchmark: `hooklaw bench compare` compares two of them")
    return [Comparison(before, after, list(_cells(before, after))) for before, after in pairs(old, new)]


def exit_of_all(comparisons: Sequence[Comparison]) -> Exit:
    """Return the worst exit of the comparisons."""
    return worst(each.exit for each in comparisons) if comparisons else Exit.OK


def pairs(old: Sequence[Run], new: Sequence[Run]) -> list[tuple[Run | None, Run | None]]:
    """Return the runs of two files in pairs: by subject, and where it has several runs, by versions.

    A file with one run is compared with a file with one run, whatever they judge.
    """
    if len(old) == len(new) == 1 and old[0].header.run_kind is new[0].header.run_kind:
        return [(old[0], new[0])]
    left, found = list(old), list[tuple[Run | None, Run | None]]()
    for run in new:
        like = _like(run, old, new)
        found.append((like, run))
        if like in left:
            left.remove(like)
    return found + [(run, None) for run in left]


def _like(run: Run, old: Sequence[Run], new: Sequence[Run]) -> Run | None:
    like, rivals = ([other for other in runs if other.header.title == run.header.title] for runs in (old, new))
    if len(like) == len(rivals) == 1 or not like:
        return like[0] if like else None
    same = [other for other in like if other.header.versions == run.header.versions]
    same = same or [other for other in like if other.header.version == run.header.version]
    twins = [other for other in rivals if other.header.versions == run.header.versions]
    if len(same) > 1 or len(twins) > 1 or (not same and len(rivals) == 1):
        shown = ", ".join(sorted({other.header.version for other in like}))
        raise RecordConflictError(
            f"{like[0].file} has {len(like)} runs of {name(run.header.title)!r} ({name(shown)}), and {run.file} has "
            f"{len(rivals)}: which is to be compared with {name(run.header.version)} is open; name files with one run"
        )
    return same[0] if same else None


def _cells(old: Run | None, new: Run | None) -> Iterator[Changed]:
    ids = [{rule.id for rule in run.header.rules} if run else None for run in (old, new)]
    for rule in rules_of([run for run in (new, old) if run]):
        before, after = (run.results.get(rule.id) if run else None for run in (old, new))
        if not (_judged(before) or _judged(after)):
            continue
        change = _change(rule, before, after)
        if change is Change.LOST and ids[1] is not None and rule.id not in ids[1]:
            change = Change.GONE
        yield Changed(rule, change, _verdict(change, rule, new), before, after)


def _judged(result: Result | None) -> bool:
    return result is not None and result.outcome in JUDGED


def _change(rule: Rule, old: Result | None, new: Result | None) -> Change:
    if old is None or old.outcome not in JUDGED:
        return Change.NEW
    if new is None or new.outcome not in JUDGED:
        return Change.LOST
    outcomes = {old.outcome, new.outcome}
    same = outcomes == {Outcome.PASS} or seen(old) == seen(new)
    if rule.level is Level.MAY and outcomes <= {Outcome.PASS, Outcome.FAIL}:
        return Change.UNCHANGED if same else Change.ALLOWED
    if Outcome.PASS not in outcomes:
        return Change.STILL if same else Change.DIFFERENTLY
    if same:
        return Change.UNCHANGED
    return Change.FIXED if new.outcome is Outcome.PASS else Change.REGRESSED


def _verdict(change: Change, rule: Rule, new: Run | None) -> Verdict:
    if change in WORSE:
        return Verdict.REGRESSION
    if change is Change.FIXED:
        return Verdict.FIXED
    return new.verdict(rule) if change is Change.NEW and new else Verdict.AS_EXPECTED
