"""The service that tries rules on mutants, and on the backend that they are mutants of, in a worker."""

import copy
import gc
import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hooklaw.backend import loading
from hooklaw.backend.conditions import UNCHANGED, Condition, find_condition
from hooklaw.backend.protocol import Backend
from hooklaw.errors import BackendImportError, NotRunError
from hooklaw.law import hypothesis_settings
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Registered, Rule, registered
from hooklaw.results import expectations
from hooklaw.results.recorder import DIED
from hooklaw.results.verdict import Outcome
from hooklaw.runner.execute import execute

EXAMPLES = 12
"""Examples of a property: the faults of mutants are not subtle."""
SLOW = 0.3
"""Seconds of processor time; a rule that takes more on the original is slow."""

Makers = Mapping[str, Callable[[], Backend]]


class MutantSettings(msgspec.Struct, frozen=True):
    """The module that defines the mutants, and the backend that they are mutants of."""

    module: str
    original: str


class LoadedMutants(msgspec.Struct, frozen=True):
    """The mutants with their faults, the rules, and the rules that are known to end the original's process."""

    vices: dict[str, str]
    under: dict[str, str]
    """The condition that leads a mutant into the corner where it is wrong, for those that are wrong in one alone."""
    rules: list[Rule]
    ending: dict[str, Outcome]
    not_built: dict[str, str] | None = None
    """Mutants that rules may name though the module does not build them, with the reason; None if it does not say."""


class Alterations(msgspec.Struct, frozen=True, tag=True):
    """A request: the attributes in which a mutant differs from the original."""

    mutant: str


class TryMutant(msgspec.Struct, frozen=True, tag=True):
    """A request: try a rule on a mutant, or on the original if no mutant is named."""

    rule: str
    mutant: str = ""


class Attempt(msgspec.Struct, frozen=True):
    """The outcome of a rule; for the original also the attributes that it used, and whether it was slow."""

    outcome: Outcome
    used: set[str] = set()
    slow: bool = False


class MutantService:
    """Tries rules, each on a backend of its own."""

    Settings = MutantSettings
    Request = Alterations | TryMutant

    def __init__(self, settings: MutantSettings) -> None:
        hypothesis_settings.load(EXAMPLES, shrink=False)  # before the rules: a property keeps the settings it finds
        load_rules()
        self._makers = _makers(settings)
        self._not_built = getattr(importlib.import_module(settings.module), "NOT_BUILT", None)
        self._original = loading.load(settings.original)
        self._rules = {found.rule.id: found for found in registered()}
        gc.collect()
        gc.freeze()

    def hello(self) -> LoadedMutants:
        """Return what there is to try."""
        vices = {name: (made.__doc__ or "").strip().split("\n")[0] for name, made in self._makers.items()}
        under = {name: condition for name, made in self._makers.items() if (condition := getattr(made, "under", ""))}
        path = self._original.expectations
        known = expectations.read(Path(path), self._rules, self._original.versions).known if path else {}
        ending = {id_: Outcome(entry.outcome[0]) for id_, entry in known.items() if DIED.intersection(entry.outcome)}
        rules = [found.rule for found in self._rules.values()]
        return LoadedMutants(vices, under, rules, ending, self._not_built)

    def answer(self, request: Alterations | TryMutant, note: Callable[[object], None]) -> Attempt | set[str] | None:
        """Answer a request."""
        del note  # an attempt has nothing to say before it ends
        if isinstance(request, Alterations):
            gc.collect()  # what the mutant before left
            return altered(self._makers[request.mutant](), self._original)
        found = self._rules[request.rule]
        if request.mutant:
            return Attempt(self._on_mutant(found, self._makers[request.mutant]()))
        used: set[str] = set()
        began = time.process_time()
        outcome = _outcome(found, _watched(self._original, used))
        return Attempt(outcome, used, time.process_time() - began > SLOW)

    def _on_mutant(self, found: Registered, mutant: Backend) -> Outcome:
        """Try a rule, under the mutant's condition if it has one; there the original must keep the rule too."""
        condition = find_condition(getattr(mutant, "under", ""))
        if condition.name in found.rule.except_under or condition.why_not(self._original):
            return Outcome.UNSUPPORTED
        outcome = _outcome(found, mutant, condition)
        if condition.name and outcome is not Outcome.PASS:
            sound = execute(found, self._original, condition=condition).outcome is Outcome.PASS
            return outcome if sound else Outcome.UNSUPPORTED
        return outcome


def _makers(settings: MutantSettings) -> Makers:
    try:
        return importlib.import_module(settings.module).mutants(settings.original)
    except NotRunError:
        raise
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}"
        raise BackendImportError(f"the mutants in {settings.module} do not import: {said}") from error


def _outcome(found: Registered, backend: Backend, condition: Condition = UNCHANGED) -> Outcome:
    try:
        return execute(found, backend, condition=condition).outcome
    finally:
        for end in ("reset", "close"):
            getattr(backend, end, lambda: None)()


def _watched(original: Backend, used: set[str]) -> Backend:
    """Return the backend in a form that notes each attribute that a rule, or one of its own verbs, uses."""

    class Watched(type(original)):
        def __getattribute__(self, name: str) -> Any:
            used.add(name)
            return super().__getattribute__(name)

    watched = copy.copy(original)
    object.__setattr__(watched, "__class__", Watched)
    return watched


def altered(mutant: Backend, original: Backend) -> set[str] | None:
    """Return the attributes in which a mutant differs, or None if that is unknown.

    It is unknown if the mutant says that its fault is ``inside`` what the verbs call.
    """
    line, base = type(mutant).__mro__, type(original)
    if base not in line or getattr(mutant, "inside", False):
        return None
    by_class = {name for owner in line[: line.index(base)] for name in vars(owner) if not name.startswith("__")}
    own, its = vars(mutant), vars(original)
    by_instance = {name for name in own if name not in its or own[name] != its[name]}
    return (by_class | by_instance) - {"name", "reset"}
