"""A run of the benchmark: which visits it takes, what they came to, and a record that is whole after each."""

import datetime as dt
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from hooklaw import __version__
from hooklaw.errors import BenchError
from hooklaw.law.rule import digest
from hooklaw.offload import _sampling
from hooklaw.offload._cell_worker import BrokenCellError, CellWorker, kept
from hooklaw.offload._measurement import Measurement
from hooklaw.offload._sampling import Round
from hooklaw.offload.plan import CellPlan, Plan, cells, recomputes, refuse
from hooklaw.results import host, records
from hooklaw.results.output import output_errors, replace_file
from hooklaw.results.records import FORMAT, Cell, Footer, Header, Run, RunKind
from hooklaw.results.verdict import Outcome


class Samples(msgspec.Struct):
    """What the visits of a cell found so far."""

    rounds: list[Round] = []
    figures: dict[str, Any] = {}
    ceiling: tuple[float, float] | None = None


class BenchmarkRun:
    """The cells of a run, and the worker that measures them."""

    def __init__(
        self,
        plan: Plan,
        results: Path | None = None,
        *,
        on_cell: Callable[[Cell, int], object] = lambda *_: None,
        seconds: float = 0.0,
    ) -> None:
        """Start a worker; with `seconds`, no visit begins after so long."""
        self.plan = plan
        self.lawful: dict[str, bool] = {}
        """The verdict on packers, by module:attribute."""
        self._samples: dict[CellPlan, Samples] = {}
        self._known: dict[CellPlan, Cell] = {}
        self._results, self._on_cell = results, on_cell
        self._spare = 0.0
        """Seconds for further rounds that no visit has needed so far."""
        self._began, self._seconds = time.perf_counter(), seconds
        refuse(plan)
        self.worker = CellWorker(plan)
        self._inventory = self.worker.inventory
        self.cells = cells(plan, [*self._inventory.strategies])
        self.run = Run(self._header(), {}, None)

    @property
    def packers(self) -> dict[str, str]:
        """Return the packer of each strategy that has one, as module:attribute."""
        return {spec: packer for spec, packer in self._inventory.packers.items() if packer}

    def resume(self) -> None:
        """Take over the cells that the results file has; BenchError where they were measured elsewhere."""
        if not self._results or not self._results.exists():
            return
        for run in records.read(self._results, incomplete=True):
            here, there = self.run.header.versions, run.header.versions
            if changed := [name for name in ("torch", "device") if here[name] != there.get(name)]:
                raise BenchError(
                    f"{self._results} was measured with another {' and another '.join(changed)}: name a new file"
                )
            for cell in run.cells:
                if plan := self._plan_of(cell):
                    self._know(plan, msgspec.structs.replace(cell, run=self.run.header.run))

    def left(self) -> list[CellPlan]:
        """Return the cells that are not marked and have too few rounds."""
        known = self._known.items()
        over = {plan for plan, cell in known if cell.rounds >= self.plan.rounds or cell.outcome is not Outcome.PASS}
        return [plan for plan in self.cells if plan not in over]

    def visits(self) -> list[tuple[CellPlan, int]]:
        """Return all cells in turn, then all of them again, each with the number of the visit."""
        left = self.left()
        return [(cell, visit) for visit in range(self.plan.visits) for cell in left]

    def rounds(self, cell: CellPlan, visit: int) -> int:
        """Return how many rounds a visit takes: none if the cell is marked or sure enough, or the time is over."""
        known = self._known.get(cell)
        marked = visit and known and known.outcome is not Outcome.PASS
        if marked or (self._seconds and time.perf_counter() - self._began > self._seconds):
            return 0
        self._spare += _sampling.SECONDS
        rounds = self._samples[cell].rounds if cell in self._samples else []
        further = _sampling.further(self.plan, visit, rounds, self._spare)
        if further:
            self._spare -= sum(pair.seconds for pair in rounds) / len(rounds) * further
        return self.plan.usual(visit) + further

    def needs_account(self, cell: CellPlan) -> bool:
        """Return whether no visit has followed the memory of the cell yet."""
        return cell not in self._samples

    def add(self, cell: CellPlan, visit: int, found: Measurement) -> Cell:
        """Add the rounds of a visit to the record."""
        closed, known = found.closed, self._samples.setdefault(cell, Samples())
        known.rounds = [*known.rounds, *found.rounds]
        known.ceiling = known.ceiling or closed.ceiling
        error = max(known.figures.get("error", 0.0), closed.figures["error"])
        known.figures = {**known.figures, **closed.figures, "error": error}
        return self._put(cell, visit, closed.outcome, closed.detail)

    def mark(self, cell: CellPlan, visit: int, error: BrokenCellError) -> Cell:
        """Mark a cell that broke; what earlier visits found stays."""
        return self._put(cell, visit, error.outcome, error.detail)

    def finish(self, *, interrupted: bool = False) -> Run:
        """Write the footer."""
        seconds = round(time.perf_counter() - self._began, 3)
        self.run.footer = Footer(
            run=self.run.header.run, results=len(self.run.cells), seconds=seconds, interrupted=interrupted
        )
        self._save()
        return self.run

    def close(self) -> None:
        """End the worker."""
        self.worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, plan: CellPlan, visit: int, outcome: Outcome, detail: str) -> Cell:
        cell = self._know(plan, self._cell(plan, outcome, detail))
        self._save()
        self._on_cell(cell, visit)
        return cell

    def _know(self, plan: CellPlan, cell: Cell) -> Cell:
        self._known[plan] = cell
        self.run.cells = [*self._known.values()]
        return cell

    def _cell(self, plan: CellPlan, outcome: Outcome, detail: str) -> Cell:
        known = self._samples.get(plan, Samples())
        found, packer = known.figures, self._inventory.packers.get(plan.strategy, "")
        moved = (found.get("out", 0), found.get("back", 0))
        times = (
            _sampling.figures(known.rounds, moved, known.ceiling, recomputes=recomputes(plan.strategy))
            if known.rounds
            else {}
        )
        return msgspec.convert(
            {
                "kind": "cell",
                "run": self.run.header.run,
                "workload": plan.workload,
                "device": self._inventory.device,
                "setting": plan.setting,
                "strategy": plan.strategy,
                "text": self._inventory.strategies.get(plan.strategy, ""),
                "packer": packer,
                "lawful": self.lawful.get(packer),
                "outcome": outcome,
                "detail": detail,
                **found,
                **times,
            },
            Cell,
        )

    def _save(self) -> None:
        """Put the record in place of the last one, whole."""
        if not self._results:
            return
        run = self.run
        lines = [run.header, *run.cells, *([run.footer] if run.footer else [])]
        with output_errors(f"write the results to {self._results}"):
            replace_file(self._results, "".join(msgspec.json.encode(line).decode() + "\n" for line in lines))

    def _plan_of(self, cell: Cell) -> CellPlan | None:
        key, device = (cell.workload, cell.strategy, cell.setting), self._inventory.device
        found = (plan for plan in self.cells if (plan.workload, plan.strategy, plan.setting) == key)
        return next(found, None) if cell.device == device else None

    def _header(self) -> Header:
        return Header(
            hooklaw=FORMAT,
            run=uuid.uuid4().hex[:12],
            suite=__version__,
            digest=digest([]),
            collected=len(self.cells),
            run_kind=RunKind.BENCHMARK,
            backend="",
            device=self.plan.device,
            rules=[],
            versions={**self._inventory.versions, **host.versions(), "device": self._inventory.device},
            notes={"rounds": self.plan.span, "malloc": kept()},
            command=_command(),
            started=dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        )


def _command() -> str:
    program = Path(sys.argv[0]).name
    return " ".join(["hooklaw" if program == "__main__.py" else program, *sys.argv[1:]])
