"""Mutants that replace a step of the reference engine itself, which no wrapper around a backend could do."""

from collections.abc import Callable
from contextlib import ExitStack
from inspect import signature
from typing import TYPE_CHECKING, Any

from hooklaw_backends.mutants.base import Hook, Maker, Mutant, named_after

if TYPE_CHECKING:
    from types import ModuleType


class Swap:
    """An attribute of the engine, and the function that makes its replacement."""

    def __init__(self, owner: "ModuleType | type", name: str, made: Callable[[Any, Any], Any]) -> None:
        if name not in vars(owner):
            raise LookupError(f"{owner.__name__} no longer has {name}, which a mutant replaces: change the mutant")
        self._owner, self._name, self._made = owner, name, made

    def put(self, mutant: "Inside", undo: ExitStack) -> None:
        """Install the replacement."""
        old = vars(self._owner)[self._name]
        setattr(self._owner, self._name, self._made(mutant, old))
        undo.callback(setattr, self._owner, self._name, old)


def instead_of(owner: "ModuleType | type", name: str) -> Callable[[Hook], Swap]:
    """Run a method ``(self, old, ...)`` in place of a function, method or property of the engine."""

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
    """Refuse a step whose arguments do not fit: it would fail everywhere, and every rule would seem to catch it."""
    old = vars(owner)[name]
    taken = signature(getattr(old, "fget", old)).parameters.values()
    named = {each.name: None for each in taken if each.kind is each.KEYWORD_ONLY}
    try:
        signature(step).bind(None, None, *range(len(taken) - len(named)), **named)
    except TypeError as error:
        raise TypeError(
            f"{owner.__name__}.{name} takes other arguments than the mutant's: change the latter"
        ) from error


def another(owner: "ModuleType | type", name: str) -> Callable[[Callable[[Any, Any], Any]], Swap]:
    """Replace an attribute of the engine by what a method ``(self, old)`` returns."""
    return lambda made: Swap(owner, name, made)


def inside(owner: "ModuleType | type", name: str) -> Maker:
    """Make a mutant that runs ``(self, old, ...)`` in place of one function, method or property of the engine."""
    return lambda step: named_after(step, Inside, **{step.__name__: instead_of(owner, name)(step)})


class _Installed:
    """The mutant that is active in this process, and how to undo it."""

    def __init__(self) -> None:
        self.mutant: Inside | None = None
        self.undo = ExitStack()


_installed = _Installed()


class Inside(Mutant):
    """The engine with some steps replaced, from `reset` until `close` or the reset of another such mutant."""

    inside = True
    """No verb is replaced, so any rule may notice the change."""

    def reset(self) -> None:
        super().reset()
        if _installed.mutant is not self:
            _restore()
            _installed.mutant = self
            for value in (value for made in type(self).__mro__ for value in vars(made).values()):
                if isinstance(value, Swap):
                    value.put(self, _installed.undo)

    def close(self) -> None:
        """Restore the engine's own steps."""
        if _installed.mutant is self:
            _restore()


def _restore() -> None:
    _installed.mutant = None
    _installed.undo.close()
