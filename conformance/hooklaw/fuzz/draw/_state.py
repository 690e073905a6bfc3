"""Drawing what modules register, and states that are saved and loaded, with hooks around both."""

from typing import Any

from hooklaw.fuzz.draw._hooks import action, meanwhile
from hooklaw.fuzz.draw.builder import ProgramDraft
from hooklaw.fuzz.replay.state import STATE_HOOKS

KINDS = ("parameter", "buffer", "module")


def inside(draft: ProgramDraft) -> None:
    """Draw registering a module inside another one."""
    if len(draft.modules) > 1:
        outer, inner = (draft.one_of([*draft.modules]) for _ in range(2))
        if outer != inner:
            draft.add("add_module", (), (outer, inner), (draft.one_of(("inner", "other")),))


def buffer(draft: ProgramDraft) -> None:
    """Draw registering a buffer, rarely under a name that a parameter may have."""
    x = draft.tensor()
    if draft.modules and x:
        name = draft.one_of(("mean", "other", "weight" if draft.below(4) == 0 else "mean"))
        draft.add("register_buffer", (), (draft.one_of([*draft.modules]), x), (name,))


def registration_hook(draft: ProgramDraft) -> None:
    """Draw a hook on all registrations of a kind."""
    kind = draft.one_of(KINDS)
    words = ("instead", "instead", "raise", *meanwhile(draft), *(("scale", "scale") if kind != "module" else ()))
    acts, name = action(draft, *words), draft.name("h")
    others = [*draft.modules] if kind == "module" else [leaf for leaf, info in draft.tensors.items() if info.leaf]
    if acts == ("instead",) and not others:
        return
    used = (draft.one_of(others),) if acts == ("instead",) else ()
    draft.hook("registration_hook", used, kind, acts, name=name)


def _owner(draft: ProgramDraft) -> str | None:
    """Draw a module or an optimizer."""
    owners = [names for names in ([*draft.modules], draft.optimizers) if names]
    return draft.one_of(draft.one_of(owners)) if owners else None


def _hooked(draft: ProgramDraft) -> list[tuple[str, str]]:
    """Return the modules and optimizers with hooks around their states, and the kinds of the hooks."""
    return [(made.used[0], made.how[0]) for made in draft.done if made.op == "state_hook"]


def state(draft: ProgramDraft) -> None:
    """Draw taking the state of a module or an optimizer, mostly where there are hooks."""
    before = _hooked(draft)
    owner = draft.one_of(before)[0] if before and draft.below(2) else _owner(draft)
    if owner:
        name = draft.name("s")
        draft.add("state_dict", (name,), (owner,))
        draft.states[name] = owner


def load(draft: ProgramDraft) -> None:
    """Draw loading a state, mostly into what it was taken from."""
    if draft.states:
        name = draft.one_of([*draft.states])
        owner = draft.states[name]
        alike = [*draft.optimizers] if owner in draft.optimizers else [*draft.modules]
        draft.add("load_state_dict", (), (owner if draft.below(3) else draft.one_of(alike), name))


def state_hook(draft: ProgramDraft) -> None:
    """Draw a hook around the saving or the loading of a state, mostly where there is one already."""
    owner, kind = _owner(draft), draft.one_of(STATE_HOOKS)
    before = _hooked(draft)
    if before and draft.below(3):
        owner, again = draft.one_of(before)
        kind = draft.one_of((again, kind))
    if owner:
        of_optimizer = owner in draft.optimizers
        options = ("prepend",) if of_optimizer and draft.below(2) else ()
        draft.hook("state_hook", (owner,), kind, _acts(draft, kind, of_optimizer=of_optimizer), options)


def _acts(draft: ProgramDraft, kind: str, *, of_optimizer: bool) -> tuple[Any, ...]:
    words = ["raise", "same", *meanwhile(draft)]
    if kind in ("state_dict_post", "load_state_dict_pre"):
        words += ["add", "add", "another", "another", "clear"]
    elif kind == "load_state_dict_post" and not of_optimizer:
        words += ["add", "add", "add", "clear", "clear", "clear"]
    if not of_optimizer and draft.below(10) == 0:
        words = ["wrong"]
    acts = action(draft, *words)
    return acts[:1] if acts[0] == "wrong" else acts
