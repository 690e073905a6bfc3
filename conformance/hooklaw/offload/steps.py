"""One training step, plain or under a strategy, with its times and its memory."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from hooklaw.offload._sampling import Times
from hooklaw.offload._timeline import Span, timeline
from hooklaw.offload.workloads import Workload

TURN = "hooklaw: after forward"
Between = Callable[[], object]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


@runtime_checkable
class Strategy(Protocol):
    """Forward runs through `wrap(model)` inside `context()`; backward runs after it, unless `backward_inside`.

    A lossless strategy gives the plain step's gradients. Another says in `tolerance` how far they may differ: the norm
    of the difference divided by the norm, of all gradients together. `close` ends it and restores the model.
    """

    name: str
    lossless: bool
    tolerance: float
    medium: str
    backward_inside: bool

    def wrap(self, model: nn.Module) -> Callable[..., Any]:
        """Return what is called instead of the model."""
        ...

    def context(self) -> AbstractContextManager[Any]:
        """Return what forward runs in."""
        ...

    def counters(self) -> dict[str, int]:
        """Return what was packed and moved so far."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class MemoryUse(NamedTuple):
    """Bytes on the device beyond those before the step."""

    peak: int
    after_forward: int
    reserved: int = 0
    host: int = 0


class Stepper:
    """A model that repeats one training step, without an optimizer, which costs the same under every strategy."""

    def __init__(
        self, workload: Workload, precision: str, strategy: Strategy | None = None, clock: Clock = time.perf_counter
    ) -> None:
        self.workload = workload
        self.model = workload.model.train()
        self.strategy = strategy
        self._run: Callable[..., Any] = strategy.wrap(self.model) if strategy else self.model
        self._precision = precision
        self._clock = clock
        self._device = workload.inputs.device
        self._cuda = self._device.type == "cuda"

    def step(self, between: Between = lambda: None) -> None:
        """Take one step; `between` is called when forward is over."""
        for parameter in self.model.parameters():
            parameter.grad = None
        inside = self.strategy.backward_inside if self.strategy else False
        with self.strategy.context() if self.strategy else nullcontext():
            loss = self._forward()
            if inside:
                between()
                loss.backward()
        if not inside:
            between()
            loss.backward()

    def timed(self) -> Times:
        """Take one step and time it."""
        self.synchronize()
        turn: list[Any] = []
        began, start = self._clock(), self._event()
        self.step(lambda: turn.extend((self._clock(), self._event())))
        self.synchronize()
        step = self._clock() - began
        if not self._cuda:
            return Times(step, turn[0] - began)
        return Times(step, start.elapsed_time(turn[1]) / 1000)  # of the device: the host runs ahead

    def measured(self) -> MemoryUse:
        """Take one step and follow its memory."""
        self.model.zero_grad()
        return self._on_cuda() if self._cuda else self._on_cpu()

    def timeline(self) -> dict[str, list[Span]]:
        """Take one step on a CUDA device, and return when it computed and copied; nothing on other devices."""
        return timeline(self.step) if self._cuda else {}

    def synchronize(self) -> None:
        """Wait until the device has nothing to do."""
        if self._cuda:
            torch.cuda.synchronize(self._device)

    def gradients(self) -> list[Tensor | None]:
        """Return the gradients as they are now."""
        self.synchronize()
        return [None if parameter.grad is None else parameter.grad.clone() for parameter in self.model.parameters()]

    def buffers(self) -> list[Tensor]:
        """Return the buffers as they are now."""
        return [tensor.clone() for tensor in self.model.buffers()]

    def static(self) -> int:
        """Return how many bytes are on the device before a step."""
        standing = (*self.model.parameters(), *self.model.buffers(), self.workload.inputs)
        return sum(tensor.nbytes for tensor in standing)

    def _forward(self) -> Tensor:
        kind = self._device.type
        with torch.autocast(kind, dtype=torch.bfloat16, enabled=self._precision == "amp"):
            return self.workload.loss(self._run(self.workload.inputs))

    def _event(self) -> Any:
        if not self._cuda:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _on_cpu(self) -> MemoryUse:
        profiler: Any = torch.autograd.profiler  # torch.profiler's own class imports a compiler, which takes a second
        with profiler.profile(use_cpu=True, use_kineto=True, profile_memory=True) as profile:
            self.step(_mark)
        total = peak = after_forward = 0
        for event in sorted(profile.kineto_results.events(), key=lambda event: event.start_ns()):
            if event.name() == "[memory]":
                total += event.nbytes()
                peak = max(peak, total)
            elif event.name() == TURN:
                after_forward = total
        return MemoryUse(peak, after_forward)

    def _on_cuda(self) -> MemoryUse:
        self.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        pinned: Any = getattr(torch.cuda, "host_memory_stats", None)  # missing in the oldest torch supported
        if pinned:
            torch.cuda.reset_peak_host_memory_stats()
        before = torch.cuda.memory_allocated(self._device)
        after: list[int] = []
        self.step(lambda: after.append(torch.cuda.memory_allocated(self._device)))
        self.synchronize()
        host = pinned().get("allocated_bytes.peak", 0) if pinned else 0
        peak = torch.cuda.max_memory_allocated(self._device)
        return MemoryUse(peak - before, after[0] - before, torch.cuda.max_memory_reserved(self._device), host)


def _mark() -> None:
    with torch.profiler.record_function(TURN):
        pass
