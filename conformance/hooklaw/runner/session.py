"""A session of the command line: one backend judged by the rules."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from hooklaw.errors import UnknownRuleError
from hooklaw.law.collection import files
from hooklaw.law.rule import RULES_PACKAGE, Rule
from hooklaw.law.selection import matcher
from hooklaw.results.recorder import Recorder
from hooklaw.results.records import Result, Run, Writer
from hooklaw.results.summary import exit_of_run
from hooklaw.results.verdict import Exit
from hooklaw.runner.executor import Executor, executor, keep_hypothesis_out_of_here
from hooklaw.runner.worker import Listed, RuleSettings
from hooklaw.workers.watchdog import RULE_LIMIT


class Wanted(RuleSettings, frozen=True, kw_only=True):
    """What a session judges, and how."""

    selection: str = ""
    only: str = ""
    """The id of a rule, where one rule alone is judged."""
    rules: str = RULES_PACKAGE
    limit: float = RULE_LIMIT


class Session(msgspec.Struct):
    """How a session ended."""

    run: Run | None
    exit: Exit


def judge(
    wanted: Wanted,
    writer: Writer | None = None,
    *,
    on_start: Callable[[Sequence[Rule]], None] = lambda _: None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> Session:
    """Judge one backend, and write its run where a writer is given.

    Raises HooklawError with the one sentence that says why nothing could be judged, or KeyboardInterrupt.
    """
    is_wanted = matcher(wanted.selection)
    files(wanted.rules)
    keep_hypothesis_out_of_here()
    made = executor(wanted, wanted.limit)
    try:
        made.start()
        subject, listed = made.collect([wanted.rules])
        chosen = [
            found for found in listed if (found.rule.id == wanted.only if wanted.only else is_wanted(_names(found)))
        ]
        if not chosen:
            raise UnknownRuleError("the selection matches no rule: `hooklaw list` shows all ids, chapters and levels")
        rules = [found.rule for found in chosen]
        recorder = Recorder(subject, rules, writer=writer, selection=wanted.selection)
        on_start(rules)
        return _run(made, recorder, sorted(chosen, key=lambda found: subject.ends_process(found.rule.id)), on_result)
    finally:
        made.close()


def _run(made: Executor, recorder: Recorder, chosen: Sequence[Listed], on_result: Callable[[Result], None]) -> Session:
    """Run the rules; those known to end the process stand last, so that no worker is replaced for them."""
    with suppress(KeyboardInterrupt), recorder:
        for listed in chosen:
            on_result(recorder.add(made.execute(listed)))
    run = recorder.run
    return Session(run, Exit.BROKEN if run.interrupted else exit_of_run(run))


def _names(listed: Listed) -> list[str]:
    rule = listed.rule
    return [rule.id, rule.chapter, str(rule.level), listed.function, listed.module]
