"""The check of an adapter: each wrong adapter is named, with what to mend, and the right ones pass."""

import gc

import pytest
from hypothesis import settings
from toy import Toy
from wrong_adapters import WRONG

import hooklaw
from hooklaw.backend.check import check_briefly, check_contract
from hooklaw.errors import BackendContractError
from hooklaw.model.adapter import Reference


@pytest.mark.parametrize("right", [Reference, Toy])
def test_right_adapters_pass(right):
    """Nothing is said of an adapter that is sound."""
    report = hooklaw.check_backend(right())

    assert (report.faults, report.ok) == ([], True)
    assert "no fault in the adapter" in str(report)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_adapter_is_named(name):
    """Each wrong adapter has a fault of the verb or attribute that is wrong, with all that is needed to mend it."""
    wrong = WRONG[name]

    faults = hooklaw.check_backend(wrong()).faults

    assert wrong.what in {fault.what for fault in faults}
    assert all(part for fault in faults for part in (fault.given, fault.expected, fault.got, fault.mend))


def test_a_report_says_what_to_mend():
    """A fault is printed with the call, what was expected, what came, and what to mend."""
    lines = str(hooklaw.check_backend(WRONG["ShapeIsAList"]())).splitlines()

    assert lines[0].startswith("reference (hooklaw-reference ")
    assert lines[1:6] == [
        "  FAULT    shape",
        "           given     shape(tensor([1.5, -2.25]))",
        "           expected  (2,)",
        "           came      [2]",
        "           mend      return a tuple of Python's int: tuple(tensor.shape)",
    ]


def test_swapped_errors_are_guessed():
    """A type that is named for another kind of error is pointed out."""
    faults = hooklaw.check_backend(WRONG["ErrorsSwapped"]()).faults

    assert any("'no-gradient': were they swapped?" in fault.mend for fault in faults)


def test_the_line_of_the_adapter_is_named():
    """An exception of the adapter's own lines is none of the framework, though the framework should raise one."""
    faults = hooklaw.check_backend(WRONG["ErrorOfTheAdapterItself"]()).faults

    assert [fault.got for fault in faults] == ["the adapter's own KeyError: 'no gradient'"]
    assert "wrong_adapters.py:" in faults[0].mend


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ErrorWithoutATuple", "a tuple of exception types, was the type RuntimeError: write (RuntimeError,) for it"),
        ("BackwardWithoutKeywords", "refused: got an unexpected keyword argument 'retain_graph': let it take backward"),
    ],
)
def test_declarations_are_refused_at_once(name, said):
    """What can be seen without a call is refused when the backend is loaded."""
    with pytest.raises(BackendContractError) as caught:
        check_contract(WRONG[name](), "mine:made")

    assert str(caught.value).startswith("backend 'mine:made': ")
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["EverythingIsATensor", "RoundsValues", "ShapeIsAList", "DtypeIsAnObject"])
def test_the_short_form_refuses_what_cannot_be_judged(name):
    """Before a run, values, shapes and dtypes must survive; the sentence names the verb that checks the rest."""
    with pytest.raises(BackendContractError, match=r"should be .*, was .*`hooklaw check-backend mine:made`"):
        check_briefly(WRONG[name](), "mine:made")


@pytest.mark.parametrize("name", ["ViewCopies", "NoHandle", "ErrorsSwapped"])
def test_the_short_form_is_short(name):
    """What one capability alone needs does not keep a run from starting."""
    check_briefly(WRONG[name](), "mine:made")


def test_the_short_form_can_be_interrupted():
    """Ctrl-C and SIGTERM are not swallowed with what a verb raises: a second SIGTERM is ignored."""

    class Interrupted(Toy):
        def sum(self, tensor):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_briefly(Interrupted(), "mine:made")


def test_a_verb_that_always_raises_is_one_fault():
    """What many probes find is said once."""

    class Broken(Toy):
        def sum(self, tensor):
            raise KeyError("oops")

    found = [fault.what for fault in hooklaw.check_backend(Broken()).faults]

    assert found == ["sum", "call"]  # call runs a function that sums


def test_no_verb_is_called_after_a_wrong_declaration():
    """A wrong declaration would only be followed by errors that it causes."""
    report = hooklaw.check_backend(WRONG["VersionIsANumber"]())

    assert (len(report.faults), report.probes) == (1, 0)


def test_judge():
    """A backend is judged in this process, by the rules that an expression selects."""
    judged = hooklaw.judge(Toy(), "tensor-hook.order")

    assert judged.ok
    assert "tensor-hook.order.registration" in judged.results
    assert str(judged).startswith("toy: ")


def test_judge_names_what_does_not_hold():
    """Regressions have their results, and are printed."""

    class Deaf(Toy):
        def register_hook(self, tensor, hook):
            return super().register_hook(tensor, lambda _: None)

    judged = hooklaw.judge(Deaf(), ["tensor-hook.order.registration"])

    assert (judged.ok, [each.rule for each in judged.regressions]) == (False, ["tensor-hook.order.registration"])
    assert "  FAIL     tensor-hook.order.registration" in str(judged)


def test_judge_refuses_a_wrong_adapter():
    """An adapter that is not sound is not judged."""
    with pytest.raises(BackendContractError, match="shape"):
        hooklaw.judge(WRONG["ShapeIsAList"]())


def test_judge_leaves_the_process_as_it_was():
    """The garbage collector and Hypothesis go on as before."""
    before = gc.isenabled(), gc.get_threshold(), settings.default.max_examples, settings.default.derandomize

    hooklaw.judge(Toy(), "tensor-hook.order")

    assert before == (gc.isenabled(), gc.get_threshold(), settings.default.max_examples, settings.default.derandomize)
