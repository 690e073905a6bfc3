"""A run of the benchmark: cells are visited one by one, and the record is whole after each of them."""

import datetime as dt
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from hooklaw import __version__
from hooklaw.errors import BenchError, OutputError
from hooklaw.law.rule import digest
from hooklaw.offload.hand import BrokenError, Hand, kept
from hooklaw.offload.plan import Order, Wanted, orders, refuse, warm_ups
from hooklaw.offload.rounds import Taken
from hooklaw.offload.visit import Measurement
from hooklaw.offload.worker import Done
from hooklaw.results import host, records
from hooklaw.results.records import FORMAT, Cell, Footer, Header, Run, RunKind
from hooklaw.results.verdict import Outcome

Lawful = dict[str, bool]
"""The verdict on packers, by module:attribute."""


class Session:
    """Measures the cells of a run."""

    def __init__(
        self,
        wanted: Wanted,
        results: Path | None = None,
        *,
        lawful: Lawful | None = None,
        on_cell: Callable[[Cell, int], object] = lambda *_: None,
    ) -> None:
        self.wanted = wanted
        self.spare = 0.0
        """Seconds for further rounds that no visit has needed so far."""
        self._taken: dict[Order, Taken] = {}
        self._results = results
        self._lawful = lawful or {}
        self._on_cell = on_cell
        self._began = time.perf_counter()
        refuse(wanted)
        self._hand = Hand(wanted)
        self.orders = orders(wanted, [*self._hand.hello.strategies])
        self.run = Run(self._header(), {}, None)

    @property
    def warm_ups(self) -> int:
        """Return how many rounds of a cell are taken before any counts."""
        return warm_ups(self.wanted.device)

    @property
    def packers(self) -> dict[str, str]:
        """Return the packer of each strategy that has one, as module:attribute."""
        return {spec: packer for spec, packer in self._hand.hello.packers.items() if packer}

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
            kept = [msgspec.structs.replace(cell, run=self.run.header.run) for cell in run.cells]
            self.run.cells += [cell for cell in kept if self._order_of(cell)]

    def left(self) -> list[Order]:
        """Return the cells that are still to be measured, or have fewer rounds than they are to have."""
        enough = self.wanted.rounds
        over = [cell for cell in self.run.cells if cell.rounds >= enough or cell.outcome is not Outcome.PASS]
        done = [self._order_of(cell) for cell in over]
        return [order for order in self.orders if order not in done]

    def visits(self) -> list[tuple[Order, int]]:
        """Return what is to be visited, and for which time: all cells in turn, then all of them again."""
        left = self.left()
        return [(order, visit) for visit in range(self.wanted.visits) for order in left]

    def judge(self, lawful: Lawful) -> None:
        """Take over verdicts on packers, before anything is measured."""
        self._lawful = lawful

    def begin(self, order: Order, visit: int = 0) -> Measurement:
        """Return a cell, ready to be measured, or measured again."""
        return Measurement(self, self._hand, order, visit)

    def find(self, order: Order) -> Cell | None:
        """Return what is known of a cell so far."""
        return next((cell for cell in self.run.cells if self._order_of(cell) == order), None)

    def earlier(self, order: Order) -> Taken | None:
        """Return what earlier visits of a cell took."""
        return self._taken.get(order)

    def measure(self, order: Order) -> Cell:
        """Measure a cell in one visit, without a runner around it."""
        cell = self.begin(order, self.wanted.visits - 1)
        try:
            cell.open()
            for _ in range(self.warm_ups + self.wanted.rounds):
                cell.round()
            return cell.close()
        except BrokenError as error:
            return cell.broken(error)

    def add(self, order: Order, visit: int, done: Done) -> Cell:
        """Put a cell into the run, in place of what earlier visits found, and write the record anew."""
        before, hello = self.find(order), self._hand.hello
        known = msgspec.to_builtins(before) if before and order in self._taken else {}
        error = max(known.get("error", 0.0), done.figures.get("error", 0.0))
        if done.taken:
            self._taken[order] = done.taken
        packer = hello.packers.get(order.strategy, "")
        cell = msgspec.convert(
            {
                **known,
                "kind": "cell",
                "run": self.run.header.run,
                "workload": order.workload,
                "device": hello.device,
                "setting": setting(order),
                "strategy": order.strategy,
                "text": hello.strategies.get(order.strategy, ""),
                "packer": packer,
                "lawful": self._lawful.get(packer) if packer else None,
                **done.figures,
                "error": error,
            },
            Cell,
        )
        if before:
            self.run.cells[self.run.cells.index(before)] = cell
        else:
            self.run.cells.append(cell)
        self.save()
        self._on_cell(cell, visit)
        return cell

    def finish(self, *, interrupted: bool = False) -> Run:
        """Write the footer."""
        seconds = round(time.perf_counter() - self._began, 3)
        self.run.footer = Footer(
            run=self.run.header.run, results=len(self.run.cells), seconds=seconds, interrupted=interrupted
        )
        self.save()
        return self.run

    def save(self) -> None:
        """Put the record in place of the last one, whole."""
        if not self._results:
            return
        run = self.run
        lines = [run.header, *run.cells, *([run.footer] if run.footer else [])]
        try:
            records.replace_file(self._results, "".join(msgspec.json.encode(line).decode() + "\n" for line in lines))
        except OSError as error:
            raise OutputError(f"cannot write the results to {self._results}: {error.strerror}") from error

    def close(self) -> None:
        """End the worker."""
        self._hand.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _order_of(self, cell: Cell) -> Order | None:
        device = self._hand.hello.device
        for order in self.orders:
            if (order.workload, order.strategy, setting(order), device) == (
                cell.workload,
                cell.strategy,
                cell.setting,
                cell.device,
            ):
                return order
        return None

    def _header(self) -> Header:
        hello = self._hand.hello
        return Header(
            hooklaw=FORMAT,
            run=uuid.uuid4().hex[:12],
            suite=__version__,
            digest=digest([]),
            collected=len(self.orders),
            run_kind=RunKind.BENCHMARK,
            backend="",
            device=self.wanted.device,
            rules=[],
            versions={**hello.versions, **host.versions(), "device": hello.device},
            notes={"rounds": self.wanted.span, "malloc": kept()},
            command=_command(),
            started=dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        )


def setting(order: Order) -> str:
    """Return the precision, the batch and the clock in words."""
    batch = f", batch {order.batch}" if order.batch else ""
    return order.precision + batch + (", processor time" if order.clock == "cpu" else "")


def _command() -> str:
    program = Path(sys.argv[0]).name
    return " ".join(["hooklaw" if program == "__main__.py" else program, *sys.argv[1:]])
