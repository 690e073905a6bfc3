"""A backend in a worker that replays the programs it is sent; where a program ends the worker, another starts."""

import sys
from collections.abc import Sequence
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from hooklaw.errors import HooklawError
from hooklaw.fuzz.campaign import known_findings
from hooklaw.fuzz.campaign.process import LIMIT, Channel, Ending, Target, Worker, limit_time
from hooklaw.fuzz.judge.judge import Judge
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay.required_capabilities import needs
from hooklaw.fuzz.replay.run import Event, replay
from hooklaw.law.collection import load_rules

FIRST = (
    Instruction("leaf", ("x1",), (), ((2,), "float64", True)),
    Instruction("mul", ("v1",), ("x1", "x1")),
    Instruction("backward", (), ("v1",), (1.0, None, False)),
)
"""Run before a worker is forked, so that no worker repeats what a backend does at its first pass."""


class RemoteBackend:
    """A backend that programs are sent to; it is loaded here too, so that the worker can be forked."""

    def __init__(self, spec: str) -> None:
        self._target = Target(spec)
        self.judge: Judge = self._target.judge
        if self.judge.own_way:
            raise HooklawError(f"{spec}: it replays whole programs in its own way: use `hooklaw fuzz --backend {spec}`")
        self.name: str = self.judge.backend.name
        path = getattr(self.judge.backend, "findings", None)
        self._known = known_findings.read(path, load_rules()) if path else []
        self._worker: Worker | None = None
        self._programs: Connection | None = None
        replay(FIRST, self.judge.backend)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def able(self, program: Sequence[Instruction]) -> Program:
        """Return the instructions of a program that the backend supports."""
        capabilities = frozenset(self.judge.backend.capabilities)
        return tuple(instruction for instruction in program if needs((instruction,)) <= capabilities)

    def knows(self, how: str, program: Sequence[Instruction]) -> bool:
        """Whether the backend is known to die or to differ in this way on such programs."""
        return any(entry.fits(how, program) for entry in self._known)

    def replay(self, program: Sequence[Instruction]) -> list[Event] | Ending:
        """Return what the backend shows of a program, or how the worker died."""
        if self._worker is None or self._programs is None:
            self._target.import_early([program])
            far, self._programs = Pipe(duplex=False)
            self._worker = Worker(self._target, _serve, far, self._programs)
            far.close()
        self._programs.send(tuple(program))
        events: Any = self._worker.answer()
        if events is not None:
            return events
        ending = self._worker.ending()
        self._worker = None
        self._programs.close()
        return ending or Ending("crash", "")


@cache
def remote_backend(spec: str) -> RemoteBackend:
    """Return a backend by its name on the command line, loaded once.

    Raises HooklawError or NotRunError where it cannot be loaded.
    """
    return RemoteBackend(spec)


def _serve(judge: Judge, channel: Channel, programs: Connection, far: Connection) -> None:
    """Replay the programs that are sent, until the parent is gone."""
    far.close()
    sys.settrace(None)  # HypoFuzz traces the parent, but must not slow this process down
    while True:
        try:
            program: Program = programs.recv()
        except EOFError:
            return
        limit_time(LIMIT)
        channel.send(replay(program, judge.backend))
        limit_time(0)
