"""The law of PyTorch-style autograd hooks, executable.

This module exports what the author of a rule or of a backend needs.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.check import AdapterReport, check_backend
from hooklaw.backend.protocol import Backend, ErrorKind
from hooklaw.backend.torchlike import TorchLike
from hooklaw.errors import HooklawError, NotRunError
from hooklaw.law.rule import Basis, Level, Rule, Source, docstring, notes, observed, page, rule, tutorial
from hooklaw.law.trace import Trace

__all__ = [
    "AdapterReport",
    "Backend",
    "Basis",
    "Capability",
    "ErrorKind",
    "HooklawError",
    "Level",
    "NotRunError",
    "Rule",
    "Source",
    "TorchLike",
    "Trace",
    "__version__",
    "check_backend",
    "docstring",
    "judge",
    "notes",
    "observed",
    "page",
    "rule",
    "tutorial",
]


def judge(backend: Any, rules: str | Sequence[str] = "", *, condition: str = "") -> Any:
    """Judge a backend in this process, in a notebook or in a test of your own.

    `backend` is the object, or a name as on the command line. `rules` is an expression as `hooklaw run -k` takes it, or
    a list of ids; the default is all rules. Print what is returned to read it: it has ``results`` by the ids of the
    rules, ``regressions``, and ``ok``. Nothing contains a rule here; rules that are known to end the process are left
    out. Raises HooklawError if the adapter is not sound: `check_backend` says what to mend.
    """
    return import_module("hooklaw.runner.in_python").judge(backend, rules, condition=condition)  # it is built on this
