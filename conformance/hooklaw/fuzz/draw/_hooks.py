"""Drawing hooks of every kind, and what they do."""

from typing import Any

from hooklaw.fuzz.draw.builder import ProgramDraft
from hooklaw.fuzz.replay.hooks import LOOSE, UNSERIALIZABLE


def action(draft: ProgramDraft, *words: str) -> tuple[Any, ...]:
    """Draw what a hook does."""
    word = draft.one_of(("nothing", "nothing", *words))
    if word == "scale":
        return (word, draft.one_of((2, -1, 0)))
    if word == "remove" and draft.hooks and draft.below(2):
        return (word, draft.one_of(draft.hooks))
    if word in ("peek", "backward", "drop"):
        return (word, draft.tensor() or "x1")
    if word == "keep":
        return (word, draft.name("k"))
    if word == "wrong":
        return (word, draft.one_of(WRONG))
    return (word,)


EVERY = ("scale", "scale", "scale", "raise", "remove", "register", "peek", "reentrant", "context", "backward", "same")
WRONG = ("type", "dtype", "shape", "count", "bare")
"""What is wrong with the result of a hook."""


def meanwhile(draft: ProgramDraft) -> tuple[str, ...]:
    """Rarely allow actions that add or remove hooks while hooks run; if frequent, they make all programs look alike."""
    return ("remove", "register") if draft.below(4) == 0 else ()


def hook(draft: ProgramDraft) -> None:
    """Draw a hook on a tensor."""
    x = draft.hooked()
    if x:
        name = draft.name("h")
        acts = action(draft, *EVERY, "keep", "wrong")
        marked = (UNSERIALIZABLE,) if draft.tensors[x].leaf and draft.below(4) == 0 else ()
        draft.hook("hook", (x,), acts, *marked, name=name)
        if acts[0] == "keep":
            draft.tensors[acts[1]] = draft.tensors[x]._replace(leaf=False, grad=False, behind=frozenset())


def node_hook(draft: ProgramDraft) -> None:
    """Draw a pre-hook or a hook on a node."""
    x = draft.hooked()
    if x:
        op = draft.one_of(("prehook", "posthook"))
        loose = (LOOSE,) if draft.tensors[x].leaf and draft.below(3) == 0 else ()
        draft.hook(op, (x,), action(draft, *EVERY, "wrong"), *loose)


def post_accumulate(draft: ProgramDraft) -> None:
    """Draw a post-accumulate hook, mostly on a leaf."""
    x = draft.tensor(lambda kind: kind.leaf) if draft.below(12) else draft.tensor()
    if x:
        words = [word for word in EVERY if word not in ("scale", "backward")]
        words += ["scale"] if draft.below(8) == 0 else []
        draft.hook("post_accumulate", (x,), ("drop", x) if draft.below(6) == 0 else action(draft, *words))


def multi_grad(draft: ProgramDraft) -> None:
    """Draw a hook on several tensors, rarely in a mode that does not exist."""
    names = {draft.hooked() for _ in range(1 + draft.below(3))} - {None}
    if names:
        acts = action(draft, "raise", "remove", "register", "peek", "reentrant", "backward")
        used = tuple(name for name in draft.tensors if name in names)
        mode = draft.one_of(("all", "any")) if draft.below(25) else "some"
        draft.hook("multi_grad", used, acts, mode)


def inside_multi_grad(draft: ProgramDraft) -> None:
    """Draw a backward inside another backward, for whose tensors a hook waits."""
    x = draft.tensor(lambda kind: kind.grad)
    if x and draft.below(8) == 0:
        first = draft.new("scale", (x,), draft.tensors[x], 2)
        second = draft.new("scale", (first,), draft.tensors[x], 3)
        draft.hook("multi_grad", (first, second), ("nothing",), "all")
        draft.hook("hook", (second,), ("backward", first))
        draft.add("backward", (), (draft.new("clone", (second,), draft.tensors[x]),), (1.0, True, False))


def retain_grad(draft: ProgramDraft) -> None:
    """Draw retaining a gradient."""
    x = draft.hooked()
    if x:
        draft.add("retain_grad", (), (x,))


def remove(draft: ProgramDraft) -> None:
    """Draw removing a hook."""
    if draft.hooks:
        draft.add("remove", (), (draft.one_of(draft.hooks),))
