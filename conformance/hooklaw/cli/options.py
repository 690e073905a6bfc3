"""Options of several verbs, and numbers: argparse words a refusal by the name of the function that reads a number."""

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, TypeVar

Number = TypeVar("Number", bound=float)

LONGEST = 1e9
RULES_BY = "words joined by and, or, not: of ids, chapters, levels, else of capabilities, else of statements"
"""What -k selects rules by."""


def number(
    name: str, kind: Callable[[str], Number], above: float = 0, below: float = LONGEST
) -> Callable[[str], Number]:
    """Return a function of this name that reads a number between two bounds."""

    def read(text: str) -> Number:
        found = kind(text)
        if not above < found < below:
            raise ValueError
        return found

    read.__name__ = name
    return read


seconds = number("seconds", float)
minutes = number("minutes", float)
count = number("count", int, above=-1)
positive = number("positive", int)
examples = number("examples", int, below=100_000)
rounds = number("rounds", int, below=1001)
batch = number("batch", int)


def percent(text: str) -> float:
    """Read a percentage of at least zero."""
    return number("percent", float, above=-1e-9, below=1000)(text.removesuffix("%")) / 100


def add_limit(parser: ArgumentParser, default: float | None, what: str) -> None:
    """Declare --limit."""
    parser.add_argument("--limit", type=seconds, default=default, metavar="SECONDS", help=what)


def add_imports(parser: ArgumentParser) -> None:
    """Declare --import, which every verb has that loads a backend or makes tensors on a device."""
    what = "import this module first, e.g. a package that registers a device; repeatable"
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE", help=what)


class Either(Action):
    """An expression that is met where any of those given before is met, too."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None) -> None:  # noqa: ARG002 - argparse's
        """Join the expression with those before it."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"({before}) or ({values})" if before else values)


def add_selection(parser: ArgumentParser, what: str) -> None:
    """Declare -k for an expression, or several of which any will do."""
    parser.add_argument("-k", dest="selection", action=Either, default="", metavar="EXPR", help=f"{what}; repeatable")


def add_parts(parser: ArgumentParser, what: str) -> None:
    """Declare -k for several expressions."""
    parser.add_argument("-k", dest="parts", action="append", default=[], metavar="EXPR", help=f"{what}; repeatable")
