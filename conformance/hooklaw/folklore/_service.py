"""The service that runs the programs of claims, in a worker that may die of them."""

import io
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any

import msgspec


class Nothing(msgspec.Struct, frozen=True):
    """The service has no settings."""


class Printed(msgspec.Struct, frozen=True):
    """What a program printed, and the last line of its traceback if it failed."""

    text: str
    error: str = ""


class ProgramService:
    """Runs programs, one after the other in one process; a request is the text of a program."""

    Settings = Nothing
    Request = str

    def __init__(self, settings: Nothing) -> None:
        del settings

    def hello(self) -> str:
        """Return nothing that must be known."""
        return ""

    def answer(self, request: str, note: Callable[[object], None]) -> Printed:
        """Run a program and return what it printed."""
        del note
        said = io.StringIO()
        with redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(compile(request, "<claim>", "exec"), _module())  # noqa: S102 - our own programs
            except Exception as error:  # noqa: BLE001 - a program that fails is a finding
                return Printed(said.getvalue(), traceback.format_exception_only(error)[-1].strip())
        return Printed(said.getvalue())


def _module() -> dict[str, Any]:
    """Return the namespace of a new module, in which torch.compile finds the globals of functions."""
    made = sys.modules["claim"] = ModuleType("claim")
    return vars(made)
