"""Runs in the words of the report: when each started, where its entries stand, and what it came to in a sentence."""

from datetime import datetime
from pathlib import PurePath

from msgspec.structs import replace

from hooklaw.results.records import Run, RunKind
from hooklaw.results.summary import NOUNS, counted
from hooklaw.results.summary import sentence as verdict_in_words
from hooklaw.results.verdict import Outcome

NOT_EXPECTED = replace(NOUNS[RunKind.RULES], regression="not expected")
"""A report compares with no earlier run, so nothing in it is called a regression."""


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
