"""What several runs came to, in words."""

from collections.abc import Sequence
from pathlib import PurePath

from hooklaw.results.records import Run, RunKind, rules_of
from hooklaw.results.summary import counted, sentence
from hooklaw.results.verdict import Outcome
from hooklaw_reports.kinds import Kind, names, sorted_out


def place(file: str, line: int) -> str:
    """Return where an entry stands, by folder and file: whose home these lie in is nobody's business."""
    return f"{'/'.join(PurePath(file).parts[-2:])}:{line}" if file else ""


def of(run: Run) -> str:
    """Return what one run came to, whatever it was about."""
    return _measured(run) if run.header.run_kind is RunKind.BENCHMARK else sentence(run)


def sentences(runs: Sequence[Run]) -> str:
    """Return the verdicts of several runs in one line."""
    prefixes = {RunKind.RULES: "", RunKind.PACKER: "packer:", RunKind.BENCHMARK: "bench:"}
    named = zip(names(runs), runs, strict=True)
    return "; ".join(f"{prefixes[run.header.run_kind]}{name}: {of(run)}" for name, run in named)


def headline(runs: Sequence[Run]) -> str:
    """Return what the report is about, e.g. ``230 rules, 3 backends; 39 offload cells``."""
    parts = [_subject(kind, its) for kind, its in sorted_out(runs)]
    cells = sum(len(run.cells) for run in runs)
    return "; ".join([*parts, counted(cells, "offload cell")] if cells else parts)


def unfinished(run: Run) -> str:
    """Return by how much a run fell short of its end, or nothing where it came to it."""
    if run.complete:
        return ""
    why = "was interrupted" if run.footer and run.footer.interrupted else "did not come to its end"
    return f"the run {why}: {len(run.cells)} of {run.header.collected} cells are measured"


def _subject(kind: Kind, runs: Sequence[Run]) -> str:
    laws, judged = len(rules_of(runs)), len({run.header.subject for run in runs})
    law = kind.law if laws == 1 else kind.laws
    several = f" in {len(runs)} runs" if len(runs) > judged else ""
    return f"{laws} {law}, {counted(judged, kind.judged)}{several}"


def _measured(run: Run) -> str:
    if run.header.not_run:
        return f"not run: {run.header.not_run}"
    marked = sum(cell.outcome is not Outcome.PASS for cell in run.cells)
    unlawful = sum(cell.lawful is False for cell in run.cells)
    workloads = len({(cell.workload, cell.setting) for cell in run.cells})
    parts = [
        f"{len(run.cells) - marked} of {counted(len(run.cells), 'cell')} measured in {counted(workloads, 'workload')}",
        f"{marked} marked" if marked else "",
        f"{unlawful} against the law of packers" if unlawful else "",
        unfinished(run),
    ]
    return ", ".join(part for part in parts if part)
