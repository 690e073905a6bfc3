"""Random hook programs, run on the reference engine and on a backend, and what to make of a difference."""

from hooklaw.fuzz import functions, hooks, modules, passes, values

__all__ = ["functions", "hooks", "modules", "passes", "values"]
