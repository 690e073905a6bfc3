"""Selecting rules by an expression, with the grammar of pytest's -k: the grammar of Python's own and, or, not."""

import ast
import re
from collections.abc import Callable, Iterable

from hooklaw.errors import UnknownRuleError

_WORD = re.compile(r"[\w:+\-.\[\]\\/]+")
_OPERATORS = {"and", "or", "not"}
_GRAMMAR = (ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Name, ast.Load)


def matcher(expression: str) -> Callable[[Iterable[str]], bool]:
    """Return a function that says whether some names match: a word matches if it is part of a name, in any case.

    Words are joined by and, or, not and parentheses; an empty expression matches everything. Raises UnknownRuleError
    where the expression is malformed.
    """
    words: dict[str, str] = {}

    def as_variable(found: re.Match[str]) -> str:
        if found[0] in _OPERATORS:
            return found[0]
        words[f"_{len(words)}"] = found[0].lower()
        return [*words][-1]

    text = _WORD.sub(as_variable, expression).strip()
    if not text:
        return lambda _: True
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        tree = None
    if tree is None or not all(isinstance(part, _GRAMMAR) for part in ast.walk(tree)):
        raise UnknownRuleError(
            f"Wrong expression passed to '-k': {expression}: join words by 'and', 'or', 'not' and parentheses"
        )

    def matches(names: Iterable[str]) -> bool:
        known = [name.lower() for name in names]
        return _holds(tree, lambda variable: any(words[variable] in name for name in known))

    return matches


def _holds(tree: ast.expr, is_in: Callable[[str], bool]) -> bool:
    match tree:
        case ast.BoolOp(ast.And(), values):
            return all(_holds(value, is_in) for value in values)
        case ast.BoolOp(_, values):
            return any(_holds(value, is_in) for value in values)
        case ast.UnaryOp(_, operand):
            return not _holds(operand, is_in)
        case ast.Name(variable):
            return is_in(variable)
        case _:
            raise TypeError(tree)
