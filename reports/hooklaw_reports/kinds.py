"""What the runs of a report are about: rules on backends, properties on packers, or what offloading costs."""

from collections.abc import Sequence

import msgspec

from hooklaw.results import host
from hooklaw.results.records import Run, RunKind


class Kind(msgspec.Struct, frozen=True):
    """One kind of run that is judged, and what it is called on the page."""

    of: RunKind
    name: str
    title: str
    judged: str
    law: str
    laws: str

    @property
    def heading(self) -> str:
        """What stands above the first column."""
        return self.law.capitalize()


RULES = Kind(RunKind.RULES, "rules", "Rules", "backend", "rule", "rules")
PACKERS = Kind(RunKind.PACKER, "packers", "Packers", "packer", "property", "properties")


def sorted_out(runs: Sequence[Run]) -> list[tuple[Kind, list[Run]]]:
    """Return the runs that judged something, each kind for itself: they have no rule in common."""
    sheets = [(kind, [run for run in runs if run.header.run_kind is kind.of]) for kind in (RULES, PACKERS)]
    return [(kind, its) for kind, its in sheets if its]


def names(runs: Sequence[Run]) -> list[str]:
    """Return the columns' names; of runs that judge one backend the versions tell them apart, or else the files."""
    return [
        run.header.subject + _apart(run, [other for other in runs if other.header.title == run.header.title])
        for run in runs
    ]


def versions_of(run: Run) -> list[str]:
    """Return what a run judged, with versions: a backend's framework, which it names first, or a packer's packages."""
    found = list(run.header.versions.items())
    own = [(name, version) for name, version in found if name not in host.versions()]
    return [f"{name} {version}" for name, version in (own if run.header.run_kind is RunKind.PACKER else found[:1])]


def _apart(run: Run, same: Sequence[Run]) -> str:
    if len(same) == 1:
        return ""
    shown = [", ".join(versions_of(one)) for one in same]
    return f" ({', '.join(versions_of(run))})" if all(shown) and len({*shown}) == len(same) else f" ({run.file})"
