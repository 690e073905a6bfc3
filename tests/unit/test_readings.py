"""Readings of sentences: how they are written, what they answer, and what is wrong with them."""

import pytest

from hooklaw.errors import DocumentationError
from hooklaw.law.rule import Basis, Level, Rule, docstring, notes, observed
from hooklaw.sources.answers import answers, complaints, unsourced
from hooklaw.sources.readings import load_readings, parse
from hooklaw.sources.table import Table

REASONS = '[classes]\nexample = "an example"\nuser = "obliges the user"\n[elsewhere]\n"made.fx." = "passes"\n'
HOOK = docstring("made.hook")
TABLE = Table("1.0", {}, {"made.hook": ["a", "b", "c"]}, {"notes/made": {"how": ["d"]}})


def rule(rule_id, *sources, level=Level.MUST, basis=Basis.DOCUMENTED):
    """Make a rule with these sources."""
    return Rule(rule_id, "made", "A law.", level, basis, [*sources], [], [])


def readings(text):
    """Return the readings of a file with this text."""
    return parse({"reasons.toml": REASONS, "made.toml": text})


def said(text, *rules):
    """Return what is said of each sentence of the made docstring: rules, or reasons."""
    return [each.rules or each.reasons for each in answers(rules, readings(text), TABLE)["docstring made.hook"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [["a.b"], [], []]),
        ("no-rule = { example = [2], user = [3] }", [["a.b"], ["example"], ["user"]]),
        ('no-rule = { example = ["2-3"] }', [["a.b"], ["example"], ["example"]]),
        ('no-rule = { example = "all", user = [2] }', [["a.b"], ["user"], ["example"]]),
        ('because = { 3 = "it is a joke" }', [["a.b"], [], ["it is a joke"]]),
        ('implied = [{ sentence = 1, rules = ["a.c"] }]', [["a.b", "a.c"], [], []]),
    ],
)
def test_answers(text, expected):
    """A sentence is answered by the rules that name it, by those that imply it, or by a reason."""
    assert expected == said(f'["docstring made.hook"]\n{text}', rule("a.b", HOOK.sentence(1)), rule("a.c"))


def test_answers_of_a_page():
    """The key of a section is the page with its anchor."""
    found = answers([rule("a.b", notes("made", "how").sentence(1))], readings(""), TABLE)

    assert found["notes/made#how"][0].stated == ["a.b"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no-rule = [", "readings/made.toml: "),
        ("no_rule = {}", "readings/made.toml: Object contains unknown field `no_rule`"),
        ("because = { one = 'x' }", "readings/made.toml: Expected `int`"),
        ('no-rule = { example = ["2 to 3"] }', "example has '2 to 3': write an ordinal, or a range such as \"3-9\""),
        ('no-rule = { example = "some" }', "readings/made.toml: "),
        ("implied = [{ sentence = 1, rules = [] }]", "sentence 1 is implied by no rule: name one or more"),
    ],
)
def test_bad_file(text, sentence):
    """A file that is not one of readings is one sentence that names it."""
    with pytest.raises(DocumentationError) as refused:
        readings(f'["docstring made.hook"]\n{text}')

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_two_files_with_one_source():
    """A source has its readings in one file."""
    text = '["docstring made.hook"]\n'

    with pytest.raises(DocumentationError, match="readings/b.toml: 'docstring made.hook' has readings in another file"):
        parse({"reasons.toml": REASONS, "a.toml": text, "b.toml": text})


def test_reasons_are_missing():
    """Without the classes of reasons there are no readings."""
    with pytest.raises(DocumentationError, match="readings/reasons.toml: Object missing required field `classes`"):
        parse({})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", []),
        ("no-rule = { example = [4] }", ["docstring made.hook: sentence 4 does not exist, there are 3"]),
        ("no-rule = { exmple = [2] }", ["docstring made.hook: exmple is no class of reasons"]),
        (
            'implied = [{ sentence = 2, rules = ["a.z"] }]',
            ["docstring made.hook: a.z is no rule"],
        ),
        (
            "no-rule = { example = [1] }",
            ["docstring made.hook: sentence 1 has several readings: a.b, example"],
        ),
        (
            "no-rule = { example = [2], user = [2] }",
            ["docstring made.hook: sentence 2 has several readings: example, user"],
        ),
        (
            'implied = [{ sentence = 2, rules = ["a.seen"] }]',
            ["docstring made.hook: sentence 2 is answered by observed rules alone: a.seen"],
        ),
        (
            'implied = [{ sentence = 2, rules = ["a.may"] }]',
            ["docstring made.hook: sentence 2 is implied by MAY rules alone: a.may"],
        ),
        ('implied = [{ sentence = 2, rules = ["a.may", "a.b"] }]', []),
    ],
)
def test_complaints(text, complaint):
    """A reading that cannot be right is a line."""
    rules = [
        rule("a.b", HOOK.sentence(1)),
        rule("a.may", HOOK.sentence(3), level=Level.MAY),
        rule("a.seen", observed("it was seen"), level=Level.SHOULD, basis=Basis.OBSERVED),
    ]

    assert complaints(rules, readings(f'["docstring made.hook"]\n{text}'), TABLE) == complaint


def test_complaint_of_an_unknown_source():
    """So is a source that is not counted."""
    found = complaints([], readings('["docstring made.hok"]\n'), TABLE)

    assert found == ["docstring made.hok: no such source is counted: look at its name, or renew the table of sentences"]


def test_unsourced():
    """A documented rule names a sentence; an observed one need not."""
    seen = rule("a.seen", observed("it was seen"), level=Level.MAY, basis=Basis.OBSERVED)

    assert unsourced([rule("a.b", HOOK.sentence(1)), rule("a.c", HOOK), seen]) == ["a.c"]


def test_elsewhere():
    """A beginning of names says what is not counted."""
    assert [readings("").elsewhere(name) for name in ("made.fx.hook", "made.hook")] == ["passes", ""]


def test_each_class_is_used():
    """Each class of reasons stands in a reading."""
    found = load_readings()

    assert {*found.reasons.classes} == {name for reading in found.sources.values() for name in reading.no_rule}
