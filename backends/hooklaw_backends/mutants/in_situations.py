"""Mutants that are wrong with one kind of hook in one situation: each fault in each situation.

No rule need name them: the rules whose ids begin with the kind's `chapters` are tried first, then all others.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.situations import EITHER, IN_FORWARD, IN_PASS, Knowing, Situation


class Kind(NamedTuple):
    """A kind of hook."""

    words: str
    verbs: tuple[str, ...]
    situations: tuple[Situation, ...]
    chapters: tuple[str, ...]
    """How the ids of the rules begin that are tried first."""
    has_result: bool = True
    mode: str = ""
    """The mode of a multi-grad hook."""
    never: tuple[str, ...] = ()
    """Situations in which it does not run, or of which no law speaks."""


BACKWARD = (*EITHER, *IN_PASS)
FORWARD = (*EITHER, *IN_FORWARD)
OTHERS = ("made-in-a-module",)
"""A hook on all modules that is registered in the forward of one may run for that call."""
KINDS = {
    "tensor-hook": Kind("a tensor hook", ("register_hook",), BACKWARD, ("tensor-hook",)),
    "post-accumulate-hook": Kind(
        "a post-accumulate hook",
        ("register_post_accumulate_grad_hook",),
        BACKWARD,
        ("post-acc",),
        has_result=False,
        never=("autograd-grad",),
    ),
    "node-pre-hook": Kind("a Node pre-hook", ("node_register_prehook",), BACKWARD, ("node-prehook", "node-hook")),
    "node-hook": Kind("a Node hook", ("node_register_hook",), BACKWARD, ("node-hook",)),
    "multi-grad-hook": Kind(
        "a multi-grad hook", ("register_multi_grad_hook",), BACKWARD, ("multi-grad",), has_result=False, mode="all"
    ),
    "any-grad-hook": Kind(
        "a multi-grad hook in mode any",
        ("register_multi_grad_hook",),
        BACKWARD,
        ("multi-grad",),
        has_result=False,
        mode="any",
    ),
    "backward-pre-hook": Kind(
        "a module's backward pre-hook", ("register_full_backward_pre_hook",), BACKWARD, ("module.full-backward",)
    ),
    "backward-hook": Kind(
        "a module's backward hook", ("register_full_backward_hook",), BACKWARD, ("module.full-backward",)
    ),
    "global-backward-pre-hook": Kind(
        "a backward pre-hook on all modules",
        ("register_module_full_backward_pre_hook",),
        BACKWARD,
        ("module.global",),
        never=OTHERS,
    ),
    "global-backward-hook": Kind(
        "a backward hook on all modules",
        ("register_module_full_backward_hook",),
        BACKWARD,
        ("module.global",),
        never=OTHERS,
    ),
    "forward-pre-hook": Kind("a forward pre-hook", ("register_forward_pre_hook",), FORWARD, ("module.forward",)),
    "forward-hook": Kind("a forward hook", ("register_forward_hook",), FORWARD, ("module.forward",)),
    "global-forward-pre-hook": Kind(
        "a forward pre-hook on all modules",
        ("register_module_forward_pre_hook",),
        FORWARD,
        ("module.global",),
        never=OTHERS,
    ),
    "global-forward-hook": Kind(
        "a forward hook on all modules", ("register_module_forward_hook",), FORWARD, ("module.global",), never=OTHERS
    ),
}

Call = Callable[[], Any]


def _lost(call: Call) -> None:
    del call


def _twice(call: Call) -> Any:
    call()
    return call()


def _ignored(call: Call) -> None:
    call()


def _swallowed(call: Call) -> Any:
    try:
        return call()
    except Exception:  # noqa: BLE001 - the fault
        return None


FAULTS: dict[str, tuple[str, Callable[[Call], Any]]] = {
    "lost": ("{} is not called", _lost),
    "twice": ("{} is called twice", _twice),
    "ignored": ("what {} returns is ignored", _ignored),
    "swallowed": ("an error of {} is ignored", _swallowed),
}


def _made(kind: Kind, situation: Situation, wrong: Callable[[Call], Any]) -> type[Mutant]:
    def register(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
        if kind.mode and options.get("mode", "all") != kind.mode:
            return old(*given, **options)
        *where, hook = given
        its = self.registration(kind.verbs[0], _owner(where))

        def run(*call: Any, **named: Any) -> Any:
            its.calls.append(None)
            here = situation.holds(self, its)
            return wrong(lambda: hook(*call, **named)) if here else hook(*call, **named)

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        return old(*where, run, **options)

    return overriding(*kind.verbs, base=Knowing)(register)


def _owner(where: Sequence[Any]) -> Any:
    return where[0][0] if where and isinstance(where[0], list | tuple) and where[0] else next(iter(where), None)


def _is_tried(kind: Kind, fault: str, situation: Situation) -> bool:
    """Whether a mutant can be wrong in this way: no engine handles an error by where the hook was registered."""
    if fault == "ignored" and not kind.has_result:
        return False
    return situation.name not in kind.never and not (fault == "swallowed" and situation.name.startswith("made-"))


def _each() -> Iterator[tuple[str, type[Mutant]]]:
    for of, kind in KINDS.items():
        for fault, (words, wrong) in FAULTS.items():
            for situation in filter(partial(_is_tried, kind, fault), kind.situations):
                made = _made(kind, situation, wrong)
                made.__name__ = f"{of}-{fault}-{situation.name}".replace("-", "_")
                said = words.format(f"{kind.words} {situation.words}")
                made.__doc__ = f"{said[0].upper()}{said[1:]}."
                made.__module__ = __name__
                made.under = ""  # type: ignore[attr-defined]
                made.first = kind.chapters  # type: ignore[attr-defined]
                yield made.__name__, made


vars().update(_each())
