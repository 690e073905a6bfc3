"""What `hooklaw fuzz` prints: each finding in full if it is new, in a line if it is known, and the count."""

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from hooklaw.fuzz.campaign.findings import Book, Finding, plain
from hooklaw.fuzz.program import Program
from hooklaw.fuzz.program import text as text_of
from hooklaw.fuzz.replay.run import Event
from hooklaw.law.rule import Rule
from hooklaw.results.summary import counted

AROUND = 2
"""How many events are shown before and after the first that differs."""
FEW = 5
"""How many numbers of programs are named."""
UNNAMED = "not named yet: an entry in the findings file names it, or says that the documentation is silent"


class Ran(msgspec.Struct):
    """A run, what it found left out."""

    backend: str
    versions: dict[str, str]
    seed: int | None
    seconds: float
    cpu: float
    stopped: bool
    in_full: bool
    rules: dict[str, Rule]
    code: Callable[[Program], str] | None = None
    """How the backend writes a program that it replays in its own way."""


def text(run: Ran, book: Book) -> str:
    """Return the run for a person."""
    in_full = [one for one in book.findings.values() if run.in_full or not one.known]
    blocks = ["\n".join(_block(one, run)) for one in in_full]
    lines = [_line(one) for one in book.known if not run.in_full]
    return "\n".join([*(f"{block}\n" for block in blocks), *lines, *_more(run, book), _sum(run, book)]) + "\n"


def as_json(run: Ran, book: Book) -> str:
    """Return the run for a program."""
    made = {
        "backend": run.backend,
        "versions": run.versions,
        "seed": run.seed,
        "programs": book.programs,
        "seconds": round(run.seconds, 3),
        "cpu_seconds": round(run.cpu, 3),
        "known": len(book.known),
        "new": len(book.new),
        "undecided": book.undecided,
        "skipped": book.skipped,
        "not_replayed": dict(book.not_replayed),
        "stopped": run.stopped,
        "unshrunk": book.unshrunk,
        "findings": [_object(one, run) for one in book.findings.values()],
    }
    return json.dumps(made, indent=1) + "\n"


def _object(finding: Finding, run: Ran) -> dict[str, Any]:
    made = {name: getattr(finding, name) for name in finding.__struct_fields__}
    code = _code(finding, run.code) if run.in_full or not finding.known else ""
    return {name: plain(value) for name, value in made.items()} | {
        "seed": run.seed,
        "text": text_of(finding.program),
        "code": code,
    }


def _line(finding: Finding) -> str:
    issue = f" ({finding.issue})" if finding.issue else ""
    return f"known  {finding.count:6} x  {finding.fingerprint}: {finding.reason}{issue}"


def _block(finding: Finding, run: Ran) -> Iterator[str]:
    yield f"{'known' if finding.known else 'NEW'}  {finding.fingerprint}"
    yield from (f"  {name:9} {value}" for name, value in _facts(finding, run) if value)
    yield from _indented("program", text_of(finding.program))
    yield from _indented("code", _code(finding, run.code))
    yield from _indented("expected", _lane(finding.expected, finding.difference))
    yield from _indented("observed", _lane(finding.observed, finding.difference))


def _facts(finding: Finding, run: Ran) -> Iterator[tuple[str, str]]:
    yield "rule", finding.rule or UNNAMED
    if finding.rule in run.rules:
        yield "", run.rules[finding.rule].statement
    yield "reason", finding.reason
    yield "issue", finding.issue
    yield "note", finding.note
    where = f"line {finding.number}" if run.seed is None else f"seed {run.seed}, number {finding.number}"
    shrunk = f", {finding.shrunk_from} instructions before it was shrunk" if finding.shrunk else ""
    yield "found", f"{where}{shrunk}"
    yield "seen", f"in {counted(finding.count, 'program')}"


def _indented(name: str, block: str) -> Iterator[str]:
    if block:
        yield f"  {name}"
        yield from (f"    {line}" for line in block.splitlines())


def _code(finding: Finding, own: Callable[[Program], str] | None) -> str:
    """Return plain torch code that shows a finding."""
    events = finding.observed if finding.kind in ("differs", "flag") else None
    try:
        if own and events is not None:
            return own(finding.program)
        return importlib.import_module("hooklaw.fuzz.emit.code").code(finding.program, events)
    except Exception as error:  # noqa: BLE001 - a finding without its code is better than none
        return f"# none could be written: {type(error).__name__}: {error}"


def _lane(events: Sequence[Event], difference: int) -> str:
    """Return what is around the first event that differs, which is marked."""
    first = max(0, difference - AROUND)
    shown = [
        f"{'>' if place == difference else ' '} {_event(event)}"
        for place, event in enumerate(events[first : difference + AROUND + 1], start=first)
    ]
    before = [f"  ... {first} more"] if first else []
    after = [f"  ... {len(events) - difference - AROUND - 1} more"] if len(events) > difference + AROUND + 1 else []
    end = [f"> nothing{' more' if events else ''}"] if difference >= len(events) else []
    return "\n".join([*before, *shown, *end, *after])


def _event(event: Event) -> str:
    word, *rest = event
    return f"{word} {' '.join(map(str, rest))}".rstrip()


def _more(run: Ran, book: Book) -> Iterator[str]:
    if book.unshrunk:
        many = len(book.unshrunk)
        numbers = ", ".join([*map(str, book.unshrunk[:FEW]), *(["..."] if many > FEW else [])])
        yield f"NEW  not shrunk: {counted(many, 'more program')}, number {numbers}"
    for reason, many in book.not_replayed.most_common():
        yield f"skipped {many:5} x  {reason}"
    if run.stopped:
        yield "stopped early, since enough is new; --stop-after 0 goes on"


def _sum(run: Ran, book: Book) -> str:
    used = {"": run.seconds, " of CPU time": run.cpu}
    rates = ", ".join(f"{book.programs / one:.0f}/s{what}" for what, one in used.items() if one)
    new = len(book.new)
    why = "" if book.not_replayed else ", for the backend lacks what they need"
    parts = [
        f"{counted(book.programs, 'program')} on {run.backend} in {run.seconds:.1f} s ({rates})",
        counted(len(book.known), "known finding"),
        f"{new} new",
        f"{book.undecided} undecided",
        *([f"{book.skipped} skipped{why}"] if book.skipped else []),
    ]
    return ", ".join(parts)
