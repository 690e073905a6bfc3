"""Twenty rules of which nine end, hang or stop the process, each in its own way."""

import ctypes
import os
import signal
import sys
import threading
import time

from hooklaw.law.rule import Level, observed, rule

SLOW = 100_000


def nasty(name):
    """Register an observed MAY rule: what it says is of no interest here."""
    return rule(f"nasty.{name}", level=Level.MAY, basis="observed", sources=[observed("a test of containment")])


@nasty("segfault")
def test_segfault(backend, trace):
    """A null pointer is read."""
    ctypes.string_at(0)


@nasty("abort")
def test_abort(backend, trace):
    """The C library is told to abort."""
    os.abort()


@nasty("kill")
def test_kill(backend, trace):
    """The kernel kills the process."""
    os.kill(os.getpid(), signal.SIGKILL)


@nasty("exit")
def test_exit(backend, trace):
    """The process leaves without a word."""
    os._exit(0)


@nasty("loop")
def test_loop(backend, trace):
    """A loop in Python never ends."""
    while True:
        pass


@nasty("sleep-in-c")
def test_sleep_holding_the_gil(backend, trace):
    """A sleep in C holds the interpreter's lock."""
    ctypes.PyDLL(None).sleep(SLOW)


@nasty("deadlock")
def test_deadlock_in_a_hook(backend, trace):
    """A hook waits in the backward thread for a lock that nobody gives back."""
    x = backend.tensor([1.0], requires_grad=True)
    lock = threading.Lock()
    lock.acquire()
    backend.register_hook(x, lambda _: lock.acquire() and None)
    backend.backward(backend.sum(x * x))


@nasty("stop")
def test_stop(backend, trace):
    """The process is stopped, its watchdog included."""
    os.kill(os.getpid(), signal.SIGSTOP)


@nasty("last-words")
def test_last_words(backend, trace):
    """The process says why it dies, in Python and below it."""
    sys.stderr.write("the allocator is out of sorts\n")
    os.write(2, b"terminate called without an active exception\n")
    os.abort()


@nasty("raises")
def test_raises(backend, trace):
    """An ordinary exception is raised."""
    raise RuntimeError("boom")


@nasty("recursion")
def test_recursion(backend, trace):
    """A function calls itself without end."""
    test_recursion(backend, trace)


@nasty("stderr")
def test_writes_to_stderr(backend, trace):
    """A rule prints."""
    sys.stderr.write("noise\n")
    time.sleep(0)


for _number in range(8):

    @nasty(f"calm-{_number}")
    def _calm(backend, trace):
        """Nothing happens."""
        trace.expect()

    _calm.__name__ = f"test_calm_{_number}"
    globals()[_calm.__name__] = _calm
del _calm
