"""A backend in a process of its own that waits for programs; what ends the process is told, and another takes over."""

import sys
from collections.abc import Sequence
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from hooklaw.errors import HooklawError
from hooklaw.fuzz.campaign import known_findings
from hooklaw.fuzz.campaign.process import LIMIT, Child, Ending, Held, Line, watch
from hooklaw.fuzz.judge.judge import Judge
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay.required_capabilities import needs
from hooklaw.fuzz.replay.run import Event, replay
from hooklaw.law.rule import load_rules

FIRST = (
    Instruction("leaf", ("x1",), (), ((2,), "float64", True)),
    Instruction("mul", ("v1",), ("x1", "x1")),
    Instruction("backward", (), ("v1",), (1.0, None, False)),
)
"""Run before any process is forked: what a backend does at its first pass, no process need do again."""


class Apart:
    """A backend that programs are sent to; it is loaded here too, so that the process can be forked."""

    def __init__(self, spec: str) -> None:
        self._held = Held(spec)
        self.judge: Judge = self._held.judge
        if self.judge.own_way:
            raise HooklawError(f"{spec}: it replays whole programs in its own way: use `hooklaw fuzz --backend {spec}`")
        self.name: str = self.judge.backend.name
        path = getattr(self.judge.backend, "findings", None)
        self._known = known_findings.read(path, load_rules()) if path else []
        self._child: Child | None = None
        self._programs: Connection | None = None
        replay(FIRST, self.judge.backend)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def able(self, program: Sequence[Instruction]) -> Program:
        """Return what is left of a program without that which the backend does not support."""
        capabilities = frozenset(self.judge.backend.capabilities)
        return tuple(one for one in program if needs((one,)) <= capabilities)

    def knows(self, how: str, program: Sequence[Instruction]) -> bool:
        """Tell whether the backend is known to end or to differ in this way on programs of this kind."""
        return any(entry.fits(how, program) for entry in self._known)

    def replay(self, program: Sequence[Instruction]) -> list[Event] | Ending:
        """Return what the backend shows of a program, or how it ended the process."""
        if self._child is None or self._programs is None:
            self._held.import_early([program])
            there, self._programs = Pipe(duplex=False)
            self._child = Child(self._held, _serve, there, self._programs)
            there.close()
        self._programs.send(tuple(program))
        events: Any = self._child.answer()
        if events is not None:
            return events
        ending = self._child.ending()
        self._child = None
        self._programs.close()
        return ending or Ending("crash", "")


@cache
def apart(spec: str) -> Apart:
    """Return a backend by its name on the command line, loaded once.

    Raises HooklawError or NotRunError where it cannot be loaded.
    """
    return Apart(spec)


def _serve(judge: Judge, line: Line, programs: Connection, far: Connection) -> None:
    """Replay what is sent, until the parent is gone."""
    far.close()
    sys.settrace(None)  # whoever traces the parent, such as HypoFuzz, sees nothing of this process
    while True:
        try:
            program: Program = programs.recv()
        except EOFError:
            return
        watch(LIMIT)
        line.tell(replay(program, judge.backend))
        watch(0)
