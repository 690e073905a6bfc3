"""The view model of the report: what the template prints, made from records and decided nowhere here."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from hooklaw.law.rule import Level, Rule
from hooklaw.results.records import Run, RunKind, rules_of
from hooklaw.results.summary import exit_of_run, of_verdict, words
from hooklaw.results.verdict import JUDGED, Exit, Outcome, Stale, Verdict
from hooklaw_reports import sentences
from hooklaw_reports.kinds import Kind, names, sorted_out, versions_of
from hooklaw_reports.offload import Offload, offload
from hooklaw_reports.published import last_result

LOOK = {
    "crash": ("worst", "!"),
    "timeout": ("worst", "…"),
    "error": ("worst", "!"),
    "fail": ("bad", "✗"),
    "fixed": ("good", "↑"),
    "known crash": ("known", "~"),
    "known timeout": ("known", "~"),
    "known error": ("known", "~"),
    "known fail": ("known", "~"),
    "differs": ("open", "≠"),
    "pass": ("pass", "✓"),
    "unsupported": ("out", "\u2013"),
    "not-run": ("unrun", "·"),
}
"""Tone and glyph of each word, the ones that need a person first."""

RESULT_OF_RUN = {
    Exit.OK: ("pass", "✓", "as expected"),
    Exit.REGRESSION: ("bad", "✗", "regression"),
    Exit.FIXED_OR_STALE: ("good", "↑", "fixed or stale"),
    Exit.BROKEN: ("worst", "!", "broken"),
}


UNSAFE = {Exit.OK: ("pass", "✓", "safe"), Exit.REGRESSION: ("bad", "✗", "unsafe")}
EXCEPT = ("known", "~", "safe except")
"""The same of packers."""


class Cell(msgspec.Struct, frozen=True):
    """One rule on one backend, in a word."""

    word: str

    @property
    def tone(self) -> str:
        """The class that colours it."""
        return LOOK[self.word][0]

    @property
    def glyph(self) -> str:
        """The sign before the word."""
        return LOOK[self.word][1]

    @property
    def quiet(self) -> bool:
        """Tell whether only the sign is shown: the style sheet draws it, which keeps a large matrix fast."""
        return self.tone in {"pass", "out", "unrun"}

    @property
    def letter(self) -> str:
        """The word as one letter, by which the page filters."""
        return "abcdefghijklmnopqrstuvwxyz"[list(LOOK).index(self.word)]


class Row(msgspec.Struct, frozen=True):
    """One rule across the backends."""

    rule: Rule
    cells: list[Cell]
    disagree: bool

    @property
    def letters(self) -> str:
        """One letter a backend."""
        return "".join(cell.letter for cell in self.cells)


class Chapter(msgspec.Struct, frozen=True):
    """The rules of one chapter and, for each backend, how many of them hold."""

    name: str
    rows: list[Row]
    tallies: list[str]

    @property
    def title(self) -> str:
        """The name as a heading; that it is about packers, their page says."""
        return self.name.removeprefix("packer-").replace("-", " ").capitalize()


class Column(msgspec.Struct, frozen=True):
    """One run."""

    run: Run
    name: str
    tally: str
    tone: str
    glyph: str
    result: str
    sentence: str
    started: str
    published: str
    regressions: list[str]
    fixed: list[tuple[str, str]]
    stale: list[tuple[Stale, str]]

    @property
    def parts(self) -> list[str]:
        """The name in pieces between which a line may break, not within a version's number."""
        return re.split(r"(?<=[:_/-])|(?<=\.)(?!\d)", self.name)

    @property
    def framework(self) -> str:
        """The version that matters most, which a backend names first; of a packer's own package, too."""
        return "".join(f"{one}, " for one in versions_of(self.run))


class Choice(msgspec.Struct, frozen=True):
    """One button of the filter."""

    cell: Cell
    count: int


class Sheet(msgspec.Struct, frozen=True):
    """The runs that stand side by side in one matrix."""

    kind: Kind
    columns: list[Column]
    chapters: list[Chapter]
    outcomes: list[Choice]
    levels: list[Level]


class Page(msgspec.Struct, frozen=True):
    """The whole report."""

    title: str
    headline: str
    suites: list[str]
    sheets: list[Sheet]
    offload: Offload | None

    @property
    def pages(self) -> list[tuple[str, str]]:
        """The pages among which a reader chooses, by name and title."""
        sheets = [(sheet.kind.name, sheet.kind.title) for sheet in self.sheets]
        return [*sheets, ("offload", "Offload")] if self.offload else sheets


def page(runs: Sequence[Run], title: str = "") -> Page:
    """Return the view model of these runs."""
    return Page(
        title=title or "hooklaw",
        headline=sentences.headline(runs),
        suites=list(dict.fromkeys(run.header.suite for run in runs)),
        sheets=[_sheet(kind, its) for kind, its in sorted_out(runs)],
        offload=offload(runs),
    )


def _sheet(kind: Kind, runs: list[Run]) -> Sheet:
    chapters = _chapters(runs)
    counts = Counter(cell.word for chapter in chapters for row in chapter.rows for cell in row.cells)
    rules = rules_of(runs)
    return Sheet(
        kind=kind,
        columns=[_column(run, name) for run, name in zip(runs, names(runs), strict=True)],
        chapters=chapters,
        outcomes=[Choice(Cell(word), counts[word]) for word in LOOK if counts[word]],
        levels=[level for level in Level if any(rule.level is level for rule in rules)],
    )


def _chapters(runs: list[Run]) -> list[Chapter]:
    found = [words(run) for run in runs]
    chapters: dict[str, list[Row]] = {}
    for rule in rules_of(runs):
        cells = [Cell(one.get(rule.id, str(Outcome.NOT_RUN))) for one in found]
        chapters.setdefault(rule.chapter, []).append(Row(rule, cells, _disagree(rule, runs)))
    return [Chapter(name, rows, [_tally(rows, run) for run in runs]) for name, rows in chapters.items()]


def _disagree(rule: Rule, runs: list[Run]) -> bool:
    return len({run.outcome(rule.id) for run in runs} & JUDGED) > 1


def _tally(rows: list[Row], run: Run) -> str:
    judged = [outcome for row in rows if (outcome := run.outcome(row.rule.id)) in JUDGED]
    return f"{judged.count(Outcome.PASS)}/{len(judged)}" if judged else ""


def _column(run: Run, name: str) -> Column:
    passed, judged = run.count()
    tone, glyph, result = _result(run)
    if run.header.not_run:
        tone, glyph, result = "unrun", "·", "not run"
    return Column(
        run=run,
        name=name,
        tally="not run" if run.header.not_run else f"{passed}/{judged}",
        tone=tone,
        glyph=glyph,
        result=result,
        sentence=sentences.of(run),
        started=_date(run.header.started),
        published=last_result(run.header.title) if run.header.not_run else "",
        regressions=of_verdict(run, Verdict.REGRESSION),
        fixed=[(rule_id, _place(run, rule_id)) for rule_id in of_verdict(run, Verdict.FIXED)],
        stale=[(entry, sentences.place(entry.file, entry.line)) for entry in (run.footer.stale if run.footer else [])],
    )


def _result(run: Run) -> tuple[str, str, str]:
    """Return tone, glyph and word of a run; a packer is safe, safe except for what is broken, or unsafe."""
    end = exit_of_run(run)
    if run.header.run_kind is not RunKind.PACKER or end not in UNSAFE:
        return RESULT_OF_RUN[end]
    passed, judged = run.count()
    return EXCEPT if end is Exit.OK and passed < judged else UNSAFE[end]


def _place(run: Run, rule_id: str) -> str:
    entry = run.results[rule_id].expectation
    return sentences.place(entry.file, entry.line) if entry else ""


def _date(started: str) -> str:
    try:
        return f"{datetime.fromisoformat(started):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return started
