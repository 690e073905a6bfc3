"""What goes wrong with a hook: the faults of which there is a mutant for each kind of hook and each situation."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant
from hooklaw_backends.mutants.kinds import Another, Kind, doubled


class Call(NamedTuple):
    """A call of a hook."""

    hook: Hook
    given: tuple[Any, ...]
    named: Mapping[str, Any] = MappingProxyType({})
    kind: Kind | None = None
    """Which kind of hook it is, if it is in the table of kinds."""

    def __call__(self) -> Any:
        return self.hook(*self.given, **self.named)


Wrong = Callable[[Mutant, Call], Any]
"""Calls a hook in a wrong way."""


def _twice(_: Mutant, call: Call) -> Any:
    call()
    return call()


def _ignored(_: Mutant, call: Call) -> None:
    call()


def _swallowed(_: Mutant, call: Call) -> Any:
    try:
        return call()
    except Exception:  # noqa: BLE001 - the fault
        return None


def _in_wrong_mode(mutant: Mutant, call: Call) -> Any:
    with mutant.no_grad() if mutant.is_grad_enabled() else mutant.enable_grad():
        return call()


def _given(another: Callable[[Kind], Another | None]) -> Wrong:
    """Return what calls a hook with other arguments, which the kind of hook makes."""

    def given(mutant: Mutant, call: Call) -> Any:
        make = (another(call.kind) if call.kind else None) or doubled
        return call.hook(*make(mutant, call.given), **call.named)

    return given


FAULTS: dict[str, tuple[str, Wrong]] = {
    "lost": ("{} is not called", lambda *_: None),
    "twice": ("{} is called twice", _twice),
    "ignored": ("what {} returns is ignored", _ignored),
    "swallowed": ("an error of {} is ignored", _swallowed),
    "in-wrong-mode": ("{} runs in the wrong grad mode", _in_wrong_mode),
    "given-another": ("{} gets another value", _given(lambda kind: kind.another)),
    "given-another-beside": ("{} gets another value beside that it may replace", _given(lambda kind: kind.beside)),
    "given-another-owner": ("{} gets another module", _given(lambda kind: kind.owner)),
    "given-a-copy": ("{} gets a copy of what it may change", _given(lambda kind: kind.copied)),
}
PACK_FAULTS = {name: FAULTS[name] for name in ("lost", "twice", "swallowed", "given-another")}
UNPACK_FAULTS = {
    "twice": FAULTS["twice"],
    "doubled": ("what {} returns is doubled", lambda _, call: call() * 2),
    "given-another": FAULTS["given-another"],
}
