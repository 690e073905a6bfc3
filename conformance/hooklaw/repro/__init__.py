"""Reproduction: a rule as a script in the framework's own calls."""

from hooklaw.repro.script import script_of

__all__ = ["script_of"]
