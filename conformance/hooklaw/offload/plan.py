"""Which cells are measured: the workloads, the strategies and the settings, as plain data."""

import msgspec

from hooklaw.errors import BenchError

STRATEGIES = "hooklaw_backends.offload"
"""Named as text, since the law imports no backend."""
WORKLOADS = {
    "conv": "residual blocks with batch norm, as in a small ResNet",
    "mlp": "linear layers, GELU and layer norm",
    "transformer": "blocks of attention",
    "resnet152": "ResNet-152 with 224 x 224 pictures",
    "tiny": "a ResNet of four narrow blocks, for trying things out",
}
USUAL = {"cpu": ("conv", "mlp", "transformer"), "cuda": ("resnet152",)}
PRECISIONS = ("fp32", "tf32", "amp")
CLOCKS = ("wall", "cpu")
"""The processor's time is the same however busy the machine is, and sees no waiting."""
QUICK = ("none", "save-on-cpu", "disk-raw", "bf16", "checkpoint", "checkpoint+disk-raw")
ROUNDS, MOST_ROUNDS, QUICK_ROUNDS = 8, 20, 3
VISITS = 4
"""So many times a cell is looked at on a CPU, all cells in turn: a machine may be slower for seconds,
which no number of rounds in a row shows."""
LIMIT = 120.0
"""Seconds that a cell may take."""
PLAIN = "none"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One cell that is to be measured."""

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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked for."""

    workloads: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    device: str = "cpu"
    precisions: tuple[str, ...] = ("fp32",)
    batch: int = 0
    clock: str = "wall"
    rounds: int = ROUNDS
    most: int = 0
    """Up to so many rounds are taken where the ratio is unsure; none further if this is not above `rounds`."""
    limit: float = LIMIT
    quick: bool = False
    module: str = STRATEGIES

    @property
    def visits(self) -> int:
        """Return in how many visits a cell takes its rounds; none has fewer than two, unless it is the only one."""
        return max(1, min(VISITS, self.rounds // 2)) if self.device == "cpu" else 1

    def planned(self, visit: int) -> int:
        """Return how many rounds a cell has after this visit, counted from 0, if it needs no further ones."""
        return self.rounds * (visit + 1) // self.visits

    @property
    def span(self) -> str:
        """Return how many rounds a cell takes, in words."""
        return f"{self.rounds} to {self.most}" if self.most > self.rounds else str(self.rounds)


def quick(wanted: Wanted) -> Wanted:
    """Return the same with few strategies and few rounds, where nothing else is named."""
    return msgspec.structs.replace(
        wanted, strategies=wanted.strategies or QUICK, rounds=min(wanted.rounds, QUICK_ROUNDS), most=0, quick=True
    )


def warm_ups(device: str) -> int:
    """Return how many rounds are taken before any counts; on the CPU the step that is checked warms enough."""
    return 0 if device == "cpu" else 2


def refuse(wanted: Wanted) -> None:
    """Know before a worker is started what cannot be; BenchError says it."""
    named = {"workload": wanted.workloads, "strategy": wanted.strategies, "precision": wanted.precisions}
    for what, names in named.items():
        if len(set(names)) < len(names):
            raise BenchError(f"a {what} is named twice: name each once")
    for name in set(wanted.workloads) - set(WORKLOADS):
        raise BenchError(f"no workload is called {name!r}: there are {', '.join(WORKLOADS)}")
    if wanted.clock == "cpu" and wanted.device != "cpu":
        raise BenchError(f"--clock cpu sees nothing of what {wanted.device} does: leave it out")


def orders(wanted: Wanted, known: list[str]) -> list[Order]:
    """Return the cells, workload by workload."""
    return [
        Order(
            workload=workload,
            strategy=strategy,
            device=wanted.device,
            precision=precision,
            batch=wanted.batch,
            clock=wanted.clock,
        )
        for workload in wanted.workloads or USUAL[wanted.device.partition(":")[0]]
        for precision in wanted.precisions
        for strategy in sorted(wanted.strategies or known, key=lambda name: name != PLAIN)  # the plain step first
    ]
