"""Selecting rules by an expression: the grammar of pytest's -k."""

import pytest

from hooklaw.errors import UnknownRuleError
from hooklaw.law.selection import matcher

NAMES = ["tensor-hook.order.registration", "order", "MUST", "test_registration_order", "hooklaw.rules.test_order"]


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
    assert matcher(expression)(NAMES)


@pytest.mark.parametrize("expression", ["gone", "not order", "order and gone", "(gone or order) and lost", "orderly"])
def test_does_not_match(expression):
    """An expression that is not so does not match."""
    assert not matcher(expression)(NAMES)


@pytest.mark.parametrize(
    "expression",
    ["and or", "order or", "(order", "order)", "order MUST", "()", "order (MUST)", "a, b", "a = b", "~a", "not"],
)
def test_malformed(expression):
    """A malformed expression is refused in one sentence that repeats it."""
    with pytest.raises(UnknownRuleError) as caught:
        matcher(expression)

    assert f"Wrong expression passed to '-k': {expression}: " in str(caught.value)
    assert "\n" not in str(caught.value)
