"""The code of checkpointed regions."""

from textwrap import indent

from hooklaw.fuzz.emit._functions import define_function
from hooklaw.fuzz.emit._passes import define_pair
from hooklaw.fuzz.emit._script import Script, Step, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.regions import MODULE, inputs_of

INNER = """\
def inner(x):
    saw("{name}.inner", x)
    return x.sin()


y = torch.utils.checkpoint.checkpoint(inner, x.sin(), use_reentrant=False).exp()"""
PAIR = """\
with torch.autograd.graph.saved_tensors_hooks({pair}):
    y = x.sin()
y = y * x"""
CODE: dict[str, str] = {
    "chain": "y = x.sin().exp()",
    "product": "y = (a * b).sin() * 2",
    "nothing": "y = x + 1",
    "two": "y = x.sin(), x * 3",
    "outside": "y = x.sin() * outside",
    "constant": "y = x.detach().sin()",
    "unrecorded": "with torch.no_grad():\n    y = x.sin()\ny = y * x",
    "hooks": (
        "y = x.sin()\n"
        "if y.requires_grad:\n"
        '    y.register_hook(lambda grad, run=len({name}_runs): saw(f"{name}.hook{{run}}", grad))\n'
        "y = y * x"
    ),
    "raises": 'raise Exception("planned")',
    "raises-again": 'if len({name}_runs) > 1:\n    raise Exception("planned")\ny = x.sin()',
    "other-shape": "y = (x * x if len({name}_runs) == 1 else x.sum() * x.sum()).exp()",
    "fewer": "y = x.sin()\nif len({name}_runs) == 1:\n    y = y.sin()",
    "more": "y = x.sin()\nif len({name}_runs) > 1:\n    y = y.sin()\ny = y * 2",
    "changes": "y = x * 2\nz = y.sin()\ny = z + y.mul_(3).exp()",
    "custom": "y = {function}.apply(x.sin())",
    "nested": INNER.replace("\n\n\n", "\n\n"),
    "nested-reentrant": INNER.replace("\n\n\n", "\n\n").replace("False", "True"),
    "pair": PAIR,
    "boxed": PAIR,
    "gradient": (
        "y = x.sin()\n"
        "if y.requires_grad:\n"
        "    (grad,) = torch.autograd.grad(y.sum(), [x])\n"
        '    saw("{name}.gradient", grad)\n'
        "y = x.cos()"
    ),
    "module": 'y = {outside}(x)\nif not isinstance(y, torch.Tensor):\n    raise Exception("planned")',
}
"""What regions do: the code between the notes of their beginning and end."""
PARAMETERS = {"product": "a, b"}


@form
def checkpoint(script: Script, instruction: Instruction) -> Step:
    """Run a checkpointed region."""
    kind, reentrant, early_stop = instruction.how
    region = _define(script, instruction)
    if kind == "outside":
        script.need("functools")
        region = f"functools.partial({region}, {instruction.used[-1]})"
    how = [f"use_reentrant={reentrant}"] if reentrant is not None else []
    how += [f"early_stop={early_stop}"] if early_stop is not None else []
    made = script.known.made_by(instruction)
    others = ("*_",) if 0 < len(made) < len(instruction.made) else ()
    arguments = ", ".join([region, *inputs_of(instruction), *how])
    return Step(f"torch.utils.checkpoint.checkpoint({arguments})", ", ".join(made + others))


def _define(script: Script, instruction: Instruction) -> str:
    """Define the region's function, and return its name."""
    kind, name = instruction.how[0], instruction.made[0]
    parameters = PARAMETERS.get(kind, "x")
    known = {
        "name": name,
        "outside": instruction.used[0] if kind == MODULE else "",
        "pair": define_pair(script, name, "boxed" if kind == "boxed" else "detach") if CODE[kind] == PAIR else "",
        "function": f"Square{name.upper()}",
    }
    if kind == "custom":
        define_function(script, "square", name, known["function"])
    lines = [f'saw("{name}.run", {parameters})', CODE[kind].format(**known)]
    if "_runs" in CODE[kind]:
        script.define(f"{name}_runs = []")
        lines.insert(0, f"{name}_runs.append(True)")
    if kind != "raises":
        lines += [f'saw("{name}.end")', "return y"]
    outside = "outside, " if kind == "outside" else ""
    script.define(f"def {name}_region({outside}{parameters}):\n" + indent("\n".join(lines), "    "))
    return f"{name}_region"
