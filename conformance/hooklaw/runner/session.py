"""A session of the command line: one backend judged by the rules."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec

from hooklaw.errors import UnknownRuleError
from hooklaw.law.collection import files
from hooklaw.law.rule import RULES_PACKAGE, Rule
from hooklaw.law.selection import matcher
from hooklaw.results.recorder import Recorder, Subject
from hooklaw.results.records import Execution, Result, Run, Writer
from hooklaw.results.summary import exit_of_run
from hooklaw.results.verdict import Exit, Outcome
from hooklaw.runner.executor import Executor, executor, keep_hypothesis_out_of_here
from hooklaw.runner.worker import Listed, RuleSettings
from hooklaw.workers.watchdog import RULE_LIMIT


class Wanted(RuleSettings, frozen=True, kw_only=True):
    """What a session judges, and how."""

    conditions: Sequence[str] = ("",)
    """The conditions under which the rules run one after the other; an empty name is none."""
    selection: str = ""
    only: str = ""
    """The id of a rule, where one rule alone is judged."""
    rules: str = RULES_PACKAGE
    limit: float = RULE_LIMIT


class Session(msgspec.Struct):
    """How a session ended."""

    run: Run | None
    exit: Exit


OnStart = Callable[[Subject, Sequence[Rule]], None]


def judge(
    wanted: Wanted,
    writer: Writer | None = None,
    *,
    on_start: OnStart = lambda *_: None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> Iterator[Session]:
    """Judge one backend under each condition, and write its runs where a writer is given.

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
        for condition in wanted.conditions:
            under = subject.under(condition)
            there = [found for found in chosen if condition not in found.rule.except_under]
            rules = [found.rule for found in there]
            recorder = Recorder(under, rules, writer=writer, selection=wanted.selection)
            on_start(under, rules)
            yield _run(_executes(made, subject, condition), recorder, _deadly_last(there, under), on_result)
            if recorder.run.interrupted:
                return
    finally:
        made.close()


def _deadly_last(chosen: Sequence[Listed], subject: Subject) -> list[Listed]:
    """Put last the rules that are known to end the process, so that no worker is replaced for them."""
    return sorted(chosen, key=lambda found: subject.ends_process(found.rule.id))


def _executes(made: Executor, subject: Subject, condition: str) -> Callable[[Listed], Execution]:
    """Return what executes a rule under a condition; one that ends the process without it is not run again there."""
    not_run = subject.under(condition).not_run

    def execute(listed: Listed) -> Execution:
        why = not_run or (condition and subject.ends_process(listed.rule.id) and ENDS)
        if why:
            return Execution(rule=listed.rule.id, outcome=Outcome.NOT_RUN, detail=why)
        return made.execute(listed, condition)

    return execute


ENDS = "known to end the process, which is shown without a condition"


def _run(
    execute: Callable[[Listed], Execution],
    recorder: Recorder,
    chosen: Sequence[Listed],
    on_result: Callable[[Result], None],
) -> Session:
    with suppress(KeyboardInterrupt), recorder:
        for listed in chosen:
            on_result(recorder.add(execute(listed)))
    run = recorder.run
    return Session(run, Exit.BROKEN if run.interrupted else exit_of_run(run))


def _names(listed: Listed) -> list[str]:
    rule = listed.rule
    return [rule.id, rule.chapter, str(rule.level), listed.function, listed.module]
