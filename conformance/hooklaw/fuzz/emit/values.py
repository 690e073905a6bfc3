"""The code of instructions that make and change tensors."""

from hooklaw.fuzz.emit.script import Script, Step, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.values import filled

SAVE = """\
def save(tensor):
    file = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.save(tensor, file)
    file.seek(0)
    loaded = torch.load(file)
    saw("save", bool(caught), loaded, loaded.requires_grad)
    return loaded"""
INSPECT = """\
def inspect(tensor):
    node = tensor.grad_fn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        has_grad = tensor.grad is not None
    saw("inspect", tensor.requires_grad, tensor.is_leaf, tensor.retains_grad, node is None, has_grad)
    if node is not None:
        node.metadata["looks"] = node.metadata.get("looks", 0) + 1
        saw("node", any(one is not None for one, _ in node.next_functions), node.metadata["looks"])"""


@form
def leaf(script: Script, one: Instruction) -> Step:
    """Make a tensor of literal values."""
    shape, dtype, requires_grad = one.how
    grad = ", requires_grad=True" if requires_grad else ""
    values = filled(one.made[0], tuple(shape), dtype)
    anywhere = not requires_grad and not script.known.infers()
    return Step(f"torch.tensor({values}, dtype=torch.{dtype}{grad})", one.made[0], anywhere=anywhere)


@form
def split(script: Script, one: Instruction) -> Step:
    """Split in two."""
    name = one.used[0]
    shape = script.known.shape(name)
    half = shape[0] // 2 if shape else f"{name}.shape[0] // 2"
    return Step(f"{name}.split({half})", ", ".join(one.made))


@form
def give(script: Script, one: Instruction) -> Step:
    """Give a leaf a gradient."""
    code, target = f"{one.used[1]}.detach().clone()", f"{one.used[0]}.grad"
    return Step(code, target, anywhere=not script.known.infers())


@form
def forget(script: Script, one: Instruction) -> Step:
    """Let go of a tensor, and see whether the graph keeps it."""
    name = one.used[0]
    script.need("weakref")
    shown = f'del {name}\nsaw("forget", "{name}", {name}_alive() is not None)'
    return Step(f"weakref.ref({name})", f"{name}_alive", after=shown, anywhere=True)


@form
def save(script: Script, one: Instruction) -> Step:
    """Serialize a leaf."""
    script.need("io", "warnings")
    script.define(SAVE)
    return Step(f"save({one.used[0]})", "".join(one.made))


@form
def take(script: Script, one: Instruction) -> Step:
    """Give an accumulated gradient a name."""
    name = one.made[0]
    then = ((f"{name} is None", name),) if script.known.events is None and script.known.used(name) else ()
    return Step(f"{one.used[0]}.grad", name, then=then)


@form
def inspect(script: Script, one: Instruction) -> Step:
    """Look at a tensor and its Node."""
    script.need("warnings")
    script.define(INSPECT)
    return Step(f"inspect({one.used[0]})")


FUNCTIONS: dict[str, tuple[str, str, str, str]] = {
    "double": ("x", "return x * 2", "grad", "return grad * 2"),
    "square": (
        "x",
        "ctx.save_for_backward(x)\nreturn x * x",
        "grad",
        "(x,) = ctx.saved_tensors\nreturn grad * x * 2",
    ),
    "attribute": ("x", "ctx.held = x\nreturn x * x", "grad", "return grad * ctx.held * 2"),
    "product": (
        "a, b",
        "ctx.save_for_backward(a, b)\nreturn a * b",
        "grad",
        "a, b = ctx.saved_tensors\nreturn grad * b, grad * a",
    ),
    "output": (
        "x",
        "out = x * 3\nctx.save_for_backward(out)\nreturn out",
        "grad",
        "(out,) = ctx.saved_tensors\nreturn grad * 3 + out - out",
    ),
    "trailing": ("x", "return x * 2", "grad", "return grad * 2, None"),
    "surplus": ("x", "return x * 2", "grad", "return grad * 2, grad"),
    "pair": ("x", "return x * 2, x * 3", "first, second", "return first * 2 + second * 3"),
    "nothing": ("x", "return x * 2", "grad", "return None"),
    "raise": ("x", "return x * 2", "grad", 'raise Exception("planned")'),
}
"""Custom Functions: parameters and code of forward and backward."""

FUNCTION = """\
class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {parameters}):
        {forward}

    @staticmethod
    def backward(ctx, {grads}):
        saw("{label}.backward", {grads})
        {backward}"""


@form
def custom(script: Script, one: Instruction) -> Step:
    """Apply a custom Function."""
    kind, label = one.how[0], one.made[0]
    alike = [other for other in script.known.program if other.op == one.op and other.how[:1] == (kind,)]
    name = define_function(script, kind, label, label.upper() if len(alike) > 1 else "")
    return Step(f"{name}.apply({', '.join(one.used)})", ", ".join(one.made))


def define_function(script: Script, kind: str, label: str, suffix: str) -> str:
    """Define a custom Function that notes its backward under a label, and return its name."""
    parameters, forward, grads, backward = FUNCTIONS[kind]
    name = kind.capitalize() + suffix
    lines = {"forward": forward, "backward": backward}
    text = {key: value.replace("\n", "\n        ") for key, value in lines.items()}
    script.define(FUNCTION.format(name=name, parameters=parameters, grads=grads, label=label, **text))
    return name
