"""A rule of several processes, executed in each rank of a group, with one outcome: that of the rank that failed first.

Where others failed in the same way, the lowest of them stands for all, so that two runs say the same.

The ranks are forked from the process that has the backend, so they have it too, and are kept for the next rule. Where
a rule failed they are kept if they are still in step: an all-reduce by all of them gives the sum.
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
STEP_LIMIT = 2.0
"""Seconds that an all-reduce may take by which ranks show that they are in step."""
Execute = Callable[[Registered, Backend, Condition], Execution]


class Wanted(msgspec.Struct):
    """A request to every rank: a rule, or without its id whether the ranks are in step."""

    rule: str
    condition: str


class _Group:
    """The ranks in which one backend is judged, and what they know since they were forked."""

    def __init__(self, found: Registered, backend: Backend, execute: Execute) -> None:
        self.backend, self.size, self.late = backend, found.rule.processes, _late(found, backend)
        self._rules = {each.rule.id: each for each in registered()} | {found.rule.id: found}
        self._execute = execute
        self._joined = False
        self._suspect = False
        self.ranks = Ranks(self.size, self._work)

    def fits(self, found: Registered) -> bool:
        """Whether these ranks can execute a rule."""
        known = self._rules.get(found.rule.id) is found and _late(found, self.backend) <= self.late
        return known and self.ranks.is_whole() and self._is_in_step()

    def ask(self, wanted: Wanted, limit: float) -> list[Reply]:
        """Have every rank do what is wanted; where it failed in one, the ranks are suspect."""
        replies = self.ranks.ask(msgspec.json.encode(wanted), limit, _has_failed)
        self._suspect = any(not reply.answer or _has_failed(reply.answer) for reply in replies)
        return replies

    def _is_in_step(self) -> bool:
        """Whether no rank waits, or will, for what another did not do in a rule that failed."""
        if self._suspect:
            self.ask(Wanted("", ""), STEP_LIMIT)
        return not self._suspect

    def _work(self, rank: int, request: bytes, store: str) -> bytes:
        """Do what is wanted, in a rank."""
        wanted = msgspec.json.decode(request, type=Wanted)
        done = self._execution(rank, wanted, store) if wanted.rule else self._step(rank)
        gc.collect(1)
        return encoded(done)

    def _execution(self, rank: int, wanted: Wanted, store: str) -> Execution:
        found, condition = self._rules[wanted.rule], find_condition(wanted.condition)
        try:
            if not self._joined:
                self.backend.init_process_group(rank, self.size, store)
                self._joined = True
            return self._execute(found, self.backend, condition)
        except NotRunError as reason:
            return Execution(rule=wanted.rule, outcome=Outcome.NOT_RUN, detail=str(reason))
        except Exception as error:  # noqa: BLE001 - the group was not made, whoever is to blame
            said = f"{type(error).__name__}: {error}"
            return Execution(rule=wanted.rule, outcome=Outcome.ERROR, detail=f"no process group was made: {said}")

    def _step(self, rank: int) -> Execution:
        """Take part in an all-reduce: a rank that is behind or ahead gets no sum, or another one."""
        try:
            number = self.backend.tensor([rank + 1.0])
            self.backend.all_reduce(number)
            right = self.backend.tolist(number) == [sum(range(1, self.size + 1))]
        except Exception:  # noqa: BLE001 - whatever it was, the group is of no more use
            right = False
        return Execution(rule="", outcome=Outcome.PASS if right else Outcome.FAIL)


_groups: dict[int, _Group] = {}
"""The groups that are kept, all of one backend, by the number of their ranks."""
_one_at_a_time = threading.Lock()


def execute_in_ranks(found: Registered, backend: Backend, condition: Condition, execute: Execute) -> Execution:
    """Have every rank execute a rule; the lanes are those of the first rank, or of the rank that failed."""
    for module in _late(found, backend):
        importlib.import_module(module)  # once, not once in each rank
    heap.settle()  # or each rank would copy what a collection of its own looks through
    with _one_at_a_time:
        try:
            group = _fitting(found, backend, execute)
        except OSError as error:
            said = f"{found.rule.processes} processes cannot be started here: {error}"
            return Execution(rule=found.rule.id, outcome=Outcome.NOT_RUN, detail=said)
        replies = group.ask(Wanted(found.rule.id, condition.name), LIMIT)
    done = {reply.rank: _of(reply, found) for reply in replies}
    first = next((each for each in done.values() if each.outcome is not Outcome.PASS), None)
    if first is None:
        return done[0]
    alike = min(rank for rank, each in done.items() if (each.outcome, each.detail) == (first.outcome, first.detail))
    return msgspec.structs.replace(done[alike], detail=f"rank {alike}: {first.detail}")


def close() -> None:
    """End the ranks, if there are any."""
    while _groups:
        _groups.popitem()[1].ranks.close()


atexit.register(close)


def _fitting(found: Registered, backend: Backend, execute: Execute) -> _Group:
    size = found.rule.processes
    if any(group.backend is not backend for group in _groups.values()):
        close()
    if (group := _groups.get(size)) and not group.fits(found):
        group.ranks.close()
        del _groups[size]
    if size not in _groups:
        _groups[size] = _Group(found, backend, execute)
    return _groups[size]


def _late(found: Registered, backend: Backend) -> set[str]:
    modules = getattr(backend, "imports_late", {})
    return {modules[need] for need in map(Capability, found.rule.needs) if need in modules}


def _of(reply: Reply, found: Registered) -> Execution:
    if reply.answer:
        return _execution(reply.answer)
    return Execution(
        rule=found.rule.id, outcome=reply.outcome, detail=reply.detail, where=reply.where, stderr=reply.stderr
    )


def _has_failed(answer: bytes) -> bool:
    return _execution(answer).outcome is not Outcome.PASS


def _execution(answer: bytes) -> Execution:
    return msgspec.json.decode(answer, type=Execution)
