"""Shrinking: the smallest part of a program that still fails, with simpler instructions where these fail too."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hooklaw.fuzz.program import Instruction, Program, action_in, action_of
from hooklaw.fuzz.replay.operations import traits_of

Fails = Callable[[Program], bool]
TRIALS = 3000
"""How many programs are tried at most."""
FEW = 14
"""How many instructions a program has at most of which every pair is tried."""
NOTHING = ("nothing",)


class _Search:
    """The smallest program so far, and how many trials are left."""

    def __init__(self, program: Program, fails: Fails, trials: int) -> None:
        self.best = program
        self._fails = fails
        self._left = trials
        self._tried: set[Program] = {program}

    def take(self, candidate: Program) -> bool:
        """Take a program as the best if it fails too and has not been tried before."""
        if candidate in self._tried or self._left <= 0:
            return False
        self._tried.add(candidate)
        self._left -= 1
        if not self._fails(candidate):
            return False
        self.best = candidate
        return True


def shrink(program: Sequence[Instruction], fails: Fails, trials: int = TRIALS) -> Program:
    """Return a smaller program that fails too, of which nothing can be deleted or simplified any more."""
    search = _Search(tuple(program), fails, trials)
    before = None
    while before != search.best:
        before = search.best
        _delete_runs(search)
        _delete_pairs(search)
        _simplify(search)
    search.take(renamed(search.best))
    return search.best


def _delete_runs(search: _Search) -> None:
    """Delete runs of instructions, long ones first, from the end."""
    length = len(search.best) // 2
    while length:
        place = len(search.best) - length
        while place >= 0:
            search.take(search.best[:place] + search.best[place + length :])
            place -= length
        length //= 2


def _delete_pairs(search: _Search) -> None:
    """Delete two instructions at once, such as the two ends of a context."""
    if len(search.best) > FEW:
        return
    for second in range(len(search.best) - 1, 0, -1):
        for first in range(second):
            if second < len(search.best):
                best = search.best
                search.take(best[:first] + best[first + 1 : second] + best[second + 1 :])


def _simplify(search: _Search) -> None:
    place = 0
    while place < len(search.best):
        if not any(search.take(simpler) for simpler in _simpler(search.best, place)):
            place += 1


def _simpler(program: Program, place: int) -> Iterator[Program]:
    """Yield the program with one instruction simplified."""
    instruction = program[place]
    thread, before, after = instruction.thread, program[:place], program[place + 1 :]
    if thread:
        yield tuple(other._replace(thread=0) if other.thread == thread else other for other in program)
    for made in instruction.made:
        for used in instruction.used:
            yield tuple(_renaming(other, made, used) for other in before + after)
    for simpler in _instructions(instruction):
        yield (*before, simpler, *after)
    if traits_of(instruction).hooks == "tensor":
        yield from _hooks_on_a_leaf(program, place)


def _instructions(instruction: Instruction) -> Iterator[Instruction]:
    """Yield simpler instructions that make the same, or less."""
    op, made, used, how, thread = instruction
    simpler = traits_of(instruction).simplifies_to
    if simpler == "scale" and len(made) <= len(used) + 1:
        yield from (Instruction(simpler, made[:1], (source,), (2,), thread) for source in used[-2:])
    if op == "checkpoint":
        yield from (Instruction(saving, made[:1], used[-1:], (), thread) for saving in ("exp", "sin"))
    if simpler == "scale_":
        yield Instruction(simpler, (), used[:1], (2,), thread)
    if simpler == "backward":
        yield Instruction(simpler, (), used[:1], how[:3], thread)
    if op in ("backward", "grad", "multi_grad"):
        yield from _with_fewer_inputs(instruction)
    for arguments in _arguments(instruction):
        if arguments == how:
            break  # those before are simpler, those after are not
        yield instruction._replace(how=arguments)


def _with_fewer_inputs(instruction: Instruction) -> Iterator[Instruction]:
    op, made, used = instruction.op, instruction.made, instruction.used
    first = 0 if op == "multi_grad" else 1  # the first of a pass is the root
    least = 2 if op == "grad" else 1
    for place in range(first, len(used) if len(used) > least else 0):
        kept = made[: place - 1] + made[place:] if op == "grad" else made
        yield instruction._replace(made=kept, used=used[:place] + used[place + 1 :])


def _hooks_on_a_leaf(program: Program, place: int) -> Iterator[Program]:
    """Yield the program with all hooks of a tensor on the first leaf instead, which may need fewer instructions."""
    leaf = next((name for other in program[:place] if other.op == "leaf" for name in other.made), None)
    for name in program[place].used:
        if leaf and name != leaf:
            yield tuple(
                _renaming(other, name, leaf) if traits_of(other).hooks == "tensor" else other for other in program
            )


def _arguments(instruction: Instruction) -> Iterator[tuple[Any, ...]]:
    """Yield simpler arguments of an instruction, the simplest first."""
    op, how = instruction.op, instruction.how
    if op == "leaf":
        yield from (((2,), "float64", True), (how[0], "float64", how[2]))
    elif op in ("backward", "grad"):
        yield from ((1.0, None, False), (1.0, True, False), (how[0], None, how[2]), (how[0], how[1], False))
        yield (1.0, *how[1:])
    elif op in ("saved_hooks", "saved_pair"):
        yield from (("itself",), ("detach",))
    elif op == "custom":
        yield ("double",)
    elif op == "checkpoint":
        yield from (("nothing", False, None), ("chain", False, None)) if len(instruction.used) == 1 else ()
        yield from ((how[0], False, None), (*how[:2], None))
    elif op == "module":
        yield ("unweighted",)
    elif op == "call" and how:
        yield ()
    elif op in ("scale", "scale_"):
        yield (2,)
    yield from _actions(how)


def _actions(how: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments with simpler actions, modes and options."""
    for place, argument in enumerate(how):
        if action_in(argument) and argument != NOTHING:
            yield (*how[:place], NOTHING, *how[place + 1 :])
        if argument == "any":
            yield (*how[:place], "all", *how[place + 1 :])
    if len(how) == 3 and isinstance(how[2], tuple) and how[2] and isinstance(how[1], tuple):  # noqa: PLR2004 - options
        yield (*how[:2], ())


def _renaming(instruction: Instruction, before: str, after: str) -> Instruction:
    """Return the instruction with another tensor in the place of one that it uses."""
    return instruction._replace(used=tuple(after if name == before else name for name in instruction.used))


def renamed(program: Program) -> Program:
    """Return the program with its names numbered in order, so that programs alike are equal."""
    names: dict[str, str] = {}
    for name in (name for instruction in program for name in instruction.made):
        names[name] = f"{name[0]}{1 + sum(new[0] == name[0] for new in names.values())}"

    def new(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(new, value))
        return names.get(value, value) if isinstance(value, str) else value

    return tuple(Instruction(op, new(made), new(used), new(how), thread) for op, made, used, how, thread in program)


def skeleton(program: Sequence[Instruction]) -> str:
    """Return what a program does without its names and numbers, by which findings are told apart."""
    return " ".join(map(_bone, program))


def _bone(instruction: Instruction) -> str:
    words = [word for word in instruction.how if isinstance(word, str) and word != "float64"]
    action = action_of(instruction)
    parts = [word for word in [*words, *(action or ())[:1]] if word != "nothing"]
    return instruction.op + (f"({','.join(parts)})" if parts else "")
