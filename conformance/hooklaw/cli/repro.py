"""Print a rule as a script in the framework's own calls, with no import of hooklaw, ready for an upstream issue.

A property is tried first: if it fails, the script is that of the smallest example that Hypothesis found.

Example:
    hooklaw repro order.six-steps.leaf
"""

import argparse

from hooklaw.backend import loading
from hooklaw.cli import say
from hooklaw.cli.options import add_imports
from hooklaw.errors import ScriptError
from hooklaw.law.collection import find_rule
from hooklaw.law.rule import Registered
from hooklaw.repro import script_of
from hooklaw.results.verdict import Exit
from hooklaw.runner.session import Wanted, judge


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("rule", nargs="+", metavar="RULE", help="the id of a rule, or words that only one rule has")
    parser.add_argument("--backend", default="torch-eager", metavar="NAME[:ARG]", help="default torch-eager")
    add_imports(parser)


def main(args: argparse.Namespace) -> int:
    """Print the script."""
    found = find_rule(*args.rule)
    backend = loading.load(args.backend, args.imports)
    lacking = [need for need in found.rule.needs if need not in backend.capabilities]
    if lacking:
        raise ScriptError(
            f"{args.backend} lacks {', '.join(lacking)}, which {found.rule.id} needs: name another backend"
        )
    say(script_of(found, backend, _failure(found, args)))
    return Exit.OK.code


def _failure(found: Registered, args: argparse.Namespace) -> str:
    """Return what is seen of a property that fails, or an empty text."""
    if not hasattr(found.function, "hypothesis"):
        return ""
    (session,) = judge(Wanted(backend=args.backend, imports=args.imports, only=found.rule.id, allow_not_run=True))
    result = session.run and session.run.results.get(found.rule.id)
    return result.detail if result else ""
