"""The code of custom Functions that mark their tensors, or have options."""

from textwrap import indent
from typing import NamedTuple

from hooklaw.fuzz.emit.script import Script, Step, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.functions import MARKED as KINDS

TEMPLATE = """\
class {name}(torch.autograd.Function):
{options}    @staticmethod
    def forward(ctx, {parameters}):
{forward}

    @staticmethod
{decorator}    def backward(ctx, {grads}):
        saw("{label}.needs", *ctx.needs_input_grad)
        saw("{label}.backward", {grads})
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
    "nan": Text("x", "return x * 2", "grad", 'return grad * float("nan")'),
}
WRAPPED = {"listed": "[{}]", "tupled": "({},)", "listed-alone": "[{}]"}


@form
def function(script: Script, one: Instruction) -> Step:
    """Apply a custom Function, and say what came of it."""
    label, word = one.made[0], one.how[0]
    name = "".join(map(str.capitalize, word.split("-"))) + ("Inputs" if word in WRAPPED else "")
    alike = [other for other in script.known.program if other.op == one.op and other.how == one.how]
    name += label.upper() if len(alike) > 1 else ""
    script.define(_class(name, label, word))
    first, *others = one.used
    first = WRAPPED.get(word, "{}").format(first)
    facts = [f"{made}.requires_grad, {', '.join(f'{made} is {x}' for x in one.used)}" for made in one.made]
    said = f'saw("{label}.made", {", ".join(facts)})'
    return Step(f"{name}.apply({', '.join([first, *others])})", ", ".join(one.made), after=said)


def _class(name: str, label: str, word: str) -> str:
    option, text = KINDS[word].option, TEXTS[word]
    once = option == "once_differentiable"
    return TEMPLATE.format(
        name=name,
        label=label,
        options=f"    {option} = True\n\n" if option and not once else "",
        decorator="    @torch.autograd.function.once_differentiable\n" if once else "",
        parameters=text.parameters,
        grads=text.grads,
        forward=indent(text.forward, "        "),
        backward=indent(text.backward, "        "),
    )
