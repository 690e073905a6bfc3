"""The report as one value, built once from the runs; what is rendered and what is serialized comes from it alone."""

import re
from collections.abc import Sequence

import msgspec

from hooklaw.results.naming import names
from hooklaw.results.records import Run, RunKind
from hooklaw.results.summary import counted
from hooklaw.results.text import name, printable
from hooklaw_reports.folklore import Folklore, folklore
from hooklaw_reports.offload import Offload, offload
from hooklaw_reports.sheet import KINDS, Kind, Sheet, sheet


class Page(msgspec.Struct, frozen=True):
    """The whole report."""

    title: str
    headline: str
    """What the report is about, e.g. ``452 rules, 3 backends; 39 offload cells``."""
    suites: list[str]
    sheets: list[Sheet]
    offload: Offload | None
    folklore: Folklore | None = None

    @property
    def tabs(self) -> list[Sheet | Offload]:
        """The pages of runs."""
        return [*self.sheets, *([self.offload] if self.offload else [])]

    @property
    def names(self) -> list[Kind]:
        """What the pages among which a reader chooses are called."""
        return [tab.kind for tab in self.tabs] + ([self.folklore.kind] if self.folklore else [])

    @property
    def verdicts(self) -> str:
        """What each run came to, in one line for the terminal."""
        runs = [run for tab in self.tabs for run in tab.columns]
        return "; ".join(printable(f"{run.prefix}{name(run.name)}: {run.sentence}") for run in runs)


def build(runs: Sequence[Run], title: str = "") -> Page:
    """Return the report of these runs: in the order given, but the runs of one backend by version."""
    runs = _by_version(runs)
    named = list(zip(runs, names(runs), strict=True))
    of_kind = {kind: [pair for pair in named if pair[0].header.run_kind is kind] for kind in RunKind}
    sheets = {kind.of: sheet(kind, *zip(*found, strict=True)) for kind in KINDS if (found := of_kind[kind.of])}
    packers = sheets[RunKind.PACKER].columns if RunKind.PACKER in sheets else []
    measured = of_kind[RunKind.BENCHMARK]
    cells = sum(len(run.cells) for run, _ in measured)
    subjects = [page.subject for page in sheets.values()]
    return Page(
        title=title or "hooklaw",
        headline="; ".join([*subjects, counted(cells, "offload cell")] if cells else subjects),
        suites=list(dict.fromkeys(run.header.suite for run in runs)),
        sheets=list(sheets.values()),
        offload=offload([run for run, _ in measured], [name for _, name in measured], packers),
        folklore=folklore(runs),
    )


def _by_version(runs: Sequence[Run]) -> list[Run]:
    backends = list(dict.fromkeys(run.header.backend for run in runs))
    return sorted(runs, key=lambda run: (backends.index(run.header.backend), _version(run)))


def _version(run: Run) -> list[int]:
    """Return the numbers of the framework's version: 2.4 comes before 2.10."""
    framework = next(iter(run.header.versions.values()), "")
    return [*map(int, re.findall(r"\d{1,9}", framework.partition("+")[0]))]
