"""Runs as the report names them: what each is called, what it ran on, and what it came to in a sentence."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath

from msgspec.structs import replace

from hooklaw.results import host
from hooklaw.results.records import Run, RunKind
from hooklaw.results.summary import NOUNS, counted
from hooklaw.results.summary import sentence as verdict_in_words
from hooklaw.results.verdict import Outcome

NOT_EXPECTED = replace(NOUNS[RunKind.RULES], regression="not expected")
"""A report compares with no earlier run, so nothing in it is called a regression."""


def names(runs: Sequence[Run]) -> list[str]:
    """Return the runs' names; where several judge the same subject, versions or else files tell them apart."""
    return [
        run.header.subject + _suffix(run, [other for other in runs if other.header.title == run.header.title])
        for run in runs
    ]


def versions_of(run: Run) -> list[str]:
    """Return what a run judged, with versions: a backend's framework, which it names first, or a packer's packages."""
    found = list(run.header.versions.items())
    own = [(name, version) for name, version in found if name not in host.versions()]
    return [f"{name} {version}" for name, version in (own if run.header.run_kind is RunKind.PACKER else found[:1])]


def date(run: Run) -> str:
    """Return when the run started, e.g. ``2026-11-22 10:46 UTC``."""
    try:
        return f"{datetime.fromisoformat(run.header.started):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return run.header.started


def place(file: str, line: int) -> str:
    """Return where an entry stands, by folder and file: the path above them is private."""
    return f"{'/'.join(PurePath(file).parts[-2:])}:{line}" if file else ""


def sentence(run: Run) -> str:
    """Return what the run came to."""
    if run.header.run_kind is not RunKind.BENCHMARK:
        return verdict_in_words(run, NOT_EXPECTED if run.header.run_kind is RunKind.RULES else None)
    if run.header.not_run:
        return f"not run: {run.header.not_run}"
    marked = sum(cell.outcome is not Outcome.PASS for cell in run.cells)
    unlawful = sum(cell.lawful is False for cell in run.cells)
    workloads = len({(cell.workload, cell.setting) for cell in run.cells})
    parts = [
        f"{len(run.cells) - marked} of {counted(len(run.cells), 'cell')} measured in {counted(workloads, 'workload')}",
        f"{marked} marked" if marked else "",
        f"{unlawful} against the packer law" if unlawful else "",
        unfinished(run),
    ]
    return ", ".join(part for part in parts if part)


def unfinished(run: Run) -> str:
    """Return how far a benchmark came that did not end, or an empty string."""
    if run.complete:
        return ""
    why = "was interrupted" if run.interrupted else "did not end"
    return f"the run {why}: {len(run.cells)} of {run.header.collected} cells are measured"


def _suffix(run: Run, same: Sequence[Run]) -> str:
    if len(same) == 1:
        return ""
    shown = [", ".join(versions_of(other)) for other in same]
    return f" ({', '.join(versions_of(run))})" if all(shown) and len({*shown}) == len(same) else f" ({run.file})"
