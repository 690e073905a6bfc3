"""Judging a backend in this process, for notebooks and for other people's tests."""

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from hooklaw.backend import loading
from hooklaw.backend.check import check_contract
from hooklaw.law.rule import RULES_PACKAGE
from hooklaw.law.selection import Catalogue, places
from hooklaw.results.recorder import Recorder
from hooklaw.results.records import Execution, Result, Run
from hooklaw.results.summary import exit_of_run, of_verdict, sentence
from hooklaw.results.verdict import Exit, Outcome, Verdict
from hooklaw.runner.executor import keep_hypothesis_out_of_here
from hooklaw.runner.worker import Listed, RuleService, RuleSettings, Try

ENDS = "known to end the process, and nothing contains it here"


class Judged:
    """What came of the rules; ``print(judged)`` says it in words."""

    def __init__(self, run: Run) -> None:
        self.run = run
        """The run as a record has it."""

    @property
    def results(self) -> dict[str, Result]:
        """Return the results by the ids of the rules."""
        return self.run.results

    @property
    def regressions(self) -> list[Result]:
        """Return the results of MUST and SHOULD rules that do not hold and are not known divergences."""
        return [self.results[rule] for rule in of_verdict(self.run, Verdict.REGRESSION)]

    @property
    def ok(self) -> bool:
        """Whether all is as expected: `hooklaw run` would exit with 0."""
        return exit_of_run(self.run) is Exit.OK

    def __str__(self) -> str:
        lines = [f"{self.run.header.subject}: {sentence(self.run)}"]
        for result in self.regressions:
            where = f"  [{result.where}]" if result.where else ""
            lines += [f"  {result.outcome.upper():8} {result.rule}", f"           {result.detail}{where}"]
        return "\n".join(lines)

    __repr__ = __str__


def judge(backend: Any, rules: str | Sequence[str] = "", *, condition: str = "") -> Judged:
    """Judge a backend in this process by the selected rules; raises HooklawError where that is not possible."""
    made = loading.load(backend) if isinstance(backend, str) else backend
    name = backend if isinstance(backend, str) else str(getattr(made, "name", type(made).__name__))
    check_contract(made, name)
    with _as_before():
        service = RuleService(RuleSettings(backend=name, contained=False), made)
        collected = service.collect([RULES_PACKAGE])
        subject = collected.subject.under(condition)
        chosen = [each for each in _selected(collected.rules, rules) if condition not in each.rule.except_under]
        recorder = Recorder(subject, [each.rule for each in chosen])
        with recorder:
            for each in chosen:
                recorder.add(_executed(service, each, subject.ends_process(each.rule.id), condition))
        getattr(made, "reset", lambda: None)()
    return Judged(recorder.run)


def _selected(listed: Sequence[Listed], rules: str | Sequence[str]) -> list[Listed]:
    expressions = [rules] if isinstance(rules, str) else [" or ".join(rules)]
    catalogue = Catalogue(listed, lambda each: places(each.rule, each.function, each.module))
    return catalogue.select(*expressions)


def _executed(service: RuleService, listed: Listed, ends: bool, condition: str) -> Execution:  # noqa: FBT001 - a fact
    if ends:
        return Execution(rule=listed.rule.id, outcome=Outcome.NOT_RUN, detail=ENDS)
    return service.execute(Try(listed.rule.id, listed.file, condition))


@contextmanager
def _as_before() -> Generator[None]:
    """Leave the garbage collector and Hypothesis as they were."""
    from hypothesis import settings  # noqa: PLC0415 - rules alone need it

    keep_hypothesis_out_of_here()
    on, thresholds, before = gc.isenabled(), gc.get_threshold(), settings.default
    try:
        yield
    finally:
        settings.register_profile("before hooklaw", parent=before)
        settings.load_profile("before hooklaw")
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        (gc.enable if on else gc.disable)()
