"""The service that executes rules on one backend: in a worker, or in the only process there is."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hooklaw.backend import loading
from hooklaw.backend.check import check_briefly
from hooklaw.backend.conditions import CONDITIONS, find_condition
from hooklaw.errors import NotRunError
from hooklaw.law.collection import collect, file_of, files, load_rules
from hooklaw.law.rule import Registered, Rule, registered_rule
from hooklaw.results.recorder import Subject
from hooklaw.results.records import Execution
from hooklaw.results.verdict import Expectation, Outcome, Stale
from hooklaw.runner import heap
from hooklaw.runner._classify import place
from hooklaw.runner.execute import execute, lacking
from hooklaw.runner.left_behind import Surroundings, grad_mode_left

if TYPE_CHECKING:
    from hooklaw.backend.protocol import Backend

Entry = TypeVar("Entry", Expectation, Stale)


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which backend is judged, and how."""

    backend: str
    imports: list[str] = []
    expectations: str = ""
    """A file instead of the backend's own."""
    probe_unsupported: bool = False
    contained: bool = True
    """Whether the process may die of a rule."""


class Listed(msgspec.Struct, frozen=True):
    """A rule as its session knows it."""

    rule: Rule
    file: str
    place: str
    """The source line of its function."""
    function: str
    module: str
    lacking: str = ""
    """What the backend lacks of what the rule needs: such a rule runs only to be probed."""


class Collect(msgspec.Struct, frozen=True, tag=True):
    """A request: collect the rules of a package, a folder or some files."""

    where: list[str]


class Collected(msgspec.Struct, frozen=True, tag="collected", tag_field="kind"):
    """The rules that were collected, and what is judged, with what it is known to break."""

    rules: list[Listed]
    subject: Subject


class Try(msgspec.Struct, frozen=True, tag=True):
    """A request: execute a rule that stands in a file."""

    rule: str
    file: str
    condition: str = ""
    ends: bool = False
    """Whether the rule is known to end the process, so that its script must be noted before it runs."""


class Script(msgspec.Struct, frozen=True, tag=True):
    """A request: write the script of a rule that ended the process, which was not known to."""

    rule: str
    file: str


class RuleService:
    """Executes rules on one backend."""

    Settings = RuleSettings
    Request = Collect | Try | Script

    def __init__(self, settings: RuleSettings, made: "Backend | None" = None) -> None:
        """Load the backend, unless it is made already."""
        self._settings = settings
        self._backend = made
        self.error: BaseException | None = None
        """What the rule that was executed last has raised."""
        heap.begin()
        self._subject = self._load()

    def hello(self) -> Subject:
        """Return what is judged."""
        return self._subject

    def answer(self, request: Collect | Try | Script, note: Callable[[object], None]) -> Collected | Execution | str:
        """Answer a request from another process; of a rule that will end this one, the script is noted before."""
        if isinstance(request, Collect):
            return self.collect(request.where)
        if isinstance(request, Script):
            return self._script(self._find(request), "")
        if request.ends:
            note(self._script(self._find(request), ""))
        return self.execute(request)

    def _load(self) -> Subject:
        spec, before = self._settings.backend, Surroundings()
        try:
            made = self._backend = self._backend or loading.load(spec, self._settings.imports)
            left = grad_mode_left(made, spec)
            check_briefly(made, spec)
        except NotRunError as reason:
            return Subject(spec, not_run=str(reason))
        left += before.left()
        notes = {**made.notes, **({"left behind": "; ".join(left)} if left else {})}
        return Subject(spec, _texts(made.versions), _texts(notes), device=loading.device_of(made))

    def collect(self, where: list[str]) -> Collected:
        """Import the rules, and read what the backend is known to break of them."""
        rules = [rule for name in where for rule in self._import(name)]
        own = self._backend.expectations if self._backend else None
        path = self._settings.expectations or own
        known = self._expectations(Path(path)) if path else {}
        subject = msgspec.structs.replace(self._subject, **known, not_under=self._not_under())
        heap.settle()
        return Collected([self._listed(rule) for rule in rules], subject)

    def _listed(self, found: Registered) -> Listed:
        file, function = file_of(found), inspect.unwrap(found.function)
        return Listed(
            found.rule,
            file,
            place(file, function.__code__.co_firstlineno),
            found.function.__name__,
            function.__module__,
            lacking(found.rule, self._backend) if self._backend else "",
        )

    def _not_under(self) -> dict[str, str]:
        backend = self._backend
        return {name: why for name, made in CONDITIONS.items() if backend and (why := made.why_not(backend))}

    def _import(self, where: str) -> list[Registered]:
        if any(b"hypothesis" in file.read_bytes() for file in files(where)):
            from hooklaw.law import hypothesis_settings as search  # noqa: PLC0415 - other rules do not pay for it

            search.load(getattr(self._backend, "examples", search.EXAMPLES))  # before a rule is defined under others
        return collect(where)

    def _expectations(self, path: Path) -> dict[str, Any]:
        from hooklaw.results import expectations, host, when  # noqa: PLC0415 - without a file nothing is paid for it

        facts = when.facts({**self._subject.versions, **host.versions()}, self._subject.device)
        found = expectations.read(path, load_rules(), facts)
        known = {rule: _without_folders(entry) for rule, entry in found.known.items()}
        return {
            "known": known,
            "known_under": [*map(_without_folders, found.known_under)],
            "stale": [_without_folders(entry) for entry in (*found.stale, *found.unclear)],
            "expectations": expectations.name_of(path),
        }

    def execute(self, wanted: Try) -> Execution:
        """Execute a rule, then collect its garbage: a crash in that is this rule's doing, not the next one's."""
        if self._backend is None:
            return Execution(rule=wanted.rule, outcome=Outcome.NOT_RUN, detail=self._subject.not_run)
        found = self._find(wanted)
        self.error = None
        condition = find_condition(wanted.condition)
        done = execute(
            found, self._backend, condition=condition, probe=self._settings.probe_unsupported, on_error=self._keep
        )
        if self._settings.contained:
            self.error = None
        heap.settle(after_error=done.outcome is Outcome.FAIL)
        if self._settings.contained:
            heap.sweep()
        if done.outcome in {Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT} and not wanted.condition:  # a rank may die
            return msgspec.structs.replace(done, program=self._script(found, done.detail))
        return done

    def _script(self, found: Registered, seen: str) -> str:
        """Return the rule as a script in the framework's own calls, or an empty text where none can be written."""
        from hooklaw.repro import script_of  # noqa: PLC0415 - a backend that keeps every rule does not pay for it

        if callable(reset := getattr(self._backend, "reset", None)):
            reset()  # a script begins with an adapter that holds nothing
        with suppress(Exception):  # a rule whose script cannot be written has its result all the same
            return script_of(found, self._backend, seen)
        return ""

    def _keep(self, error: BaseException) -> None:
        self.error = error

    def _find(self, wanted: Try | Script) -> Registered:
        known = registered_rule(wanted.rule)
        return known or next(rule for rule in self._import(wanted.file) if rule.rule.id == wanted.rule)


def _texts(mapping: Mapping[str, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in mapping.items()}


def _without_folders(entry: Entry) -> Entry:
    """Name the entry's file as a record may: not in whose home it lies."""
    return msgspec.structs.replace(entry, file="/".join(Path(entry.file).parts[-3:]))
