"""Links to host memory: what the scheduler needs of them, and links for machines without a GPU."""

import queue
import threading
import time
import weakref
from collections.abc import Callable

from torch import Tensor

from hooklaw_backends.offload.arena import Arena, Slot, pageable

Action = Callable[[], object]


class Copy:
    """One transfer under way; this one is over."""

    def done(self) -> bool:
        """Say whether it is over, without waiting."""
        return True

    def wait(self) -> None:
        """Order what the caller computes next after the copy."""


class Link:
    """A connection to host memory that copies in both directions at once."""

    arena: Arena

    def out(self, source: Tensor, slot: Slot) -> Copy:
        """Begin to copy a result of the computation so far to the host."""
        return self.copy(slot.tensor(source.dtype, source.numel()), source, out=True)

    def back(self, slot: Slot, target: Tensor) -> Copy:
        """Begin to copy back, into memory that the computation no longer uses."""
        return self.copy(target, slot.tensor(target.dtype, target.numel()), out=False)

    def copy(self, target: Tensor, source: Tensor, *, out: bool) -> Copy:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Lane:
    """One direction, whose transfers follow each other; this one copies at once, from the CPU to the CPU."""

    def send(self, nbytes: int, action: Action) -> Copy:  # noqa: ARG002 - however long
        """Begin a transfer."""
        action()
        return Copy()

    def close(self) -> None:
        """End the lane's worker, if it has one."""


class LaneLink(Link):
    """A link of two lanes over pageable memory; the copies are real, the lanes say when each of them ends."""

    def __init__(self, out: Lane, back: Lane) -> None:
        self.arena = Arena(pageable, keeps=False)
        self._out = out
        self._back = back

    def copy(self, target: Tensor, source: Tensor, *, out: bool) -> Copy:
        return (self._out if out else self._back).send(source.nbytes, lambda: target.copy_(source))

    def close(self) -> None:
        self._out.close()
        self._back.close()
        self.arena.close()


class Clock:
    """A virtual time that passes only in `sleep`, so that a schedule is computed instead of measured."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def until(self, moment: float) -> None:
        """Let time pass up to a moment, if it is still to come."""
        self.now = max(self.now, moment)


class VirtualLane(Lane):
    """A lane on a virtual clock with a set rate. The bytes are read late, when the transfer is seen to be over."""

    def __init__(self, clock: Clock, rate: float) -> None:
        self._clock = clock
        self._rate = rate
        self._free = 0.0
        self.nbytes = 0

    def send(self, nbytes: int, action: Action) -> Copy:
        self._free = max(self._free, self._clock.now) + nbytes / self._rate
        self.nbytes += nbytes
        return _VirtualCopy(self._clock, self._free, action)


class _VirtualCopy(Copy):
    def __init__(self, clock: Clock, end: float, action: Action) -> None:
        self._clock = clock
        self._end = end
        self._action: Action | None = action

    def done(self) -> bool:
        if self._clock.now < self._end:
            return False
        action, self._action = self._action, None
        if action:
            action()
        return True

    def wait(self) -> None:
        self._clock.until(self._end)
        self.done()


class EmulatedLane(Lane):
    """A lane in real time with a set rate: its thread sleeps as long as each copy would take."""

    def __init__(self, rate: float) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=_work, args=(self._jobs, rate), daemon=True)
        self._worker.start()
        weakref.finalize(self, self._jobs.put, None)

    def send(self, nbytes: int, action: Action) -> Copy:
        if not self._worker.is_alive():
            action()
            return Copy()
        job = _Job(nbytes, action, self._worker)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """End the thread after its last job; later copies are made by the caller."""
        self._jobs.put(None)
        self._worker.join()


class _Job(Copy):
    def __init__(self, nbytes: int, action: Action, worker: threading.Thread) -> None:
        self.nbytes = nbytes
        self.asked = time.perf_counter()
        self._action: Action | None = action
        self._worker = worker
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        action, self._action = self._action, None  # which holds the tensors
        try:
            if action:
                action()
        except BaseException as error:  # noqa: BLE001 - it is raised where the copy is waited for
            self._error = error
        self._over.set()

    def done(self) -> bool:
        return self._over.is_set()

    def wait(self) -> None:
        if threading.current_thread() is self._worker:
            return  # a finalizer runs in this thread: the elements are no longer needed
        self._over.wait()
        if self._error:
            raise self._error


def _work(jobs: "queue.SimpleQueue[_Job | None]", rate: float) -> None:
    free = 0.0
    while job := jobs.get():
        free = max(free, job.asked) + job.nbytes / rate  # a moment, not a pause: sleeping too long does not add up
        time.sleep(max(0.0, free - time.perf_counter()))
        job.run()
        del job
