"""Emission of a program whose forward part, or whose backward, is compiled."""

import re
from collections.abc import Collection, Sequence
from textwrap import indent
from typing import Any, NamedTuple

from hooklaw.fuzz.emit._analysis import Known
from hooklaw.fuzz.emit._script import Script, broken
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay.operations import traits_of
from hooklaw.fuzz.replay.passes import FAILING

LABELS = re.compile(r'(saw\(|, )"[^"]*"')
ASSIGNED = re.compile(r"^ *([\w, ]+?) = ", re.MULTILINE)


class Parted(NamedTuple):
    """A program as what is set up first, a forward, and the rest."""

    first: Program
    forward: Program
    rest: Program

    @property
    def program(self) -> Program:
        """Return the whole program in this order."""
        return self.first + self.forward + self.rest


def parted(program: Sequence[Instruction], failed: Collection[int] = ()) -> Parted:
    """Part a program: leaves, modules and their hooks first, then what can be a forward function, then the rest.

    The forward ends before anything that fails, and before a context that stays open.
    """
    end = len(program)
    while True:
        end, still_open = _end(program, failed, end)
        if still_open is None:
            break
        end = still_open
    outside = _leaves(program[:end])
    first = tuple(instruction for instruction in program[:end] if _comes_first(instruction, outside))
    forward = tuple(instruction for instruction in program[:end] if not _comes_first(instruction, outside))
    return Parted(first, forward, tuple(program[end:]))


def _end(program: Sequence[Instruction], failed: Collection[int], limit: int) -> tuple[int, int | None]:
    """Return where the forward ends, and the first context in it that is still open there."""
    opened: list[int] = []
    called = False
    for number, instruction in enumerate(program[:limit]):
        late = called and instruction.op in ("module_hook", "global_hook")
        closes = instruction.op == "leave" and opened and FAILING not in instruction.how
        if number in failed or instruction.thread or late or (traits_of(instruction).ends_forward and not closes):
            return number, opened[0] if opened else None
        called = called or instruction.op == "call"
        if traits_of(instruction).enters:
            opened.append(number)
        elif closes:
            opened.pop()
    return limit, opened[0] if opened else None


def _leaves(program: Sequence[Instruction]) -> set[str]:
    return {name for instruction in program if traits_of(instruction).sets_up for name in instruction.made}


def _comes_first(instruction: Instruction, leaves: set[str]) -> bool:
    if traits_of(instruction).sets_up or instruction.op in ("module_hook", "global_hook"):
        return True
    on_tensors = traits_of(instruction).hooks in ("tensor", "node") or instruction.op == "retain_grad"
    return on_tensors and leaves.issuperset(instruction.used)


def compiled(
    parts: Parted,
    events: Sequence[Any],
    compiler: str,
    compiles: Collection[str] = ("forward",),
) -> str:
    """Return the code with its ``forward`` compiled, its ``backward`` (by compiled autograd), or both.

    The events are those of an eager run. With ``log`` too, `saw` is left to whoever runs the code.
    """
    script = Script(Known(parts.program, events, doubted=("backward", "grad")))
    numbered = list(enumerate(parts.program))
    for number, instruction in numbered[: len(parts.first)]:
        script.step(number, instruction)
    mark = len(script.lines)
    for number, instruction in numbered[len(parts.first) : len(parts.first) + len(parts.forward)]:
        script.step(number, instruction)
    body = script.lines[mark:]
    if "forward" in compiles:
        del script.lines[mark:]
    if "backward" in compiles:
        script.block(f'torch._dynamo.compiled_autograd._enable(torch.compile(backend="{compiler}"))')
    for number, instruction in numbered[-len(parts.rest) :] if parts.rest else []:
        script.step(number, instruction)
    script.close(look=True)
    if "forward" in compiles and body:
        script.lines.insert(mark, _called(script, parts, body, mark, compiler))
    if "backward" in compiles:
        script.define("import torch._dynamo.compiled_autograd")
    return script.text(log="log" in compiles)


def _called(script: Script, parts: Parted, body: Sequence[str], mark: int, compiler: str) -> str:
    """Define the forward, and return the statement that calls it compiled."""
    text = "\n".join(body)
    later = LABELS.sub("", "\n".join([*script.definitions, *script.lines[mark:]]))
    made = dict.fromkeys(name for names in ASSIGNED.findall(text) for name in names.split(", "))
    results = ", ".join(name for name in made if re.search(rf"\b{name}\b", later))
    known = dict.fromkeys(
        name for instruction in parts.first if traits_of(instruction).sets_up for name in instruction.made
    )
    parameters = ", ".join(name for name in known if name[:1] != "m" and re.search(rf"\b{name}\b", text))
    ends = f"\nreturn {results}" if results else ""
    script.define(f"def forward({parameters}):\n{indent(text + ends, '    ')}")
    called = f'torch.compile(forward, backend="{compiler}")({parameters})'
    return broken(f"{results} = {called}" if results else called, 120)
