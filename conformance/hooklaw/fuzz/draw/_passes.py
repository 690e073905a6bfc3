"""Drawing backward passes, and contexts that are entered and left."""

from typing import Any

from hooklaw.fuzz.draw.builder import ProgramDraft
from hooklaw.fuzz.replay.passes import FAILING, MATERIALIZED, PINNED, REFUSED, SINGLE, UNSAID


def _how(draft: ProgramDraft) -> tuple[Any, ...]:
    create = draft.below(4) == 0
    retain = draft.one_of((None, True, True, True, True, True, True, False)) if not create or draft.below(3) else None
    return (draft.one_of((1.0, 2.0)) if draft.below(40) else SINGLE, retain, create)


def _inputs(draft: ProgramDraft, root: str) -> tuple[str, ...]:
    """Draw tensors whose gradients are asked for: mostly tensors that the root was computed from."""
    behind = draft.tensors[root].behind
    near = draft.below(8) > 0

    def fits(name: str) -> bool:
        return draft.tensors[name].grad and (not near or name in behind)

    names = [name for name in draft.tensors if fits(name)]
    drawn = {draft.one_of(names) for _ in range(1 + draft.below(2))} if names else set()
    return tuple(name for name in names if name in drawn)


def _root(draft: ProgramDraft) -> str | None:
    """Draw the root of a pass, mostly a new tensor that nothing else uses."""
    x = draft.tensor(lambda kind: kind.grad and not kind.leaf) or draft.hooked()
    return draft.new("clone", (x,), draft.tensors[x]) if x and draft.below(8) else x


def backward(draft: ProgramDraft) -> None:
    """Draw a backward."""
    x = _root(draft)
    if x:
        inputs = _inputs(draft, x) if draft.below(6) == 0 else ()
        draft.add("backward", (), (x, *inputs), _how(draft))


UNUSED = ((), (), (UNSAID,), (REFUSED,), (UNSAID, MATERIALIZED), (MATERIALIZED,), (REFUSED, MATERIALIZED))
"""What autograd.grad is given for unused inputs."""


def grad(draft: ProgramDraft) -> None:
    """Draw gradients as tensors."""
    x = _root(draft)
    inputs = _inputs(draft, x) if x else ()
    if x and inputs:
        made = tuple(draft.name("g") for _ in inputs)
        how = _how(draft)
        asked = (draft.edges.get(name, name) if draft.below(3) else name for name in inputs)
        draft.add("grad", made, (x, *asked), (*how, *draft.one_of(UNUSED)))
        for gradient, name in zip(made, inputs, strict=True):
            kind = draft.tensors[name]
            draft.tensors[gradient] = draft.computed(kind, *inputs) if how[2] else kind._replace(leaf=False, grad=False)


def edge(draft: ProgramDraft) -> None:
    """Draw the gradient edge of a tensor."""
    x = draft.hooked()
    if x:
        made = draft.edges[x] = draft.name("e")
        draft.add("edge", (made,), (x,))


def twice(draft: ProgramDraft) -> None:
    """Draw the gradient of a gradient."""
    x = draft.tensor(lambda kind: kind.grad and not kind.leaf)
    behind = draft.tensors[x].behind & draft.tensors.keys() if x else ()
    leaves = [name for name in behind if draft.tensors[name].leaf]
    if x and leaves:
        made, inputs = draft.name("g"), sorted(leaves)[:1]
        draft.add("grad", (made,), (x, *inputs), (1.0, None, True))
        draft.tensors[made] = draft.computed(draft.tensors[inputs[0]], *inputs)
        draft.add("backward", (), (made,), (1.0, True, False))


def zero(draft: ProgramDraft) -> None:
    """Draw setting a gradient to None."""
    x = draft.tensor(lambda kind: kind.leaf)
    if x:
        draft.add("zero", (), (x,))


CONTEXTS = ("saved_hooks",) * 6 + ("no_grad", "enable_grad", "disable_saved_hooks", "save_on_cpu")
PAIRS = (
    *("itself", "itself", "itself", "detach", "detach", "clone", "listed", "boxed", "requiring", "growing", "doubled"),
    *("pack-raises", "unpack-raises", "wrong", "changes"),
)


def context(draft: ProgramDraft) -> None:
    """Draw entering a context, or leaving the innermost."""
    if draft.open and draft.below(2):
        leave(draft)
        return
    op = draft.one_of(CONTEXTS if draft.threads == 1 else (*CONTEXTS, "inference_mode", "inference_mode"))
    made = (draft.name("c"),) if op in ("saved_hooks", "disable_saved_hooks") else ()
    how: tuple[Any, ...] = ()
    if op == "saved_hooks":
        how = (draft.one_of(PAIRS[:-1] if draft.modules else PAIRS),)
    elif op == "save_on_cpu" and draft.below(2):
        how = (PINNED,)
    draft.enter(op, made, how)


def forbid(draft: ProgramDraft) -> None:
    """Draw forbidding saved-tensor hooks."""
    draft.enter("disable_saved_hooks", (draft.name("c"),))


def allow_mutation(draft: ProgramDraft) -> None:
    """Draw the context that allows in-place changes of saved tensors, in programs of one thread."""
    if draft.threads == 1 and ("allow_mutation" not in draft.open or draft.below(8) == 0):
        draft.enter("allow_mutation")


def on_cpu(draft: ProgramDraft) -> None:
    """Draw keeping saved tensors on the CPU, and deleting a saved tensor and all that saved it."""
    draft.enter("save_on_cpu", how=(PINNED,) if draft.below(2) else ())
    x = draft.tensor(lambda kind: kind.grad)
    if x:
        kept = draft.new("scale", (x,), draft.tensors[x], 2)
        for name in (draft.new("sin", (kept,), draft.tensors[x]), kept):
            del draft.tensors[name]
            draft.add("forget", (), (name,))


def unrecorded(draft: ProgramDraft) -> None:
    """Draw no_grad."""
    draft.enter("no_grad")


def leave(draft: ProgramDraft) -> None:
    """Draw leaving the innermost context, rarely by an exception."""
    if draft.open:
        draft.add("leave", how=(FAILING,) if draft.below(6) == 0 else ())
        draft.open.pop()


def mode(draft: ProgramDraft) -> None:
    """Draw a look at the grad mode."""
    draft.add("mode")


def saved_pair(draft: ProgramDraft) -> None:
    """Draw a pair of hooks on one saved tensor."""
    if draft.nodes:
        draft.add("saved_pair", (draft.name("c"),), (draft.one_of(draft.nodes),), (draft.one_of(PAIRS[:-1]),))


def read_saved(draft: ProgramDraft) -> None:
    """Draw reading what a node has saved."""
    if draft.nodes:
        draft.add("read_saved", (), (draft.one_of(draft.nodes),))
