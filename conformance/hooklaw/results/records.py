"""Result records: one JSON object a line, a header and a footer around each run, so that a cut file is known as cut.

A file holds one run or several, each line naming its run, so files can be joined by plain concatenation.
`record.schema.json` beside this file is generated from the types below (`python -m hooklaw.results.records`).
"""

import errno
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from hooklaw.errors import OutputError, RecordConflictError, RecordFileError
from hooklaw.law.rule import Rule
from hooklaw.law.trace import Check, Event
from hooklaw.results.verdict import JUDGED, Expectation, Outcome, Stale, Verdict, judge

FORMAT = 1
SCHEMA = Path(__file__).with_name("record.schema.json")


class Header(msgspec.Struct, frozen=True, tag="header", tag_field="kind", kw_only=True):
    """The first line of a run: what is judged, by which rules, where and how."""

    hooklaw: int
    """The format's version."""
    run: str
    suite: str
    digest: str
    collected: int
    backend: str
    rules: list[Rule]
    versions: dict[str, str]
    notes: dict[str, str] = {}
    command: str
    started: str
    selection: str = ""
    """The -k expression, where only some rules were run."""
    not_run: str = ""
    """Why this machine could run nothing of it."""


class Execution(msgspec.Struct, frozen=True, tag="execution", tag_field="kind", kw_only=True):
    """What one rule did when it was executed."""

    rule: str
    outcome: Outcome
    detail: str = ""
    where: str = ""
    """The source line of the failure, of the crash, or of the call that never returned."""
    duration: float = 0.0
    """Seconds, the harness left out."""
    expected: list[Event] = []
    observed: list[Event] = []
    checks: list[Check] = []
    difference: int | None = None
    """Where the observed events leave the expected ones, counted from 0."""
    program: str = ""
    """A program that shows what does not hold, ready to run, where there is one."""
    stderr: str = ""
    """The last lines that the process wrote to stderr before it died."""


class Result(Execution, frozen=True, tag="result", tag_field="kind", kw_only=True):
    """What one rule did in a run, and what was known of it."""

    run: str
    expectation: Expectation | None = None


class Footer(msgspec.Struct, frozen=True, tag="footer", tag_field="kind", kw_only=True):
    """The last line of a run that came to its end."""

    run: str
    results: int
    seconds: float
    stale: list[Stale] = []
    interrupted: bool = False


class Cell(msgspec.Struct, frozen=True, tag="cell", tag_field="kind", kw_only=True):
    """What one offload strategy costs in one workload, on one device."""

    run: str
    workload: str
    device: str
    setting: str = ""
    """Precision and batch, e.g. ``fp32, batch 256``."""
    strategy: str
    """``none`` is the plain step, which the others are held against."""
    text: str = ""
    """One line on the strategy."""
    outcome: Outcome
    """Fail: wrong gradients or buffers. Error, crash, timeout: there are no figures, or not all of them."""
    detail: str = ""
    """Why the cell is marked."""
    lossless: bool = True
    lawful: bool | None = None
    """What the law of packers says of it; None where nobody asked."""
    rounds: int = 0
    step: float = 0.0
    """Seconds, the median of the rounds; forward and backward likewise."""
    forward: float = 0.0
    backward: float = 0.0
    ratio: float = 0.0
    """The median over the rounds of this step through the plain step of the same round."""
    ratio_q1: float = 0.0
    ratio_q3: float = 0.0
    peak: int = 0
    """Bytes at most on the device above what stands there before the step."""
    after_forward: int = 0
    static: int = 0
    """Bytes that stand on the device before the step: parameters, buffers, the batch."""
    reserved: int = 0
    """CUDA's reserved memory at most."""
    host: int = 0
    """Bytes of host memory, or of a file, held for saved tensors at most."""
    packs: int = 0
    packed: int = 0
    """Bytes that autograd handed over."""
    out: int = 0
    """Bytes moved away in forward; back, those that came back."""
    back: int = 0
    deduplicated: int = 0
    """Bytes handed over more than once, and moved once."""
    rate: float = 0.0
    """Bytes a second both ways, over the whole step: a step that only waits for the medium comes near the ceiling."""
    ceiling: float = 0.0
    """Bytes a second that the medium gives to one long copy each way, measured in the same run."""
    floor: float = 0.0
    """Seconds that the step takes at least, out of the plain step's and the ceiling."""
    efficiency: float = 0.0
    """The floor through the step."""
    error: float = 0.0
    """The norm of the gradients' difference from the plain step's, through the norm of these."""
    error64: float = 0.0
    """The same against float64; plain_error64 is the plain step's own."""
    plain_error64: float = 0.0
    buffers_equal: bool = True
    """Whether the model's buffers are what the plain step leaves."""


Line = Header | Result | Cell | Footer


class Run(msgspec.Struct):
    """One run as read back."""

    header: Header
    results: dict[str, Result]
    footer: Footer | None
    file: str = ""
    cells: list[Cell] = []
    """What a benchmark measured; there are rules or cells in a run, not both."""

    @property
    def done(self) -> int:
        """Return how much of what was collected has come to something."""
        return len(self.results) + len(self.cells)

    @property
    def complete(self) -> bool:
        """Tell whether the run came to its end with a result for every rule, or a figure for every cell."""
        ended = self.footer is not None and not self.footer.interrupted
        return ended and self.done == self.header.collected

    def outcome(self, rule: str) -> Outcome:
        """Return the outcome of a rule; one that has no result was not run."""
        return self.results[rule].outcome if rule in self.results else Outcome.NOT_RUN

    def verdict(self, rule: Rule) -> Verdict:
        """Return the verdict of a rule."""
        result = self.results.get(rule.id)
        return judge(result.outcome, rule.level, result.expectation) if result else Verdict.AS_EXPECTED

    def count(self) -> tuple[int, int]:
        """Return how many rules passed, of how many that were judged."""
        outcomes = [result.outcome for result in self.results.values()]
        return outcomes.count(Outcome.PASS), sum(one in JUDGED for one in outcomes)


class Writer:
    """Writes a record file line by line, each flushed, so that what was recorded survives whatever comes next.

    Unless it appends, it empties the file with its first line, not before: a run that never starts loses nothing.
    """

    def __init__(self, path: Path, *, append: bool = False) -> None:
        self.path = path
        self._fresh = not append
        self._full = False
        try:
            make_room(path)
            self._file = path.open("ab")
        except OSError as error:
            raise OutputError(
                f"cannot write the results to {path}: {error.strerror}; name another file with --results=FILE",
            ) from error

    def write(self, line: Line) -> None:
        """Append one line and hand it to the operating system."""
        if self._full:
            return
        try:
            if self._fresh:
                self._file.truncate(0)
                self._fresh = False
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            self._full = True
            raise OutputError(f"cannot write the results to {self.path} any further: {error.strerror}") from error

    def close(self) -> None:
        """Close the file, on disk; one that was made and never written to is taken away again."""
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


def make_room(path: Path) -> None:
    """Make the folder of a file that is to be written; OSError where no such file can be."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    if not path.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if path.exists() and not path.is_file():  # a device or a pipe is neither emptied nor taken away
        raise OSError(errno.EINVAL, "Is a directory" if path.is_dir() else "Not a regular file")


def replace_file(path: Path, text: str) -> None:
    """Put the text in place of the file, whole or not at all; OSError where it cannot be written."""
    part = path.parent / f".{path.name}.{os.getpid()}"
    try:
        make_room(path)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def read(path: Path, *, incomplete: bool = False) -> list[Run]:
    """Read the runs of one file.

    Raises RecordFileError where the file is absent, empty, foreign, newer than this hooklaw or damaged, and, unless
    `incomplete` is asked for, where a run has no footer or fewer results than rules collected.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordFileError(f"cannot read {path}: {error.strerror}") from error
    if not data.strip():
        raise RecordFileError(f"{path} is empty: the run that was to write it never started; run it again")
    runs = _assemble(path, data, incomplete=incomplete)
    for run in runs:
        if not incomplete and not run.complete:
            raise RecordFileError(_incomplete(path, run))
    return runs


def read_all(paths: Sequence[Path], *, incomplete: bool = False) -> list[Run]:
    """Read several files and refuse runs that cannot stand side by side (RecordConflictError)."""
    runs = [run for path in paths for run in read(path, incomplete=incomplete)]
    first: dict[str, Run] = {}
    for run in runs:
        name = run.header.backend
        if any(other.header.run == run.header.run for other in runs if other is not run):
            raise RecordConflictError(f"run {run.header.run} of {name!r} is given twice: name each file once")
        if name in first and first[name].header.digest != run.header.digest:
            raise RecordConflictError(
                f"{first[name].file} and {run.file} both judge {name!r}, by different rules: "
                "run it again with one hooklaw and one selection, or leave one file out",
            )
        first.setdefault(name, run)
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
        cut = number == len(lines)  # a whole line ends in a newline, so nothing follows the last one
        try:
            line = msgspec.json.decode(text, type=Line)
        except msgspec.MsgspecError as error:
            if cut and incomplete and runs:
                break
            raise RecordFileError(_damaged(f"{path}:{number}", text, error, cut=cut, begun=bool(runs))) from error
        _place(path, number, line, runs)
    for run in runs.values():
        if strangers := run.results.keys() - {rule.id for rule in run.header.rules}:
            raise RecordFileError(f"{path}: rule {min(strangers)!r} has a result, but no place in its run's header")
    return list(runs.values())


def _place(path: Path, number: int, line: Line, runs: dict[str, Run]) -> None:
    if isinstance(line, Header):
        if line.hooklaw > FORMAT:
            raise RecordFileError(_newer(str(path), line.hooklaw))
        if line.run in runs:
            raise RecordFileError(f"{path}:{number}: run {line.run} has two headers: was the file joined to itself?")
        runs[line.run] = Run(line, {}, None, str(path))
        return
    if line.run not in runs:
        raise RecordFileError(
            f"{path}:{number}: a {_kind(line)} of run {line.run}, which has no header: the file is cut"
        )
    if isinstance(line, Footer):
        runs[line.run].footer = line
    elif isinstance(line, Cell):
        if any(key_of(line) == key_of(other) for other in runs[line.run].cells):
            name = " ".join(filter(None, key_of(line)))
            raise RecordFileError(f"{path}:{number}: the cell {name!r} stands twice in run {line.run}")
        runs[line.run].cells.append(line)
    elif line.rule in runs[line.run].results:
        raise RecordFileError(f"{path}:{number}: rule {line.rule!r} has two results in run {line.run}")
    else:
        runs[line.run].results[line.rule] = line


def key_of(cell: Cell) -> tuple[str, str, str, str]:
    """Return what tells a cell from the others of its run."""
    return cell.workload, cell.device, cell.setting, cell.strategy


def _kind(line: Line) -> str:
    return type(line).__name__.lower()


def _newer(place: str, found: int) -> str:
    return f"{place} has format {found}, this hooklaw reads up to {FORMAT}: update hooklaw"


def _damaged(place: str, text: bytes, error: Exception, *, cut: bool, begun: bool) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        found: Any = value.get("hooklaw")  # pyright: ignore[reportUnknownMemberType]
        if isinstance(found, int) and found > FORMAT:
            return _newer(place, found)
        if "kind" in value:
            return f"{place}: not a line this hooklaw understands ({error}): it is damaged or from a newer one"
    if begun and not cut:
        return f"{place}: the line is damaged: run it again"
    if begun:
        return f"{place}: the file breaks off in the middle of a line: the run did not end; run it again"
    return f"{place}: this is no hooklaw record: give a file that `hooklaw run --results=FILE` wrote"


def _incomplete(path: Path, run: Run) -> str:
    have, want = run.done, run.header.collected
    why = "is incomplete" if run.footer else "did not end"
    if run.footer and run.footer.interrupted:
        why = "was interrupted"
    what = "rules have a result" if run.header.rules else "cells are measured"
    return f"{path}: the run of {run.header.backend!r} {why}, {have} of {want} {what}: run it again"


def write_schema(path: Path = SCHEMA) -> None:
    """Write the schema file."""
    path.write_text(json.dumps(schema(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def rules_of(runs: Iterable[Run]) -> list[Rule]:
    """Return every rule that any run judged, in the order of the first run that has it."""
    found: dict[str, Rule] = {}
    for run in runs:
        for rule in run.header.rules:
            found.setdefault(rule.id, rule)
    return list(found.values())


if __name__ == "__main__":
    write_schema()
