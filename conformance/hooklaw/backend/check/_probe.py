"""Probes: small programs that call an adapter's verbs and compare what comes with what the protocol promises."""

import math
import operator
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

import msgspec

from hooklaw.backend.blame import is_adapters
from hooklaw.backend.capabilities import CORE_VERBS, Capability
from hooklaw.backend.check._fault import Fault
from hooklaw.backend.protocol import Backend
from hooklaw.errors import is_users_interrupt

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
LONGEST = 120


class Probe(msgspec.Struct, frozen=True):
    """A probe: what it tries, and which capabilities a backend must have for it."""

    name: str
    body: Callable[["Tried"], None]
    needs: frozenset[Capability]
    brief: bool
    """Whether it is part of the short form that goes before every run."""

    def run_briefly(self, backend: Any) -> list[Fault]:
        """Return the faults in what verbs return; what they raise, whatever it is, the rules will show."""
        try:
            return [fault for fault in self.run(backend) if not fault.raised]
        except BaseException as error:
            if is_users_interrupt(error):
                raise
            return []

    def run(self, backend: Any) -> list[Fault]:
        """Return the faults that it finds."""
        if callable(reset := getattr(backend, "reset", None)):
            reset()
        tried = Tried(backend)
        try:
            with warnings.catch_warnings(action="ignore"):
                self.body(tried)
        except _EndError:
            pass
        return tried.faults


PROBES: dict[str, Probe] = {}


def probe(*needs: Capability, brief: bool = False) -> Callable[[Callable[["Tried"], None]], Callable[["Tried"], None]]:
    """Register a function as a probe, under its own name."""

    def register(body: Callable[["Tried"], None]) -> Callable[["Tried"], None]:
        name = body.__name__.replace("_", "-")
        PROBES[name] = Probe(name, body, frozenset(needs), brief)
        return body

    return register


class _EndError(Exception):
    """A verb raised, so the rest of the probe has nothing to work on."""


class Tried:
    """The verbs of a backend under a probe: each is an attribute, and what it was given is kept for the words."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.faults: list[Fault] = []
        self._texts: dict[int, tuple[str, Any]] = {}

    def __getattr__(self, verb: str) -> Any:
        return partial(self.call, verb)

    def can(self, *capabilities: Capability) -> bool:
        """Whether the backend declares all of these."""
        return all(each in self.backend.capabilities for each in capabilities)

    def call(self, verb: str, *given: Any, **options: Any) -> Any:
        """Call a verb; what it raises is a fault, which ends the probe."""
        text = self.text_of(verb, given, options)
        try:
            made = getattr(self.backend, verb)(*given, **options)
        except Exception as error:
            self.faults.append(Fault(verb, text, "no error", said(error), promise(verb), raised=True))
            raise _EndError from error
        return self.named(made, text)

    def compute(self, left: Any, sign: str, right: Any) -> Any:
        """Apply an operator of Python to tensors; what it raises is a fault of what `tensor` returns."""
        text = f"{self.show(left)} {sign} {self.show(right)}"
        try:
            return self.named(OPERATORS[sign](left, right), text)
        except Exception as error:
            mend = f"rules use {sign} on tensors and numbers: return tensors from `tensor` that have it"
            self.faults.append(Fault("tensor", text, "a tensor", said(error), mend, raised=True))
            raise _EndError from error

    def expect(self, expected: Any, verb: str, *given: Any, mend: str = "") -> bool:
        """Call a verb and compare what it returns, types included."""
        got = self.call(verb, *given)
        held = alike(expected, got)
        if not held:
            self.fault(verb, self.text_of(verb, given, {}), shown(expected), shown(got), mend or promise(verb))
        return held

    def expect_tensor(self, value: Any, verb: str, what: str = "a tensor") -> None:
        """Expect a tensor of the framework; without it the probe ends."""
        if not self.backend.is_tensor(value):
            self.fault(verb, self.show(value), what, shown(value), promise(verb))
            raise _EndError

    def fault(self, what: str, given: str, expected: str, got: str, mend: str) -> None:
        """Note a fault."""
        self.faults.append(Fault(what, given, expected, got, mend))

    def refuse(self, what: str, given: str, expected: str, got: str, mend: str) -> NoReturn:
        """Note a fault that leaves the rest of the probe nothing to work on."""
        self.fault(what, given, expected, got, mend)
        raise _EndError

    def named(self, value: Any, text: str) -> Any:
        """Remember how a value came about."""
        for place, item in enumerate(value if isinstance(value, tuple | list) else ()):
            self._texts.setdefault(id(item), (f"{text}[{place}]", item))
        if not isinstance(value, None | bool | int | float | str | tuple | list):
            self._texts[id(value)] = (text, value)
        return value

    def show(self, value: Any) -> str:
        """Return a value as the call that made it."""
        known = self._texts.get(id(value))
        if known and not isinstance(value, None | bool | int | float | str):
            return known[0]
        return shown(value, self.show)

    def text_of(self, verb: str, given: Iterable[Any], options: dict[str, Any]) -> str:
        """Return a call as text."""
        named = [f"{name}={self.show(value)}" for name, value in options.items()]
        return f"{verb}({', '.join([*map(self.show, given), *named])})"

    def is_own(self, error: BaseException) -> bool:
        """Whether the adapter's own lines raised an exception."""
        return is_adapters(error, self.backend)


def alike(expected: Any, got: Any) -> bool:
    """Compare values and their types: a number of NumPy is no number of Python, a list is no tuple."""
    if type(expected) is not type(got):
        return False
    if isinstance(expected, list | tuple):
        return len(expected) == len(got) and all(map(alike, expected, got))
    if isinstance(expected, float):
        return math.isclose(expected, got, rel_tol=1e-5, abs_tol=1e-6)
    return bool(expected == got)


def shown(value: Any, show: Callable[[Any], str] | None = None) -> str:
    """Return a value as text, with its type where the text does not tell it."""
    if value is None or (
        isinstance(value, bool | int | float | str | complex) and type(value).__module__ == "builtins"
    ):
        return repr(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        inside = ", ".join((show or shown)(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if callable(value) and hasattr(value, "__name__"):
        return "hook" if value.__name__ == "<lambda>" else value.__name__
    text = " ".join(repr(value).split())
    return f"{text[:LONGEST]} of type {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")


def said(error: BaseException) -> str:
    """Return an exception in one line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:LONGEST]}"


def promise(verb: str) -> str:
    """Return what the protocol says of a verb, and the capability that it belongs to."""
    words = (getattr(Backend, verb).__doc__ or "").strip().splitlines()[0]
    owner = next((each for each in Capability if verb in each.verbs), None)
    otherwise = f" If the framework cannot, do not declare {str(owner)!r}." if owner and verb not in CORE_VERBS else ""
    return f"{words}{otherwise}"
