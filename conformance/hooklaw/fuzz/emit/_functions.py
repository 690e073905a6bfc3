"""The code of custom Functions."""

from textwrap import indent

from hooklaw.fuzz.emit._script import Script, Step, form
from hooklaw.fuzz.emit._source import code_of
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.functions import MARKED, PLAIN

TEMPLATE = """\
class {name}(torch.autograd.Function):
{options}    @staticmethod
    def forward(ctx, {parameters}):
{forward}

    @staticmethod
{decorator}    def backward(ctx, {grads}):
{needs}        saw("{label}.backward", {grads})
{backward}"""


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
    function = MARKED.get(word) or PLAIN[word]
    forward, backward = code_of(function.forward, 2), code_of(function.backward, 1)
    option, once = function.option, function.option == "once_differentiable"
    code = TEMPLATE.format(
        name=name,
        label=label,
        options=f"    {option} = True\n\n" if option and not once else "",
        decorator="    @torch.autograd.function.once_differentiable\n" if once else "",
        needs=f'        saw("{label}.needs", *ctx.needs_input_grad)\n' if word in MARKED else "",
        parameters=forward.parameters,
        grads=backward.parameters,
        forward=indent(forward.body, "        "),
        backward=indent(backward.body, "        "),
    )
    script.define(code)
