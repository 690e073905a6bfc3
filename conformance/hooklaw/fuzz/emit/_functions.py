"""The code of custom Functions."""

from textwrap import indent
from typing import NamedTuple

from hooklaw.fuzz.emit._script import Script, Step, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.functions import MARKED

TEMPLATE = """\
class {name}(torch.autograd.Function):
{options}    @staticmethod
    def forward(ctx, {parameters}):
{forward}

    @staticmethod
{decorator}    def backward(ctx, {grads}):
{needs}        saw("{label}.backward", {grads})
{backward}"""


class Text(NamedTuple):
    """A custom Function in code."""

    parameters: str
    forward: str
    grads: str
    backward: str


DIRTY = "x.mul_(3)\nctx.mark_dirty(x)\n"
CONSTANT = "marked = x * 5\nctx.mark_non_differentiable(marked)\n"
PRODUCT = "a, b = ctx.saved_tensors\nreturn grad * b, grad * a"
SAVED = "ctx.save_for_backward(a, b)\nreturn a * b"
SQUARE = "ctx.save_for_backward(x)\nreturn x * x"
DOUBLE = "return x * 2"
FUNCTIONS: dict[str, Text] = {
    "double": Text("x", DOUBLE, "grad", "return grad * 2"),
    "square": Text("x", SQUARE, "grad", "(x,) = ctx.saved_tensors\nreturn grad * x * 2"),
    "attribute": Text("x", "ctx.held = x\nreturn x * x", "grad", "return grad * ctx.held * 2"),
    "product": Text("a, b", SAVED, "grad", PRODUCT),
    "output": Text(
        "x",
        "out = x * 3\nctx.save_for_backward(out)\nreturn out",
        "grad",
        "(out,) = ctx.saved_tensors\nreturn grad * 3 + out - out",
    ),
    "trailing": Text("x", DOUBLE, "grad", "return grad * 2, None"),
    "surplus": Text("x", DOUBLE, "grad", "return grad * 2, grad"),
    "pair": Text("x", "return x * 2, x * 3", "first, second", "return first * 2 + second * 3"),
    "nothing": Text("x", DOUBLE, "grad", "return None"),
    "raise": Text("x", DOUBLE, "grad", 'raise Exception("planned")'),
}
"""Those of the instruction `custom`."""
TEXTS: dict[str, Text] = {
    "dirty": Text("x", f"{DIRTY}return x", "grad", "return grad * 3"),
    "dirty-saved": Text(
        "x", f"{DIRTY}ctx.save_for_backward(x)\nreturn x", "grad", "return grad * 3 + ctx.saved_tensors[0] * 0"
    ),
    "dirty-of-two": Text("x", f"{DIRTY}return x, x * 2", "first, second", "return first * 3 + second * 6"),
    "dirty-lost": Text("x", f"{DIRTY}return x * 2", "grad", "return grad * 6"),
    "dirty-first": Text(
        "a, b", "ctx.save_for_backward(a.clone(), b)\nctx.mark_dirty(a)\nreturn a.mul_(b)", "grad", PRODUCT
    ),
    "dirty-second": Text(
        "a, b", "ctx.save_for_backward(a, b.clone())\nctx.mark_dirty(b)\nreturn b.mul_(a)", "grad", PRODUCT
    ),
    "constant-second": Text("x", f"{CONSTANT}return x * 2, marked", "first, second", "return first * 2"),
    "constant-first": Text("x", f"{CONSTANT}return marked, x * 2", "first, second", "return second * 2"),
    "constant": Text("x", f"{CONSTANT}return marked", "grad", "return grad"),
    "once": Text("x", SQUARE, "grad", "return grad * ctx.saved_tensors[0] * 2"),
    "cleared": Text("x", SQUARE, "grad", "return grad * ctx.saved_tensors[0] * 2"),
    "read-twice": Text("x", SQUARE, "grad", "return grad * ctx.saved_tensors[0] + grad * ctx.saved_tensors[0]"),
    "boxed": Text("a, b", "return a * 2, b * 3", "grads", "return grads[0] * 2, grads[1] * 3"),
    "needed": Text(
        "a, b",
        SAVED,
        "grad",
        "a, b = ctx.saved_tensors\n"
        "first, second = ctx.needs_input_grad\n"
        "return grad * b if first else None, grad * a if second else None",
    ),
    "few": Text("a, b", SAVED, "grad", "return grad"),
    "listed": Text("many, x", "return many[0] * 2 + x", "grad", "return None, grad"),
    "tupled": Text("many, x", "return many[0] * 2 + x", "grad", "return None, grad"),
    "listed-alone": Text("many", "return many[0] * 2", "grad", "return grad * 2"),
    "nan": Text("x", DOUBLE, "grad", 'return grad * float("nan")'),
}
"""Those of the instruction `function`, which mark their tensors or have options."""
WRAPPED = {"listed": "[{}]", "tupled": "({},)", "listed-alone": "[{}]"}


@form
def custom(script: Script, instruction: Instruction) -> Step:
    """Apply a custom Function."""
    name = _named(script, instruction, instruction.how[0].capitalize())
    define_function(script, instruction.how[0], instruction.made[0], name)
    return Step(f"{name}.apply({', '.join(instruction.used)})", ", ".join(instruction.made))


@form
def function(script: Script, instruction: Instruction) -> Step:
    """Apply a custom Function, and show what came of it."""
    label, word = instruction.made[0], instruction.how[0]
    title = "".join(map(str.capitalize, word.split("-"))) + ("Inputs" if word in WRAPPED else "")
    name = _named(script, instruction, title)
    define_function(script, word, label, name)
    first, *others = instruction.used
    first = WRAPPED.get(word, "{}").format(first)
    facts = [
        f"{made}.requires_grad, {', '.join(f'{made} is {x}' for x in instruction.used)}" for made in instruction.made
    ]
    said = f'saw("{label}.made", {", ".join(facts)})'
    return Step(f"{name}.apply({', '.join([first, *others])})", ", ".join(instruction.made), after=said)


def _named(script: Script, instruction: Instruction, name: str) -> str:
    """Return the name of a class, with that of its result where there are several such classes."""
    alike = [
        other for other in script.known.program if other.op == instruction.op and other.how[:1] == instruction.how[:1]
    ]
    return name + (instruction.made[0].upper() if len(alike) > 1 else "")


def define_function(script: Script, word: str, label: str, name: str) -> None:
    """Define a custom Function under a name; it notes its backward under a label."""
    option = MARKED[word].option if word in TEXTS else ""
    text = TEXTS.get(word) or FUNCTIONS[word]
    once = option == "once_differentiable"
    code = TEMPLATE.format(
        name=name,
        label=label,
        options=f"    {option} = True\n\n" if option and not once else "",
        decorator="    @torch.autograd.function.once_differentiable\n" if once else "",
        needs=f'        saw("{label}.needs", *ctx.needs_input_grad)\n' if word in TEXTS else "",
        parameters=text.parameters,
        grads=text.grads,
        forward=indent(text.forward, "        "),
        backward=indent(text.backward, "        "),
    )
    script.define(code)
