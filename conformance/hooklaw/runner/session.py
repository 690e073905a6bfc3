"""A session of the command line: one backend judged by the rules."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from hooklaw.errors import UnknownRuleError
from hooklaw.law.collection import files
from hooklaw.law.rule import RULES_PACKAGE, Rule
from hooklaw.law.selection import Catalogue, Expression, Places, places
from hooklaw.results.recorder import Recorder, Subject
from hooklaw.results.records import Execution, Result, Run, Writer
from hooklaw.results.shards import Part
from hooklaw.results.summary import exit_of_run
from hooklaw.results.verdict import Exit, Outcome
from hooklaw.runner.executor import Executor, executor, keep_hypothesis_out_of_here, keep_threads_from_spinning
from hooklaw.runner.side_by_side import Execute, executed
from hooklaw.runner.worker import Listed, RuleSettings
from hooklaw.workers.watchdog import RULE_LIMIT


class Wanted(RuleSettings, frozen=True, kw_only=True):
    """What a session judges, and how."""

    conditions: Sequence[str] = ("",)
    """The conditions under which the rules run one after the other; an empty name is none."""
    selection: str = ""
    allow_not_run: bool = False
    """Whether a run may judge nothing."""
    only: str = ""
    """The id of a rule, where one rule alone is judged."""
    part: Part = Part()
    """The shard of the run that is executed; by default the whole."""
    failed: Mapping[str, Sequence[str]] | None = None
    """By condition the ids of the rules that failed before, where these alone are judged."""
    jobs: int = 1
    """How many workers execute rules side by side."""
    rules: str = RULES_PACKAGE
    limit: float = RULE_LIMIT


class Session(msgspec.Struct):
    """How a session ended."""

    run: Run | None
    exit: Exit
    backend: str = ""
    error: str = ""
    """Why the backend could not be judged."""


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
    if wanted.selection.strip():
        Expression(wanted.selection)  # refused before a backend is loaded
    files(wanted.rules)
    keep_hypothesis_out_of_here()
    keep_threads_from_spinning()
    made = [executor(wanted, wanted.limit) for _ in range(wanted.jobs)]
    try:
        made[0].start()
        subject, listed = made[0].collect([wanted.rules])
        chosen = _chosen(wanted, listed)
        if not chosen:
            raise UnknownRuleError("the selection matches no rule: `hooklaw list` shows all ids, chapters and levels")
        for condition in _conditions(wanted, chosen):
            there = [found for found in _under(condition, wanted, chosen) if wanted.part.takes(found.rule.id)]
            shard = wanted.part.shard_of([found.rule for found in _under(condition, wanted, chosen)])
            under, rules = subject.under(condition), [found.rule for found in there]
            recorder = Recorder(under, rules, writer=writer, selection=_selection(wanted), shard=shard)
            on_start(under, rules)
            may_idle = wanted.allow_not_run or _may_idle(wanted, under)
            executions = executed(_execute(subject, condition), _deadly_last(there, under), made)
            run = _run(executions, recorder, on_result)
            yield Session(run, Exit.BROKEN if run.interrupted else exit_of_run(run, allow_not_run=may_idle))
            if recorder.run.interrupted:
                return
    finally:
        for each in made:
            each.close()


def _conditions(wanted: Wanted, chosen: Sequence[Listed]) -> Sequence[str]:
    """Return the conditions under which there is something to judge."""
    if wanted.failed is None:
        return wanted.conditions
    found = [condition for condition in wanted.conditions if _under(condition, wanted, chosen)]
    if not found:
        raise UnknownRuleError("no rule that failed before is among the chosen ones: run without --last-failed")
    return found


def _under(condition: str, wanted: Wanted, chosen: Sequence[Listed]) -> list[Listed]:
    """Return the chosen rules that are judged under a condition."""
    there = [found for found in chosen if condition not in found.rule.except_under]
    if wanted.failed is None:
        return there
    failed = set(wanted.failed.get(condition, ()))
    return [found for found in there if found.rule.id in failed]


def _selection(wanted: Wanted) -> str:
    return " ".join(filter(None, [wanted.selection, "" if wanted.failed is None else "(last failed)"]))


def _may_idle(wanted: Wanted, subject: Subject) -> bool:
    """Whether a part of what was asked for may judge nothing: a shard, or a condition beside the run without one."""
    beside = bool(subject.condition) and "" in wanted.conditions
    return beside or (wanted.part.count > 1 and not subject.not_run)


def _deadly_last(chosen: Sequence[Listed], subject: Subject) -> list[Listed]:
    """Put last the rules that are known to end the process, so that no worker is replaced for them."""
    return sorted(chosen, key=lambda found: subject.ends_process(found.rule.id))


def _execute(subject: Subject, condition: str) -> Execute:
    """Return what executes a rule under a condition; one that ends the process without it is not run again there."""
    not_run = subject.under(condition).not_run

    def execute(made: Executor, listed: Listed) -> Execution:
        why = not_run or (condition and subject.ends_process(listed.rule.id) and ENDS)
        if why:
            return Execution(rule=listed.rule.id, outcome=Outcome.NOT_RUN, detail=why)
        return made.execute(listed, condition)

    return execute


ENDS = "known to end the process, which is shown without a condition"


def _run(executions: Iterator[Execution], recorder: Recorder, on_result: Callable[[Result], None]) -> Run:
    with suppress(KeyboardInterrupt), recorder:
        for execution in executions:
            on_result(recorder.add(execution))
    return recorder.run


def _chosen(wanted: Wanted, listed: Sequence[Listed]) -> list[Listed]:
    if wanted.only:
        return [found for found in listed if found.rule.id == wanted.only]
    return Catalogue(listed, _places).select(wanted.selection) if listed else []


def _places(listed: Listed) -> Places:
    return places(listed.rule, listed.function, listed.module)
