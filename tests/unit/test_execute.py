"""Executing one rule on one backend: what comes of it is a whole value."""

import gc
import sys
import weakref
from types import SimpleNamespace

import pytest
import toy

from hooklaw.backend.conditions import Condition
from hooklaw.law.rule import Registered
from hooklaw.mutation import _service
from hooklaw.results.verdict import Outcome
from hooklaw.runner import heap
from hooklaw.runner.execute import execute


@pytest.fixture
def restored_collector():
    """Leave the garbage collector as it was."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


def law(function, needs=()):
    """Return a rule that a function tries."""
    return Registered(SimpleNamespace(id="toy.law", needs=list(needs), processes=0), function, "test_execute.py::law")


def events(backend, trace):
    """Log one event, and expect another."""
    trace.log("seen")
    trace.expect("wanted")


def test_pass():
    """A rule that raises nothing passes."""
    done = execute(law(lambda backend, trace: None), toy.Toy())

    assert (done.rule, done.outcome, done.detail, done.where) == ("toy.law", Outcome.PASS, "", "")


def test_fail():
    """A rule that is not kept fails, with both lanes and the place where they part."""
    done = execute(law(events), toy.Toy())

    assert (done.outcome, done.difference) == (Outcome.FAIL, 0)
    assert [event.label for event in (*done.expected, *done.observed)] == ["wanted", "seen"]


def test_error_is_handed_over():
    """The exception itself is there for whoever asks, say a debugger."""
    errors = []
    execute(law(events), toy.Toy(), on_error=errors.append)

    assert [type(error).__name__ for error in errors] == ["Mismatch"]


def test_exit_is_what_the_rule_does():
    """A rule that wants to leave the process has failed."""

    def leave(backend, trace):
        raise SystemExit(0)

    assert execute(law(leave), toy.Toy()).outcome is Outcome.FAIL


def test_condition():
    """Under a condition the rule is given another backend, and runs where the condition has it run."""
    seen = []
    condition = Condition(
        "test",
        "A test.",
        wrap=lambda backend: seen.append("wrapped") or backend,
        around=lambda backend, trace, body: [body(), trace.clear(), body()],
    )
    done = execute(law(lambda backend, trace: trace.log("ran")), toy.Toy(), condition=condition)

    assert (done.outcome, seen, len(done.observed)) == (Outcome.PASS, ["wrapped"], 1)


def test_interrupt():
    """An interrupt is not an outcome of the rule."""

    def interrupt(backend, trace):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(law(interrupt), toy.Toy())


@pytest.mark.parametrize(
    ("function", "probe", "said"),
    [
        (events, False, "nodes: a toy has none"),
        (events, True, "denied, and it does not hold: nodes: a toy has none"),
        (lambda backend, trace: None, True, "denied, yet it holds: nodes: a toy has none"),
    ],
    ids=["not run", "does not hold", "holds"],
)
def test_unsupported(function, probe, said):
    """A rule that needs what the backend lacks is unsupported, and runs only to probe it."""
    done = execute(law(function, ["nodes"]), toy.Toy(), probe=probe)

    assert (done.outcome, done.detail, bool(done.observed)) == (Outcome.UNSUPPORTED, said, probe and function is events)


def test_reset():
    """The backend is reset before each rule."""
    backend = toy.Toy()
    backend.reset = lambda: seen.append("reset")
    seen = []
    execute(law(lambda backend, trace: seen.append("rule")), backend)

    assert seen == ["reset", "rule"]


@pytest.mark.usefixtures("restored_collector")
def test_heap_is_set_aside():
    """What a framework or many rules leave is set aside, so that a collection of garbage is quick."""
    heap.begin()
    heap.settle()
    aside = gc.get_freeze_count()
    kept = [[] for _ in range(heap.GROWN + 100)]
    heap.settle()

    assert gc.isenabled()
    assert gc.get_freeze_count() >= aside + len(kept)


@pytest.mark.usefixtures("restored_collector")
def test_an_error_s_garbage_is_not_set_aside():
    """What a rule that failed left is collected, however old, before anything is set aside for good."""
    heap.begin()
    garbage = Cycle()
    gone = weakref.ref(garbage)
    gc.collect()  # it is old now
    del garbage
    heap.settle(after_error=True)

    assert gone() is None


@pytest.mark.usefixtures("restored_collector")
def test_sweep():
    """After a rule its garbage is gone, and what stays is not looked through again."""
    gc.disable()
    garbage, kept = Cycle(), [[] for _ in range(100)]
    gone, aside = weakref.ref(garbage), gc.get_freeze_count()
    del garbage
    heap.sweep()

    assert gone() is None
    assert gc.get_freeze_count() >= aside + len(kept)


class Cycle:
    """An object that only a collection of garbage can free."""

    def __init__(self):
        self.me = self


@pytest.mark.parametrize(("imports", "clock", "is_slow"), [(True, [0, 1, 5, 5], False), (False, [0, 1], True)])
def test_a_first_import_is_not_the_rules_own_time(imports, clock, is_slow, monkeypatch):
    """Only a rule that takes long itself is left out where no mutant names it."""
    monkeypatch.setattr(_service, "time", SimpleNamespace(process_time=iter(clock).__next__))

    def program(backend, trace):
        if imports:
            monkeypatch.setitem(sys.modules, "met_first", SimpleNamespace())

    attempt = _service.on_original(law(program), toy.Toy())

    assert (attempt.outcome, attempt.slow) == (Outcome.PASS, is_slow)
