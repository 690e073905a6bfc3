"""Loading a backend by its name on the command line: a built-in one, an entry point, or module:attribute."""

import importlib
import re
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, cast

from hooklaw.backend.check import check_contract
from hooklaw.backend.conditions import find_condition
from hooklaw.backend.protocol import Backend
from hooklaw.errors import (
    BackendContractError,
    BackendImportError,
    NotRunError,
    UnknownBackendError,
    UnknownConditionError,
    did_you_mean,
    is_users_interrupt,
    misspelt,
)

GROUP = "hooklaw.backends"
BUILTIN = {
    "torch-eager": "hooklaw_backends.torch_eager:backend",
    "torch-compile": "hooklaw_backends.torch_compile:backend",
    "torch-mode": "hooklaw_backends.torch_modes:backend",
    "paddle": "hooklaw_backends.paddle:backend",
    "hips-autograd": "hooklaw_backends.hips_autograd:backend",
    "tinygrad": "hooklaw_backends.tinygrad:backend",
    "mindspore": "hooklaw_backends.mindspore:backend",
    "tensorplay": "hooklaw_backends.tensorplay:backend",
    "reference": "hooklaw.model.adapter:backend",
}
"""Not only entry points, so that a clone that is not installed has them too."""


def known_backends() -> dict[str, str]:
    """Return the ``module:attribute`` of the factory of every known backend."""
    found = {point.name: point.value for point in entry_points(group=GROUP)}
    return {**found, **BUILTIN}


def resolve(spec: str) -> tuple[str, str]:
    """Return the factory's ``module:attribute`` and the argument of ``NAME[:ARG]``.

    Raises UnknownBackendError if the name is neither known nor of the form ``module:attribute``.
    """
    name, _, argument = spec.partition(":")
    if name in BUILTIN:
        return BUILTIN[name], argument  # reading entry points takes milliseconds
    known = known_backends()
    if name in known:
        return known[name], argument
    attribute, _, rest = argument.partition(":")
    if name and attribute.isidentifier() and all(part.isidentifier() for part in name.split(".")):
        return f"{name}:{attribute}", rest
    hint = did_you_mean(name, known, f"known are {', '.join(sorted(known))}")
    raise UnknownBackendError(f"no backend has the name {spec!r}: {hint} (name your own backend as module:attribute)")


def load(spec: str, imports: Sequence[str] = ()) -> Backend:
    """Import, make and check the backend, after modules that register something, such as a device.

    Raises UnknownBackendError, BackendImportError, BackendContractError, or NotRunError if it cannot run here.
    """
    backend = make(spec, imports)
    check_contract(backend, spec)
    _check_conditions(backend, spec)
    return cast("Backend", backend)


def make(spec: str, imports: Sequence[str] = ()) -> Any:
    """Import and make the backend, which may not be one yet; raises what `load` raises, but for the contract."""
    target, argument = resolve(spec)
    for module in imports:
        import_module(module)
    factory = _import(spec, target)
    return _make(spec, factory, argument) if callable(factory) else factory


def _check_conditions(backend: Any, spec: str) -> None:
    try:
        for name in getattr(backend, "not_under", {}):
            find_condition(name)
    except UnknownConditionError as error:
        raise BackendContractError(f"backend {spec!r}: its not_under names no condition: {error}") from error


def device_of(backend: Backend) -> str:
    """Return the type of the device that a backend makes tensors on, e.g. ``cuda`` for ``cuda:1``; "" if it cannot."""
    try:
        name = str(backend.device(backend.tensor([1.0])))
    except Exception:  # noqa: BLE001 - the rules will show what is wrong with it
        return ""
    return ["", *re.findall(r"[a-z]\w*", name.lower())][-1]


def import_module(name: str) -> None:
    """Import a module for its side effects, such as registering a device (``--import MODULE``)."""
    try:
        importlib.import_module(name)
    except BaseException as error:
        _pass_on_interrupt(error)
        said = f"{_first_line(error)}{misspelt(name, error)}"
        raise BackendImportError(f"--import {name}: cannot import the module: {said}") from error


def _import(spec: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        found = importlib.import_module(module)
    except NotRunError:
        raise
    except BaseException as error:
        _pass_on_interrupt(error)
        said = f"{_first_line(error)}{misspelt(module, error)}"
        raise BackendImportError(f"backend {spec!r}: cannot import module {module}: {said}") from error
    try:
        return getattr(found, attribute)
    except AttributeError as error:
        said = f"has no attribute {attribute!r}{misspelt(attribute, error)}"
        raise BackendImportError(f"backend {spec!r}: module {module} {said}") from error


def _make(spec: str, factory: Callable[[str], Any], argument: str) -> Any:
    try:
        return factory(argument)
    except NotRunError:
        raise
    except BaseException as error:
        _pass_on_interrupt(error)
        raise BackendImportError(f"backend {spec!r}: its factory raised {_first_line(error)}") from error


def _pass_on_interrupt(error: BaseException) -> None:
    if is_users_interrupt(error):
        raise error


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
