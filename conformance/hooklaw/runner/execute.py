"""Executing one rule on one backend."""

import time
import warnings
from collections.abc import Callable

from hooklaw.backend.conditions import UNCHANGED, Condition
from hooklaw.backend.protocol import Backend
from hooklaw.law.rule import Registered, Rule
from hooklaw.law.trace import Trace
from hooklaw.results.records import Execution
from hooklaw.results.verdict import HOLDS_THOUGH_DENIED, Outcome
from hooklaw.runner import _classify


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
    Under a condition the rule is given the condition's backend, in the condition's surroundings.
    `on_error` is given the exception that the rule raised. A KeyboardInterrupt is passed on.
    """
    denied = _denied(found.rule, backend)
    if denied and not probe:
        return Execution(rule=found.rule.id, outcome=Outcome.UNSUPPORTED, detail=denied)
    if callable(reset := getattr(backend, "reset", None)):
        reset()
    given = condition.wrap(backend)
    trace = Trace(given)
    outcome, detail, where = Outcome.PASS, "", ""
    began = time.perf_counter()
    error = _error_of(lambda: condition.around(backend, trace, lambda: found.function(given, trace)))
    duration = round(time.perf_counter() - began, 5)
    if error:
        outcome, detail, where = _classify.classify(error, backend)
        on_error(error)
    if denied:
        word = HOLDS_THOUGH_DENIED if outcome is Outcome.PASS else "denied, and it does not hold: "
        outcome, detail, where = Outcome.UNSUPPORTED, word + denied, ""
    lanes = {name: getattr(trace, name) for name in ("expected", "observed", "checks", "difference")}
    return Execution(rule=found.rule.id, outcome=outcome, detail=detail, where=where, duration=duration, **lanes)


def _error_of(body: Callable[[], None]) -> BaseException | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            body()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - what it raises is what it does
        return error
    return None


def _denied(rule: Rule, backend: Backend) -> str:
    needs = [need for need in rule.needs if need not in backend.capabilities]
    return "; ".join(f"{need}: {backend.lacks.get(need, 'not declared')}" for need in needs)  # type: ignore[call-overload]
