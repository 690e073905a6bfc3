"""Drawing checkpointed regions."""

from hooklaw.fuzz.draw.builder import Draft
from hooklaw.fuzz.draw.modules import INPUTS
from hooklaw.fuzz.replay.regions import MODULE, REGIONS, SAVES_LAST

OFTEN = (*sorted(REGIONS.keys() - {MODULE}), "other-shape", "other-shape")
"""Regions, as often as they are to be drawn: most shapes differ in nothing where a tensor has one element."""


def checkpoint(draft: Draft) -> None:
    """Draw a checkpointed region, seldom without a word of its kind."""
    x = draft.tensor()
    if not x:
        return
    modules = [one for one in draft.done if one.op == "module" and INPUTS.get(one.how[0]) == 1]
    what = MODULE if modules and draft.below(3) == 0 else draft.one_of(OFTEN)
    kind = draft.tensors[x]
    if what == MODULE:
        name, parameter = draft.one_of(modules).made
        used = (name, draft.alike(draft.tensors[parameter]) or parameter)
    else:
        used = (x, draft.alike(kind) or x) if what in ("product", "outside") else (x,)
    _add(draft, what, used, 2 if what == "two" else 1)


def _add(draft: Draft, what: str, used: tuple[str, ...], number: int) -> None:
    reentrant = draft.one_of((False, False, False, True, True)) if draft.below(40) else None
    early_stop = draft.one_of((None, None, None, True, False, False))
    made = tuple(draft.name("v") for _ in range(number))
    draft.add("checkpoint", made, used, (what, reentrant, early_stop))
    tensors = [name for name in used if name in draft.tensors]
    kind = draft.computed(draft.tensors[tensors[0]], *tensors)
    draft.tensors.update(dict.fromkeys(made, kind))
    if what in SAVES_LAST:
        draft.nodes.append(made[0])
