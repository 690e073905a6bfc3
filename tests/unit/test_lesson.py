"""What `hooklaw explain` teaches: why, neighbours, known divergences, and what people say."""

import re

import pytest

from hooklaw.cli.lesson import Lesson, lesson, neighbours, why_chapters_matter
from hooklaw.errors import HooklawError
from hooklaw.folklore import load_claims
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Level, Registered, Rule, docstring
from hooklaw.results.expectations import everywhere
from hooklaw.results.verdict import Expectation

HOOK = docstring("made.hook")


def rule(rule_id, *sources, chapter="made"):
    """Make a rule with these sources."""
    return Rule(rule_id, chapter, f"The law of {rule_id}.", Level.MUST, "documented", [*sources], [], [])


RULES = [
    rule("a.stranger", docstring("other"), chapter="other"),
    rule("a.chapter", docstring("other")),
    rule("a.source", HOOK.sentence(2), chapter="other"),
    rule("a.sentence", HOOK.sentence(1, 3), chapter="other"),
    rule("b.rule.sentence", HOOK.sentence(3), chapter="other"),
]
RULE = rule("b.rule", HOOK.sentence(3))


def test_neighbours():
    """The nearest rules share a sentence, then a source, then the chapter; of these, ids that are alike come first."""
    found = [each.id for each in neighbours(RULE, [*RULES, RULE])]

    assert found == ["b.rule.sentence", "a.sentence", "a.source", "a.chapter"]


def test_few_neighbours():
    """No more than a few are shown."""
    assert len(neighbours(RULE, [rule(f"c.{number}", HOOK) for number in range(20)])) == 6


def test_why():
    """What follows the statement in the docstring of a rule says why."""

    def function():
        """State the law.

        It follows
        in one step.

        And more.
        """

    assert lesson(Registered(RULE, function, "made"), []).why == "It follows in one step. And more."


def test_why_it_matters():
    """Every chapter says why its rules matter, in a sentence; a chapter of somebody else's says nothing."""
    found = why_chapters_matter()

    assert {each.rule.chapter for each in load_rules().values()} == found.keys()
    assert [chapter for chapter, why in found.items() if not re.fullmatch(r"[A-Z][^.]+\.", why)] == []
    assert lesson(load_rules()["retain-grad.vs-node-prehook"], []).matters == found["retain-grad"]
    assert lesson(Registered(RULE, test_why, "made"), []).matters == ""


def test_everywhere():
    """The divergences of a rule are the entries of each shipped file; most rules have none."""
    found = everywhere("retain-grad.vs-node-prehook")

    assert [entry.rule for entry in found["torch-eager"]] == ["retain-grad.vs-node-prehook"]
    assert everywhere("no.such-rule") == {}


def test_text():
    """The text has a heading for each part that is not empty."""
    claim = next(claim for claim in load_claims() if claim.verdict.refutes and claim.answer)
    entry = Expectation("b.rule", ["fail"], "it is known", when="toy<2", condition=["thread"], issue="#1")
    lines = Lesson("", "", RULES[:1], {"toy": [entry]}, [claim]).as_text()

    assert lines[:5] == [
        "",
        "  neighbours",
        "    a.stranger: The law of a.stranger.",
        "",
        "  known divergences",
    ]
    assert lines[5] == "    toy (toy<2, under thread): fail: it is known #1"
    assert lines[6:8] == ["", "  what people say"]
    assert claim.answer.split()[0] in "".join(lines[9:])
    assert Lesson("", "", [], {}, []).as_text() == []


@pytest.mark.parametrize("name", sorted({rule for claim in load_claims() for rule in claim.rules})[:5])
def test_folklore_of_a_rule(name):
    """A rule that a claim names has the claim in its lesson."""
    known = load_rules()
    if name not in known:
        raise HooklawError(name)

    assert lesson(known[name], []).folklore
