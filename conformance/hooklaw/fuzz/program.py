"""Programs: flat instructions over named variables, so that a program with some deleted is still a program."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from hooklaw.errors import ProgramError


class Instruction(NamedTuple):
    """A step of a program; it is skipped where it uses a name that does not exist."""

    op: str
    """The operation, a key of `hooklaw.fuzz.replay.operations.OPERATIONS`."""
    made: tuple[str, ...] = ()
    """The names that it makes: of tensors, hooks, contexts or modules."""
    used: tuple[str, ...] = ()
    """The names that it uses."""
    how: tuple[Any, ...] = ()
    """The other arguments: numbers, words, shapes, and actions (what a hook does: a tuple that begins with a word)."""
    thread: int = 0
    """The thread that runs it; 0 is the main thread. The threads take turns, one instruction at a time."""

    def __str__(self) -> str:
        """Return the instruction as one readable line."""
        arguments = ", ".join([*self.used, *map(_argument, self.how)])
        target = f"{', '.join(self.made)} = " if self.made else ""
        where = f"  # in thread {self.thread}" if self.thread else ""
        return f"{target}{self.op}({arguments}){where}"


Program = tuple[Instruction, ...]


def text(program: Sequence[Instruction], indent: str = "") -> str:
    """Return a program as lines."""
    return "\n".join(f"{indent}{instruction}" for instruction in program)


def dump(program: Sequence[Instruction]) -> str:
    """Return a program as one line of JSON, which `parse` reads."""
    return json.dumps(program)


def parse(line: str) -> Program:
    """Read a program from a line of JSON.

    Raises ProgramError where the line is not a program.
    """
    try:
        return tuple(map(_instruction, _sequence(json.loads(line))))
    except (ValueError, TypeError, RecursionError) as error:
        raise ProgramError(f"not a program: {error} (write a JSON list of [op, made, used, how, thread])") from error


def action_in(argument: Any) -> tuple[Any, ...] | None:
    """Return an argument of an instruction if it is an action, None otherwise."""
    return argument if isinstance(argument, tuple) and argument and isinstance(argument[0], str) else None


def action_of(instruction: Instruction) -> tuple[Any, ...] | None:
    """Return what the hook of an instruction does; None if the instruction registers no hook."""
    return next(filter(None, map(action_in, instruction.how)), None)


def _instruction(fields: Any) -> Instruction:
    op, made, used, how, thread = _sequence(fields)
    if not isinstance(op, str) or not isinstance(thread, int):
        raise TypeError(f"{fields!r} is not an instruction")
    return Instruction(op, _names(made), _names(used), _frozen(how), thread)


def _names(values: Any) -> tuple[str, ...]:
    names = _sequence(values)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{values!r} are not names")
    return tuple(names)


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return cast("list[Any]", value)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, cast("Iterable[Any]", value))) if isinstance(value, list) else value


def _argument(value: Any) -> str:
    """Return an argument as it is printed: a word bare, an action as a call, a shape as a tuple."""
    action = action_in(value)
    if action is None:
        return value if isinstance(value, str) else repr(value)
    word, *rest = action
    return f"{word}({', '.join(map(_argument, rest))})" if rest else word
