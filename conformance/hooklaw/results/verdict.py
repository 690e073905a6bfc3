"""Outcome and expectation make a verdict, verdicts make an exit code: the one place that decides."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from hooklaw.law.rule import Level


class Outcome(StrEnum):
    """What happened to one rule on one backend."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    ERROR = "error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not-run"


JUDGED = frozenset({Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT})
"""Outcomes that count in the denominator."""

HOLDS_THOUGH_DENIED = "denied, yet it holds: "
"""How the detail of an unsupported rule begins that was probed and passed."""


class Verdict(StrEnum):
    """What an outcome means, given what was expected."""

    AS_EXPECTED = "as-expected"
    REGRESSION = "regression"
    FIXED = "fixed"
    STALE = "stale"


class Exit(StrEnum):
    """Names of the exit codes; `code` is the number."""

    OK = "ok"
    REGRESSION = "regression"
    FIXED_OR_STALE = "fixed-or-stale"
    BROKEN = "broken"

    @property
    def code(self) -> int:
        """Return the process's exit code."""
        return list(Exit).index(self)


class Expectation(msgspec.Struct, frozen=True):
    """One known divergence: which outcome is expected of which rule, and why."""

    rule: str
    outcome: list[str]
    reason: str
    issue: str = ""
    when: str = ""
    expires: str = ""
    file: str = ""
    line: int = 0


class Stale(msgspec.Struct, frozen=True):
    """An entry of an expectation file that no longer says anything, and why."""

    rule: str
    why: str
    file: str
    line: int


def judge(outcome: Outcome, level: Level, expectation: Expectation | None) -> Verdict:
    """Return the verdict of one cell.

    A MAY rule that does not hold is allowed to; a MUST or SHOULD that does not hold must have been expected.
    Unsupported and not-run say nothing, so they are always as expected.
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
    """Return the exit of a run: broken before regression before fixed or stale."""
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
    """Return the one that counts where several apply: broken before regression before fixed or stale."""
    found = set(exits)
    return next(one for one in (Exit.BROKEN, Exit.REGRESSION, Exit.FIXED_OR_STALE, Exit.OK) if one in found)


def describe(outcome: Outcome, level: Level, verdict: Verdict, expectation: Any) -> str:
    """Return a cell in one or two words for a person."""
    if verdict is Verdict.FIXED:
        return "fixed"
    if outcome is Outcome.PASS or outcome not in JUDGED:
        return str(outcome)
    if expectation and verdict is Verdict.AS_EXPECTED:
        return f"known {outcome}"
    if level is Level.MAY and verdict is Verdict.AS_EXPECTED:
        return "differs"
    return str(outcome)
