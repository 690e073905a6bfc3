"""The script that emission writes: definitions, then statements; it goes on after each error."""

from collections.abc import Callable, Sequence
from textwrap import indent
from typing import Any, NamedTuple

from hooklaw.fuzz.emit._analysis import Known
from hooklaw.fuzz.emit._source import code_of
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.operations import traits_of
from hooklaw.fuzz.replay.passes import FAILING

WIDTH = 120
SAW = """\
def saw(*event):
    print(*map(plain, event){mode})


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
{error}    return [plain(one) for one in value] if isinstance(value, (tuple, list)) else value"""
ERROR = """\
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}".splitlines()[0]
"""


class Step(NamedTuple):
    """The code of one instruction."""

    code: str
    """An expression."""
    target: str = ""
    """What it is assigned to."""
    before: tuple[tuple[str, str], ...] = ()
    """Targets and expressions of what must come first."""
    after: str = ""
    """Statements that show what came of it."""
    look: bool = False
    """Whether all gradients are to be shown, even after an error."""
    anywhere: bool = False
    """Whether the thread makes no difference, unless it is in inference mode."""
    imports: tuple[str, ...] = ()
    """Modules of the standard library."""
    defines: str = ""
    """A definition before all statements."""


Form = Callable[["Script", Instruction], Step | None]
FORMS: dict[str, Form] = {}
"""The code of each operation; the other modules of this package fill it."""


def form(function: Form) -> Form:
    """Register the function that gives the code of the instruction of its name."""
    FORMS[function.__name__] = function
    return function


class Script:
    """The code so far: definitions, then statements."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.definitions: list[str] = []
        self.everywhere: list[str] = []
        """Statements that remove hooks from all modules."""
        self.lines: list[str] = []
        self.boxed = False
        """Whether anything may have been packed in a box."""
        self._depth = 0
        self._threads: list[int] = []
        self._imports: set[str] = set()

    def need(self, *modules: str) -> None:
        """Import modules of the standard library."""
        self._imports.update(modules)

    def node(self, tensor: str, name: str, *, keep: bool) -> tuple[tuple[tuple[str, str], ...], str]:
        """Return what must come first, and the code for the Node of a tensor; the script keeps a leaf's Node."""
        code = self.loose_node(tensor)
        return ((), code) if self.known.has_node(tensor) and not keep else (((name, code),), name)

    def loose_node(self, tensor: str) -> str:
        """Return the code for the Node of a tensor that the script does not keep."""
        has_node = self.known.has_node(tensor)
        return f"{tensor}.grad_fn" if has_node else f"torch.autograd.graph.get_gradient_edge({tensor}).node"

    def define(self, text: str) -> None:
        """Add a definition before all statements, once."""
        if text and text not in self.definitions:
            self.definitions.append(text)

    def include(self, function: Callable[..., Any]) -> str:
        """Define a function of the replay's own, and return its name."""
        parameters, body = code_of(function)
        self.define(f"def {function.__name__}({parameters}):\n{indent(body, '    ')}")
        return function.__name__

    def add(self, text: str) -> None:
        """Add a statement."""
        self.lines.append(indent(text, "    " * self._depth))

    def step(self, number: int, instruction: Instruction) -> None:
        """Add the code of an instruction, if it is executed."""
        known = self.known
        if not known.carries_out(number, instruction):
            return
        doubtful = known.doubtful(instruction.used)
        step = FORMS[instruction.op](self, instruction)
        if step:
            self.need(*step.imports)
            self.define(step.defines)
            fails = known.fails(number, instruction)
            guard = known.guard(doubtful)
            before = len(self.lines)
            self._depth += bool(guard)
            self._statements(number, instruction, step, fails=fails)
            self._depth -= bool(guard)
            if guard and len(self.lines) > before:
                self.lines.insert(before, indent(f"if {guard}:", "    " * self._depth))
        known.after(number, instruction, sure=not doubtful)

    def _statements(self, number: int, instruction: Instruction, step: Step, *, fails: bool | None) -> None:
        lines = [self._assigned(instruction, step, *first) for first in (*step.before, (step.target, step.code))]
        error = f'saw("error", {number}, "{instruction.op}", '
        if fails is False:
            self._all([*lines, step.after])
        elif step.look:
            self._all(["failure = None", "try:", *_deeper(lines), "except Exception as error:", "    failure = error"])
        else:
            self._all(["try:", *_deeper([*lines, step.after])])
            self._all(["except Exception as error:", f"    {error}error)"])
        if step.look:
            self.look()
        if step.look and fails is not False:
            self.add(f"{error}failure)")
            if self.known.forgets():
                self.add("failure = None  # it keeps tensors alive")
        if self.boxed and traits_of(instruction).frees and number in self.known.executed.counts:
            self._all(['if boxes:\n    saw("boxes", sum(box() is not None for box in boxes))'])

    def _all(self, lines: Sequence[str]) -> None:
        for line in filter(None, lines):
            self.add(broken(line, WIDTH - 4 * self._depth))

    def _assigned(self, instruction: Instruction, step: Step, target: str, code: str) -> str:
        if instruction.thread and (not step.anywhere or self.known.uses("inference_mode")):
            code = f"{self.thread(instruction.thread)}.submit(lambda: {code}).result()"
        return f"{target} = {code}" if target else code

    def unless_none(self, *names: str) -> str:
        """Return the statements that delete names of None, as if they had never been made, where no run is known."""
        return "".join(f"\nif {name} is None:\n    del {name}" for name in names if self.known.events is None)

    def thread(self, number: int) -> str:
        """Return the name of a thread's executor, which is made before all statements."""
        if number not in self._threads:
            self._threads.append(number)
        return f"thread_{number}"

    def look(self) -> None:
        """Show every gradient that may have been accumulated or retained."""
        for name in self.known.worth_a_look():
            guard = self.known.guard(self.known.doubtful([name]))
            self._all(self._look_at(name, guard))

    def _look_at(self, name: str, guard: str) -> list[str]:
        known = self.known
        lines = [f'saw("{name}.value", {name})'] if name in known.executed.taken else []
        lines += [f'saw("{name}.grad", {self.grad_of(name)})'] if known.has_grad(name) else []
        if known.laid_out(name):
            sizes = f"zip({name}.grad.shape, {name}.grad.stride())"
            shown = f'    saw("{name}.layout", [stride for size, stride in {sizes} if size > 1])'
            lines += [f"if {name}.grad is not None:", shown]
        if known.unseen(name):
            shown = f'    saw("error", "{name}", "grad", error)'
            lines = ["try:", *_deeper(lines), "except Exception as error:", shown]
        return [f"if {guard}:", *_deeper(lines)] if guard else lines

    def grad_of(self, name: str) -> str:
        """Return the code for the gradient of a tensor, which reads is_leaf first where that may matter."""
        grad = f"{name}.grad"
        asks = self.known.unseen(name) or self.known.renewed(name)
        return f"{grad} if {name}.is_leaf or {name}.retains_grad else None" if asks else grad

    # contexts: blocks in the main thread, a list of those that are open elsewhere

    def enter(self, instruction: Instruction, context: str) -> Step | None:
        """Open a context, as a block where that is equivalent."""
        if not self.known.blocks(instruction.thread):
            stack = self.stack(instruction.thread)
            return Step(f"{stack}.enter_context({context})")
        if self.known.refused(instruction):
            return Step(f"{context}.__enter__()")
        self.block(context)
        return None

    def block(self, context: str) -> None:
        """Open a block; `close` closes it at the latest."""
        self.add(broken(f"with {context}:", WIDTH - 4 * self._depth))
        self._depth += 1

    def leave(self, instruction: Instruction) -> Step | None:
        """Close the innermost context of the thread."""
        if not self.known.blocks(instruction.thread):
            error = 'Exception("planned")' if FAILING in instruction.how else ""
            return Step(f"{self.stack(instruction.thread)}.pop_innermost({error})")
        if self.known.innermost(instruction.thread):
            self._close_block()
        return None

    def stack(self, thread: int) -> str:
        """Return the name of a thread's list of open contexts."""
        self.define(CONTEXTS)
        self.define(f"contexts_{thread} = Contexts()")
        return f"contexts_{thread}"

    def _close_block(self) -> None:
        opener = "    " * (self._depth - 1) + "with "
        body = self.lines[-1]
        if body.splitlines()[0].startswith(opener):
            self.add("pass")
        self._depth -= 1

    def close(self, *, look: bool) -> None:
        """Show all gradients once more, and close what is open."""
        if look:
            self.look()
        for thread in self.known.open_elsewhere():
            run = f"{self.thread(thread)}.submit({{}}).result()" if thread else "{}()"
            self.add(run.format(f"contexts_{thread}.close"))
        while self._depth:
            self._close_block()
        for statement in self.everywhere:
            self.add(statement)

    def text(self, *, log: bool) -> str:
        """Return the whole script."""
        imports = [f"import {name}" for name in sorted(self._imports)]
        imports += ["from concurrent.futures import ThreadPoolExecutor"] if self._threads else []
        imports += ["", "import torch"] if imports else ["import torch"]
        executors = [f"thread_{number} = ThreadPoolExecutor(1)" for number in self._threads]
        body = "\n".join([*executors, *self.lines])
        saw = [] if log or "saw(" not in body + "".join(self.definitions) else [self._saw(body)]
        blocks = [*saw, *self.definitions]
        return "\n".join(imports) + "\n\n\n" + "".join(f"{block}\n\n\n" for block in blocks) + body + "\n"

    def _saw(self, body: str) -> str:
        mode = ", torch.is_grad_enabled()" if self.known.switches() else ""
        return SAW.format(mode=mode, error=ERROR if '"error"' in body else "")


CONTEXTS = """\
class Contexts(list):
    def enter_context(self, context):
        context.__enter__()
        self.append(context)

    def pop_innermost(self, error=None):
        if self:
            self.pop().__exit__(error and type(error), error, None)

    def close(self):
        while self:
            self.pop_innermost()"""


def _deeper(lines: Sequence[str]) -> list[str]:
    return [indent(line, "    ") for line in lines if line]


def broken(line: str, width: int) -> str:
    """Return a statement that is too long over several lines, broken inside its outermost call."""
    if len(line) <= width or "(" not in line or "\n" in line:
        return line
    start = _outermost(line)
    end = _closing(line, start)
    margin = " " * (len(line) - len(line.lstrip()))
    inside = broken(line[start + 1 : end].strip(), width - len(margin) - 4)
    return f"{line[: start + 1]}\n{indent(inside, margin + '    ')}\n{margin}{line[end:]}"


def _outermost(line: str) -> int:
    """Return the place of the parenthesis with the most inside."""
    opened = [place for place, letter in enumerate(line) if letter == "("]
    return max(opened, key=lambda place: _closing(line, place) - place)


def _closing(line: str, start: int) -> int:
    depth = 0
    for place in range(start, len(line)):
        depth += (line[place] == "(") - (line[place] == ")")
        if not depth:
            return place
    return len(line)
