"""The output of `hooklaw fuzz`: each new finding in full, each known finding in a line, and the counts."""

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from hooklaw.fuzz.campaign.findings import Finding, Findings, plain
from hooklaw.fuzz.program import Program
from hooklaw.fuzz.program import text as text_of
from hooklaw.fuzz.replay.run import Event
from hooklaw.law.rule import Rule
from hooklaw.results.summary import counted

AROUND = 2
"""How many events are shown before and after the first that differs."""
FEW = 5
"""How many numbers of programs are printed."""
UNNAMED = "not named yet: add an entry to the findings file that names it, or says that the documentation is silent"


class Summary(msgspec.Struct):
    """A campaign without its findings."""

    backend: str
    versions: dict[str, str]
    seed: int | None
    seconds: float
    cpu: float
    stopped: bool
    in_full: bool
    rules: dict[str, Rule]
    code: Callable[[Program], str] | None = None
    """Writes the code of a program that the backend replays in its own way."""


def text(summary: Summary, findings: Findings) -> str:
    """Return the output as text."""
    in_full = [finding for finding in findings.values() if summary.in_full or not finding.known]
    blocks = ["\n".join(_block(finding, summary)) for finding in in_full]
    lines = [_line(finding) for finding in findings.known if not summary.in_full]
    return (
        "\n".join([*(f"{block}\n" for block in blocks), *lines, *_more(summary, findings), _total(summary, findings)])
        + "\n"
    )


def as_json(summary: Summary, findings: Findings) -> str:
    """Return the output as JSON."""
    made = {
        "backend": summary.backend,
        "versions": summary.versions,
        "seed": summary.seed,
        "programs": findings.programs,
        "seconds": round(summary.seconds, 3),
        "cpu_seconds": round(summary.cpu, 3),
        "known": len(findings.known),
        "new": len(findings.new),
        "undecided": findings.undecided,
        "skipped": findings.skipped,
        "not_replayed": dict(findings.not_replayed),
        "stopped": summary.stopped,
        "unshrunk": findings.unshrunk,
        "findings": [_object(finding, summary) for finding in findings.values()],
    }
    return json.dumps(made, indent=1) + "\n"


def _object(finding: Finding, summary: Summary) -> dict[str, Any]:
    made = {name: getattr(finding, name) for name in finding.__struct_fields__}
    code = _code(finding, summary.code) if summary.in_full or not finding.known else ""
    return {name: plain(value) for name, value in made.items()} | {
        "seed": summary.seed,
        "text": text_of(finding.program),
        "code": code,
    }


def _line(finding: Finding) -> str:
    issue = f" ({finding.issue})" if finding.issue else ""
    return f"known  {finding.count:6} x  {finding.fingerprint}: {finding.reason}{issue}"


def _block(finding: Finding, summary: Summary) -> Iterator[str]:
    yield f"{'known' if finding.known else 'NEW'}  {finding.fingerprint}"
    yield from (f"  {name:9} {value}" for name, value in _facts(finding, summary) if value)
    yield from _indented("program", text_of(finding.program))
    yield from _indented("code", _code(finding, summary.code))
    yield from _indented("expected", _lane(finding.expected, finding.difference))
    yield from _indented("observed", _lane(finding.observed, finding.difference))


def _facts(finding: Finding, summary: Summary) -> Iterator[tuple[str, str]]:
    yield "rule", finding.rule or UNNAMED
    if finding.rule in summary.rules:
        yield "", summary.rules[finding.rule].statement
    yield "reason", finding.reason
    yield "issue", finding.issue
    yield "note", finding.note
    where = f"line {finding.number}" if summary.seed is None else f"seed {summary.seed}, number {finding.number}"
    shrunk = f", {finding.shrunk_from} instructions before it was shrunk" if finding.shrunk else ""
    yield "found", f"{where}{shrunk}"
    yield "seen", f"in {counted(finding.count, 'program')}"


def _indented(name: str, block: str) -> Iterator[str]:
    if block:
        yield f"  {name}"
        yield from (f"    {line}" for line in block.splitlines())


def _code(finding: Finding, own: Callable[[Program], str] | None) -> str:
    """Return plain torch code that reproduces a finding."""
    events = finding.observed if finding.kind in ("differs", "flag") else None
    try:
        if own and events is not None:
            return own(finding.program)
        return importlib.import_module("hooklaw.fuzz.emit.code").code(finding.program, events)
    except Exception as error:  # noqa: BLE001 - a finding without code is better than no finding
        return f"# no code could be written: {type(error).__name__}: {error}"


def _lane(events: Sequence[Event], difference: int) -> str:
    """Return the events around the first that differs, which is marked."""
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


def _more(summary: Summary, findings: Findings) -> Iterator[str]:
    if findings.unshrunk:
        many = len(findings.unshrunk)
        numbers = ", ".join([*map(str, findings.unshrunk[:FEW]), *(["..."] if many > FEW else [])])
        yield f"NEW  not shrunk: {counted(many, 'more program')}, number {numbers}"
    for reason, many in findings.not_replayed.most_common():
        yield f"skipped {many:5} x  {reason}"
    if summary.stopped:
        yield "stopped early, since enough is new; --stop-after 0 does not stop"


def _total(summary: Summary, findings: Findings) -> str:
    used = {"": summary.seconds, " of CPU time": summary.cpu}
    rates = ", ".join(f"{findings.programs / seconds:.0f}/s{what}" for what, seconds in used.items() if seconds)
    new = len(findings.new)
    why = "" if findings.not_replayed else ", since the backend lacks what they need"
    parts = [
        f"{counted(findings.programs, 'program')} on {summary.backend} in {summary.seconds:.1f} s ({rates})",
        counted(len(findings.known), "known finding"),
        f"{new} new",
        f"{findings.undecided} undecided",
        *([f"{findings.skipped} skipped{why}"] if findings.skipped else []),
    ]
    return ", ".join(parts)
