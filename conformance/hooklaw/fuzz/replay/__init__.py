"""Replaying a program on a backend; importing the package registers every operation."""

from hooklaw.fuzz.replay import _optimizers, functions, hooks, modules, passes, regions, state, values

__all__ = ["_optimizers", "functions", "hooks", "modules", "passes", "regions", "state", "values"]
