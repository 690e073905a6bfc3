"""What only a device shows: spans of its work in one step, and kernels that it chooses for each thread."""

from concurrent.futures import ThreadPoolExecutor
from threading import current_thread, main_thread
from typing import NamedTuple

import pytest

import made_records as made
from hooklaw.offload._timeline import lanes, merged
from hooklaw.offload._worker import Close
from hooklaw.offload.plan import CellPlan

torch = pytest.importorskip("torch")
from hooklaw.offload._visit import Baselines, Visit  # noqa: E402 - after the check for torch
from hooklaw_backends.offload.strategy import Assembled  # noqa: E402 - as above


class Event(NamedTuple):
    """What torch's profiler says of a kernel or a copy, in nanoseconds."""

    what: str
    began: int
    took: int

    def name(self):
        """Return what ran."""
        return self.what

    def start_ns(self):
        """Return when it began."""
        return self.began

    def duration_ns(self):
        """Return how long it took."""
        return self.took


def test_copies_have_lanes_of_their_own():
    """Copies to the host go out, copies from it come back, and everything else computes; time counts from the first."""
    second = 10**9
    events = [
        Event("Memcpy HtoD (Pinned -> Device)", 9 * second, second),
        Event("void cudnn::kernel", 6 * second, second),
        Event("Memcpy DtoH (Device -> Pinned)", 7 * second, second),
        Event("Memset (Device)", 5 * second, second),
        Event("Memcpy DtoD (Device -> Device)", 8 * second, second // 2),
    ]

    assert lanes(events) == {"back": [(4.0, 5.0)], "compute": [(0.0, 2.0), (3.0, 3.5)], "out": [(2.0, 3.0)]}
    assert lanes([]) == {}


def test_short_gaps_are_not_shown():
    """Spans that overlap, touch or are a short gap apart are one; the longest end counts."""
    spans = [(5.0, 6.0), (0.0, 4.0), (1.0, 2.0), (4.5, 5.0)]

    assert merged(spans, 0.1) == [(0.0, 4.0), (4.5, 6.0)]
    assert merged(spans, 0.5) == [(0.0, 6.0)]


def test_copies_are_compared_with_the_link_and_with_the_computation():
    """Bytes are divided by the time of copies alone, and so is the time in which the device computed too."""
    timeline = {"compute": [(0.0, 2.0), (3.0, 5.0)], "out": [(1.0, 3.0)], "back": [(4.0, 6.0)]}
    cell = made.cell("async", 1, 1, out=40, back=20, timeline=timeline)

    assert (cell.copy_rate, cell.hidden) == (15.0, 0.5)
    assert (made.cell("none", 1, 1).copy_rate, made.cell("none", 1, 1).hidden) == (0.0, 0.0)


class Elsewhere(Assembled):
    """Runs forward in a thread of its own, as a backward on a device runs what it computes again."""

    def wrap(self, model):
        """Return what is called instead of the model."""

        def run(x):
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(super(Elsewhere, self).wrap(model), x).result()

        return run


@pytest.mark.parametrize(("searches", "outcome"), [(True, "pass"), (False, "fail")])
def test_noise_is_that_of_a_forward_in_a_new_thread(monkeypatch, searches, outcome):
    """Where cuDNN searches for kernels in each thread, gradients may differ as a plain step's from there do."""
    visit = Visit(Baselines(Elsewhere), CellPlan(workload="mlp", strategy="elsewhere"))
    linear = torch.nn.functional.linear

    def of_thread(*arguments):
        return linear(*arguments) * (1 if current_thread() is main_thread() else 1 + 1e-3)

    monkeypatch.setattr(torch.nn.functional, "linear", of_thread)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", searches)
    visit.take(plain=True)
    visit.take(plain=False)
    closed = visit.close(Close(account=False))

    assert closed.outcome == outcome, closed.detail
    assert closed.figures["error"] > 1e-4
