"""Where the documentation is read: docstrings of installed objects, and the sources of pages in a folder."""

import inspect
import pkgutil
from pathlib import Path

from hooklaw.errors import DocumentationError
from hooklaw.sources.pages import sections, tutorial_text


def read_docstring(name: str) -> str:
    """Return the docstring of an installed object, e.g. ``torch.Tensor.register_hook``, which is imported.

    Raises DocumentationError if there is no such object, or if it has no docstring.
    """
    try:
        found = inspect.getdoc(pkgutil.resolve_name(name))
    except (ImportError, AttributeError, ValueError) as error:
        raise DocumentationError(f"no docstring of {name!r} can be read: {error}; is its package installed?") from error
    if not found:
        raise DocumentationError(f"{name} has no docstring: name an object that is documented")
    return found


def read_page(folder: Path, page: str) -> dict[str, str]:
    """Return the sections of a page below a folder, e.g. of ``notes/autograd``; a tutorial is one section.

    Raises DocumentationError if the folder has no such page.
    """
    for suffix in (".md", ".rst", ".py"):
        path = folder / f"{page}{suffix}"
        if path.exists():
            source = path.read_text(encoding="utf-8")
            return {"": tutorial_text(source)} if suffix == ".py" else sections(source)
    raise DocumentationError(f"{folder} has no {page}.md, {page}.rst or {page}.py: put the source of the page there")
