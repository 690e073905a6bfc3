"""From a strategy of the benchmark to the run that held its packer against the law, where the report has one."""

import re
from collections.abc import Sequence

import msgspec

from hooklaw.results.records import Cell, Run
from hooklaw.results.summary import words
from hooklaw.results.verdict import JUDGED, Outcome
from hooklaw_reports.kinds import PACKERS, names, sorted_out

SHIPPED = ("torch.", "hooklaw_backends.")
"""Modules whose packers the benchmark's strategies call by a short name."""


class Law(msgspec.Struct, frozen=True):
    """The column that judged a packer, and the outcomes there that speak against it."""

    name: str
    words: list[str]


def law_of(cell: Cell, runs: Sequence[Run]) -> Law | None:
    """Return where the law's verdict on the strategy's packer stands."""
    packers = dict(sorted_out(runs)).get(PACKERS, [])
    found = [(run, name) for run, name in zip(packers, names(packers), strict=True) if _packs(run, cell.strategy)]
    found.sort(key=lambda pair: (pair[0].header.device == "cpu") != (cell.device == "cpu"))
    for run, name in found[:1]:
        broken = {word for rule, word in words(run).items() if run.outcome(rule) in JUDGED - {Outcome.PASS}}
        return Law(name, sorted(broken))
    return None


def _packs(run: Run, strategy: str) -> bool:
    module, _, attribute = run.header.backend.partition(":")
    if run.header.backend in strategy.split("+"):
        return True
    return module.startswith(SHIPPED) and _short(attribute) in re.split(r"[+:]", strategy)


def _short(attribute: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", attribute).lower()
