"""Outcome, Expectation, Verdict and Exit, and the only code that decides one from another."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from hooklaw.law.rule import Level


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

HOLDS_THOUGH_DENIED = "denied, yet it holds: "
"""Prefix of the detail of an unsupported rule that passed when it was probed."""


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


def judge(outcome: Outcome, level: Level, expectation: Expectation | None) -> Verdict:
    """Return the verdict of one cell.

    A MAY rule may fail; a MUST or SHOULD rule that fails must have been expected. Unsupported and not-run are always
    as expected.
    """
    if outcome not in JUDGED:
        return Verdict.AS_EXPECTED
    if outcome is Outcome.PASS:
        return Verdict.FIXED if expectation else Verdict.AS_EXPECTED
    if expectation and outcome in expectation.outcome:
        return Verdict.AS_EXPECTED
    if outcome is Outcome.FAIL and level is Level.MAY:
        return Verdict.AS_EXPECTED
    return Verdict.REGRESSION


def exit_of(cells: Iterable[tuple[Outcome, Verdict]], *, stale: bool = False, broken: bool = False) -> Exit:
    """Return the exit of a run: the worst that its cells, stale entries or a broken run cause."""
    seen = set(cells)
    verdicts = {verdict for _, verdict in seen}
    if broken or (Outcome.ERROR, Verdict.REGRESSION) in seen:
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
    return str(outcome)
