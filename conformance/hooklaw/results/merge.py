"""Merging: the runs of several files as one file has them, or the reason why they do not belong together."""

from collections.abc import Iterator, Sequence

from hooklaw.errors import RecordConflictError
from hooklaw.results import shards
from hooklaw.results.records import Line, Run
from hooklaw.results.text import name


def merged(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with shards joined; of two runs that judged the same and agree, the first one stays.

    Raises RecordConflictError where a shard is missing, two runs judge by different laws, or they disagree.
    """
    _refuse_other_law(runs)
    kept: list[Run] = []
    for run in shards.joined(runs):
        rivals = [other for other in kept if other.header.title == run.header.title]
        if not any(_repeats(run, other) for other in rivals):
            kept.append(run)
    return kept


def lines(runs: Sequence[Run]) -> Iterator[Line]:
    """Yield the lines of complete runs as a file holds them."""
    for run in runs:
        yield run.header
        yield from run.results.values()
        yield from run.cells
        if run.footer:
            yield run.footer


def _refuse_other_law(runs: Sequence[Run]) -> None:
    """Refuse runs in which a rule of the same id is another rule; which rules were chosen may differ."""
    known: dict[str, tuple[str, Run]] = {}
    for run in runs:
        for rule in run.header.rules:
            law = shards.digest([rule])
            before, first = known.setdefault(rule.id, (law, run))
            if law != before:
                raise RecordConflictError(
                    f"{first.file} and {run.file} judge by different laws: rule {name(rule.id)!r} is not the same in "
                    f"hooklaw {name(first.header.suite)} and {name(run.header.suite)}; run both with one hooklaw"
                )


def _repeats(run: Run, other: Run) -> bool:
    """Whether two runs of one subject are the same cells twice; both are kept if versions or machines differ."""
    if run.header.digest != other.header.digest:
        raise RecordConflictError(
            f"{other.file} and {run.file} both judge {name(run.header.title)!r}, but by different rules: "
            "run it again with one hooklaw and one selection, or leave one file out"
        )
    if run.cells or run.header.versions != other.header.versions:
        return False
    if why := shards.disagreement(other, run):
        raise RecordConflictError(
            f"{other.file} and {run.file} both judge {name(run.header.title)!r} on {name(run.header.version)} "
            f"and disagree about {why}; leave one of them out"
        )
    return True
