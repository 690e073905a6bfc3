"""A visit of a cell inside the worker: gradients against the plain step's, steps on request, then the accounting."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from hooklaw.offload import _gradients, _links, workloads
from hooklaw.offload._sampling import Times
from hooklaw.offload._worker import Close, Closed
from hooklaw.offload.plan import CellPlan
from hooklaw.offload.steps import CLOCKS, Stepper, Strategy
from hooklaw.offload.workloads import Workload
from hooklaw.results.verdict import Outcome

CHECKED = 16
"""Gradients are checked with so many samples on a device, since float64 takes twice the memory."""
IO = Path("/proc/self/io")


class Baseline(NamedTuple):
    """What the cells of a workload share."""

    start: Workload
    """The workload that gradients are checked on."""
    gradients: _gradients.Plain
    """What the plain step makes of it."""
    plain: Stepper | None
    """What takes the plain steps; on a device each cell has its own, with more samples."""


class Baselines:
    """The baseline of each workload, and the strategies by name."""

    def __init__(self, find: Callable[[str], Strategy]) -> None:
        """Prepare; `find` makes a new strategy."""
        self.find = find
        self._made: dict[tuple[str, ...], Baseline] = {}

    def of(self, cell: CellPlan) -> Baseline:
        """Return what is the same for all strategies."""
        key = (cell.workload, cell.device, cell.precision, str(cell.batch), cell.clock)
        if key not in self._made:
            on_cpu = cell.device == "cpu"
            batch = cell.batch if on_cpu else min(cell.batch or CHECKED, CHECKED)
            if not on_cpu:
                self._made.clear()  # one at a time: they are large
            start = workloads.build(cell.workload, batch).to(cell.device)
            expected = _gradients.plain(start, cell.precision)
            self._made[key] = Baseline(start, expected, _warm(start, cell) if on_cpu else None)
        return self._made[key]


class Visit:
    """A cell with its strategy, which takes steps until it is closed."""

    def __init__(self, baselines: Baselines, cell: CellPlan) -> None:
        self._baselines = baselines
        self._cell = cell
        _release_memory()
        _set_precision(cell.precision)
        torch.backends.cudnn.benchmark = False  # to find the fastest kernels takes longer than the steps that check
        torch.manual_seed(0)
        self._outcome, self._detail = Outcome.PASS, ""
        start, expected, plain = baselines.of(cell)
        self._own = self._stepper(start)
        self._figures = self._checked(expected)
        if not plain:  # gradients were checked with fewer samples
            self._strategy.close()
            torch.backends.cudnn.benchmark = True
            start = workloads.build(cell.workload, cell.batch).to(cell.device)
            self._own = self._stepper(start)
        self._plain = plain or _plain(start, cell)
        gc.collect()

    def take(self, plain: bool) -> Times:  # noqa: FBT001 - as the request has it
        """Take the plain step or the strategy's own."""
        return (self._plain if plain else self._own).timed()

    def close(self, request: Close) -> Closed:
        """Check the gradients of the last step, account for one step more if asked to, and end the strategy."""
        self._check_last_gradients()
        ceiling = self._account() if request.account else None
        self._strategy.close()
        return Closed(self._outcome, self._detail, self._figures, ceiling)

    @property
    def _strategy(self) -> Strategy:
        return cast("Strategy", self._own.strategy)

    def _stepper(self, workload: Workload) -> Stepper:
        strategy = self._baselines.find(self._cell.strategy)
        return Stepper(workload.copied(), self._cell.precision, strategy, CLOCKS[self._cell.clock])

    def _checked(self, plain: _gradients.Plain) -> dict[str, Any]:
        torch.manual_seed(1)
        self._own.step()
        found = self._own.gradients()
        error = _gradients.distance(found, plain.gradients)
        equal = _gradients.same(self._own.buffers(), plain.buffers, _gradients.NOISE * plain.noise)
        self._judge(error, plain.noise)
        self._mark("" if equal else "the model's buffers are not those of the plain step")
        return {
            "lossless": self._strategy.lossless,
            "error": error,
            "error64": _gradients.distance(found, plain.exact),
            "plain_error64": plain.error64,
            "buffers_equal": equal,
        }

    def _check_last_gradients(self) -> None:
        """Check the gradients after all rounds: only then does memory that was reused too early show."""
        expected, noise = self._plain.gradients(), 0.0
        error = _gradients.distance(self._own.gradients(), expected)
        if error:
            self._step_again()
            noise = _gradients.distance(self._plain.gradients(), expected)
        self._judge(error, noise)
        self._figures["error"] = max(error, self._figures["error"])

    def _step_again(self) -> None:
        """Take the plain step once more, with its forward in a new thread where cuDNN searches for the fastest kernels.

        It searches in each thread, so a forward that backward repeats in its own thread may round otherwise.
        """
        if not torch.backends.cudnn.benchmark:
            self._plain.step()
            return
        with ThreadPoolExecutor(1) as thread:
            thread.submit(self._plain.step).result()

    def _account(self) -> tuple[float, float] | None:
        before, written = self._strategy.counters(), _written()
        memory = self._own.measured()
        moved = {name: many - before.get(name, 0) for name, many in self._strategy.counters().items()}
        self._own.synchronize()
        out = moved.get("bytes_out", 0)
        self._mark(_unproven(self._strategy.medium, out, _written() - written))
        self._figures |= {
            **memory._asdict(),
            "host": max(memory.host, out),
            "static": self._own.static(),
            "packs": moved.get("packs", 0),
            "packed": moved.get("bytes_packed", 0),
            "out": out,
            "back": moved.get("bytes_back", 0),
            "deduplicated": moved.get("bytes_deduplicated", 0),
            "timeline": self._own.timeline() if out else {},
        }
        return self._ceiling(out) if out else None

    def _ceiling(self, nbytes: int) -> _links.Ceiling:
        rate = float(getattr(self._strategy, "rate", 0.0))
        device = self._own.workload.inputs.device
        return _links.ceiling(self._strategy.medium, nbytes, device, rate, CLOCKS[self._cell.clock])

    def _judge(self, error: float, noise: float) -> None:
        strategy = self._strategy
        self._mark(_gradients.complaint(error, lossless=strategy.lossless, tolerance=strategy.tolerance, noise=noise))

    def _mark(self, complaint: str) -> None:
        if complaint and not self._detail:
            self._outcome, self._detail = Outcome.FAIL, complaint


def _plain(start: Workload, cell: CellPlan) -> Stepper:
    return Stepper(start.copied(), cell.precision, clock=CLOCKS[cell.clock])


def _warm(start: Workload, cell: CellPlan) -> Stepper:
    plain = _plain(start, cell)
    plain.step()
    return plain


def _set_precision(precision: str) -> None:
    fast = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fast


def _release_memory() -> None:
    """Have the allocators of a device give back what the cell before this one left, pinned memory too."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
        allocators: Any = torch._C  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - public in later versions
        getattr(allocators, "_host_emptyCache", lambda: None)()  # missing in the oldest torch supported


def _written() -> int:
    """Return how many bytes this process has handed to files so far."""
    try:
        lines = IO.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return int(next((line.split()[1] for line in lines if line.startswith("wchar")), 0))


def _unproven(medium: str, claimed: int, written: int) -> str:
    if not medium.startswith("disk") or not IO.exists() or written >= claimed:
        return ""
    return f"it says that {claimed} bytes went to disk, and the process wrote {written}"
