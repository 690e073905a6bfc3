"""Run mutants, which are deliberately wrong backends, against the rules, and show which rules kill which mutants.

A rule kills a mutant if the original backend passes it and the mutant does not. Exit code 1 if a mutant survives, or
if a MUST rule that an original backend passes kills none of the mutants that it names.

Example:
    hooklaw mutants --of reference -k hooks-run-in-reverse-order
"""

import argparse
import sys

from hooklaw.cli import say
from hooklaw.cli.options import add_limit, add_parts
from hooklaw.mutation import matrix, report
from hooklaw.workers.watchdog import MUTANT_LIMIT

MODULE = "hooklaw_backends.mutants"
"""A string, since this package imports no backend."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_parts(parser, "only mutants with these words in their name")
    parser.add_argument(
        "--of",
        action="append",
        default=[],
        choices=matrix.ORIGINALS,
        help="only mutants of this backend; repeatable; default: all that are installed",
    )
    parser.add_argument("--mutants", default=MODULE, metavar="MODULE", help="module of mutants; default: hooklaw's own")
    add_limit(parser, MUTANT_LIMIT, "time limit of one rule on one mutant")
    parser.add_argument("--format", choices=report.FORMATS, default="text")


def main(args: argparse.Namespace) -> int:
    """Run the matrix and print the report."""
    matrices = matrix.run(args.mutants, list(dict.fromkeys(args.of)), matrix.choose_by(args.parts), args.limit)
    found = report.report(matrices)
    say(report.render(found, args.format))
    if args.format == "json":
        sys.stderr.write("\n".join(report.faults(found)) + "\n")
    return found.exit.code
