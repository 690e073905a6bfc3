"""Static analysis of a program for emission: which names exist, which instructions may fail, which events are shown."""

from collections.abc import Iterable, Sequence
from typing import Any

from hooklaw.fuzz.emit._executed import Carried
from hooklaw.fuzz.judge.judge import engine
from hooklaw.fuzz.program import Instruction, action_of
from hooklaw.fuzz.replay.operations import having, traits_of
from hooklaw.fuzz.replay.passes import FAILING
from hooklaw.fuzz.replay.run import replay


class Known:
    """What is known after the instructions so far; `after` adds one instruction.

    A run on the engine shows which instructions are executed, and which events are shown if no backend ran.
    `events` are those of a backend's run; an operation in `doubted` may fail although it did not fail in that run.
    """

    def __init__(
        self, program: Sequence[Instruction], events: Sequence[Any] | None, *, doubted: Iterable[str] = ()
    ) -> None:
        self.executed = Carried(program)
        """What the engine shows of the program."""
        self._steps = {
            number: instruction for number, instruction in enumerate(program) if number not in self.executed.left_out
        }
        self.program = tuple(self._steps.values())
        self.events = events
        self._doubted = frozenset(doubted)
        self._shown = self.executed.events if events is None else events
        self._failed = {event[1] for event in self._shown if event[0] == "error" and isinstance(event[1], int)}
        by_law = replay(program, engine(()))
        self._labels = {event[0] for event in (*self._shown, *self.executed.events, *by_law)}
        self._unseen = {tuple(event[:3]) for event in self._shown if event[0] == "error"}
        self.number = 0
        """The instruction that is being written."""
        self._sure: dict[str, bool] = {}
        self._open: dict[int, list[str]] = {}
        self.makers: dict[str, Instruction] = {}
        """What has made each name."""

    # names

    def carries_out(self, number: int, instruction: Instruction) -> bool:
        """Return whether an instruction may be executed: nothing forbids it, and every name that it uses may exist."""
        self.number = number
        return number in self._steps and all(name in self._sure for name in instruction.used)

    def doubtful(self, names: Iterable[str]) -> list[str]:
        """Return the names that exist in some runs only."""
        return [name for name in names if not self._sure.get(name)]

    def guard(self, names: Sequence[str]) -> str:
        """Return a condition that all names exist."""
        return " and ".join(f'"{self._variable(name)}" in globals()' for name in dict.fromkeys(names))

    def _variable(self, name: str) -> str:
        """Return a name as the script has it: a hook that is removed is known by its handle."""
        maker = self.makers.get(name)
        return f"{name}_handle" if maker and action_of(maker) else name

    def forgotten(self, name: str) -> bool:
        """Return whether the program lets go of a name."""
        return any(instruction.op == "forget" and name in instruction.used for instruction in self.program)

    def wanted(self, name: str) -> bool:
        """Return whether the program removes a hook, so that its handle is needed."""
        return any(_removes(instruction, name) for instruction in self.program)

    def lasts(self, name: str) -> bool:
        """Return whether a name exists in every run, from now on."""
        return self._sure.get(name, False) and not self.forgotten(name)

    def uses(self, *ops: str) -> bool:
        """Return whether the program has any of these instructions."""
        return any(instruction.op in ops for instruction in self.program)

    def forgets(self) -> bool:
        """Return whether the program looks at what a graph keeps alive."""
        return "boxes" in self._labels or self.uses("forget")

    def undefined(self, hook: str) -> bool:
        """Return whether a tensor's hook may be given None."""
        return any(event[0] == hook and event[1] is None for event in self._shown)

    # errors

    def fails(self, number: int, instruction: Instruction) -> bool | None:
        """Return whether an instruction fails; None where it depends on the run."""
        if self.events is not None:
            return True if number in self._failed else None if instruction.op in self._doubted else False
        return None if self._may_fail(instruction) else False

    def refused(self, instruction: Instruction) -> bool:
        """Return whether this very instruction failed where the program was run, or else on the engine."""
        return any(self._steps.get(number) is instruction for number in self._failed)

    def _may_fail(self, instruction: Instruction) -> bool:
        if traits_of(instruction).enters:
            return self.uses(*having("refuses"))
        if instruction.op == "global_hook":
            return any(other.op == instruction.op and other.how[0] == "backward" for other in self.program)
        registers = instruction.op == "module" and self.uses("registration_hook")
        return registers or not traits_of(instruction).safe

    # contexts

    def blocks(self, thread: int) -> bool:
        """Return whether the contexts of a thread can be blocks."""
        if thread:
            return False
        uncertain = self.events is None and self.uses(*having("refuses"))
        leaving = (instruction for instruction in self.program if instruction.op == "leave")
        return not uncertain and not any(
            self.refused(instruction) or FAILING in instruction.how for instruction in leaving
        )

    def open_elsewhere(self) -> list[int]:
        """Return the threads that have open contexts which are not blocks."""
        return [thread for thread, stack in self._open.items() if stack and not self.blocks(thread)]

    def innermost(self, thread: int) -> str | None:
        """Return the context that the next `leave` closes."""
        stack = self._open.get(thread)
        return stack[-1] if stack else None

    def switches(self) -> bool:
        """Return whether anything switches recording on or off, so that events show the grad mode."""
        passes = [instruction for instruction in self.program if instruction.op in ("backward", "grad")]
        return any(instruction.how[2] for instruction in passes) or self.uses("no_grad", "enable_grad", "checkpoint")

    # tensors

    def worth_a_look(self) -> list[str]:
        """Return the tensors of which a look shows anything."""
        return [name for name in self._sure if self.has_grad(name) or name in self.executed.taken]

    def has_grad(self, name: str) -> bool:
        """Return whether a gradient of a tensor was looked at."""
        return f"{name}.grad" in self._labels or self.unseen(name)

    def laid_out(self, name: str) -> bool:
        """Return whether the layout of a tensor's gradient is shown."""
        since = self.executed.owned_since.get(name)
        return since is not None and since <= self.number and self.number in self.executed.lays_out

    def unseen(self, name: str) -> bool:
        """Return whether reading the gradient of a tensor failed in the run."""
        return ("error", name, "grad") in self._unseen

    def has_node(self, name: str) -> bool:
        """Return whether a Node made a tensor, in every run."""
        return name in self.executed.kinds and not self.executed.kinds[name].leaf

    def made_by(self, instruction: Instruction) -> tuple[str, ...]:
        """Return the names that an instruction makes; a call makes fewer where a hook replaced its output."""
        if instruction.op not in ("call", "forward", "checkpoint") or instruction in self.executed.failed:
            return instruction.made
        return tuple(name for name in instruction.made if name in self.executed.kinds)

    def warns(self, instruction: Instruction) -> bool:
        """Return whether a call warns."""
        return ("warned", *instruction.made[:1]) in self._shown

    def renewed(self, name: str) -> bool:
        """Return whether a tensor may get a new history, which it gets at the latest when is_leaf is read."""
        return self.changes() and self.has_node(name)

    def changes(self) -> bool:
        """Return whether the program changes any tensor in place."""
        return self.executed.changed or any("changes" in instruction.how for instruction in self.program)

    def after(self, number: int, instruction: Instruction, *, sure: bool) -> None:
        """Note what an instruction has changed."""
        fails = self.fails(number, instruction)
        if instruction.op == "forget":
            self._sure.pop(instruction.used[0], None)
        if instruction.op == "leave" and self._open.get(instruction.thread):
            self._open[instruction.thread].pop()
        if fails:
            return
        if traits_of(instruction).enters:
            self._open.setdefault(instruction.thread, []).append(instruction.op)
        self._note_made(instruction, sure=sure and fails is False)

    def _note_made(self, instruction: Instruction, *, sure: bool) -> None:
        for name in self.made_by(instruction):
            if instruction.op == "grad" and self._is_none(instruction, name):
                continue
            self._sure[name] = sure and (instruction.op != "grad" or self.events is not None)
            self.makers[name] = instruction
        for kept in _kept(instruction):
            if self.events is None or any(event[0] == instruction.made[0] for event in self.events):
                self._sure[kept] = False

    def _is_none(self, instruction: Instruction, name: str) -> bool:
        """Return whether a run gave no gradient for this name."""
        place = instruction.made.index(name)
        size = len(instruction.made)
        shown = [event for event in self.events or () if event[:size] == instruction.made]
        return bool(shown) and shown[0][size + place] is None


def _removes(instruction: Instruction, name: str) -> bool:
    if instruction.op == "remove":
        return name in instruction.used
    action = action_of(instruction)
    return action == ("remove", name) or (action == ("remove",) and instruction.made[:1] == (name,))


def _kept(instruction: Instruction) -> list[str]:
    action = action_of(instruction)
    return [action[1]] if action and action[0] == "keep" else []
