"""Mutants of the engine that harm more than themselves."""

import os

from hooklaw.model.adapter import Reference


class StaysInTheProcess(Reference):
    """Breaks register_hook of every backend in its process."""

    def register_hook(self, tensor, hook):
        Reference.register_hook = lambda self, tensor, hook: None


class EndsTheProcess(Reference):
    """Ends the process in register_hook."""

    def register_hook(self, tensor, hook):
        os._exit(1)


def mutants(of):
    """Return the mutants, which are of the engine alone."""
    made = {"stays-in-the-process": StaysInTheProcess, "ends-the-process": EndsTheProcess}
    return made if of == "reference" else {}
