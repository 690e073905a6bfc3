"""Shrinking: the least of a program that still fails, by leaving out instructions and then by plainer ones."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hooklaw.fuzz.program import Instruction, Program

Fails = Callable[[Program], bool]
TRIALS = 3000
"""How many programs are tried at most."""
PLAIN = frozenset(
    {"sin", "cos", "exp", "shift", "clone", "view", "transpose", "expand", "detach", "sum"}
    | {"custom", "function", "call", "checkpoint"}
)
"""Instructions that may be replaced by a product with a number."""
HOOKS = frozenset({"hook", "post_accumulate", "multi_grad"})
"""Instructions that may be about another tensor."""


class _Search:
    """The smallest program so far, and how many trials are left."""

    def __init__(self, program: Program, fails: Fails, trials: int) -> None:
        self.best = program
        self._fails = fails
        self._left = trials
        self._tried: set[Program] = {program}

    def better(self, candidate: Program) -> bool:
        """Take a program if it fails too and has not been tried before."""
        if candidate in self._tried or self._left <= 0:
            return False
        self._tried.add(candidate)
        self._left -= 1
        if not self._fails(candidate):
            return False
        self.best = candidate
        return True


def shrink(program: Sequence[Instruction], fails: Fails, trials: int = TRIALS) -> Program:
    """Return a smaller program that fails too; nothing that is left can be left out or said more plainly."""
    search = _Search(tuple(program), fails, trials)
    before = None
    while before != search.best:
        before = search.best
        _leave_out(search)
        _leave_out_pairs(search)
        _say_plainly(search)
    search.better(renamed(search.best))
    return search.best


def _leave_out(search: _Search) -> None:
    """Delete runs of instructions, long ones first, from the end."""
    length = len(search.best) // 2
    while length:
        place = len(search.best) - length
        while place >= 0:
            search.better(search.best[:place] + search.best[place + length :])
            place -= length
        length //= 2


def _leave_out_pairs(search: _Search) -> None:
    """Delete two instructions at once, such as a context's ends."""
    if len(search.best) > 14:  # noqa: PLR2004 - beyond it there are too many pairs
        return
    for second in range(len(search.best) - 1, 0, -1):
        for first in range(second):
            if second < len(search.best):
                kept = (one for place, one in enumerate(search.best) if place not in (first, second))
                search.better(tuple(kept))


def _say_plainly(search: _Search) -> None:
    place = 0
    while place < len(search.best):
        if not any(search.better(plainer) for plainer in _plainer(search.best, place)):
            place += 1


def _plainer(program: Program, place: int) -> Iterator[Program]:
    """Yield the program with one instruction said more plainly."""
    one = program[place]
    if one.thread:
        yield tuple(other._replace(thread=0) if other.thread == one.thread else other for other in program)
    for other in one.made:
        for source in one.used:
            rest = program[:place] + program[place + 1 :]
            yield tuple(_using(then, other, source) for then in rest)
    for plainer in _instructions(one):
        yield (*program[:place], plainer, *program[place + 1 :])
    if one.op in HOOKS:
        yield from _hooks_of_a_leaf(program, place)


def _instructions(one: Instruction) -> Iterator[Instruction]:
    """Yield plainer instructions that make the same, or less."""
    if one.op in PLAIN | {"add", "sub", "mul", "split"} and len(one.made) <= len(one.used) + 1:
        for source in one.used[-2:]:
            yield Instruction("scale", one.made[:1], (source,), (2,), one.thread)
    if one.op == "checkpoint":
        yield from (Instruction(op, one.made[:1], one.used[-1:], (), one.thread) for op in ("exp", "sin"))
    if one.op in ("mul_", "cos_"):
        yield Instruction("scale_", (), one.used[:1], (2,), one.thread)
    if one.op == "grad":
        yield Instruction("backward", (), one.used[:1], one.how[:3], one.thread)
    if one.op in ("backward", "grad", "multi_grad"):
        yield from _with_fewer_inputs(one)
    for how in _plainer_ways(one):
        if how == one.how:
            break  # those before it are plainer, those behind it are not
        yield one._replace(how=how)


def _with_fewer_inputs(one: Instruction) -> Iterator[Instruction]:
    first = 0 if one.op == "multi_grad" else 1  # of a pass the first is the root
    least = 2 if one.op == "grad" else 1
    for left_out in range(first, len(one.used) if len(one.used) > least else 0):
        used = one.used[:left_out] + one.used[left_out + 1 :]
        made = one.made[: left_out - 1] + one.made[left_out:] if one.op == "grad" else one.made
        yield one._replace(made=made, used=used)


def _hooks_of_a_leaf(program: Program, place: int) -> Iterator[Program]:
    """Yield the program with all hooks of a tensor on the first leaf instead, which may need fewer instructions."""
    leaf = next((name for one in program[:place] if one.op == "leaf" for name in one.made), None)
    for name in program[place].used:
        if leaf and name != leaf:
            yield tuple(_using(one, name, leaf) if one.op in HOOKS else one for one in program)


def _plainer_ways(one: Instruction) -> Iterator[tuple[Any, ...]]:
    how = one.how
    if one.op == "leaf":
        yield ((2,), "float64", True)
        yield (how[0], "float64", how[2])
    elif one.op in ("backward", "grad"):
        yield from ((1.0, None, False), (1.0, True, False), (how[0], None, how[2]), (how[0], how[1], False))
        yield (1.0, *how[1:])
    elif one.op in ("saved_hooks", "saved_pair"):
        yield from (("itself",), ("detach",))
    elif one.op == "custom":
        yield ("double",)
    elif one.op == "checkpoint":
        yield from (("nothing", False, None), ("chain", False, None)) if len(one.used) == 1 else ()
        yield from ((how[0], False, None), (*how[:2], None))
    elif one.op == "module" or (one.op == "call" and how):
        yield ("unweighted",) if one.op == "module" else ()
    elif one.op in ("scale", "scale_"):
        yield (2,)
    yield from _plainer_actions(how)


def _plainer_actions(how: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for place, part in enumerate(how):
        if isinstance(part, tuple) and part and isinstance(part[0], str) and part != ("nothing",):
            yield (*how[:place], ("nothing",), *how[place + 1 :])
        if part == "any":
            yield (*how[:place], "all", *how[place + 1 :])
    if len(how) == 3 and isinstance(how[2], tuple) and how[2] and isinstance(how[1], tuple):  # noqa: PLR2004 - of modules
        yield (how[0], how[1], ())


def _using(one: Instruction, before: str, after: str) -> Instruction:
    """Return the instruction with another tensor in the place of one."""
    return one._replace(used=tuple(after if name == before else name for name in one.used))


def renamed(program: Program) -> Program:
    """Return the program with its names numbered in order, so that programs alike are equal."""
    names: dict[str, str] = {}
    for one in program:
        for name in one.made:
            names[name] = f"{name[0]}{1 + sum(new[0] == name[0] for new in names.values())}"

    def new(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(new(part) for part in value)
        return names.get(value, value) if isinstance(value, str) else value

    return tuple(one._replace(made=new(one.made), used=new(one.used), how=new(one.how)) for one in program)


def skeleton(program: Sequence[Instruction]) -> str:
    """Return what a program does without its names and numbers, by which findings are told apart."""
    return " ".join(_bone(one) for one in program)


def _bone(one: Instruction) -> str:
    words = [part for part in one.how if isinstance(part, str) and part != "float64"]
    actions = [part[0] for part in one.how if isinstance(part, tuple) and part and isinstance(part[0], str)]
    parts = [word for word in [*words, *actions] if word != "nothing"]
    return one.op + (f"({','.join(parts)})" if parts else "")
