"""Rewriting: a node's text, with each verb replaced by what the adapter does for it."""

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from textwrap import indent
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, Protocol

from hooklaw.backend.capabilities import ErrorKind
from hooklaw.errors import ScriptError
from hooklaw.repro._inlining import ATOMS, Parameters, enclosed, expression, given, operands, parameters, repeats
from hooklaw.repro._source import SCOPES, Edit, ModuleSource, bound_here, source_of, tidied

HANDED = {"backend", "trace", "_backend", "_trace"}
"""Names of what a script does without."""
ALIKE = {"raises_type": "raises"}
"""Methods of a trace that are one function of the witness."""
WORD = re.compile("([\"'])[A-Za-z_]\\w*\\1")
CPU = 'torch.device("cpu")'


class Scope(NamedTuple):
    """Where a text stands: what its names mean."""

    source: ModuleSource
    local: frozenset[str] = frozenset()
    """Names that are bound there."""
    around: frozenset[str] = frozenset()
    """Names that are bound where it stands in the place of a call."""
    given: Parameters = MappingProxyType({})
    adapter: type | None = None
    """The class of an adapter whose method it is."""
    flat: bool = False
    """Whether it is the body of a rule, which a script has at its margin."""
    nested: bool = False
    """Whether it is within a function of the rule, which the adapter may compile."""


class Collects(Protocol):
    """What a rewriter tells of what its text needs."""

    backend: Any

    def name_of(self, source: ModuleSource, name: str, local: frozenset[str]) -> str:
        """Include a definition or an import, and return the text that stands for the name, none of some local names."""
        ...

    def framework(self, module: ModuleType) -> str:
        """Import a module of the framework, and return its name."""
        ...

    def witness(self, name: str, local: frozenset[str]) -> str:
        """Include a function of the witness, and return its name, which none of some local names is."""
        ...

    def helper(self, verb: str, after: type | None, local: frozenset[str]) -> str:
        """Include a verb as a function, and return its name, which none of some local names is."""
        ...

    def state(self, attribute: str, value: Any) -> str:
        """Include what an adapter keeps from one verb to the next, and return its name."""
        ...

    def method(self, verb: str, after: type | None) -> tuple[ModuleSource, ast.FunctionDef, type]:
        """Return where the adapter defines a verb, and how."""
        ...


class Rewriter:
    """Renders nodes of one module."""

    def __init__(self, script: Collects, place: Scope) -> None:
        self.script = script
        self.place = place

    def text(self, node: ast.AST) -> str:
        """Return the text of a node."""
        replaced = self._replaced(node)
        return self.place.source.text(node, self.edits(node)) if replaced is None else replaced

    def block(self, statements: Sequence[ast.stmt]) -> str:
        """Return statements that are not indented."""
        return self.place.source.block([*statements], [edit for part in statements for edit in self.edit(part)])

    def edits(self, node: ast.AST) -> list[Edit]:
        """Return what is replaced within a node."""
        tight = operands(node)
        inner = self._inside(node) if isinstance(node, SCOPES) else self
        return [
            (part, enclosed(text) if part in tight else text)
            for child in ast.iter_child_nodes(node)
            for part, text in (self if isinstance(child, ast.arguments) else inner).edit(child)  # defaults are outside
        ]

    def edit(self, node: ast.AST) -> Iterator[Edit]:
        """Yield what is replaced of a node: the whole of it, or what is within."""
        if isinstance(node, ast.expr_context | ast.operator | ast.cmpop | ast.boolop | ast.unaryop):
            return
        replaced = self._replaced(node)
        if replaced is not None:
            yield node, replaced
        else:
            yield from self.edits(node)

    def _replaced(self, node: ast.AST) -> str | None:
        rewrite = getattr(self, f"_on_{type(node).__name__.lower()}", None)
        return rewrite(node) if rewrite else None

    # statements

    def _on_functiondef(self, node: ast.FunctionDef) -> str:
        body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
        decorators = "".join(f"@{self.text(part)}\n" for part in node.decorator_list)
        head = f"{decorators}def {node.name}({self._parameters(node.args)}){self._annotation(' -> ', node.returns)}:"
        return _headed(head, self._inside(node, nested=True).block(body).strip("\n") or "pass", node.col_offset)

    def _on_lambda(self, node: ast.Lambda) -> str | None:
        if not any(part.arg in HANDED for part in node.args.args) and not self._has_frames:
            return None
        return f"lambda {self._parameters(node.args)}: {self._inside(node, nested=True).text(node.body)}"

    def _parameters(self, arguments: ast.arguments) -> str:
        """Return parameters without those that a script does not hand on."""
        left = {*HANDED, *(["self"] if self.place.adapter else [])}
        positional = [part for part in arguments.args if part.arg not in left]
        defaults = arguments.defaults
        texts = [f"{part.arg}{self._annotation(': ', part.annotation)}" for part in positional]
        for place, default in enumerate(reversed(defaults), start=1):
            texts[-place] += f"={self.text(default)}"
        if arguments.vararg:
            texts.append(f"*{arguments.vararg.arg}")
        elif arguments.kwonlyargs:
            texts.append("*")
        for part, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            texts.append(part.arg if default is None else f"{part.arg}={self.text(default)}")
        return ", ".join([*texts, *([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])])

    def _annotation(self, before: str, node: ast.expr | None) -> str:
        """Return an annotation if a framework may read it: a type of Python's, of a function inside the rule."""
        read = self.place.flat and isinstance(node, ast.Name) and hasattr(builtins, node.id)
        return f"{before}{node.id}" if read and isinstance(node, ast.Name) else ""

    def _on_classdef(self, node: ast.ClassDef) -> str:
        bases = [self.text(part.value if isinstance(part, ast.Subscript) else part) for part in node.bases]
        decorators = "".join(f"@{self.text(part)}\n" for part in node.decorator_list)
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        methods = [part for part in node.body if part not in fields and not _is_remark(part)]
        declared = "\n".join(self._field(part, typed=bool(decorators) or "NamedTuple" in bases) for part in fields)
        inside = self._inside(node)
        body = "\n\n".join(filter(None, [declared.strip(), *(inside.block([part]) for part in methods)])) or "pass"
        return _headed(
            f"{decorators}class {node.name}{'(' + ', '.join(bases) + ')' if bases else ''}:", body, node.col_offset
        )

    def _field(self, node: ast.AnnAssign, *, typed: bool) -> str:
        """Return a field of a class, with a type if it must have one: of a dataclass or a named tuple."""
        default = f" = {self.text(node.value)}" if node.value else ""
        target = self.text(node.target)
        return f"{target}: object{default}" if typed else f"{target}{default}" if default else ""

    def _on_annassign(self, node: ast.AnnAssign) -> str | None:
        return f"{self.text(node.target)} = {self.text(node.value)}" if node.value else ""

    def _on_assign(self, node: ast.Assign) -> str | None:
        (target, value) = node.targets[0], node.value
        if self._is_handed(value):
            return ""
        if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
            return None
        kept = [pair for pair in zip(target.elts, value.elts, strict=True) if not self._is_handed(pair[1])]
        if len(kept) == len(value.elts):
            return None
        return "; ".join(f"{self.text(left)} = {self.text(right)}" for left, right in kept)

    def _on_nonlocal(self, node: ast.Nonlocal) -> str | None:
        return f"global {', '.join(node.names)}" if self.place.flat else None

    # expressions

    def _on_name(self, node: ast.Name) -> str | None:
        if node.id in self.place.given:
            given = self.place.given[node.id]
            return given.text if given else "None"
        if node.id in self.place.local or hasattr(builtins, node.id) or isinstance(node.ctx, ast.Store):
            return None
        return self.script.name_of(self.place.source, node.id, self._bound)

    def _on_attribute(self, node: ast.Attribute) -> str | None:
        if isinstance(node.value, ast.Name) and node.value.id == "ErrorKind":
            return self._types(ErrorKind[node.attr])
        if self._is_backend(node.value):
            return self._of_backend(node.attr)
        if _is_trace(node.value):
            return self.script.witness(ALIKE.get(node.attr, node.attr), self._bound)
        if isinstance(node.value, ast.Name) and node.value.id not in {*self.place.local, *self.place.given}:
            return self._of_module(node.value.id, node.attr)
        return None

    def _of_module(self, name: str, attribute: str) -> str | None:
        """Include what an attribute of one of our own modules names."""
        module = getattr(self.place.source.module, name, None)
        if getattr(module, "__name__", "").startswith("hooklaw") and hasattr(module, "__file__"):
            return self.script.name_of(source_of(module.__name__), attribute, self._bound)  # type: ignore[union-attr]
        return None

    def _of_backend(self, attribute: str) -> str:
        value = getattr(self.script.backend, attribute)
        if callable(value):
            return self.script.helper(attribute, None, self._bound)
        if isinstance(value, ModuleType):
            return self.script.framework(value)
        if isinstance(value, list | dict | set):
            return self.script.state(attribute, value)
        return f'torch.device("{value}")' if type(value).__name__ == "device" else repr(value)

    def _types(self, kind: ErrorKind) -> str:
        types = self.script.backend.errors.get(kind, (RuntimeError,))
        names = [
            part.__name__ if part.__module__ == "builtins" else f"{part.__module__}.{part.__name__}" for part in types
        ]
        return names[0] if len(names) == 1 else f"({', '.join(names)})"

    def _on_ifexp(self, node: ast.IfExp) -> str | None:
        """Return what is chosen where an adapter's own setting decides."""
        chosen = {"True": node.body, "False": node.orelse}.get(self.text(node.test))
        return chosen and self.text(chosen)

    def _on_unaryop(self, node: ast.UnaryOp) -> str | None:
        """Return the opposite of a constant."""
        opposite = {"True": "False", "False": "True"}.get(self.text(node.operand))
        return opposite if isinstance(node.op, ast.Not) else None

    def _on_joinedstr(self, node: ast.JoinedStr) -> str:
        """Return an f-string, each value in it written alone: before Python 3.12 their positions are not the file's."""
        parts = "".join(map(self._part, node.values))
        return f'f"{parts}"'

    def _part(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return repr(node.value)[1:-1].replace("{", "{{").replace("}", "}}").replace('"', "'")
        if not isinstance(node, ast.FormattedValue):
            raise ScriptError(f"{ast.unparse(node)} stands in an f-string")
        source, statement = self.place.source.fragment(ast.unparse(node.value))
        text = self._within(source=source).text(statement).replace('"', "'")
        conversion = f"!{chr(node.conversion)}" if node.conversion > 0 else ""
        form = ast.unparse(node.format_spec)[2:-1] if node.format_spec else ""
        return f"{{{text}{conversion}{':' if form else ''}{form}}}"

    @property
    def _bound(self) -> frozenset[str]:
        """Names that a function of the script must not have where it is called."""
        return self.place.local | self.place.around

    def _within(self, **changes: Any) -> "Rewriter":
        """Return a rewriter for the same place but for some changes."""
        return Rewriter(self.script, self.place._replace(**changes))

    def _inside(self, scope: ast.AST, **changes: Any) -> "Rewriter":
        """Return a rewriter for what stands in a scope inside this one."""
        left = {"self"} if self.place.adapter else HANDED
        return self._within(local=self.place.local | (frozenset(bound_here(scope)) - left), **changes)

    def _on_call(self, node: ast.Call) -> str | None:
        match node.func:
            case ast.Attribute(value=value, attr=verb) if self._is_backend(value):
                return self._verb(node, verb, None)
            case ast.Attribute(value=value, attr=verb) if self._is_super(value):
                return self._verb(node, verb, self.place.adapter)
            case _:
                return self._without_call(node) or self._shorter(node)

    def _without_call(self, node: ast.Call) -> str | None:
        """Return the expression that a call of a function of Python's stands for, if its arguments tell it."""
        match node:
            case ast.Call(func=ast.Name("cast"), args=[_, value]):
                return self.text(value)
            case ast.Call(func=ast.Name("import_module"), args=[ast.Constant(str(module))]):
                return self.script.framework(import_module(module))
            case ast.Call(func=ast.Name("import_module"), args=[ast.JoinedStr([_, ast.Constant(str(module))])]):
                return self.script.framework(import_module(f"{self.script.backend.framework.__name__}{module}"))
            case ast.Call(func=ast.Name("getattr"), args=[owner, name]) if WORD.fullmatch(self.text(name)):
                return f"{self.text(owner)}.{self.text(name)[1:-1]}"
            case _:
                return None

    def _shorter(self, node: ast.Call) -> str | None:
        """Return a call without the arguments that a script does not have, None if it has all."""
        given = self.place.given.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if given and isinstance(given.node, ast.Lambda):
            return f"({self.text(node.func)})({self._arguments(node)})"
        return f"{self.text(node.func)}({self._arguments(node)})" if self._loses(node) else None

    def _loses(self, node: ast.Call) -> bool:
        """Return whether a call has arguments that a script does not have."""
        parts = [*node.args, *(part.value for part in node.keywords)]
        starred = [part.value for part in node.args if isinstance(part, ast.Starred)]
        starred += [part.value for part in node.keywords if part.arg is None]
        return (
            any(self._is_missing(part) or self._is_handed(part) for part in parts)
            or any(isinstance(part, ast.Name) and part.id in self.place.given for part in starred)
            or any(map(self._is_usual_device, node.keywords))
        )

    def _arguments(self, node: ast.Call) -> str:
        """Return the arguments that a script has."""
        values = [part for part in node.args if not self._is_handed(part)]
        while values and self._is_missing(values[-1]):
            values.pop()
        named = [part for part in node.keywords if not self._is_missing(part.value) and not self._is_usual_device(part)]
        return ", ".join(filter(None, [*map(self._argument, values), *map(self._keyword, named)]))

    def _argument(self, node: ast.expr) -> str:
        stars = _stars(node)
        given = self.place.given.get(stars) if stars else None
        return given.spread if given else self.text(node)

    def _keyword(self, node: ast.keyword) -> str:
        if node.arg is None:
            given = self.place.given.get(node.value.id) if isinstance(node.value, ast.Name) else None
            return given.spread if given else f"**{self.text(node.value)}"
        return f"{node.arg}={self.text(node.value)}"

    def _is_missing(self, node: ast.AST) -> bool:
        """Return whether an argument is a parameter that was not given, or made of it alone."""
        match node:
            case ast.Name(name):
                return name in self.place.given and self.place.given[name] is None
            case ast.UnaryOp(operand=inner) | ast.Call(func=ast.Name("getattr"), args=[_, inner]):
                return self._is_missing(inner)
            case _:
                return False

    def _is_usual_device(self, node: ast.keyword) -> bool:
        return node.arg == "device" and self.text(node.value) == CPU

    def _verb(self, node: ast.Call, verb: str, after: type | None) -> str:
        """Return what an adapter does for a verb: its one expression, or a call of it as a function."""
        source, method, owner = self.script.method(verb, after)
        values = [part for part in node.args if not self._is_handed(part)]
        inlined = expression(method)
        dtype = getattr(self.script.backend, "default_dtype", "float32")
        known = parameters(self.text, values, node.keywords, method, dtype) if inlined else None
        if inlined is None or known is None or repeats(inlined, known) or (self._has_frames and self.place.nested):
            texts = [*map(self._argument, values), *map(self._keyword, node.keywords)]
            return f"{self.script.helper(verb, after, self._bound)}({', '.join(filter(None, texts))})"
        calls = isinstance(inlined, ast.Call) and isinstance(inlined.func, ast.Name)
        reduced = self._reduced(*values) if calls and values else None
        return reduced or Rewriter(self.script, Scope(source, around=self._bound, given=known, adapter=owner)).text(
            inlined
        )

    @property
    def _has_frames(self) -> bool:
        """Whether a verb must be a function of the script too, since a compiler begins where functions do."""
        return getattr(self.script.backend, "has_frames", False)

    def _reduced(self, function: ast.expr, *values: ast.expr) -> str | None:
        """Return the body of a lambda that is only called, its arguments in the place of its parameters."""
        if not isinstance(function, ast.Lambda) or len(values) != len(function.args.args):
            return None
        names = {part.arg: given(self.text, value) for part, value in zip(function.args.args, values, strict=True)}
        if repeats(function.body, names) or any(isinstance(part, ast.Lambda) for part in ast.walk(function.body)):
            return None
        text = self._within(given={**self.place.given, **names}).text(function.body)
        return text if isinstance(function.body, ATOMS) else f"({text})"

    def _is_backend(self, node: ast.expr) -> bool:
        if self.place.adapter is not None:
            return isinstance(node, ast.Name) and node.id == "self"
        return _named(node, "backend")

    def _is_super(self, node: ast.expr) -> bool:
        of_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
        return self.place.adapter is not None and of_super

    def _is_handed(self, node: ast.expr) -> bool:
        return self.place.adapter is None and (_named(node, "backend") or _is_trace(node))


def _is_remark(node: ast.stmt) -> bool:
    """Whether a statement is a string that documents what stands before it, or the class itself."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _headed(head: str, body: str, margin: int) -> str:
    """Return a head and a body below it, all but the first line behind a margin."""
    return indent(f"{head}\n{indent(body, '    ')}", " " * margin).lstrip(" ")


def _named(node: ast.expr, name: str) -> bool:
    match node:
        case ast.Name(id=found):
            return found == name
        case ast.Attribute(value=ast.Name(id="self"), attr=found):
            return found.removeprefix("_") == name
        case _:
            return False


def _is_trace(node: ast.expr) -> bool:
    return _named(node, "trace")


def _stars(node: ast.AST) -> str:
    """Return the name of a parameter that is handed on with a star."""
    return node.value.id if isinstance(node, ast.Starred) and isinstance(node.value, ast.Name) else ""


def definition(rewriter: Rewriter, node: ast.stmt) -> str:
    """Return a definition of a module as it stands in a script."""
    return tidied(rewriter.text(node))
