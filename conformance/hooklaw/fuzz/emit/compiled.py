"""Emission of a program whose forward part, or whose backward, is compiled."""

import re
from collections.abc import Collection, Sequence
from textwrap import indent
from typing import Any, NamedTuple

from hooklaw.fuzz.emit.analysis import ENTERS, Known
from hooklaw.fuzz.emit.code import Script
from hooklaw.fuzz.emit.script import broken
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay.operations import OPERATIONS, having
from hooklaw.fuzz.replay.passes import FAILING

STOPS = having("ends_forward")
"""Operations that are no part of a forward; `leave` only where it closes nothing of it."""
SETS_UP = having("sets_up")
HOOKS = {name for name in OPERATIONS if OPERATIONS[name].traits.hooks in ("tensor", "node")} | {"retain_grad"}
LABELS = re.compile(r'(saw\(|, )"[^"]*"')
ASSIGNED = re.compile(r"^ *([\w, ]+?) = ", re.MULTILINE)


class Parted(NamedTuple):
    """A program as what is set up first, a forward, and the rest."""

    first: Program
    forward: Program
    rest: Program

    @property
    def program(self) -> Program:
        """Return the whole in this order."""
        return self.first + self.forward + self.rest


def parted(program: Sequence[Instruction], failed: Collection[int] = ()) -> Parted:
    """Part a program: leaves, modules and the hooks on them come first, then what can be one forward function.

    The forward ends before anything that fails, and before a context that stays open.
    """
    end = len(program)
    while True:
        end, still_open = _end(program, failed, end)
        if still_open is None:
            break
        end = still_open
    outside = _leaves(program[:end])
    first = tuple(one for one in program[:end] if _comes_first(one, outside))
    forward = tuple(one for one in program[:end] if not _comes_first(one, outside))
    return Parted(first, forward, tuple(program[end:]))


def _end(program: Sequence[Instruction], failed: Collection[int], limit: int) -> tuple[int, int | None]:
    """Return where the forward ends, and the first context in it that is still open there."""
    opened: list[int] = []
    called = False
    for number, one in enumerate(program[:limit]):
        late = called and one.op in ("module_hook", "global_hook")
        closes = one.op == "leave" and opened and FAILING not in one.how
        if number in failed or one.thread or late or (one.op in STOPS and not closes):
            return number, opened[0] if opened else None
        called = called or one.op == "call"
        if one.op in ENTERS:
            opened.append(number)
        elif closes:
            opened.pop()
    return limit, opened[0] if opened else None


def _leaves(program: Sequence[Instruction]) -> set[str]:
    return {name for one in program if one.op in SETS_UP for name in one.made}


def _comes_first(one: Instruction, leaves: set[str]) -> bool:
    if one.op in SETS_UP or one.op in ("module_hook", "global_hook"):
        return True
    return one.op in HOOKS and leaves.issuperset(one.used)


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
    for number, one in numbered[: len(parts.first)]:
        script.step(number, one)
    mark = len(script.lines)
    for number, one in numbered[len(parts.first) : len(parts.first) + len(parts.forward)]:
        script.step(number, one)
    body = script.lines[mark:]
    if "forward" in compiles:
        del script.lines[mark:]
    if "backward" in compiles:
        script.block(f'torch._dynamo.compiled_autograd._enable(torch.compile(backend="{compiler}"))')
    for number, one in numbered[-len(parts.rest) :] if parts.rest else []:
        script.step(number, one)
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
    known = dict.fromkeys(name for one in parts.first if one.op in SETS_UP for name in one.made)
    parameters = ", ".join(name for name in known if name[:1] != "m" and re.search(rf"\b{name}\b", text))
    ends = f"\nreturn {results}" if results else ""
    script.define(f"def forward({parameters}):\n{indent(text + ends, '    ')}")
    called = f'torch.compile(forward, backend="{compiler}")({parameters})'
    return broken(f"{results} = {called}" if results else called, 120)
