"""The law of PyTorch-style autograd hooks, executable.

This module exports what the author of a rule or of a backend needs.
"""

__version__ = "0.1.0"

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.protocol import Backend, ErrorKind
from hooklaw.backend.torchlike import TorchLike
from hooklaw.errors import HooklawError, NotRunError
from hooklaw.law.rule import Basis, Level, Rule, Source, docstring, notes, observed, page, rule, tutorial
from hooklaw.law.trace import Trace

__all__ = [
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
    "docstring",
    "notes",
    "observed",
    "page",
    "rule",
    "tutorial",
]
