"""Timelines: spans of a device's work in one step."""

from typing import NamedTuple

from hooklaw.offload._timeline import lanes, merged


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
