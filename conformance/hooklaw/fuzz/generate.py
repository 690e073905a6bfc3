"""Random programs: each instruction is drawn among those that make sense after what is there already.

Every program has a theme, instructions of which it is more likely to have: what goes wrong mostly takes several of one.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hooklaw.fuzz.draft import FLOAT, SHAPES, Draft, Kind, RandomSource, Source
from hooklaw.fuzz.program import Program


def program(source: Source, longest: int = 13) -> Program:
    """Draw a program: leaves, then instructions of every kind, and a backward in the end."""
    draft = Draft(source)
    if draft.below(20) == 0:
        draft.threads = 2 + draft.below(2)
    for _ in range(1 + draft.below(2)):
        _leaf(draft)
    theme = draft.one_of(THEMES)
    for step in theme.first:
        step(draft)
    for _ in range(3 + draft.below(longest - 3)):
        if draft.threads > 1:
            draft.thread = draft.below(draft.threads)
        draft.one_of(theme.often if draft.below(3) else STEPS)(draft)
    for step in theme.last:
        step(draft)
    return tuple(draft.done)


def from_seed(seed: int, number: int) -> Program:
    """Return the program of a seed with this number, the same everywhere."""
    return program(RandomSource(seed, number))


def wide(source: Source) -> Program:
    """Draw a program in which several Nodes are ready at once, each with hooks: what the order of Nodes shows in."""
    draft = Draft(source)
    kind = Kind((2,), FLOAT, leaf=True)
    for _ in range(2 + draft.below(2)):
        name = draft.name("x")
        draft.add("leaf", (name,), (), (kind.shape, kind.dtype, True))
        draft.tensors[name] = kind
    made = [draft.new("mul", (draft.one_of([*draft.tensors]), draft.one_of([*draft.tensors])), kind) for _ in range(3)]
    for name in draft.tensors:
        action = _action(draft, "scale", "raise", "remove", "peek")
        draft.add(draft.one_of(("hook", "prehook", "posthook")), (draft.name("h"),), (name,), (action,))
        draft.hooks.append(f"h{draft.names}")
    root = made[0]
    for name in made[1:]:
        root = draft.new("add", (root, name), kind)
    draft.add("backward", (), (root,), (1.0, True, False))
    return tuple(draft.done)


# --- values


def _leaf(draft: Draft) -> None:
    shape = draft.one_of(SHAPES) if draft.tensors else draft.one_of(SHAPES[:2])
    dtype = "float32" if draft.below(8) == 0 else FLOAT
    requires_grad = draft.below(8) > 0
    name = draft.name("x")
    draft.add("leaf", (name,), (), (shape, dtype, requires_grad))
    draft.tensors[name] = Kind(shape, dtype, leaf=requires_grad, grad=requires_grad)


def _unary(draft: Draft) -> None:
    x = draft.tensor()
    if x:
        op = draft.one_of(("scale", "shift", "sin", "cos", "clone", "sum", "detach", "exp"))
        kind = draft.tensors[x]
        how = (draft.one_of((2, 3, -1)),) if op in ("scale", "shift") else ()
        made = draft.new(op, (x,), kind._replace(shape=()) if op == "sum" else kind, *how)
        if op in ("sin", "cos", "exp"):
            draft.nodes.append(made)


def _binary(draft: Draft) -> None:
    a = draft.tensor()
    if a:
        kind = draft.tensors[a]
        b = draft.alike(kind) or a
        op = draft.one_of(("add", "sub", "mul", "mul"))
        made = draft.new(op, (a, b), kind)
        if op == "mul":
            draft.nodes.append(made)


def _view(draft: Draft) -> None:
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


def _in_place(draft: Draft) -> None:
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
        draft.add(op, (), (x,), (draft.one_of((2, 3)),) if op == "scale_" else ())


def _custom(draft: Draft) -> None:
    x = draft.tensor()
    if not x:
        return
    kind = draft.tensors[x]
    function = draft.one_of(("double", "square", "product", "output", "pair", "pair", "nothing", "raise"))
    used = (x,)
    if function == "product":
        used = (x, draft.alike(kind) or x)
    made = (draft.name("v"), draft.name("v")) if function == "pair" else (draft.name("v"),)
    draft.add("custom", made, used, (function,))
    draft.tensors.update(dict.fromkeys(made, draft.computed(kind, *used)))
    if function in ("square", "product", "output"):
        draft.nodes.append(made[0])


def _forget(draft: Draft) -> None:
    x = draft.tensor(lambda kind: not kind.leaf)
    if x and x.startswith("v"):
        del draft.tensors[x]
        draft.add("forget", (), (x,))


def _look(draft: Draft) -> None:
    x = draft.tensor()
    if x:
        draft.add("save" if draft.tensors[x].leaf and draft.below(2) else "inspect", (), (x,))


def _channels_last(draft: Draft) -> None:
    x = draft.name("x")
    draft.add("leaf", (x,), (), ((1, 2, 2, 2), FLOAT, True))
    draft.tensors[x] = Kind((1, 2, 2, 2), FLOAT, leaf=True)
    draft.new("channels_last", (x,), draft.tensors[x])


# --- hooks


def _action(draft: Draft, *words: str) -> tuple[Any, ...]:
    word = draft.one_of(("nothing", "nothing", *words))
    if word == "scale":
        return (word, draft.one_of((2, -1, 0)))
    if word == "remove" and draft.hooks and draft.below(2):
        return (word, draft.one_of(draft.hooks))
    if word in ("peek", "backward"):
        return (word, draft.tensor() or "x1")
    if word == "keep":
        return (word, draft.name("k"))
    return (word,)


EVERY = ("scale", "scale", "scale", "raise", "remove", "register", "peek", "reentrant", "context", "backward")


def _hook(draft: Draft) -> None:
    x = draft.hooked()
    if x:
        name = draft.name("h")
        action = _action(draft, *EVERY, "keep", "wrong")
        draft.add("hook", (name,), (x,), (action,))
        draft.hooks.append(name)
        if action[0] == "keep":
            draft.tensors[action[1]] = draft.tensors[x]._replace(leaf=False, grad=False, behind=frozenset())


def _node_hook(draft: Draft) -> None:
    x = draft.hooked()
    if x:
        name = draft.name("h")
        op = draft.one_of(("prehook", "posthook"))
        draft.add(op, (name,), (x,), (_action(draft, *EVERY, "wrong"),))
        draft.hooks.append(name)


def _post_accumulate(draft: Draft) -> None:
    x = draft.tensor(lambda kind: kind.leaf)
    if x:
        name = draft.name("h")
        words = [word for word in EVERY if word not in ("scale", "backward")]
        words += ["scale"] if draft.below(8) == 0 else []
        draft.add("post_accumulate", (name,), (x,), (_action(draft, *words),))
        draft.hooks.append(name)


def _multi_grad(draft: Draft) -> None:
    names = {draft.hooked() for _ in range(1 + draft.below(3))} - {None}
    if names:
        name = draft.name("h")
        action = _action(draft, "raise", "remove", "register", "peek", "reentrant", "backward")
        used = tuple(one for one in draft.tensors if one in names)
        draft.add("multi_grad", (name,), used, (action, draft.one_of(("all", "any"))))
        draft.hooks.append(name)


def _retain_grad(draft: Draft) -> None:
    x = draft.hooked()
    if x:
        draft.add("retain_grad", (), (x,))


def _remove(draft: Draft) -> None:
    if draft.hooks:
        draft.add("remove", (), (draft.one_of(draft.hooks),))


# --- passes and contexts


def _how(draft: Draft) -> tuple[Any, ...]:
    retain = draft.one_of((None, True, True, True, True, True, True, False))
    create = draft.below(4) == 0
    return (draft.one_of((1.0, 2.0)), retain, create)


def _inputs(draft: Draft, root: str) -> tuple[str, ...]:
    """Draw tensors whose gradient is asked for: mostly such as the root was computed from."""
    behind = draft.tensors[root].behind
    near = draft.below(8) > 0

    def fits(name: str) -> bool:
        return draft.tensors[name].grad and (not near or name in behind)

    names = [name for name in draft.tensors if fits(name)]
    drawn = {draft.one_of(names) for _ in range(1 + draft.below(2))} if names else set()
    return tuple(name for name in names if name in drawn)


def _root(draft: Draft) -> str | None:
    """Draw a tensor to begin with, mostly one that nothing else is about."""
    x = draft.tensor(lambda kind: kind.grad and not kind.leaf) or draft.hooked()
    return draft.new("clone", (x,), draft.tensors[x]) if x and draft.below(8) else x


def _backward(draft: Draft) -> None:
    x = _root(draft)
    if x:
        inputs = _inputs(draft, x) if draft.below(6) == 0 else ()
        draft.add("backward", (), (x, *inputs), _how(draft))


def _grad(draft: Draft) -> None:
    x = _root(draft)
    inputs = _inputs(draft, x) if x else ()
    if x and inputs:
        made = tuple(draft.name("g") for _ in inputs)
        how = _how(draft)
        draft.add("grad", made, (x, *inputs), how)
        for one, name in zip(made, inputs, strict=True):
            kind = draft.tensors[name]
            draft.tensors[one] = draft.computed(kind, *inputs) if how[2] else kind._replace(leaf=False, grad=False)


def _zero(draft: Draft) -> None:
    x = draft.tensor(lambda kind: kind.leaf)
    if x:
        draft.add("zero", (), (x,))


CONTEXTS = ("saved_hooks",) * 6 + ("no_grad", "enable_grad", "disable_saved_hooks", "save_on_cpu")
PAIRS = ("itself", "detach", "detach", "clone", "boxed", "doubled", "pack-raises", "unpack-raises", "wrong", "changes")


def _context(draft: Draft) -> None:
    open_here = draft.contexts.setdefault(draft.thread, [])
    if open_here and draft.below(2):
        draft.add("leave")
        open_here.pop()
        return
    op = draft.one_of(CONTEXTS)
    if op == "saved_hooks":
        draft.add(op, (draft.name("c"),), (), (draft.one_of(PAIRS[:-1] if draft.modules else PAIRS),))
    else:
        draft.add(op)
    open_here.append(op)


def _saved_pair(draft: Draft) -> None:
    if draft.nodes:
        draft.add("saved_pair", (draft.name("c"),), (draft.one_of(draft.nodes),), (draft.one_of(PAIRS[:-1]),))


def _read_saved(draft: Draft) -> None:
    if draft.nodes:
        draft.add("read_saved", (), (draft.one_of(draft.nodes),))


# --- modules


INPUTS = {"weighted": 1, "two": 2, "joined": 2, "scaled": 1, "unweighted": 1, "raises": 1}
MODULE_HOOKS = ("forward_pre", "forward", "full_backward_pre", "full_backward")


def _module(draft: Draft) -> None:
    w = draft.tensor(lambda kind: kind.leaf)
    if w:
        kind = draft.one_of([*INPUTS, "weighted", "joined", "two"])
        name, parameter = draft.name("m"), draft.name("p")
        draft.add("module", (name, parameter), (w,), (kind,))
        draft.modules[name] = kind
        draft.tensors[parameter] = draft.tensors[w]._replace(grad=True)


def _call(draft: Draft) -> None:
    if not draft.modules:
        return
    name = draft.one_of([*draft.modules])
    function = draft.modules[name]
    parameter = next(one.made[1] for one in draft.done if one.made[:1] == (name,))
    kind = draft.tensors[parameter]
    inputs = [draft.alike(kind) or parameter for _ in range(INPUTS[function])]
    made = tuple(draft.name("v") for _ in range(2 if function == "two" else 1))
    how = (2.0,) if function == "scaled" and draft.below(2) else ()
    draft.add("call", made, (name, *inputs), how)
    draft.tensors.update(dict.fromkeys(made, draft.computed(kind, *inputs, parameter)))


def _module_hook(draft: Draft) -> None:
    if draft.modules:
        kind = draft.one_of(MODULE_HOOKS)
        everywhere = draft.below(5) == 0
        name = draft.name("h")
        words = ("scale", "raise", "remove", "register", "peek", "reentrant", "backward", "wrong")
        action = _action(draft, *words)
        options = _options(draft, kind, everywhere=everywhere)
        used = () if everywhere else (draft.one_of([*draft.modules]),)
        draft.add("global_hook" if everywhere else "module_hook", (name,), used, (kind, action, options))
        draft.hooks.append(name)


def _options(draft: Draft, kind: str, *, everywhere: bool) -> tuple[str, ...]:
    possible = [] if everywhere else ["prepend"]
    if kind == "forward" or (kind == "forward_pre" and not everywhere):
        possible.append("with_kwargs")
    if kind == "forward":
        possible.append("always_call")
    return tuple(option for option in possible if draft.below(3) == 0)


Step = Callable[[Draft], None]
WEIGHTS: dict[Step, int] = {
    _leaf: 3,
    _unary: 16,
    _binary: 18,
    _view: 8,
    _in_place: 7,
    _custom: 7,
    _forget: 2,
    _look: 3,
    _channels_last: 1,
    _hook: 16,
    _node_hook: 10,
    _post_accumulate: 5,
    _multi_grad: 4,
    _retain_grad: 5,
    _remove: 4,
    _backward: 10,
    _grad: 5,
    _zero: 1,
    _context: 9,
    _saved_pair: 2,
    _read_saved: 2,
    _module: 5,
    _call: 6,
    _module_hook: 7,
}
STEPS = [step for step, weight in WEIGHTS.items() for _ in range(weight)]
"""Every kind of instruction, as often as it is to be drawn."""


class Theme(NamedTuple):
    """Instructions that belong together: those that a program begins and ends with, and those drawn more often."""

    often: Sequence[Step]
    first: tuple[Step, ...] = (_unary,)
    last: tuple[Step, ...] = (_backward,)


THEMES = (
    Theme(STEPS),
    Theme(
        (_unary, _binary, _binary, _custom, _hook, _node_hook, _retain_grad, _backward, _grad, _grad), (_unary, _binary)
    ),
    Theme(
        (_view, _view, _in_place, _in_place, _in_place, _unary, _custom, _hook, _hook, _retain_grad, _backward),
        (_unary, _view),
        (_backward, _backward),
    ),
    Theme((_binary, _unary, _custom, _context, _context, _saved_pair, _read_saved, _in_place, _backward, _grad)),
    Theme(
        (_module, _call, _module_hook, _module_hook, _module_hook, _backward, _unary, _hook, _grad),
        (_module, _module_hook, _call),
        (_call, _backward),
    ),
    Theme(
        (_multi_grad, _multi_grad, _hook, _binary, _custom, _view, _backward, _backward, _grad), (_unary, _multi_grad)
    ),
    Theme((_post_accumulate, _node_hook, _hook, _binary, _leaf, _remove, _backward, _backward, _zero)),
)
"""What programs are about."""
