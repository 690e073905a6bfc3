"""Measure what offload strategies cost in time and spare in memory, and say which one fits in how much.

A strategy is a shipped name, parts joined by + (checkpoint:4+disk-raw), or module:attribute of your own. Each round
takes the plain step and the strategy's. A strategy that breaks gives a marked cell, and exit code 1.
`hooklaw bench compare OLD NEW` compares two result files: exit code 1 if a cell got worse.

Example:
    hooklaw bench --workload tiny --strategy hook-only --rounds 2
"""

import argparse
import importlib
import os
import sys
from pathlib import Path

from hooklaw.cli import complain, say
from hooklaw.cli.options import add_imports, add_limit, batch, percent, rounds
from hooklaw.cli.progress import StatusLine
from hooklaw.errors import BenchError, OutputError
from hooklaw.offload import comparing, packer_verdicts, running, wording
from hooklaw.offload.benchmark import BenchmarkRun
from hooklaw.offload.plan import CLOCKS, LIMIT, MOST_ROUNDS, PRECISIONS, ROUNDS, STRATEGIES, WORKLOADS, Plan, quick
from hooklaw.results.output import make_room, output_errors
from hooklaw.results.records import Cell, Run
from hooklaw.results.verdict import Exit, Outcome

DEVICES = ("cpu", "cuda")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("words", nargs="*", metavar="compare OLD NEW", help="compare two result files instead")
    parser.add_argument("--workload", action="append", default=[], metavar="NAME", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument(
        "--strategy", action="append", default=[], metavar="SPEC", help="repeatable; default all shipped"
    )
    parser.add_argument("--strategies", default=STRATEGIES, metavar="MODULE", help="instead of hooklaw's own")
    add_imports(parser)
    parser.add_argument("--device", default="cpu", choices=DEVICES)
    parser.add_argument("--precision", action="append", default=[], choices=PRECISIONS, help="repeatable; default fp32")
    parser.add_argument("--batch", type=batch, default=0, metavar="N", help="samples; the workload's own unless given")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: processor time, for a busy machine")
    parser.add_argument("--quick", action="store_true", help="few strategies and few rounds: a first look")
    default = f"default {ROUNDS}, and up to {MOST_ROUNDS} where the ratio is unsure"
    parser.add_argument("--rounds", type=rounds, metavar="N", help=f"of each cell; {default}")
    add_limit(parser, LIMIT, "limit of one cell")
    parser.add_argument(
        "--law",
        nargs="?",
        const="",
        metavar="FILE",
        help="judge each packer by `hooklaw packer` first, or take the verdicts of this results file",
    )
    parser.add_argument("--resume", action="store_true", help="keep the cells that the results file has already")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep the records (JSON lines)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="leave an HTML report")
    parser.add_argument("--json", type=Path, metavar="FILE", help="leave pytest-benchmark's JSON")
    parser.add_argument("--tolerance", type=percent, default=comparing.TOLERANCE, metavar="PERCENT", help="of compare")
    parser.add_argument("--format", choices=wording.FORMATS, default="text")


def main(args: argparse.Namespace) -> int:
    """Measure or compare, print, and return the exit code."""
    if args.words:
        return _compare(args)
    _refuse_mistakes(args)
    progress = BenchmarkProgress()
    try:
        run, left = _measure(args, args.results, progress)
        progress.end()
        say(wording.render(run, args.format))
        if args.report and run.complete:
            reports = importlib.import_module("hooklaw_reports.cli")  # by name: the law does not import the reports
            reports.write(args.report, [run])
    finally:
        progress.end()
    return _exit(run, left).code


def _compare(args: argparse.Namespace) -> int:
    words: list[str] = args.words
    if words[0] != "compare" or len(words) != 3:  # noqa: PLR2004 - the word and two files
        raise BenchError(f"{' '.join(words)!r} is not understood: write `hooklaw bench compare OLD NEW`")
    old, new = (comparing.load(Path(name)) for name in words[1:])
    found = comparing.compare(old, new, args.tolerance)
    say(comparing.render(found, args.format))
    if found.warning:
        complain(found.warning)
    return (Exit.REGRESSION if found.worse else Exit.OK).code


def _measure(args: argparse.Namespace, results: Path | None, progress: "BenchmarkProgress") -> tuple[Run, int]:
    plan = Plan(
        workloads=tuple(args.workload),
        strategies=tuple(args.strategy),
        device=args.device,
        precisions=tuple(args.precision) or ("fp32",),
        batch=args.batch,
        clock=args.clock,
        rounds=args.rounds or ROUNDS,
        most=0 if args.rounds else MOST_ROUNDS,
        limit=args.limit,
        module=args.strategies,
        imports=tuple(args.imports),
    )
    plan = quick(plan) if args.quick else plan
    with BenchmarkRun(plan, results, on_cell=progress.step) as benchmark:
        if args.law is not None:
            benchmark.lawful = packer_verdicts.verdicts(benchmark.packers, args.law, progress.say)
        if args.resume:
            benchmark.resume()
        progress.start(benchmark)
        return running.run(benchmark, args.json), len(benchmark.left())


def _exit(run: Run, left: int) -> Exit:
    if not run.complete:
        begun = len(run.cells) + left - run.header.collected
        done = f"{run.header.collected - left} of {run.header.collected} cells are measured"
        done += f", {begun} in part" if begun else ""
        sys.stderr.write(f"hooklaw: interrupted, {done}; --resume goes on from the results file\n")
        return Exit.BROKEN
    return Exit.OK if all(cell.outcome is Outcome.PASS for cell in run.cells) else Exit.REGRESSION


def _refuse_mistakes(args: argparse.Namespace) -> None:
    """Raise what would spoil the end of the run, before it begins."""
    if args.resume and not args.results:
        raise BenchError("--resume goes on from a results file: name it with --results=FILE")
    named = {"--results": args.results, "--report": args.report, "--json": args.json}
    paths = [path.resolve() for path in named.values() if path]
    if len(set(paths)) < len(paths):
        raise OutputError("two of --results, --report and --json name the same file: name different ones")
    for option, path in named.items():
        with output_errors(f"write to {path}", f"; name another file with {option}=FILE"):
            if path:
                make_room(path)


class BenchmarkProgress(StatusLine):
    """Names each cell that is done and, on a terminal, each visit to a cell; pytest does not capture it."""

    def __init__(self) -> None:
        super().__init__(os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace"))
        self._all = self._done = self._visits = 0

    def start(self, benchmark: BenchmarkRun) -> None:
        """Show how much there is to do."""
        plan = benchmark.plan
        self._all, self._visits = len(benchmark.cells), plan.visits
        self._done = self._all - len(benchmark.left())
        self.say(f"{self._all} cells, {plan.span} rounds each, on {plan.device}")

    def step(self, cell: Cell, visit: int) -> None:
        """Show that a cell is done or, on a terminal, that it was visited."""
        over = visit + 1 == self._visits or cell.outcome is not Outcome.PASS
        self._done += over
        came = f"{cell.ratio:.2f} x" if cell.outcome is Outcome.PASS else str(cell.outcome)
        which = "" if over else f", visit {visit + 1} of {self._visits}"
        if over or self._live:
            self.say(f"  {self._done:3}/{self._all} {cell.workload} {cell.strategy}: {came}{which}")

    def end(self) -> None:
        """Clear the line, once."""
        if not self._stream.closed:
            super().end()
        self._stream.close()
