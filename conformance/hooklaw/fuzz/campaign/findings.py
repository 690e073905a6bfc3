"""Findings of a campaign: its anomalies and deaths, minimized, grouped by fingerprint and held against known ones."""

from collections import Counter
from typing import Any

import msgspec

from hooklaw.fuzz.campaign import _minimize, known_findings
from hooklaw.fuzz.campaign._minimize import Minimized
from hooklaw.fuzz.campaign.known_findings import KnownFinding, KnownFindings, follows
from hooklaw.fuzz.campaign.schedule import Campaign, ChildDeath, RangeResult
from hooklaw.fuzz.campaign.tasks import NOT_REPLAYED, Anomaly
from hooklaw.fuzz.judge.compare import shown
from hooklaw.fuzz.judge.judge import engine
from hooklaw.fuzz.program import Program
from hooklaw.fuzz.replay.run import Event
from hooklaw.fuzz.shrink import skeleton

SHRUNK = 20
"""How many programs that no flag explains are shrunk at most."""
PART = 4
"""Of those in one range, one in so many is shrunk: the shortest."""
HANGS = 3
"""How many programs may hang in a new way before a campaign ends."""


class Finding(msgspec.Struct, kw_only=True):
    """One way in which a backend differs from the law."""

    fingerprint: str
    kind: str
    """``flag``, ``differs``, ``error``, ``crash`` or ``hang``."""
    known: bool = False
    rule: str = ""
    """The rule that is broken, "documentation silent", or nothing before a person has named it."""
    reason: str = ""
    issue: str = ""
    count: int = 0
    """How many programs show it."""
    number: int
    """The first program that shows it."""
    program: Program
    shrunk_from: int
    """How many instructions the program had."""
    shrunk: bool = False
    """Whether the program is shrunk."""
    expected: list[Event] = []
    observed: list[Event] = []
    difference: int = 0
    """Where the observed events leave the expected ones, counted from 0."""
    note: str = ""

    def recognize(self, entry: KnownFinding | None) -> None:
        """Note what the entry says, if there is one."""
        if entry:
            self.known = True
            self.rule, self.issue, self.reason = entry.rule, entry.issue, entry.reason

    def show(self, anomaly: Anomaly) -> None:
        """Note what was expected and what was observed."""
        if anomaly.difference:
            divergence = anomaly.difference.divergence
            self.expected, self.observed = divergence.expected, anomaly.difference.observed
            self.difference = divergence.matched
        else:
            self.show_end(f"{anomaly.how}: {anomaly.message}")

    def show_end(self, end: str) -> None:
        """Note what the law expects, and how the program ended, of which no event was seen."""
        self.expected, self.observed, self.difference = shown(self.program, engine(())), [(end,)], 0


class Findings(dict[str, Finding]):
    """The findings of a campaign, by fingerprint, and what else there is to report."""

    def __init__(
        self, campaign: Campaign, entries: KnownFindings, *, shrink: bool = True, in_full: bool = False
    ) -> None:
        super().__init__()
        self._campaign = campaign
        self._entries = entries
        self._shrink = shrink
        self._in_full = in_full
        self._left = SHRUNK
        """How many programs may still be shrunk."""
        self._examples: dict[str, Anomaly] = {}
        """What the findings of flags show."""
        self._patterns: dict[str, list[str]] = {}
        """Patterns of programs that die of the same as a finding, by its fingerprint."""
        self.unshrunk: list[int] = []
        """Numbers of programs that are new and were not shrunk."""
        self.programs = self.undecided = self.skipped = 0
        self.not_replayed: Counter[str] = Counter()
        """How many programs the backend did not replay, by its reason."""

    @property
    def new(self) -> list[Finding]:
        """The findings that are not known."""
        return [finding for finding in self.values() if not finding.known]

    @property
    def known(self) -> list[Finding]:
        """The findings that are known."""
        return [finding for finding in self.values() if finding.known]

    def enough(self, stop_after: int) -> bool:
        """Whether so many findings are new, or so many programs hang, that the campaign can end."""
        hangs = sum(finding.count for finding in self.new if finding.kind == "hang")
        return bool(stop_after) and (len(self.new) + len(self.unshrunk) >= stop_after or hangs >= HANGS)

    def add(self, result: RangeResult) -> None:
        """Add what a worker found."""
        self.programs += result.stop - result.start - result.skipped
        self.undecided += result.undecided
        self.skipped += result.skipped
        self.not_replayed.update(found.message for found in result.anomalies if found.how == NOT_REPLAYED)
        anomalies = [found for found in result.anomalies if found.how != NOT_REPLAYED]
        for anomaly in anomalies:
            for flag in sorted(anomaly.flags):
                self._add_flag(flag, anomaly)
        unexplained = [anomaly for anomaly in anomalies if not anomaly.flags]
        unexplained.sort(key=lambda anomaly: len(self._program(anomaly.place)))
        at_once = max(1, self._campaign.enough // PART)
        for order, anomaly in enumerate(unexplained):
            self._add_anomaly(anomaly, postponed=order >= at_once)
        if result.death:
            self._add_death(result.death)

    def finish(self) -> None:
        """Sort the unshrunk programs, and shrink those of flags that are printed in full."""
        self.unshrunk.sort()
        for finding in self.values():
            if self._shrink and finding.kind == "flag" and (self._in_full or not finding.known):
                least = self._differing(self._examples[finding.fingerprint])
                if least.anomaly:
                    finding.program, finding.shrunk = least.program, least.reproduced
                    finding.show(least.anomaly)

    def _program(self, place: int) -> Program:
        return self._campaign.programs(place)[1]

    def _finding(self, fingerprint: str, kind: str, place: int) -> Finding:
        number, program = self._campaign.programs(place)
        return Finding(fingerprint=fingerprint, kind=kind, number=number, program=program, shrunk_from=len(program))

    def _differing(self, anomaly: Anomaly) -> Minimized:
        return _minimize.differing(self._campaign.target, self._program(anomaly.place), anomaly, self._campaign.limit)

    def _add_flag(self, flag: str, anomaly: Anomaly) -> None:
        """Count a departure; it shows the first program that needs no other departure, if there is any."""
        name = f"flag {flag}"
        if name not in self or len(anomaly.flags) == 1 < len(self._examples[name].flags):
            self._examples[name] = anomaly
            finding = self._finding(name, "flag", anomaly.place)
            finding.reason, finding.rule, finding.issue = known_findings.of_flag(flag)
            finding.recognize(self._entries.of_flag(flag))
            finding.show(anomaly)
            finding.count = self[name].count if name in self else 0
            self[name] = finding
        self[name].count += 1

    def _add_anomaly(self, anomaly: Anomaly, *, postponed: bool) -> None:
        how, place = anomaly.how, anomaly.place
        if self._counted_unshrunk(how, place) or not self._may_shrink(place, postponed=postponed):
            return
        least = Minimized(self._program(place), reproduced=True, anomaly=anomaly)
        if self._shrink:
            least = self._differing(anomaly)
        finding = self._add(how, place, least)
        if finding and least.anomaly:
            finding.show(least.anomaly)

    def _add_death(self, death: ChildDeath) -> None:
        """Shrink a program that ended its worker, unless it is like a program that was shrunk."""
        how, program, place = str(death.ending), self._program(death.place), death.place
        for fingerprint, pattern in self._patterns.items():
            if fingerprint.startswith(f"{how}:") and follows(pattern, program, death.step):
                self[fingerprint].count += 1
                return
        if self._counted_unshrunk(how, place) or not self._may_shrink(place):
            return
        least = Minimized(program, reproduced=True, step=death.step)
        if self._shrink:
            least = _minimize.dying(self._campaign.target, program, death, self._campaign.limit)
        finding = self._add(how, place, least, died_at=least.step)
        if finding:
            where = f" at {least.program[least.step]}" if least.step < len(least.program) else ""
            finding.show_end(f"the process died: {how}{where}")

    def _counted_unshrunk(self, how: str, place: int) -> bool:
        """Count a program whose own fingerprint is known; return whether it is."""
        entry = self._entries.also(f"{how}: {skeleton(self._program(place))}")
        if entry is None:
            return False
        if entry.fingerprint not in self:
            finding = self._finding(entry.fingerprint, how.partition(" ")[0], place)
            finding.recognize(entry)
            self[entry.fingerprint] = finding
        self[entry.fingerprint].count += 1
        return True

    def _may_shrink(self, place: int, *, postponed: bool = False) -> bool:
        """Whether a program may be shrunk, or need not be; note its number otherwise."""
        if self._shrink and (postponed or not self._left):
            self.unshrunk.append(self._campaign.programs(place)[0])
            return False
        self._left -= 1
        return True

    def _add(self, how: str, place: int, least: Minimized, died_at: int | None = None) -> Finding | None:
        """Return a new finding; None where there is one of the same fingerprint, which is counted."""
        fingerprint = f"{how}: {skeleton(least.program)}"
        if fingerprint in self:
            self[fingerprint].count += 1
            return None
        finding = self._finding(fingerprint, how.partition(" ")[0], place)
        entry = self._entries.match(fingerprint, how, least.program, died_at)
        if died_at is not None:
            ops = [instruction.op for instruction in least.program[: died_at + 1]]
            self._patterns[fingerprint] = entry.pattern if entry and entry.pattern else ops
        finding.count = 1
        finding.program, finding.shrunk = least.program, self._shrink and least.reproduced
        if not least.reproduced:
            finding.note = "it did not happen again when the program was run by itself"
            entry = entry or self._entries.crash(least.program)
        finding.recognize(entry)
        self[fingerprint] = finding
        return finding


def plain(value: Any) -> Any:
    """Return an observed value as JSON has it; infinite numbers and NaN become words."""
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    return value if not isinstance(value, float) or abs(value) < float("inf") else str(value)
