"""Mutants that replace a step of the reference engine itself: what no wrapper of a backend could do."""

from collections.abc import Callable
from contextlib import ExitStack
from inspect import signature
from typing import TYPE_CHECKING, Any

from hooklaw_backends.mutants.base import Hook, Mutant

if TYPE_CHECKING:
    from types import ModuleType


class Swap:
    """An attribute of the engine, and what makes another one of it."""

    def __init__(self, owner: "ModuleType | type", name: str, made: Callable[[Any, Any], Any]) -> None:
        if name not in vars(owner):
            raise LookupError(f"{owner.__name__} has no {name} any more, which a mutant replaces: mend the mutant")
        self._owner, self._name, self._made = owner, name, made

    def put(self, mutant: "Inside", undo: ExitStack) -> None:
        """Put the other one there."""
        old = vars(self._owner)[self._name]
        setattr(self._owner, self._name, self._made(mutant, old))
        undo.callback(setattr, self._owner, self._name, old)


def instead_of(owner: "ModuleType | type", name: str) -> Callable[[Hook], Swap]:
    """Run a method ``(self, old, ...)`` instead of a function, a method or a property of the engine."""

    def swap(step: Hook) -> Swap:
        def made(mutant: Any, old: Any) -> Any:
            if isinstance(old, property):
                return property(lambda this: step(mutant, old.fget, this))
            return lambda *given, **named: step(mutant, old, *given, **named)

        swapped = Swap(owner, name, made)
        _check_arguments(owner, name, step)
        return swapped

    return swap


def _check_arguments(owner: "ModuleType | type", name: str, step: Hook) -> None:
    """Refuse a step that would fail whatever its vice: every rule would seem to catch it."""
    old = vars(owner)[name]
    taken = signature(getattr(old, "fget", old)).parameters.values()
    named = {one.name: None for one in taken if one.kind is one.KEYWORD_ONLY}
    try:
        signature(step).bind(None, None, *range(len(taken) - len(named)), **named)
    except TypeError as error:
        raise TypeError(f"{owner.__name__}.{name} takes other arguments than the mutant's: mend the mutant") from error


def another(owner: "ModuleType | type", name: str) -> Callable[[Callable[[Any, Any], Any]], Swap]:
    """Put what a method ``(self, old)`` returns in the place of an attribute of the engine."""
    return lambda made: Swap(owner, name, made)


class _Force:
    """Which mutant is in force in this process, and how to undo it."""

    def __init__(self) -> None:
        self.mutant: Inside | None = None
        self.undo = ExitStack()


_force = _Force()


class Inside(Mutant):
    """The engine with some of its steps replaced, from `reset` to `close` or to the reset of another such mutant."""

    inside = True
    """No verb is altered, and every rule may notice."""

    def reset(self) -> None:
        super().reset()
        if _force.mutant is not self:
            _put_back()
            _force.mutant = self
            for one in (value for made in type(self).__mro__ for value in vars(made).values()):
                if isinstance(one, Swap):
                    one.put(self, _force.undo)

    def close(self) -> None:
        """Put back the engine's own steps."""
        if _force.mutant is self:
            _put_back()


def _put_back() -> None:
    _force.mutant = None
    _force.undo.close()
