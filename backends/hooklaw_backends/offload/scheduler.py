"""The schedule of asynchronous copies, the same on CUDA and on an emulated link."""

import threading
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hooklaw_backends.offload.arena import Slot
from hooklaw_backends.offload.handles import Parcel, check_version, version_of
from hooklaw_backends.offload.link import Copy, Link


class Scheduler:
    """Sends elements out during the computation, and fetches them before backward needs them.

    On the way out at most `cap` bytes are in flight: the computation waits for the oldest copy beyond that. What is
    asked for while it is still in flight is taken from the device. On the way back the order is the reverse of packing,
    and up to `window` bytes are fetched ahead of what backward has asked for.
    """

    def __init__(self, link: Link, moved: Callable[..., None], *, cap: int, window: int) -> None:
        """Make a scheduler that tells `moved` of the bytes that go `out` and come `back`."""
        self._link = link
        self._moved = moved
        self._cap = cap
        self._window = window
        self._lock = threading.Lock()
        self._flights: deque[_Flight] = deque()
        self._in_flight = 0
        self._line: list[int] = []
        self._parcels: dict[int, weakref.ref[_Shipment]] = {}
        self._arrivals: dict[int, tuple[Copy, Slot, Tensor]] = {}
        self._fetched: dict[int, int] = {}
        self._lingering: list[weakref.ref[_Shipment]] = []
        self._dead: deque[int] = deque()
        self._next = 0
        self._pass = 0
        self._asked = self._frontier = -1

    def put(self, flat: Tensor) -> "_Shipment":
        """Begin to send the elements out; the source is held until the copy is over."""
        with self._tidily():
            self._release_lingering()
            parcel = self._sent(flat)
            self._land_finished(lingers=False)
            while self._in_flight > self._cap:
                self._land(lingers=False)
            return parcel

    def fetch(self, parcel: "_Shipment", handle: Any) -> Tensor:
        """Return the elements on the device, and begin to fetch those that backward will ask for next."""
        with self._tidily():
            self._land_finished(lingers=True)
            self._pass += parcel.spent == self._pass  # asked for again: backward goes through the graph once more
            self._place(parcel)
            self._look_ahead(parcel)
            self._arrive(parcel.number)
            tensor = parcel.used_by(handle)
            if not parcel.is_waited_for():
                parcel.source = parcel.fetched = None
                parcel.spent = self._pass
                self._fetched.pop(parcel.number, None)
            return tensor

    def close(self) -> None:
        """Finish all copies and end the link's workers; what was sent out can still be fetched."""
        with self._tidily():
            while self._flights:
                self._land(lingers=False)
            self._release_lingering()
        self._link.close()

    def held(self) -> int:
        """Return how many bytes the scheduler itself keeps on the device."""
        return self._in_flight + sum(self._fetched.values())

    # the way out
    def _sent(self, flat: Tensor) -> "_Shipment":
        slot = self._link.arena.take(flat.nbytes)
        flight = _Flight(flat, self._link.out(flat, slot))
        parcel = _Shipment(self, self._next, flat, slot, flight)
        flight.parcel = weakref.ref(parcel)
        self._flights.append(flight)
        self._in_flight += flat.nbytes
        self._moved(out=flat.nbytes)
        self._line.append(self._next)
        self._parcels[self._next] = weakref.ref(parcel, _burial(self, self._next))
        self._next += 1
        return parcel

    def _land_finished(self, *, lingers: bool) -> None:
        while self._flights and self._flights[0].copy.done():
            self._land(lingers=lingers)

    def _land(self, *, lingers: bool) -> None:
        """End the oldest flight. In backward its source lingers, since it is needed soon."""
        flight = self._flights.popleft()
        flight.copy.wait()
        self._in_flight -= flight.nbytes
        flight.land()
        parcel = flight.parcel() if flight.parcel else None
        if parcel and parcel.source is not None and lingers:
            self._lingering.append(weakref.ref(parcel))
        elif parcel:
            parcel.source = None

    def _release_lingering(self) -> None:
        for reference in self._lingering:
            parcel = reference()
            if parcel:
                parcel.source = None
        self._lingering.clear()

    # the way back
    def _begin(self, parcel: "_Shipment") -> None:
        parcel.flight.check()
        parcel.source = None
        parcel.fetched = torch.empty(parcel.length, dtype=parcel.dtype, device=parcel.device)
        copy = self._link.back(parcel.slot, parcel.fetched)
        self._arrivals[parcel.number] = (copy, parcel.slot, parcel.fetched)
        self._fetched[parcel.number] = parcel.nbytes
        self._moved(back=parcel.nbytes)

    def _arrive(self, number: int) -> None:
        arrival = self._arrivals.pop(number, None)
        if arrival:
            arrival[0].wait()

    def _place(self, parcel: "_Shipment") -> None:
        """Begin to fetch the parcel, and restart looking ahead if backward jumped to it."""
        follows = self._frontier <= parcel.number <= self._asked and parcel.is_near()
        if not parcel.is_near():
            self._begin(parcel)
        self._frontier = self._frontier if follows else parcel.number
        self._asked = parcel.number

    def _look_ahead(self, parcel: "_Shipment") -> None:
        """Fetch the parcels packed before this one, nearest first; one at least, even if it exceeds the window.

        Every parcel between the frontier and this one is here or on its way, so each is examined once.
        """
        ahead = {number: size for number, size in self._fetched.items() if self._frontier <= number < parcel.number}
        room = self._window - sum(ahead.values())
        for other in self._before(self._frontier):
            if room <= 0 or not self._is_ready(other, room):
                break
            room -= self._fetched.get(other.number, 0)
            self._frontier = other.number
        if sum(self._fetched.values()) > 2 * self._window + parcel.nbytes:
            self._forget({number for number in self._fetched if not self._frontier <= number <= parcel.number})

    def _is_ready(self, other: "_Shipment", room: int) -> bool:
        """Return whether a parcel was used already, is here, or fits and is fetched."""
        if other.spent == self._pass or other.is_near():
            return True
        fits = other.nbytes <= room or room == self._window
        if fits and other.flight.is_sound():
            self._begin(other)
        return other.is_near()

    def _before(self, number: int) -> Iterator["_Shipment"]:
        place = bisect_left(self._line, number)
        for at in range(place - 1, -1, -1):
            parcel = self._parcels[self._line[at]]()
            if parcel:
                yield parcel

    def _forget(self, numbers: set[int]) -> None:
        for number in numbers - set(self._arrivals):
            reference = self._parcels.get(number)
            parcel = reference() if reference else None
            if parcel:
                parcel.fetched = None
            self._fetched.pop(number)

    # the end
    def bury(self, number: int) -> None:
        """Note that a parcel died, in any thread and at any time, and clean up as soon as that is safe."""
        self._dead.append(number)
        self._reap()

    @contextmanager
    def _tidily(self) -> Generator[None]:
        try:
            with self._lock:
                yield
        finally:
            self._reap()

    def _reap(self) -> None:
        while self._dead and self._lock.acquire(blocking=False):
            try:
                self._remove_dead()
            finally:
                self._lock.release()

    def _remove_dead(self) -> None:
        while self._dead:
            number = self._dead.popleft()
            del self._line[bisect_left(self._line, number)]
            del self._parcels[number]
            self._fetched.pop(number, None)
            self._arrive(number)  # it writes into memory of the device, which must not go before
        while self._flights and not self._line:
            self._land(lingers=False)


def _burial(scheduler: Scheduler, number: int) -> Callable[[object], None]:
    held = weakref.ref(scheduler)

    def bury(_: object) -> None:
        found = held()
        if found:
            found.bury(number)

    return bury


class _Flight:
    """A copy on the way out, which holds its source until it is over."""

    def __init__(self, source: Tensor, copy: Copy) -> None:
        self.copy = copy
        self.nbytes = source.nbytes
        self.parcel: weakref.ref[_Shipment] | None = None
        self.source: Tensor | None = source
        self._version = version_of(source)
        self._error: RuntimeError | None = None

    def land(self) -> None:
        """Release the source; if it was changed in flight, the bytes that went out are undefined."""
        try:
            if self.source is not None:
                check_version(self.source, self._version)
        except RuntimeError as error:
            self._error = error.with_traceback(None)
        self.source = None

    def is_sound(self) -> bool:
        """Return whether the elements are whole on the host."""
        return self.source is None and self._error is None

    def is_current(self, source: Tensor) -> bool:
        """Return whether the source still is what was sent."""
        return version_of(source) == self._version

    def check(self) -> None:
        """Raise where the elements on the host cannot be trusted."""
        if self.source is not None:
            check_version(self.source, self._version)
        if self._error:
            raise self._error


class _Shipment(Parcel):
    """One run of elements that was sent out; the handles that hold it may ask any number of times."""

    def __init__(self, scheduler: Scheduler, number: int, flat: Tensor, slot: Slot, flight: _Flight) -> None:
        self.number = number
        self.nbytes = flat.nbytes
        self.length = flat.numel()
        self.dtype = flat.dtype
        self.device = flat.device
        self.slot = slot
        self.flight = flight
        self.source: Tensor | None = flat
        self.fetched: Tensor | None = None
        self.spent = -1
        self._scheduler = scheduler
        self._holders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._waiting: weakref.WeakSet[Any] = weakref.WeakSet()

    def get(self, handle: Any) -> Tensor:
        return self._scheduler.fetch(self, handle)

    def join(self, handle: Any) -> None:
        self._holders.add(handle)

    def is_near(self) -> bool:
        """Return whether the elements are on the device, or on the way back to it."""
        return self.near() is not None

    def near(self) -> Tensor | None:
        """Return the elements on the device, or None; a source that was changed since does not count."""
        for source in (self.source, self.flight.source):
            if self.fetched is None and source is not None and self.flight.is_current(source):
                return source
        return self.fetched

    def used_by(self, handle: Any) -> Tensor:
        """Return the elements on the device."""
        tensor = self.near()
        if tensor is None:
            raise AssertionError("nothing was fetched")
        if not self.is_waited_for():
            self._waiting = weakref.WeakSet(self._holders)
        self._waiting.discard(handle)
        return tensor

    def is_waited_for(self) -> bool:
        """Return whether another handle has had the elements and a handle has not yet."""
        return len(self._waiting) > 0
