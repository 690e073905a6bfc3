"""The code of instructions that make, copy and call modules."""

from hooklaw.fuzz.emit._script import Script, Step, form
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.modules import CONTAINERS, OUTER

FORWARDS: dict[str, tuple[str, str]] = {
    "weighted": ("x", "return x * self.weight"),
    "two": ("x, y", "return x * self.weight, x + y"),
    "joined": ("x, y", "return x * self.weight + y"),
    "scaled": ("x, *, factor=1.0", "return x * self.weight * factor"),
    "unweighted": ("x", "return x * 2"),
    "raises": ("x", 'raise Exception("planned")'),
    "named": ("x", "return Outputs(x * self.weight, x * 3)"),
    "listed": ("x", "return [x * self.weight]"),
    "keyed": ("x", 'return {"y": x * self.weight}'),
}
"""What modules compute: parameters and code."""

MODULE = """\
class {name}(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, {parameters}):
        {forward}"""

OUTPUTS = 'Outputs = collections.namedtuple("Outputs", ["first", "second"])'
IN_REPLICAS = """\
def in_replicas(module, *inputs):
    # what torch.nn.DataParallel does on two devices
    rows = list(zip(*(one.chunk(2) for one in inputs)))
    replicas = [module._replicate_for_data_parallel() for _ in rows]
    for replica in replicas:
        replica.weight = module.weight.clone()
    recording = torch.is_grad_enabled()

    def run(replica, row):
        with torch.set_grad_enabled(recording):
            return replica(*row)

    threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in rows]
    running = [thread.submit(run, *one) for thread, *one in zip(threads, replicas, rows)]
    return torch.cat([torch.atleast_1d(one.result()) for one in running])"""
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
    parameters, forward = FORWARDS[kind] if kind != OUTER else ("x", f"return {instruction.used[1]}(x) * self.weight")
    if kind == "named":
        script.need("collections")
        script.define(OUTPUTS)
    title = kind.capitalize() if kind != OUTER else f"Around{instruction.used[1].upper()}"
    if kind != "scaled" and any(other.op == "call" and other.how for other in script.known.program):
        parameters += ", **_"
    script.define(MODULE.format(name=title, parameters=parameters, forward=forward))
    name, parameter = instruction.made
    weight = f"{name}.weight"
    after = f"{parameter} = {weight}"
    return Step(
        f"{title}({instruction.used[0]}.detach())", name, after=after, anywhere=not script.known.uses("inference_mode")
    )


@form
def copy(script: Script, instruction: Instruction) -> Step:
    """Copy a module with its hooks."""
    script.need("copy")
    name, parameter = instruction.made
    after = f"{parameter} = {name}.weight"
    return Step(
        f"copy.deepcopy({instruction.used[0]})", name, after=after, anywhere=not script.known.uses("inference_mode")
    )


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
    kind = script.known.kind_of_module(instruction.used[0])
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


@form
def forward(script: Script, instruction: Instruction) -> Step | None:
    """Call the forward of a module."""
    return call(script, instruction)


@form
def parallel(script: Script, instruction: Instruction) -> Step:
    """Call a module in replicas."""
    script.need("concurrent.futures")
    script.define(IN_REPLICAS)
    return Step(f"in_replicas({', '.join(instruction.used)})", instruction.made[0])
