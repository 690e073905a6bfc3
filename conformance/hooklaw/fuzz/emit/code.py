"""Emission: the plain PyTorch code of a program, for an issue; every event is one printed line."""

from collections.abc import Sequence
from typing import Any

from hooklaw.fuzz.emit.analysis import Known
from hooklaw.fuzz.emit.functions import FUNCTIONS, TEXTS
from hooklaw.fuzz.emit.hooks import ACTIONS
from hooklaw.fuzz.emit.modules import FORWARDS
from hooklaw.fuzz.emit.passes import PACKERS
from hooklaw.fuzz.emit.regions import CODE as REGIONS
from hooklaw.fuzz.emit.script import FORMS, Script
from hooklaw.fuzz.emit.state import ACTIONS_ON_STATES
from hooklaw.fuzz.emit.statements import CONTEXTS, STATEMENTS
from hooklaw.fuzz.program import Instruction

__all__ = [
    "ACTIONS",
    "ACTIONS_ON_STATES",
    "CONTEXTS",
    "FORMS",
    "FORWARDS",
    "FUNCTIONS",
    "PACKERS",
    "REGIONS",
    "STATEMENTS",
    "TEXTS",
    "Script",
    "code",
]


def code(program: Sequence[Instruction], events: Sequence[Any] | None = None, *, log: bool = False) -> str:
    """Return a program as plain PyTorch code.

    With the events of a run, only those steps are guarded that failed in it, and the code is short; without, all that
    may fail. With `log`, the function `saw` is left to whoever runs the code.
    """
    script = Script(Known(program, events))
    for number, instruction in enumerate(program):
        script.step(number, instruction)
    looked = not log and bool(program) and program[-1].op == "backward"
    script.close(look=not looked)
    return script.text(log=log)
