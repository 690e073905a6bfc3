"""What the runs of a report are about: rules on backends, properties on packers, or what offloading costs."""

from collections.abc import Sequence

import msgspec

from hooklaw.results import host
from hooklaw.results.records import Run


class Kind(msgspec.Struct, frozen=True):
    """One kind of run that is judged, and what it is called on the page."""

    name: str
    title: str
    judged: str
    law: str
    laws: str

    @property
    def heading(self) -> str:
        """What stands above the first column."""
        return self.law.capitalize()


RULES = Kind("rules", "Rules", "backend", "rule", "rules")
PACKERS = Kind("packers", "Packers", "packer", "property", "properties")


def is_packer(run: Run) -> bool:
    """Tell whether a run judged a packer of saved tensors."""
    return run.header.backend.startswith("packer:")


def is_bench(run: Run) -> bool:
    """Tell whether a run measured offloading, and judged nothing."""
    return bool(run.cells) or run.header.backend.startswith("bench:")


def sorted_out(runs: Sequence[Run]) -> list[tuple[Kind, list[Run]]]:
    """Return the runs that judged something, each kind for itself: they have no rule in common."""
    judged = [run for run in runs if not is_bench(run)]
    sheets = [
        (RULES, [run for run in judged if not is_packer(run)]),
        (PACKERS, [run for run in judged if is_packer(run)]),
    ]
    return [(kind, its) for kind, its in sheets if its]


def names(runs: Sequence[Run]) -> list[str]:
    """Return the columns' names; of runs that judge one backend the versions tell them apart, or else the files."""
    return [_name(run) + _apart(run, [one for one in runs if one.header.backend == run.header.backend]) for run in runs]


def versions_of(run: Run) -> list[str]:
    """Return what a run judged, with versions: a backend's framework, which it names first, or a packer's packages."""
    found = list(run.header.versions.items())
    own = [(name, version) for name, version in found if name not in host.versions()]
    return [f"{name} {version}" for name, version in (own if is_packer(run) else found[:1])]


def _apart(run: Run, same: Sequence[Run]) -> str:
    if len(same) == 1:
        return ""
    shown = [", ".join(versions_of(one)) for one in same]
    return f" ({', '.join(versions_of(run))})" if all(shown) and len({*shown}) == len(same) else f" ({run.file})"


def _name(run: Run) -> str:
    return run.header.backend.removeprefix("packer:")
