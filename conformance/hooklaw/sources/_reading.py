"""Where the documentation is read: docstrings of installed objects, and the sources of pages in a folder."""

import importlib
import inspect
from pathlib import Path
from typing import Any

from hooklaw.errors import DocumentationError
from hooklaw.sources.pages import sections, tutorial_text

SUFFIXES = (".md", ".rst", ".py")
"""How the file of a page ends; a tutorial is a Python file."""


def read_docstring(name: str) -> str:
    """Return the docstring of an installed object, e.g. ``torch.Tensor.register_hook``, which is imported.

    Raises DocumentationError if there is no such object, or if it has no docstring.
    """
    try:
        found = inspect.getdoc(_resolve(name))
    except (ImportError, AttributeError, ValueError) as error:
        raise DocumentationError(f"no docstring of {name!r} can be read: {error}; is its package installed?") from error
    if not found:
        raise DocumentationError(f"{name} has no docstring: name an object that is documented")
    return found


def _resolve(name: str) -> Any:
    """Return the object of this name; a function hides a module of the same name, as it does for a program."""
    first, *rest = name.split(".")
    found = importlib.import_module(first)
    for part in rest:
        first = f"{first}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(first)
    return found


def has_page(folder: Path, page: str) -> bool:
    """Whether a folder has the source of a page."""
    return any((folder / f"{page}{suffix}").is_file() for suffix in SUFFIXES)


def read_page(folder: Path, page: str) -> dict[str, str]:
    """Return the sections of a page below a folder, e.g. of ``notes/autograd``; a tutorial is one section.

    Raises DocumentationError if the folder has no such page, or if its file is something else.
    """
    for suffix in SUFFIXES:
        path = folder / f"{page}{suffix}"
        if path.exists():
            try:
                source = path.read_text(encoding="utf-8")
                return {"": tutorial_text(source)} if suffix == ".py" else sections(source)
            except (OSError, SyntaxError, ValueError) as error:
                raise DocumentationError(f"{path} is not the source of a page: {error}") from error
    raise DocumentationError(f"{folder} has no {page}.md, {page}.rst or {page}.py: put the source of the page there")
