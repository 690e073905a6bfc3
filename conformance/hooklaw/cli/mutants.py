"""Run mutants, which are deliberately wrong backends, against the rules, and show which rules kill which mutants.

A rule kills a mutant if the original backend passes it and the mutant does not. Exit code 1 if a mutant survives, or
if a MUST rule that an original backend passes kills none of the mutants that it names.

Example:
    hooklaw mutants --of reference -k hooks-run-in-reverse-order
"""

import argparse
import sys

from hooklaw.backend import loading
from hooklaw.cli import say
from hooklaw.cli.options import add_imports, add_limit, add_parts
from hooklaw.mutation import matrix, report
from hooklaw.results.text import harmless
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
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME[:ARG]",
        help="mutants of this backend, as far as its verbs allow; or module:attribute of your own; repeatable",
    )
    add_imports(parser)
    parser.add_argument("--mutants", default=MODULE, metavar="MODULE", help="module of mutants; default: hooklaw's own")
    parser.add_argument(
        "--every-rule",
        action="store_true",
        help="show all rules that kill a mutant; default: those that name it, or others if none of those kills it",
    )
    add_limit(parser, MUTANT_LIMIT, "time limit of one rule on one mutant")
    parser.add_argument("--format", choices=report.FORMATS, default="text")


def main(args: argparse.Namespace) -> int:
    """Run the matrix and print the report."""
    for spec in args.backend:
        loading.resolve(spec)
    of = list(dict.fromkeys([*args.of, *args.backend]))
    choose = matrix.choose_by(args.parts)
    matrices = matrix.run(args.mutants, of, choose, args.limit, args.imports, every_rule=args.every_rule)
    found = report.report(matrices)
    say(report.render(found, args.format))
    if args.format == "json":
        sys.stderr.write(harmless("\n".join(report.faults(found))) + "\n")
    return found.exit.code
