"""Make one HTML file of result files: verdicts, the matrix of rules and backends, and what each rule saw.

Packers have a page of their own, and so does offloading: the time and memory that `hooklaw bench` measured.

Example:
    hooklaw run --backend reference -k order --results=order.jsonl
    hooklaw report order.jsonl -o order.html
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hooklaw.errors import OutputError
from hooklaw.results.records import Run, read, read_all
from hooklaw.results.verdict import Exit
from hooklaw_reports import html
from hooklaw_reports.page import build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file from `hooklaw run --results=FILE`")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="REPORT", help="report.html")
    parser.add_argument("--title", default="", metavar="TEXT", help="the page's heading")


def main(args: argparse.Namespace) -> int:
    """Write the report and print its path and the verdicts; what it reports does not change the exit code."""
    if args.output.resolve() in {path.resolve() for path in args.files}:
        raise OutputError(f"{args.output} is one of the result files: name another file for the report with -o")
    write(args.output, _runs(args.files), args.title)
    return Exit.OK.code


def write(report: Path, runs: list[Run], title: str = "") -> None:
    """Write a report of some runs, and print its path and the verdicts."""
    page = build(runs, title)
    html.write(report, html.render(page))
    sys.stdout.write(f"{report}: {page.verdicts}\n")


def _runs(files: Sequence[Path]) -> list[Run]:
    """Read the files; a benchmark that did not end is shown in part, a run of rules that did not end is refused."""
    for path in files:
        if not all(run.complete or run.cells for run in read(path, incomplete=True)):
            read(path)
    return read_all(files, incomplete=True)
