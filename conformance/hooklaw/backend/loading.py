"""Loading a backend by its name on the command line: a built-in one, an entry point, or module:attribute."""

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, cast

from hooklaw.backend.conditions import find_condition
from hooklaw.backend.protocol import Backend, check_contract
from hooklaw.errors import (
    BackendContractError,
    BackendImportError,
    NotRunError,
    UnknownBackendError,
    UnknownConditionError,
)

GROUP = "hooklaw.backends"
BUILTIN = {
    "torch-eager": "hooklaw_backends.torch_eager:backend",
    "torch-compile": "hooklaw_backends.torch_compile:backend",
    "paddle": "hooklaw_backends.paddle:backend",
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
    near = get_close_matches(name, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(known))}"
    raise UnknownBackendError(f"no backend has the name {spec!r}: {hint} (name your own backend as module:attribute)")


def load(spec: str) -> Backend:
    """Import, make and check the backend.

    Raises UnknownBackendError, BackendImportError, BackendContractError, or NotRunError if it cannot run here.
    """
    target, argument = resolve(spec)
    factory = _import(spec, target)
    backend = _make(spec, factory, argument) if callable(factory) else factory
    check_contract(backend, spec)
    _check_conditions(backend, spec)
    return cast("Backend", backend)


def _check_conditions(backend: Any, spec: str) -> None:
    try:
        for name in getattr(backend, "not_under", {}):
            find_condition(name)
    except UnknownConditionError as error:
        raise BackendContractError(f"backend {spec!r}: its not_under names no condition: {error}") from error


def import_module(name: str) -> None:
    """Import a module for its side effects, such as registering a device (``--import MODULE``)."""
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise BackendImportError(f"--import {name}: cannot import the module: {_first_line(error)}") from error


def _import(spec: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        found = importlib.import_module(module)
    except NotRunError:
        raise
    except (Exception, SystemExit) as error:
        raise BackendImportError(f"backend {spec!r}: cannot import module {module}: {_first_line(error)}") from error
    if not hasattr(found, attribute):
        raise BackendImportError(f"backend {spec!r}: module {module} has no attribute {attribute!r}")
    return getattr(found, attribute)


def _make(spec: str, factory: Callable[[str], Any], argument: str) -> Any:
    try:
        return factory(argument)
    except NotRunError:
        raise
    except (Exception, SystemExit) as error:
        raise BackendImportError(f"backend {spec!r}: its factory raised {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
