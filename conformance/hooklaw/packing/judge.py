"""Judging a packer: a supervised worker checks each property, and the recorder makes an ordinary run of the results.

A property is a rule, so the records, the expectation files and the report's pages are those of every other run.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from hooklaw.errors import UnknownRuleError, did_you_mean
from hooklaw.law.rule import Level, Rule
from hooklaw.law.selection import Catalogue, Kind, places
from hooklaw.packing._service import LoadedPacker, PackerOptions
from hooklaw.packing.report import ALLOWED
from hooklaw.results import expectations, host, when
from hooklaw.results.recorder import DIED, Recorder, Subject
from hooklaw.results.records import Execution, Run, RunKind, Writer
from hooklaw.results.verdict import Expectation, Outcome
from hooklaw.workers.supervisor import Supervisor, WorkerDiedError

RIGHT = "hooklaw.packing.control:Right"
PROPERTIES = Kind("property", "`hooklaw packer --list` shows them all")

Worker = Supervisor[LoadedPacker, tuple[Execution, bool]]


class Judged(NamedTuple):
    """A run of one packer on one device."""

    run: Run
    further_devices: list[str]
    """Devices of this machine besides the CPU."""


class Judge:
    """A worker that checks properties of a packer; starting it raises PackerError if the packer cannot be judged."""

    def __init__(self, options: PackerOptions) -> None:
        self._options, self._worker = options, _worker(options)
        self.close = self._worker.close
        self.loaded = self._worker.hello()

    def check(self, rule: Rule) -> Execution:
        """Check a property; that the worker dies of it is a result too."""
        return _check(self._worker, rule.id, self._options.limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def judge(
    options: PackerOptions, writer: Writer | None = None, *, on_result: Callable[[str], None] = lambda _: None
) -> Judged:
    """Judge a packer on a device, and write the run if a writer is given; `on_result` gets each property's id.

    Raises PackerError if the packer cannot be judged.
    """
    with Judge(options) as worker:
        return judge_all(worker, options, writer, on_result=on_result)


def judge_all(
    worker: Judge,
    options: PackerOptions,
    writer: Writer | None = None,
    *,
    on_result: Callable[[str], None] = lambda _: None,
) -> Judged:
    """Judge a packer that a worker has loaded."""
    rules = choose(worker.loaded.rules, options.parts)
    subject = _subject(options, worker.loaded)
    with Recorder(subject, rules, writer=writer, selection=" or ".join(options.parts)) as recorder:
        for rule in rules:
            execution = worker.check(rule)
            if execution.outcome is Outcome.FAIL and rule.level is Level.SHOULD:
                subject.known.setdefault(rule.id, Expectation(rule.id, [str(Outcome.FAIL)], ALLOWED))
            recorder.add(execution)
            on_result(rule.id)
    return Judged(recorder.run, worker.loaded.further_devices)


@cache
def laws() -> list[Rule]:
    """Return every property, as a worker knows them; PackerError if torch is missing."""
    with Judge(PackerOptions(packer=RIGHT, device="cpu")) as worker:
        return worker.loaded.rules


def require(ids: Sequence[str], rules: Sequence[Rule]) -> None:
    """Raise UnknownRuleError unless each id is that of a property."""
    known = [rule.id for rule in rules]
    for name in ids:
        if name not in known:
            hint = did_you_mean(name, known, PROPERTIES.listed_by)
            raise UnknownRuleError(f"no property has the id {name!r}: {hint}")


def choose(rules: Sequence[Rule], parts: Sequence[str]) -> list[Rule]:
    """Return the properties that one of these expressions matches, or all; UnknownRuleError if there are none."""
    found = Catalogue(rules, places, PROPERTIES).select(*parts)
    if not found:
        raise UnknownRuleError(f"{' or '.join(parts)!r} matches no property: {PROPERTIES.listed_by}")
    return found


def _worker(options: PackerOptions) -> Worker:
    return Supervisor(
        "hooklaw.packing._service:PackerService",
        options,
        name=f"packer {options.packer!r}",
        hello=LoadedPacker,
        answer=tuple[Execution, bool],
    )


def _subject(options: PackerOptions, loaded: LoadedPacker) -> Subject:
    subject = Subject(options.packer, loaded.versions, loaded.notes, kind=RunKind.PACKER, device=options.device)
    if options.expectations:
        path, facts = Path(options.expectations), when.facts({**subject.versions, **host.versions()}, options.device)
        found = expectations.read(path, [rule.id for rule in loaded.rules], facts)
        subject.known, subject.stale = found.known, [*found.stale, *found.unclear]
        subject.expectations = expectations.name_of(path)
    return subject


def _check(worker: Worker, property_id: str, limit: float) -> Execution:
    execution = _ask(worker, property_id, limit)
    innocent = execution.outcome in DIED and not execution.program  # no program ran: an earlier one ended the worker
    return _ask(worker, property_id, limit) if innocent else execution


def _ask(worker: Worker, property_id: str, limit: float) -> Execution:
    """Return the result; if the worker dies, its last words and the program that was running."""
    programs = [""]
    try:
        execution, fit = worker.ask(
            property_id, limit, lambda said: programs.append(msgspec.json.decode(said, type=str))
        )
    except WorkerDiedError as died:
        death = died.death
        return Execution(
            rule=property_id,
            outcome=death.outcome,
            detail=death.detail,
            where=death.where,
            program=programs[-1],
            stderr=death.stderr,
        )
    if not fit:
        worker.retire()  # what the packer left behind would change what the next property finds
    return execution
