"""Mutants that are wrong with one kind of hook in one situation: each fault in each situation.

No rule need name them: the rules whose ids begin with the kind's `chapters` are tried first, then all others.
"""

import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, Pair, overriding, pairs
from hooklaw_backends.mutants.faults import FAULTS, PACK_FAULTS, UNPACK_FAULTS, Call, Wrong
from hooklaw_backends.mutants.kinds import BACKWARD, FORWARD, KINDS, Kind
from hooklaw_backends.mutants.situations import ALWAYS, ANY, IN_PASS, Grouping, Knowing, Registration, Situation


def _made(kind: Kind, situation: Situation, wrong: Wrong) -> type[Mutant]:
    def register(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
        if kind.mode and options.get("mode", "all") != kind.mode:
            return old(*given, **options)
        *where, hook = given
        its = self.registration(kind.verbs[0], owner_of(where))

        def run(*arguments: Any, **named: Any) -> Any:
            its.calls.append(None)
            call = Call(hook, arguments, named, kind)
            try:
                return wrong(self, call) if situation.holds(self, its) else call()
            except BaseException:
                self.failures += 1
                raise

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        return old(*where, run, **options)

    return overriding(*kind.verbs, base=Knowing)(register)


def owner_of(where: Sequence[Any]) -> Any:
    """Return what a hook is registered on: the first of several tensors, or None for all modules or optimizers."""
    return where[0][0] if where and isinstance(where[0], list | tuple) and where[0] else next(iter(where), None)


class _Registered:
    """A hook that is registered; it lives as long as what the backend calls in its place."""

    def __init__(self, hook: Hook, its: Registration) -> None:
        self.hook, self.its = hook, its


def _reversed(kind: Kind, situation: Situation) -> type[Mutant]:
    """Return a mutant in which, of several hooks of one owner, those in the situation run in reverse order."""

    def register(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
        *where, hook = given
        own = _Registered(hook, self.registration(kind.verbs[0], owner_of(where)))
        group = self.group_of(kind.verbs[0], owner_of(where), options)
        group.append(weakref.ref(own))

        def run(*arguments: Any, **named: Any) -> Any:
            own.its.calls.append(None)
            try:
                return _opposite(self, situation, own, group).hook(*arguments, **named)
            except BaseException:
                self.failures += 1
                raise

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        return old(*where, run, **options)

    return overriding(*kind.verbs, base=Grouping)(register)


def _opposite(
    mutant: Knowing, situation: Situation, own: _Registered, group: list[weakref.ref[_Registered]]
) -> _Registered:
    """Return the hook that has the place of this one when those in the situation are reversed."""
    alive = [each for ref in group if (each := ref()) is not None]
    calls = max((each.its.calls for each in alive), key=len)  # those of the first, which has been called before others
    there = [each for each in alive if situation.holds(mutant, each.its._replace(calls=calls))]
    return there[-1 - there.index(own)] if own in there else own


def _given_owner(kind: Kind, place: int) -> type[Mutant]:
    """Return a mutant whose hooks get another module on which one of their kind was registered."""

    def register(self: Mutant, old: Hook, module: Any, hook: Hook, **options: Any) -> Any:
        self.kept.append(module)
        return old(module, lambda _, *given, **named: hook(self.kept[place], *given, **named), **options)

    return overriding(*kind.verbs)(register)


class _Kept(NamedTuple):
    """A saved tensor that was not packed."""

    tensor: Any


def _pack_made(situation: Situation, wrong: Wrong) -> type[Mutant]:
    """Return a mutant with a fault of pack hooks; where pack returns nothing to it, the tensor is saved as it is."""

    def pair(self: Any, pack: Hook, unpack: Hook) -> Pair:
        its = self.registration("saved_tensors_hooks")

        def packing(tensor: Any) -> Any:
            its.calls.append(None)
            call = Call(lambda given: [pack(given)], (tensor,))
            packed = wrong(self, call) if situation.holds(self, its) else call()
            return _Kept(self.detach(tensor)) if packed is None else packed

        return packing, lambda packed: packed.tensor if isinstance(packed, _Kept) else unpack(*packed)

    return pairs("saved_tensors_hooks", base=Knowing)(pair)


def _unpack_made(situation: Situation, wrong: Wrong) -> type[Mutant]:
    """Return a mutant with a fault of unpack hooks."""

    def pair(self: Any, pack: Hook, unpack: Hook) -> Pair:
        its = self.registration("saved_tensors_hooks")

        def unpacking(packed: Any) -> Any:
            its.calls.append(None)
            return wrong(self, Call(unpack, (packed,))) if situation.holds(self, its) else unpack(packed)

        return pack, unpacking

    return pairs("saved_tensors_hooks", base=Knowing)(pair)


OF_PAIRS = (
    ("pack-hook", "a pack hook", [each for each in FORWARD if each.name != "another-thread"], PACK_FAULTS, _pack_made),
    ("unpack-hook", "an unpack hook", BACKWARD, UNPACK_FAULTS, _unpack_made),
)


OF_SOME = {
    "ignored": "has_result",
    "given-another-beside": "beside",
    "given-another-owner": "owner",
    "given-a-copy": "copied",
}
"""Faults that only some kinds of hooks can have, and the field that says so."""
FAMILIES = {"swallowed": "exception", "in-wrong-mode": "mode"}
"""For some faults a part of the ids of the rules that try it; for others it is ``fire``."""
OWNERS = {"first": 0, "last": -1}
OF_MODULES = (*verbs.ON_ONE_MODULE, "register_backward_hook")


def _is_by_number(fault: str, situation: Situation) -> bool:
    """Whether errors are handled by the number of a hook, a call or a pass alone; no engine does that."""
    return fault == "swallowed" and situation.name.endswith("-alone")


def _is_tried(kind: Kind, fault: str, situation: Situation) -> bool:
    """Whether a mutant can be wrong in this way: no engine handles an error by where the hook was registered."""
    if fault == "in-wrong-mode" and not (situation in (*ANY, *IN_PASS) and IN_PASS[0] in kind.situations):
        return False
    if fault in kind.without or not getattr(kind, OF_SOME.get(fault, "verbs")) or _is_by_number(fault, situation):
        return False
    return situation.name not in kind.never and not (fault == "swallowed" and situation.name.startswith("made-"))


def _ordered(kind: Kind) -> Iterator[Situation]:
    """Yield the situations in which several hooks of one owner may be."""
    return (each for each in kind.situations if each.name not in {*kind.never, "second-alone"})


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for of, kind in KINDS.items():
        for fault, (words, wrong) in FAULTS.items():
            for situation in filter(partial(_is_tried, kind, fault), (ALWAYS, *kind.situations)):
                said = words.format(f"{kind.words} {situation.words}")
                made = tried_in(_made(kind, situation, wrong), fault, situation)
                yield f"{of}-{fault}-{situation.name}", said, kind.chapters, made
        for situation in [] if kind.unordered else _ordered(kind):
            said = f"{kind.words} {situation.words} runs after the later ones of its owner"
            made = tried_in(_reversed(kind, situation), "in-wrong-order", situation)
            yield f"{of}-in-wrong-order-{situation.name}", said, kind.chapters, made
        for which, place in OWNERS.items() if kind.verbs[0] in OF_MODULES else ():
            said = f"{kind.words} gets the module on which one was registered {which}"
            yield f"{of}-given-the-owner-registered-{which}", said, kind.chapters, _given_owner(kind, place)
    for of, hook, situations, faults, make in OF_PAIRS:
        for fault, (words, wrong) in faults.items():
            for situation in [each for each in situations if not _is_by_number(fault, each)]:
                said = words.format(f"{hook} {situation.words}")
                yield f"{of}-{fault}-{situation.name}", said, ("saved-tensor",), make(situation, wrong)


def tried_in(made: type[Mutant], fault: str, situation: Situation) -> type[Mutant]:
    """Return a mutant that says how the ids of the rules end that try hooks with this fault in this situation."""
    family, scope = FAMILIES.get(fault, "fire"), situation.scope
    ends = [f"{family}.{scope}", "every-time"] if scope else [family, f"{family}.every-call", "every-time"]
    if family == "mode":
        ends = ["mode.every-pass", *([f"fire.{scope}"] if scope == "inside-a-pass" else [])]
    made.ends = ends  # type: ignore[attr-defined]
    return made


def named(name: str, said: str, chapters: tuple[str, ...], made: type[Mutant]) -> tuple[str, type[Mutant]]:
    """Return a mutant, and the name that its module gives to it: that of the caller of this function."""
    made.__name__ = name.strip("-").replace("-", "_")
    said = " ".join(said.split())
    made.__doc__ = f"{said[0].upper()}{said[1:]}."
    made.under = ""  # type: ignore[attr-defined]
    made.first = chapters  # type: ignore[attr-defined]
    return made.__name__, made


vars().update(named(*each) for each in _all())
