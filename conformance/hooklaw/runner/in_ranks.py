"""A rule of several processes, executed in each rank of a group, with one outcome: that of the rank that failed first.

The ranks are forked from the process that has the backend, so they have it too, and are kept for the next rule.
"""

import atexit
import gc
import importlib
import threading
from collections.abc import Callable

import msgspec

from hooklaw.backend.conditions import Condition, find_condition
from hooklaw.backend.protocol import Backend, Capability
from hooklaw.errors import NotRunError
from hooklaw.law.rule import Registered, registered
from hooklaw.results.records import Execution
from hooklaw.results.text import encoded
from hooklaw.results.verdict import Outcome
from hooklaw.runner import heap
from hooklaw.workers.ranks import Ranks, Reply

LIMIT = 15.0
"""Seconds that a rule may take in its ranks: less than any worker may."""
Execute = Callable[[Registered, Backend, Condition], Execution]


class Wanted(msgspec.Struct):
    """A request to every rank."""

    rule: str
    condition: str


class _Group:
    """The ranks in which one backend is judged, and what they know since they were forked."""

    def __init__(self, found: Registered, backend: Backend, execute: Execute) -> None:
        self.backend, self.size, self.late = backend, found.rule.processes, _late(found, backend)
        self._rules = {each.rule.id: each for each in registered()} | {found.rule.id: found}
        self._execute = execute
        self._joined = False
        self.ranks = Ranks(self.size, self._work)

    def fits(self, found: Registered, backend: Backend) -> bool:
        """Whether these ranks can execute a rule on a backend."""
        known = self._rules.get(found.rule.id) is found and _late(found, backend) <= self.late
        return known and backend is self.backend and self.size == found.rule.processes and self.ranks.is_whole()

    def _work(self, rank: int, request: bytes, store: str) -> bytes:
        """Execute a rule, in a rank."""
        wanted = msgspec.json.decode(request, type=Wanted)
        found, condition = self._rules[wanted.rule], find_condition(wanted.condition)
        try:
            if not self._joined:
                self.backend.init_process_group(rank, self.size, store)
                self._joined = True
            done = self._execute(found, self.backend, condition)
        except NotRunError as reason:
            done = Execution(rule=wanted.rule, outcome=Outcome.NOT_RUN, detail=str(reason))
        except Exception as error:  # noqa: BLE001 - the group was not made, whoever is to blame
            said = f"{type(error).__name__}: {error}"
            done = Execution(rule=wanted.rule, outcome=Outcome.ERROR, detail=f"no process group was made: {said}")
        gc.collect(1)
        return encoded(done)


_group: _Group | None = None
_one_at_a_time = threading.Lock()


def execute_in_ranks(found: Registered, backend: Backend, condition: Condition, execute: Execute) -> Execution:
    """Have every rank execute a rule; the lanes are those of the first rank, or of the rank that failed first."""
    for module in _late(found, backend):
        importlib.import_module(module)  # once, not once in each rank
    heap.settle()  # or each rank would copy what a collection of its own looks through
    with _one_at_a_time:
        try:
            group = _fitting(found, backend, execute)
        except OSError as error:
            said = f"{found.rule.processes} processes cannot be started here: {error}"
            return Execution(rule=found.rule.id, outcome=Outcome.NOT_RUN, detail=said)
        request = msgspec.json.encode(Wanted(found.rule.id, condition.name))
        replies = group.ranks.ask(request, LIMIT, lambda answer: _execution(answer).outcome is not Outcome.PASS)
    done = [_of(reply, found) for reply in replies]
    bad = next((place for place, each in enumerate(done) if each.outcome is not Outcome.PASS), None)
    if bad is None:
        return done[[reply.rank for reply in replies].index(0)]
    return msgspec.structs.replace(done[bad], detail=f"rank {replies[bad].rank}: {done[bad].detail}")


def close() -> None:
    """End the ranks, if there are any."""
    global _group  # noqa: PLW0603 - one group is kept for the whole process
    if _group:
        _group.ranks.close()
    _group = None


atexit.register(close)


def _fitting(found: Registered, backend: Backend, execute: Execute) -> _Group:
    global _group  # noqa: PLW0603 - one group is kept for the whole process
    if _group is None or not _group.fits(found, backend):
        close()
        _group = _Group(found, backend, execute)
    return _group


def _late(found: Registered, backend: Backend) -> set[str]:
    modules = getattr(backend, "imports_late", {})
    return {modules[need] for need in map(Capability, found.rule.needs) if need in modules}


def _of(reply: Reply, found: Registered) -> Execution:
    if reply.answer:
        return _execution(reply.answer)
    return Execution(
        rule=found.rule.id, outcome=reply.outcome, detail=reply.detail, where=reply.where, stderr=reply.stderr
    )


def _execution(answer: bytes) -> Execution:
    return msgspec.json.decode(answer, type=Execution)
