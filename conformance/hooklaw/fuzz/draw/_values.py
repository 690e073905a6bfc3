"""Drawing instructions that make and change tensors, and look at them."""

from hooklaw.fuzz.draw.builder import EMPTY, FLOAT, SHAPES, ProgramDraft, TensorKind
from hooklaw.fuzz.replay.functions import SAVING
from hooklaw.fuzz.replay.operations import OPERATIONS

FUNCTIONS = (
    *("double", "square", "attribute", "product", "output", "pair", "pair", "nothing", "raise"),
    *("trailing", "surplus"),
)


def leaf(draft: ProgramDraft) -> None:
    """Draw a leaf."""
    shape = draft.one_of(SHAPES) if draft.tensors else draft.one_of(SHAPES[:2])
    shape = shape if draft.below(40) else EMPTY
    dtype = "float32" if draft.below(8) == 0 else FLOAT
    requires_grad = draft.below(8) > 0
    draft.leaf(shape, dtype, grad=requires_grad)


def unary(draft: ProgramDraft) -> None:
    """Draw an operation on one tensor."""
    x = draft.tensor()
    if x:
        op = draft.one_of(("scale", "shift", "sin", "cos", "clone", "sum", "detach", "exp", "exp"))
        kind = draft.tensors[x]
        how = (draft.one_of((2, 3, -1)),) if op in ("scale", "shift") else ()
        made = draft.new(op, (x,), kind._replace(shape=()) if op == "sum" else kind, *how)
        if OPERATIONS[op].traits.saves:
            draft.nodes.append(made)


def binary(draft: ProgramDraft) -> None:
    """Draw an operation on two tensors."""
    a = draft.tensor()
    if a:
        kind = draft.tensors[a]
        b = draft.alike(kind) or a
        op = draft.one_of(("add", "sub", "mul", "mul"))
        made = draft.new(op, (a, b), kind)
        if OPERATIONS[op].traits.saves:
            draft.nodes.append(made)


def view(draft: ProgramDraft) -> None:
    """Draw a view of a tensor."""
    x = draft.tensor(lambda kind: kind.shape in SHAPES and kind.shape != () and (not kind.leaf or draft.below(4) == 0))
    if x:
        kind = draft.tensors[x]
        draft.one_of((_reshaped, _reshaped, _split, _transposed, _expanded))(draft, x, kind)


def _reshaped(draft: ProgramDraft, x: str, kind: TensorKind) -> None:
    shapes = {2: ((2,), (2, 1)), 4: ((4,), (2, 2))}
    size = 1
    for length in kind.shape:
        size *= length
    shape = draft.one_of(shapes[size])
    draft.new("view", (x,), kind._replace(shape=shape), *shape)


def _transposed(draft: ProgramDraft, x: str, kind: TensorKind) -> None:
    if kind.shape == (2, 2):
        draft.new("transpose", (x,), kind)


def _expanded(draft: ProgramDraft, x: str, kind: TensorKind) -> None:
    if kind.shape == (2, 1):
        draft.new("expand", (x,), kind._replace(shape=(2, 2)), 2, 2)


def _split(draft: ProgramDraft, x: str, kind: TensorKind) -> None:
    halved = kind._replace(shape=(kind.shape[0] // 2, *kind.shape[1:]))
    base = draft.family.get(x, x)
    draft.family.update(dict.fromkeys(draft.pair("split", x, halved), base))


def in_place(draft: ProgramDraft) -> None:
    """Draw a change in place, of a view half the time."""
    x = draft.tensor(lambda kind: kind.view) if draft.below(2) else None
    x = x or draft.tensor(lambda kind: not kind.leaf) or draft.tensor()
    if not x:
        return
    kind = draft.tensors[x]
    op = draft.one_of(("scale_", "scale_", "mul_", "cos_"))
    draft.touch(x)
    if op == "mul_":
        y = draft.alike(kind) or x
        draft.add(op, (), (x, y))
    else:
        draft.add(op, (), (x,), (draft.one_of((2, 3, 1)),) if op == "scale_" else ())


def custom(draft: ProgramDraft) -> None:
    """Draw a custom Function."""
    x = draft.tensor()
    if not x:
        return
    kind = draft.tensors[x]
    function = draft.one_of(FUNCTIONS)
    if function == "pair":
        draft.pair("custom", x, kind, function)
        return
    used = (x, draft.alike(kind) or x) if function == "product" else (x,)
    made = draft.new("custom", used, kind, function)
    if function in SAVING:
        draft.nodes.append(made)


def by_integers(draft: ProgramDraft) -> None:
    """Draw a product with integers."""
    x = draft.tensor()
    if x:
        kind = draft.tensors[x]
        name = draft.leaf(kind.shape, "int64", grad=False)
        draft.nodes.append(draft.new("mul", (x, name), kind))
        del draft.tensors[name]  # little else can be done with integers


def own(draft: ProgramDraft) -> None:
    """Draw a leaf made of another tensor, mostly of a tensor with a layout of its own."""
    laid_out = draft.tensor(lambda kind: len(kind.shape) > 1 and not kind.leaf)
    x = _repeated(draft) if draft.below(4) == 0 else laid_out or draft.tensor()
    if x:
        made = draft.name("x")
        draft.add("own", (made,), (x,))
        kind = draft.tensors[x]
        draft.tensors[made] = TensorKind(kind.shape, kind.dtype, leaf=True)


def _repeated(draft: ProgramDraft) -> str:
    """Draw a tensor whose elements share storage."""
    return draft.new("expand", (draft.leaf((2, 1)),), TensorKind((2, 2), FLOAT), 2, 2)


def several(draft: ProgramDraft) -> None:
    """Draw a node with two outputs, one or both of which retain their gradients, and one of which is changed."""
    x = draft.tensor(lambda kind: kind.grad)
    if x and draft.below(8) == 0:
        made = draft.pair("custom", x, draft.tensors[x], "pair")
        for name in made if draft.below(2) else made[1:]:
            draft.add("retain_grad", (), (name,))
        draft.add("scale_", (), (draft.one_of(made),), (2,))


def flag(draft: ProgramDraft) -> None:
    """Draw switching requires_grad of a leaf, rarely of another tensor."""
    x = draft.tensor(lambda kind: kind.leaf or not kind.grad) if draft.below(6) else draft.tensor()
    if x:
        on = draft.below(2) == 0
        draft.add("flag", (), (x,), (on,))
        kind = draft.tensors[x]
        draft.tensors[x] = kind._replace(grad=on, leaf=on) if kind.leaf or not kind.grad else kind


def bump(draft: ProgramDraft) -> None:
    """Draw counting a change in place."""
    x = draft.tensor()
    if x:
        draft.add("bump", (), (x,))


def give(draft: ProgramDraft) -> None:
    """Draw giving a leaf a gradient, mostly with another layout."""
    x = draft.tensor(lambda kind: kind.leaf)
    other = draft.alike(draft.tensors[x]) if x else None
    if x and other and not other.startswith("k"):  # what a hook keeps may never exist
        draft.add("give", (), (x, other))


def forget(draft: ProgramDraft) -> None:
    """Draw deleting a tensor."""
    x = draft.tensor(lambda kind: not kind.leaf)
    if x and x.startswith("v"):
        del draft.tensors[x]
        draft.add("forget", (), (x,))


def look(draft: ProgramDraft) -> None:
    """Draw a look at the attributes of a tensor, or at the gradient that a leaf has accumulated."""
    x = draft.tensor()
    if x and draft.tensors[x].leaf and draft.below(3):
        made = draft.name("g")
        draft.add("take", (made,), (x,))
        draft.tensors[made] = draft.tensors[x]._replace(leaf=False, grad=False)
    elif x:
        draft.add("inspect", (), (x,))


def save(draft: ProgramDraft) -> None:
    """Draw serializing a leaf, which makes another leaf."""
    x = draft.tensor(lambda kind: kind.leaf)
    if x:
        made = draft.name("x")
        draft.add("save", (made,), (x,))
        draft.tensors[made] = draft.tensors[x]


def value(draft: ProgramDraft) -> None:
    """Draw a look at values, mostly of gradients that were taken."""
    taken = [instruction.made[0] for instruction in draft.done if instruction.op == "take"]
    x = draft.one_of(taken) if taken and draft.below(2) else draft.tensor()
    if x:
        draft.add("value", (), (x,))


def channels_last(draft: ProgramDraft) -> None:
    """Draw a leaf with the layout channels-last."""
    x = draft.leaf((1, 2, 2, 2))
    draft.new("channels_last", (x,), draft.tensors[x])
