"""What the runs of a report are about: rules on backends, properties on packers, or what offloading costs."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from hooklaw.records import Run


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
    """Return the columns' names; where two runs judge one backend, the file tells them apart."""
    often = Counter(run.header.backend for run in runs)
    return [f"{_name(run)} ({run.file})" if often[run.header.backend] > 1 else _name(run) for run in runs]


def _name(run: Run) -> str:
    return run.header.backend.removeprefix("packer:")
