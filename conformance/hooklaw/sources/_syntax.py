"""One module as it is written: what it defines, imports and exports, and the docstrings that it sets afterwards."""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Alias(NamedTuple):
    """A name of another module, or with an empty name that module itself."""

    module: str
    name: str


class Syntax:
    """The statements of a module's text."""

    def __init__(self, module: str, text: str, *, package: bool) -> None:
        self.module = module
        self.defined: dict[str, Definition] = {}
        self.aliases: dict[str, Alias] = {}
        self.stars: list[str] = []
        self.assigned: dict[str, ast.expr] = {}
        self.documented: dict[str, ast.expr] = {}
        """The text that is set as the docstring of an object, by what the module calls the object."""
        self._exported: list[str] | None = None
        self._package = module if package else module.rpartition(".")[0]
        for statement in _statements(ast.parse(text).body):
            self._take(statement)

    @property
    def exported(self) -> list[str]:
        """The names in ``__all__``, else all that do not begin with an underscore."""
        names = [*self.defined, *self.aliases, *self.assigned] if self._exported is None else self._exported
        return [name for name in names if not name.startswith("_")]

    @property
    def lists(self) -> bool:
        """Whether the module has ``__all__``."""
        return self._exported is not None

    @staticmethod
    def members(owner: ast.ClassDef) -> dict[str, Definition | ast.expr]:
        """Return what a class defines: methods and classes, other names that it gives them, and docstrings it sets."""
        held: dict[str, Definition | ast.expr] = {}
        for statement in _statements(owner.body):
            match statement:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    held[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    held[name] = documents(value) or value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    held[name] = value
                case _:
                    pass
        return held

    def _take(self, statement: ast.stmt) -> None:
        match statement:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                self.defined[statement.name] = statement
            case ast.ImportFrom():
                self._import(statement)
            case ast.Import():
                self.aliases |= {each.asname: Alias(each.name, "") for each in statement.names if each.asname}
            case ast.Assign(targets=[target], value=value):
                self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value)
            case ast.AugAssign(target=ast.Name(id="__all__"), value=value):
                self._exported = [*(self._exported or []), *_strings(value)]
            case ast.Expr(value=ast.Call() as call):
                self._document(call)
            case _:
                pass

    def _import(self, statement: ast.ImportFrom) -> None:
        parts = self._package.split(".")
        base = parts[: len(parts) - statement.level + 1] if statement.level else []
        origin = ".".join([*base, *([statement.module] if statement.module else [])])
        for each in statement.names:
            if each.name == "*":
                self.stars.append(origin)
            else:
                self.aliases[each.asname or each.name] = Alias(origin, each.name)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Name(id="__all__"):
                self._exported = _strings(value)
            case ast.Name(id=name):
                self.assigned[name] = value
                if isinstance(value, ast.Call):
                    self._document(value, name)
            case ast.Attribute(value=owner, attr="__doc__"):
                self.documented[dotted(owner)] = value
            case _:
                pass

    def _document(self, call: ast.Call, name: str = "") -> None:
        if text := documents(call):
            first = call.args[0]
            of_tensor = isinstance(first, ast.Constant)
            self.documented[name or (f"torch.Tensor.{first.value!s}" if of_tensor else dotted(first))] = text


def documents(node: ast.expr) -> ast.expr | None:
    """Return the text of a call such as ``add_docstr(torch.abs, text)`` or ``add_docstr_all("abs", text)``."""
    match node:
        case ast.Call(func=function, args=[_, text]) if dotted(function).endswith(("add_docstr", "add_docstr_all")):
            return text
        case _:
            return None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, those in branches included."""
    for statement in body:
        match statement:
            case ast.If(body=then, orelse=otherwise):
                yield from _statements(otherwise)
                yield from _statements(then)
            case ast.Try(body=tried, handlers=handlers):
                for handler in handlers:
                    yield from _statements(handler.body)
                yield from _statements(tried)
            case ast.With(body=inside):
                yield from _statements(inside)
            case _:
                yield statement


def _strings(value: ast.expr) -> list[str]:
    return [each.value for each in ast.walk(value) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def dotted(node: ast.expr) -> str:
    """Return a name with dots, or an empty string if the expression is none."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            before = dotted(owner)
            return f"{before}.{name}" if before else ""
        case _:
            return ""
