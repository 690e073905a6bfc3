"""The adapter judged before the framework: what it declares, what its verbs take, and what they return."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hooklaw.backend.check import _errors, _hooks, _modules, _operations, _values
from hooklaw.backend.check._declared import declared_faults
from hooklaw.backend.check._fault import Fault
from hooklaw.backend.check._probe import PROBES
from hooklaw.backend.check._report import AdapterReport
from hooklaw.errors import BackendContractError

__all__ = [
    "DECLARATIONS",
    "AdapterReport",
    "Fault",
    "check_backend",
    "check_briefly",
    "check_contract",
    "named_probes",
    "report_of",
    "run_probe",
]

HOLDING_PROBES = (_values, _operations, _hooks, _modules, _errors)
"""The modules that register their probes."""
DECLARATIONS = "declarations"
"""The name of what is checked first, without a call of a verb."""


def check_contract(backend: Any, known_as: str) -> None:
    """Raise BackendContractError with the first fault in what the object declares, and in what its verbs take."""
    for fault in declared_faults(backend):
        raise BackendContractError(f"backend {known_as!r}{fault.sentence}")


def check_briefly(backend: Any, known_as: str) -> None:
    """Raise BackendContractError unless values survive the core verbs: without that no rule can be judged."""
    for probe in PROBES.values():
        if probe.brief and (faults := probe.run_briefly(backend)):
            hint = f"`hooklaw check-backend {known_as}` checks the whole adapter"
            raise BackendContractError(f"backend {known_as!r}{faults[0].sentence} ({hint})")


def named_probes(backend: Any) -> list[str]:
    """Return the names of the probes that a backend's capabilities allow, the short form's first."""
    allowed = [probe for probe in PROBES.values() if probe.needs <= frozenset(backend.capabilities)]
    return [probe.name for probe in sorted(allowed, key=lambda probe: not probe.brief)]


def run_probe(backend: Any, name: str) -> list[Fault]:
    """Return the faults that one probe finds, or those of the declarations."""
    return [*declared_faults(backend)] if name == DECLARATIONS else PROBES[name].run(backend)


def report_of(
    backend: str, versions: Mapping[str, object], probes: Sequence[str], run: Callable[[str], Sequence[Fault]]
) -> AdapterReport:
    """Run the probes of these names, and return the report; no verb is called if the declarations have faults."""
    faults = [*run(DECLARATIONS)]
    tried = [] if faults else probes
    faults += [fault for name in tried for fault in run(name)]
    return AdapterReport(
        backend=backend,
        versions={str(name): str(version) for name, version in versions.items()},
        faults=_each_once(faults),
        probes=len(tried),
        not_applicable=len(PROBES) - len(tried) if tried else 0,
    )


def check_backend(backend: Any) -> AdapterReport:
    """Check an adapter in this process: what it declares, what its verbs take, and what they return.

    Print the report to read it; ``report.faults`` is empty where the adapter is sound. `hooklaw check-backend` does the
    same in a process of its own, which may die of it.
    """
    versions = getattr(backend, "versions", None)
    name = getattr(backend, "name", None) or type(backend).__name__
    probes = [] if run_probe(backend, DECLARATIONS) else named_probes(backend)
    versions = versions if isinstance(versions, Mapping) else {}
    return report_of(str(name), versions, probes, lambda probe: run_probe(backend, probe))


def _each_once(faults: Sequence[Fault]) -> list[Fault]:
    """Leave out what many probes find: a verb that raises the same each time is one fault."""
    found: dict[tuple[str, str, str], Fault] = {}
    for fault in faults:
        found.setdefault((fault.what, fault.got, "" if fault.raised else fault.given), fault)
    return [*found.values()]
