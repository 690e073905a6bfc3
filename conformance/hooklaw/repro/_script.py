"""The script of a rule: what it needs, then its body, in the framework's own calls."""

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from importlib import import_module
from textwrap import indent
from types import ModuleType
from typing import Any, cast

from hooklaw.backend.torchlike import MODULES
from hooklaw.errors import ScriptError
from hooklaw.law.rule import Registered
from hooklaw.repro import _witness
from hooklaw.repro._rewrite import HANDED, Rewriter, Scope, definition
from hooklaw.repro._source import ModuleSource, bound, bound_here, source_of

DOTTED = re.compile(r"[\w.]+")
FALSIFYING = re.compile(r"\[Falsifying example: (.*)\]$")
ARGUMENT = re.compile(r"(\w+)=(.*?),(?=\s*\w+=|\s*$)")


def script_of(rule: Registered, backend: Any, seen: str = "") -> str:
    """Return a rule as a script that shows on its own, in the calls of a backend's framework, whether the rule holds.

    The script of a property is that of its simplest example, or of the example that a failure's text `seen` names.
    Raises ScriptError where that cannot be written.
    """
    script = RuleScript(rule, backend)
    return script.text(seen)


class RuleScript:
    """What a script includes so far."""

    def __init__(self, rule: Registered, backend: Any) -> None:
        self.rule = rule
        self.backend = backend
        self._imports: dict[str, None] = {}
        self._definitions: dict[str, str] = {}
        self._owners: dict[str, str | type] = {}
        """The module or the class of each name that is included, since two may define it."""
        self._function = inspect.unwrap(rule.function)
        self._source = source_of(self._function.__module__)
        self._node = _function(self._source, self._function.__name__)
        self._taken = frozenset(bound(self._node))
        self._local = frozenset(bound_here(self._node)) - HANDED

    def text(self, seen: str = "") -> str:
        """Return the whole script, of the example that is named in `seen`."""
        rewriter = Rewriter(self, Scope(self._source, self._local, flat=True))
        body = self._in_ranks(self._surrounded(rewriter.block(self._node.body[1:])))
        example = [f"{name} = {value!r}" for name, value in _example(self.rule, seen)]
        versions = ", ".join(f"{name} {version}" for name, version in self.backend.versions.items())
        head = [f"# {self.rule.rule.statement}", f"# ({self.rule.rule.id}, {versions})"]
        imports = sorted(self._imports, key=lambda line: (not line.startswith("import"), line))
        blocks = ["\n".join([*head, *imports]), *self._definitions.values(), "\n".join([*example, body])]
        text = "\n\n\n".join(blocks) + "\n"
        if "hooklaw" in text:
            raise ScriptError(
                f"{self.backend.name} is not a framework that a script can import: name another with --backend"
            )
        return text

    def _surrounded(self, body: str) -> str:
        """Return the body inside the context in which a backend runs each rule, if it has one."""
        if not hasattr(self.backend, "surroundings"):
            return body
        source, statement = self._source.fragment("backend.surroundings()")
        return f"with {Rewriter(self, Scope(source)).text(statement)}:\n{indent(body, '    ')}"

    def _in_ranks(self, body: str) -> str:
        """Have the body of a rule of several processes run in each of them, the last forked from the first."""
        size = self.rule.rule.processes
        if not size:
            return body
        self._imports |= dict.fromkeys(("import os", "import tempfile"))
        source, node = self._source.fragment(f"backend.init_process_group(rank, {size}, store)")
        join = Rewriter(self, Scope(source, self._local | {"rank", "store"}, flat=True)).text(node)
        fork = f"rank = next((each for each in range(1, {size}) if os.fork() == 0), 0)"
        wait = f"if rank == 0:\n    assert all(os.wait()[1] == 0 for _ in range(1, {size})), 'another rank failed'"
        return f"store = tempfile.NamedTemporaryFile().name\n{fork}\n{join}\n{body}\n{wait}"

    def name_of(self, source: ModuleSource, name: str, local: frozenset[str]) -> str:
        """Include what a name of a module stands for, and return how it is written where some names are local."""
        source = source_of(source.module.__name__)  # not the fragment of it that has the name
        if name in source.imports:
            return self._imported(source, name, local)
        node = source.definitions.get(name)
        if node is None:
            return name
        if hasattr(getattr(source.module, name, None), "hooklaw_rule"):
            raise ScriptError(f"{self.rule.rule.id} calls the rule {name}: no script can show it")
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            return Rewriter(self, Scope(source)).text(node.value)
        written = f"{name}_" if name in self._taken | local else name
        written = self._of_its_own(written, source.module.__name__)
        if isinstance(value := getattr(source.module, name, None), ModuleType):
            return self._alias(value, written)
        rewriter = Rewriter(self, Scope(source, frozenset(bound_here(node)) - {name, *HANDED}))
        self._define(written, rewriter, node)
        return written

    def _of_its_own(self, name: str, owner: str | type) -> str:
        """Return a name that no other module or class defines here, or a verb might call itself."""
        while self._owners.setdefault(name, owner) != owner:
            name += "_"
        return name

    def _imported(self, source: ModuleSource, name: str, local: frozenset[str]) -> str:
        line = source.imports[name]
        value = getattr(source.module, name)
        if not line.startswith(("from hooklaw", "import hooklaw")):
            self._imports[line] = None
            return name
        if isinstance(value, ModuleType) and not value.__name__.startswith("hooklaw"):
            return self.framework(value)
        for origin in (getattr(value, "__module__", None) or "", line.split()[1]):  # a constant has no __module__
            if origin.startswith("hooklaw") and name in source_of(origin).definitions:
                return self.name_of(source_of(origin), name, local)
        return name

    def _define(self, name: str, rewriter: Rewriter, node: ast.stmt) -> None:
        if name not in self._definitions:
            self._definitions[name] = ""
            text = definition(rewriter, _renamed(node, name))
            match node:
                case ast.Assign(targets=[ast.Name(old)]) | ast.AnnAssign(target=ast.Name(old)):
                    text = name + text.removeprefix(old)
                case _:
                    pass
            del self._definitions[name]
            self._definitions[name] = text

    def _alias(self, module: ModuleType, name: str) -> str:
        """Import a module of the framework under a name, and return the name."""
        if module.__name__ == name:
            return self.framework(module)
        self._imports[f"import {module.__name__} as {name}"] = None
        return name

    def framework(self, module: ModuleType) -> str:
        """Import a module of the framework, and return its name, or one of our own where its package hides it."""
        *above, name = module.__name__.split(".")
        if above and getattr(import_module(".".join(above)), name, None) is not module:
            return self._alias(module, f"{name}_module")
        self._imports[f"import {module.__name__}"] = None
        return module.__name__

    def witness(self, name: str, local: frozenset[str]) -> str:
        """Include a function of the witness, and return how it is written where some names are local."""
        return self.name_of(source_of(_witness.__name__), name, local)

    def state(self, attribute: str, value: Any) -> str:
        """Include what an adapter keeps from one verb to the next, as it is before any rule."""
        name = f"{attribute}_" if attribute in self._taken else attribute
        self._definitions.setdefault(name, f"{name} = {value!r}")
        return name

    def method(self, verb: str, after: type | None) -> tuple[ModuleSource, ast.FunctionDef, type]:
        """Return the source of a verb, its definition, and the class that has it."""
        classes = type(self.backend).__mro__
        owner = next((part for part in classes[classes.index(after) + 1 if after else 0 :] if verb in vars(part)), None)
        if owner is None:
            raise ScriptError(f"{self.backend.name} has no verb {verb} in a class of its own: no script can show it")
        source = source_of(owner.__module__)
        if owner.__name__ not in source.definitions:
            raise ScriptError(f"{owner.__name__} is defined inside a function: no script can show its verb {verb}")
        for node in getattr(source.definitions[owner.__name__], "body", ()):
            match node:
                case ast.FunctionDef(name=name) if name == verb:
                    return source, node, owner
                case ast.Assign(targets=[ast.Name(name)], value=ast.Call() as made) if name == verb:
                    fragment, method = source.fragment(_borrowed(verb, made))
                    return fragment, cast("ast.FunctionDef", method), owner
                case _:
                    pass
        raise ScriptError(f"{owner.__name__}.{verb} is written in a way that no script can show")

    def helper(self, verb: str, after: type | None, local: frozenset[str]) -> str:
        """Include a verb as a function, under a name that neither the rule nor its caller binds, and no builtin has."""
        source, node, owner = self.method(verb, after)
        mentioned = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        taken = verb in self._taken | mentioned | local or hasattr(builtins, verb)
        name = self._of_its_own(f"torch_{verb}" if after or taken else verb, owner)
        own = frozenset(bound_here(node)) - {"self"}
        self._define(name, Rewriter(self, Scope(source, own, adapter=owner)), node)
        return name


def _borrowed(verb: str, made: ast.Call) -> str:
    """Return as a method what an adapter has from TorchLike's helpers, or as a function of its framework."""
    of = made.args[-1].value if isinstance(made.args[-1], ast.Constant) else ""
    match made.func:
        case ast.Name("method"):
            return f"def {verb}(self, owner, *args, **kwargs):\n    return owner.{of}(*args, **kwargs)"
        case ast.Name("attribute"):
            return f"def {verb}(self, owner):\n    return owner.{of}"
        case ast.Name("function"):
            path = verb if of == verb else f"{of}.{verb}"
            return f"def {verb}(self, *args, **kwargs):\n    return self.framework.{path}(*args, **kwargs)"
        case ast.Name("everywhere"):
            module = f'import_module(f"{{self.framework.__name__}}.{MODULES if of == verb else of}")'
            return f"def {verb}(self, *args, **kwargs):\n    return {module}.{verb}(*args, **kwargs)"
        case ast.Name("staticmethod"):
            return _of_framework(verb, made.args[0])
        case _:
            raise ScriptError(f"{verb} is made by {ast.unparse(made.func)}: no script can show it")


def _of_framework(verb: str, value: ast.expr) -> str:
    match value:
        case ast.Call(func=ast.Name("attrgetter"), args=[ast.Constant(attribute)]):
            return f"def {verb}(self, value):\n    return value.{attribute}"
        case ast.Call(func=ast.Name("methodcaller"), args=[ast.Constant(method)]):
            return f"def {verb}(self, value):\n    return value.{method}()"
        case _:
            return f"def {verb}(self, *args, **kwargs):\n    return {ast.unparse(value)}(*args, **kwargs)"


def _renamed(node: ast.stmt, name: str) -> ast.stmt:
    """Return a definition under another name, at the margin."""
    made = copy(node)
    if isinstance(made, ast.FunctionDef | ast.ClassDef):
        made.name, made.col_offset = name, 0
    return made


def _function(source: ModuleSource, name: str) -> ast.FunctionDef:
    node = source.definitions[name]
    if not isinstance(node, ast.FunctionDef):
        raise ScriptError(f"{name} is not a function")
    return node


def _example(rule: Registered, seen: str) -> Iterator[tuple[str, Any]]:
    """Yield the example of a property that a failure's text names, or the simplest."""
    from hypothesis import find, strategies  # noqa: PLC0415 - only properties need it

    handle = getattr(rule.function, "hypothesis", None)
    named = _falsifying(seen)
    for name, strategy in handle._given_kwargs.items() if handle else ():  # noqa: SLF001 - the only way to them
        if isinstance(strategy, type(strategies.data())):
            raise ScriptError(f"{rule.rule.id} draws its data while it runs")
        yield name, named[name] if name in named else find(strategy, lambda _: True)


def _falsifying(seen: str) -> dict[str, Any]:
    """Return the arguments, as far as they are literals, of the call that Hypothesis shows of a failure."""
    found: dict[str, Any] = {}
    call = FALSIFYING.search(seen)
    for name, value in ARGUMENT.findall(call[1] + ",") if call else ():
        with suppress(ValueError, SyntaxError):
            found[name] = ast.literal_eval(value)
    return found
