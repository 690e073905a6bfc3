"""Print a page of the documentation, which comes with hooklaw; without a page, list them all.

Examples:
    hooklaw docs
    hooklaw docs order
"""

import argparse
from pathlib import Path

from hooklaw.cli import say
from hooklaw.errors import UnknownPageError, did_you_mean
from hooklaw.results.verdict import Exit

PACKAGE = Path(__file__).parents[1]
FOLDERS = (PACKAGE / "docs", PACKAGE.parents[1] / "docs")
"""Where the pages are in an installed wheel, and in a clone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("page", nargs="?", default="", metavar="PAGE", help="e.g. add-a-backend")


def main(args: argparse.Namespace) -> int:
    """Print the page, or the list of pages."""
    say(read_page(args.page) if args.page else _listed())
    return Exit.OK.code


def read_page(name: str) -> str:
    """Return the text of a page; UnknownPageError suggests similar pages."""
    known = pages()
    name = Path(name).name.removesuffix(".md")
    if name in known:
        return known[name].read_text(encoding="utf-8")
    hint = did_you_mean(name, known, "`hooklaw docs` lists the pages")
    raise UnknownPageError(f"no page has the name {name!r}: {hint}")


def pages() -> dict[str, Path]:
    """Return the file of each page by its name."""
    return {path.stem: path for folder in FOLDERS if folder.is_dir() for path in sorted(folder.rglob("*.md"))}


def _listed() -> str:
    titles = {name: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name, path in pages().items()}
    wide = max(map(len, titles), default=0)
    lines = [f"{name:{wide}}  {title}\n" for name, title in titles.items()]
    return "".join([*lines, "\n`hooklaw docs PAGE` prints a page; a link to PAGE.md leads to the page of that name.\n"])
