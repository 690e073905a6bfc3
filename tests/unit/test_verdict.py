"""Verdicts and exit codes: every combination of outcome, level and expectation."""

from itertools import product

import pytest

from hooklaw.law.rule import Level
from hooklaw.results.verdict import (
    JUDGED,
    Exit,
    Expectation,
    Outcome,
    Stale,
    Verdict,
    describe,
    exit_of,
    judge,
    unclear,
)

FIXED, AS_EXPECTED, REGRESSION = Verdict.FIXED, Verdict.AS_EXPECTED, Verdict.REGRESSION
BROKEN = (REGRESSION, AS_EXPECTED, REGRESSION)
NOTHING = (AS_EXPECTED, AS_EXPECTED, AS_EXPECTED)
# without an expectation, with an expectation of this outcome, with one of another outcome
VERDICTS = {
    (Outcome.PASS, Level.MUST): (AS_EXPECTED, AS_EXPECTED, FIXED),
    (Outcome.PASS, Level.SHOULD): (AS_EXPECTED, AS_EXPECTED, FIXED),
    (Outcome.PASS, Level.MAY): (AS_EXPECTED, AS_EXPECTED, FIXED),
    (Outcome.FAIL, Level.MUST): BROKEN,
    (Outcome.FAIL, Level.SHOULD): BROKEN,
    (Outcome.FAIL, Level.MAY): NOTHING,
    (Outcome.ERROR, Level.MUST): BROKEN,
    (Outcome.ERROR, Level.SHOULD): BROKEN,
    (Outcome.ERROR, Level.MAY): BROKEN,
    (Outcome.CRASH, Level.MUST): BROKEN,
    (Outcome.CRASH, Level.SHOULD): BROKEN,
    (Outcome.CRASH, Level.MAY): BROKEN,
    (Outcome.TIMEOUT, Level.MUST): BROKEN,
    (Outcome.TIMEOUT, Level.SHOULD): BROKEN,
    (Outcome.TIMEOUT, Level.MAY): BROKEN,
    (Outcome.UNSUPPORTED, Level.MUST): NOTHING,
    (Outcome.UNSUPPORTED, Level.SHOULD): NOTHING,
    (Outcome.UNSUPPORTED, Level.MAY): NOTHING,
    (Outcome.NOT_RUN, Level.MUST): NOTHING,
    (Outcome.NOT_RUN, Level.SHOULD): NOTHING,
    (Outcome.NOT_RUN, Level.MAY): NOTHING,
}
EXIT_CODES = [
    ([], 3),
    ([(Outcome.UNSUPPORTED, AS_EXPECTED), (Outcome.NOT_RUN, AS_EXPECTED)], 3),
    ([(Outcome.UNSUPPORTED, AS_EXPECTED), (Outcome.PASS, AS_EXPECTED)], 0),
    ([(Outcome.PASS, AS_EXPECTED)], 0),
    ([(Outcome.FAIL, AS_EXPECTED)], 0),
    ([(Outcome.ERROR, AS_EXPECTED)], 0),
    ([(Outcome.FAIL, REGRESSION)], 1),
    ([(Outcome.CRASH, REGRESSION)], 1),
    ([(Outcome.TIMEOUT, REGRESSION)], 1),
    ([(Outcome.PASS, FIXED)], 2),
    ([(Outcome.PASS, FIXED), (Outcome.FAIL, REGRESSION)], 1),
    ([(Outcome.ERROR, REGRESSION)], 3),
    ([(Outcome.ERROR, REGRESSION), (Outcome.FAIL, REGRESSION), (Outcome.PASS, FIXED)], 3),
]


def expecting(*outcomes):
    """Make an expectation of these outcomes."""
    return Expectation("family.what", [str(one) for one in outcomes], "a reason")


def test_the_table_is_whole():
    """Every outcome and level has its row."""
    assert set(product(Outcome, Level)) == set(VERDICTS)


@pytest.mark.parametrize(("cell", "verdicts"), VERDICTS.items())
def test_verdict(cell, verdicts):
    """A rule that does not hold is a regression unless it was expected, or is a MAY rule that fails."""
    outcome, level = cell
    others = expecting(*(set(Outcome) - {outcome}))
    found = tuple(judge(outcome, level, known, "") for known in (None, expecting(outcome), others))

    assert verdicts == found


@pytest.mark.parametrize(("cells", "code"), EXIT_CODES)
def test_exit_code(cells, code):
    """Broken comes before regression, regression before fixed."""
    assert code == exit_of(cells).code


@pytest.mark.parametrize(("cells", "code"), EXIT_CODES)
def test_exit_code_with_stale_entries(cells, code):
    """A stale entry affects the exit code only if nothing worse happened."""
    assert (code or 2) == exit_of(cells, stale=True).code


@pytest.mark.parametrize("cells", [cells for cells, _ in EXIT_CODES])
@pytest.mark.parametrize("stale", [True, False])
def test_exit_code_of_a_broken_run(cells, stale):
    """A run that broke off exits as broken, whatever it found before."""
    assert exit_of(cells, stale=stale, broken=True).code == 3


@pytest.mark.parametrize("cells", [[], [(Outcome.NOT_RUN, AS_EXPECTED)]])
def test_exit_code_of_a_run_that_may_judge_nothing(cells):
    """A run that judged nothing is fine only where that is allowed; its stale entries still count."""
    codes = [exit_of(cells, stale=stale, allow_not_run=True).code for stale in (False, True)]

    assert codes == [0, 2]


def test_exit_codes_in_order():
    """The numbers of exit codes are a contract with scripts."""
    assert {str(one): one.code for one in Exit} == {"ok": 0, "regression": 1, "fixed-or-stale": 2, "broken": 3}


def test_what_is_judged():
    """Only rules that ran are in the denominator."""
    assert {"unsupported", "not-run"} == set(Outcome) - JUDGED


LOOK = Expectation("family.what", ["fail", "crash"], "a reason", saw=["was no error", "crash"])


@pytest.mark.parametrize(
    ("outcome", "level", "seen", "verdict", "words"),
    [
        (Outcome.FAIL, Level.MUST, "raises should be freed, was no error", AS_EXPECTED, "known fail"),
        (Outcome.FAIL, Level.MUST, "sum raised KeyError: 'oops'", REGRESSION, "fails differently"),
        (Outcome.FAIL, Level.SHOULD, "", REGRESSION, "fails differently"),
        (Outcome.FAIL, Level.MAY, "sum raised KeyError: 'oops'", AS_EXPECTED, "known fail"),
        (Outcome.CRASH, Level.MUST, "the process died\ncrash", AS_EXPECTED, "known crash"),
        (Outcome.CRASH, Level.MUST, "the process died", REGRESSION, "crash"),
        (Outcome.TIMEOUT, Level.MUST, "was no error", REGRESSION, "timeout"),
        (Outcome.PASS, Level.MUST, "", FIXED, "fixed"),
    ],
)
def test_look(outcome, level, seen, verdict, words):
    """A rule that fails in another way than it is known to is a regression."""
    found = judge(outcome, level, LOOK, seen)

    assert (verdict, words) == (found, describe(outcome, level, found, LOOK))


@pytest.mark.parametrize(
    ("parts", "whys"),
    [
        ({"saw": ["x"]}, []),
        ({"outcome": ["crash", "timeout"]}, []),
        ({"outcome": ["pass"]}, []),
        ({}, ["would accept any failure: write saw, a phrase of what is seen"]),
        ({"reason": "unexplained: x", "saw": ["x"]}, ["is unexplained: write its reason"]),
    ],
)
def test_unclear(parts, whys):
    """An entry is stale until a person has said why, and what is seen."""
    given = {"rule": "family.what", "outcome": ["fail"], "reason": "a reason", "file": "x.toml", "line": 7}

    assert [Stale("family.what", why, "x.toml", 7) for why in whys] == unclear(Expectation(**(given | parts)))


@pytest.mark.parametrize(
    ("outcome", "level", "known", "words"),
    [
        (Outcome.PASS, Level.MUST, None, "pass"),
        (Outcome.PASS, Level.MUST, expecting("fail"), "fixed"),
        (Outcome.FAIL, Level.MUST, None, "fail"),
        (Outcome.FAIL, Level.MUST, expecting("fail"), "known fail"),
        (Outcome.CRASH, Level.MAY, expecting("crash"), "known crash"),
        (Outcome.CRASH, Level.MUST, expecting("fail"), "crash"),
        (Outcome.FAIL, Level.MAY, None, "differs"),
        (Outcome.TIMEOUT, Level.MAY, None, "timeout"),
        (Outcome.UNSUPPORTED, Level.MUST, expecting("fail"), "unsupported"),
        (Outcome.NOT_RUN, Level.MUST, None, "not-run"),
    ],
)
def test_words(outcome, level, known, words):
    """`describe` returns one or two words."""
    assert words == describe(outcome, level, judge(outcome, level, known, ""), known)
