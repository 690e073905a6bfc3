"""Emission: a program as plain PyTorch code for an issue; the code prints each event as a line."""

from collections.abc import Sequence
from typing import Any

from hooklaw.fuzz.emit._analysis import Known
from hooklaw.fuzz.emit._hooks import ACTIONS
from hooklaw.fuzz.emit._passes import PACKERS
from hooklaw.fuzz.emit._script import FORMS, Script
from hooklaw.fuzz.program import Instruction

__all__ = ["ACTIONS", "FORMS", "PACKERS", "code"]


def code(program: Sequence[Instruction], events: Sequence[Any] | None = None, *, log: bool = False) -> str:
    """Return a program as plain PyTorch code.

    With the events of a run, only the instructions that failed in it are guarded, and the code is short; without,
    every instruction that may fail. With `log`, the caller provides the function `saw`.
    """
    script = Script(Known(program, events))
    for number, instruction in enumerate(program):
        script.step(number, instruction)
    looked = not log and bool(program) and program[-1].op == "backward"
    script.close(look=not looked)
    return script.text(log=log)
