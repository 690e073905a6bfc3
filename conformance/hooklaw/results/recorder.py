"""The recorder of a run: it makes whole lines of what was executed, keeps them in memory, and writes them."""

import datetime as dt
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from hooklaw import __version__
from hooklaw.law.rule import Rule, digest
from hooklaw.results import host
from hooklaw.results.records import FORMAT, Execution, Footer, Header, Line, Result, Run, RunKind, Shard, Writer
from hooklaw.results.verdict import Expectation, Outcome, Stale, unclear

DIED = frozenset({Outcome.CRASH, Outcome.TIMEOUT})


class Subject(msgspec.Struct):
    """A backend under judgement as plain data, with what it is known to break."""

    spec: str
    versions: dict[str, str] = {}
    notes: dict[str, str] = {}
    not_run: str = ""
    known: dict[str, Expectation] = {}
    stale: list[Stale] = []
    kind: RunKind = RunKind.RULES
    device: str = ""
    condition: str = ""
    not_under: dict[str, str] = {}
    """The conditions under which it cannot be judged, and why."""
    known_under: list[Expectation] = []
    """What it is known to break under some conditions alone."""
    expectations: str = ""
    """The file that says so, as a header names it."""

    def under(self, condition: str) -> "Subject":
        """Return the same backend under a condition, where it is known to break what it breaks without it, and more.

        Entries that are stale concern the run without a condition, but for those that are for the condition alone.
        """
        if not condition:
            return self
        known = {entry.rule: entry for entry in self.known_under if condition in entry.condition}
        not_run = self.not_run or self.not_under.get(condition, "")
        stale = [stale for entry in known.values() for stale in unclear(entry)]
        return msgspec.structs.replace(
            self, condition=condition, not_run=not_run, known={**self.known, **known}, stale=stale
        )

    def expectation(self, rule: str, outcome: Outcome) -> Expectation | None:
        """Return what an outcome is judged by; under a condition a rule may hold that is known to be broken without."""
        known = self.known.get(rule)
        if known and outcome is Outcome.PASS and self.condition not in (known.condition or [""]):
            return None
        return known

    def ends_process(self, rule: str) -> bool:
        """Return whether a rule is known to end the process."""
        return rule in self.known and bool(DIED.intersection(self.known[rule].outcome))


class Recorder:
    """Records one run: its header is written at once, its results as they come, its footer when it is finished."""

    def __init__(
        self,
        subject: Subject,
        rules: Sequence[Rule],
        *,
        writer: Writer | None = None,
        selection: str = "",
        shard: Shard | None = None,
    ) -> None:
        self._subject, self._writer = subject, writer
        self._began = time.perf_counter()
        header = _header(subject, rules, selection, shard)
        self.run = Run(header, {}, None, str(writer.path) if writer else "")
        self._write(header)

    def add(self, execution: Execution) -> Result:
        """Record what came of a rule."""
        known = self._subject.expectation(execution.rule, execution.outcome)
        parts = {name: getattr(execution, name) for name in Execution.__struct_fields__}
        result = Result(run=self.run.header.run, expectation=known, **parts)
        self.run.results[result.rule] = result
        self._write(result)
        return result

    def finish(self, *, interrupted: bool = False) -> Run:
        """Write the footer, and return the run."""
        self.run.footer = Footer(
            run=self.run.header.run,
            results=len(self.run.results),
            seconds=round(time.perf_counter() - self._began, 3),
            stale=self._subject.stale,
            interrupted=interrupted,
        )
        self._write(self.run.footer)
        return self.run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.finish(interrupted=kind is not None)

    def _write(self, line: Line) -> None:
        if self._writer:
            self._writer.write(line)


def _header(subject: Subject, rules: Sequence[Rule], selection: str, shard: Shard | None) -> Header:
    return Header(
        hooklaw=FORMAT,
        run=uuid.uuid4().hex[:12],
        suite=__version__,
        digest=digest(rules),
        collected=len(rules),
        run_kind=subject.kind,
        backend=subject.spec,
        device=subject.device,
        condition=subject.condition,
        expectations=subject.expectations,
        rules=list(rules),
        versions={**subject.versions, **host.versions()},
        notes=subject.notes,
        command=_command(),
        started=dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        selection=selection,
        shard=shard,
        not_run=subject.not_run,
    )


def _command() -> str:
    program = Path(sys.argv[0]).name
    return " ".join(["hooklaw" if program == "__main__.py" else program, *sys.argv[1:]])
