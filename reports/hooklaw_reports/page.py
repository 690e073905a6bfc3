"""The report as one value, built once from the runs; what is rendered and what is serialized comes from it alone."""

from collections.abc import Sequence

import msgspec

from hooklaw.results.records import Run, RunKind
from hooklaw.results.summary import counted
from hooklaw_reports.marks import Mark
from hooklaw_reports.offload import Offload, offload
from hooklaw_reports.runs import names
from hooklaw_reports.sheet import KINDS, Sheet, sheet

PREFIXES = {RunKind.PACKER: "packer:", RunKind.BENCHMARK: "bench:"}


class Tab(msgspec.Struct, frozen=True):
    """One of the pages among which a reader chooses."""

    name: str
    title: str
    summary: str
    worst: Mark
    """The worst verdict there, with its count."""


class Page(msgspec.Struct, frozen=True):
    """The whole report."""

    title: str
    headline: str
    """What the report is about, e.g. ``452 rules, 3 backends; 39 offload cells``."""
    suites: list[str]
    sheets: list[Sheet]
    offload: Offload | None

    @property
    def tabs(self) -> list[Tab]:
        """The pages."""
        found = [Tab(one.kind.name, one.kind.title, one.summary, one.worst) for one in self.sheets]
        if self.offload:
            found.append(Tab("offload", "Offload", self.offload.summary, self.offload.worst))
        return found

    @property
    def verdicts(self) -> str:
        """What each run came to, in one line for the terminal."""
        benchmarks = self.offload.runs if self.offload else []
        runs = [*(column for one in self.sheets for column in one.columns), *benchmarks]
        return "; ".join(f"{PREFIXES.get(one.run.header.run_kind, '')}{one.name}: {one.sentence}" for one in runs)


def build(runs: Sequence[Run], title: str = "") -> Page:
    """Return the report of these runs."""
    named = list(zip(runs, names(runs), strict=True))
    of_kind = {kind: [pair for pair in named if pair[0].header.run_kind is kind] for kind in RunKind}
    sheets = {kind.of: sheet(kind, *zip(*found, strict=True)) for kind in KINDS if (found := of_kind[kind.of])}
    packers = sheets[RunKind.PACKER].columns if RunKind.PACKER in sheets else []
    measured = of_kind[RunKind.BENCHMARK]
    cells = sum(len(run.cells) for run, _ in measured)
    subjects = [one.subject for one in sheets.values()]
    return Page(
        title=title or "hooklaw",
        headline="; ".join([*subjects, counted(cells, "offload cell")] if cells else subjects),
        suites=list(dict.fromkeys(run.header.suite for run in runs)),
        sheets=list(sheets.values()),
        offload=offload([run for run, _ in measured], [name for _, name in measured], packers),
    )
