"""Files for CI that `run` and `merge` write: JUnit XML, a step summary, a badge; and annotations."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hooklaw.cli import summary
from hooklaw.cli.annotations import annotations
from hooklaw.errors import OutputError
from hooklaw.results.badge import badge
from hooklaw.results.junit import junit
from hooklaw.results.output import make_room, output_errors, replace_file
from hooklaw.results.records import Run
from hooklaw.results.text import harmless
from hooklaw.results.verdict import Exit

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--junitxml", type=Path, metavar="FILE", help="leave JUnit XML, which GitLab and Jenkins read")
    parser.add_argument(
        "--summary",
        nargs="?",
        const="",
        metavar="FILE",
        help=f"leave the summary as markdown; without FILE append it to {STEP_SUMMARY}",
    )
    parser.add_argument("--badge", type=Path, metavar="FILE", help="leave a badge as JSON for a shields.io endpoint")
    parser.add_argument(
        "--annotations", choices=["github"], help="mark lines of the expectation file in a pull request"
    )


def files(args: argparse.Namespace) -> dict[str, Path]:
    """Return the files to write by option; OutputError if the step summary has no name."""
    if args.summary == "" and not os.environ.get(STEP_SUMMARY):
        raise OutputError(f"--summary: {STEP_SUMMARY} is not set: name the file with --summary=FILE")
    given = {"junitxml": args.junitxml, "summary": args.summary, "badge": args.badge}
    return {option: Path(path) for option, path in given.items() if path}


def refuse_mistakes(inputs: Mapping[str, Path], outputs: Mapping[str, Path]) -> None:
    """Raise OutputError if two options name one file, or a file cannot be written."""
    taken = {path.resolve(): option for option, path in inputs.items()}
    for option, path in outputs.items():
        if path.resolve() in taken:
            other = taken[path.resolve()]
            raise OutputError(f"{path} is to hold both the {other} and the {option}: name two files")
        taken[path.resolve()] = option
        with output_errors(f"write the {option} to {path}", f"; name another file with --{option}=FILE"):
            make_room(path)


def write(
    args: argparse.Namespace, runs: Sequence[Run], broken: Mapping[str, str] = {}, ended: Exit | None = None
) -> None:
    """Write what was asked for; `broken` says of backends that were not judged why."""
    for option, path, text in _texts(args, runs, broken, ended):
        with output_errors(f"write the {option} to {path}", f"; name another file with --{option}=FILE"):
            replace_file(path, text)
    if args.summary == "":
        _append(Path(os.environ[STEP_SUMMARY]), runs)
    if args.annotations:
        root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
        given = getattr(args, "expectations", "")
        sys.stderr.write(harmless("".join(f"{line}\n" for line in annotations(runs, root, given))))


def _texts(
    args: argparse.Namespace, runs: Sequence[Run], broken: Mapping[str, str], ended: Exit | None
) -> Iterator[tuple[str, Path, str]]:
    if args.junitxml:
        yield "junitxml", args.junitxml, junit(runs, broken)
    if args.summary:
        yield "summary", Path(args.summary), summary.within(runs, summary.LIMIT)
    if args.badge and runs:
        yield "badge", args.badge, badge(runs, ended)


def _append(path: Path, runs: Sequence[Run]) -> None:
    """Append the summary to the step's, which has a limit as a whole."""
    with output_errors(f"append the summary to {path}", "; name another file with --summary=FILE"):
        there = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(summary.within(runs, summary.LIMIT - there))
