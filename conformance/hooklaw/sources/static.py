"""The documentation of a torch that is not imported: docstrings as they stand in its Python files."""

import ast
import inspect
import re
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from hooklaw.sources._syntax import Definition, Syntax, dotted
from hooklaw.sources.subjects import is_public, rank, speaks

COMPILED = "torch._C"
"""What has no Python file: its docstrings are compiled into the library."""
SET_BY = ("torch._torch_docs", "torch._tensor_docs")
"""Modules that give compiled functions and methods their docstrings."""

_FIELD = re.compile(r"\{(\w+)\}")
_ENTRY = re.compile(r"\n {4}(?! )")


class Found(NamedTuple):
    """A definition, the module in which it stands, and its name there."""

    module: str
    name: str
    node: Definition | ast.expr
    """The definition, or the text that was set as the docstring."""


class Static:
    """The Python files of a package, by the name of the module; each is parsed when it is asked for."""

    def __init__(self, texts: Mapping[str, Callable[[], str]], packages: Collection[str], *, speaking: bool) -> None:
        """Take modules, and which of them are packages; with `speaking`, those with no word of a subject are empty."""
        self._texts = texts
        self._packages = packages
        self._speaking = speaking
        self._parsed: dict[str, Syntax] = {}

    def docstring(self, name: str) -> str | None:
        """Return the docstring of an object, empty if it has none; None if only the compiled library can tell."""
        if name in self._set:
            return self._set[name]
        found = self._find(name)
        if isinstance(found, Found):
            return self._text(found)
        return None if found.startswith(COMPILED) else ""

    def docstrings(self, preferred: Collection[str]) -> dict[str, str]:
        """Return the docstrings of the public objects, each by its best name."""
        names: dict[tuple[str, str], str] = {}
        texts: dict[str, str] = {}
        for module in sorted(filter(is_public, self._texts)):
            for name, found in self._public(module):
                at = found.module, found.name
                if at not in names or rank(name, found.name, preferred) < rank(names[at], found.name, preferred):
                    names[at] = name
                    texts[name] = self._text(found)
        return {name: texts[name] for name in names.values()} | self._set

    @cached_property
    def _set(self) -> dict[str, str]:
        """The docstrings that calls of add_docstr set, by the public name of the object."""
        return {
            name: inspect.cleandoc(self._value(module, value))
            for module in SET_BY
            if (syntax := self._syntax(module))
            for name, value in syntax.documented.items()
        }

    def _syntax(self, module: str) -> Syntax | None:
        if module not in self._parsed and module in self._texts:
            text = self._texts[module]()
            package = module in self._packages
            worth = package or not self._speaking or _speaks(text)
            self._parsed[module] = Syntax(module, text if worth else "", package=package)
        return self._parsed.get(module)

    def _public(self, module: str) -> Iterator[tuple[str, Found]]:
        for name in self._exported(module, []):
            found = self._attribute(module, name, [])
            if isinstance(found, Found) and (found.module not in self._packages or found.module == module):
                yield f"{module}.{name}", found
                if isinstance(found.node, ast.ClassDef):
                    members = self._members(found, found.node)
                    yield from (
                        (f"{module}.{name}.{each}", at) for each, at in members.items() if not each.startswith("_")
                    )

    def _exported(self, module: str, seen: list[str]) -> Iterable[str]:
        syntax = self._syntax(module)
        if syntax is None or module in seen:
            return []
        stars = (
            [] if syntax.lists else [name for star in syntax.stars for name in self._exported(star, [*seen, module])]
        )
        return dict.fromkeys([*syntax.exported, *stars])

    def _find(self, name: str) -> Found | str:
        """Return the definition or the module of this name, an empty string if there is none."""
        module, *rest = name.split(".")
        at: Found | str = module
        for part in rest:
            if isinstance(at, Found):
                members = self._members(at, at.node) if isinstance(at.node, ast.ClassDef) else {}
                at = members.get(part, "")
            else:
                at = self._attribute(at, part, [])
            if not at or at == COMPILED:
                return at
        return at

    def _attribute(self, module: str, name: str, seen: list[tuple[str, str]]) -> Found | str:
        """Return what a name of a module stands for: a definition, a module, compiled code, or nothing."""
        if module.startswith(COMPILED):
            return COMPILED
        syntax = self._syntax(module)
        if syntax is None or (module, name) in seen:
            return ""
        seen = [*seen, (module, name)]
        if name in syntax.defined:
            return Found(module, name, syntax.defined[name])
        return next(filter(None, self._meanings(syntax, name, seen)), "")

    def _meanings(self, syntax: Syntax, name: str, seen: list[tuple[str, str]]) -> Iterator[Found | str]:
        if alias := syntax.aliases.get(name):
            yield self._attribute(alias.module, alias.name, seen) if alias.name else alias.module
        if name in syntax.assigned and (other := dotted(syntax.assigned[name])):
            yield self._within(syntax.module, other, seen)
        if f"{syntax.module}.{name}" in self._texts:
            yield f"{syntax.module}.{name}"
        yield from (self._attribute(star, name, seen) for star in syntax.stars)

    def _within(self, module: str, expression: str, seen: list[tuple[str, str]]) -> Found | str:
        first, *rest = expression.split(".")
        at = "torch" if first == "torch" else self._attribute(module, first, seen)
        for part in rest:
            at = self._attribute(at, part, seen) if isinstance(at, str) else ""
        return at

    def _members(self, found: Found, node: ast.ClassDef) -> dict[str, Found]:
        """Return the members of a class, also those of bases that have no public name."""
        held: dict[str, Found] = {}
        for base in reversed(node.bases):
            other = self._within(found.module, dotted(base), []) if dotted(base) else ""
            if isinstance(other, Found) and isinstance(other.node, ast.ClassDef) and not _is_public(other):
                held |= self._members(other, other.node)
        for name, own in Syntax.members(node).items():
            other = self._within(found.module, dotted(own), []) if isinstance(own, ast.expr) and dotted(own) else ""
            held[name] = other if isinstance(other, Found) else Found(found.module, f"{found.name}.{name}", own)
        return held

    def _text(self, found: Found) -> str:
        syntax = self._syntax(found.module)
        if syntax and found.name in syntax.documented:
            return inspect.cleandoc(self._value(found.module, syntax.documented[found.name]))
        if isinstance(found.node, ast.expr):
            return inspect.cleandoc(self._value(found.module, found.node))
        return ast.get_docstring(found.node) or ""

    def _value(self, module: str, node: ast.expr | None) -> str:
        """Return the text of an expression; what is put together in another way is left out."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name) | ast.FormattedValue(value=ast.Name(id=name)):
                return self._assigned(module, name)
            case ast.Call(func=ast.Attribute(value=text, attr="format"), keywords=given):
                entries = ChainMap(*(self._entries(module, each.value) for each in given))
                return _FIELD.sub(lambda found: entries.get(found[1], ""), self._value(module, text))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                parts = [left, right]
            case ast.JoinedStr(values=parts):
                pass
            case _:
                parts = []
        return "".join(self._value(module, part) for part in parts)

    def _entries(self, module: str, node: ast.expr) -> dict[str, str]:
        """Return the entries of parameters that a docstring shares with others, by the name of the parameter."""
        syntax = self._syntax(module)
        match node:
            case ast.Name(id=name) if syntax and (alias := syntax.aliases.get(name)):
                return self._entries(alias.module, ast.Name(alias.name))
            case ast.Name(id=name) if syntax and name in syntax.assigned:
                return self._entries(module, syntax.assigned[name])
            case ast.Call(args=[ast.Constant(value=str(text))]):
                entries = map(str.strip, _ENTRY.split(text))
                return {entry.split()[0]: entry for entry in entries if entry}
            case ast.Call(args=others):
                return {name: entry for other in others for name, entry in self._entries(module, other).items()}
            case _:
                return {}

    def _assigned(self, module: str, name: str) -> str:
        syntax = self._syntax(module)
        if syntax is None:
            return ""
        if alias := syntax.aliases.get(name):
            return self._assigned(alias.module, alias.name)
        return self._value(module, syntax.assigned.get(name))


def _is_public(found: Found) -> bool:
    return not found.name.startswith("_") and is_public(found.module)


def _speaks(text: str) -> bool:
    """Whether a docstring in a text mentions a subject, or may do so."""
    return speaks(text) and ("'''" in text or any(map(speaks, text.split('"""')[1::2])))
