"""The worker that runs mutants: ``python -m hooklaw.mutation.worker MODULE ORIGINAL FILE``, names in, JSON lines out.

ORIGINAL is the backend that they are mutants of; ``MODULE.mutants(ORIGINAL)`` maps names to what makes them.

The first line answered is a `Hello`, then come a `Begun` and a `Done` for every rule, a `Finished` for every mutant.
A worker that hangs is ended by its watchdog, which writes to FILE; whoever reads the lines knows where it was.
"""

import copy
import gc
import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, TextIO

import msgspec

from hooklaw.backend import loading
from hooklaw.backend.protocol import Backend
from hooklaw.errors import BackendImportError, HooklawError, NotRunError
from hooklaw.law import hypothesis_settings
from hooklaw.law.rule import Registered, Rule, load_rules, registered
from hooklaw.law.trace import Trace
from hooklaw.results import expectations
from hooklaw.results.recorder import DIED
from hooklaw.results.verdict import Outcome
from hooklaw.runner import classify
from hooklaw.workers.watchdog import LOADING_LIMIT, Watchdog

EXAMPLES = 12
"""How many examples of a property are tried: the vices are not subtle."""
LIMIT = 20.0
"""Seconds a rule may take on a mutant."""
SLOW = 0.3
"""Seconds of the processor that a rule takes on the original from which on only the mutants run it that it names."""

Makers = Mapping[str, Callable[[], Backend]]


class Hello(msgspec.Struct, tag=True):
    """What a worker found: the mutants with their vices, the rules, and what the original makes of them."""

    vices: dict[str, str]
    rules: list[Rule]
    original: dict[str, Outcome]


class Fault(msgspec.Struct, tag=True):
    """Why a worker cannot run anything; the original is absent where this machine does not have it."""

    why: str
    absent: bool = False


class Begun(msgspec.Struct, tag=True):
    """A rule that is about to run."""

    rule: str


class Done(msgspec.Struct, tag=True):
    """What a mutant made of a rule."""

    rule: str
    outcome: Outcome
    detail: str


class Finished(msgspec.Struct, tag=True):
    """A mutant has run all rules."""


class Farewell(msgspec.Struct, tag=True):
    """The last line: rules that the original passes no more, since a mutant left something behind."""

    spoilt: list[str]


class Order(msgspec.Struct):
    """A mutant to run, and how many seconds a rule may take on it."""

    mutant: str
    limit: float


Line = Hello | Fault | Begun | Done | Finished | Farewell


class Worker:
    """Runs one mutant after the other, each rule on a backend of its own."""

    def __init__(self, original: str, makers: Makers, watchdog: Watchdog) -> None:
        self._makers, self._watchdog = makers, watchdog
        self._original = loading.load(original)
        self._rules = {one.rule.id: one for one in registered()}
        self._used: dict[str, set[str]] = {}
        self._slow: set[str] = set()
        self._first = dict(self._try_original())
        self._sound = [id_ for id_, outcome in self._first.items() if outcome is Outcome.PASS]

    def hello(self) -> Hello:
        """Say what there is."""
        vices = {name: (made.__doc__ or "").strip().split("\n")[0] for name, made in self._makers.items()}
        return Hello(vices, [one.rule for one in self._rules.values()], self._first)

    def run(self, order: Order) -> Iterator[Line]:
        """Try every rule that can tell the mutant from the original."""
        different = altered(self._makers[order.mutant](), self._original)
        for id_ in self._sound:
            if not self.matters(id_, order.mutant, different):
                continue
            yield Begun(id_)
            outcome, detail = self._try(self._rules[id_], self._makers[order.mutant](), order.limit)
            yield Done(id_, outcome, detail)
        gc.collect()
        yield Finished()

    def matters(self, rule: str, mutant: str, different: AbstractSet[str] | None) -> bool:
        """Tell whether to run a rule: not if it uses nothing that is different, nor if it is slow and says nothing."""
        if rule in self._slow and mutant not in self._rules[rule].rule.mutants:
            return False
        return different is None or bool(self._used[rule] & different)

    def farewell(self) -> Farewell:
        """Try the original once more."""
        now = dict(self._try_original())
        return Farewell([id_ for id_ in self._sound if now[id_] is not Outcome.PASS])

    def _try_original(self) -> Iterator[tuple[str, Outcome]]:
        path = self._original.expectations
        known = expectations.read(path, self._rules, self._original.versions).known if path else {}
        for id_, found in self._rules.items():
            if any(need not in self._original.capabilities for need in found.rule.needs):
                yield id_, Outcome.UNSUPPORTED
            elif id_ in known and DIED.intersection(known[id_].outcome):
                yield id_, Outcome(known[id_].outcome[0])
            else:
                self._used[id_], began = set(), time.process_time()
                yield id_, self._try(found, _watched(self._original, self._used[id_]))[0]
                if time.process_time() - began > SLOW:
                    self._slow.add(id_)

    def _try(self, found: Registered, made: Backend, limit: float = LIMIT) -> tuple[Outcome, str]:
        reset, close = (getattr(made, name, lambda: None) for name in ("reset", "close"))
        self._watchdog.start(limit)
        reset()
        try:
            with warnings.catch_warnings():
                found.function(made, Trace(made))
        except BaseException as error:  # noqa: BLE001 - whatever a mutant raises is what it does
            return classify.classify(error, made)[:2]
        finally:
            reset()
            close()
            self._watchdog.stop()
        return Outcome.PASS, ""


def _watched(original: Backend, used: set[str]) -> Backend:
    """Return the backend in a form that notes each attribute that is asked for, by a rule or by its own verbs."""

    class Watched(type(original)):
        def __getattribute__(self, name: str) -> Any:
            used.add(name)
            return super().__getattribute__(name)

    watched = copy.copy(original)
    object.__setattr__(watched, "__class__", Watched)
    return watched


def altered(mutant: Backend, original: Backend) -> set[str] | None:
    """Return the attributes in which a mutant differs, or None where that cannot be told.

    It cannot where the mutant says that its vice is ``inside`` what the verbs call.
    """
    line, base = type(mutant).__mro__, type(original)
    if base not in line or getattr(mutant, "inside", False):
        return None
    by_class = {name for one in line[: line.index(base)] for name in vars(one) if not name.startswith("__")}
    own, its = vars(mutant), vars(original)
    by_instance = {name for name in own if name not in its or own[name] != its[name]}
    return (by_class | by_instance) - {"name", "reset"}


def main() -> int:
    """Serve until there is no further order."""
    module, original, file = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a framework prints is no answer
    watchdog = Watchdog(Path(file))
    warnings.simplefilter("ignore")
    try:
        watchdog.start(LOADING_LIMIT)
        worker = _worker(module, original, watchdog)
    except (HooklawError, NotRunError) as error:
        _answer(answers, Fault(str(error), absent=isinstance(error, NotRunError)))
        return 1
    _serve(worker, answers)
    return 0


def _worker(module: str, original: str, watchdog: Watchdog) -> Worker:
    hypothesis_settings.load(
        EXAMPLES, shrink=False
    )  # before the rules: a property keeps the settings that it was defined under
    load_rules()
    try:
        makers: Makers = importlib.import_module(module).mutants(original)
    except NotRunError:
        raise
    except (Exception, SystemExit) as error:
        raise BackendImportError(f"the mutants in {module} do not import: {type(error).__name__}: {error}") from error
    gc.collect()
    gc.freeze()
    return Worker(original, makers, watchdog)


def _serve(worker: Worker, answers: TextIO) -> None:
    _answer(answers, worker.hello())
    for text in sys.stdin:
        order = msgspec.json.decode(text, type=Order)
        for line in worker.run(order):
            _answer(answers, line)
    _answer(answers, worker.farewell())


def _answer(answers: TextIO, line: Line) -> None:
    answers.write(msgspec.json.encode(line).decode() + "\n")
    answers.flush()


if __name__ == "__main__":
    raise SystemExit(main())
