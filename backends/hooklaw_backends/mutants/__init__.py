"""Mutants: deliberately wrong backends with one vice each, which a rule must catch.

A mutant is a function that a decorator of `base` made a class, or a class; its name in kebab-case is the mutant's. Each
rule lists in ``mutants`` the mutants it catches. Each module holds the mutants of one topic, and they are built over
torch-eager and over the reference engine. `torch_only` holds mutants that need torch, `engine` those that replace a
step of the engine itself. Shared base classes begin with an underscore, or stand in a module named in `SHARED`.

``hooklaw mutants`` runs all mutants. A single mutant is a backend: ``hooklaw_backends.mutants:backend:NAME`` over
torch-eager, ``hooklaw_backends.mutants:of_reference:NAME`` over the engine.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

from hooklaw.errors import did_you_mean
from hooklaw_backends.mutants.base import Mutant, name_of

SHARED = {"base", "inside", "over_reference", "over_torch", "shared", "verbs"}
OVER = {
    "torch-eager": ("over_torch", "OverTorch", "torch_only"),
    "reference": ("over_reference", "OverReference", "engine"),
}
"""For each backend: the module and class that its mutants extend, and the folder of the mutants it alone has."""
NOT_BUILT = {
    "save-on-cpu-leaves-tensors-on-the-device": "only a CUDA device shows it",
    "save-on-cpu-unpacks-on-the-cpu": "only a CUDA device shows it",
}
"""Mutants that rules name and that are not built, with the reason; any other name that does not exist is a mistake."""


@cache
def mutants(of: str) -> Mapping[str, type[Mutant]]:
    """Return the classes of all mutants of a backend by name.

    Raises NotRunError if the backend is not installed.
    """
    module, over, folder = OVER[of]
    base = getattr(_module(module), over)
    found = [*_in(_module("")), *_in(_module(folder))]
    return {name_of(made): type(made.__name__, (made, base), {"__doc__": made.__doc__}) for made in found}


def backend(name: str = "") -> Mutant:
    """Return the mutant of torch-eager with this name.

    Raises ValueError if there is none.
    """
    return _named("torch-eager", name)


def of_reference(name: str = "") -> Mutant:
    """Return the mutant of the reference engine with this name.

    Raises ValueError if there is none.
    """
    return _named("reference", name)


def _named(of: str, name: str) -> Mutant:
    made = mutants(of)
    if name not in made:
        hint = did_you_mean(name, made, "`hooklaw mutants` lists them")
        raise ValueError(f"no mutant of {of} is called {name!r}: {hint}")
    return made[name]()


def _module(name: str) -> "ModuleType":
    return importlib.import_module(f"{__name__}.{name}" if name else __name__)


def _in(package: "ModuleType") -> Iterator[type[Mutant]]:
    found = pkgutil.iter_modules(package.__path__)
    names = sorted(module.name for module in found if not module.ispkg and module.name not in SHARED)
    for name in names:
        module = importlib.import_module(f"{package.__name__}.{name}")
        own = (made for made in vars(module).values() if getattr(made, "__module__", "") == module.__name__)
        for made in own:
            if isinstance(made, type) and issubclass(made, Mutant) and not made.__name__.startswith("_"):
                yield made
