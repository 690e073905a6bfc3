"""A packer judged from outside: workers do the trying, a dead one is replaced, and the outcome is an ordinary run.

A property is a rule and a packer on a device is a backend, so the records, the expectation files and the report's
pages are those of every other run; only the verdict's words are a packer's own.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple, Self

import msgspec

from hooklaw.errors import HooklawError, PackerError, UnknownRuleError
from hooklaw.law.rule import Level, Rule
from hooklaw.packing.check import Tried
from hooklaw.packing.report import Findings, Row
from hooklaw.packing.worker import Fault, Hello, Line
from hooklaw.results import expectations, host
from hooklaw.results.recorder import Recorder, Subject
from hooklaw.results.records import Execution, Result, Run, RunKind, Writer
from hooklaw.results.verdict import Expectation, Outcome
from hooklaw.workers.watchdog import last_words

LIMIT = 20.0
"""Seconds a property may take."""
EXAMPLES = 25
RIGHT = "hooklaw.packing.control:Right"
ALLOWED = "a SHOULD: the packer is safe except for this"
"""Why a broken SHOULD is no regression."""


class Judged(NamedTuple):
    """A packer on one device, judged."""

    run: Run
    findings: Findings
    further: list[str]
    """What other devices this machine has."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be judged, and how."""

    packer: str
    device: str
    parts: list[str] = []
    """Properties with one of these texts in their id; all where there is none."""
    examples: int = EXAMPLES
    limit: float = LIMIT
    expectations: str = ""


def judge(
    wanted: Wanted, writer: Writer | None = None, *, on_result: Callable[[Tried], None] = lambda _: None
) -> Judged:
    """Judge a packer on a device, and write the run where a writer is given; PackerError says why there is none."""
    with TemporaryDirectory(prefix="hooklaw-") as folder, _Hand(wanted, Path(folder) / "words") as hand:
        run = _run(wanted, hand, writer, on_result)
        return Judged(run, _findings(run, wanted.device), hand.hello.further)


def _run(wanted: Wanted, hand: "_Hand", writer: Writer | None, on_result: Callable[[Tried], None]) -> Run:
    rules = choose(hand.hello.rules, wanted.parts)
    spec = wanted.packer
    subject = Subject(spec, hand.hello.versions, hand.hello.notes, kind=RunKind.PACKER, device=wanted.device)
    if wanted.expectations:
        ids = [rule.id for rule in hand.hello.rules]
        known = expectations.read(Path(wanted.expectations), ids, subject.versions)
        subject.known, subject.stale = known.known, known.stale
    recorder = Recorder(subject, rules, writer=writer, selection=" or ".join(wanted.parts))
    ended = False
    try:
        for rule, tried in hand.run(rules):
            _record(recorder, subject, rule, tried)
            on_result(tried)
        ended = True
    finally:
        recorder.finish(interrupted=not ended)
    return recorder.run


def laws() -> list[Rule]:
    """Return every property, as a worker knows them; PackerError where torch is not there."""
    wanted = Wanted(packer=RIGHT, device="cpu")
    with TemporaryDirectory(prefix="hooklaw-") as folder, _Hand(wanted, Path(folder) / "words") as hand:
        return hand.hello.rules


def _findings(run: Run, device: str) -> Findings:
    header = run.header
    declared = "".join(f", {name} {value}" for name, value in header.notes.items())
    of_the_machine = host.versions()
    packages = ", ".join(f"{name} {value}" for name, value in header.versions.items() if name not in of_the_machine)
    head = f"{header.backend} on {device} ({packages}{declared})"
    rows: list[Row] = []
    for rule in header.rules:
        if result := run.results.get(rule.id):
            entry = result.expectation
            known = entry.reason if entry and entry.reason != ALLOWED and result.outcome in entry.outcome else ""
            rows.append(row(rule, result, device, known))
    return Findings(head, rows, run.footer.seconds if run.footer else 0.0)


def row(rule: Rule, came: Result | Tried, device: str, known: str = "") -> Row:
    """Return what came of a property as a row."""
    return Row(
        property_id=rule.id,
        outcome=str(came.outcome),
        detail=came.detail,
        level=str(rule.level),
        statement=rule.statement,
        device=device,
        where=came.where,
        program=came.program,
        known=known,
    )


def choose(rules: Sequence[Rule], parts: Sequence[str]) -> list[Rule]:
    """Return the properties with one of these texts in their id; UnknownRuleError where a text is in none."""
    for part in parts:
        if not any(part in rule.id for rule in rules):
            raise UnknownRuleError(f"no property has {part!r} in its id: `hooklaw packer --list` shows them all")
    return [rule for rule in rules if not parts or any(part in rule.id for part in parts)]


def _record(recorder: Recorder, subject: Subject, rule: Rule, tried: Tried) -> None:
    if tried.outcome is Outcome.FAIL and rule.level is Level.SHOULD and rule.id not in subject.known:
        subject.known[rule.id] = Expectation(rule.id, [str(Outcome.FAIL)], ALLOWED)
    recorder.add(
        Execution(
            rule=rule.id,
            outcome=tried.outcome,
            detail=tried.detail,
            where=tried.where,
            duration=tried.seconds,
            program=tried.program,
        )
    )


class _Hand:
    """One worker after another: a new one takes over where a property ended the last."""

    def __init__(self, wanted: Wanted, file: Path) -> None:
        self._wanted, self._file = wanted, file
        self._process = self._start()
        self.hello = self._hello()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            _pipe(self._process.stdin).close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        _pipe(self._process.stdout).close()

    def _start(self) -> "subprocess.Popen[str]":
        wanted = self._wanted
        settings = [wanted.packer, wanted.device, str(self._file), str(wanted.limit), str(wanted.examples)]
        command = [sys.executable, "-P", "-m", "hooklaw.packing.worker", *settings]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, env=environment
        )

    def _hello(self) -> Hello:
        line = self._read()
        if isinstance(line, Fault):
            self.__exit__()
            raise PackerError(line.why)
        if not isinstance(line, Hello):
            self._process.wait()
            _, said, _ = last_words(self._file)
            raise PackerError(f"packer {self._wanted.packer!r} cannot be loaded: {said}")
        return line

    def run(self, rules: Sequence[Rule]) -> Iterator[tuple[Rule, Tried]]:
        """Yield what came of each property."""
        for rule in rules:
            tried = self._try(rule.id)
            if tried is None:  # the last property made this worker unfit for another
                self._replace()
                tried = self._try(rule.id)
            yield rule, tried or Tried(rule.id, Outcome.CRASH, "the process died before the property began")

    def _try(self, property_id: str) -> Tried | None:
        try:
            self._write(property_id)
        except OSError:
            return None
        line = self._read()
        if isinstance(line, Tried):
            return line
        self._process.wait()
        program = Path(f"{self._file}.program")
        if not program.exists():
            return None
        outcome, said, _ = last_words(self._file)
        text = program.read_text(encoding="utf-8")
        program.unlink()
        self._replace()
        return Tried(property_id, outcome, said, "", text)

    def _replace(self) -> None:
        self.__exit__()
        Path(f"{self._file}.program").unlink(missing_ok=True)
        self._process = self._start()
        self._hello()

    def _write(self, line: str) -> None:
        stream = _pipe(self._process.stdin)
        stream.write(line + "\n")
        stream.flush()

    def _read(self) -> Line | None:
        text = _pipe(self._process.stdout).readline()
        try:
            return msgspec.json.decode(text, type=Line) if text else None
        except msgspec.MsgspecError as error:
            raise HooklawError(f"a worker answered {text[:80]!r}, which is no result") from error


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # noqa: S101 - every worker is started with pipes
    return stream
