"""The names of several runs side by side: where subjects are the same, versions, machines or files tell them apart."""

from collections.abc import Sequence

from hooklaw.results import host
from hooklaw.results.records import Run, RunKind


def names(runs: Sequence[Run]) -> list[str]:
    """Return the runs' names, no two of them the same."""
    return [
        run.header.subject + _suffix(run, [other for other in runs if other.header.title == run.header.title])
        for run in runs
    ]


def versions_of(run: Run) -> list[str]:
    """Return what a run judged, with versions: a backend's framework, which it names first, or a packer's packages."""
    found = list(run.header.versions.items())
    own = [(name, version) for name, version in found if name not in host.FACTS]
    return [f"{name} {version}" for name, version in (own if run.header.run_kind is RunKind.PACKER else found[:1])]


def differing(runs: Sequence[Run]) -> list[str]:
    """Return the names of the versions and machine facts that are not the same in all runs."""
    known = dict.fromkeys(name for run in runs for name in run.header.versions)
    return [name for name in known if len({run.header.versions.get(name) for run in runs}) > 1]


def _suffix(run: Run, same: Sequence[Run]) -> str:
    if len(same) == 1:
        return ""
    apart = differing(same)
    tellings = (
        versions_of,
        lambda run: [run.file] if run.file else [],
        lambda run: [f"{name} {run.header.versions.get(name, 'unknown')}" for name in apart],
        lambda run: [run.header.run],
    )
    for told in tellings:
        shown = [", ".join(told(other)) for other in same]
        if all(shown) and len({*shown}) == len(same):
            return f" ({', '.join(told(run))})"
    return f" ({run.file})"
