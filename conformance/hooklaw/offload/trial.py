"""A visit of a cell in the worker: gradients against the plain step's, rounds beside it, at first the accounting."""

import gc
import importlib
import statistics
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from hooklaw.offload import gradients, links, workloads
from hooklaw.offload.plan import STRATEGIES, Order
from hooklaw.offload.rounds import Taken, Times, quartiles
from hooklaw.offload.steps import CLOCKS, Stepper, Strategy
from hooklaw.offload.workloads import Workload
from hooklaw.results.verdict import Outcome

CHECKED = 16
"""How many samples gradients are checked with on a device: float64 takes twice the memory."""
IO = Path("/proc/self/io")
Figures = dict[str, Any]


class Shared(NamedTuple):
    """What the cells of a workload share."""

    start: Workload
    """The workload that gradients are checked on."""
    gradients: gradients.Plain
    """What the plain step makes of it."""
    plain: Stepper | None
    """What takes the plain steps; on a device each cell has its own, with more samples."""


class Bench:
    """What the cells of a worker share: the strategies' module, and what the plain step gives."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._shared: dict[tuple[str, ...], Shared] = {}

    def find(self, spec: str) -> Strategy:
        """Return a new strategy."""
        found: Any = importlib.import_module(self._module)
        return cast("Strategy", found.find(spec))

    def floor(self, plain: Times, ceiling: tuple[float, float], nbytes: int) -> float:
        """Return the seconds that a step with so many bytes away takes at least."""
        formula: Any = importlib.import_module(f"{STRATEGIES}.formula")
        times = {"forward": plain.forward, "backward": plain.backward}
        return formula.Step(out_rate=ceiling[0], back_rate=ceiling[1], **times).floor(nbytes)

    def shared(self, order: Order) -> Shared:
        """Return what is the same for all strategies."""
        key = (order.workload, order.device, order.precision, str(order.batch), order.clock)
        if key not in self._shared:
            on_cpu = order.device == "cpu"
            batch = order.batch if on_cpu else min(order.batch or CHECKED, CHECKED)
            if not on_cpu:
                self._shared.clear()  # one at a time: they are large
            start = workloads.build(order.workload, batch).to(order.device)
            expected = gradients.plain(start, order.precision)
            self._shared[key] = Shared(start, expected, _warm(start, order) if on_cpu else None)
        return self._shared[key]


class Trial:
    """A cell under measurement."""

    def __init__(self, bench: Bench, order: Order, earlier: Taken | None = None) -> None:
        self._bench = bench
        self._order = order
        self._earlier = earlier
        _set_precision(order.precision)
        torch.manual_seed(0)
        self._figures: Figures = {}
        self._outcome, self._detail = Outcome.PASS, ""
        start, expected, plain = bench.shared(order)
        self._own = self._stepper(start)
        self._check(expected)
        if not plain:  # gradients were checked with fewer samples
            self._strategy.close()
            start = workloads.build(order.workload, order.batch).to(order.device)
            self._own = self._stepper(start)
        self._plain = plain or _plain(start, order)
        self._rounds: list[tuple[Times, Times]] = []
        self._half: dict[str, Times] = {}
        gc.collect()

    def take(self, which: str) -> float:
        """Take the plain step or the strategy's own, and return its seconds."""
        times = (self._plain if which == "plain" else self._own).timed()
        self._half[which] = times
        if len(self._half) == 2:  # noqa: PLR2004 - the plain step and the strategy's
            self._rounds.append((self._half.pop("plain"), self._half.pop("own")))
        return times.step

    def finish(self, warm_ups: int) -> tuple[Figures, Taken]:
        """Return all figures, what a later visit goes on from, and end the strategy."""
        self._hold_last_gradients()
        taken = self._earlier or self._account()
        taken.rounds += self._rounds[warm_ups:]
        self._time(taken)
        self._strategy.close()
        return {**self._figures, "outcome": self._outcome, "detail": self._detail}, taken

    @property
    def _strategy(self) -> Strategy:
        return cast("Strategy", self._own.strategy)

    def _stepper(self, workload: Workload) -> Stepper:
        strategy = self._bench.find(self._order.strategy)
        return Stepper(workload.copied(), self._order.precision, strategy, CLOCKS[self._order.clock])

    def _check(self, plain: gradients.Plain) -> None:
        strategy = self._strategy
        torch.manual_seed(1)
        self._own.step()
        found = self._own.gradients()
        error, error64 = gradients.distance(found, plain.gradients), gradients.distance(found, plain.exact)
        self._allowed: dict[str, Any] = {"lossless": strategy.lossless, "tolerance": strategy.tolerance}
        equal = gradients.same(self._own.buffers(), plain.buffers, gradients.NOISE * plain.noise)
        self._mark(gradients.complaint(error, noise=plain.noise, **self._allowed))
        self._mark("" if equal else "the model's buffers are not those of the plain step")
        self._figures |= {
            "lossless": strategy.lossless,
            "error": error,
            "error64": error64,
            "plain_error64": plain.error64,
            "buffers_equal": equal,
        }

    def _hold_last_gradients(self) -> None:
        """See whether gradients are still right after all the rounds: memory that was used anew shows only then."""
        expected = self._plain.gradients()
        error = gradients.distance(self._own.gradients(), expected)
        noise = 0.0
        if error:
            self._plain.step()
            noise = gradients.distance(self._plain.gradients(), expected)
        self._mark(gradients.complaint(error, noise=noise, **self._allowed))
        self._figures["error"] = max(error, self._figures["error"])

    def _account(self) -> Taken:
        before, written = self._strategy.counters(), _written()
        memory = self._own.measured()
        moved = {name: many - before.get(name, 0) for name, many in self._strategy.counters().items()}
        self._own.synchronize()
        out, back = moved.get("bytes_out", 0), moved.get("bytes_back", 0)
        self._mark(_unproven(self._strategy.medium, out, _written() - written))
        self._figures |= {
            **memory._asdict(),
            "host": max(memory.host, out),
            "static": self._own.static(),
            "packs": moved.get("packs", 0),
            "packed": moved.get("bytes_packed", 0),
            "out": out,
            "back": back,
            "deduplicated": moved.get("bytes_deduplicated", 0),
        }
        return Taken([], (out, back), self._ceiling(out))

    def _time(self, taken: Taken) -> None:
        plain = _middle([one for one, _ in taken.rounds])
        own = _middle([one for _, one in taken.rounds])
        first, middle, third = quartiles(taken.ratios)
        again = plain.forward if _recomputes(self._order.strategy) else 0.0
        least = Times(plain.step + again, plain.forward)
        ceiling = taken.ceiling
        floor = self._bench.floor(least, ceiling, taken.moved[0]) if ceiling else least.step
        self._figures |= {
            "rounds": len(taken.rounds),
            "step": own.step,
            "forward": own.forward,
            "backward": own.backward,
            "ratio": middle,
            "ratio_q1": first,
            "ratio_q3": third,
            "rate": sum(taken.moved) / own.step,
            "ceiling": links.both(*ceiling) if ceiling else 0.0,
            "floor": floor,
            "efficiency": floor / own.step,
        }

    def _ceiling(self, nbytes: int) -> links.Ceiling | None:
        if not nbytes:
            return None
        rate = float(getattr(self._strategy, "rate", 0.0))
        device = self._own.workload.inputs.device
        return links.ceiling(self._strategy.medium, nbytes, device, rate, CLOCKS[self._order.clock])

    def _mark(self, complaint: str) -> None:
        if complaint and not self._detail:
            self._outcome, self._detail = Outcome.FAIL, complaint


def _plain(start: Workload, order: Order) -> Stepper:
    return Stepper(start.copied(), order.precision, clock=CLOCKS[order.clock])


def _warm(start: Workload, order: Order) -> Stepper:
    plain = _plain(start, order)
    plain.step()
    return plain


def _middle(times: list[Times]) -> Times:
    return Times(statistics.median(one.step for one in times), statistics.median(one.forward for one in times))


def _recomputes(spec: str) -> bool:
    """Tell whether forward runs twice: then the least that a step takes is one forward more."""
    return any(part.partition(":")[0] == "checkpoint" for part in spec.split("+"))


def _set_precision(precision: str) -> None:
    fast = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fast
    torch.backends.cudnn.benchmark = True


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
