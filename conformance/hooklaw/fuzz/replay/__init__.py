"""Replaying a program on a backend; importing the package registers every operation."""

from hooklaw.fuzz.replay import functions, hooks, modules, optimizers, passes, regions, state, values

__all__ = ["functions", "hooks", "modules", "optimizers", "passes", "regions", "state", "values"]
