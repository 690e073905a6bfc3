"""The fuzzer as an ordinary Hypothesis test: each rule adds an instruction, and teardown judges the program.

`machine("torch-eager").TestCase` is a test that pytest, unittest and HypoFuzz collect.
"""

from collections.abc import Callable, Sequence
from functools import partial
from os import environ
from typing import Any, ClassVar

from hypothesis import HealthCheck, note, reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hooklaw.fuzz.campaign.process import Ending
from hooklaw.fuzz.campaign.remote import RemoteBackend, remote_backend
from hooklaw.fuzz.draw.builder import ProgramDraft
from hooklaw.fuzz.draw.strategies import STEPS_BY_NAME, Lines, added, started
from hooklaw.fuzz.judge.judge import Difference
from hooklaw.fuzz.program import Instruction, Program, dump, text
from hooklaw.fuzz.replay.run import Event
from hooklaw.fuzz.shrink import shrink

BACKEND = "HOOKLAW_FUZZ_BACKEND"
"""The environment variable that names the backend, which HypoFuzz passes on to its workers."""
PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
STEPS = 24
"""How many instructions a program has at most."""
TRIALS = 1000
"""How many programs are tried while a failing program is shrunk by deleting instructions."""
AROUND = 2
"""How many events before the first difference are shown."""


class DifferenceError(AssertionError):
    """A backend shows what neither the documentation nor a known departure explains."""


class ProcessDiedError(AssertionError):
    """A program crashes a backend, or makes it hang."""


@st.composite
def _begun(draw: st.DrawFn) -> Lines:
    """Begin the program of the machine that is running."""
    running: ProgramMachine = draw(st.runner())
    running.draft = started(draw)
    return Lines(running.draft.done)


@st.composite
def _added(draw: st.DrawFn, step: Callable[[ProgramDraft], None]) -> Lines:
    """Add to the program of the machine that is running."""
    running: ProgramMachine = draw(st.runner())
    return draw(added(running.draft, step)) if running.draft else Lines()


class ProgramMachine(RuleBasedStateMachine):
    """A program that is being drawn; `machine` returns a subclass with a rule for each kind of instruction."""

    backend: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.draft: ProgramDraft | None = None
        self.program: Program = ()

    @initialize(instructions=_begun())
    def begin(self, instructions: Lines) -> None:
        """Start with a leaf."""
        self.program = tuple(instructions)

    def teardown(self) -> None:
        """Judge the program."""
        check(self.program, remote_backend(named(self.backend)))


def machine(backend: str = "") -> type[ProgramMachine]:
    """Return the stateful test of a backend, named as on the command line or by the environment."""
    rules: dict[str, Any] = {f"add_{name}": _rule(name, step) for name, step in STEPS_BY_NAME.items()}
    made = type("Programs", (ProgramMachine,), {**rules, "backend": backend})
    made.TestCase.settings = settings(deadline=None, stateful_step_count=STEPS, suppress_health_check=PATIENT)
    return made


def _rule(name: str, step: Callable[[ProgramDraft], None]) -> Any:
    def add(self: ProgramMachine, instructions: Lines) -> None:
        self.program += instructions

    add.__name__ = f"add_{name}"
    return rule(instructions=_added(step))(add)


def named(backend: str = "") -> str:
    """Return the name of a backend: the given name, that of the environment, or torch-eager."""
    return backend or environ.get(BACKEND) or "torch-eager"


def check(program: Sequence[Instruction], backend: RemoteBackend) -> None:
    """Judge a program, and raise an error if what the backend shows is neither law nor known.

    The error that Hypothesis reports has a note with the program shrunk further, by deleting instructions.
    """
    program = backend.able(program)
    difference = backend.judge.of(program, seen(program, backend))
    if difference and not difference.flags and not backend.knows("differs", program):
        note(_Shrinking(program, partial(_differs, backend), partial(_described, backend)))
        raise DifferenceError(f"{backend.name} shows what is neither law nor known\n{described(program, difference)}")


def seen(program: Program, backend: RemoteBackend) -> list[Event]:
    """Return what a backend shows of a program; Hypothesis discards a program that is known to crash or hang."""
    events = backend.replay(program)
    if isinstance(events, Ending):
        if backend.knows(str(events), program):
            reject()
        note(_Shrinking(program, lambda smaller: backend.replay(smaller) == events, _as_it_is))
        raise ProcessDiedError(f"{backend.name} does not survive a program: {events}\n{_as_it_is(program)}")
    return events


class _Shrinking:
    """A program that is shrunk when it is printed: Hypothesis prints only the smallest that it has found."""

    def __init__(self, program: Program, fails: Callable[[Program], bool], describe: Callable[[Program], str]) -> None:
        self._program, self._fails, self._describe = program, fails, describe

    def __repr__(self) -> str:
        return f"shrunk by leaving out instructions:\n{self._describe(shrink(self._program, self._fails, TRIALS))}"


def _difference(backend: RemoteBackend, program: Program) -> Difference | None:
    events = backend.replay(program)
    difference = None if isinstance(events, Ending) else backend.judge.of(program, events)
    return None if difference and difference.flags else difference


def _differs(backend: RemoteBackend, program: Program) -> bool:
    return _difference(backend, program) is not None


def _described(backend: RemoteBackend, program: Program) -> str:
    difference = _difference(backend, program)
    return described(program, difference) if difference else _as_it_is(program)


def _as_it_is(program: Program) -> str:
    return f"{text(program, '  ')}\nto run it again: {dump(program)}"


def described(program: Program, difference: Difference) -> str:
    """Return a program, and the events around the first that differs, as lines."""
    place = difference.divergence.matched
    lines = [text(program, "  "), f"event {place} of what it shows is not what the law gives:"]
    lines += [f"     agreed: {_shown([event])}" for event in difference.observed[max(0, place - AROUND) : place]]
    lines += [f"   expected: {_shown(difference.divergence.expected[place : place + 1])}"]
    lines += [f"   observed: {_shown(difference.observed[place : place + 1])}"]
    return "\n".join([*lines, f"to run it again: {dump(program)}"])


def _shown(events: Sequence[Event]) -> str:
    return " ".join(str(part) for part in events[0]) if events else "nothing more"
