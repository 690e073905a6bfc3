"""Mutants that return a wrong value from a function under vmap, which the engine lacks; see `results_of_verbs`."""

from hooklaw_backends.mutants.results_of_verbs import GRADIENTS, OLD, Result, cells, of_function

MAPPED = Result("vmap", "what vmap's function returns", {**GRADIENTS, **OLD}, ("func",), within=of_function)

vars().update(cells("mapped", MAPPED, __name__))
