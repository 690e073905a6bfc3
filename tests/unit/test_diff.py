"""The difference of two runs: what became of each rule, which runs are compared, and the exit code."""

import msgspec
import pytest

import made_records as made
from hooklaw.errors import RecordConflictError
from hooklaw.law.rule import Level
from hooklaw.results.diff import Change, compare, exit_of_all
from hooklaw.results.records import Result
from hooklaw.results.seen import seen
from hooklaw.results.verdict import Exit, Outcome

MAY = Level.MAY
PASS, FAIL, CRASH = made.passed(), made.failed(), made.failed(outcome=Outcome.CRASH, detail="the process died")
OTHER = made.failed(detail="event 1 should be 'first', was nothing")
DENIED = Result(run="", rule="order.first", outcome=Outcome.UNSUPPORTED, detail="lacks tensor-hooks")
ERROR = made.failed(outcome=Outcome.ERROR, detail="AttributeError: no such verb")
KNOWN = made.failed(expectation=made.known())

CHANGES = {
    "holds in both": (PASS, PASS, Level.MUST, Change.UNCHANGED, 0),
    "fails now": (PASS, FAIL, Level.MUST, Change.REGRESSED, 1),
    "fails now, as an entry knows": (PASS, KNOWN, Level.MUST, Change.REGRESSED, 1),
    "crashes now": (PASS, CRASH, MAY, Change.REGRESSED, 1),
    "breaks the adapter now": (PASS, ERROR, Level.MUST, Change.REGRESSED, 3),
    "holds now": (FAIL, PASS, Level.MUST, Change.FIXED, 2),
    "fails in both": (FAIL, FAIL, Level.SHOULD, Change.STILL, 0),
    "fails in another way": (FAIL, OTHER, Level.SHOULD, Change.DIFFERENTLY, 1),
    "crashes instead of failing": (FAIL, CRASH, Level.MUST, Change.DIFFERENTLY, 1),
    "may fail now": (PASS, FAIL, MAY, Change.ALLOWED, 0),
    "may hold now": (FAIL, PASS, MAY, Change.ALLOWED, 0),
    "may fail in another way": (FAIL, OTHER, MAY, Change.ALLOWED, 0),
    "may fail in both": (FAIL, FAIL, MAY, Change.UNCHANGED, 0),
    "is unsupported now": (PASS, DENIED, Level.MUST, Change.LOST, 1),
    "failed and is unsupported now": (FAIL, DENIED, Level.MUST, Change.LOST, 1),
    "is supported now": (DENIED, PASS, Level.MUST, Change.NEW, 0),
    "is supported now, and fails": (DENIED, FAIL, Level.MUST, Change.NEW, 1),
    "is a new rule": (None, PASS, Level.MUST, Change.NEW, 0),
    "is a new rule that fails": (None, FAIL, Level.MUST, Change.NEW, 1),
    "is a new rule that is known to fail": (None, KNOWN, Level.MUST, Change.NEW, 0),
    "is no rule any more": (PASS, None, Level.MUST, Change.GONE, 0),
}


def one(result, level=Level.MUST, **parts):
    """Make a run of one rule, or of none."""
    rules = [made.rule("order.first", level=level)] if result else []
    return made.run("toy", rules, [result] if result else [], **parts)


@pytest.mark.parametrize(("old", "new", "level", "change", "code"), CHANGES.values(), ids=CHANGES)
def test_change(old, new, level, change, code):
    """Outcomes decide, what was seen decides where both fail, and the exit code is the design's."""
    (found,) = compare([one(old, level)], [one(new, level)])

    assert [cell.change for cell in found.cells] == [change]
    assert found.exit.code == code


def test_unsupported_in_both():
    """A rule that neither run judged is not counted."""
    (found,) = compare([one(DENIED)], [one(DENIED)])

    assert found.cells == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pack <object at 0x7f01deadbeef>", "pack <object at 0x55aa00112233>"),
        ("raised OSError: /tmp/a/b/c.py:12: no", "raised OSError: /home/me/c.py:99: no"),
        ("did not end within 30.0 s", "did not end within 5 s"),
        ("x.grad should be 2.0, was [0.3333333, 1e-05]", "x.grad should be 2.0, was [0.3333337, 1e-05]"),
        ("should be 1 [Falsifying example: f(x=1)]", "should be 1 [Falsifying example: f(x=[2, 0])]"),
        ("raised E: no (+3 lines)", "raised E: no (+14 lines)"),
    ],
)
def test_the_same_was_seen(one, other):
    """Addresses, folders, line numbers, limits and last digits differ between runs of the same program."""
    assert seen(made.failed(detail=one)) == seen(made.failed(detail=other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x.grad should be 2.0, was 2.5", "x.grad should be 2.0, was 3.5"),
        ("x.grad should be [1, 2], was [1]", "x.grad should be [1, 2], was [2]"),
        ("raised RuntimeError: a", "raised ValueError: a"),
        ("expected 2 events", "expected 3 events"),
    ],
)
def test_something_else_was_seen(one, other):
    """Values, kinds of errors and counts are what was seen."""
    assert seen(made.failed(detail=one)) != seen(made.failed(detail=other))


def test_durations_do_not_matter():
    """A slow rule fails in the same way as a quick one."""
    assert seen(made.failed(duration=0.1)) == seen(made.failed(duration=9.0))


def test_the_first_difference_matters():
    """A trace that departs at another event is seen to differ."""
    assert seen(made.failed(difference=0)) != seen(made.failed(difference=1))


def of(*wanted):
    """Make runs of one passing rule, each of a backend, condition and version of torch."""
    return [
        made.run(backend, [made.rule()], [PASS], condition=condition, versions={"torch": version, "os": system})
        for backend, condition, version, system in wanted
    ]


def paired(old, new):
    """Return which runs are compared, by backend, condition, version and system."""

    def told(run):
        header = run and run.header
        return header and (header.backend, header.condition, header.versions["torch"], header.versions["os"])

    return [(told(each.old), told(each.new)) for each in compare(of(*old), of(*new))]


A, HALF = ("toy", "", "2.12", "Linux"), ("toy", "float16", "2.12", "Linux")
B, C, MAC = ("toy", "", "2.13", "Linux"), ("toy", "", "2.14", "Linux"), ("toy", "", "2.13", "Darwin")
PADDLE = ("paddle", "", "3.3", "Linux")


@pytest.mark.parametrize(
    ("old", "new", "pairs"),
    [
        ([A], [B], [(A, B)]),
        ([A], [PADDLE], [(A, PADDLE)]),
        ([A], [HALF], [(A, HALF)]),
        ([HALF, A], [A, HALF], [(A, A), (HALF, HALF)]),
        ([A, PADDLE], [PADDLE, B], [(PADDLE, PADDLE), (A, B)]),
        ([A, PADDLE], [B], [(A, B), (PADDLE, None)]),
        ([A], [B, PADDLE], [(A, B), (None, PADDLE)]),
        ([A, B], [B, C], [(B, B), (None, C), (A, None)]),
        ([A, B], [B], [(B, B), (A, None)]),
        ([B, MAC], [MAC, B], [(MAC, MAC), (B, B)]),
    ],
)
def test_which_runs_are_compared(old, new, pairs):
    """Runs are compared by backend and condition, several of these by version; what has no like stands alone."""
    assert paired(old, new) == pairs


@pytest.mark.parametrize(
    ("old", "new"), [([A, B], [C]), ([B, B], [B, PADDLE]), ([B, MAC], [("toy", "", "2.13", "BSD"), C])]
)
def test_several_could_be_compared(old, new):
    """Where several runs could be the like, the message says which there are."""
    with pytest.raises(
        RecordConflictError, match="which is to be compared with torch 2.1[34] is open; name files with"
    ):
        paired(old, new)


def test_a_run_that_is_missing_lost_its_results():
    """A backend that is judged no more is a lost result, and one that is new is not."""
    old, new = of(A, PADDLE), of(B)

    assert exit_of_all(compare(old, new)) is Exit.REGRESSION
    assert exit_of_all(compare(new, old)) is Exit.OK


def test_a_run_that_could_not_be_made():
    """A backend that this machine cannot judge any more is a lost result."""
    gone = made.failed(outcome=Outcome.NOT_RUN, detail="no driver")
    (found,) = compare([one(PASS)], [one(gone, not_run="no driver")])

    assert [cell.change for cell in found.cells] == [Change.LOST]
    assert found.exit is Exit.REGRESSION


def test_benchmarks_are_compared_elsewhere():
    """A benchmark has another verb."""
    with pytest.raises(RecordConflictError, match="`hooklaw bench compare` compares two of them"):
        compare([made.measured(made.cell())], [one(PASS)])


def test_packers_are_compared():
    """A packer's properties are compared like rules; a packer is no backend."""
    packer = made.packer("m:A", [made.rule()], [FAIL])
    found = compare([packer, one(PASS)], [msgspec.structs.replace(packer, results={"order.first": PASS})])

    assert [cell.change for each in found for cell in each.cells] == [Change.FIXED, Change.LOST]
