"""Deliberately wrong backends, each with one vice, which a rule of the law must catch.

A mutant's name is its class's name in kebab-case; the rules say in their ``mutants`` which of them they catch. Each
module holds those that break one thing, and is made over torch-eager and over the reference engine alike; those that
only torch can have are in `torch_only`, those that replace a step of the engine itself in `engine`. What several are
made of begins with an underscore, or is in a module named in `MADE_OF`.

``hooklaw mutants`` runs them all; one alone is a backend: ``hooklaw_backends.mutants:backend:NAME`` of torch-eager,
``hooklaw_backends.mutants:of_reference:NAME`` of the engine.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

from hooklaw_backends.mutants.base import Mutant, name_of

MADE_OF = {"base", "inside", "over_reference", "over_torch"}
OVER = {
    "torch-eager": ("over_torch", "OverTorch", "torch_only"),
    "reference": ("over_reference", "OverReference", "engine"),
}
"""For each backend: the module and the class that its mutants are made over, and the folder of those it has alone."""


@cache
def mutants(of: str) -> Mapping[str, type[Mutant]]:
    """Return every mutant of a backend by name; calling one makes it.

    Raises NotRunError where the backend is not installed.
    """
    module, over, folder = OVER[of]
    base = getattr(_module(module), over)
    found = [*_in(_module("")), *_in(_module(folder))]
    return {name_of(made): type(made.__name__, (made, base), {"__doc__": made.__doc__}) for made in found}


def backend(name: str = "") -> Mutant:
    """Return one mutant of torch-eager.

    Raises ValueError where none has this name.
    """
    return _one("torch-eager", name)


def of_reference(name: str = "") -> Mutant:
    """Return one mutant of the reference engine.

    Raises ValueError where none has this name.
    """
    return _one("reference", name)


def _one(of: str, name: str) -> Mutant:
    made = mutants(of)
    if name not in made:
        near = get_close_matches(name, made, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "`hooklaw mutants` shows them all"
        raise ValueError(f"no mutant of {of} is called {name!r}: {hint}")
    return made[name]()


def _module(name: str) -> "ModuleType":
    return importlib.import_module(f"{__name__}.{name}" if name else __name__)


def _in(package: "ModuleType") -> Iterator[type[Mutant]]:
    found = pkgutil.iter_modules(package.__path__)
    names = sorted(one.name for one in found if not one.ispkg and one.name not in MADE_OF)
    for name in names:
        module = importlib.import_module(f"{package.__name__}.{name}")
        own = (made for made in vars(module).values() if getattr(made, "__module__", "") == module.__name__)
        for made in own:
            if isinstance(made, type) and issubclass(made, Mutant) and not made.__name__.startswith("_"):
                yield made
