"""Source text of modules: what they define and import, and the text of each node."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from copy import copy
from functools import cache
from textwrap import dedent
from types import ModuleType
from typing import Any

REMARK = re.compile(r" *# (noqa|pyright|type):.*$", re.MULTILINE)
"""Comments that speak to linters."""
EMPTY_LINES = re.compile(r"\n[ \t]+(?=\n)")

COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
SCOPES = ast.FunctionDef | ast.Lambda | ast.ClassDef | COMPREHENSIONS
"""What binds names for itself."""

Edit = tuple[Any, str]
"""A node, and the text that replaces it."""


class ModuleSource:
    """One module: its text, its definitions and its imports by name."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._lines = inspect.getsource(module).encode().splitlines(keepends=True)
        self.definitions: dict[str, ast.stmt] = {}
        self.imports: dict[str, str] = {}
        """Import statements by the name that they bind."""
        self._read(ast.parse(b"".join(self._lines)).body)

    def fragment(self, text: str) -> tuple["ModuleSource", ast.stmt]:
        """Return a statement that stands nowhere in the module, and a source of it with the names of the module."""
        made = copy(self)
        made._lines = text.encode().splitlines(keepends=True)  # noqa: SLF001 - a copy of its own kind
        return made, ast.parse(text).body[0]

    def _read(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.FunctionDef() | ast.ClassDef():
                    self.definitions[statement.name] = statement
                case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                    self.definitions[name] = statement
                case ast.Import() | ast.ImportFrom():
                    self._read_import(statement)
                case ast.Try(body=inner) | ast.With(body=inner):
                    self._read(inner)
                case _:
                    pass

    def _read_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        origin = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
        for alias in statement.names:
            self.imports[alias.asname or alias.name.partition(".")[0]] = f"{origin}import {ast.unparse(alias)}"

    def text(self, node: Any, edits: Iterable[Edit] = ()) -> str:
        """Return the text of a node, with some nodes inside it replaced."""
        begin, end = _begin(node), (node.end_lineno, node.end_col_offset)
        parts: list[bytes] = []
        for inner, new in sorted(edits, key=lambda edit: _begin(edit[0])):
            parts += [self._between(begin, _begin(inner)), new.encode()]
            begin = (inner.end_lineno, inner.end_col_offset)
        return b"".join([*parts, self._between(begin, end)]).decode()

    def block(self, statements: list[ast.stmt], edits: Iterable[Edit] = ()) -> str:
        """Return statements of one block as a block that is not indented."""
        first, last = statements[0], statements[-1]
        span = ast.copy_location(ast.Pass(), last)
        span.lineno, span.col_offset = _begin(first)[0], 0
        return tidied(dedent(self.text(span, edits)))

    def _between(self, begin: tuple[int, int], end: tuple[int, int]) -> bytes:
        lines = self._lines[begin[0] - 1 : end[0]]
        if not lines or begin >= end:
            return b""
        lines[-1] = lines[-1][: end[1]]
        lines[0] = lines[0][begin[1] :]
        return b"".join(lines)


def tidied(text: str) -> str:
    """Return text without remarks to linters and blanks at the ends of lines."""
    return EMPTY_LINES.sub("\n", REMARK.sub("", text)).strip("\n")


def _begin(node: Any) -> tuple[int, int]:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    if decorators:
        return decorators[0].lineno, decorators[0].col_offset - 1
    return node.lineno, node.col_offset


@cache
def source_of(module: str) -> ModuleSource:
    """Return the source of a module by its name."""
    return ModuleSource(importlib.import_module(module))


def bound(node: ast.AST) -> Iterator[str]:
    """Yield every name that is bound in a node: arguments, targets and definitions."""
    for inner in ast.walk(node):
        yield from _names(inner)


def bound_here(node: ast.AST) -> Iterator[str]:
    """Yield the names that a scope binds, without those of the scopes inside it."""
    for child in ast.iter_child_nodes(node):
        yield from _names(child)
        if not isinstance(child, SCOPES):
            yield from bound_here(child)


def _names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.ClassDef(name=name):
            yield name
        case _:
            pass
