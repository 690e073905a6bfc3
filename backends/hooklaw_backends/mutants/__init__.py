"""Mutants: deliberately wrong backends with one vice each, which a rule must catch.

A mutant is a function that a decorator of `base` made a class, or a class; its name in kebab-case is the mutant's. Each
rule lists in ``mutants`` the mutants it catches. Each module holds the mutants of one topic, and they are built over
torch-eager and over the reference engine. `torch_only` holds mutants that need torch, `engine` those that replace a
step of the engine itself. Shared base classes begin with an underscore, or stand in a module named in `SHARED`.
`over` builds the mutants of any other backend, as far as its verbs allow.

``hooklaw mutants`` runs all mutants. A single mutant is a backend: ``hooklaw_backends.mutants:backend:NAME`` over
torch-eager, ``hooklaw_backends.mutants:of_reference:NAME`` over the engine.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

from hooklaw.backend.protocol import Backend
from hooklaw.errors import did_you_mean
from hooklaw_backends.mutants.base import Mutant, name_of
from hooklaw_backends.mutants.over_any import OverAny, base_over, kin_of

SHARED = {
    "base",
    "faults",
    "inside",
    "kinds",
    "over_any",
    "over_reference",
    "over_torch",
    "places_of_values",
    "ranks_in_situations",
    "shared",
    "situations",
    "values",
    "verbs",
    "wrappers",
}
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
    return _made([folder], getattr(_module(module), over))


def over(backend: Backend, spec: str) -> tuple[OverAny, Mapping[str, type[Mutant]]]:
    """Return a backend as its mutants call it, without a fault, and the classes of its mutants by name.

    `spec` is the backend's name on the command line. A mutant of torch alone is among them only if the backend is torch
    on another device, or a subclass of such a backend; likewise one of the engine.
    """
    base = base_over(backend, spec)
    return base(), _made([OVER[kin][2] for kin in kin_of(backend)], base)


def _made(folders: Iterable[str], base: type) -> Mapping[str, type[Mutant]]:
    found = [made for folder in (*folders, "") for made in _in(_module(folder))]  # first those whose ranks wait
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
