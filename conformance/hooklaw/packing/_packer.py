"""The judged packer: found by module:attribute, and called once to check that it is a packer.

Attributes that an author may declare on the packer or on the context manager it returns:
`tolerance`, the largest error of a lossy packer, relative to the largest magnitude in the tensor;
`medium`, where the bytes go: "disk:FOLDER", "cpu" (from a device), or any other text, which is not checked.
"""

import functools
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from importlib import metadata
from typing import Any, NamedTuple

from hooklaw.errors import PackerError, is_users_interrupt, misspelt


class CheckedPacker(NamedTuple):
    """A packer on a device, with what it declares."""

    make: Callable[[], AbstractContextManager[Any]]
    lines: str
    """The lines that import it as `packer`."""
    device: str
    tolerance: float
    medium: str
    missing: dict[str, str]
    """For each capability that a property may need: an empty text, or why it is missing."""
    versions: dict[str, str]
    """The versions of the packages that it comes from, without torch."""


def resolve(spec: str) -> Callable[..., Any]:
    """Return the attribute; PackerError if there is none."""
    module, _, attribute = spec.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise PackerError(f"{spec!r} is not a packer: write module:attribute, e.g. torch.autograd.graph:save_on_cpu")
    try:
        found: Any = importlib.import_module(module)
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        hint = "; for a module in this folder, set PYTHONPATH=." if isinstance(error, ImportError) else ""
        said = f"{_first_line(error)}{misspelt(module, error)}"
        raise PackerError(f"packer {spec!r}: cannot import module {module}: {said}{hint}") from error
    try:
        found = functools.reduce(getattr, attribute.split("."), found)
    except AttributeError as error:
        said = f"has no attribute {attribute!r}{misspelt(attribute, error)}"
        raise PackerError(f"packer {spec!r}: module {module} {said}") from error
    return found


def lines_of(spec: str) -> str:
    """Return the lines of a program that import the packer."""
    module, _, attribute = spec.partition(":")
    first, _, rest = attribute.partition(".")
    if not rest:
        return f"from {module} import {first} as packer"
    return f"from {module} import {first}\n\npacker = {attribute}"


def examine(make: Any, lines: str, device: str, spec: str) -> CheckedPacker:
    """Call the packer and read its declarations; PackerError if it does not return a context manager."""
    made = _made(make, spec)
    tolerance = _declared("tolerance", make, made, 0.0)
    medium = _declared("medium", make, made, "")
    if not isinstance(tolerance, int | float) or isinstance(tolerance, bool) or not 0 <= tolerance < 1:
        raise PackerError(f"packer {spec!r}: its tolerance is {tolerance!r}: declare a number in [0, 1)")
    if not isinstance(medium, str):
        raise PackerError(f"packer {spec!r}: its medium is {medium!r}: declare a text such as 'cpu' or 'disk:FOLDER'")
    missing = _missing(device, medium, float(tolerance))
    return CheckedPacker(make, lines, device, float(tolerance), medium, missing, _versions(make, made))


def _made(make: Any, spec: str) -> Any:
    if not callable(make):
        raise PackerError(f"packer {spec!r} is {type(make).__name__}, which cannot be called: name a class or function")
    try:
        made = make()
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        raise PackerError(
            f"packer {spec!r} raised when called without arguments, {_first_line(error)}: {_remedy(error)}"
        ) from error
    if not isinstance(made, AbstractContextManager):
        raise PackerError(f"packer {spec!r} returned {type(made).__name__}, which is not a context manager")
    return made


def _remedy(error: BaseException) -> str:
    import torch  # noqa: PLC0415 - the name is checked without it

    if isinstance(error, TypeError) or torch.cuda.is_available():
        return "name a function or functools.partial of your own that needs no arguments"
    return "if it needs a GPU, this machine has none; name a function of your own that makes it without a GPU"


DECLARED = {("torch.autograd.graph", "save_on_cpu"): {"medium": "cpu"}}
"""Declarations of torch's own packers, from their documentation."""


def _declared(name: str, make: Any, made: Any, default: Any) -> Any:
    inner = _inner(make)
    for owner in (made, make, inner):
        found = getattr(owner, name, None)
        if found is not None:
            return found
    key = getattr(inner, "__module__", ""), getattr(inner, "__qualname__", "")
    return DECLARED.get(key, {}).get(name, default)


def _inner(make: Any) -> Any:
    return getattr(make, "func", make)


def _versions(make: Any, made: Any) -> dict[str, str]:
    """Return the versions of the packages that define the packer and its context manager."""
    modules = (str(getattr(owner, "__module__", "")) for owner in (_inner(make), type(made)))
    found: dict[str, str] = {}
    for package in dict.fromkeys(module.partition(".")[0] for module in modules):
        with suppress(metadata.PackageNotFoundError, ValueError):  # a user's own module has no version
            found[package] = metadata.version(package)
    return {name: version for name, version in found.items() if name not in ("torch", "hooklaw")}


def _missing(device: str, medium: str, tolerance: float) -> dict[str, str]:
    import torch  # noqa: PLC0415 - the name and the device are checked without it

    accelerator = not device.startswith("cpu")
    to_disk, to_cpu = medium.startswith("disk:"), medium.startswith("cpu") and accelerator
    leaves_memory = medium.startswith("disk") or to_cpu
    many = torch.cuda.device_count() > 1 and device.startswith("cuda")
    return {
        "lossless": "" if not tolerance else f"it declares a tolerance of {tolerance:g}",
        "disk": "" if to_disk else "it does not claim to write to disk (medium = 'disk:FOLDER')",
        "off-device": "" if to_cpu else "it does not claim to leave a device (medium = 'cpu', on an accelerator)",
        "claim": "" if leaves_memory else "it claims no medium that can be checked",
        "two-devices": "" if many else "this machine has fewer than two CUDA devices",
        "accelerator": "" if accelerator else "this is the CPU",
    }


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
