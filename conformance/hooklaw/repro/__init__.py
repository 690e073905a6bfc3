"""Reproduction: a rule as a script in the framework's own calls."""

from hooklaw.repro._script import script_of

__all__ = ["script_of"]
