"""The source of what a replay executes, as plain torch code: what hooks and Functions do is written once."""

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache, partial
from typing import Any, NamedTuple, cast

BACKENDS = ("backend", "at.backend")
"""What the source calls verbs of."""
FUNCTIONS = {
    "checkpoint": "torch.utils.checkpoint.checkpoint",
    "enable_grad": "torch.enable_grad",
    "grad": "torch.autograd.grad",
    "no_grad": "torch.no_grad",
    "saved_tensors_hooks": "torch.autograd.graph.saved_tensors_hooks",
}
"""Verbs that are functions of torch; the others are methods of tensors, or attributes."""
ATTRIBUTES = ("requires_grad",)


class Code(NamedTuple):
    """A function in plain torch code."""

    parameters: str
    body: str


def code_of(function: Callable[..., Any], left_out: int = 0, names: Mapping[str, str] | None = None) -> Code:
    """Return the code of a function without its first parameters; `names`, and those of words, are replaced."""
    keywords: Mapping[str, Any] = {}
    if isinstance(function, partial):
        keywords, function = function.keywords, cast("Callable[..., Any]", function.func)
    seen = inspect.getclosurevars(function).globals
    words = {name: value for name, value in seen.items() if isinstance(value, str)}
    known = {name: repr(value) for name, value in {**words, **keywords}.items()} | dict(names or {})
    node = _Plain(known).visit(deepcopy(_written(function)))
    del node.args.args[:left_out]
    node.args.kwarg = None
    node.args.kwonlyargs = [each for each in node.args.kwonlyargs if each.arg not in known]
    text = "\n".join(ast.unparse(ast.fix_missing_locations(statement)) for statement in _body(node))
    return Code(ast.unparse(node.args), text.replace("'", '"'))


def _body(node: Any) -> list[ast.stmt]:
    if isinstance(node, ast.Lambda):
        return [ast.Return(node.body)]
    return node.body[ast.get_docstring(node) is not None :]


def _written(function: Any) -> Any:
    """Return a function as its module defines it; lambdas of a line have parameters of different names."""
    code = function.__code__
    names = [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    return next(
        node
        for node in ast.walk(_tree(function.__module__))
        if isinstance(node, ast.Lambda | ast.FunctionDef)
        and node.lineno == code.co_firstlineno
        and [each.arg for each in (*node.args.args, *node.args.kwonlyargs)] == names
    )


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


class _Plain(ast.NodeTransformer):
    """Writes verbs of a backend as torch has them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> Any:
        """Return what stands for a node."""
        if isinstance(node, ast.Name | ast.Attribute) and (text := ast.unparse(node)) in self._names:
            return ast.parse(self._names[text], mode="eval").body
        return super().visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """Return a parameter without its type."""
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Return a function without its type."""
        node.returns = None
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.Name | ast.Call:
        """Return the error that hooks raise as an Exception of torch's user."""
        planned = ast.Call(ast.Name("Exception"), [ast.Constant("planned")], [])
        return planned if node.id == "PlannedError" else node

    def visit_Call(self, node: ast.Call) -> Any:
        """Return a call of a verb as a function, a method or an attribute."""
        match node.func:
            case ast.Attribute(value=holder, attr=verb) if ast.unparse(holder) in BACKENDS:
                return self._verb(verb, node)
            case _:
                return self.generic_visit(node)

    def _verb(self, verb: str, call: ast.Call) -> Any:
        first, *rest = arguments = [self.visit(each) for each in call.args] or [None]
        keywords = [self.visit(each) for each in call.keywords]
        if verb in FUNCTIONS:
            return ast.Call(ast.Name(FUNCTIONS[verb]), arguments if first else [], keywords)
        if verb == "is_tensor":
            return ast.Call(ast.Name("isinstance"), [first, ast.Name("torch.Tensor")], [])
        attribute = ast.Attribute(first, verb)
        return attribute if verb in ATTRIBUTES else ast.Call(attribute, rest, keywords)
