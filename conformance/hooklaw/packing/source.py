"""The text of a program: the body of a property, with what it uses written above it, so that it runs as it stands."""

import ast
import dis
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

PACKER = "packer"
"""The name of the packer in every program."""


SHARED = "hooklaw.packing.properties.parts"
"""Where a case's expressions find what the property's own module does not import."""


class Parts(NamedTuple):
    """What a program is made of, but for the packer and the case."""

    imports: list[str]
    helpers: list[str]
    body: str


def program(function: Callable[..., Any], packer: str, case: Mapping[str, str]) -> str:
    """Return the program: `packer` are the lines that import it, `case` gives each other parameter an expression."""
    wanted = [name for name in inspect.signature(function).parameters if name != PACKER]
    used = frozenset(name for one in wanted for name in _names_in(case[one]))
    parts = parts_of(function, used)
    values = [f"{name} = {case[name]}" for name in wanted]
    head = "\n".join([*parts.imports, packer])
    chunks = [head, *(f"\n{helper}" for helper in parts.helpers), "\n".join(values), parts.body]
    return "\n\n".join(chunk for chunk in chunks if chunk) + "\n"


@cache
def parts_of(function: Callable[..., Any], names: frozenset[str]) -> Parts:
    """Take a property's function apart; `names` are those that its case uses."""
    imports: dict[str, None] = {"import torch": None}
    helpers: dict[str, None] = {}
    _gather(function, [*sorted(names), *_names(function.__code__)], imports, helpers)  # type: ignore[attr-defined]
    return Parts([*imports], [*helpers], _body(function))


def _gather(
    function: Callable[..., Any], names: Iterable[str], imports: dict[str, None], helpers: dict[str, None]
) -> None:
    """Collect what a function uses of its module, each thing after what it uses itself."""
    shared = vars(importlib.import_module(SHARED))
    scope: dict[str, Any] = {**shared, **function.__globals__}  # type: ignore[attr-defined]
    own = set(inspect.signature(function).parameters)
    for name in names:
        if name not in scope or name in own:
            continue
        found = scope[name]
        if isinstance(found, ModuleType):
            imports[f"import {found.__name__}" + (f" as {name}" if found.__name__ != name else "")] = None
        elif isinstance(found, FunctionType) and found.__module__.startswith(__package__ or ""):
            _gather(found, _names(found.__code__), imports, helpers)
            helpers[inspect.getsource(found).strip()] = None
        elif isinstance(found, type | FunctionType):
            imports[f"from {found.__module__} import {name}"] = None
        else:
            helpers[f"{name} = {found!r}"] = None


def _names(code: CodeType) -> Iterator[str]:
    """Yield what the code looks up in its module, attributes left out."""
    loads = (one for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    yield from (one.argval for one in loads if one.argval.isidentifier() and not one.argval.startswith("__"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _names_in(expression: str) -> tuple[str, ...]:
    return tuple(_names(compile(expression, "<case>", "eval")))


def _body(function: Callable[..., Any]) -> str:
    text = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)  # noqa: S101 - it was registered by a decorator of functions
    first = tree.body[1]  # the docstring is the law, printed elsewhere
    begin = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
    return textwrap.dedent("\n".join(text.splitlines()[begin - 1 :]))
