"""The checker of a property on a packer: it writes programs, runs them, and keeps the smallest that fails."""

import linecache
import sys
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import msgspec
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from hooklaw.errors import is_users_interrupt
from hooklaw.law.hypothesis_settings import BASE
from hooklaw.packing._addresses import none_comes_again
from hooklaw.packing._law import Property
from hooklaw.packing._packer import CheckedPacker
from hooklaw.packing._source import PACKER, program
from hooklaw.results.records import Execution
from hooklaw.results.verdict import Outcome

CONTROL = "from hooklaw.packing.control import Right as packer"
"""A correct packer: a property that fails with it too says nothing about the packer under judgement."""
CLAIMS = frozenset({"disk", "claim"})
"""Capabilities that the correct packer does not claim, so that it cannot be compared."""
FILE = "<program>"
PROGRAM = "program"
"""The module that a program is while it runs."""


class _FailedError(Exception):
    """A program failed; told apart from what Hypothesis raises."""


class Checker:
    """Checks properties of a packer; `note` is given each program before it runs."""

    def __init__(
        self,
        packer: CheckedPacker,
        examples: int,
        *,
        given_packer: Any = None,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Prepare the checker; `given_packer` is used where the packer cannot be imported."""
        self._packer, self._examples, self._given, self._note = packer, examples, given_packer, note

    def check(self, prop: Property) -> Execution:
        """Check the property; nothing that the packer does is raised here, but it may end the process."""
        missing = self._packer.missing
        denied = [missing[need] for need in prop.rule.needs if missing[need]]
        if denied:
            return Execution(rule=prop.rule.id, outcome=Outcome.UNSUPPORTED, detail="; ".join(denied))
        began = time.perf_counter()
        try:
            with nullcontext() if prop.frees else none_comes_again():
                execution = self._search(prop)
        except Exception as error:  # noqa: BLE001 - a fault of the suite, not of the packer
            said = f"the suite itself raised {type(error).__name__}: {error}"
            execution = Execution(rule=prop.rule.id, outcome=Outcome.ERROR, detail=said)
        return msgspec.structs.replace(execution, duration=round(time.perf_counter() - began, 4))

    def _search(self, prop: Property) -> Execution:
        found: list[tuple[str, str, dict[str, str]]] = []

        def example(case: dict[str, str]) -> None:
            said = self._run(self._text(prop, case, self._packer.lines))
            if said:
                found.append((*said, case))
                raise _FailedError

        try:
            if prop.draws:
                how = settings(BASE, max_examples=self._examples, phases=(Phase.explicit, Phase.generate, Phase.shrink))
                how(given(case=st.fixed_dictionaries(dict(prop.draws)))(example))()
            else:
                example({})
        except (_FailedError, HypothesisException):
            pass
        if not found:
            return Execution(rule=prop.rule.id, outcome=Outcome.PASS)
        return self._compared(prop, *found[-1])

    def _compared(self, prop: Property, detail: str, where: str, case: dict[str, str]) -> Execution:
        """Return the failure, or an error of the suite if the correct packer fails too."""
        text, outcome = self._text(prop, case, self._packer.lines), Outcome.FAIL
        comparable = clean() and not CLAIMS.intersection(prop.rule.needs)
        control = self._run(self._text(prop, case, CONTROL)) if comparable else None
        if control:
            outcome, where = Outcome.ERROR, control[1]
            detail = f"the property breaks with a right packer too, so it says nothing here: {control[0]}"
        return Execution(rule=prop.rule.id, outcome=outcome, detail=detail, where=where, program=text)

    def simplest(self, prop: Property) -> str:
        """Return the property's program for its simplest case, without running it."""
        case = find(st.fixed_dictionaries(dict(prop.draws)), lambda _: True, settings=BASE)
        return self._text(prop, case, self._packer.lines)

    def _text(self, prop: Property, case: dict[str, str], lines: str) -> str:
        packer = self._packer
        close = f"partial(within, {packer.tolerance!r})" if packer.tolerance else "identical"
        declared = {"device": repr(packer.device), "tolerance": repr(packer.tolerance), "medium": repr(packer.medium)}
        return program(prop.program, lines, {**declared, "close": close, **case})

    def _run(self, text: str) -> tuple[str, str] | None:
        """Run a program; return in one line what failed and where, or None."""
        self._note(text)
        module = sys.modules[PROGRAM] = ModuleType(PROGRAM)  # a packer that pickles finds the program's classes there
        scope = vars(module)
        if self._given is not None and CONTROL not in text:
            scope[PACKER] = self._given
        linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(text, FILE, "exec"), scope)  # noqa: S102 - what is shown is what is run
        except BaseException as error:
            if is_users_interrupt(error):
                raise
            return _said(error), _where(error)
        finally:
            scope.clear()
            del sys.modules[PROGRAM]
            tracemalloc.stop()  # a program that measures starts it, and it would slow down all that follows
        return None


def clean() -> bool:
    """Return whether autograd is as in a new process: no saved-tensor hooks left behind, and grad mode on."""
    import torch  # noqa: PLC0415 - the parent process does not import it

    try:
        y = torch.zeros(1, requires_grad=True).exp()
        with torch.no_grad():
            y.add_(1)
        y.sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)  # autograd saw it itself: no hook had packed it
    except Exception:  # noqa: BLE001 - a hook that was left behind may raise anything
        return False
    return False


def _said(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [""])[0][:400]
    return text if isinstance(error, AssertionError) and text else f"raised {type(error).__name__}: {text}"


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    if not frames:
        return ""
    shown = frames[0] if isinstance(error, AssertionError) else frames[-1]
    return f"line {shown.lineno}: {shown.line}"
