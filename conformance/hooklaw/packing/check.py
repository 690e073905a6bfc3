"""One property tried on one packer: programs are written, run, and the smallest that breaks is kept."""

import linecache
import time
import traceback
import tracemalloc
import warnings
from typing import Any

import msgspec
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from hooklaw.law.hypothesis_settings import BASE
from hooklaw.packing.law import Property
from hooklaw.packing.source import PACKER, program
from hooklaw.packing.subject import Subject
from hooklaw.results.verdict import Outcome

CONTROL = "from hooklaw.packing.control import Right as packer"
"""A packer that keeps every property: what breaks with it too is no fault of the packer under judgement."""
CLAIMS = frozenset({"disk", "claim"})
"""What the right packer does not claim, so that it cannot be asked."""
FILE = "<program>"


class Tried(msgspec.Struct, tag=True):
    """What came of a property."""

    property: str
    outcome: Outcome
    detail: str = ""
    where: str = ""
    program: str = ""
    seconds: float = 0.0


class _Broken(Exception):  # noqa: N818 - it is a finding, not a fault
    """What a program raised, kept apart from whatever Hypothesis has to say."""


class Trial:
    """Tries properties on a subject; `last` is the program that is running, for whoever finds the process dead."""

    def __init__(self, subject: Subject, examples: int, given_packer: Any = None) -> None:
        self._subject, self._examples, self._given = subject, examples, given_packer
        self.last = ""

    def run(self, prop: Property) -> Tried:
        """Try the property; nothing that the packer does gets out of here but by ending the process."""
        denied = [self._subject.capabilities[need] for need in prop.rule.needs if self._subject.capabilities[need]]
        if denied:
            return Tried(prop.rule.id, Outcome.UNSUPPORTED, "; ".join(denied))
        began = time.perf_counter()
        try:
            tried = self._search(prop)
        except Exception as error:  # noqa: BLE001 - a fault of ours is told from one of the packer's
            tried = Tried(prop.rule.id, Outcome.ERROR, f"the suite itself raised {type(error).__name__}: {error}")
        return msgspec.structs.replace(tried, seconds=round(time.perf_counter() - began, 4))

    def _search(self, prop: Property) -> Tried:
        found: list[tuple[str, str, dict[str, str]]] = []

        def example(case: dict[str, str]) -> None:
            said = self._execute(self._text(prop, case, self._subject.lines))
            if said:
                found.append((*said, case))
                raise _Broken

        try:
            if prop.draws:
                how = settings(BASE, max_examples=self._examples, phases=(Phase.explicit, Phase.generate, Phase.shrink))
                how(given(case=st.fixed_dictionaries(dict(prop.draws)))(example))()
            else:
                example({})
        except (_Broken, HypothesisException):
            pass
        if not found:
            return Tried(prop.rule.id, Outcome.PASS)
        detail, where, case = found[-1]
        return self._weigh(prop, detail, where, case)

    def _weigh(self, prop: Property, detail: str, where: str, case: dict[str, str]) -> Tried:
        text = self._text(prop, case, self._subject.lines)
        comparable = clean() and not CLAIMS.intersection(prop.rule.needs)
        control = self._execute(self._text(prop, case, CONTROL)) if comparable else None
        if control:
            said = f"the property breaks with a right packer too, so it says nothing here: {control[0]}"
            return Tried(prop.rule.id, Outcome.ERROR, said, control[1], text)
        return Tried(prop.rule.id, Outcome.FAIL, detail, where, text)

    def simplest(self, prop: Property) -> str:
        """Return the property's program for its simplest case, and do not run it."""
        case = find(st.fixed_dictionaries(dict(prop.draws)), lambda _: True, settings=BASE)
        return self._text(prop, case, self._subject.lines)

    def _text(self, prop: Property, case: dict[str, str], lines: str) -> str:
        one = self._subject
        close = f"partial(within, {one.tolerance!r})" if one.tolerance else "identical"
        declared = {"device": repr(one.device), "tolerance": repr(one.tolerance), "medium": repr(one.medium)}
        return program(prop.program, lines, {**declared, "close": close, **case})

    def _execute(self, text: str) -> tuple[str, str] | None:
        """Run a program; return in one line what broke and where, or None."""
        self.last = text
        scope: dict[str, Any] = {"__name__": "program"}
        if self._given is not None and CONTROL not in text:
            scope[PACKER] = self._given
        linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(text, FILE, "exec"), scope)  # noqa: S102 - what is shown is what is run
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it raises is what it does
            return _said(error), _where(error)
        finally:
            scope.clear()
            tracemalloc.stop()  # a program that measures starts it, and all would be slower from then on
        return None


def clean() -> bool:
    """Tell whether autograd is as a process finds it: no pair of hooks left behind, and gradients recorded."""
    import torch  # noqa: PLC0415 - the parent process has none

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
