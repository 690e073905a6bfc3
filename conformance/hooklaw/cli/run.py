"""Judge one or several backends by the rules, and say what holds.

Every rule runs in a worker process that may crash or hang without taking the run with it; --in-process does without.

Examples:
    hooklaw run --backend reference -k order --results=order.jsonl
    hooklaw run --backend torch-eager -k "retain-grad and not MAY" --condition float64
"""

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from hooklaw.backend import loading
from hooklaw.backend.conditions import ALL, CONDITIONS, find_condition
from hooklaw.cli import complain, outputs, say, summary
from hooklaw.cli.last_failed import Failed, failed_in_file, remember, remembered
from hooklaw.cli.options import RULES_BY, add_imports, add_limit, add_selection, positive
from hooklaw.cli.progress import StatusLine
from hooklaw.errors import HooklawError
from hooklaw.law.rule import RULES_PACKAGE, Rule
from hooklaw.results.recorder import Subject
from hooklaw.results.records import Result, Run, Writer
from hooklaw.results.shards import part
from hooklaw.results.summary import counted
from hooklaw.results.text import printable, printable_lines
from hooklaw.results.verdict import Exit, Outcome, worst
from hooklaw.runner.session import Session, Wanted, judge
from hooklaw.workers.watchdog import RULE_LIMIT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--backend", action="append", metavar="NAME[:ARG]", help="repeatable; default torch-eager")
    add_selection(parser, RULES_BY)
    parser.add_argument(
        "--condition",
        dest="conditions",
        action="append",
        default=[],
        metavar="NAME",
        help="repeatable: what should make no difference, e.g. float16, strided, thread; all for each in turn",
    )
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="one of N shards of the rules, by their ids")
    parser.add_argument(
        "--last-failed",
        nargs="?",
        const="",
        metavar="FILE",
        help="only the rules that failed in the last run here, or in the run of a record; all if none failed",
    )
    parser.add_argument("-j", "--jobs", type=positive, default=1, metavar="N", help="run rules in N workers")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, and the verdicts alone")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep the records (JSON lines)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="leave an HTML report")
    add_imports(parser)
    parser.add_argument("--expectations", default="", metavar="FILE", help="instead of the backend's own file")
    parser.add_argument(
        "--in-process", action="store_true", help="no containment: faster by a process, ends at a crash"
    )
    add_limit(parser, RULE_LIMIT, "limit of one rule")
    parser.add_argument(
        "--probe-unsupported", action="store_true", help="run what the backend denies, and name what holds"
    )
    parser.add_argument(
        "--allow-not-run",
        action="store_true",
        help="let a backend be judged by nothing, e.g. for hardware that is absent",
    )
    parser.add_argument("--rules", default=RULES_PACKAGE, metavar="PACKAGE", help="other rules than hooklaw's own")
    parser.add_argument("--format", choices=summary.FORMATS, default="text")
    outputs.add_outputs(parser)


def main(args: argparse.Namespace) -> int:
    """Judge, print the summary, and return the exit code."""
    backends: list[str] = args.backend or ["torch-eager"]
    _conditions(args.conditions)
    args.part = part(args.shard)
    _refuse_mistakes(backends, args)
    failed = _last_failed(backends, args)
    with Writer(args.results) if args.results else nullcontext() as writer:
        sessions = list(_sessions([spec for spec in backends if failed is None or failed[spec]], args, failed, writer))
    runs = [session.run for session in sessions if session.run]
    ended = worst(session.exit for session in sessions)
    remember(runs, args.rules)
    say(summary.render(runs, args.format, quiet=args.quiet) if runs else "")
    sys.stderr.write(printable_lines(_why_broken(sessions)))
    outputs.write(args, runs, _broken(sessions), ended)
    if args.report and runs and not runs[-1].interrupted:
        _report(args.report, runs)
    return ended.code


Failures = dict[str, Failed]


def _last_failed(backends: Sequence[str], args: argparse.Namespace) -> Failures | None:
    """Return what failed before on each backend, or None where all rules are to be run."""
    if args.last_failed is None:
        return None
    file = args.last_failed and Path(args.last_failed)
    before = {spec: failed_in_file(file, spec) if file else remembered(spec, args.rules) for spec in backends}
    found = {
        spec: {condition: ids for condition, ids in failed.items() if condition in _conditions(args.conditions)}
        for spec, failed in before.items()
    }
    if any(found.values()):
        return found
    sys.stderr.write("nothing is known to have failed in the last run: all rules are run\n")
    return None


def _sessions(
    backends: Sequence[str], args: argparse.Namespace, failed: Failures | None, writer: Writer | None
) -> Iterator[Session]:
    for spec in backends:
        for session in _judge(spec, args, None if failed is None else failed[spec], writer):
            yield session
            if session.run and session.run.interrupted:
                return


def _refuse_mistakes(backends: Sequence[str], args: argparse.Namespace) -> None:
    """Know before anything runs what would spoil the run's end."""
    for spec in backends:
        loading.resolve(spec)
    if len(set(backends)) < len(backends):
        raise HooklawError("a backend is named twice: name each once")
    if args.in_process and args.jobs > 1:
        raise HooklawError("--in-process has no workers, and --jobs asks for several: leave one of them out")
    report = {"report": args.report} if args.report else {}
    outputs.refuse_mistakes({"results": args.results} if args.results else {}, report | outputs.files(args))


def _why_broken(sessions: Sequence[Session]) -> str:
    """Return in a sentence or more why the exit code is 3, if it is."""
    runs = [session.run for session in sessions if session.run]
    if runs and runs[-1].interrupted:
        done, all_ = len(runs[-1].results), runs[-1].header.collected
        return f"hooklaw: interrupted, {done} of {all_} rules on {runs[-1].header.backend!r} have a result\n"
    broken = [result for run in runs for result in run.results.values() if result.outcome is Outcome.ERROR]
    if not broken:
        return "".join(_why_idle(session.run) for session in sessions if session.run and session.exit is Exit.BROKEN)
    first = broken[0]
    where = f"{first.rule} first: {first.detail} ({first.where})"
    return f"hooklaw: {counted(len(broken), 'rule')} could not be judged, {where}\n"


def _broken(sessions: Sequence[Session]) -> dict[str, str]:
    """Return why nothing was judged, by what was to be judged."""
    broken = {session.backend: session.error for session in sessions if session.error}
    runs = [each.run for each in sessions if each.run and each.exit is Exit.BROKEN]
    idle = [run for run in runs if not run.interrupted and not run.count()[1]]
    return broken | {run.header.subject: _why_idle(run).removeprefix("hooklaw: ").strip() for run in idle}


def _why_idle(run: Run) -> str:
    head = run.header
    why = head.not_run or ", ".join(sorted({result.outcome for result in run.results.values()})) or "no rule is left"
    what = f"{head.subject} cannot be judged here" if head.not_run else f"nothing was judged on {head.subject}"
    return f"hooklaw: {printable(f'{what}: {why}')}; if that is as it should be, say --allow-not-run\n"


def _judge(spec: str, args: argparse.Namespace, failed: Failed | None, writer: Writer | None) -> Iterator[Session]:
    wanted = Wanted(
        backend=spec,
        conditions=_conditions(args.conditions),
        selection=args.selection,
        part=args.part,
        failed=failed,
        jobs=args.jobs,
        rules=args.rules,
        imports=args.imports,
        expectations=args.expectations and str(Path(args.expectations).absolute()),
        limit=args.limit,
        contained=not args.in_process,
        probe_unsupported=args.probe_unsupported,
        allow_not_run=args.allow_not_run,
    )
    progress = RunProgress(spec, quiet=args.quiet)
    try:
        yield from judge(wanted, writer, on_start=progress.start, on_result=progress.step)
    except HooklawError as error:
        complain(error)
        yield Session(None, Exit.BROKEN, spec, str(error))
    finally:
        progress.end()


def _conditions(names: Sequence[str]) -> list[str]:
    """Return the conditions to run under, after a run without any for `all`."""
    if ALL in names:
        return ["", *CONDITIONS]
    return [find_condition(name).name for name in dict.fromkeys(names)] or [""]


def _report(report: Path, runs: list[Run]) -> None:
    if not all(run.complete for run in runs):
        sys.stderr.write("hooklaw: no report was made, since a run is incomplete\n")
        return
    importlib.import_module("hooklaw_reports.cli").write(report, runs)  # by name: the law does not import the reports


class RunProgress(StatusLine):
    """One line on a terminal that names the rule that was judged last; elsewhere nothing."""

    def __init__(self, spec: str, *, quiet: bool = False) -> None:
        super().__init__()
        self._spec, self._quiet = spec, quiet
        self._done = self._all = 0

    def start(self, subject: Subject, rules: Sequence[Rule]) -> None:
        """Learn how much there is to do; where nothing can be judged, there is nothing to show."""
        self._done, self._all = 0, 0 if subject.not_run else len(rules)
        self._name = f"{self._spec} under {subject.condition}" if subject.condition else self._spec

    def step(self, result: Result) -> None:
        """Show that another rule is done."""
        self._done += 1
        if self._all and not self._quiet:
            self.update(f"{self._name}: {self._done}/{self._all} {result.rule}")

    def end(self) -> None:
        """Clear the line, if there is one."""
        if self._done and self._all and not self._quiet:
            super().end()
