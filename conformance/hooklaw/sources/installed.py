"""The public objects of the installed torch, with their docstrings."""

import importlib
import inspect
import sys
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from hooklaw.errors import DocumentationError
from hooklaw.sources.libraries import read_folder, select, unloaded
from hooklaw.sources.readings import Readings
from hooklaw.sources.subjects import is_public, rank

PACKAGE = "torch"
FIELD = "Alias for field number"
"""How the docstring begins that Python gives an attribute of a named tuple."""


def docstrings(preferred: Collection[str] = ()) -> dict[str, str]:
    """Return the docstring of each public object that `import torch` loads, by its name.

    An object that has several names has the one that is preferred, else the shortest.
    """
    import_torch()
    objects = _named_best(_public(), {*preferred, *(name.rpartition(".")[0] for name in preferred)})
    members = (found for name, owner in objects.items() if isinstance(owner, type) for found in _members(name, owner))
    every = objects | _named_best(members, preferred)
    return {name: text for name, found in every.items() if (text := _text(found))}


def _named_best(found: Iterable[tuple[str, Any]], preferred: Collection[str]) -> dict[str, Any]:
    """Return each object once, by the best of its names."""
    best: dict[int, tuple[str, Any]] = {}
    for name, each in found:
        before = best.get(id(each))
        if before is None or rank(name, _own(each), preferred) < rank(before[0], _own(each), preferred):
            best[id(each)] = name, each
    return dict(best.values())


def counted(named: Collection[str], readings: Readings) -> dict[str, str]:
    """Return the docstrings that are counted: those that mention a subject, and those that rules name.

    Of modules that `import torch` does not load, the files are read.
    """
    found = docstrings(named)
    folder = Path(sys.modules[PACKAGE].__path__[0])
    found |= unloaded(folder, {*_loaded()}).docstrings(named)
    silent = {*named} - found.keys()  # in files that mention no subject
    found |= {name: text for name in silent if (text := read_folder(folder).docstring(name))}
    return select(found, named, readings)


def _loaded() -> list[str]:
    return [name for name in sys.modules if f"{name}.".startswith(f"{PACKAGE}.")]


def import_torch() -> str:
    """Import the installed torch, whose docstrings are read, and return its version.

    Raises DocumentationError if it does not import, or if Python left docstrings out.
    """
    if sys.flags.optimize > 1:
        raise DocumentationError("python -OO leaves docstrings out, which are read here: run Python without -OO")
    try:
        return str(importlib.import_module(PACKAGE).__version__).partition("+")[0]
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise DocumentationError(f"torch, whose docstrings are read, does not import: {said}") from error


def _public() -> Iterator[tuple[str, Any]]:
    for module_name in sorted(filter(is_public, _loaded())):
        module = sys.modules[module_name]
        for name, found in _exported(module).items():
            if callable(found) and str(getattr(found, "__module__", "")).startswith(PACKAGE):
                yield f"{module_name}.{name}", found


def _exported(module: ModuleType) -> Mapping[str, Any]:
    held = vars(module)
    listed = held.get("__all__")
    names = listed if isinstance(listed, list | tuple) else [*held]
    return {name: held[name] for name in names if isinstance(name, str) and name in held and not name.startswith("_")}


def _members(name: str, owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and attributes of a class, also those of bases that have no public name."""
    bases = [base for base in owner.__mro__[1:] if base.__module__.startswith(PACKAGE) and not _is_public(base)]
    held = ChainMap(*(dict(vars(each)) for each in (owner, *bases)))
    for attribute, found in held.items():
        if not attribute.startswith("_") and (hasattr(type(found), "__get__") or inspect.isbuiltin(found)):
            yield f"{name}.{attribute}", getattr(found, "__func__", found)


def _is_public(owner: type) -> bool:
    return not owner.__name__.startswith("_") and is_public(owner.__module__)


def _text(found: Any) -> str:
    text = getattr(found, "__doc__", None)
    return inspect.cleandoc(text) if isinstance(text, str) and not text.startswith(FIELD) else ""


def _own(found: Any) -> str:
    return str(getattr(found, "__qualname__", ""))
