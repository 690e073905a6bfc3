"""The worker that measures cells, seen from outside: a strategy that ends it costs one cell."""

import os
import platform
import time
from pathlib import Path
from typing import Any

from hooklaw.offload._sampling import Times
from hooklaw.offload._worker import Broke, CellSettings, Close, Closed, Inventory, Open, Reply, Take
from hooklaw.offload.plan import CellPlan, Plan
from hooklaw.results.verdict import Outcome
from hooklaw.workers.supervisor import Death, Supervisor, WorkerDiedError
from hooklaw.workers.watchdog import late

MEMORY = Path("/proc/meminfo")
KEEPS = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
"""Has the C library keep what a worker frees. Otherwise it may give memory back to the system. A step that has to
fetch it again takes up to a tenth longer, and which step that is depends on all that the worker did before."""
SHORTEST = 0.01


class BrokenCellError(Exception):
    """A strategy raised, or ended its worker."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class CellWorker:
    """A supervised worker that is replaced after a cell that leaves it in doubt."""

    def __init__(self, plan: Plan) -> None:
        on_cuda = plan.device.startswith("cuda")
        self._limit = plan.limit
        self._deadline = 0.0
        self._worker: Supervisor[Inventory, Reply] = Supervisor(
            "hooklaw.offload._worker:CellService",
            CellSettings(plan.module, plan.strategies, plan.device, plan.imports),
            name=f"the strategies' module {plan.module!r}",
            hello=Inventory,
            answer=Reply,
            environment=environment(),
            temporary_folder=True,
            memory=0 if on_cuda else _free_memory(),
        )
        self.inventory = self._worker.hello()

    def open(self, cell: CellPlan) -> None:
        """Begin a visit of a cell; all of it has to end within the limit."""
        self._deadline = time.monotonic() + self._limit
        self._ask(Open(cell))

    def take(self, *, plain: bool) -> Times:
        """Have a step taken, and return its seconds."""
        return self._ask(Take(plain))

    def close_cell(self, *, account: bool) -> Closed:
        """End the visit, and return what it found besides times."""
        return self._ask(Close(account))

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def _ask(self, request: Open | Take | Close) -> Any:
        limit = max(SHORTEST, self._deadline - time.monotonic())
        try:
            reply = self._worker.ask(request, limit)
        except WorkerDiedError as died:
            raise BrokenCellError(died.death.outcome, self._in_words(died.death)) from died
        if isinstance(reply, Broke):
            self._worker.retire()
            raise BrokenCellError(Outcome.ERROR, reply.detail)
        return reply

    def _in_words(self, death: Death) -> str:
        if death.outcome is Outcome.TIMEOUT:
            return late(self._limit)
        killed = death.code < 0 and "without a word" in death.detail
        return f"the process died of signal {-death.code}" if killed else death.detail


def environment() -> dict[str, str]:
    """Return what a worker's environment has besides the user's, whose own values win."""
    return {name: value for name, value in {"KINETO_LOG_LEVEL": "5", **KEEPS}.items() if name not in os.environ}


def kept() -> str:
    """Return in words what workers do with memory that is freed."""
    if os.environ.keys() & KEEPS:
        return "as the environment says"
    return "keeps what is freed" if platform.libc_ver()[0] == "glibc" else "as the C library does"


def _free_memory() -> int:
    try:
        lines = MEMORY.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    free = next((line.split()[1] for line in lines if line.startswith("MemAvailable")), "0")
    return int(free) * 1024
