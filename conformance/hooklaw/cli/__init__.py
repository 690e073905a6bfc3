"""The command line: one file a verb, found by name, so that no verb's imports slow another down."""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from hooklaw import __version__
from hooklaw.errors import HooklawError, NotRunError, did_you_mean
from hooklaw.results.text import harmless, printable_lines
from hooklaw.results.verdict import Exit
from hooklaw.workers.signals import ending_signals_interrupt

VERBS = {
    "run": ("hooklaw.cli.run", "judge backends by the rules"),
    "list": ("hooklaw.cli.list", "list the rules"),
    "explain": ("hooklaw.cli.explain", "print one rule, its sources, and what really happens"),
    "repro": ("hooklaw.cli.repro", "print a rule as a script without hooklaw, ready for an upstream issue"),
    "findings": ("hooklaw.cli.findings", "print what a backend breaks today, also as reports to its framework"),
    "check-backend": ("hooklaw.cli.check_backend", "check an adapter before the framework is judged"),
    "report": ("hooklaw_reports.cli", "make one HTML file of result files"),
    "diff": ("hooklaw.cli.diff", "compare two record files: regressed, fixed, new, gone"),
    "merge": ("hooklaw.cli.merge", "join the records of shards and of machines in one file"),
    "packer": ("hooklaw.cli.packer", "judge a packer of saved tensors: is it safe to train under"),
    "bench": ("hooklaw.cli.bench", "measure what offload strategies cost and spare"),
    "coverage": ("hooklaw.cli.coverage", "print which sentences of the documentation the rules cover"),
    "mutants": ("hooklaw.cli.mutants", "run wrong backends against the rules: what kills, what survives"),
    "fuzz": ("hooklaw.cli.fuzz", "run random hook programs on a backend and on the engine"),
    "folklore": ("hooklaw.cli.folklore", "judge what is said of hooks: true, false, true only if, outdated"),
    "new-backend": ("hooklaw.cli.new_backend", "write a package with a backend for your own framework, and its CI"),
    "docs": ("hooklaw.cli.docs", "print a page of the documentation"),
    "expect": ("hooklaw.cli.expect", "check or update an expectation file"),
}
"""Where each verb lives; named as text, since the law does not import the reports."""
FIRST = """\
hooklaw runs the documented rules of PyTorch-style autograd hooks. First:

  hooklaw run --backend torch-eager           judge the installed torch, in about ten seconds
  hooklaw explain in which order hooks fire   find the page or the rules that answer a question
  hooklaw list view                           list the rules that have a word
  hooklaw packer my_package:MyOffload         judge whether an offloader of saved tensors is safe

`hooklaw --help` lists every verb, and `hooklaw VERB --help` has examples.
"""
"""What to do first, for a user who names no verb."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one sentence and whose exit code is ours."""

    def error(self, message: str) -> NoReturn:
        """Print the complaint and exit 3."""
        complain(f"{message}; `{self.prog} --help` shows how it is used")
        raise SystemExit(Exit.BROKEN.code)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - overloads
        """Refuse what is not known, and name the option that was meant."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            hint = self._meant(rest[0].partition("=")[0])
            self.error(f"unrecognized arguments: {' '.join(rest)}" + (f": {hint.rstrip('?')}" if hint else ""))
        return found, rest

    def _meant(self, word: str) -> str:
        """Return what a word may mean that is not understood where it stands."""
        options = re.findall(r"--?[a-z][\w-]*", self.format_usage())
        if word.startswith("-"):
            return did_you_mean(word, options, "")
        return f"words are selected with -k, as -k {word}" if "-k" in options else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [*map(str, action.choices)]
            hint = did_you_mean(str(value), choices, f"choose from {', '.join(choices)}").rstrip("?")
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}: {hint}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code."""
    try:
        code = _run([*(sys.argv[1:] if argv is None else argv)])  # `list` is a verb here, once its module is imported
        sys.stdout.flush()
    except HooklawError as error:
        complain(error)
        return Exit.BROKEN.code
    except NotRunError as error:
        complain(f"cannot be judged here: {error}")
        return Exit.BROKEN.code
    except KeyboardInterrupt:
        sys.stderr.write("hooklaw: interrupted\n")
        return Exit.BROKEN.code
    except BrokenPipeError:
        _mute()
        return Exit.OK.code
    return code


def _run(words: list[str]) -> int:
    parser = _parser()
    if not words:
        sys.stdout.write(FIRST)
        parser.error("no verb is named")
    name = words[0]
    if name not in VERBS:
        parser.parse_args(words)
        return Exit.OK.code
    module = importlib.import_module(VERBS[name][0])
    verb = Parser(
        prog=f"hooklaw {name}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(verb)
    args = verb.parse_args(words[1:])
    with ending_signals_interrupt():
        return module.main(args)


def complain(what: object) -> None:
    """Print one sentence to stderr that says what is wrong, in which names from elsewhere can do no harm."""
    sys.stderr.write(f"hooklaw: {printable_lines(str(what))}\n")


def say(text: str) -> None:
    """Print where the exit code matters: a reader such as `head` that has had enough does not change it.

    What a backend or a file says in the text can do no harm.
    """
    try:
        sys.stdout.write(harmless(text))
        sys.stdout.flush()
    except BrokenPipeError:
        _mute()


def _mute() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush would complain once more


def _parser() -> Parser:
    verbs = "\n".join(f"  {name:15}{what}" for name, (_, what) in VERBS.items())
    parser = Parser(
        prog="hooklaw",
        description="The law of PyTorch-style autograd hooks, executable.",
        epilog=f"verbs:\n{verbs}\n\n`hooklaw VERB --help` tells more. "
        "Exit codes: 0 as expected, 1 regression, 2 fixed or stale expectation, 3 wrong use or broken run.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hooklaw {__version__}")
    parser.add_argument("verb", choices=[*VERBS], metavar="VERB", help="what to do")
    return parser
