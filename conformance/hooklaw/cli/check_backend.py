"""Check an adapter before the framework is judged: what it declares, what its verbs take, and what they return.

Each fault says what was given, what was expected, what came, and what to mend. Exit code 1 if there is a fault, 3 if
the backend cannot be loaded here.

Example:
    hooklaw check-backend torch-eager reference
"""

import argparse
import json

import msgspec

from hooklaw.backend import loading
from hooklaw.backend.check import AdapterReport
from hooklaw.cli import complain, say
from hooklaw.cli.options import add_imports, add_limit
from hooklaw.errors import HooklawError, NotRunError
from hooklaw.results.verdict import Exit, worst
from hooklaw.runner.adapter_check import check
from hooklaw.workers.watchdog import RULE_LIMIT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("backends", nargs="+", metavar="NAME[:ARG]", help="a backend, or module:attribute of your own")
    add_imports(parser)
    add_limit(parser, RULE_LIMIT, "limit of one probe")
    parser.add_argument("--format", choices=["text", "json"], default="text")


def main(args: argparse.Namespace) -> int:
    """Check each, print the reports, and return the exit code."""
    for spec in args.backends:
        loading.resolve(spec)
    reports: list[AdapterReport] = []
    exits: list[Exit] = []
    for spec in args.backends:
        try:
            report = check(spec, args.imports, args.limit)
        except (HooklawError, NotRunError) as error:
            complain(_said(spec, error))
            exits.append(Exit.BROKEN)
            continue
        reports.append(report)
        exits.append(Exit.OK if report.ok else Exit.REGRESSION)
    say(_json(reports) if args.format == "json" else "".join(f"{report}\n" for report in reports))
    return worst(exits).code


def _said(spec: str, error: Exception) -> str:
    return f"backend {spec!r} cannot be checked here: {error}" if isinstance(error, NotRunError) else str(error)


def _json(reports: list[AdapterReport]) -> str:
    return json.dumps([{**msgspec.to_builtins(report), "ok": report.ok} for report in reports], indent=1) + "\n"
