"""Drawing instructions that make and change tensors, and look at them."""

from hooklaw.fuzz.draw.builder import EMPTY, FLOAT, SHAPES, Draft, Kind

FUNCTIONS = (
    *("double", "square", "attribute", "product", "output", "pair", "pair", "nothing", "raise"),
    *("trailing", "surplus"),
)


def leaf(draft: Draft) -> None:
    """Draw a leaf."""
    shape = draft.one_of(SHAPES) if draft.tensors else draft.one_of(SHAPES[:2])
    shape = shape if draft.below(40) else EMPTY
    dtype = "float32" if draft.below(8) == 0 else FLOAT
    requires_grad = draft.below(8) > 0
    name = draft.name("x")
    draft.add("leaf", (name,), (), (shape, dtype, requires_grad))
    draft.tensors[name] = Kind(shape, dtype, leaf=requires_grad, grad=requires_grad)


def unary(draft: Draft) -> None:
    """Draw an operation on one tensor."""
    x = draft.tensor()
    if x:
        op = draft.one_of(("scale", "shift", "sin", "cos", "clone", "sum", "detach", "exp", "exp"))
        kind = draft.tensors[x]
        how = (draft.one_of((2, 3, -1)),) if op in ("scale", "shift") else ()
        made = draft.new(op, (x,), kind._replace(shape=()) if op == "sum" else kind, *how)
        if op in ("sin", "cos", "exp"):
            draft.nodes.append(made)


def binary(draft: Draft) -> None:
    """Draw an operation on two tensors."""
    a = draft.tensor()
    if a:
        kind = draft.tensors[a]
        b = draft.alike(kind) or a
        op = draft.one_of(("add", "sub", "mul", "mul"))
        made = draft.new(op, (a, b), kind)
        if op == "mul":
            draft.nodes.append(made)


def view(draft: Draft) -> None:
    """Draw a view of a tensor."""
    x = draft.tensor(lambda kind: kind.shape in SHAPES and kind.shape != () and (not kind.leaf or draft.below(4) == 0))
    if x:
        kind = draft.tensors[x]
        draft.one_of((_reshaped, _reshaped, _split, _transposed, _expanded))(draft, x, kind)


def _reshaped(draft: Draft, x: str, kind: Kind) -> None:
    shapes = {2: ((2,), (2, 1)), 4: ((4,), (2, 2))}
    size = 1
    for length in kind.shape:
        size *= length
    shape = draft.one_of(shapes[size])
    draft.new("view", (x,), kind._replace(shape=shape), *shape)


def _transposed(draft: Draft, x: str, kind: Kind) -> None:
    if kind.shape == (2, 2):
        draft.new("transpose", (x,), kind)


def _expanded(draft: Draft, x: str, kind: Kind) -> None:
    if kind.shape == (2, 1):
        draft.new("expand", (x,), kind._replace(shape=(2, 2)), 2, 2)


def _split(draft: Draft, x: str, kind: Kind) -> None:
    made = (draft.name("v"), draft.name("v"))
    draft.add("split", made, (x,))
    draft.family.update(dict.fromkeys(made, draft.family.get(x, x)))
    for one in made:
        draft.tensors[one] = draft.computed(kind, x)._replace(shape=(kind.shape[0] // 2, *kind.shape[1:]))


def in_place(draft: Draft) -> None:
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


def custom(draft: Draft) -> None:
    """Draw a custom Function."""
    x = draft.tensor()
    if not x:
        return
    kind = draft.tensors[x]
    function = draft.one_of(FUNCTIONS)
    used = (x,)
    if function == "product":
        used = (x, draft.alike(kind) or x)
    made = (draft.name("v"), draft.name("v")) if function == "pair" else (draft.name("v"),)
    draft.add("custom", made, used, (function,))
    draft.tensors.update(dict.fromkeys(made, draft.computed(kind, *used)))
    if function in ("square", "product", "output"):
        draft.nodes.append(made[0])


def by_integers(draft: Draft) -> None:
    """Draw a product with integers."""
    x = draft.tensor()
    if x:
        kind = draft.tensors[x]
        name = draft.name("x")
        draft.add("leaf", (name,), (), (kind.shape, "int64", False))
        draft.tensors[name] = Kind(kind.shape, "int64", grad=False)
        draft.nodes.append(draft.new("mul", (x, name), kind))
        del draft.tensors[name]  # little else can be done with integers


def own(draft: Draft) -> None:
    """Draw a leaf made of another tensor, mostly of one that is laid out in its own way."""
    laid_out = draft.tensor(lambda kind: len(kind.shape) > 1 and not kind.leaf)
    x = _repeated(draft) if draft.below(4) == 0 else laid_out or draft.tensor()
    if x:
        made = draft.name("x")
        draft.add("own", (made,), (x,))
        kind = draft.tensors[x]
        draft.tensors[made] = Kind(kind.shape, kind.dtype, leaf=True)


def _repeated(draft: Draft) -> str:
    """Draw a tensor whose elements are several at once."""
    x = draft.name("x")
    draft.add("leaf", (x,), (), ((2, 1), FLOAT, True))
    draft.tensors[x] = Kind((2, 1), FLOAT, leaf=True)
    return draft.new("expand", (x,), Kind((2, 2), FLOAT), 2, 2)


def several(draft: Draft) -> None:
    """Draw a Node with several outputs, one or both of which retain their gradients, and one of which is changed."""
    x = draft.tensor(lambda kind: kind.grad)
    if x and draft.below(8) == 0:
        made = (draft.name("v"), draft.name("v"))
        draft.add("custom", made, (x,), ("pair",))
        draft.tensors.update(dict.fromkeys(made, draft.computed(draft.tensors[x], x)))
        for one in made if draft.below(2) else made[1:]:
            draft.add("retain_grad", (), (one,))
        draft.add("scale_", (), (draft.one_of(made),), (2,))


def flag(draft: Draft) -> None:
    """Draw switching requires_grad of a leaf, seldom of another tensor."""
    x = draft.tensor(lambda kind: kind.leaf or not kind.grad) if draft.below(6) else draft.tensor()
    if x:
        on = draft.below(2) == 0
        draft.add("flag", (), (x,), (on,))
        kind = draft.tensors[x]
        draft.tensors[x] = kind._replace(grad=on, leaf=on) if kind.leaf or not kind.grad else kind


def bump(draft: Draft) -> None:
    """Draw the count of a change in place."""
    x = draft.tensor()
    if x:
        draft.add("bump", (), (x,))


def give(draft: Draft) -> None:
    """Draw giving a leaf a gradient, mostly one that is laid out in another way."""
    x = draft.tensor(lambda kind: kind.leaf)
    other = draft.alike(draft.tensors[x]) if x else None
    if x and other and not other.startswith("k"):  # what a hook keeps may never be there
        draft.add("give", (), (x, other))


def forget(draft: Draft) -> None:
    """Draw letting go of a tensor."""
    x = draft.tensor(lambda kind: not kind.leaf)
    if x and x.startswith("v"):
        del draft.tensors[x]
        draft.add("forget", (), (x,))


def look(draft: Draft) -> None:
    """Draw a look at what a tensor says of itself, or at the gradient that a leaf has accumulated."""
    x = draft.tensor()
    if x and draft.tensors[x].leaf and draft.below(3):
        made = draft.name("g")
        draft.add("take", (made,), (x,))
        draft.tensors[made] = draft.tensors[x]._replace(leaf=False, grad=False)
    elif x:
        draft.add("inspect", (), (x,))


def save(draft: Draft) -> None:
    """Draw serializing a leaf, which makes another one."""
    x = draft.tensor(lambda kind: kind.leaf)
    if x:
        made = draft.name("x")
        draft.add("save", (made,), (x,))
        draft.tensors[made] = draft.tensors[x]


def value(draft: Draft) -> None:
    """Draw a look at values, mostly of gradients that were taken."""
    taken = [one.made[0] for one in draft.done if one.op == "take"]
    x = draft.one_of(taken) if taken and draft.below(2) else draft.tensor()
    if x:
        draft.add("value", (), (x,))


def channels_last(draft: Draft) -> None:
    """Draw a leaf, laid out channels-last."""
    x = draft.name("x")
    draft.add("leaf", (x,), (), ((1, 2, 2, 2), FLOAT, True))
    draft.tensors[x] = Kind((1, 2, 2, 2), FLOAT, leaf=True)
    draft.new("channels_last", (x,), draft.tensors[x])
