"""What the tables of mutants of ranks share: where a mutant is wrong, and faults of hooks, options and results there.

A mutant that is wrong in one rank alone changes values, and leaves out no collective: the other ranks would wait.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.situations import SECOND, THIRD


class Its:
    """What a mutant knows of a hook that was registered, or of a call of a verb."""

    def __init__(self, owner: int, number: int) -> None:
        self.owner = owner
        """Which of the objects it belongs to, from 1."""
        self.number = number
        """Which one of its object it is, from 1."""
        self.calls = 0


class Placed(Mutant):
    """A mutant that counts objects, what they have, and errors."""

    failures = 0
    _owners = fresh(dict[str, list[tuple[Any, list[Its]]]])

    def reset(self) -> None:
        super().reset()
        self.failures, self._owners = 0, {}

    def its(self, kind: str, owner: Any) -> Its:
        """Return what is known of one more thing of an object."""
        owners = self._owners.setdefault(kind, [])
        place = next((place for place, (each, _) in enumerate(owners) if each is owner), len(owners))
        if place == len(owners):
            owners.append((owner, []))
        own = owners[place][1]
        own.append(Its(place + 1, len(own) + 1))
        return own[-1]

    def call_of(self, verb: str, owner: Any) -> Its:
        """Return what is known of a call of a verb."""
        its = self.its(verb, owner)
        its.calls = its.number
        return its


There = Callable[[Any, Its], bool]
Make = Callable[[There], type[Mutant]]
"""Makes a mutant that is wrong where it is told."""
Wrong = Callable[..., Any]
SITUATIONS: dict[str, tuple[str, There]] = {
    "everywhere": ("", lambda *_: True),
    "rank-1": (" in rank 1 alone", lambda mutant, _: mutant.get_rank() == 1),
    "later": (" from the second call on", lambda _, its: its.calls >= SECOND),
    "third-call": (" from the third call on", lambda _, its: its.calls >= THIRD),
    "another": (" if it is not that of the first object", lambda _, its: its.owner >= SECOND),
    "second": (" if it is the second of its object", lambda _, its: its.number == SECOND),
    "after-an-error": (" after an error", lambda mutant, _: mutant.failures > 0),
}


class Row(NamedTuple):
    """A fault of ranks, and where there is a mutant that has it."""

    words: str
    make: Make
    chapters: tuple[str, ...]
    """How the ids of the rules begin that are tried."""
    situations: tuple[str, ...]


def cells(rows: Mapping[str, Row], module: str) -> Iterator[tuple[str, type[Mutant]]]:
    """Yield the name and the class of each mutant of a table, which belongs to a module."""
    for of, row in rows.items():
        for name in row.situations:
            words, there = SITUATIONS[name]
            variable, mutant = named(f"{of}-{name}", row.words + words, row.chapters, row.make(there))
            mutant.__module__ = module
            yield variable, mutant


def lost(verb: str) -> Make:
    """Return what makes a mutant in which a verb returns its first argument, and does nothing."""

    def make(there: There) -> type[Mutant]:
        def run(self: Any, old: Hook, owner: Any, *given: Any, **options: Any) -> Any:
            return owner if there(self, self.call_of(verb, owner)) else old(owner, *given, **options)

        return overriding(verb, base=Placed)(run)

    return make


def without(verb: str, option: str) -> Make:
    """Return what makes a mutant in which a verb ignores an option."""

    def make(there: There) -> type[Mutant]:
        def run(self: Any, old: Hook, owner: Any, *given: Any, **options: Any) -> Any:
            if option in options and there(self, self.call_of(verb, owner)):
                del options[option]
            return old(owner, *given, **options)

        return overriding(verb, base=Placed)(run)

    return make


def result(verb: str, change: Wrong) -> Make:
    """Return what makes a mutant that returns ``(result)`` in place of what a verb returns."""

    def make(there: There) -> type[Mutant]:
        def run(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
            found = old(*given, **options)
            return change(found) if there(self, self.call_of(verb, None)) else found

        return overriding(verb, base=Placed)(run)

    return make


def hooked(wrong: Wrong, *verbs: str, when: Callable[[Any], bool] = lambda _: True) -> Make:
    """Return what makes a mutant that calls ``(hook, *arguments)`` in place of each hook of an object of this kind."""

    def make(there: There) -> type[Mutant]:
        def register(self: Any, old: Hook, owner: Any, hook: Hook, **options: Any) -> Any:
            return old(owner, _called(self, there, wrong, owner, hook) if when(owner) else hook, **options)

        return overriding(*verbs, base=Placed)(register)

    return make


def function_of(option: str, wrong: Wrong) -> Make:
    """Return what makes a mutant that calls ``(function, *arguments)`` in place of a function of distribute_module."""

    def make(there: There) -> type[Mutant]:
        def distribute(self: Any, old: Hook, module: Any, **functions: Any) -> None:
            if functions.get(option):
                functions[option] = _called(self, there, wrong, module, functions[option])
            old(module, **functions)

        return overriding("distribute_module", base=Placed)(distribute)

    return make


def _called(mutant: Placed, there: There, wrong: Wrong, owner: Any, hook: Hook) -> Hook:
    """Return what to call in place of a hook."""
    its = mutant.its("hooks", owner)

    def called(*given: Any) -> Any:
        its.calls += 1
        try:
            return wrong(hook, *given) if there(mutant, its) else hook(*given)
        except Exception:
            mutant.failures += 1
            raise

    return called


def uncalled(*_: Any) -> None:
    """Stand for a hook that is not called."""


def twice(hook: Hook, *given: Any) -> Any:
    """Call a hook twice."""
    hook(*given)
    return hook(*given)


def resultless(hook: Hook, *given: Any) -> None:
    """Call a hook, and lose its result."""
    hook(*given)


def quiet(hook: Hook, *given: Any) -> Any:
    """Call a hook, and lose its error."""
    with suppress(Exception):
        return hook(*given)
    return None


def given_zeros(hook: Hook, tensor: Any) -> Any:
    """Call a hook with zeros."""
    return hook(tensor * 0)


def doubled(tensor: Any) -> Any:
    """Return twice a tensor."""
    return tensor * 2


def with_doubled_gradient(tensor: Any) -> Any:
    """Return a tensor whose gradient is doubled, after its own hooks of now."""
    if tensor.requires_grad:
        tensor.register_hook(lambda grad: grad * 2)
    return tensor
