"""The service that tries rules on mutants, and on the backend that they are mutants of, in a worker."""

import copy
import gc
import importlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hooklaw.backend import blame, loading
from hooklaw.backend.capabilities import capabilities_of, said_of, verbs_of
from hooklaw.backend.check import check_briefly
from hooklaw.backend.conditions import UNCHANGED, Condition, find_condition
from hooklaw.backend.protocol import VERBS, Backend
from hooklaw.errors import BackendImportError, HooklawError, NotRunError, is_users_interrupt
from hooklaw.law import hypothesis_settings
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Registered, Rule, registered
from hooklaw.results import expectations, host, when
from hooklaw.results.recorder import DIED
from hooklaw.results.verdict import Outcome
from hooklaw.runner import heap
from hooklaw.runner.execute import execute

EXAMPLES = 12
"""Examples of a property: the faults of mutants are not subtle."""
SLOW = 0.3
"""Seconds; a rule that takes more on the original is slow."""

Makers = Mapping[str, Callable[[], Backend]]
Made = TypeVar("Made")


class MutantSettings(msgspec.Struct, frozen=True):
    """The module that defines the mutants, and the backend that they are mutants of."""

    module: str
    original: str
    """The backend's name on the command line."""
    of_any: bool = False
    """Whether the backend is not one of those that the mutants are written for, so that some may not apply to it."""
    imports: list[str] = []


class LoadedMutants(msgspec.Struct, frozen=True):
    """The mutants with their faults, the rules, and the rules that are known to end the original's process."""

    vices: dict[str, str]
    under: dict[str, str]
    """For mutants that are wrong in one corner and that no rule need name, the condition that leads there, if any."""
    rules: list[Rule]
    ending: dict[str, Outcome]
    why_not: dict[str, str]
    """Why some mutants cannot apply to the original: it lacks each verb that they change."""
    not_built: dict[str, str] | None = None
    """Mutants that rules may name though the module does not build them, with the reason; None if it does not say."""
    first: dict[str, list[str]] = {}
    """How the ids of the rules begin that are tried first on some mutants."""
    ends: dict[str, list[str]] = {}
    """How, among these, the ids of the rules end that come before the others."""


class Alterations(msgspec.Struct, frozen=True, tag=True):
    """A request: the attributes in which a mutant differs from the original."""

    mutant: str


class TryMutant(msgspec.Struct, frozen=True, tag=True):
    """A request: try a rule on a mutant, or on the original if no mutant is named."""

    rule: str
    mutant: str = ""


class Attempt(msgspec.Struct, frozen=True):
    """The outcome of a rule; for the original also the attributes that it used, and the processor time in seconds."""

    outcome: Outcome
    used: set[str] = set()
    seconds: float = 0.0
    why: str = ""
    """Why the mutant does not apply, as far as this rule shows."""

    @property
    def slow(self) -> bool:
        """Whether the rule is too dear for mutants that it does not name."""
        return self.seconds > SLOW


class MutantService:
    """Tries rules, each on a backend of its own."""

    Settings = MutantSettings
    Request = Alterations | TryMutant

    def __init__(self, settings: MutantSettings) -> None:
        heap.begin()
        hypothesis_settings.load(EXAMPLES, shrink=False)  # before the rules: a property keeps the settings it finds
        load_rules()
        self._original, self._makers = _loaded(settings)
        self._of_any = settings.of_any
        self._not_built = getattr(importlib.import_module(settings.module), "NOT_BUILT", None)
        self._rules = {found.rule.id: found for found in registered()}
        heap.settle()

    def hello(self) -> LoadedMutants:
        """Return what there is to try."""
        vices = {name: (made.__doc__ or "").strip().split("\n")[0] for name, made in self._makers.items()}
        made = self._makers.items()
        under = {name: under for name, each in made if (under := getattr(each, "under", None)) is not None}
        first = {name: list(first) for name, each in made if (first := getattr(each, "first", None)) is not None}
        path = self._original.expectations
        facts = when.facts({**self._original.versions, **host.versions()}, loading.device_of(self._original))
        known = expectations.read(Path(path), self._rules, facts).known if path and Path(path).exists() else {}
        ending = {id_: Outcome(entry.outcome[0]) for id_, entry in known.items() if DIED.intersection(entry.outcome)}
        rules = [found.rule for found in self._rules.values()]
        why_not = {name: why for name, made in self._makers.items() if self._of_any and (why := self._lacking(made))}
        ends = {name: list(ends) for name, each in made if (ends := getattr(each, "ends", None))}
        return LoadedMutants(vices, under, rules, ending, why_not, self._not_built, first, ends)

    def answer(self, request: Alterations | TryMutant, note: Callable[[object], None]) -> Attempt | set[str] | None:
        """Answer a request."""
        del note  # an attempt has nothing to say before it ends
        if isinstance(request, Alterations):
            gc.collect()  # what the mutant before left
            gc.freeze()  # what it has loaded
            return altered(self._makers[request.mutant](), self._original)
        found = self._rules[request.rule]
        if request.mutant:
            return self._on_mutant(found, self._makers[request.mutant]())
        if found.rule.processes:
            return Attempt(_outcome(found, self._original))
        return on_original(found, self._original)

    def _lacking(self, made: Any) -> str:
        """Return why a mutant cannot apply: the original has no verb that the mutant itself changes, or less."""
        has, own = self._original.capabilities, made.__mro__[1] if isinstance(made, type) else made
        if lacks := [need for need in getattr(made, "needs", ()) if need not in has]:
            return f"it needs {said_of(lacks, self._original.lacks)}"
        changed = [verb for verb in vars(own) if verb in VERBS]
        if not changed or verbs_of(has).intersection(changed):
            return ""
        return f"what it changes belongs to {said_of(capabilities_of(changed[0]), self._original.lacks)}"

    def _on_mutant(self, found: Registered, mutant: Backend) -> Attempt:
        """Try a rule, under the mutant's condition if it has one; there the original must keep the rule too."""
        condition = find_condition(getattr(mutant, "under", ""))
        if why := condition.why_not(self._original):
            return Attempt(Outcome.UNSUPPORTED, why=f"it is tried under {condition.name}: {why}")
        if condition.name in found.rule.except_under:
            return Attempt(Outcome.UNSUPPORTED)
        raised: list[BaseException] = []
        outcome = _outcome(found, mutant, condition, raised.append)
        if self._of_any and (why := _why_not(mutant, outcome, raised)):
            return Attempt(Outcome.UNSUPPORTED, why=why)
        if condition.name and outcome is not Outcome.PASS:
            sound = execute(found, self._original, condition=condition).outcome is Outcome.PASS
            return Attempt(outcome if sound else Outcome.UNSUPPORTED)
        return Attempt(outcome)


def on_original(found: Registered, original: Backend, *, again: bool = True) -> Attempt:
    """Try a rule on the original; one that seems slow because it met a first import is timed again."""
    used: set[str] = set()
    imported, began = len(sys.modules), time.process_time()
    outcome = _outcome(found, _watched(original, used))
    attempt = Attempt(outcome, used, time.process_time() - began)
    if attempt.slow and again and len(sys.modules) > imported:
        return on_original(found, original, again=False)
    return attempt


def _why_not(mutant: Any, outcome: Outcome, raised: Sequence[BaseException]) -> str:
    """Return why a mutant of any backend could not do what it does: its own lines failed, and not the rule."""
    if missing := getattr(mutant, "missing", []):
        return f"it needs {missing[0]}"
    if raised and (outcome is Outcome.ERROR or blame.is_slip_in(blame.files_of(type(mutant)), raised[0])):
        said = (str(raised[0]).splitlines() or [""])[0]
        return f"its own lines do not fit the backend: {type(raised[0]).__name__}: {said}"
    return ""


def _loaded(settings: MutantSettings) -> tuple[Backend, Makers]:
    if not settings.of_any:
        return loading.load(settings.original), _makers(settings, lambda module: module.mutants(settings.original))
    backend = loading.load(settings.original, settings.imports)
    check_briefly(backend, settings.original)
    return _makers(settings, lambda module: _over(module)(backend, settings.original))


def _over(module: Any) -> Any:
    if not hasattr(module, "over"):
        said = "has mutants of torch-eager and reference alone: for others it needs a function over(backend, spec)"
        raise BackendImportError(f"the module {module.__name__} {said}")
    return module.over


def _makers(settings: MutantSettings, make: Callable[[Any], Made]) -> Made:
    try:
        return make(importlib.import_module(settings.module))
    except (NotRunError, HooklawError):
        raise
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        said = f"{type(error).__name__}: {error}"
        raise BackendImportError(f"the mutants in {settings.module} do not import: {said}") from error


def _outcome(
    found: Registered,
    backend: Backend,
    condition: Condition = UNCHANGED,
    on_error: Callable[[BaseException], None] = lambda _: None,
) -> Outcome:
    try:
        return execute(found, backend, condition=condition, on_error=on_error).outcome
    finally:
        for end in ("reset", "close"):
            getattr(backend, end, lambda: None)()
        heap.settle()


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

    It is unknown if the mutant says that its fault is ``inside`` what the verbs call. A class overrides the verbs that
    are ``watched`` there, but they do the same.
    """
    line, base = type(mutant).__mro__, type(original)
    if base not in line or getattr(mutant, "inside", False):
        return None
    by_class: set[str] = set()
    for owner in line[: line.index(base)]:
        by_class |= {name for name in vars(owner) if not name.startswith("__")} - vars(owner).get("watched", set())
    own, its = vars(mutant), vars(original)
    by_instance = {name for name in own if name not in its or own[name] != its[name]}
    return (by_class | by_instance) - {"name", "reset"}
