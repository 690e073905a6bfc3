"""The kept table: the fingerprints of the sentences of each source that a rule names."""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

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


@cache
def load_table() -> Table:
    """Return the table that comes with hooklaw."""
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), Table)
