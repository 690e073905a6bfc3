"""Records: one JSON object a line, with a header and a footer around each run, so that a truncated file is noticed.

Each line names its run, so a file can hold several runs, and files can be concatenated.
`record.schema.json` in this folder is generated from the types below (`python -m hooklaw.results.records`).
"""

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import msgspec

from hooklaw.errors import OutputError, RecordConflictError, RecordFileError
from hooklaw.law.rule import Rule
from hooklaw.law.trace import Check, Event
from hooklaw.results.output import make_room, output_errors
from hooklaw.results.text import encoded
from hooklaw.results.verdict import JUDGED, Expectation, Outcome, Stale, Verdict, judge

FORMAT = 2
SCHEMA = Path(__file__).with_name("record.schema.json")


class RunKind(StrEnum):
    """What a run is about."""

    RULES = "rules"
    PACKER = "packer"
    BENCHMARK = "benchmark"


class Shard(msgspec.Struct, frozen=True):
    """Which part of a run a shard is."""

    number: int
    """From 1 on."""
    count: int
    digest: str
    """The digest of the rules of all shards."""
    places: list[int]
    """The place of each of this shard's rules among the rules of all shards."""

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


class Header(msgspec.Struct, frozen=True, tag="header", tag_field="kind", kw_only=True):
    """The first line of a run: the backend, the rules, the machine and the command."""

    hooklaw: int
    """The format's version."""
    run: str
    suite: str
    digest: str
    collected: int
    run_kind: RunKind = RunKind.RULES
    backend: str
    """The backend, the packer as module:attribute, or nothing for a benchmark."""
    device: str = ""
    """What the run was on: the device's type, or for a packer or a benchmark the device as asked for."""
    condition: str = ""
    """The condition under which the rules ran, if any."""
    expectations: str = ""
    """The expectation file that the run was judged by: a shipped one by its stem, any other by its file name."""
    rules: list[Rule]
    versions: dict[str, str]
    notes: dict[str, str] = {}
    command: str
    started: str
    selection: str = ""
    """The -k expression, if only some rules were run."""
    shard: Shard | None = None
    """Which shard of a run this is, if it is not whole."""
    not_run: str = ""
    """Why this machine could not run the backend."""

    @property
    def version(self) -> str:
        """What was judged in which version, e.g. ``torch 2.13.0``."""
        return " ".join(next(iter(self.versions.items()), ("", "")))

    @property
    def subject(self) -> str:
        """The name of what was judged; the device follows where it is not the CPU, then the condition."""
        if self.run_kind is RunKind.BENCHMARK:
            return self.device
        own = self.run_kind is RunKind.RULES or self.device in {"", "cpu"}  # a backend's name says its device
        device = "" if own else f":{self.device}"
        return self.backend + device + (f" under {self.condition}" if self.condition else "")

    @property
    def title(self) -> str:
        """The subject, with a prefix where it is not a backend."""
        prefix = {RunKind.RULES: "", RunKind.PACKER: "packer:", RunKind.BENCHMARK: "bench:"}[self.run_kind]
        return prefix + self.subject


class Execution(msgspec.Struct, frozen=True, tag="execution", tag_field="kind", kw_only=True):
    """The outcome of one rule on one backend."""

    rule: str
    outcome: Outcome
    detail: str = ""
    where: str = ""
    """The source line of the failure, of the crash, or of the call that never returned."""
    duration: float = 0.0
    """Seconds, without the harness."""
    expected: list[Event] = []
    observed: list[Event] = []
    checks: list[Check] = []
    difference: int | None = None
    """Index of the first event that differs from the expected one."""
    program: str = ""
    """A program that shows the failure, ready to run, if there is one."""
    stderr: str = ""
    """The last lines that the process wrote to stderr before it died."""

    @property
    def seen(self) -> str:
        """What an expectation's phrases are looked for in; of a rule that ended its process also the outcome."""
        return "\n".join([self.detail, self.stderr, "" if self.outcome is Outcome.FAIL else self.outcome])


class Result(Execution, frozen=True, tag="result", tag_field="kind", kw_only=True):
    """An execution as a run records it, with what was expected."""

    run: str
    expectation: Expectation | None = None


class Footer(msgspec.Struct, frozen=True, tag="footer", tag_field="kind", kw_only=True):
    """The last line of a run that ended."""

    run: str
    results: int
    seconds: float
    stale: list[Stale] = []
    interrupted: bool = False


COPIES = ("out", "back")
"""The lanes of a timeline that are copies."""


class Cell(msgspec.Struct, frozen=True, tag="cell", tag_field="kind", kw_only=True):
    """The cost of one offload strategy in one workload, on one device."""

    run: str
    workload: str
    device: str
    setting: str = ""
    """Precision and batch, e.g. ``fp32, batch 256``."""
    strategy: str
    """``none`` is the plain step, the baseline of the others."""
    text: str = ""
    """A line about the strategy."""
    packer: str = ""
    """The strategy's packer as module:attribute, where it has one."""
    outcome: Outcome
    """Fail: wrong gradients or buffers. Error, crash, timeout: some or all figures are missing."""
    detail: str = ""
    """Why the outcome is not pass."""
    lossless: bool = True
    lawful: bool | None = None
    """Whether it keeps the law of packers; None if it was not judged."""
    rounds: int = 0
    step: float = 0.0
    """Seconds, the median of the rounds; forward and backward likewise."""
    forward: float = 0.0
    backward: float = 0.0
    ratio: float = 0.0
    """The median over the rounds of the ratio of this step to the plain step of the same round."""
    ratio_q1: float = 0.0
    ratio_q3: float = 0.0
    peak: int = 0
    """Peak bytes on the device, above those allocated before the step."""
    after_forward: int = 0
    static: int = 0
    """Bytes allocated on the device before the step: parameters, buffers, the batch."""
    reserved: int = 0
    """Peak of CUDA's reserved memory."""
    host: int = 0
    """Peak bytes of host memory, or of a file, that hold saved tensors."""
    packs: int = 0
    packed: int = 0
    """Bytes that autograd passed to the pack hook."""
    out: int = 0
    """Bytes moved out in forward; `back` counts the bytes moved back."""
    back: int = 0
    deduplicated: int = 0
    """Bytes packed more than once but moved once."""
    rate: float = 0.0
    """Bytes a second both ways, over the whole step; near the ceiling if the step only waits for the medium."""
    ceiling: float = 0.0
    """Bytes a second of one long copy each way, measured in the same run."""
    floor: float = 0.0
    """The least seconds of the step, computed from the plain step and the ceiling."""
    efficiency: float = 0.0
    """The ratio of the floor to the step."""
    error: float = 0.0
    """The norm of the gradients' difference from the plain step's gradients, relative to the norm of those."""
    error64: float = 0.0
    """The same against float64; `plain_error64` is that of the plain step."""
    plain_error64: float = 0.0
    buffers_equal: bool = True
    """Whether the model's buffers equal those after the plain step."""
    timeline: dict[str, list[tuple[float, float]]] = {}
    """When a CUDA device did `compute` and copied `out` and `back` in one step: spans in seconds since it began."""

    @property
    def copy_rate(self) -> float:
        """Bytes a second while a copy was under way; near the ceiling if copies wait for nothing but the link."""
        seconds = sum(end - start for lane in COPIES for start, end in self.timeline.get(lane, []))
        return (self.out + self.back) / seconds if seconds else 0.0

    @property
    def hidden(self) -> float:
        """The share of the time of copies in which the device computed too."""
        copies = [span for lane in COPIES for span in self.timeline.get(lane, [])]
        whole = sum(end - start for start, end in copies)
        shared = sum(
            max(0.0, min(end, other_end) - max(start, other_start))
            for start, end in copies
            for other_start, other_end in self.timeline.get("compute", [])
        )
        return shared / whole if whole else 0.0


Line = Header | Result | Cell | Footer


class Run(msgspec.Struct):
    """A run, read from a file."""

    header: Header
    results: dict[str, Result]
    footer: Footer | None
    file: str = ""
    cells: list[Cell] = []
    """The results of a benchmark; a run has results or cells, not both."""

    @property
    def done(self) -> int:
        """Return the number of results or cells."""
        return len(self.results) + len(self.cells)

    @property
    def interrupted(self) -> bool:
        """Whether the run says of itself that it was interrupted."""
        return self.footer is not None and self.footer.interrupted

    @property
    def complete(self) -> bool:
        """Whether the run ended with a result for every rule, or all cells."""
        return self.footer is not None and not self.interrupted and self.done == self.header.collected

    @property
    def stale(self) -> list[Stale]:
        """Return the stale entries of the expectation file."""
        return self.footer.stale if self.footer else []

    def outcome(self, rule: str) -> Outcome:
        """Return the outcome of a rule, not-run if it has no result."""
        return self.results[rule].outcome if rule in self.results else Outcome.NOT_RUN

    def verdict(self, rule: Rule) -> Verdict:
        """Return the verdict of a rule."""
        result = self.results.get(rule.id)
        return judge(result.outcome, rule.level, result.expectation, result.seen) if result else Verdict.AS_EXPECTED

    def count(self) -> tuple[int, int]:
        """Return how many rules passed and how many were judged."""
        outcomes = [result.outcome for result in self.results.values()]
        return outcomes.count(Outcome.PASS), sum(outcome in JUDGED for outcome in outcomes)


def encode(line: Line) -> bytes:
    """Return a line as a file holds it."""
    return encoded(line) + b"\n"


class Writer:
    """Writes a record file and flushes each line, so that it survives a crash.

    Unless `append` is set, the first line replaces the old file; a run that never starts leaves it as it is.
    """

    def __init__(self, path: Path, *, append: bool = False) -> None:
        self.path = path
        self._fresh = not append
        self._full = False
        with output_errors(f"write the results to {path}", "; name another file with --results=FILE"):
            make_room(path)
            self._file = path.open("ab")

    def write(self, line: Line) -> None:
        """Append one line and flush it."""
        if self._full:
            return
        try:
            if self._fresh:
                self._file.truncate(0)
                self._fresh = False
            self._file.write(encode(line))
            self._file.flush()
        except OSError as error:
            self._full = True
            raise OutputError(f"cannot write more results to {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Sync and close the file; remove it if it is empty."""
        if self._full:
            with suppress(OSError):
                self._file.close()
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if not self.path.stat().st_size:
                self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path, *, incomplete: bool = False) -> list[Run]:
    """Return the runs of one file.

    Raises RecordFileError if the file is absent, empty, foreign, damaged or newer than this hooklaw. Unless
    `incomplete` is set, a run without a footer or with fewer results than rules collected is an error too.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordFileError(f"cannot read {path}: {error.strerror}") from error
    if not data.strip():
        raise RecordFileError(f"{path} is empty: its run never started; run it again")
    runs = _assemble(path, data, incomplete=incomplete)
    for run in runs:
        if not incomplete and not run.complete:
            raise RecordFileError(_incomplete(path, run))
    return runs


def read_all(paths: Sequence[Path], *, incomplete: bool = False) -> list[Run]:
    """Return the runs of several files; RecordConflictError if two cannot be compared."""
    runs = _runs(paths, incomplete=incomplete)
    first: dict[str, Run] = {}
    for run in runs:
        name = run.header.title
        if name in first and (first[name].header.shard or run.header.shard):
            raise RecordConflictError(
                f"{first[name].file} and {run.file} hold shards of {name!r}: join them by `hooklaw merge`",
            )
        if name in first and first[name].header.digest != run.header.digest:
            raise RecordConflictError(
                f"{first[name].file} and {run.file} both judge {name!r}, but by different rules: "
                "run it again with one hooklaw and one selection, or leave one file out",
            )
        first.setdefault(name, run)
    return runs


def read_parts(paths: Sequence[Path]) -> list[Run]:
    """Return the runs of several files, which may be shards; RecordConflictError if a run is given twice."""
    return _runs(paths, incomplete=False)


def _runs(paths: Sequence[Path], *, incomplete: bool) -> list[Run]:
    runs = [run for path in paths for run in read(path, incomplete=incomplete)]
    known: dict[str, Run] = {}
    for run in runs:
        if known.setdefault(run.header.run, run) is not run:
            raise RecordConflictError(
                f"run {run.header.run} of {run.header.title!r} is given twice: name each file once"
            )
    return runs


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one line."""
    made = msgspec.json.schema(Line)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a hooklaw record",
        **made,
    }


def _assemble(path: Path, data: bytes, *, incomplete: bool) -> list[Run]:
    runs: dict[str, Run] = {}
    lines = data.split(b"\n")
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        cut = number == len(lines)  # a complete last line ends in a newline
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.MsgspecError, RecursionError) as error:
            if cut and incomplete and runs:
                break
            raise RecordFileError(_damaged(f"{path}:{number}", text, error, cut=cut, begun=bool(runs))) from error
        _place(path, number, line, runs)
    for run in runs.values():
        if strangers := run.results.keys() - {rule.id for rule in run.header.rules}:
            raise RecordFileError(f"{path}: rule {min(strangers)!r} has a result, but is not in the header of its run")
    return list(runs.values())


def _place(path: Path, number: int, line: Line, runs: dict[str, Run]) -> None:
    if isinstance(line, Header):
        if line.hooklaw > FORMAT:
            raise RecordFileError(_newer(str(path), line.hooklaw))
        if line.run in runs:
            raise RecordFileError(f"{path}:{number}: run {line.run} has two headers: was the file joined to itself?")
        runs[line.run] = Run(_in_this_format(line), {}, None, str(path))
        return
    if line.run not in runs:
        raise RecordFileError(
            f"{path}:{number}: a {_kind(line)} of run {line.run}, which has no header: the file is truncated"
        )
    if isinstance(line, Footer):
        runs[line.run].footer = line
    elif isinstance(line, Cell):
        if any(key_of(line) == key_of(other) for other in runs[line.run].cells):
            name = " ".join(filter(None, key_of(line)))
            raise RecordFileError(f"{path}:{number}: cell {name!r} occurs twice in run {line.run}")
        runs[line.run].cells.append(line)
    elif line.rule in runs[line.run].results:
        raise RecordFileError(f"{path}:{number}: rule {line.rule!r} has two results in run {line.run}")
    else:
        runs[line.run].results[line.rule] = line


def _in_this_format(header: Header) -> Header:
    """Return the header of a file of format 1, which named the kind of run by a prefix, as format 2 has it."""
    kind, _, rest = header.backend.partition(":")
    if header.hooklaw == FORMAT or kind not in {"packer", "bench"}:
        return header
    if kind == "bench":
        return msgspec.structs.replace(header, run_kind=RunKind.BENCHMARK, backend="", device=rest)
    module, attribute, device = [*rest.split(":", 2), "cpu"][:3]
    return msgspec.structs.replace(header, run_kind=RunKind.PACKER, backend=f"{module}:{attribute}", device=device)


def key_of(cell: Cell) -> tuple[str, str, str, str]:
    """Return the fields that identify a cell in its run."""
    return cell.workload, cell.device, cell.setting, cell.strategy


def _kind(line: Line) -> str:
    return type(line).__name__.lower()


def _newer(place: str, found: int) -> str:
    return f"{place} has format {found}, this hooklaw reads up to {FORMAT}: update hooklaw"


def _damaged(place: str, text: bytes, error: Exception, *, cut: bool, begun: bool) -> str:
    if isinstance(error, RecursionError):
        return f"{place}: the line is nested too deeply for a record: run it again"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        found: Any = value.get("hooklaw")  # pyright: ignore[reportUnknownMemberType]
        if isinstance(found, int) and found > FORMAT:
            return _newer(place, found)
        if "kind" in value:
            return f"{place}: this hooklaw cannot read the line ({error}): it is damaged or from a newer hooklaw"
    if begun and not cut:
        return f"{place}: the line is damaged: run it again"
    if begun:
        return f"{place}: the file ends in the middle of a line: the run did not end; run it again"
    return f"{place}: not a hooklaw record: name a file that `hooklaw run --results=FILE` wrote"


def _incomplete(path: Path, run: Run) -> str:
    have, want = run.done, run.header.collected
    why = "is incomplete" if run.footer else "did not end"
    if run.interrupted:
        why = "was interrupted"
    what = "rules have a result" if run.header.rules else "cells are measured"
    return f"{path}: the run of {run.header.title!r} {why}, {have} of {want} {what}: run it again"


def write_schema(path: Path = SCHEMA) -> None:
    """Write the schema file."""
    path.write_text(json.dumps(schema(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def rules_of(runs: Iterable[Run]) -> list[Rule]:
    """Return the rules of all runs, each once, in the order of the first run that has it."""
    found: dict[str, Rule] = {}
    for run in runs:
        for rule in run.header.rules:
            found.setdefault(rule.id, rule)
    return list(found.values())


if __name__ == "__main__":
    write_schema()
