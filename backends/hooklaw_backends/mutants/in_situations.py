"""Mutants that are wrong with one kind of hook in one situation: each fault in each situation.

No rule need name them: the rules whose ids begin with the kind's `chapters` are tried first, then all others.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, Pair, overriding, pairs
from hooklaw_backends.mutants.situations import ANY, EITHER, IN_FORWARD, IN_PASS, Knowing, Situation


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


def _around(words: str, verb: str, chapter: str) -> Kind:
    """Return a kind of hook around a step, a state dict or a registration."""
    return Kind(words, (verb,), ANY, (chapter,), has_result=False)


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
    "step-pre-hook": _around("a step pre-hook", "register_step_pre_hook", "optim"),
    "step-post-hook": _around("a step post-hook", "register_step_post_hook", "optim"),
    "global-step-pre-hook": _around("a step pre-hook on all optimizers", "register_optimizer_step_pre_hook", "optim"),
    "global-step-post-hook": _around(
        "a step post-hook on all optimizers", "register_optimizer_step_post_hook", "optim"
    ),
    "state-dict-pre-hook": _around("a state-dict pre-hook", "register_state_dict_pre_hook", "state-dict"),
    "state-dict-post-hook": _around("a state-dict post-hook", "register_state_dict_post_hook", "state-dict"),
    "load-pre-hook": _around("a load-state-dict pre-hook", "register_load_state_dict_pre_hook", "state-dict"),
    "load-post-hook": _around("a load-state-dict post-hook", "register_load_state_dict_post_hook", "state-dict"),
    "parameter-registration-hook": _around(
        "a registration hook of parameters", "register_module_parameter_registration_hook", "registration-hook"
    ),
    "buffer-registration-hook": _around(
        "a registration hook of buffers", "register_module_buffer_registration_hook", "registration-hook"
    ),
    "module-registration-hook": _around(
        "a registration hook of modules", "register_module_module_registration_hook", "registration-hook"
    ),
}

Call = Callable[[], Any]
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


def _in_wrong_mode(self: Mutant, call: Call) -> Any:
    with self.no_grad() if self.is_grad_enabled() else self.enable_grad():
        return call()


FAULTS: dict[str, tuple[str, Wrong]] = {
    "lost": ("{} is not called", lambda *_: None),
    "twice": ("{} is called twice", _twice),
    "ignored": ("what {} returns is ignored", _ignored),
    "swallowed": ("an error of {} is ignored", _swallowed),
    "in-wrong-mode": ("{} runs in the wrong grad mode", _in_wrong_mode),
}


def _made(kind: Kind, situation: Situation, wrong: Wrong) -> type[Mutant]:
    def register(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
        if kind.mode and options.get("mode", "all") != kind.mode:
            return old(*given, **options)
        *where, hook = given
        its = self.registration(kind.verbs[0], _owner(where))

        def run(*call: Any, **named: Any) -> Any:
            its.calls.append(None)
            try:
                here = situation.holds(self, its)
                return wrong(self, lambda: hook(*call, **named)) if here else hook(*call, **named)
            except BaseException:
                self.failures += 1
                raise

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        return old(*where, run, **options)

    return overriding(*kind.verbs, base=Knowing)(register)


def _owner(where: Sequence[Any]) -> Any:
    return where[0][0] if where and isinstance(where[0], list | tuple) and where[0] else next(iter(where), None)


def _is_tried(kind: Kind, fault: str, situation: Situation) -> bool:
    """Whether a mutant can be wrong in this way: no engine handles an error by where the hook was registered."""
    if fault == "ignored" and not kind.has_result:
        return False
    if fault == "in-wrong-mode" and situation not in IN_PASS:
        return False
    return situation.name not in kind.never and not (fault == "swallowed" and situation.name.startswith("made-"))


class _Kept(NamedTuple):
    """A saved tensor that was not packed."""

    tensor: Any


def _pack_made(situation: Situation, wrong: Wrong) -> type[Mutant]:
    """Return a mutant with a fault of pack hooks; where pack returns nothing to it, the tensor is saved as it is."""

    def pair(self: Any, pack: Hook, unpack: Hook) -> Pair:
        its = self.registration("saved_tensors_hooks")

        def packing(tensor: Any) -> Any:
            its.calls.append(None)
            packed = wrong(self, lambda: [pack(tensor)]) if situation.holds(self, its) else [pack(tensor)]
            return _Kept(self.detach(tensor)) if packed is None else packed

        return packing, lambda packed: packed.tensor if isinstance(packed, _Kept) else unpack(*packed)

    return pairs("saved_tensors_hooks", base=Knowing)(pair)


def _unpack_made(situation: Situation, wrong: Wrong) -> type[Mutant]:
    """Return a mutant with a fault of unpack hooks."""

    def pair(self: Any, pack: Hook, unpack: Hook) -> Pair:
        its = self.registration("saved_tensors_hooks")

        def unpacking(packed: Any) -> Any:
            its.calls.append(None)
            return wrong(self, lambda: unpack(packed)) if situation.holds(self, its) else unpack(packed)

        return pack, unpacking

    return pairs("saved_tensors_hooks", base=Knowing)(pair)


PACK_FAULTS = {name: FAULTS[name] for name in ("lost", "twice", "swallowed")}
UNPACK_FAULTS = {"twice": FAULTS["twice"], "doubled": ("what {} returns is doubled", lambda _, call: call() * 2)}
OF_PAIRS = (
    ("pack-hook", "a pack hook", [each for each in FORWARD if each.name != "another-thread"], PACK_FAULTS, _pack_made),
    ("unpack-hook", "an unpack hook", BACKWARD, UNPACK_FAULTS, _unpack_made),
)


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for of, kind in KINDS.items():
        for fault, (words, wrong) in FAULTS.items():
            for situation in filter(partial(_is_tried, kind, fault), kind.situations):
                said = words.format(f"{kind.words} {situation.words}")
                yield f"{of}-{fault}-{situation.name}", said, kind.chapters, _made(kind, situation, wrong)
    for of, hook, situations, faults, make in OF_PAIRS:
        for fault, (words, wrong) in faults.items():
            for situation in situations:
                said = words.format(f"{hook} {situation.words}")
                yield f"{of}-{fault}-{situation.name}", said, ("saved-tensor",), make(situation, wrong)


def _each() -> Iterator[tuple[str, type[Mutant]]]:
    for name, said, chapters, made in _all():
        made.__name__ = name.replace("-", "_")
        made.__doc__ = f"{said[0].upper()}{said[1:]}."
        made.__module__ = __name__
        made.under = ""  # type: ignore[attr-defined]
        made.first = chapters  # type: ignore[attr-defined]
        yield made.__name__, made


vars().update(_each())
