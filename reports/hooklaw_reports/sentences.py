"""What several runs came to, in words."""

from collections.abc import Iterable
from pathlib import PurePath

from hooklaw.records import Run, rules_of
from hooklaw.tally import counted, sentence


def place(file: str, line: int) -> str:
    """Return where an entry stands, by folder and file: whose home these lie in is nobody's business."""
    return f"{'/'.join(PurePath(file).parts[-2:])}:{line}" if file else ""


def sentences(runs: Iterable[Run]) -> str:
    """Return the verdicts of several runs in one line."""
    return "; ".join(f"{run.header.backend}: {sentence(run)}" for run in runs)


def headline(runs: list[Run]) -> str:
    """Return what the report is about, e.g. ``230 rules, 3 backends``."""
    names = {run.header.backend for run in runs}
    return f"{counted(len(rules_of(runs)), 'rule')}, {counted(len(names), 'backend')}"
