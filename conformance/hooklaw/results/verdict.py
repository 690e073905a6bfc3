"""Outcome, Expectation, Verdict and Exit, and the only code that decides one from another."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from hooklaw.law.rule import Level
from hooklaw.results.looks import shows


class Outcome(StrEnum):
    """What happened to one rule on one backend."""

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    ERROR = "error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not-run"


JUDGED = frozenset({Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT})
"""Outcomes that count in the denominator."""

FAILS_DIFFERENTLY = "fails differently"
"""A cell that fails, as expected, but does not look as its expectation says."""

UNEXPLAINED = "unexplained: "
"""Prefix of a reason that `expect update` wrote and a person must replace."""

HOLDS_THOUGH_DENIED = "denied, yet it holds: "
"""Prefix of the detail of an unsupported rule that passed when it was probed."""

FAILS_AS_DENIED = "denied, and it does not hold: "
"""Prefix of the detail of an unsupported rule that did not pass when it was probed."""


class Verdict(StrEnum):
    """An outcome, compared with its expectation."""

    AS_EXPECTED = "as-expected"
    REGRESSION = "regression"
    FIXED = "fixed"
    STALE = "stale"


class Exit(StrEnum):
    """The exit codes, by name."""

    OK = "ok"
    REGRESSION = "regression"
    FIXED_OR_STALE = "fixed-or-stale"
    BROKEN = "broken"

    @property
    def code(self) -> int:
        """Return the number."""
        return list(Exit).index(self)


class Expectation(msgspec.Struct, frozen=True):
    """A known divergence: the rule, its expected outcomes, and the reason."""

    rule: str
    outcome: list[str]
    reason: str
    saw: list[str] = []
    """What the divergence looks like: phrases of what is seen, of which each result shows at least one."""
    issue: str = ""
    when: str = ""
    expires: str = ""
    condition: list[str] = []
    """The conditions to which the entry is limited; none: it holds without a condition, and under each."""
    file: str = ""
    line: int = 0


class Stale(msgspec.Struct, frozen=True):
    """An entry of an expectation file that no longer applies, and why."""

    rule: str
    why: str
    file: str
    line: int


def unclear(entry: Expectation) -> list[Stale]:
    """Return what a person must still write into an entry: why the rule does not hold, and what that looks like."""
    whys: list[str] = []
    if entry.reason.startswith(UNEXPLAINED):
        whys.append("is unexplained: write its reason")
    if Outcome.FAIL in entry.outcome and not entry.saw:
        whys.append("would accept any failure: write saw, a phrase of what is seen")
    return [Stale(entry.rule, why, entry.file, entry.line) for why in whys]


def as_known(entry: Expectation) -> str:
    """Return what is known of a rule, to stand beside what it did in its place."""
    saw = f" with {' or '.join(map(repr, entry.saw))}" if entry.saw else ""
    place = f"  [{entry.file}:{entry.line}]" if entry.file else ""
    return f"{' or '.join(entry.outcome)}{saw}, because {entry.reason}{place}"


def judge(outcome: Outcome, level: Level, expectation: Expectation | None, seen: str) -> Verdict:
    """Return the verdict of one cell; `seen` is the text in which the expectation's phrases are looked for.

    A MAY rule may fail; a MUST or SHOULD rule that fails must have been expected, and must look as expected.
    A rule that holds by chance has ``pass`` among its expected outcomes.
    Unsupported and not-run are always as expected.
    """
    if outcome not in JUDGED:
        return Verdict.AS_EXPECTED
    if outcome is Outcome.PASS:
        return Verdict.FIXED if expectation and outcome not in expectation.outcome else Verdict.AS_EXPECTED
    if expectation and outcome in expectation.outcome and shows(expectation.saw, seen):
        return Verdict.AS_EXPECTED
    if outcome is Outcome.FAIL and level is Level.MAY:
        return Verdict.AS_EXPECTED
    return Verdict.REGRESSION


def exit_of(
    cells: Iterable[tuple[Outcome, Verdict]], *, stale: bool = False, broken: bool = False, allow_not_run: bool = False
) -> Exit:
    """Return the exit of a run: the worst that its cells, stale entries or a broken run cause.

    A run that judged nothing is broken, unless that is allowed.
    """
    seen = set(cells)
    verdicts = {verdict for _, verdict in seen}
    idle = JUDGED.isdisjoint(outcome for outcome, _ in seen)
    if broken or (idle and not allow_not_run) or (Outcome.ERROR, Verdict.REGRESSION) in seen:
        return Exit.BROKEN
    if Verdict.REGRESSION in verdicts:
        return Exit.REGRESSION
    if Verdict.FIXED in verdicts or stale:
        return Exit.FIXED_OR_STALE
    return Exit.OK


def worst(exits: Iterable[Exit]) -> Exit:
    """Return the exit that takes precedence: broken, then regression, then fixed or stale."""
    found = set(exits)
    return next(code for code in (Exit.BROKEN, Exit.REGRESSION, Exit.FIXED_OR_STALE, Exit.OK) if code in found)


def describe(outcome: Outcome, level: Level, verdict: Verdict, expectation: Any) -> str:
    """Return a cell in one or two words."""
    if verdict is Verdict.FIXED:
        return "fixed"
    if outcome is Outcome.PASS or outcome not in JUDGED:
        return str(outcome)
    if expectation and verdict is Verdict.AS_EXPECTED:
        return f"known {outcome}"
    if level is Level.MAY and verdict is Verdict.AS_EXPECTED:
        return "differs"
    if expectation and outcome is Outcome.FAIL and outcome in expectation.outcome:
        return FAILS_DIFFERENTLY
    return str(outcome)
