"""Deliberately wrong backends: torch in eager mode with one vice each, which a rule of the law must catch.

A mutant's name is its class's name in kebab-case; the rules say in their ``mutants`` which of them they catch. Each
module holds those that break one thing; what several are made of is in `base`, or begins with an underscore.
``hooklaw mutants`` runs them all; one alone is a backend: ``hooklaw_backends.mutants:backend:NAME``.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from difflib import get_close_matches

from hooklaw_backends.mutants.base import Mutant, name_of


def _mutants() -> Iterator[type[Mutant]]:
    for name in sorted({found.name for found in pkgutil.iter_modules(__path__)} - {"base"}):
        module = importlib.import_module(f"{__name__}.{name}")
        for made in vars(module).values():
            if isinstance(made, type) and issubclass(made, Mutant) and made.__module__ == module.__name__:
                yield made


MUTANTS = {name_of(made): made for made in _mutants() if not made.__name__.startswith("_")}
"""Every mutant by name; calling it makes the backend."""


def backend(name: str = "") -> Mutant:
    """Return one mutant.

    Raises ValueError where none has this name.
    """
    if name not in MUTANTS:
        near = get_close_matches(name, MUTANTS, n=3, cutoff=0.5)
        raise ValueError(f"no mutant is called {name!r}: " + (f"did you mean {', '.join(near)}?" if near else ""))
    return MUTANTS[name]()
