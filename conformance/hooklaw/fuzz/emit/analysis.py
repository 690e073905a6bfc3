"""What is known of a program where its code is written: what is there by now, what may fail, what is to be shown."""

from collections.abc import Iterable, Sequence
from typing import Any

from hooklaw.fuzz.emit.executed import Carried
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.functions import MARKED as KINDS
from hooklaw.fuzz.replay.operations import having
from hooklaw.fuzz.replay.passes import BOXED, FAILING, MATERIALIZED
from hooklaw.fuzz.replay.regions import nests

ENTERS = having("enters")
REFUSING = having("refuses")
"""Contexts in which some cannot be entered."""
SAFE = having("safe")
"""Operations that never fail."""


class Known:
    """What is known after the instructions so far; `after` tells it of one more.

    A run on the engine tells what is carried out, and what is shown if there was no run of a backend. The events are
    those of the latter; an operation that is doubted may fail though it did not then.
    """

    def __init__(
        self, program: Sequence[Instruction], events: Sequence[Any] | None, *, doubted: Iterable[str] = ()
    ) -> None:
        self._carried = Carried(program)
        self._steps = {number: one for number, one in enumerate(program) if number not in self._carried.left_out}
        self.program = tuple(self._steps.values())
        self.events = events
        self._doubted = frozenset(doubted)
        self._failed = {event[1] for event in events or () if event[0] == "error" and isinstance(event[1], int)}
        self._shown = self._carried.events if events is None else events
        self._unseen = {tuple(event[:3]) for event in self._shown if event[0] == "error"}
        self._sure: dict[str, bool] = {}
        self._grads: set[str] = set()
        self._open: dict[int, list[str]] = {}
        self.created = False
        self._done: list[Instruction] = []
        self._makers: dict[str, Instruction] = {}

    # names

    def carries_out(self, number: int, one: Instruction) -> bool:
        """Tell whether an instruction may be carried out: nothing forbids it, and all that it uses may be there."""
        return number in self._steps and all(name in self._sure for name in one.used)

    def doubtful(self, names: Iterable[str]) -> list[str]:
        """Return those of which it depends on the run whether they are there."""
        return [name for name in names if not self._sure.get(name)]

    def guard(self, names: Sequence[str]) -> str:
        """Return a condition under which they are all there."""
        return " and ".join(f'"{self._variable(name)}" in globals()' for name in dict.fromkeys(names))

    def _variable(self, name: str) -> str:
        """Return a name as the script has it: of a hook that is removed it has the handle."""
        maker = self._makers.get(name)
        return f"{name}_handle" if maker and action_of(maker) else name

    def forgotten(self, name: str) -> bool:
        """Tell whether the program lets go of a name."""
        return any(one.op == "forget" and name in one.used for one in self.program)

    def wanted(self, name: str) -> bool:
        """Tell whether the program removes a hook, so that its handle is needed."""
        return any(_removes(one, name) for one in self.program)

    def used(self, name: str) -> bool:
        """Tell whether any instruction or hook uses a name."""
        return any(name in one.used or any(_mentions(how, name) for how in one.how) for one in self.program)

    def certain(self, name: str) -> bool:
        """Tell whether a name surely is there by now."""
        return self._sure.get(name, False)

    def ever(self, name: str) -> bool:
        """Tell whether anything makes a tensor of this name."""
        made = [one for number, one in self._steps.items() if name in one.made and number not in self._failed]
        kept = any(name in _kept(one) for one in self.program)
        return kept or any(one.op != "grad" or not self._is_none(one, name) for one in made)

    def strided(self) -> bool:
        """Tell whether a tensor of the program may have a layout of its own."""
        return any(one.op in ("transpose", "expand", "channels_last") for one in self.program)

    def puts(self, name: str) -> bool:
        """Tell whether anything puts a hook of this name, and does not fail."""
        return any(name in one.made and number not in self._failed for number, one in self._steps.items())

    def forgets(self) -> bool:
        """Tell whether the program looks at what a graph keeps alive."""
        return self._boxes() or any(one.op == "forget" for one in self.program)

    def undefined(self, hook: str) -> bool:
        """Tell whether a tensor's hook may be given None."""
        return any(event[0] == hook and event[1] is None for event in self._shown)

    # errors

    def fails(self, number: int, one: Instruction) -> bool | None:
        """Tell whether an instruction fails; None where it depends on the run."""
        if self.events is not None:
            return True if number in self._failed else None if one.op in self._doubted else False
        return None if self._may_fail(one) else False

    def failed(self, one: Instruction) -> bool:
        """Tell whether this very instruction is known to fail."""
        return any(self._steps.get(number) is one for number in self._failed)

    def refused(self, one: Instruction) -> bool:
        """Tell whether an instruction failed where the program was run, or failed on the engine."""
        return self.failed(one) if self.events is not None else one in self._carried.failed

    def _may_fail(self, one: Instruction) -> bool:
        if one.op in ENTERS:
            return any(other.op in REFUSING for other in self.program)
        if one.op == "global_hook":
            return any(other.op == one.op and other.how[0] == "backward" for other in self.program)
        registers = one.op == "module" and any(other.op == "registration_hook" for other in self.program)
        return registers or one.op not in SAFE

    # contexts

    def blocks(self, thread: int) -> bool:
        """Tell whether the contexts of a thread can be blocks."""
        if thread:
            return False
        uncertain = self.events is None and any(one.op in REFUSING for one in self.program)
        leaving = (one for one in self.program if one.op == "leave")
        return not uncertain and not any(self.failed(one) or FAILING in one.how for one in leaving)

    def open_elsewhere(self) -> list[int]:
        """Return the threads whose contexts are no blocks and are open."""
        return [thread for thread, stack in self._open.items() if stack and not self.blocks(thread)]

    def innermost(self, thread: int) -> str | None:
        """Return the context that the next `leave` closes."""
        stack = self._open.get(thread)
        return stack[-1] if stack else None

    def infers(self) -> bool:
        """Tell whether anything enters inference mode, so that it matters where a tensor is made."""
        return any(one.op == "inference_mode" for one in self.program)

    def switches(self) -> bool:
        """Tell whether anything switches recording on or off, so that the grad mode is worth being shown."""
        passes = [one for one in self.program if one.op in ("backward", "grad")]
        return any(one.how[2] for one in passes) or any(
            one.op in ("no_grad", "enable_grad", "checkpoint") for one in self.program
        )

    # tensors

    def worth_a_look(self) -> list[str]:
        """Return the tensors that a look shows something of."""
        return [name for name in self._sure if self.has_grad(name) or self.taken(name)]

    def has_grad(self, name: str) -> bool:
        """Tell whether a tensor may have a gradient to look at."""
        return name in self._grads or self.unseen(name)

    def taken(self, name: str) -> bool:
        """Tell whether a tensor is a gradient that a leaf has accumulated."""
        maker = self._makers.get(name)
        return maker is not None and maker.op == "take"

    def laid_out(self, name: str) -> bool:
        """Tell whether the layout of a tensor's gradient is shown."""
        carried = (one for one in self._done if not self._carried.skips(one))
        given = any(one.op == "give" and one.used[0] == name for one in carried)
        maker = self._makers.get(name)
        return (given or (maker is not None and maker.op == "own")) and not self.created

    def begins(self, one: Instruction) -> None:
        """Note that a pass begins."""
        self.created |= one.how[2] and not self._carried.skips(one)

    def counts_boxes(self) -> bool:
        """Tell whether it is noted how much of what was packed is there yet."""
        return not self.created and not any(map(nests, self._done))

    def _boxes(self) -> bool:
        return any(
            one.op in ("saved_hooks", "saved_pair", "checkpoint") and one.how[0] in BOXED for one in self.program
        )

    def keep_grads(self, names: Iterable[str]) -> None:
        """Note that these tensors may have a gradient from now on; of two gradients one may be the other."""
        for name in names:
            maker = self._makers.get(name)
            self._grads.update(maker.made if maker and maker.op == "grad" else self._renamed(name))

    def _renamed(self, name: str) -> set[str]:
        """Return all names of a tensor, of which a custom Function that changes it makes another."""
        names = {name}
        for one in (*self._done, *reversed(self._done)):
            both = {one.made[0], *one.used} if one.op == "function" else set[str]()
            names |= both if both & names else set()
        return names

    def unseen(self, name: str) -> bool:
        """Tell whether a run could not even look at the gradient of a tensor."""
        return ("error", name, "grad") in self._unseen

    def has_node(self, name: str) -> bool:
        """Tell whether a tensor surely has a Node that made it."""
        kind = self._carried.kinds.get(name)
        return kind is not None and not kind.leaf

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor if it is known."""
        kind = self._carried.kinds.get(name)
        return kind and kind.shape

    def made_by(self, one: Instruction) -> tuple[str, ...]:
        """Return the names that an instruction makes: of a call fewer where a hook replaced what it returns."""
        if one.op not in ("call", "forward", "checkpoint") or one in self._carried.failed:
            return one.made
        return tuple(name for name in one.made if name in self._carried.kinds)

    def several_outputs(self, one: Instruction) -> bool | None:
        """Tell whether the module of a hook returns a tuple or a list; None where it may be any module."""
        return self.kind_of_module(one.used[0]) in ("two", "named", "listed") if one.used else None

    def returns_lists(self) -> bool:
        """Tell whether any module returns a list."""
        return any(one.op == "module" and one.how[0] == "listed" for one in self.program)

    def kind_of_module(self, name: str) -> str:
        """Return what a module computes: a copy does what its original does."""
        maker = self._makers[name]
        return self.kind_of_module(maker.used[0]) if maker.op == "copy" else maker.how[0]

    def warns(self, one: Instruction) -> bool:
        """Tell whether a call warns."""
        return ("warned", *one.made[:1]) in self._shown

    def renewed(self, name: str) -> bool:
        """Tell whether a tensor may be given a new history, at the latest by being asked whether it is a leaf."""
        views = having("view") | {"split", "function"}
        return self.changes() and any(one.op in views and name in one.made for one in self.program)

    def maker(self, name: str) -> Instruction | None:
        """Return what made a tensor."""
        return self._makers.get(name)

    def changes(self) -> bool:
        """Tell whether the program changes any tensor in place."""
        changing = ("sgd", "load_state_dict")
        return any(
            one.op.endswith("_") or one.op in changing or "changes" in one.how or _is_dirty(one) for one in self.program
        )

    def after(self, number: int, one: Instruction, *, sure: bool) -> None:
        """Note what an instruction has changed."""
        self._done.append(one)
        fails = self.fails(number, one)
        if one.op == "forget":
            self._sure.pop(one.used[0], None)
        if one.op == "leave" and self._open.get(one.thread):
            self._open[one.thread].pop()
        if fails:
            return
        if one.op in ENTERS:
            self._open.setdefault(one.thread, []).append(one.op)
        if one.op in ("give", "flag"):
            self.keep_grads(one.used[:1])
        if one.op == "retain_grad" or (one.op == "channels_last" and one.used[0] in self._grads):
            self.keep_grads((*one.used, *one.made))
        self._note_made(one, sure=sure and fails is False)

    def _note_made(self, one: Instruction, *, sure: bool) -> None:
        for name in self.made_by(one):
            if one.op == "grad" and self._is_none(one, name):
                continue
            self._sure[name] = sure and (one.op != "grad" or self.events is not None)
            self._makers[name] = one
        if one.op in ("module", "copy", "own", "save") or (one.op == "leaf" and one.how[2]):
            self._grads.update(one.made[-1:])
        if one.op == "grad" and MATERIALIZED in one.how:
            self._grads.update(one.made)  # zeros that require grad are leaves
        if one.op == "function" and self._grads.intersection(one.used):
            self._grads.add(one.made[0])
        for kept in _kept(one):
            if self.events is None or any(event[0] == one.made[0] for event in self.events):
                self._sure[kept] = False
                self._grads.update([kept] if one.op in ("module_hook", "global_hook") else [])

    def _is_none(self, one: Instruction, name: str) -> bool:
        """Tell whether a run gave no gradient for this name."""
        place = one.made.index(name)
        size = len(one.made)
        shown = [event for event in self.events or () if event[:size] == one.made]
        return bool(shown) and shown[0][size + place] is None


def _is_dirty(one: Instruction) -> bool:
    return one.op == "function" and KINDS[one.how[0]].changes is not None


def _removes(one: Instruction, name: str) -> bool:
    if one.op == "remove":
        return name in one.used
    action = action_of(one)
    return action == ("remove", name) or (action == ("remove",) and one.made[:1] == (name,))


def action_of(one: Instruction) -> tuple[Any, ...] | None:
    """Return what the hook of an instruction does, None if it puts none."""
    return next((how for how in one.how if isinstance(how, tuple) and how and isinstance(how[0], str)), None)


def _mentions(how: Any, name: str) -> bool:
    return isinstance(how, tuple) and name in how


def _kept(one: Instruction) -> list[str]:
    action = action_of(one)
    return [action[1]] if action and action[0] == "keep" else []
