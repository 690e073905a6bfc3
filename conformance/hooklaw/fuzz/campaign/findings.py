"""Findings: what was found put together by fingerprint, each held against the file of known ones."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from hooklaw.fuzz.campaign import known_findings, minimize
from hooklaw.fuzz.campaign.known_findings import Known, follows
from hooklaw.fuzz.campaign.minimize import Least
from hooklaw.fuzz.campaign.schedule import Death, Hunt, Piece
from hooklaw.fuzz.campaign.tasks import NOT_REPLAYED, Found
from hooklaw.fuzz.judge.compare import Divergence, shown
from hooklaw.fuzz.judge.judge import engine
from hooklaw.fuzz.program import Program
from hooklaw.fuzz.replay.run import Event
from hooklaw.fuzz.shrink import skeleton

SHRUNK = 20
"""How many programs that no flag explains are shrunk at most."""
PART = 4
"""Of those that one process found, one in so many is shrunk: the shortest."""
HANGS = 3
"""How many programs may hang in a new way before a run is ended."""


class Finding(msgspec.Struct, kw_only=True):
    """One way in which a backend differs from the law."""

    fingerprint: str
    kind: str
    """``flag``, ``differs``, ``error``, ``crash`` or ``hang``."""
    known: bool = False
    rule: str = ""
    """The rule that is broken, "documentation silent", or nothing where nobody has said yet."""
    reason: str = ""
    issue: str = ""
    count: int = 0
    """How many programs show it."""
    number: int
    """Of the first program that shows it."""
    program: Program
    shrunk_from: int
    """How many instructions the program had."""
    shrunk: bool = False
    """Whether nothing can be left out of the program any more."""
    expected: list[Event] = []
    observed: list[Event] = []
    difference: int = 0
    """Where the observed events leave the expected ones, counted from 0."""
    note: str = ""


class _Example(NamedTuple):
    """The program that a flag's finding shows."""

    place: int
    found: Found


class Book:
    """The findings of a hunt."""

    def __init__(self, hunt: Hunt, entries: Sequence[Known], *, shrink: bool = True, in_full: bool = False) -> None:
        self._hunt = hunt
        self._entries = entries
        self._shrink = shrink
        self._in_full = in_full
        self._left = SHRUNK if shrink else 0
        self._at_once = max(1, hunt.many // PART)
        self._examples: dict[str, _Example] = {}
        self._patterns: dict[str, Sequence[str]] = {}
        """By which unshrunk programs that die are taken to die of the same, by fingerprint."""
        self.findings: dict[str, Finding] = {}
        self.unshrunk: list[int] = []
        """Numbers of programs that differ and were not looked at closer."""
        self.programs = self.undecided = self.skipped = 0
        self.not_replayed: Counter[str] = Counter()
        """How many programs the backend did not replay, by what it said."""

    @property
    def new(self) -> list[Finding]:
        """What is not known."""
        return [one for one in self.findings.values() if not one.known]

    @property
    def known(self) -> list[Finding]:
        """What is known."""
        return [one for one in self.findings.values() if one.known]

    def enough(self, stop_after: int) -> bool:
        """Tell whether so many new things were found, or so many programs hang, that the rest is not worth its time."""
        hangs = sum(one.count for one in self.new if one.kind == "hang")
        return bool(stop_after) and (len(self.new) + len(self.unshrunk) >= stop_after or hangs >= HANGS)

    def take(self, piece: Piece) -> None:
        """Put in what a process found."""
        self.programs += piece.stop - piece.start - piece.skipped
        self.undecided += piece.undecided
        self.skipped += piece.skipped
        self.not_replayed.update(one.said for one in piece.found if one.how == NOT_REPLAYED)
        judged = [one for one in piece.found if one.how != NOT_REPLAYED]
        for found in judged:
            for flag in sorted(found.flags):
                self._flag(flag, found)
        news = sorted((one for one in judged if not one.flags), key=lambda one: len(self._program(one.place)))
        for order, found in enumerate(news):
            self._news(found, closely=order < self._at_once)
        if piece.death:
            self._death(piece.death)

    def finish(self) -> None:
        """Put things in order, and shrink what shows a flag, where that is printed in full."""
        self.unshrunk.sort()
        for finding in self.findings.values():
            if finding.kind == "flag" and (self._in_full or not finding.known):
                place, found = self._examples[finding.fingerprint]
                self._show(finding, self._least(self._program(place), found) if self._shrink else None)

    def _program(self, place: int) -> Program:
        return self._hunt.programs.at(place)[1]

    def _flag(self, flag: str, found: Found) -> None:
        """Count a departure; the program shown is the first that needs no other, if there is one."""
        name = f"flag {flag}"
        first = name not in self.findings
        if first or (len(found.flags) == 1 < len(self._examples[name].found.flags)):
            self._examples[name] = _Example(found.place, found)
            count = 0 if first else self.findings[name].count
            finding = self._finding(name, "flag", found.place, self._program(found.place))
            self._judge(finding, next((one for one in self._entries if one.flag == flag), None))
            if not finding.known:
                finding.reason, finding.rule, finding.issue = known_findings.of_flag(flag)
            finding.count = count
            self.findings[name] = finding
            self._lanes(finding, found)
        self.findings[name].count += 1

    def _news(self, found: Found, *, closely: bool) -> None:
        program = self._program(found.place)
        if self._as_a_whole(found.how, found.place):
            return
        if self._shrink and (not closely or not self._left):
            self.unshrunk.append(self._hunt.programs.at(found.place)[0])
            return
        self._left -= 1
        least = self._least(program, found) if self._shrink else Least(program, again=True, found=found)
        finding = self._add(found.how, found.place, least)
        if finding and least.found:
            self._lanes(finding, least.found)

    def _least(self, program: Program, found: Found) -> Least:
        return minimize.of_found(self._hunt.held, program, found, self._hunt.limit)

    def _death(self, death: Death) -> None:
        """Shrink a program that ended its process, unless it is like one that was shrunk."""
        how, program = str(death.ending), self._program(death.place)
        for fingerprint, pattern in self._patterns.items():
            if fingerprint.startswith(f"{how}:") and follows(pattern, program, death.step):
                self.findings[fingerprint].count += 1
                return
        if self._as_a_whole(how, death.place):
            return
        if self._shrink and not self._left:
            self.unshrunk.append(self._hunt.programs.at(death.place)[0])
            return
        self._left -= 1
        least = Least(program, again=True, step=death.step)
        if self._shrink:
            least = minimize.of_death(self._hunt.held, program, death, self._hunt.limit)
        finding = self._add(how, death.place, least)
        if finding:
            entry = self._entry(finding.fingerprint, how, least.program, least.step)
            ops = [one.op for one in least.program[: least.step + 1]]
            self._patterns[finding.fingerprint] = entry.pattern if entry and entry.pattern else ops
            self._last_words(finding, least, how)

    def _as_a_whole(self, how: str, place: int) -> bool:
        """Count a program that the file names as it is, and tell whether it does."""
        program = self._program(place)
        fingerprint = f"{how}: {skeleton(program)}"
        entry = next((one for one in self._entries if fingerprint in one.also), None)
        if entry is None:
            return False
        if entry.fingerprint not in self.findings:
            finding = self._finding(entry.fingerprint, how.partition(" ")[0], place, program)
            self._judge(finding, entry)
            self.findings[entry.fingerprint] = finding
        self.findings[entry.fingerprint].count += 1
        return True

    def _add(self, how: str, place: int, least: Least) -> Finding | None:
        """Return a new finding; None where there is one of the same fingerprint, which is counted."""
        fingerprint = f"{how}: {skeleton(least.program)}"
        if fingerprint in self.findings:
            self.findings[fingerprint].count += 1
            return None
        finding = self._finding(fingerprint, how.partition(" ")[0], place, self._program(place))
        died_at = least.step if finding.kind in ("crash", "hang") else None
        entry = self._entry(fingerprint, how, least.program, died_at)
        finding.count = 1
        finding.program, finding.shrunk = least.program, self._shrink and least.again
        if not least.again:
            finding.note = "it did not happen again when the program was run by itself"
            entry = entry or self._fatal(least.program)
        self._judge(finding, entry)
        self.findings[fingerprint] = finding
        return finding

    def _entry(self, fingerprint: str, how: str, program: Program, died_at: int | None) -> Known | None:
        """Return the entry of the file that knows a finding, by its fingerprint or else by a pattern."""
        exact = (one for one in self._entries if fingerprint in (one.fingerprint, *one.also))
        alike = (one for one in self._entries if one.fits(how, program, died_at))
        return next(exact, None) or next(alike, None)

    def _fatal(self, program: Program) -> Known | None:
        """Return an entry by which a program is known to crash: one that reads foreign memory may survive it once."""
        crashes = ((entry, entry.fingerprint.partition(":")[0]) for entry in self._entries)
        return next((entry for entry, how in crashes if how.startswith("crash") and entry.fits(how, program)), None)

    def _finding(self, fingerprint: str, kind: str, place: int, program: Program) -> Finding:
        number = self._hunt.programs.at(place)[0]
        return Finding(fingerprint=fingerprint, kind=kind, number=number, program=program, shrunk_from=len(program))

    def _judge(self, finding: Finding, entry: Known | None) -> None:
        if entry:
            finding.known = True
            finding.rule, finding.issue, finding.reason = entry.rule, entry.issue, entry.reason

    def _show(self, finding: Finding, least: Least | None) -> None:
        if least and least.found:
            finding.program, finding.shrunk = least.program, least.again
            self._lanes(finding, least.found)

    def _lanes(self, finding: Finding, found: Found) -> None:
        """Note what was expected and what was observed."""
        if found.difference:
            divergence: Divergence = found.difference.divergence
            finding.expected, finding.observed = divergence.expected, found.difference.observed
            finding.difference = divergence.matched
        else:
            self._last_words(finding, Least(finding.program, again=True), f"{found.how}: {found.said}")

    def _last_words(self, finding: Finding, least: Least, how: str) -> None:
        """Note what the law expects of a program, and that nothing was to be seen of it."""
        finding.expected = shown(least.program, engine(()))
        where = f" at {least.program[least.step]}" if least.step < len(least.program) else ""
        finding.observed = [(f"the process died: {how}{where}" if finding.kind in ("crash", "hang") else how,)]
        finding.difference = 0


def plain(value: Any) -> Any:
    """Return what was seen in a form that JSON has: numbers that are none are words."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return value if not isinstance(value, float) or abs(value) < float("inf") else str(value)
