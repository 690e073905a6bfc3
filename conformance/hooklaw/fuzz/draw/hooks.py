"""Drawing hooks of every kind, and what they do."""

from typing import Any

from hooklaw.fuzz.draw.builder import Draft
from hooklaw.fuzz.replay.hooks import LOOSE, UNSERIALIZABLE


def action(draft: Draft, *words: str) -> tuple[Any, ...]:
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
"""What is the matter with what a hook returns."""


def meanwhile(draft: Draft) -> tuple[str, ...]:
    """Draw, seldom, words for what changes the hooks that are being called, which makes every program alike."""
    return ("remove", "register") if draft.below(4) == 0 else ()


def hook(draft: Draft) -> None:
    """Draw a hook on a tensor."""
    x = draft.hooked()
    if x:
        name = draft.name("h")
        acts = action(draft, *EVERY, "keep", "wrong")
        marked = (UNSERIALIZABLE,) if draft.tensors[x].leaf and draft.below(4) == 0 else ()
        draft.add("hook", (name,), (x,), (acts, *marked))
        draft.hooks.append(name)
        if acts[0] == "keep":
            draft.tensors[acts[1]] = draft.tensors[x]._replace(leaf=False, grad=False, behind=frozenset())


def node_hook(draft: Draft) -> None:
    """Draw a hook before or after a Node."""
    x = draft.hooked()
    if x:
        name = draft.name("h")
        op = draft.one_of(("prehook", "posthook"))
        loose = (LOOSE,) if draft.tensors[x].leaf and draft.below(3) == 0 else ()
        draft.add(op, (name,), (x,), (action(draft, *EVERY, "wrong"), *loose))
        draft.hooks.append(name)


def post_accumulate(draft: Draft) -> None:
    """Draw a post-accumulate hook, mostly on a leaf."""
    x = draft.tensor(lambda kind: kind.leaf) if draft.below(12) else draft.tensor()
    if x:
        name = draft.name("h")
        words = [word for word in EVERY if word not in ("scale", "backward")]
        words += ["scale"] if draft.below(8) == 0 else []
        draft.add("post_accumulate", (name,), (x,), (("drop", x) if draft.below(6) == 0 else action(draft, *words),))
        draft.hooks.append(name)


def multi_grad(draft: Draft) -> None:
    """Draw a hook on several tensors, seldom in a mode that does not exist."""
    names = {draft.hooked() for _ in range(1 + draft.below(3))} - {None}
    if names:
        name = draft.name("h")
        acts = action(draft, "raise", "remove", "register", "peek", "reentrant", "backward")
        used = tuple(one for one in draft.tensors if one in names)
        mode = draft.one_of(("all", "any")) if draft.below(25) else "some"
        draft.add("multi_grad", (name,), used, (acts, mode))
        draft.hooks.append(name)


def inside_multi_grad(draft: Draft) -> None:
    """Draw a backward inside another one, for whose tensors a hook waits."""
    x = draft.tensor(lambda kind: kind.grad)
    if x and draft.below(8) == 0:
        first = draft.new("scale", (x,), draft.tensors[x], 2)
        second = draft.new("scale", (first,), draft.tensors[x], 3)
        both, inside = draft.name("h"), draft.name("h")
        draft.add("multi_grad", (both,), (first, second), (("nothing",), "all"))
        draft.add("hook", (inside,), (second,), (("backward", first),))
        draft.add("backward", (), (draft.new("clone", (second,), draft.tensors[x]),), (1.0, True, False))
        draft.hooks += [both, inside]


def retain_grad(draft: Draft) -> None:
    """Draw the wish to keep a gradient."""
    x = draft.hooked()
    if x:
        draft.add("retain_grad", (), (x,))


def remove(draft: Draft) -> None:
    """Draw removing a hook."""
    if draft.hooks:
        draft.add("remove", (), (draft.one_of(draft.hooks),))
