"""Ranks: processes forked from this one, each a rank of a group, that do the same work side by side.

The ranks stay for the next work, and are forked again when one has died or hangs: what the others wait for may never
come. A rank dies with the process that forked it.
"""

import ctypes
import faulthandler
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

import msgspec

from hooklaw.results.verdict import Outcome
from hooklaw.workers.watchdog import culprit, last_words, late

PARENT_DIED = 1
"""PR_SET_PDEATHSIG, the signal that a process gets when its parent ends."""
PATIENCE = 0.5
"""Seconds that the other ranks have when one has failed."""
DUMP = 0.2
"""Seconds in which a rank that hangs writes where it stands."""
TAIL = 2000
Work = Callable[[int, bytes, str], bytes]
"""Does what a request says: given the rank, the request, and the path of a file that the ranks share."""


class Reply(msgspec.Struct):
    """What came of a request in a rank: its answer, or how it died of it."""

    rank: int
    answer: bytes = b""
    outcome: Outcome = Outcome.PASS
    detail: str = ""
    where: str = ""
    stderr: str = ""


class Ranks:
    """A group of ranks that wait for requests."""

    def __init__(self, world_size: int, work: Work) -> None:
        """Fork the ranks; OSError where the system has no process to give."""
        self._store = TemporaryFile()  # noqa: SIM115 - the ranks keep it open
        store = f"/proc/self/fd/{self._store.fileno()}"
        self._pipes = [_Pipes() for _ in range(world_size)]
        self._pids: list[int] = []
        try:
            for rank in range(world_size):
                self._pids.append(_forked(lambda rank=rank: self._serve(rank, work, store)))
        except OSError:
            self.close()
            raise
        for pipes in self._pipes:
            pipes.keep_outer()

    def is_whole(self) -> bool:
        """Return whether every rank lives."""
        return bool(self._pids) and not any(map(_is_dead, self._pids))

    def ask(self, request: bytes, limit: float, failed: Callable[[bytes], bool]) -> list[Reply]:
        """Have every rank do the work of a request, and return what came of it, in the order in which it came.

        When `failed` says of an answer that the rank has failed, or a rank dies, the others get little more time. The
        ranks are closed where one died, or did not answer in time; where all answered, the caller knows what it means.
        """
        for pipes in self._pipes:
            with suppress(BrokenPipeError):
                os.write(pipes.requests[1], request + b"\n")
        replies = self._read(time.monotonic() + limit, failed)
        waiting = {*range(len(self._pids))} - {reply.rank for reply in replies}
        bad = [reply for reply in replies if reply.outcome is not Outcome.PASS or failed(reply.answer)]
        if waiting and not bad:
            replies += [self._hung(rank, limit) for rank in sorted(waiting)]
        if waiting or any(not reply.answer for reply in bad):
            self.close()
        return replies

    def _read(self, deadline: float, failed: Callable[[bytes], bool]) -> list[Reply]:
        unread = {pipes.replies[0]: (rank, pipes) for rank, pipes in enumerate(self._pipes)}
        replies: list[Reply] = []
        while unread and (left := deadline - time.monotonic()) > 0:
            for descriptor in select.select([*unread], [], [], left)[0]:
                rank, pipes = unread[descriptor]
                if chunk := os.read(descriptor, 1 << 16):
                    pipes.unread += chunk
                    if not chunk.endswith(b"\n"):
                        continue
                del unread[descriptor]
                reply = Reply(rank, pipes.taken()) if chunk else self._died(rank)
                replies.append(reply)
                if reply.outcome is not Outcome.PASS or failed(reply.answer):
                    deadline = min(deadline, time.monotonic() + PATIENCE)
        return replies

    def _died(self, rank: int) -> Reply:
        pipes = self._pipes[rank]
        outcome, detail, where = last_words(_path(pipes.words))
        return Reply(rank, b"", outcome, detail, where, _tail(pipes.stderr))

    def _hung(self, rank: int, limit: float) -> Reply:
        pipes = self._pipes[rank]
        with suppress(ProcessLookupError):
            os.kill(self._pids[rank], signal.SIGUSR1)
        time.sleep(DUMP)
        where = culprit(_path(pipes.words).read_text(errors="replace"))
        return Reply(rank, b"", Outcome.TIMEOUT, late(limit), where, _tail(pipes.stderr))

    def close(self) -> None:
        """End the ranks, and wait until they are gone."""
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._pids = []
        for pipes in self._pipes:
            pipes.close()
        self._pipes = []
        self._store.close()

    def _serve(self, rank: int, work: Work, store: str) -> None:
        """Do the work of each request, in the rank's own process."""
        own = self._pipes[rank]
        for other in self._pipes:
            other.keep_inner() if other is own else other.close()
        _settle(own)
        with os.fdopen(own.requests[0], "rb", buffering=0) as requests:
            for line in requests:
                answer = work(rank, line[:-1], store) + b"\n"
                while answer:
                    answer = answer[os.write(own.replies[1], answer) :]


class _Pipes:
    """What joins a rank to the process that forked it."""

    def __init__(self) -> None:
        self.requests, self.replies = os.pipe(), os.pipe()
        self.words, self.stderr = TemporaryFile("w+"), TemporaryFile("w+b")  # noqa: SIM115 - the rank writes to them
        self.unread = b""
        self._open = {*self.requests, *self.replies}

    def taken(self) -> bytes:
        """Return the answer that has been read."""
        answer, self.unread = self.unread[:-1], b""
        return answer

    def keep_outer(self) -> None:
        """Close the rank's ends."""
        self._shut(self.requests[0], self.replies[1])

    def keep_inner(self) -> None:
        """Close the ends of the process that forks."""
        self._shut(self.requests[1], self.replies[0])

    def close(self) -> None:
        """Close everything."""
        self._shut(*self._open)
        self.words.close()
        self.stderr.close()

    def _shut(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            os.close(descriptor)
        self._open -= {*descriptors}


def _forked(serve: Callable[[], None]) -> int:
    """Return the id of a new process that serves and ends, and never returns into what called this."""
    parent = os.getpid()
    with warnings.catch_warnings(action="ignore"):  # Python 3.12 warns of threads, such as the watchdog's
        pid = os.fork()
    if not pid:
        _end_after(serve, parent)
    return pid


def _end_after(serve: Callable[[], None], parent: int) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGKILL)
        if os.getppid() == parent:
            serve()
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
    finally:
        os._exit(code)


def _settle(pipes: _Pipes) -> None:
    """Leave to the parent what is the parent's: its signals, its output, its last words."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for number in (1, 2):
        os.dup2(pipes.stderr.fileno(), number)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    faulthandler.enable(pipes.words)
    faulthandler.register(signal.SIGUSR1, pipes.words)


def _is_dead(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    return True


def _path(file: IO[Any]) -> Path:
    return Path(f"/proc/self/fd/{file.fileno()}")


def _tail(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
    return file.read().decode(errors="replace")
