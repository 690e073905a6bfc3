"""Sheets: runs of one kind side by side, rules by the row and runs by the column."""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from hooklaw.law.rule import Level, Rule
from hooklaw.results.naming import versions_of
from hooklaw.results.records import Run, RunKind, rules_of
from hooklaw.results.summary import counted, of_verdict, words
from hooklaw.results.verdict import JUDGED, Outcome, Stale, Verdict
from hooklaw_reports import marks
from hooklaw_reports.marks import OUTCOMES, Mark
from hooklaw_reports.published import last_result
from hooklaw_reports.runs import date, place, sentence


class Kind(msgspec.Struct, frozen=True):
    """What a sheet is about, and what that is called on the page."""

    of: RunKind
    name: str
    title: str
    judged: str
    law: str
    laws: str


KINDS = (
    Kind(RunKind.RULES, "rules", "Rules", "backend", "rule", "rules"),
    Kind(RunKind.PACKER, "packers", "Packers", "packer", "property", "properties"),
)
OFFLOAD = Kind(RunKind.BENCHMARK, "offload", "Offload", "device", "cell", "cells")


class Row(msgspec.Struct, frozen=True):
    """One rule across the runs."""

    rule: Rule
    marks: list[Mark]
    brief: list[tuple[Mark, str]]
    """Each outcome, worst first, with the runs that have it by name or number: what a narrow page shows."""
    disagree: bool


class Chapter(msgspec.Struct, frozen=True):
    """The rules of one chapter and, for each run, how many of them hold."""

    name: str
    rows: list[Row]
    tallies: list[str]

    @property
    def title(self) -> str:
        """The name as a heading, without the page's own name."""
        return self.name.removeprefix("packer-").replace("-", " ").capitalize()


class NamedRun(msgspec.Struct, frozen=True):
    """One run: what it is called and what it came to."""

    run: Run
    name: str
    sentence: str

    @property
    def prefix(self) -> str:
        """What stands before the name in the terminal, e.g. ``packer:``."""
        return self.run.header.title.removesuffix(self.run.header.subject)


class Column(NamedRun, frozen=True):
    """One run that judged rules or a packer."""

    label: str
    """The short name above the column."""
    tally: str
    mark: Mark
    published: str
    regressions: list[str]
    fixed: list[tuple[str, str]]
    stale: list[tuple[Stale, str]]

    @property
    def origin(self) -> str:
        """The version of the framework, or those of a packer's packages, and when the run started."""
        return ", ".join([*versions_of(self.run), date(self.run)])


class Sheet(msgspec.Struct, frozen=True):
    """The runs that stand side by side in one matrix."""

    kind: Kind
    columns: list[Column]
    chapters: list[Chapter]
    outcomes: list[tuple[Mark, int]]
    levels: list[Level]
    subject: str
    """E.g. ``452 rules, 4 backends in 6 runs``."""

    @property
    def verdicts(self) -> list[Column]:
        """The runs, worst first."""
        return sorted(self.columns, key=lambda column: marks.severity(column.mark))

    @property
    def summary(self) -> str:
        """The verdicts counted, e.g. ``9 packers: 2 safe, 1 safe with exceptions, 6 unsafe``."""
        return f"{self.subject.partition(', ')[2]}: {marks.tally(column.mark for column in self.columns)}"

    @property
    def worst(self) -> Mark:
        """The worst verdict, with its count."""
        return marks.worst(column.mark for column in self.columns)


def parts(name: str) -> list[str]:
    """Return a name in pieces between which a line may break; a version's number stays whole."""
    return re.split(r"(?<=[:_/-])|(?<=[a-z]\+)|(?<=\.)(?!\d)|(?<=[a-z])(?=[A-Z])", name)


def sheet(kind: Kind, runs: Sequence[Run], names: Sequence[str]) -> Sheet:
    """Return the sheet of these runs, which are of one kind."""
    labels = _labels(kind, names)
    chapters = _chapters(runs, labels)
    counts = Counter(mark for chapter in chapters for row in chapter.rows for mark in row.marks)
    rules = rules_of(runs)
    return Sheet(
        kind=kind,
        columns=[_column(run, name, label) for run, name, label in zip(runs, names, labels, strict=True)],
        chapters=chapters,
        outcomes=[(mark, counts[mark]) for mark in OUTCOMES.values() if counts[mark]],
        levels=[level for level in Level if any(rule.level is level for rule in rules)],
        subject=_subject(kind, runs, len(rules)),
    )


def _labels(kind: Kind, names: Sequence[str]) -> list[str]:
    """Return the names without the module of a packer, as long as that tells them apart."""
    short = [name.partition(":")[2] or name for name in names]
    return short if kind.of is RunKind.PACKER and len({*short}) == len(short) else [*names]


def _subject(kind: Kind, runs: Sequence[Run], rules: int) -> str:
    judged = len({run.header.subject for run in runs})
    several = f" in {len(runs)} runs" if len(runs) > judged else ""
    return f"{rules} {kind.law if rules == 1 else kind.laws}, {counted(judged, kind.judged)}{several}"


def _chapters(runs: Sequence[Run], labels: Sequence[str]) -> list[Chapter]:
    found = [words(run) for run in runs]
    chapters: dict[str, list[Row]] = {}
    for rule in rules_of(runs):
        row = [OUTCOMES[said.get(rule.id, str(Outcome.NOT_RUN))] for said in found]
        chapters.setdefault(rule.chapter, []).append(Row(rule, row, _brief(row, labels), _disagree(rule, runs)))
    return [Chapter(name, rows, [_tally(rows, run) for run in runs]) for name, rows in chapters.items()]


def _brief(row: list[Mark], labels: Sequence[str]) -> list[tuple[Mark, str]]:
    found: dict[Mark, list[str]] = {mark: [] for mark in OUTCOMES.values() if mark in row}
    for mark, label in zip(row, labels, strict=True):
        found[mark].append(label)
    if len(row) == 1:
        return [(mark, "") for mark in found]
    return [(mark, str(len(on)) if mark.quiet else ", ".join(on)) for mark, on in found.items()]


def _disagree(rule: Rule, runs: Sequence[Run]) -> bool:
    return len({run.outcome(rule.id) for run in runs} & JUDGED) > 1


def _tally(rows: list[Row], run: Run) -> str:
    judged = [outcome for row in rows if (outcome := run.outcome(row.rule.id)) in JUDGED]
    return f"{judged.count(Outcome.PASS)}/{len(judged)}" if judged else ""


def _column(run: Run, name: str, label: str) -> Column:
    passed, judged = run.count()
    not_run = run.header.not_run
    return Column(
        run=run,
        name=name,
        label=label,
        tally="not run" if not_run else f"{passed}/{judged}",
        mark=marks.of_run(run),
        sentence=sentence(run),
        published=last_result(run.header.title) if not_run else "",
        regressions=of_verdict(run, Verdict.REGRESSION),
        fixed=[(rule_id, _place(run, rule_id)) for rule_id in of_verdict(run, Verdict.FIXED)],
        stale=[(entry, place(entry.file, entry.line)) for entry in run.stale],
    )


def _place(run: Run, rule_id: str) -> str:
    entry = run.results[rule_id].expectation
    return place(entry.file, entry.line) if entry else ""
