"""Drawing modules, calls of them, and hooks on them."""

from hooklaw.fuzz.draw._hooks import action
from hooklaw.fuzz.draw.builder import ProgramDraft
from hooklaw.fuzz.program import Instruction

INPUTS = {"weighted": 1, "two": 2, "joined": 2, "scaled": 1, "unweighted": 1, "raises": 1, "outer": 1}
CONTAINERS = ("named", "listed", "keyed")
MODULE_HOOKS = ("forward_pre", "forward", "full_backward_pre", "full_backward")


def module(draft: ProgramDraft) -> None:
    """Draw a module."""
    w = draft.tensor(lambda kind: kind.leaf)
    if w:
        kind = draft.one_of([*INPUTS, "weighted", "joined", "two"] if draft.below(10) else CONTAINERS)
        inner = _inner(draft, w) if kind == "outer" else ()
        kind = kind if inner or kind != "outer" else "weighted"
        name, parameter = draft.name("m"), draft.name("p")
        draft.add("module", (name, parameter), (w, *inner), (kind,))
        draft.modules[name] = kind
        draft.tensors[parameter] = draft.tensors[w]._replace(grad=True)


def _inner(draft: ProgramDraft, w: str) -> tuple[str, ...]:
    """Draw a module that a module with this parameter may call."""
    kind = draft.tensors[w]
    made = [module.made for module in with_one_input(draft)]
    names = [name for name, parameter in made if draft.tensors[parameter].shape == kind.shape]
    return (draft.one_of(names),) if names else ()


def with_one_input(draft: ProgramDraft) -> list[Instruction]:
    """Return the instructions that made modules with one input."""
    return [made for made in draft.done if made.op == "module" and INPUTS.get(made.how[0]) == 1]


def call(draft: ProgramDraft) -> None:
    """Draw a call of a module."""
    if not draft.modules:
        return
    _call(draft, draft.one_of([*draft.modules]))


def _call(draft: ProgramDraft, name: str, given: str = "") -> str:
    """Draw a call of a module, with the given tensor if there is one, and return what it makes."""
    function, parameter = draft.modules[name], _parameter(draft, name)
    kind = draft.tensors[parameter]
    inputs = [given or draft.alike(kind) or parameter for _ in range(INPUTS.get(function, 1))]
    made = tuple(draft.name("v") for _ in range(2 if function in ("two", "named") else 1))
    how = (2.0,) if function == "scaled" and draft.below(2) else ()
    draft.add("call" if how or draft.below(12) else "forward", made, (name, *inputs), how)
    draft.tensors.update(dict.fromkeys(made, draft.computed(kind, *inputs, parameter)))
    return made[0]


def module_hook(draft: ProgramDraft) -> None:
    """Draw a hook on a module, or on all."""
    if draft.modules:
        kind = draft.one_of(MODULE_HOOKS)
        everywhere = draft.below(5) == 0
        words = ("scale", "scale", "raise", "raise", "remove", "register", "peek", "reentrant", "backward", "same")
        options = _options(draft, kind, everywhere=everywhere)
        used = () if everywhere else (draft.one_of([*draft.modules]),)
        acts = action(draft, *words) if draft.below(7) else _wrong(draft, kind, options, *used)
        draft.hook("global_hook" if everywhere else "module_hook", used, kind, acts, options)


def _wrong(draft: ProgramDraft, kind: str, options: tuple[str, ...], *modules: str) -> tuple[str, ...]:
    """Draw what is wrong with the result of a hook: a bare tensor of several rows may pass for a tuple."""
    if kind == "forward_pre" and "with_kwargs" in options:
        return ("wrong", "bare")
    if kind.startswith("full") and draft.below(2):
        return ("wrong", "count")
    bare = kind == "full_backward_pre" and modules and draft.modules[modules[0]] not in ("two", "named")
    return ("wrong", "bare") if bare and draft.below(2) else ("wrong",)


def legacy_hook(draft: ProgramDraft) -> None:
    """Draw a legacy backward hook on a module, rarely on all."""
    if draft.modules:
        everywhere = draft.below(8) == 0
        acts = action(draft, "scale", "raise", "remove", "register", "peek", "wrong")
        used = () if everywhere else (draft.one_of([*draft.modules]),)
        draft.hook("global_hook" if everywhere else "module_hook", used, "backward", acts, ())


def copy(draft: ProgramDraft) -> None:
    """Draw a deep copy of a module, mostly of a module with hooks, and a call of it."""
    hooked = [made.used[0] for made in draft.done if made.op == "module_hook"]
    if draft.modules:
        original = draft.one_of(hooked or [*draft.modules])
        name, parameter = draft.name("m"), draft.name("p")
        draft.add("copy", (name, parameter), (original,))
        draft.modules[name] = draft.modules[original]
        draft.tensors[parameter] = draft.tensors[_parameter(draft, original)]
        _call(draft, name)


def _parameter(draft: ProgramDraft, module: str) -> str:
    return next(made.made[1] for made in draft.done if made.made[:1] == (module,))


def always(draft: ProgramDraft) -> None:
    """Draw a call that fails before its module's forward, with a hook registered with always_call=True."""
    if draft.modules and draft.below(3) == 0:
        module = (draft.one_of([*draft.modules]),)
        for kind, acts, options in (("forward", "nothing", ("always_call",)), ("forward_pre", "raise", ())):
            draft.hook("module_hook", module, kind, (acts,), options)
        _call(draft, *module)


def parallel(draft: ProgramDraft) -> None:
    """Draw a module of its own that is called in replicas, with few nodes ready at once."""
    w = draft.tensor(lambda kind: kind.leaf and kind.shape[:1] == (2,))
    if w:
        function = draft.one_of(("weighted", "weighted", "unweighted", "raises"))
        name, parameter, made = draft.name("m"), draft.name("p"), draft.name("v")
        draft.add("module", (name, parameter), (w,), (function,))
        draft.add("parallel", (made,), (name, w))
        kind = draft.tensors[w]
        rows = kind.shape if function == "unweighted" else (4, *kind.shape[1:])
        draft.modules[name], draft.tensors[parameter] = function, kind._replace(grad=True)
        draft.tensors[made] = draft.computed(kind._replace(shape=rows), w, parameter)
        if draft.below(3):
            draft.add("backward", (), (made,), (1.0, True, False))


def inside_module(draft: ProgramDraft) -> None:
    """Draw a backward inside the backward of a module, over the same graph."""
    if draft.modules and draft.below(6) == 0:
        name = draft.one_of([*draft.modules])
        waiting, inside, x, parameter = draft.name("h"), draft.name("h"), draft.name("x"), _parameter(draft, name)
        draft.add("module_hook", (waiting,), (name,), ("full_backward", ("nothing",), ()))
        kind = draft.tensors[x] = draft.tensors[parameter]._replace(leaf=True, grad=True)
        draft.add("leaf", (x,), (), (kind.shape, kind.dtype, True))
        made = _call(draft, name, x)
        draft.add("hook", (inside,), (parameter,), (("backward", made),))
        draft.add("backward", (), (made,), (1.0, True, False))
        draft.hooks += [waiting, inside]


def _options(draft: ProgramDraft, kind: str, *, everywhere: bool) -> tuple[str, ...]:
    possible = [] if everywhere else ["prepend"]
    if kind == "forward" or (kind == "forward_pre" and not everywhere):
        possible.append("with_kwargs")
    if kind == "forward":
        possible.append("always_call")
    return tuple(option for option in possible if draft.below(2))
