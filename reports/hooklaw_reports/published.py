"""Dated results of real runs, shipped with hooklaw: shown for a backend that this machine cannot run."""

from functools import cache
from pathlib import Path

from hooklaw.results.records import Run, read_all
from hooklaw_reports.runs import sentence

FOLDER = Path(__file__).with_name("published")


def runs() -> list[Run]:
    """Return every published run."""
    return [run for path in sorted(FOLDER.glob("*.jsonl")) for run in read_all([path])]


@cache
def published() -> dict[str, Run]:
    """Return the latest published run of each backend or packer, by its title."""
    return {run.header.title: run for run in sorted(runs(), key=lambda run: run.header.started)}


def last_result(title: str) -> str:
    """Return the last published result in words, or an empty string."""
    run = published().get(title)
    if not run:
        return ""
    return f"{run.header.started[:10]}, {run.header.version}: {sentence(run)}"
