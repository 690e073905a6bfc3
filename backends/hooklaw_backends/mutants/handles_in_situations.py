"""Mutants whose handles are wrong, always or in one situation: those of each kind of hook, made as the hooks' are.

What a second remove does is tried with tensor hooks alone: no page speaks of it, and the rule on it is theirs.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.in_situations import named, owner_of
from hooklaw_backends.mutants.kinds import KINDS, Kind
from hooklaw_backends.mutants.shared import Handle
from hooklaw_backends.mutants.situations import ALWAYS, ANY, EITHER, PLACES, Grouping, Registration, Situation


class Kept(NamedTuple):
    """A hook that is registered, by its identity, since it may be freed, and the backend's own handle of it."""

    hook: int
    handle: Any


class Removal(NamedTuple):
    """A call of a handle's remove."""

    own: Kept
    group: list[Kept]
    """The hooks of this kind on its owner, in order, those that were removed too."""
    is_again: bool
    skips: list[None]
    """One for each call of the hook that is to be skipped."""

    def remove(self, *, offset: int = 0) -> None:
        """Remove the hook, or one that was registered so many places after it."""
        place = [each is self.own for each in self.group].index(True) + offset
        if 0 <= place < len(self.group):
            self.group[place].handle.remove()


Wrong = Callable[[Removal], None]
"""Removes a hook in a wrong way."""


def _beside(offset: int) -> Wrong:
    """Return what removes a hook and one beside it."""

    def wrong(removal: Removal) -> None:
        removal.remove()
        removal.remove(offset=offset)

    return wrong


def _instead(choose: Callable[[list[Kept]], list[Kept]], *, equal: bool = False) -> Wrong:
    """Return what removes some of the hooks of the owner, or of those that are the same function."""

    def wrong(removal: Removal) -> None:
        for each in choose([each for each in removal.group if not equal or each.hook == removal.own.hook]):
            each.handle.remove()

    return wrong


def _raises_again(removal: Removal) -> None:
    if removal.is_again:
        raise RuntimeError("the hook was removed before")
    removal.remove()


def _removes_the_next(removal: Removal) -> None:
    removal.remove(offset=1 if removal.is_again else 0)


class _Handle(Handle):
    """A handle whose remove is another; it has the id of the backend's own."""

    def __init__(self, own: Any, remove: Callable[[], object]) -> None:
        super().__init__(remove)
        self.own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def made(kind: Kind, situation: Situation, wrong: Wrong) -> type[Mutant]:
    """Return a mutant whose handles of a kind of hook are wrong if they remove it in the situation."""

    def register(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
        if kind.mode and options.get("mode", "all") != kind.mode:
            return old(*given, **options)
        *where, hook = given
        its = self.registration(kind.verbs[0], owner_of(where))

        def run(*arguments: Any, **named: Any) -> Any:
            its.calls.append(None)
            return skips.pop() if skips else hook(*arguments, **named)

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        own, group = Kept(id(hook), old(*where, run, **options)), self.group_of(kind.verbs[0], owner_of(where), {})
        group.append(own)
        removed, skips = list[None](), list[None]()

        def remove() -> None:
            removal = Removal(own, group, bool(removed), skips)
            removed.append(None)
            if situation.holds(self, _now(self, its)):
                wrong(removal)
            else:
                own.handle.remove()

        return _Handle(own.handle, remove)

    return overriding(*kind.verbs, base=Grouping)(register)


def _removing_others(kind: Kind, *, of_owner: bool) -> type[Mutant]:
    """Return a mutant whose handles of a kind remove the hooks of other kinds on the owner, or on other owners, too."""

    def noting(verb: str) -> Hook:
        def register(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
            *where, hook = given
            own, group = Kept(id(hook), old(*given, **options)), self.group_of(verb, owner_of(where), {})
            group.append(own)

            def remove() -> None:
                its = next(key for key, (_, other) in self.groups.items() if other is group)
                own.handle.remove()
                for key, (_, other) in self.groups.items():
                    for each in other if key != its and key[of_owner] == its[of_owner] else ():
                        each.handle.remove()

            is_another = verb not in kind.verbs or (kind.mode and options.get("mode", "all") != kind.mode)
            return own.handle if is_another else _Handle(own.handle, remove)

        return register

    made = Grouping
    for verb in next(family for family in FAMILIES if kind.verbs[0] in family):
        made = overriding(verb, base=made)(noting(verb))
    return made


FAMILIES = (
    (*verbs.IN_BACKWARD, "register_multi_grad_hook"),
    (*verbs.ON_ONE_MODULE, "register_backward_hook"),
    (*verbs.ON_ALL_MODULES, "register_module_backward_hook"),
    *zip(verbs.STEP_PRE, verbs.STEP_POST, strict=True),
    verbs.STATE,
    verbs.REGISTRATION,
)
"""The verbs that register hooks of different kinds on the same owner."""


def _now(mutant: Grouping, its: Registration) -> Registration:
    """Return what was the case when a hook was registered, with the place where it is removed."""
    now = mutant.registration("remove")
    return now._replace(thread=its.thread, number=its.number, calls=its.calls)


FAULTS: dict[str, tuple[str, Wrong]] = {
    "stays": ("the handle of {} removes nothing", lambda _: None),
    "removed-with-the-one-before": ("the handle of {} removes the one before it, too", _beside(-1)),
    "removed-with-the-one-after": ("the handle of {} removes the one after it, too", _beside(1)),
}
INSTEAD: dict[str, tuple[str, Wrong]] = {
    "removes-nothing": ("the handle of {} removes nothing", lambda _: None),
    "skips-one-call": ("the handle of {} only skips its next call", lambda removal: removal.skips.append(None)),
    "removes-the-oldest": ("the handle of {} removes the oldest of its owner", _instead(lambda group: group[:1])),
    "removes-the-newest": ("the handle of {} removes the newest of its owner", _instead(lambda group: group[-1:])),
    "removes-all": ("the handle of {} removes all of its owner", _instead(list)),
    "removes-the-first-equal": (
        "the handle of {} removes the first of its owner that is the same function",
        _instead(lambda group: group[:1], equal=True),
    ),
    "removes-all-equal": (
        "the handle of {} removes all of its owner that are the same function",
        _instead(list, equal=True),
    ),
}
"""Faults that are tried plainly: whoever looks for the hook in a wrong way does so everywhere."""
OF_OTHERS = {
    "of-other-kinds": "the hooks of other kinds on its owner",
    "of-other-owners": "those of its kind on other owners",
}
ON_ALL = ("register_module_", "register_optimizer_")
AGAIN: dict[str, tuple[str, Wrong]] = {
    "not-removed-again": ("the second remove of a handle of {} raises", _raises_again),
    "removed-again-as-the-next": ("the second remove of a handle of {} removes another", _removes_the_next),
}
RUN = (
    Situation("that-has-run", "that has run", lambda _, its: its.calls),
    Situation("that-has-not-run", "that has not run", lambda _, its: not its.calls),
)
REMOVED = tuple(each._replace(words=f"that is removed {each.words}") for each in PLACES)


def _situations_of(kind: Kind, fault: str) -> Iterator[Situation]:
    """Yield the situations in which a hook is removed.

    What is under way is nothing to a step, a state or a name, and no page says what a legacy hook has to do with it. A
    second remove is tried plainly. What comes after the third hook is removed as what comes after the second.
    """
    if fault in AGAIN:
        yield RUN[1]
        return
    everywhere = {*EITHER} <= {*kind.situations} and "another-thread" not in kind.never
    for each in (*ANY, *RUN, *REMOVED) if everywhere else (ANY[0], RUN[0]):
        is_last = (fault, each.name) == ("removed-with-the-one-after", "third")
        if each.name not in kind.never and "-call" not in each.name and not is_last:
            yield each


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for of, kind in KINDS.items():
        own = kind.chapters if kind.situations == ANY else tuple(f"{chapter}.handle" for chapter in kind.chapters)
        chapters = ("handle", "module.handle", "module.global", *own)
        for fault, (words, wrong) in {**FAULTS, **(AGAIN if of == "tensor-hook" else {})}.items():
            for situation in _situations_of(kind, fault):
                said = words.format(f"{kind.words} {situation.words}")
                yield f"{of}-{fault}-{situation.name}", said, chapters, made(kind, situation, wrong)
        for fault, (words, wrong) in INSTEAD.items():
            yield f"{of}-handle-{fault}", words.format(kind.words), chapters, made(kind, ALWAYS, wrong)
        for fault, words in OF_OTHERS.items():
            if fault == "of-other-kinds" or not kind.verbs[0].startswith(ON_ALL):
                said = f"the handle of {kind.words} removes {words}, too"
                made_so = _removing_others(kind, of_owner=fault == "of-other-kinds")
                yield f"{of}-handle-removes-those-{fault}", said, chapters, made_so


vars().update(named(*each) for each in _all())
