"""Drawing modules, calls of them, and hooks on them."""

from hooklaw.fuzz.draft import Draft
from hooklaw.fuzz.draw_hooks import action

INPUTS = {"weighted": 1, "two": 2, "joined": 2, "scaled": 1, "unweighted": 1, "raises": 1, "outer": 1}
MODULE_HOOKS = ("forward_pre", "forward", "full_backward_pre", "full_backward")


def module(draft: Draft) -> None:
    """Draw a module."""
    w = draft.tensor(lambda kind: kind.leaf)
    if w:
        kind = draft.one_of([*INPUTS, "weighted", "joined", "two"])
        inner = _inner(draft, w) if kind == "outer" else ()
        kind = kind if inner or kind != "outer" else "weighted"
        name, parameter = draft.name("m"), draft.name("p")
        draft.add("module", (name, parameter), (w, *inner), (kind,))
        draft.modules[name] = kind
        draft.tensors[parameter] = draft.tensors[w]._replace(grad=True)


def _inner(draft: Draft, w: str) -> tuple[str, ...]:
    """Draw a module that a module with this parameter may call."""
    kind = draft.tensors[w]
    made = [one for one in draft.done if one.op == "module" and INPUTS[one.how[0]] == 1]
    names = [one.made[0] for one in made if draft.tensors[one.made[1]].shape == kind.shape]
    return (draft.one_of(names),) if names else ()


def call(draft: Draft) -> None:
    """Draw a call of a module."""
    if not draft.modules:
        return
    name = draft.one_of([*draft.modules])
    function = draft.modules[name]
    parameter = next(one.made[1] for one in draft.done if one.made[:1] == (name,))
    kind = draft.tensors[parameter]
    inputs = [draft.alike(kind) or parameter for _ in range(INPUTS[function])]
    made = tuple(draft.name("v") for _ in range(2 if function == "two" else 1))
    how = (2.0,) if function == "scaled" and draft.below(2) else ()
    draft.add("call" if how or draft.below(12) else "forward", made, (name, *inputs), how)
    draft.tensors.update(dict.fromkeys(made, draft.computed(kind, *inputs, parameter)))


def module_hook(draft: Draft) -> None:
    """Draw a hook on a module, or on all."""
    if draft.modules:
        kind = draft.one_of(MODULE_HOOKS)
        everywhere = draft.below(5) == 0
        name = draft.name("h")
        words = ("scale", "scale", "raise", "raise", "remove", "register", "peek", "reentrant", "backward", "same")
        options = _options(draft, kind, everywhere=everywhere)
        used = () if everywhere else (draft.one_of([*draft.modules]),)
        bare = kind == "full_backward_pre" and used and draft.modules[used[0]] != "two"
        wrong = ("wrong", "bare") if bare and draft.below(2) else ("wrong",)
        acts = action(draft, *words) if draft.below(7) else wrong
        draft.add("global_hook" if everywhere else "module_hook", (name,), used, (kind, acts, options))
        draft.hooks.append(name)


def _options(draft: Draft, kind: str, *, everywhere: bool) -> tuple[str, ...]:
    possible = [] if everywhere else ["prepend"]
    if kind == "forward" or (kind == "forward_pre" and not everywhere):
        possible.append("with_kwargs")
    if kind == "forward":
        possible.append("always_call")
    return tuple(option for option in possible if draft.below(2))
