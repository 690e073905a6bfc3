"""Drawing optimizers, their steps, and hooks around these."""

from hooklaw.fuzz.draw._hooks import action, meanwhile
from hooklaw.fuzz.draw.builder import ProgramDraft


def sgd(draft: ProgramDraft) -> None:
    """Draw an optimizer of leaves, rarely of another tensor too."""
    leaves = [name for name, kind in draft.tensors.items() if kind.leaf]
    names = {draft.one_of(leaves) for _ in range(1 + draft.below(3))} if leaves else set[str]()
    names |= {draft.tensor()} - {None} if draft.below(20) == 0 else set()
    used = tuple(name for name in draft.tensors if name in names)
    if used:
        name = draft.name("o")
        draft.add("sgd", (name,), used, (draft.one_of((0.5, 1.0)), draft.one_of((0.0, 0.5))))
        draft.optimizers.append(name)


def step(draft: ProgramDraft) -> None:
    """Draw a step."""
    if draft.optimizers:
        draft.add("step", (), (draft.one_of(draft.optimizers),))


def zero_grad(draft: ProgramDraft) -> None:
    """Draw resetting gradients: to None, to zeros, or by default."""
    if draft.optimizers:
        how = draft.one_of(((), (), (True,), (False,)))
        draft.add("zero_grad", (), (draft.one_of(draft.optimizers),), how)


def step_hook(draft: ProgramDraft) -> None:
    """Draw a hook around the steps of an optimizer, or of all."""
    if draft.optimizers:
        kind = draft.one_of(("pre", "pre", "post"))
        words = ["raise", "peek", "reentrant", "backward", "same", "wrong", *meanwhile(draft)]
        words += ["closure"] * 4 if kind == "pre" else []
        acts = action(draft, *words)
        acts = acts[:1] if acts[0] == "wrong" else acts
        everywhere = draft.below(4) == 0
        used = () if everywhere else (draft.one_of(draft.optimizers),)
        draft.hook("global_step_hook" if everywhere else "step_hook", used, kind, acts)


def step_in_backward(draft: ProgramDraft) -> None:
    """Draw a hook that runs a step as soon as a leaf has its gradient, mostly of an optimizer of that leaf alone."""
    leaves = [name for name, kind in draft.tensors.items() if kind.leaf]
    if leaves:
        x = draft.one_of(leaves)
        if not draft.optimizers or draft.below(3):
            draft.optimizers.append(draft.name("o"))
            draft.add("sgd", (draft.optimizers[-1],), (x,), (0.5, 0.0))
        draft.hook("post_accumulate", (x,), ("step", draft.one_of(draft.optimizers)))
