"""What an adapter declares, and what its verbs take: checked without a call of any verb."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from pathlib import Path
from typing import Any

from hooklaw.backend.capabilities import CORE_VERBS, ONLY_WITH, Capability, ErrorKind
from hooklaw.backend.check._fault import Fault
from hooklaw.backend.protocol import Backend
from hooklaw.errors import did_you_mean

ATTRIBUTES = ("name", "capabilities", "lacks", "errors", "versions", "notes", "expectations")
EXCEPTIONS = "a tuple of exception types"
TAKES_ALL = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def declared_faults(backend: Any) -> Iterator[Fault]:
    """Yield the faults in the attributes; if there are none, those in the verbs and their signatures."""
    found = [*_attribute_faults(backend)]
    yield from found
    if not found:
        yield from _verb_faults(backend)


def _attribute_faults(backend: Any) -> Iterator[Fault]:
    missing = [name for name in ATTRIBUTES if not hasattr(backend, name)]
    for name in missing:
        said = f" has no attribute {name!r}: `hooklaw docs add-a-backend` names the seven it needs"
        yield Fault(name, f"backend.{name}", "an attribute", "missing", f"declare {name}", said)
    if missing:
        return
    yield from _name_faults(backend)
    if not isinstance(backend.capabilities, AbstractSet):
        yield _is_no(backend, "capabilities", "set", "write capabilities = frozenset({Capability.TENSOR_HOOKS, ...})")
    else:
        yield from _unknown(backend.capabilities, Capability, "capabilities", "capability")
    for name in ("lacks", "errors", "versions", "notes"):
        if not isinstance(getattr(backend, name), Mapping):
            yield _is_no(backend, name, "mapping", f"write {name} = {{}}, or fill it")
        else:
            yield from _mapping_faults(name, getattr(backend, name))


def _name_faults(backend: Any) -> Iterator[Fault]:
    if not isinstance(backend.name, str) or not backend.name:
        yield Fault("name", "backend.name", "a text", _typed(backend.name), "write the name that reports show")
    if not isinstance(backend.expectations, str | Path | None):
        got, mend = _typed(backend.expectations), 'write Path(__file__).with_name("mine.toml"), or None'
        yield Fault("expectations", "backend.expectations", "a Path or None", got, mend)


def _mapping_faults(name: str, mapping: Mapping[Any, Any]) -> Iterator[Fault]:
    kinds = {"lacks": (Capability, "capability"), "errors": (ErrorKind, "error kind")}
    if name in kinds:
        yield from _unknown(mapping, kinds[name][0], name, kinds[name][1])
    for key, value in mapping.items():
        given = f"{name}[{str(key)!r}]"
        if name == "errors":
            yield from _types_faults(given, value)
        elif not isinstance(key, str) or not isinstance(value, str):
            yield Fault(name, given, "a text", _typed(value), f"write a text: str({value!r})")


def _types_faults(given: str, value: Any) -> Iterator[Fault]:
    if isinstance(value, type) and issubclass(value, BaseException):
        yield Fault("errors", given, EXCEPTIONS, f"the type {value.__name__}", f"write ({value.__name__},) for it")
    elif not isinstance(value, tuple) or not all(isinstance(each, type) and _is_exception(each) for each in value):  # pyright: ignore[reportUnknownVariableType]
        yield Fault("errors", given, EXCEPTIONS, _typed(value), "name the types that the framework raises for it")
    elif not value:
        yield Fault("errors", given, EXCEPTIONS, "an empty tuple", "leave the kind out: it then means RuntimeError")


def _is_exception(kind: type) -> bool:
    return issubclass(kind, BaseException)


def _unknown(names: Any, kind: type[StrEnum], attribute: str, what: str) -> Iterator[Fault]:
    known = set(kind)
    for name in names:
        if name not in known:
            hint = did_you_mean(str(name), kind, f"choose from {', '.join(sorted(kind))}")
            said = f" declares the unknown {what} {name!r}: {hint}"
            yield Fault(attribute, f"backend.{attribute}", f"names of {kind.__name__}", repr(name), hint, said)


def _is_no(backend: Any, name: str, kind: str, mend: str) -> Fault:
    got = _typed(getattr(backend, name))
    said = f": its {name} are not a {kind}: {mend}"
    return Fault(name, f"backend.{name}", f"a {kind}", got, mend, said)


def _typed(value: Any) -> str:
    return "None" if value is None else f"{value!r}, of type {type(value).__name__}"


def _verb_faults(backend: Any) -> Iterator[Fault]:
    for verb in CORE_VERBS:
        yield from _faults_of_verb(backend, verb, "which every backend needs", "")
    for capability in sorted(backend.capabilities):
        why = f"which its capability {str(capability)!r} needs"
        for verb in Capability(capability).verbs:
            yield from _faults_of_verb(backend, verb, why, f", or do not declare {str(capability)!r}")


def _faults_of_verb(backend: Any, verb: str, why: str, otherwise: str) -> Iterator[Fault]:
    own = getattr(backend, verb, None)
    if not callable(own):
        got = "missing" if own is None else _typed(own)
        said = f" lacks the verb {verb!r}, {why}"
        yield Fault(verb, f"backend.{verb}", "a method", got, f"add {_wanted(verb)}{otherwise}", said)
        return
    code = getattr(own, "__code__", None)
    if code and code.co_flags & TAKES_ALL == TAKES_ALL and not code.co_kwonlyargcount and code.co_argcount <= 2:  # noqa: PLR2004 - self and what it belongs to
        return
    if refused := _refused(own, verb, backend):
        mend = f"let it take {_wanted(verb)}; **how takes what you pass on"
        yield Fault(verb, refused[0], "taken", refused[1], mend)


def _wanted(verb: str) -> str:
    signature = inspect.signature(getattr(Backend, verb))
    names = [each for each in signature.parameters.values() if each.name != "self"]
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in names]
    return f"{verb}{signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"


def _refused(own: Callable[..., Any], verb: str, backend: Any) -> tuple[str, str] | None:
    """Return a call that rules make and the verb does not take, and why."""
    try:
        signature = inspect.signature(own)
    except (TypeError, ValueError):  # a function in C
        return None
    for values, options in _calls(verb, backend):
        try:
            signature.bind(*values, **options)
        except TypeError as error:
            shown = [*values, *(f"{name}=..." for name in options)]
            return f"{verb}({', '.join(shown)})", f"refused: {error}"
    return None


def _calls(verb: str, backend: Any) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the shortest and the longest call of a verb that a rule may make."""
    code, function = getattr(Backend, verb).__code__, getattr(Backend, verb)
    positional = [*code.co_varnames[1 : code.co_argcount]]
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    required = [name for name in keywords if name not in (function.__kwdefaults__ or {})]
    more = ["..."] * bool(code.co_flags & inspect.CO_VARARGS)
    yield positional[: len(positional) - len(function.__defaults__ or ())], dict.fromkeys(required, "")
    given = [name for name in keywords if ONLY_WITH.get((verb, name)) in {None, *backend.capabilities}]
    yield [*positional, *more], dict.fromkeys(given, "")
