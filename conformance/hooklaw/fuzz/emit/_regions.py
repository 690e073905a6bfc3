"""The code of checkpointed regions."""

import re
from textwrap import indent

from hooklaw.fuzz.emit._functions import define_function
from hooklaw.fuzz.emit._passes import define_pair
from hooklaw.fuzz.emit._script import Script, Step, form
from hooklaw.fuzz.emit._source import code_of
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.regions import MODULE, OUTSIDE, REGIONS, inputs_of

PAIRS = {"pair": "detach", "boxed": "boxed"}
SEEN = re.compile(r'at\.see\((f?)"')


@form
def checkpoint(script: Script, instruction: Instruction) -> Step:
    """Run a checkpointed region."""
    kind, reentrant, early_stop = instruction.how
    region = _define(script, instruction)
    if kind == OUTSIDE:
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
    outside = instruction.used[0] if kind == MODULE else "outside"
    names = {"at.runs": f"len({name}_runs)", "at.outside": outside, "at.squared": f"Square{name.upper()}.apply"}
    parameters, body = code_of(REGIONS[kind], 1, names)
    if kind in PAIRS:
        body = body.replace(f'*at.pair("{PAIRS[kind]}")', define_pair(script, name, PAIRS[kind]))
    elif kind == "custom":
        define_function(script, "square", name, f"Square{name.upper()}")
    before, returns, result = SEEN.sub(rf'saw(\1"{name}.', body).rpartition("return ")
    lines = [f'saw("{name}.run", {parameters})', before.rstrip() if returns else result]
    if "_runs" in body:
        script.define(f"{name}_runs = []")
        lines.insert(0, f"{name}_runs.append(True)")
    if returns:
        lines += [f"y = {result}" if result != "y" else "", f'saw("{name}.end")', "return y"]
    parameters = f"outside, {parameters}" if kind == OUTSIDE else parameters
    script.define(f"def {name}_region({parameters}):\n" + indent("\n".join(filter(None, lines)), "    "))
    return f"{name}_region"
