"""Programs: flat instructions over named variables, so that what is left after deleting some is a program again."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from hooklaw.errors import ProgramError


class Instruction(NamedTuple):
    """One step; one that uses a name that nothing has made is skipped."""

    op: str
    """What to do, a key of `hooklaw.fuzz.grammar.OPERATIONS`."""
    made: tuple[str, ...] = ()
    """The names it makes: of tensors, hooks, contexts or modules."""
    used: tuple[str, ...] = ()
    """The names it uses."""
    how: tuple[Any, ...] = ()
    """The rest: numbers, words, and what a hook does (a tuple that begins with a word)."""
    thread: int = 0
    """In which thread it runs; the main one is 0. The threads take turns, one instruction at a time."""

    def __str__(self) -> str:
        """Return the instruction as one readable line."""
        words = ", ".join([*self.used, *(_word(one) for one in self.how)])
        left = f"{', '.join(self.made)} = " if self.made else ""
        where = f"  # in thread {self.thread}" if self.thread else ""
        return f"{left}{self.op}({words}){where}"


Program = tuple[Instruction, ...]


def text(program: Sequence[Instruction]) -> str:
    """Return a program as lines."""
    return "\n".join(str(one) for one in program)


def dump(program: Sequence[Instruction]) -> str:
    """Return a program as one line of JSON, which `parse` reads."""
    return json.dumps(program)


def parse(line: str) -> Program:
    """Read a program from a line of JSON.

    Raises ProgramError where it is none.
    """
    try:
        return tuple(_instruction(one) for one in _sequence(json.loads(line)))
    except (ValueError, TypeError) as error:
        raise ProgramError(f"no program: {error} (one is a JSON list of [op, made, used, how, thread])") from error


def _instruction(fields: Any) -> Instruction:
    op, made, used, how, thread = _sequence(fields)
    if not isinstance(op, str) or not isinstance(thread, int):
        raise TypeError(f"{fields!r} is no instruction")
    return Instruction(op, _names(made), _names(used), _frozen(how), thread)


def _names(values: Any) -> tuple[str, ...]:
    names = _sequence(values)
    if not all(isinstance(one, str) for one in names):
        raise TypeError(f"{values!r} are no names")
    return tuple(names)


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return cast("list[Any]", value)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in cast("Iterable[Any]", value)) if isinstance(value, list) else value


def _word(value: Any) -> str:
    return value if isinstance(value, str) else repr(value) if not isinstance(value, tuple) else _action(value)


def _action(action: tuple[Any, ...]) -> str:
    word, *rest = action or ("",)
    return f"{word}({', '.join(_word(one) for one in rest)})" if rest else f"{word}"
