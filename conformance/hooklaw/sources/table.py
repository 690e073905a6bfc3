"""The kept table: the fingerprints of the sentences of each counted source."""

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from hooklaw.law.rule import Rule, Source

TABLE = files("hooklaw.sources") / "sentences.toml"


class Table(msgspec.Struct, frozen=True):
    """Ordered fingerprints by source, with the versions of the documentation in which they were counted."""

    torch: str
    """The version of torch whose docstrings were read."""
    commits: dict[str, str]
    """The commit at which each page's source was read; the sources of pages are not part of torch's wheel."""
    docstring: dict[str, list[str]]
    pages: dict[str, dict[str, list[str]]]
    """Fingerprints by page, e.g. ``notes/autograd``, and anchor; the whole of a tutorial has the empty anchor."""

    def find(self, source: Source) -> Sequence[str]:
        """Return the fingerprints of a source's sentences, empty if the table lacks the source."""
        if source.kind == "docstring":
            return self.docstring.get(source.name, [])
        return self.pages.get(page_key(source), {}).get(source.section, [])

    def sources(self) -> dict[str, list[str]]:
        """Return the fingerprints of each source by its key."""
        found = {f"docstring {name}": marks for name, marks in self.docstring.items()}
        for page, sections in self.pages.items():
            found |= {f"{page}#{anchor}": marks for anchor, marks in sections.items()}
        return found

    def complaint(self, rule: Rule) -> str:
        """Return what is wrong with the sentences that a rule names, or an empty string."""
        for source in rule.sources:
            count = len(self.find(source))
            if source.sentences and not count:
                return f"{rule.id}: the table of sentences lacks {source}: {HOW_TO_RENEW}"
            if any(not 1 <= ordinal <= count for ordinal in source.sentences):
                return f"{rule.id}: {source} does not exist, there are {count}: {HOW_TO_COUNT}"
        if rule.basis == "documented" and not any(source.sentences for source in rule.sources):
            return f"{rule.id}: no source names a sentence, e.g. docstring(...).sentence(2): {HOW_TO_COUNT}"
        return ""


HOW_TO_RENEW = "`python -m hooklaw.sources --write` adds docstrings, with `--pages DIR` also pages"
HOW_TO_COUNT = "`python -m hooklaw.sources NAME` numbers the sentences of a docstring"


def page_key(source: Source) -> str:
    """Return the page of a source below the documentation's root, e.g. ``notes/autograd``."""
    return {"notes": f"notes/{source.name}", "tutorial": f"tutorials/{source.name}"}.get(source.kind, source.name)


def key_of(source: Source) -> str:
    """Return the key of a source in the readings, e.g. ``docstring torch.save`` or ``notes/autograd#saved-tensors``."""
    return f"docstring {source.name}" if source.kind == "docstring" else f"{page_key(source)}#{source.section}"


def named_docstrings(rules: Iterable[Rule]) -> set[str]:
    """Return the objects whose docstrings rules name."""
    return {source.name for rule in rules for source in rule.sources if source.kind == "docstring"}


@cache
def load_table() -> Table:
    """Return the table that comes with hooklaw."""
    return msgspec.convert(_split(tomllib.loads(TABLE.read_text(encoding="utf-8"))), Table)


def _split(kept: Any) -> Any:
    """Return what was read with the fingerprints, which stand in lines, as lists."""
    marks = {name: text.split() for name, text in kept["docstring"].items()}
    pages = {page: {at: text.split() for at, text in found.items()} for page, found in kept["pages"].items()}
    return {**kept, "docstring": marks, "pages": pages}
