"""The code of instructions that run backward, and that enter and leave contexts."""

from typing import Any

from hooklaw.fuzz.emit._script import Script, Step, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.passes import SINGLE, of_unused


def _arguments(script: Script, root: str, inputs: str, how: tuple[Any, ...]) -> str:
    number, retain, create = how[:3]
    flags = [f"retain_graph={retain}"] if retain is not None else []
    flags += [f"create_graph={create}"] if create else []
    return ", ".join([*_seed(script, root, number), *flags, *([inputs] if inputs else [])])


def _seed(script: Script, root: str, number: Any) -> list[str]:
    if number == SINGLE:
        return [f"torch.ones((), dtype={root}.dtype)"]
    if number is None or (number == 1.0 and script.known.executed.shape(root) == ()):
        return []
    layout = (
        ", memory_format=torch.contiguous_format" if script.known.uses("transpose", "expand", "channels_last") else ""
    )
    value = f"torch.ones_like({root}{layout})" if number == 1.0 else f"torch.full_like({root}, {number!r}{layout})"
    return [value]


@form
def backward(script: Script, instruction: Instruction) -> Step:
    """Run backward, and look at all gradients."""
    root, *inputs = instruction.used
    limited = f"inputs=[{', '.join(inputs)}]" if inputs else ""
    return Step(f"{root}.backward({_arguments(script, root, limited, instruction.how)})", look=True)


@form
def grad(script: Script, instruction: Instruction) -> Step:
    """Make tensors of gradients."""
    root, *inputs = instruction.used
    unused = ", ".join(f"{name}={value}" for name, value in of_unused(instruction.how).items())
    arguments = _arguments(script, root, unused, instruction.how)
    asked = f"[{', '.join(inputs)}]"
    code = f"torch.autograd.grad({', '.join(filter(None, [root, asked, arguments]))})"
    names = ", ".join(instruction.made)
    labels = ", ".join(f'"{name}"' for name in instruction.made)
    target = f"({names},)" if len(instruction.made) == 1 else names
    return Step(code, target, after=f"saw({labels}, {names}){script.unless_none(*instruction.made)}")


PACKERS: dict[str, tuple[str, str]] = {
    "itself": ("tensor", "packed"),
    "detach": ("tensor.detach()", "packed"),
    "clone": ("tensor.clone()", "packed"),
    "listed": ("listed(tensor)", "unlisted(packed)"),
    "boxed": ("Box(tensor)", "packed.unpack()"),
    "requiring": ("Box(tensor)", "packed.unpack(requires_grad=True)"),
    "growing": ("tensor.clone()", "packed.mul_(2)"),
    "doubled": ("tensor.detach()", "packed * 2"),
    "pack-raises": ("", "packed"),
    "unpack-raises": ("tensor.detach()", ""),
    "wrong": ("tensor", "1.0"),
    "changes": ("tensor.mul_(2)", "packed"),
}
"""Pairs of saved-tensor hooks: what they return, nothing where they raise."""
LISTED = """\
def listed(tensor):
    packed = [tensor.tolist(), tensor.dtype]
    packed.append(id(packed))
    return packed


def unlisted(packed):
    if packed[2] != id(packed):
        raise LookupError("this is another object than was packed")
    return torch.tensor(packed[0], dtype=packed[1])"""
BOX = """\
class Box:
    def __init__(self, tensor):
        self.values, self.dtype, self.itself = tensor.tolist(), tensor.dtype, id(self)
        boxes.append(weakref.ref(self))

    def unpack(self, requires_grad=False):
        if self.itself != id(self):
            raise LookupError("this is another object than was packed")
        requires_grad &= self.dtype.is_floating_point
        return torch.tensor(self.values, dtype=self.dtype, requires_grad=requires_grad)"""


def define_pair(script: Script, name: str, kind: str) -> str:
    """Define a pair of hooks, and return their names."""
    packed, unpacked = PACKERS[kind]
    if "listed" in packed:
        script.define(LISTED)
    if "Box" in packed:
        script.boxed = True
        script.need("weakref")
        script.define("boxes = []")
        script.define(BOX)
    ends = f"return {packed}" if packed else 'raise Exception("planned")'
    script.define(f'def {name}_pack(tensor):\n    saw("{name}.pack", tensor)\n    {ends}')
    script.define(f"def {name}_unpack(packed):\n{_unpacking(name, unpacked, kind)}")
    return f"{name}_pack, {name}_unpack"


def _unpacking(name: str, unpacked: str, kind: str) -> str:
    if not unpacked:
        return '    raise Exception("planned")'
    if unpacked == "packed":
        return f'    saw("{name}.unpack", packed)\n    return packed'
    leaf = ""
    if kind == "requiring":
        leaf = f'    if tensor.requires_grad:\n        tensor.register_hook(lambda grad: saw("{name}.leaf", grad))\n'
    return f'    tensor = {unpacked}\n    saw("{name}.unpack", tensor)\n{leaf}    return tensor'


@form
def saved_hooks(script: Script, instruction: Instruction) -> Step | None:
    """Enter a context with saved-tensor hooks."""
    pair = define_pair(script, instruction.made[0], instruction.how[0])
    return script.enter(instruction, f"torch.autograd.graph.saved_tensors_hooks({pair})")


@form
def leave(script: Script, instruction: Instruction) -> Step | None:
    """Leave the innermost context."""
    return script.leave(instruction)


RAW = """\
def raw_saved(node):
    raw = [getattr(node, name) for name in dir(node) if name.startswith("_raw_saved_")]
    flat = [one for many in raw for one in (many if isinstance(many, tuple) else [many])]
    return [one for one in flat if one is not None]"""
SAVED = """\
def saved(node):
    if "saved_tensors" in dir(node):
        return list(node.saved_tensors)
    names = [name for name in dir(node) if name.startswith("_raw_saved_") and getattr(node, name) is not None]
    return [getattr(node, name.removeprefix("_raw")) for name in names]"""
ATTRIBUTES = {"sin": "self", "cos": "self", "exp": "result"}


@form
def saved_pair(script: Script, instruction: Instruction) -> Step:
    """Give a saved tensor a pair of hooks of its own."""
    name = instruction.used[0]
    before, node = script.node(name, f"{instruction.made[0]}_node", keep=script.known.forgets())
    pair = define_pair(script, instruction.made[0], instruction.how[0])
    simple = _simple(script, name)
    if simple:
        raw = "_raw_saved_tensors[0]" if simple == "tensors" else f"_raw_saved_{simple}"
        return Step(f"{node}.{raw}.register_hooks({pair})", before=before)
    script.define(RAW)
    return Step(f"raw_saved({node})[0].register_hooks({pair})", before=before)


@form
def read_saved(script: Script, instruction: Instruction) -> Step:
    """Read what a Node has saved."""
    name = instruction.used[0]
    before, node = script.node(name, f"{name}_node", keep=script.known.forgets())
    simple = _simple(script, name)
    values = f"list({node}.saved_tensors)" if simple == "tensors" else f"[{node}._saved_{simple}]"
    if not simple:
        script.define(SAVED)
        values = f"saved({node})"
    return Step(f'saw("{name}.saved", {values})', before=before)


def _simple(script: Script, name: str) -> str:
    """Return the name under which a Node has what it has saved, none where that takes more to tell."""
    maker = script.known.makers.get(name)
    if maker is None or script.known.changes() or not script.known.has_node(name):
        return ""
    return "tensors" if maker.op == "custom" else ATTRIBUTES.get(maker.op, "")
