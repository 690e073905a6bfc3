"""The view model of the offload page: a chart and a table for each workload, device and setting."""

import re
from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from hooklaw.offload.frontier import frontier
from hooklaw.results.records import Cell, Run
from hooklaw.results.verdict import Outcome
from hooklaw_reports import sentences
from hooklaw_reports.answers import PLAIN, Answer, answers, pick
from hooklaw_reports.columns import COLUMNS, Figure
from hooklaw_reports.figures import SIZES, budget
from hooklaw_reports.gathered import Group, gathered
from hooklaw_reports.verdicts import Law, law_of

MARKED = {
    Outcome.FAIL: ("bad", "wrong gradients"),
    Outcome.ERROR: ("worst", "error"),
    Outcome.CRASH: ("worst", "crash"),
    Outcome.TIMEOUT: ("worst", "timeout"),
}
"""Tone and words of a cell without a place in the chart; of any other, nothing was measured."""


class Point(msgspec.Struct, frozen=True):
    """One strategy: a row of the table, and a point of the chart where there are figures."""

    cell: Cell
    words: str
    tone: str
    line: str
    """The frontier it stands on: lossless, lossy or none."""
    law: str = ""
    """Where the report shows the packer's verdict."""

    @property
    def drawn(self) -> bool:
        """Tell whether it has a place in the chart."""
        return self.cell.outcome is Outcome.PASS and self.cell.ratio > 0

    @property
    def shape(self) -> str:
        """How it is drawn, so that a colour is never alone."""
        if self.cell.strategy == PLAIN:
            return "plain"
        return ("lossless" if self.cell.lossless else "lossy") + (" unlawful" if self.cell.lawful is False else "")


class Chart(msgspec.Struct, frozen=True):
    """One workload on one device."""

    slug: str
    title: str
    points: list[Point]
    answers: list[Answer]
    notes: list[str]

    @property
    def marked(self) -> list[Point]:
        """The strategies that have no place in the chart, or none without a word."""
        return [point for point in self.points if not point.drawn or point.cell.lawful is False]

    @property
    def half(self) -> tuple[str, str]:
        """Half of what the plain step needs, as number and unit: the budget that is asked for at first."""
        plain = next((point.cell.peak for point in self.points if point.cell.strategy == PLAIN), 0)
        most = max((point.cell.peak for point in self.points if point.drawn), default=0)
        return budget((plain or most) / 2) if plain or most else ("1", "GB")

    @property
    def sentence(self) -> str:
        """The answer for that budget."""
        number, unit = self.half
        return pick(self.answers, float(number) * dict(SIZES)[unit]).sentence(" ".join(self.half))


class Offload(msgspec.Struct, frozen=True):
    """The page."""

    charts: list[Chart]
    runs: list[tuple[str, str, Run]]
    """Where it ran, what it came to, and the run."""
    columns: list[Figure]
    units: list[str]
    state_at: int = 3
    """Before which column the state in words stands: after the two figures of the chart."""


def offload(runs: Sequence[Run]) -> Offload | None:
    """Return the page's view model, or None where nothing was measured."""
    groups, measured = gathered(runs)
    if not measured:
        return None
    charts: list[Chart] = []
    for group in groups:
        charts.append(_chart(group, runs, {chart.slug for chart in charts}))
    told = [(where, sentences.of(run), run) for where, run in measured]
    return Offload(charts, told, COLUMNS, [unit for unit, _ in SIZES[:3]])


def _chart(group: Group, runs: Sequence[Run], taken: set[str]) -> Chart:
    lines = {
        "lossless": frontier(cell for cell in group.cells if cell.lossless),
        "lossy": frontier(cell for cell in group.cells if not cell.lossless),
    }
    points = [_point(cell, lines, runs) for cell in group.cells]
    points.sort(key=lambda point: (not point.drawn, point.cell.peak, point.cell.ratio))
    return Chart(_slug(group.title, taken), group.title, points, answers(group.cells, group.title), group.notes)


def _point(cell: Cell, lines: dict[str, list[Cell]], runs: Sequence[Run]) -> Point:
    line = next((name for name, found in lines.items() if cell in found), "")
    tone, words = _state(cell, line, lines)
    return Point(cell, words, tone, line, _address(law_of(cell, runs)))


def _address(law: Law | None) -> str:
    if not law:
        return ""
    outcomes = [("outcome", word) for word in law.words]
    return "#" + urlencode([("page", "packers"), ("on", law.name), *outcomes], safe=":")


def _state(cell: Cell, line: str, lines: dict[str, list[Cell]]) -> tuple[str, str]:
    if cell.outcome is not Outcome.PASS:
        return MARKED.get(cell.outcome, ("unrun", str(cell.outcome)))
    if cell.lawful is False:
        return "bad", "breaks the packer law"
    plain = "the plain step, " if cell.strategy == PLAIN else ""
    if line:
        return ("good", f"{plain}on the frontier") if line == "lossless" else ("open", "on the lossy frontier")
    better = next((one for one in lines["lossless"] + lines["lossy"] if _beats(one, cell)), None)
    kind = "" if cell.lossless else "lossy, "
    return "out", f"{plain}{kind}beaten by {better.strategy}" if better else f"{plain}{kind}not on the frontier"


def _beats(one: Cell, other: Cell) -> bool:
    return one.lossless >= other.lossless and one.peak <= other.peak and _time(one) <= _time(other)


def _time(cell: Cell) -> float:
    """Return the time that the frontier counts: of the plain step, held against itself, only noise is measured."""
    return 1.0 if cell.strategy == PLAIN else cell.ratio


def _slug(title: str, taken: set[str]) -> str:
    slug = re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-") or "chart"
    return next(name for name in (slug, *(f"{slug}-{n}" for n in range(2, 10_000))) if name not in taken)
