"""Finding rules by an expression with the grammar of pytest's -k, or by words."""

import pytest

from hooklaw.errors import UnknownMutantError, UnknownRuleError
from hooklaw.law.selection import Catalogue, Kind

NAMES = ["tensor-hook.order.registration", "order", "MUST", "test_registration_order", "hooklaw.rules.test_order"]
RULE = (NAMES, ["tensor-hooks", "views"], ["hooks-run-in-reverse-order", "Hooks run as they were registered."])
OTHER = (["gone.lost", "lost-things", "MAY"], ["anomaly", "order-free"], ["lost-twice", "A view is lost."])


def catalogue(*rules):
    """Return a catalogue of rules that are written as their places."""
    return Catalogue(rules, lambda rule: rule)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "  ",
        "order",
        "ORDER",
        "must",
        "tensor-hook.order.registration",
        "gone or order",
        "order and MUST",
        "not gone",
        "not (gone or lost)",
        "gone or order and not lost",
        "order and(MUST)",
        "not not order",
        "test_order",
    ],
)
def test_matches(expression):
    """A word matches part of a name in any case; and binds closer than or, not closer than both."""
    assert RULE in catalogue(RULE, OTHER).select(expression)


@pytest.mark.parametrize("expression", ["gone", "not order", "order and gone", "(gone or order) and lost"])
def test_does_not_match(expression):
    """An expression that is not so does not match."""
    assert RULE not in catalogue(RULE, OTHER).select(expression)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("order", [RULE]),
        ("tensor-hooks", [RULE]),
        ("order-free", [OTHER]),
        ("view", [RULE]),
        ("not view", [OTHER]),
        ("twice", [OTHER]),
        ("registered", [RULE]),
        ("TensorHook", [RULE]),
    ],
)
def test_names_count_first(expression, found):
    """A word that is in no name matches capabilities, then mutants and statements, then names without hyphens."""
    assert catalogue(RULE, OTHER).select(expression) == found


def test_several_expressions():
    """Several expressions match what one of them matches, in the order of the items."""
    assert catalogue(RULE, OTHER).select("gone", "order") == [RULE, OTHER]


@pytest.mark.parametrize("expression", ["orderly", "order or orderly", "not orderly"])
def test_word_that_is_nowhere(expression):
    """A word that is nowhere is a mistake, wherever it stands, and what is like it is named."""
    with pytest.raises(UnknownRuleError, match=r"^no rule matches 'orderly': did you mean order\?$"):
        catalogue(RULE).select(expression)


def test_error_of_a_kind():
    """The error is that of what is looked for, and names the verb that lists it."""
    mutants = Catalogue(
        [["a-b"]], lambda name: [name], Kind("mutant", "`hooklaw mutants` shows all", UnknownMutantError)
    )

    with pytest.raises(UnknownMutantError, match="^no mutant matches 'xyzzy': `hooklaw mutants` shows all$"):
        mutants.select("xyzzy")


@pytest.mark.parametrize(
    "expression",
    ["and or", "order or", "(order", "order)", "order MUST", "()", "order (MUST)", "a, b", "a = b", "~a", "not"],
)
def test_malformed(expression):
    """A malformed expression is refused in one sentence that repeats it."""
    with pytest.raises(UnknownRuleError) as caught:
        catalogue(RULE).select(expression)

    assert f"Wrong expression passed to '-k': {expression}: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "found"),
    [(["view"], [RULE, OTHER]), (["views", "lost"], [OTHER]), (["hooks", "order"], [RULE]), (["TensorHooks"], [RULE])],
)
def test_search(words, found):
    """Words find the items that have all of them in any place, in the singular too."""
    assert catalogue(RULE, OTHER).search(words) == found


def test_search_in_vain():
    """Words that are nowhere together, or one that is nowhere at all, are an error that says which."""
    with pytest.raises(UnknownRuleError, match="no rule has all of the words MAY, registration: leave some out"):
        catalogue(RULE, OTHER).search(["MAY", "registration"])
    with pytest.raises(UnknownRuleError, match="no rule matches 'anomoly': did you mean anomaly"):
        catalogue(RULE, OTHER).search(["view", "anomoly"])
