"""The code of instructions that make, copy and call modules."""

from hooklaw.fuzz.emit._script import FORMS, Script, Step, form
from hooklaw.fuzz.emit._source import Code, code_of
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.modules import CONTAINERS, FORWARDS, OUTER

MODULE = """\
class {name}(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, {parameters}):
        {forward}"""

OUTPUTS = 'Outputs = collections.namedtuple("Outputs", ["first", "second"])'
WATCHED = """\
def watched(name, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            return call()
        finally:
            if caught:
                saw("warned", name)"""


@form
def module(script: Script, instruction: Instruction) -> Step:
    """Make a module."""
    kind = instruction.how[0]
    outer = Code("x", f"return {instruction.used[-1]}(x) * self.weight")
    parameters, forward = outer if kind == OUTER else code_of(FORWARDS[kind], 1)
    if kind == "named":
        script.need("collections")
        script.define(OUTPUTS)
    title = kind.capitalize() if kind != OUTER else f"Around{instruction.used[1].upper()}"
    if kind != "scaled" and any(other.op == "call" and other.how for other in script.known.program):
        parameters += ", **_"
    script.define(MODULE.format(name=title, parameters=parameters, forward=forward))
    name, parameter = instruction.made
    code, after = f"{title}({instruction.used[0]}.detach())", f"{parameter} = {name}.weight"
    return Step(code, name, after=after, anywhere=True)


@form
def call(script: Script, instruction: Instruction) -> Step:
    """Call a module."""
    named = [f"factor={instruction.how[0]!r}"] if instruction.how else []
    arguments = ", ".join([*instruction.used[1:], *named])
    called = f"{instruction.used[0]}.forward" if instruction.op == "forward" else instruction.used[0]
    code = f"{called}({arguments})"
    if script.known.warns(instruction):
        script.need("warnings")
        script.define(WATCHED)
        code = f'watched("{instruction.made[0]}", lambda: {code})'
    kind = script.known.executed.functions[instruction.used[0]]
    return (
        _unpacked(script, instruction, code, kind) if kind in CONTAINERS else Step(code, _targets(script, instruction))
    )


def _targets(script: Script, instruction: Instruction, *, more: bool = False) -> str:
    """Return what is made, and a place for what else a call returns."""
    made = script.known.made_by(instruction)
    others = ("*_",) if 0 < len(made) < len(instruction.made) or (made and more) else ()
    return ", ".join(made + others)


def _unpacked(script: Script, instruction: Instruction, code: str, kind: str) -> Step:
    """Show what type an output has that is no tensor, and take the tensors out of it."""
    output = f"{instruction.made[0]}_output"
    shown = f'saw("{instruction.made[0]}.type", type({output}).__name__)'
    targets = _targets(script, instruction, more=kind != "named" or len(instruction.made) == 1)
    tensors = f"\n{targets} = {output}{'.values()' if kind == 'keyed' else ''}" if targets else ""
    return Step(code, output, after=shown + tensors)


FORMS["forward"] = call
