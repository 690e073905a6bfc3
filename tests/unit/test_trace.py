"""A trace finds the first difference between observed and expected events, and keeps both for the record."""

import pytest
from toy import Toy

from hooklaw.backend.protocol import ErrorKind
from hooklaw.law.trace import Check, Event, Mismatch, Trace, same


@pytest.fixture
def trace():
    """Return a trace of the toy."""
    return Trace(Toy())


def tensor(*numbers):
    """Make a toy tensor."""
    return Toy().tensor(numbers)


def log(trace, *labels):
    """Log events without values."""
    for label in labels:
        trace.log(label)


def test_hook_logs_and_returns_none(trace):
    """A hook made by `saw` logs its arguments and returns None."""
    answer = trace.saw("hook")(tensor(1.0, 2.0))

    assert (None, [Event("hook", [1.0, 2.0])]) == (answer, trace.observed)


def test_hook_with_an_action_returns_its_answer(trace):
    """A hook with an action logs its arguments, and returns the action's result."""
    answer = trace.saw("hook", lambda grad: grad * 2.0)(tensor(1.0))

    assert ([2.0], [Event("hook", [1.0])]) == (answer.data, trace.observed)


def test_hook_of_several_arguments(trace):
    """Several arguments, as of a Node hook, are logged as a list."""
    trace.saw("node")((tensor(1.0), None), (tensor(2.0),))

    assert trace.values("node") == [[[[1.0], None], [[2.0]]]]


def test_expect_holds(trace):
    """Expected events pass, and both lists are kept."""
    trace.log("first", 1.0)
    trace.log("second")
    trace.expect(("first", 1.0), "second")

    assert [Event("first", 1.0), Event("second", any_value=True)] == trace.expected


def test_expect_leaves_a_value_open(trace):
    """A label alone leaves the value open."""
    trace.log("hook", 5.0)

    trace.expect("hook")


def test_expect_names_the_first_difference(trace):
    """The message names the place, the expected and the observed event, then all observed events."""
    log(trace, "a", "c", "b")

    with pytest.raises(Mismatch, match="^event 2 should be 'b', was 'c'; saw 'a', 'c', 'b'$"):
        trace.expect("a", "b", "c")


def test_expect_names_a_wrong_value(trace):
    """For a wrong value, the message names the expected and the observed value."""
    trace.log("hook", [1.0])

    with pytest.raises(Mismatch, match=r"^event 1 should be 'hook' with \[2.0\], was 'hook' with \[1.0\]; saw"):
        trace.expect(("hook", [2.0]))


@pytest.mark.parametrize(
    ("seen", "wanted", "said"),
    [
        (["a"], ["a", "b"], r"^expected 2 events \('a', 'b'\), saw 'a'$"),
        (["a", "b"], ["a"], r"^expected 1 events \('a'\), saw 'a', 'b'$"),
        (["a"], [], r"^expected 0 events \(none\), saw 'a'$"),
        ([], ["a"], r"^expected 1 events \('a'\), saw nothing$"),
    ],
)
def test_expect_counts(trace, seen, wanted, said):
    """A missing or surplus event is a mismatch."""
    log(trace, *seen)

    with pytest.raises(Mismatch, match=said):
        trace.expect(*wanted)


def test_a_mismatch_keeps_both_lanes(trace):
    """The record has expected events even if they were not observed."""
    log(trace, "b")

    with pytest.raises(Mismatch):
        trace.expect("a")

    assert ([Event("a", any_value=True)], [Event("b")], 0) == (trace.expected, trace.observed, trace.difference)


def test_expect_speaks_of_what_is_new(trace):
    """Each `expect` compares the events since the previous one."""
    log(trace, "a")
    trace.expect("a")
    log(trace, "b")
    trace.expect("b")
    trace.expect()

    assert [Event("a", any_value=True), Event("b", any_value=True)] == trace.expected


def test_in_any_order_holds(trace):
    """`expect_in_any_order` ignores order, but counts."""
    log(trace, "b", "a", "a")
    trace.expect_in_any_order("a", "b", "a")

    assert [event.label for event in trace.expected] == ["b", "a", "a"]


@pytest.mark.parametrize("wanted", [["a"], ["a", "b"], ["a", "a", "b"], []])
def test_in_any_order_counts(trace, wanted):
    """A missing or surplus label is a mismatch."""
    log(trace, "a", "a")

    with pytest.raises(Mismatch, match="^expected in any order .*; saw 'a', 'a'$"):
        trace.expect_in_any_order(*wanted)


@pytest.mark.parametrize("use", ["log", "expect", "expect_in_any_order", "expect_before"])
def test_label_is_text(trace, use):
    """A label that is no text is refused when it is given: no record could hold it."""
    log(trace, "hook")
    given = [("hook", [1.0])] if use != "expect" else [(1, [1.0])]

    with pytest.raises(TypeError, match="the label of an event is a text, not"):
        getattr(trace, use)(*given, *(["other"] if use == "expect_before" else []))


def test_an_event_is_noted_without_a_call_of_its_class(trace, monkeypatch):
    """A class that is made in C cannot be called in what torch 2.11 compiles, and rules note events there."""
    expected = Event("hook", 1.0)
    monkeypatch.setattr("hooklaw.law.trace.Event", None)
    trace.log("hook", 1.0)

    assert trace.observed == [expected]


def test_before_holds_and_takes_nothing(trace):
    """`expect_before` leaves events to the next `expect`."""
    log(trace, "a", "x", "b", "b")
    trace.expect_before("a", "b")
    trace.expect("a", "x", "b", "b")


@pytest.mark.parametrize("seen", [["b", "a"], ["a", "b", "a"], ["a"], ["b"], []])
def test_before_fails(trace, seen):
    """`expect_before` needs both labels, the last `first` before the first `then`."""
    log(trace, *seen)

    with pytest.raises(Mismatch, match="^expected every 'a' before every 'b'; saw "):
        trace.expect_before("a", "b")


def test_dicts_are_compared_by_their_items(trace):
    """A dict is read as its keys and values, tensors included, so that two dicts are not alike for being dicts."""
    trace.expect_value("state", {"weight": [1.0, 2.0]}, {"weight": tensor(1.0, 2.0)})

    with pytest.raises(Mismatch, match="state should be"):
        trace.expect_value("state", {"weight": [1.0, 2.0]}, {"weight": tensor(1.0, 3.0)})


def test_value_is_read_and_kept(trace):
    """A tensor is compared as a list of numbers, and both values are kept."""
    trace.expect_value("grad", [1.0, 2.0], tensor(1.0, 2.0))

    assert [Check("grad", [1.0, 2.0], [1.0, 2.0], held=True)] == trace.checks


def test_value_differs(trace):
    """A wrong value is named with the expected value, and kept."""
    with pytest.raises(Mismatch, match=r"^grad should be \[1.0\], was \[3.0\]$"):
        trace.expect_value("grad", [1.0], tensor(3.0))

    assert [Check("grad", [1.0], [3.0], held=False)] == trace.checks


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (1.0, 1.000001, True),
        (1.0, 1.0001, False),
        (1, 1.0, True),
        (True, 1, False),
        (None, None, True),
        (None, 0.0, False),
        ([1.0, [2.0]], [1.0, [2.0]], True),
        ([1.0], [1.0, 2.0], False),
        ([1.0], 1.0, False),
        ([1.0, 2.0], [1.000001, 2.0], True),
        ([1.0, 2.0], [1.0001, 2.0], False),
        ([1.0, True], [1.0, 1.0], False),
        ([1.0, 2.0], [1, 2.0], True),
        ("nan", "nan", True),
    ],
)
def test_same(one, other, verdict):
    """Numbers agree to 1 part in 100,000, lists by element, everything else exactly."""
    assert verdict is same(one, other)


def test_raises_the_backends_own_error(trace):
    """An error of the type that the backend maps passes."""
    with trace.raises(ErrorKind.NO_GRADIENT, "Requires No"):
        raise ValueError("the tensor requires no grad")

    assert [(one.expected, one.held) for one in trace.checks] == [("no-gradient saying 'Requires No'", True)]


def test_raises_runtime_error_by_default(trace):
    """A kind that the backend does not map means RuntimeError, as in PyTorch."""
    with trace.raises(ErrorKind.GRAPH_FREED):
        raise RuntimeError


def test_raises_nothing(trace):
    """A block that raises nothing is a mismatch."""
    with pytest.raises(Mismatch, match="^raises should be no-gradient, was no error$"), trace.raises("no-gradient"):
        pass


def test_raises_another_type(trace):
    """An error of another type is a mismatch that names both types, with the error as its cause."""
    with (
        pytest.raises(Mismatch, match=r"^expected no-gradient \(ValueError\), raised KeyError: 'x'$") as caught,
        trace.raises("no-gradient"),
    ):
        raise KeyError("x")

    assert isinstance(caught.value.__cause__, KeyError)
    assert not trace.checks[0].held


def test_raises_without_the_phrase(trace):
    """The error's text must contain the phrase."""
    said = "^raises should be no-gradient saying 'leaf', was ValueError: first$"
    with pytest.raises(Mismatch, match=said), trace.raises("no-gradient", "leaf"):
        raise ValueError("first\nsecond")


@pytest.mark.parametrize("wanted", [KeyError, AssertionError])
def test_raises_lets_a_mismatch_through(trace, wanted):
    """A mismatch inside the block does not count as the expected error, even if AssertionError is expected."""
    with pytest.raises(Mismatch, match="inner"), trace.raises_type(wanted):
        raise Mismatch("inner")

    assert trace.checks == []


def test_raises_type_takes_the_users_own(trace):
    """`raises_type` expects a user's own exception by its type."""

    class MineError(Exception):
        """A user's own exception."""

    with trace.raises_type(MineError):
        raise MineError("text")

    assert [one.expected for one in trace.checks] == ["MineError"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (tensor(1.0, float("nan"), float("inf")), [1.0, "nan", "inf"]),
        ((tensor(1.0), None), [[1.0], None]),
        (1 + 2j, [1.0, 2.0]),
        (object(), "object"),
        (True, True),
        ("text", "text"),
        (list(range(16)), list(range(16))),
        (list(range(17)), [0, 1, 2, 3, 4, 5, 6, 7, "... 17 values"]),
        ([[0.0] * 10] * 10, [0.0] * 8 + ["... 100 values"]),
    ],
)
def test_snapshot(trace, value, plain):
    """A snapshot of any value is plain data of bounded size."""
    assert plain == trace.snapshot(value)


def test_snapshot_does_not_follow_later_changes(trace):
    """A logged value does not change after it was logged."""
    seen = tensor(1.0)
    trace.log("hook", seen)
    seen.data = [9.0]

    assert trace.values("hook") == [[1.0]]


def test_count_and_clear(trace):
    """`count` and `values` cover the whole rule, until `clear`."""
    log(trace, "a", "b", "a")
    before = trace.count("a")
    trace.clear()
    trace.expect()

    assert (before, trace.count("a")) == (2, 0)
