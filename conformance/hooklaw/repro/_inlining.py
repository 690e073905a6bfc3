"""Inlining: the one expression that a method is, and what its parameters stand for in a call."""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

NAMED = ast.Name | ast.Attribute | ast.Call | ast.Subscript
DISPLAYS = ast.List | ast.ListComp | ast.Dict | ast.DictComp | ast.Set | ast.SetComp | ast.Tuple
ATOMS = NAMED | DISPLAYS | ast.Constant | ast.JoinedStr
"""Expressions that need no parentheses anywhere."""


class Given(NamedTuple):
    """What a parameter stands for: an expression, and the arguments that a parameter with a star hands on."""

    text: str
    node: ast.AST | None = None
    spread: str = ""


Parameters = Mapping[str, Given | None]
"""None for one that is not given."""


def expression(method: ast.FunctionDef) -> ast.expr | None:
    """Return the one expression that a method is."""
    body = method.body[ast.get_docstring(method) is not None :]
    match body:
        case [ast.Return(value=ast.expr() as value)] | [ast.Expr(value=value)]:
            return value
        case _:
            return None


def enclosed(text: str) -> str:
    """Return an expression as an operand: in parentheses, unless it is an atom or has them."""
    node = ast.parse(text, mode="eval").body
    return text if isinstance(node, ATOMS) or node.col_offset else f"({text})"


def operands(node: ast.AST) -> Sequence[ast.AST]:
    """Return the atoms that an operator binds: what replaces one must be an atom too, or stand in parentheses."""
    return [part for part in _bound_parts(node) if isinstance(part, ATOMS)]


def _bound_parts(node: ast.AST) -> Iterable[ast.AST]:
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.Compare() | ast.UnaryOp() | ast.IfExp():
            return ast.iter_child_nodes(node)
        case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Call(func=value):
            return [value]
        case _:
            return []


def given(text: Callable[[ast.AST], str], node: ast.expr) -> Given:
    """Return what a parameter stands for that is given an expression."""
    return Given(text(node), node)


def _given_several(texts: Sequence[str]) -> Given:
    """Return what a parameter with one star stands for: a tuple."""
    spread = ", ".join(texts)
    return Given(f"({spread},)" if len(texts) == 1 else f"({spread})", spread=spread)


def parameters(
    text: Callable[[ast.AST], str],
    values: Sequence[ast.expr],
    keywords: Sequence[ast.keyword],
    method: ast.FunctionDef,
    default_dtype: str,
) -> Parameters | None:
    """Return what each parameter of a method stands for in a call; None where that is known in the run alone."""
    positional = [part.arg for part in method.args.args[1:]]
    stars, rest = method.args.vararg, method.args.kwarg
    named = {part.arg: part.value for part in keywords if part.arg}
    unpacked = [f"**{text(part.value)}" for part in keywords if not part.arg]
    if (unpacked and not rest) or any(isinstance(part, ast.Starred) for part in values[: len(positional)]):
        return None
    known = {*positional, *(part.arg for part in method.args.kwonlyargs)}
    found: dict[str, Given | None] = dict.fromkeys(known)
    found |= {name: given(text, value) for name, value in zip(positional, values, strict=False)}
    found |= {name: given(text, value) for name, value in named.items() if name in known}
    if "dtype" in found and found["dtype"] is None and not (default_dtype == "float32" and _is_of_floats(values[0])):
        found["dtype"] = Given('"float32"')
    if stars:
        found[stars.arg] = _given_several([*map(text, values[len(positional) :])])
    if rest:
        more = [f"{name}={text(value)}" for name, value in named.items() if name not in known]
        spread = ", ".join([*more, *unpacked])
        found[rest.arg] = Given(f"dict({spread})", spread=spread)
    return found


def _is_of_floats(node: ast.AST) -> bool:
    """Return whether a literal holds floats only, so that its dtype goes without saying."""
    parts = [*ast.walk(node)]
    numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
    literal = all(isinstance(part, ast.List | ast.Constant | ast.UnaryOp | ast.USub | ast.Load) for part in parts)
    return literal and all(isinstance(part, float) for part in numbers)


def repeats(inlined: ast.expr, known: Parameters) -> bool:
    """Return whether an operation would be written twice."""
    names = [part.id for part in ast.walk(inlined) if isinstance(part, ast.Name)]
    return any(
        value is not None and names.count(name) > 1 and not isinstance(value.node, ast.Name | ast.Constant | None)
        for name, value in known.items()
    )
