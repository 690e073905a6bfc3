"""The offload page: a chart and a table for each workload, device and setting."""

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hooklaw.offload.frontier import beats, frontier
from hooklaw.offload.plan import PLAIN
from hooklaw.results.figures import SIZES, budget
from hooklaw.results.records import Cell, Run
from hooklaw.results.verdict import Outcome
from hooklaw_reports import marks
from hooklaw_reports.answers import BudgetAnswer, answers, pick
from hooklaw_reports.benchmarks import Group, devices, groups
from hooklaw_reports.columns import facts
from hooklaw_reports.marks import Mark
from hooklaw_reports.runs import sentence
from hooklaw_reports.sheet import OFFLOAD, Column, Kind, NamedRun
from hooklaw_reports.verdicts import StrategyVerdict, judged, verdict_of

MARKED = {
    Outcome.FAIL: Mark("bad", "✗", "wrong gradients"),
    Outcome.ERROR: Mark("worst", "!", "error"),
    Outcome.CRASH: Mark("worst", "!", "crash"),
    Outcome.TIMEOUT: Mark("worst", "!", "timeout"),
}
"""The marks of cells without a place in the chart; any other such cell was not measured."""
MEASURED = Mark("open", "◷", "measured")
UNLAWFUL = Mark("bad", "✗", "breaks the packer law")


class Point(msgspec.Struct, frozen=True):
    """One strategy: a row of the table, and a point of the chart if it was measured."""

    cell: Cell
    state: Mark
    line: str
    """The frontier it stands on: lossless, lossy or none."""
    law: StrategyVerdict

    @property
    def drawn(self) -> bool:
        """Whether it has a place in the chart."""
        return self.cell.outcome is Outcome.PASS and self.cell.ratio > 0

    @property
    def shape(self) -> str:
        """How it is drawn, so that a colour is never alone."""
        if self.cell.strategy == PLAIN:
            return "plain"
        return ("lossless" if self.cell.lossless else "lossy") + (" unlawful" if self.cell.lawful is False else "")

    @property
    def reason(self) -> str:
        """Why it is marked."""
        law = f"{self.law.text}, says {self.law.source}" if self.cell.lawful is False and self.law.source else ""
        return "; ".join(filter(None, [self.cell.detail, law]))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Every figure that was measured, and which run judged the packer."""
        source = [("Packer law", f"{self.law.text}: {self.law.source}")] if self.law.source else []
        return [*facts(self.cell), *source]


class Chart(msgspec.Struct, frozen=True):
    """One workload on one device."""

    slug: str
    title: str
    points: list[Point]
    answers: list[BudgetAnswer]
    notes: list[str]

    @property
    def marked(self) -> list[Point]:
        """The strategies without a place in the chart, and those that break the law."""
        return [point for point in self.points if not point.drawn or point.cell.lawful is False]

    @property
    def half(self) -> tuple[str, str]:
        """Half of what the plain step needs, as number and unit: the first budget that the page asks about."""
        plain = next((point.cell.peak for point in self.points if point.cell.strategy == PLAIN), 0)
        most = max((point.cell.peak for point in self.points if point.drawn), default=0)
        return budget((plain or most) / 2) if plain or most else ("1", "GB")

    @property
    def sentence(self) -> str:
        """The answer for that budget."""
        number, unit = self.half
        return pick(self.answers, float(number) * dict(SIZES)[unit]).sentence(" ".join(self.half))


class Benchmark(NamedRun, frozen=True):
    """One run, and where it measured."""

    where: str


class Offload(msgspec.Struct, frozen=True):
    """The page."""

    charts: list[Chart]
    columns: list[Benchmark]
    kind: Kind = OFFLOAD

    @property
    def summary(self) -> str:
        """What the runs came to."""
        return "; ".join(f"{run.where}: {run.sentence}" for run in self.columns)

    @property
    def worst(self) -> Mark:
        """How many strategies failed or break the law."""
        states = [point.state for chart in self.charts for point in chart.marked if point.state.alarming]
        worst = min(states, key=marks.severity, default=MEASURED)
        return replace(worst, word=f"{len(states)} marked") if states else worst


def offload(runs: Sequence[Run], names: Sequence[str], packers: Sequence[Column]) -> Offload | None:
    """Return the page of these benchmark runs, or None if there are none."""
    runs = [replace(run, cells=judged(run.cells, packers)) for run in runs]
    charts: list[Chart] = []
    for group in groups(runs):
        charts.append(_chart(group, packers, {chart.slug for chart in charts}))
    benchmarks = [
        Benchmark(run, name, sentence(run), devices(run, runs)) for run, name in zip(runs, names, strict=True)
    ]
    return Offload(charts, benchmarks) if runs else None


def _chart(group: Group, packers: Sequence[Column], taken: set[str]) -> Chart:
    lines = {
        "lossless": frontier(cell for cell in group.cells if cell.lossless),
        "lossy": frontier(cell for cell in group.cells if not cell.lossless),
    }
    points = [_point(cell, lines, verdict_of(cell, packers)) for cell in group.cells]
    points.sort(key=lambda point: (not point.drawn, point.cell.peak, point.cell.ratio))
    return Chart(_slug(group.title, taken), group.title, points, answers(group.cells, group.title), group.notes)


def _point(cell: Cell, lines: dict[str, list[Cell]], law: StrategyVerdict) -> Point:
    line = next((name for name, found in lines.items() if cell in found), "")
    return Point(cell, _state(cell, line, lines), line, law)


def _state(cell: Cell, line: str, lines: dict[str, list[Cell]]) -> Mark:
    if cell.outcome is not Outcome.PASS:
        return MARKED.get(cell.outcome, Mark("unrun", "·", str(cell.outcome)))
    if cell.lawful is False:
        return UNLAWFUL
    plain = "the plain step, " if cell.strategy == PLAIN else ""
    if line:
        lossless = line == "lossless"
        return Mark("good", "", f"{plain}on the frontier") if lossless else Mark("open", "", "on the lossy frontier")
    better = next((other for other in lines["lossless"] + lines["lossy"] if beats(other, cell)), None)
    kind = plain or ("" if cell.lossless else "lossy, ")
    return Mark("out", "", kind + (f"beaten by {_name(better)}" if better else "not on the frontier"))


def _name(cell: Cell) -> str:
    return "the plain step" if cell.strategy == PLAIN else cell.strategy


def _slug(title: str, taken: set[str]) -> str:
    slug = re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-") or "chart"
    return next(name for name in (slug, *(f"{slug}-{n}" for n in range(2, 10_000))) if name not in taken)
