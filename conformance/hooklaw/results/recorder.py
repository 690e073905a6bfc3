"""The controller's side of a run: turns what workers report into record lines, and loses none.

`Subject` is a backend under judgement as plain data. A worker collects the rules and loads the backends; what the
controller needs of that (it imports no framework) travels as a `Collected` in a file beside the worker.
"""

import datetime as dt
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from hooklaw import __version__
from hooklaw.law.rule import Rule, digest
from hooklaw.results import host
from hooklaw.results.records import FORMAT, Footer, Header, Result, RunKind, Writer
from hooklaw.results.verdict import Expectation, Outcome, Stale

DIED = frozenset({Outcome.CRASH, Outcome.TIMEOUT})


class Subject(msgspec.Struct):
    """One backend as plain data."""

    spec: str
    versions: dict[str, str] = {}
    notes: dict[str, str] = {}
    not_run: str = ""
    known: dict[str, Expectation] = {}
    stale: list[Stale] = []
    kind: RunKind = RunKind.RULES
    device: str = ""


class Collected(msgspec.Struct):
    """What a worker found: the rules, which item tries which rule on which backend, and the fault that ends it all."""

    rules: list[Rule] = []
    subjects: dict[str, Subject] = {}
    items: dict[str, tuple[str, str]] = {}
    """Node id to rule id and backend."""
    places: dict[str, str] = {}
    """Node id to source line."""
    fault: str = ""

    def write(self, path: Path) -> None:
        """Leave it for the controller."""
        path.write_bytes(msgspec.json.encode(self))


def read_collected(path: Path) -> Collected | None:
    """Return what a worker left, or None where it has not come so far."""
    return msgspec.json.decode(path.read_bytes(), type=Collected) if path.exists() else None


class Recorder:
    """Writes one header, the results and one footer for each backend of a session."""

    def __init__(
        self, path: Path | None, *, append: bool, selection: str, on_result: Callable[[str, Result], None]
    ) -> None:
        self._path, self._append = path, append
        self._selection = selection
        self._on_result = on_result
        self._writer: Writer | None = None
        self._runs: dict[str, str] = {}
        self._seen: dict[str, set[str]] = {}
        self._began = time.perf_counter()
        self.collected: Collected | None = None

    def open(self) -> None:
        """Open the file before anything runs, so that a wrong path is known at once."""
        if self._path:
            self._writer = Writer(self._path, append=self._append)

    def start(self, collected: Collected) -> None:
        """Write the headers; a second worker's collection, after a crash, changes nothing."""
        if self.collected:
            return
        self.collected = collected
        chosen = {rule for rule, _ in collected.items.values()}
        rules = [rule for rule in collected.rules if rule.id in chosen]
        for spec, subject in collected.subjects.items():
            self._runs[spec] = uuid.uuid4().hex[:12]
            self._seen[spec] = set()
            self._write(self._header(subject, rules))

    def add(self, node: str, result: Result) -> None:
        """Write the result of an item."""
        if not self.collected or node not in self.collected.items:
            return
        rule, spec = self.collected.items[node]
        if rule in self._seen[spec]:
            return
        self._seen[spec].add(rule)
        known = self.collected.subjects[spec].known.get(rule)
        where = result.where or (self.collected.places.get(node, "") if result.outcome in DIED else "")
        line = msgspec.structs.replace(result, run=self._runs[spec], rule=rule, expectation=known, where=where)
        self._write(line)
        self._on_result(spec, line)

    @property
    def complete(self) -> bool:
        """Tell whether every item has its result."""
        done = sum(map(len, self._seen.values()))
        return self.collected is not None and done == len(self.collected.items)

    def finish(self, *, interrupted: bool) -> None:
        """Write the footers and close."""
        subjects = self.collected.subjects if self.collected else {}
        for spec, run in self._runs.items():
            seconds = round(time.perf_counter() - self._began, 3)
            stale = subjects[spec].stale
            done = len(self._seen[spec])
            self._write(Footer(run=run, results=done, seconds=seconds, stale=stale, interrupted=interrupted))
        if self._writer:
            self._writer.close()

    def _write(self, line: Header | Result | Footer) -> None:
        if self._writer:
            self._writer.write(line)

    def _header(self, subject: Subject, rules: list[Rule]) -> Header:
        return Header(
            hooklaw=FORMAT,
            run=self._runs[subject.spec],
            suite=__version__,
            digest=digest(rules),
            collected=len(rules),
            run_kind=subject.kind,
            backend=subject.spec,
            device=subject.device,
            rules=rules,
            versions={**subject.versions, **host.versions()},
            notes=subject.notes,
            command=_command(),
            started=dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
            selection=self._selection,
            not_run=subject.not_run,
        )


def _command() -> str:
    program = Path(sys.argv[0]).name
    return " ".join(["hooklaw" if program == "__main__.py" else program, *sys.argv[1:]])
