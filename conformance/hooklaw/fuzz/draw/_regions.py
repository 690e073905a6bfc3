"""Drawing checkpointed regions."""

from hooklaw.fuzz.draw._modules import with_one_input
from hooklaw.fuzz.draw.builder import ProgramDraft
from hooklaw.fuzz.replay.regions import MODULE, REGIONS, SAVES_LAST

OFTEN = (*sorted(REGIONS.keys() - {MODULE}), "other-shape", "other-shape")
"""Regions, some twice: with tensors of one element most shapes are the same, which makes these rarely matter."""


def checkpoint(draft: ProgramDraft) -> None:
    """Draw a checkpointed region, rarely without use_reentrant."""
    x = draft.tensor()
    if not x:
        return
    modules = with_one_input(draft)
    what = MODULE if modules and draft.below(3) == 0 else draft.one_of(OFTEN)
    kind = draft.tensors[x]
    if what == MODULE:
        name, parameter = draft.one_of(modules).made
        used = (name, draft.alike(draft.tensors[parameter]) or parameter)
    else:
        used = (x, draft.alike(kind) or x) if what in ("product", "outside") else (x,)
    _add(draft, what, used, 2 if what == "two" else 1)


def _add(draft: ProgramDraft, what: str, used: tuple[str, ...], number: int) -> None:
    reentrant = draft.one_of((False, False, False, True, True)) if draft.below(40) else None
    early_stop = draft.one_of((None, None, None, True, False, False))
    made = tuple(draft.name("v") for _ in range(number))
    draft.add("checkpoint", made, used, (what, reentrant, early_stop))
    tensors = [name for name in used if name in draft.tensors]
    kind = draft.computed(draft.tensors[tensors[0]], *tensors)
    draft.tensors.update(dict.fromkeys(made, kind))
    if what in SAVES_LAST:
        draft.nodes.append(made[0])
