"""Copies of torch that are read and not imported: the folder of an installed torch, or a wheel."""

import os
import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from hooklaw.errors import DocumentationError
from hooklaw.sources.readings import Readings
from hooklaw.sources.static import Static
from hooklaw.sources.subjects import counts

PACKAGE = "torch"
INIT = "__init__.py"
_VERSION = re.compile(r"^__version__ = ['\"]([^'\"]+)", re.MULTILINE)


class Library(NamedTuple):
    """A torch that is read."""

    version: str
    whole: Static
    speaking: Static
    """The modules with docstrings that mention a subject, which are soon searched."""

    def counted(self, named: Collection[str], readings: Readings) -> dict[str, str | None]:
        """Return what is counted, and None for a name that only the compiled library can tell of."""
        found = select(self.speaking.docstrings(named), named, readings)
        return {**found, **{name: self.whole.docstring(name) for name in named}}


def read_library(path: Path) -> Library:
    """Return the torch of a wheel, or of a folder such as site-packages; DocumentationError if there is none."""
    try:
        files = _in_folder(path) if path.is_dir() else _in_wheel(path)
        version = _VERSION.search(files[f"{PACKAGE}/version.py"]())
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        said = "it has no torch" if isinstance(error, KeyError) else str(error)
        raise DocumentationError(f"{path} is not a wheel of torch, nor a folder with one: {said}") from error
    found = version[1].partition("+")[0] if version else ""
    return Library(found, _static(files, speaking=False), _static(files, speaking=True))


@cache
def read_folder(folder: Path) -> Static:
    """Return the torch whose modules are in a folder, that of the package itself."""
    return _static(_in_folder(folder.parent), speaking=False)


def _in_folder(folder: Path) -> dict[str, Callable[[], str]]:
    """Return what reads each Python file of the package in a folder, by the name that it has in a wheel."""
    cut = len(str(folder)) + 1
    files = (Path(at, name) for at, _, names in os.walk(folder / PACKAGE) for name in names if name.endswith(".py"))
    return {str(path)[cut:].replace(os.sep, "/"): partial(_text, path.read_bytes) for path in files}


def _in_wheel(file: Path) -> dict[str, Callable[[], str]]:
    wheel = zipfile.ZipFile(file)
    names = (name for name in wheel.namelist() if name.startswith(f"{PACKAGE}/") and name.endswith(".py"))
    return {name: partial(_text, partial(wheel.read, name)) for name in names}


def _text(read: Callable[[], bytes]) -> str:
    return read().decode(errors="replace")


def unloaded(folder: Path, loaded: Collection[str]) -> Static:
    """Return the modules in the folder of the installed torch that are not loaded, and whose docstrings are counted."""
    files = _in_folder(folder.parent)
    return _static({name: read for name, read in files.items() if _module(name) not in loaded}, speaking=True)


def select(docstrings: Mapping[str, str], named: Collection[str], readings: Readings) -> dict[str, str]:
    """Return those that are counted: they mention a subject and nothing else by that word, or rules name them."""
    return {
        name: text
        for name, text in docstrings.items()
        if name in named or (text and counts(name, text) and not readings.elsewhere(name))
    }


def _static(files: Mapping[str, Callable[[], str]], *, speaking: bool) -> Static:
    packages = {_module(name) for name in files if name.endswith(INIT)}
    return Static({_module(name): read for name, read in files.items()}, packages, speaking=speaking)


def _module(name: str) -> str:
    return name.removesuffix(f"/{INIT}").removesuffix(".py").replace("/", ".")
