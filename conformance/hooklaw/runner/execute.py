"""Executing one rule on one backend."""

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import msgspec

from hooklaw.backend.conditions import UNCHANGED, Condition
from hooklaw.backend.protocol import Backend, Capability
from hooklaw.errors import is_users_interrupt
from hooklaw.law.rule import Registered, Rule
from hooklaw.law.trace import Trace
from hooklaw.results.records import Execution
from hooklaw.results.verdict import FAILS_AS_DENIED, HOLDS_THOUGH_DENIED, Outcome
from hooklaw.runner import _classify, examples, in_ranks


def execute(
    found: Registered,
    backend: Backend,
    *,
    condition: Condition = UNCHANGED,
    probe: bool = False,
    on_error: Callable[[BaseException], None] = lambda _: None,
) -> Execution:
    """Execute a rule on a backend; every other way to run a rule goes through here.

    A rule that needs what the backend lacks is unsupported, and runs only to `probe` whether it holds all the same.
    A rule of several processes is executed in each of them, and is not probed on a backend that has no ranks.
    Under a condition the rule is given the condition's backend, in the condition's surroundings.
    `on_error` is given the exception that the rule raised. The user's Ctrl-C is passed on.
    """
    denied = lacking(found.rule, backend)
    if denied and not (probe and _can_start(found.rule, backend)):
        return Execution(rule=found.rule.id, outcome=Outcome.UNSUPPORTED, detail=denied)
    if found.rule.processes:
        done = in_ranks.execute_in_ranks(found, backend, condition, _execute_here)
    else:
        done = _execute_here(found, backend, condition, on_error)
    if denied:
        word = HOLDS_THOUGH_DENIED if done.outcome is Outcome.PASS else FAILS_AS_DENIED
        return msgspec.structs.replace(done, outcome=Outcome.UNSUPPORTED, detail=word + denied, where="")
    return done


def _execute_here(
    found: Registered,
    backend: Backend,
    condition: Condition,
    on_error: Callable[[BaseException], None] = lambda _: None,
) -> Execution:
    if callable(reset := getattr(backend, "reset", None)):
        reset()
    given = condition.wrap(backend)
    trace = Trace(given)
    outcome, detail, where = Outcome.PASS, "", ""
    began = time.perf_counter()
    body = partial(examples.run, found.function, given, trace)
    error = _error_of(lambda: condition.around(backend, trace, body), backend)
    duration = round(time.perf_counter() - began, 5)
    if error:
        outcome, detail, where = _classify.classify(error, backend)
        on_error(error)
    lanes = {name: getattr(trace, name) for name in ("expected", "observed", "checks", "difference")}
    return Execution(rule=found.rule.id, outcome=outcome, detail=detail, where=where, duration=duration, **lanes)


def _error_of(body: Callable[[], None], backend: Backend) -> BaseException | None:
    surroundings = getattr(backend, "surroundings", nullcontext)
    try:
        with warnings.catch_warnings(action="ignore"), surroundings():
            body()
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        return error
    return None


def _can_start(rule: Rule, backend: Backend) -> bool:
    """Whether a backend has the ranks that a rule takes, if it takes any: in one process it may hold by itself."""
    return not rule.processes or Capability.PROCESSES in backend.capabilities


def lacking(rule: Rule, backend: Backend) -> str:
    """Return what the backend lacks of what a rule needs, and why, or an empty text."""
    needs = [need for need in rule.needs if need not in backend.capabilities]
    return "; ".join(f"{need}: {backend.lacks.get(need, 'not declared')}" for need in needs)  # type: ignore[call-overload]
