"""The text of a program: a property's body below its imports, helpers and case, ready to run."""

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
"""The packer's name in every program."""


SHARED = "hooklaw.packing.properties.parts"
"""The module in which expressions of a case look up names that the property's module lacks."""


class ProgramParts(NamedTuple):
    """The parts of a program, without the packer and the case."""

    imports: list[str]
    helpers: list[str]
    body: str


def program(function: Callable[..., Any], packer: str, case: Mapping[str, str]) -> str:
    """Return the program: `packer` has the lines that import it, `case` an expression for each other parameter."""
    wanted = [name for name in inspect.signature(function).parameters if name != PACKER]
    used = frozenset(name for parameter in wanted for name in _names_in(case[parameter]))
    parts = parts_of(function, used)
    values = [f"{name} = {case[name]}" for name in wanted]
    head = "\n".join([*parts.imports, packer])
    chunks = [head, *(f"\n{helper}" for helper in parts.helpers), "\n".join(values), parts.body]
    return "\n\n".join(chunk for chunk in chunks if chunk) + "\n"


@cache
def parts_of(function: Callable[..., Any], names: frozenset[str]) -> ProgramParts:
    """Split a property's function into parts; `names` are the names that its case uses."""
    imports: dict[str, None] = {"import torch": None}
    helpers: dict[str, None] = {}
    _gather(function, [*sorted(names), *_names(function.__code__)], imports, helpers)  # type: ignore[attr-defined]
    return ProgramParts([*imports], [*helpers], _body(function))


def _gather(
    function: Callable[..., Any], names: Iterable[str], imports: dict[str, None], helpers: dict[str, None]
) -> None:
    """Collect the imports and helpers that a function uses, each helper after those it uses itself."""
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
    """Yield the global names that the code loads."""
    loads = (load.argval for load in dis.get_instructions(code) if load.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    yield from (name for name in loads if name.isidentifier() and not name.startswith("__"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _names_in(expression: str) -> tuple[str, ...]:
    return tuple(_names(compile(expression, "<case>", "eval")))


def _body(function: Callable[..., Any]) -> str:
    text = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)  # noqa: S101 - `law` decorates functions
    first = tree.body[1]  # after the docstring
    begin = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", []))])
    return textwrap.dedent("\n".join(text.splitlines()[begin - 1 :]))
