"""The question pages: the folder `questions` of the documentation, found by the words of a question."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hooklaw.cli import docs

FOLDER = "questions"
ASKED = "Also asked: "
SHORT = 3
"""The letters of a word that has lost nothing in its plural."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_SMALL = frozenset((
    "a", "an", "and", "are", "at", "be", "by", "can", "do", "does", "get", "how", "i", "if", "in", "is", "it",
    "my", "not", "of", "on", "or", "the", "to", "what", "when", "where", "which", "who", "why", "will", "with",
    "work", "you", "your",
))  # fmt: skip
"""Words by which nothing is found."""


class Page(NamedTuple):
    """A page that answers a question."""

    name: str
    question: str
    answer: str
    """What stands above the first program."""
    asked: set[str]
    """The words of the question, and of the other ways to ask it."""
    rules: list[str]


def pages() -> list[Page]:
    """Return every page, by name."""
    return [_page(path) for path in docs.pages().values() if path.parent.name == FOLDER]


def find_pages(words: Iterable[str]) -> list[Page]:
    """Return the pages that answer best a question of these words: more than half of what it is about is asked there.

    No page answers a question of small words alone.
    """
    about = _stems(words)
    found = {page.name: (len(about & page.asked), page) for page in pages()}
    best = max((count for count, _ in found.values()), default=0)
    return [page for count, page in found.values() if count == best and 2 * count > len(about)]


def _page(path: Path) -> Page:
    title, _, text = path.read_text(encoding="utf-8").partition("\n")
    body, _, _ = text.partition("\n## ")
    asked = "".join(re.findall(rf"^{ASKED}(.*)$", body, re.MULTILINE))
    answer = re.sub(rf"^(?:{ASKED}.*\n*|```.*\n)", "", _LINK.sub(r"\1", body), flags=re.MULTILINE)
    rules = dict.fromkeys(re.findall(r"^\| `([a-z0-9.-]+)` \|", text, re.MULTILINE))
    return Page(path.stem, title.lstrip("# "), answer.strip("\n"), _stems([title, asked]), [*rules])


def telling(words: Iterable[str]) -> list[str]:
    """Return the words without the small ones."""
    return [word for word in words if re.sub(r"\W", "", word.lower()) not in _SMALL]


def _stems(words: Iterable[str]) -> set[str]:
    each = telling(word for text in words for word in text.split())
    return {_stem(re.sub(r"\W", "", word.lower())) for word in each} - {"hook", ""}


def _stem(word: str) -> str:
    return word if len(word) <= SHORT or word.endswith("ss") else word.removesuffix("s")
