"""Drawing custom Functions with marks and options, NaN gradients, and what inference mode makes."""

from hooklaw.fuzz.draw._values import in_place, leaf
from hooklaw.fuzz.draw.builder import ProgramDraft, TensorKind
from hooklaw.fuzz.replay.functions import MARKED

FAILING = ("dirty-lost", "read-twice", "few")
"""Functions that are refused or fail in backward: rarely drawn, since they hide what comes after them."""
FINE = tuple(word for word in MARKED if word not in (*FAILING, "nan"))
DIRTY = tuple(word for word in FINE if MARKED[word].changes is not None)
CONSTANT = {"constant": 0, "constant-first": 0, "constant-second": 1, "listed-alone": 0}
"""The output of a Function that does not require grad."""


def function(draft: ProgramDraft) -> None:
    """Draw a custom Function that marks its tensors, or has options."""
    _call(draft, draft.one_of(FINE if draft.below(8) else FAILING))


def dirty(draft: ProgramDraft) -> None:
    """Draw a custom Function that changes a tensor in place."""
    _call(draft, draft.one_of(DIRTY))


def _call(draft: ProgramDraft, word: str) -> None:
    function = MARKED[word]
    x = draft.tensor() if function.changes is None else _changed(draft)
    if not x:
        return
    kind = draft.tensors[x]
    used = [x, *(_other(draft, x, kind) for _ in range(function.inputs - 1))]
    made = tuple(draft.name("v") for _ in range(function.outputs))
    if function.changes is not None:
        used = used if function.changes == 0 else used[::-1]
        draft.touch(x)
    draft.add("function", made, tuple(used), (word,))
    draft.tensors.update(dict.fromkeys(made, draft.computed(kind, *used)))
    if word in CONSTANT:
        draft.tensors[made[CONSTANT[word]]] = kind._replace(leaf=False, grad=False, view=False)
    if function.changes is not None:
        draft.tensors[made[0]] = draft.tensors[x] = draft.tensors[made[0]]._replace(view=kind.view)
        draft.family[made[0]] = draft.family.get(x, x)
        draft.stale |= {x} if _is_refused(draft, word, x) else set()  # since its history is not rebuilt then


def _changed(draft: ProgramDraft) -> str | None:
    """Draw a tensor to be changed, half the time a view."""
    x = draft.tensor(lambda kind: kind.view) if draft.below(2) else None
    return x or draft.tensor(lambda kind: not kind.leaf) or (None if draft.below(8) else draft.tensor())


def _is_refused(draft: ProgramDraft, word: str, x: str) -> bool:
    """Whether a view must not be changed by this Function, or by any."""
    base = draft.tensors.get(draft.family.get(x, x))
    return draft.tensors[x].view and (word in ("dirty-of-two", "dirty-lost") or base is None or base.leaf)


def _other(draft: ProgramDraft, x: str, kind: TensorKind) -> str:
    """Draw another tensor of the same shape and dtype, or the same tensor if there is no other."""
    found = draft.tensor(lambda other: other.shape == kind.shape and other.dtype == kind.dtype and other != kind)
    return found or draft.alike(kind) or x


def anomaly(draft: ProgramDraft) -> None:
    """Draw anomaly detection."""
    if draft.thread == 0:
        draft.enter("detect_anomaly")


def not_a_number(draft: ProgramDraft) -> None:
    """Draw a hook or a custom Function that makes a NaN gradient."""
    x = draft.hooked()
    if not x or draft.below(2):
        _call(draft, "nan")
        return
    draft.hook(draft.one_of(("hook", "hook", "prehook", "posthook")), (x,), ("nan",))


def inference(draft: ProgramDraft) -> None:
    """Draw tensors made in inference mode, or changes made there."""
    draft.enter("inference_mode")
    for _ in range(1 + draft.below(2)):
        draft.one_of((_leaf, _computed, _computed, in_place))(draft)
    draft.add("leave")
    draft.open.pop()


def _leaf(draft: ProgramDraft) -> None:
    leaf(draft)
    made = draft.done[-1]
    shape, dtype, _ = made.how
    draft.done[-1] = made._replace(how=(shape, dtype, False))
    draft.tensors[made.made[0]] = TensorKind(shape, dtype, grad=False)


def _computed(draft: ProgramDraft) -> None:
    x = draft.tensor()
    if x:
        op = draft.one_of(("scale", "shift", "clone", "exp"))
        draft.new(op, (x,), draft.tensors[x], *((2,) if op in ("scale", "shift") else ()))
