"""Annotations: workflow commands by which GitHub marks a line of the expectation file in a pull request."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from hooklaw.cli.summary import needing_a_look
from hooklaw.results.records import Run
from hooklaw.results.text import printable

MOST = 10
"""GitHub shows so many errors of a step, and so many warnings."""
SKIPPED = {"node_modules", "site-packages"}


class Annotation(msgspec.Struct, frozen=True):
    """A message at a line of a file; `kind` is error or warning."""

    kind: str
    title: str
    message: str
    file: str
    line: int

    def command(self, where: str) -> str:
        """Return the workflow command; `where` is the file's path in the repository, or nothing."""
        place = {"file": where, "line": str(self.line or 1)} if where else {}
        parts = ",".join(f"{key}={_property(value)}" for key, value in ({**place, "title": self.title}).items())
        return f"::{self.kind} {parts}::{_data(self.message)}"


def annotations(runs: Sequence[Run], root: Path, given: str = "") -> list[str]:
    """Return the commands for all that is not as expected, as many of each kind as GitHub shows.

    `root` is the repository's folder, `given` the expectation file of the command line.
    """
    found = [each for run in runs for each in _of(run)]
    lines: list[str] = []
    for kind in ("error", "warning"):
        of_kind = [each for each in found if each.kind == kind]
        left = len(of_kind) - MOST
        for place, each in enumerate(of_kind[:MOST]):
            more = f" (and {left} more)" if left > 0 and place == MOST - 1 else ""
            shown = msgspec.structs.replace(each, message=each.message + more)
            lines.append(shown.command(_in_repository(each.file, root, given)))
    return lines


def _of(run: Run) -> Iterator[Annotation]:
    for what, rule, result in needing_a_look(run):
        known, subject = result.expectation, run.header.subject
        file, line = (known.file, known.line) if known else (run.header.expectations, 1)
        title = f"{rule.id} ({rule.level}) on {subject}: {what}"
        if what == "fixed":
            yield Annotation("warning", title, "the rule holds now: remove the entry", file, line)
        else:
            yield Annotation("error", title, result.detail or what, file, line)
    for entry in run.stale:
        title = f"stale entry on {run.header.subject}"
        yield Annotation("warning", title, f"the entry for {entry.rule} {entry.why}", entry.file, entry.line)


def _in_repository(file: str, root: Path, given: str) -> str:
    """Return the path below the root of a file of which a record names the last folders."""
    tail = PurePosixPath(file).parts
    if not tail:
        return ""
    candidates = [Path(given).absolute()] if given and Path(given).name == tail[-1] else []
    candidates += [Path(root, *tail[start:]) for start in range(len(tail))]
    for path in (*candidates, *_walk(root, tail)):
        if path.is_file() and path.resolve().is_relative_to(root.resolve()):
            return path.resolve().relative_to(root.resolve()).as_posix()
    return ""


def _walk(root: Path, tail: Sequence[str]) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED]
        path = Path(folder, tail[-1])
        if tail[-1] in files and path.parts[-len(tail) :] == tuple(tail):
            yield path


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
