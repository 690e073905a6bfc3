"""Which cells are measured: the workloads, the strategies and the settings, as plain data."""

import msgspec

from hooklaw.errors import BenchError, did_you_mean

STRATEGIES = "hooklaw_backends.offload"
"""The default of `--strategies`, in words: the law imports no backend."""
WORKLOADS = {
    "conv": "residual blocks with batch norm, as in a small ResNet",
    "mlp": "linear layers, GELU and layer norm",
    "transformer": "blocks of attention",
    "resnet152": "ResNet-152 with 224 x 224 pictures",
    "tiny": "a ResNet of four narrow blocks, for trying things out",
    "chain": "400 saved tensors of a few elements, for the price of each",
}
USUAL = {"cpu": ("conv", "mlp", "transformer"), "cuda": ("resnet152",)}
PRECISIONS = ("fp32", "tf32", "amp")
CLOCKS = ("wall", "cpu")
"""The processor's time is the same however busy the machine is, and sees no waiting."""
QUICK = ("none", "save-on-cpu", "disk-raw", "bf16", "checkpoint", "checkpoint+disk-raw")
ROUNDS, MOST_ROUNDS, QUICK_ROUNDS = 8, 20, 3
VISITS = 4
"""How often each cell is visited on a CPU, all cells in turn: a machine may be slower for seconds, which no number of
rounds in a row shows."""
LIMIT = 120.0
"""Seconds that a cell may take."""
PLAIN = "none"


class CellPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One cell to measure."""

    workload: str
    strategy: str
    device: str = "cpu"
    precision: str = "fp32"
    batch: int = 0
    """How many samples; 0 leaves it to the workload."""
    clock: str = "wall"

    @property
    def name(self) -> str:
        """Return what the cell is called on a line of its own."""
        return f"{self.workload}-{self.strategy}"

    @property
    def setting(self) -> str:
        """Return the precision, the batch and the clock in words."""
        batch = f", batch {self.batch}" if self.batch else ""
        return self.precision + batch + (", processor time" if self.clock == "cpu" else "")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, and how often."""

    workloads: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    device: str = "cpu"
    precisions: tuple[str, ...] = ("fp32",)
    batch: int = 0
    clock: str = "wall"
    rounds: int = ROUNDS
    most: int = 0
    """A cell takes up to so many rounds if its ratio is unsure, and `rounds` if this is not above them."""
    limit: float = LIMIT
    module: str = STRATEGIES
    imports: tuple[str, ...] = ()
    """Modules to import first, in each worker."""

    @property
    def visits(self) -> int:
        """Return in how many visits a cell takes its rounds; on a device the second one is for unsure cells only."""
        return self._usual_visits + (self.device != "cpu" and self.most > self.rounds)

    @property
    def _usual_visits(self) -> int:
        return max(1, min(VISITS, self.rounds // 2)) if self.device == "cpu" else 1

    def planned(self, visit: int) -> int:
        """Return how many rounds a cell has after this visit, counted from 0, if it needs no further ones."""
        return min(self.rounds, self.rounds * (visit + 1) // self._usual_visits)

    def usual(self, visit: int) -> int:
        """Return how many rounds a visit takes if the cell needs no further ones."""
        return self.planned(visit) - self.planned(visit - 1)

    @property
    def span(self) -> str:
        """Return how many rounds a cell takes, in words."""
        return f"{self.rounds} to {self.most}" if self.most > self.rounds else str(self.rounds)


def quick(plan: Plan) -> Plan:
    """Return the same with few strategies and few rounds, where nothing else is named."""
    return msgspec.structs.replace(
        plan, strategies=plan.strategies or QUICK, rounds=min(plan.rounds, QUICK_ROUNDS), most=0
    )


def warm_ups(device: str) -> int:
    """Return how many rounds are taken before any counts; on the CPU the step that is checked warms enough."""
    return 0 if device == "cpu" else 1


def recomputes(strategy: str) -> bool:
    """Return whether forward runs twice: then a step takes at least one forward more."""
    return any(part.partition(":")[0] == "checkpoint" for part in strategy.split("+"))


def refuse(plan: Plan) -> None:
    """Raise BenchError for what cannot be measured, before a worker is started."""
    named = {"workload": plan.workloads, "strategy": plan.strategies, "precision": plan.precisions}
    for what, names in named.items():
        if len(set(names)) < len(names):
            raise BenchError(f"a {what} is named twice: name each once")
    for name in set(plan.workloads) - set(WORKLOADS):
        hint = did_you_mean(name, WORKLOADS, f"there are {', '.join(WORKLOADS)}")
        raise BenchError(f"no workload is called {name!r}: {hint}")
    if plan.clock == "cpu" and plan.device != "cpu":
        raise BenchError(f"--clock cpu sees nothing of what {plan.device} does: leave it out")


def cells(plan: Plan, known: list[str]) -> list[CellPlan]:
    """Return the cells, workload by workload."""
    return [
        CellPlan(
            workload=workload,
            strategy=strategy,
            device=plan.device,
            precision=precision,
            batch=plan.batch,
            clock=plan.clock,
        )
        for workload in plan.workloads or USUAL[plan.device.partition(":")[0]]
        for precision in plan.precisions
        for strategy in sorted(plan.strategies or known, key=lambda name: name != PLAIN)  # the plain step first
    ]
