"""A broken law is the backend's fault; a programming error in a rule or an adapter is the suite's or the adapter's."""

import importlib
import sys
from textwrap import dedent

import pytest

from hooklaw.law.trace import Trace
from hooklaw.results.verdict import Outcome
from hooklaw.runner._classify import classify

ADAPTER = """
from toy import Toy
from framework import work

class Adapter(Toy):
    name = "mine"
    versions = {{"framework": "1.0"}}

    def sum(self, tensor):
        return self.helper(tensor)

    def helper(self, tensor):
        {verb}

made = Adapter()
"""
RULE = """
def test_rule(backend, trace):
    {rule}
"""
FRAMEWORK = """
def work(*args, hook=None):
    {framework}
"""


@pytest.fixture
def blamed(tmp_path, monkeypatch):
    """Return what a rule's exception is taken for, from the lines of rule, verb and framework."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rules").mkdir()

    def run(rule="backend.sum(None)", verb="return work()", framework="pass"):
        parts = {"adapter": ADAPTER, "test_chapter": RULE, "framework": FRAMEWORK}
        for name, text in parts.items():
            sys.modules.pop(name, None)
            (tmp_path / f"{name}.py").write_text(dedent(text).format(rule=rule, verb=verb, framework=framework))
        importlib.invalidate_caches()
        backend = importlib.import_module("adapter").made
        with pytest.raises(BaseException) as caught:
            importlib.import_module("test_chapter").test_rule(backend, Trace(backend))
        return classify(caught.value, backend)

    yield run
    for name in ("adapter", "test_chapter", "framework"):
        sys.modules.pop(name, None)


def test_mismatch(blamed, tmp_path):
    """A mismatch is a fail in its own words, at the rule's line."""
    found = blamed(rule="trace.expect('hook')")

    assert (Outcome.FAIL, "expected 1 events ('hook'), saw nothing", f"{tmp_path}/test_chapter.py:3") == found


def test_assertion(blamed):
    """A bare assertion is a fail too."""
    outcome, said, _ = blamed(rule="assert backend is None, 'not as it should be'")

    assert (outcome, said.partition(" (")[0]) == (Outcome.FAIL, "not as it should be")


def test_framework_raises(blamed):
    """An error that the framework raises where the rule demands none is a fail, with the verb that led there."""
    outcome, said, where = blamed(framework="raise RuntimeError('graph freed')")

    assert (outcome, said) == (Outcome.FAIL, "sum raised RuntimeError: graph freed")
    assert where.endswith("test_chapter.py:3")


@pytest.mark.parametrize("error", ["TypeError", "AttributeError", "NotImplementedError", "NameError"])
def test_framework_refuses(blamed, error):
    """Even a programming error is a fail where the framework itself raises it."""
    outcome, said, _ = blamed(framework=f"raise {error}('unsupported')")

    assert (Outcome.FAIL, f"sum raised {error}: unsupported") == (outcome, said)


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("return tensor.nothing", "AttributeError: 'NoneType' object has no attribute 'nothing'"),
        ("return nothing", "NameError: name 'nothing' is not defined"),
        ("import nothing_of_the_kind", "ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("raise NotImplementedError", "NotImplementedError: "),
    ],
)
def test_adapter_is_broken(blamed, tmp_path, verb, said):
    """A programming error in the adapter is an error that names backend, verb and line."""
    found = blamed(verb=verb)

    assert (Outcome.ERROR, f"backend 'mine': verb 'sum' raised {said}", f"{tmp_path}/adapter.py:13") == found


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("return {}['oops']", "KeyError: 'oops'"),
        ("raise KeyError('oops')", "KeyError: 'oops'"),
        ("return [][3]", "IndexError: list index out of range"),
        ("first, second = [1]", "ValueError: not enough values to unpack (expected 2, got 1)"),
        ("assert tensor, 'no tensor'", "AssertionError: no tensor"),
        ("import json; json.loads('{{')", "JSONDecodeError: Expecting property name enclosed in double quotes"),
        ("self.exp()", "TypeError: Toy.exp() missing 1 required positional argument: 'tensor'"),
    ],
)
def test_a_line_of_the_adapter_fails(blamed, verb, said):
    """Whatever a line of the adapter raises of itself is an error, also what is no programming error by its type."""
    outcome, found, _ = blamed(verb=verb)

    assert outcome is Outcome.ERROR
    assert found.startswith(f"backend 'mine': verb 'sum' raised {said}")


def test_a_hook_of_the_rule_is_called_with_too_many_arguments(blamed):
    """The framework's C code calls a hook in a line of the adapter: it is not the adapter that called it wrongly."""
    outcome, said, _ = blamed(rule="backend.sum(lambda grad, more: None)", verb="return list(map(tensor, [1]))")

    assert outcome is Outcome.FAIL
    assert said.startswith("sum raised TypeError: test_rule.<locals>.<lambda>() missing 1 required positional argument")


def test_a_module_that_the_adapter_brings_fails(blamed, tmp_path):
    """A helper beside the adapter is the adapter's, unless it is the framework."""
    (tmp_path / "helper.py").write_text("def help_me():\n    return None.nothing\n")

    outcome, said, where = blamed(verb="import helper; helper.help_me()")

    assert (Outcome.ERROR, f"{tmp_path}/helper.py:2") == (outcome, where)
    assert said.startswith("backend 'mine': verb 'sum' raised AttributeError")


@pytest.mark.parametrize("expected", ["ErrorKind.NO_GRADIENT", "ErrorKind.GRAPH_FREED"])
def test_an_expected_exception_of_the_adapter_is_an_error(blamed, expected):
    """An exception of the adapter's own lines is an error also where the rule expects an exception."""
    outcome, said, where = blamed(
        rule=f"from hooklaw import ErrorKind\n    with trace.raises({expected}): backend.sum(None)",
        verb="return int('x', 2) if tensor else [][3]",
    )

    assert (outcome, said) == (Outcome.ERROR, "backend 'mine': verb 'sum' raised IndexError: list index out of range")
    assert where.endswith("adapter.py:13")


def test_code_in_c_speaks_for_the_framework(blamed):
    """An error that a call of C code raises in a line of the adapter is the framework's."""
    outcome, said, _ = blamed(verb="return bytes([3, 4]).index(5)")

    assert (outcome, said) == (Outcome.FAIL, "sum raised ValueError: subsection not found")


def test_adapter_passes_an_error_on(blamed):
    """An ordinary error out of the adapter is the framework's behaviour."""
    outcome, said, _ = blamed(verb="raise ValueError('no')")

    assert (outcome, said) == (Outcome.FAIL, "sum raised ValueError: no")


@pytest.mark.parametrize(
    ("expected", "outcome"), [("NO_GRADIENT", Outcome.ERROR), ("COMM_HOOK_SIGNATURE", Outcome.FAIL)]
)
def test_adapter_raises_a_type_that_mistakes_have(blamed, expected, outcome):
    """A KeyError that the adapter raises speaks for the framework only where the rule expects one."""
    rule = f"""from hooklaw import ErrorKind
    backend.errors = {{ErrorKind.NO_GRADIENT: (RuntimeError,), ErrorKind.COMM_HOOK_SIGNATURE: (KeyError,)}}
    with trace.raises(ErrorKind.{expected}, "another phrase"): backend.sum(None)"""

    assert blamed(rule=rule, verb="raise KeyError('oops')")[0] is outcome


def test_adapter_raises_a_type_that_its_errors_name(blamed):
    """A KeyError where the rule expects no error is the adapter's own, though its `errors` name the type."""
    rule = "backend.errors = {'comm-hook-signature': (KeyError,)}; backend.sum(None)"

    assert blamed(rule=rule, verb="raise KeyError('oops')")[:2] == (
        Outcome.ERROR,
        "backend 'mine': verb 'sum' raised KeyError: 'oops'",
    )


def test_rule_raises(blamed):
    """An ordinary error in the rule, outside every verb, is a fail."""
    outcome, said, _ = blamed(rule="raise KeyError('x')")

    assert (outcome, said) == (Outcome.FAIL, "the rule raised KeyError: 'x'")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("trace.expect_before('a')", "TypeError: Trace.expect_before() missing 1 required positional argument: 'then'"),
        ("trace.expect(5)", "TypeError: 'int' object is not subscriptable"),
        ("nothing", "NameError: name 'nothing' is not defined"),
        ("trace.nothing()", "AttributeError: 'Trace' object has no attribute 'nothing'"),
    ],
)
def test_rule_is_broken(blamed, rule, said):
    """A programming error in the rule, or in what the suite gives it, is an error of the rule."""
    outcome, detail, _ = blamed(rule=rule)

    assert (Outcome.ERROR, f"the rule itself raised {said}") == (outcome, detail)


def test_a_hook_that_the_framework_calls_wrongly(blamed):
    """A TypeError that came through the framework is the framework's, though a hook of the rule raised it."""
    outcome, said, _ = blamed(
        rule="from framework import work; work(lambda grad: len(grad))",
        framework="args[0](3)",
    )

    assert (outcome, said) == (Outcome.FAIL, "the rule raised TypeError: object of type 'int' has no len()")


def test_verb_of_a_parent(blamed):
    """An adapter's verb may be its parent's, in another file."""
    outcome, said, _ = blamed(rule="backend.exp(None)")

    assert (
        outcome,
        said.partition(": 'None")[0],
    ) == (Outcome.ERROR, "backend 'mine': verb 'exp' raised AttributeError")


def test_the_last_verb_called_is_named(blamed):
    """Of a verb that calls a hook that calls a verb, the inner one is named."""
    _, said, _ = blamed(rule="backend.call(lambda: backend.exp(None))")

    assert said.startswith("backend 'mine': verb 'exp' raised")


@pytest.mark.parametrize("head", ["Falsifying example", "Falsifying explicit example", "Failing test case"])
def test_example_of_a_property_is_shown(blamed, head):
    """The example that fails is kept in one line, however this version of Hypothesis shows it."""
    note = f"{head}: f(\\n    backend=<B at 0x7f>,\\n    x=[1, 2],\\n    y=None,  # or any other generated value\\n)"
    rule = f"error = AssertionError('differs'); error.add_note('Explanation:'); error.add_note('{note}'); raise error"

    assert blamed(rule=rule)[1] == "differs [Falsifying example: x=[1, 2], y=None]"


def test_a_long_message_is_cut(blamed):
    """Of a message of many lines the first is kept, and how many follow."""
    _, said, _ = blamed(framework="raise RuntimeError('one\\ntwo\\nthree')")

    assert said == "sum raised RuntimeError: one (+2 lines)"


def test_an_assertion_of_the_framework_without_words(blamed):
    """A framework's own assertion that says nothing is named by the verb and its type, so that an entry can say it."""
    assert blamed(framework="assert False")[1] == "sum raised AssertionError"
