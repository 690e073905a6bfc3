"""Random hook programs, run on the reference engine and on a backend, and what to make of a difference."""

from hooklaw.fuzz.replay import functions, hooks, modules, optimizers, passes, regions, state, values

__all__ = ["functions", "hooks", "modules", "optimizers", "passes", "regions", "state", "values"]
