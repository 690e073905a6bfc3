"""The text of an expectation file, in which an update changes single entries and no comment."""

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

import tomlkit
from tomlkit.items import Table

from hooklaw.results.verdict import Expectation

HEADER = re.compile(r"\s*\[\[?[\w\s.-]+\]\]?\s*(#.*)?$")
Pair = tuple[Expectation, Expectation | None]
"""An entry before and after an update; None if it is removed."""


def changed(text: str, entries: Iterable[Expectation], pairs: Iterable[Pair]) -> tuple[str, list[Expectation]]:
    """Return the text with its tables changed, and the entries that need a table of their own."""
    after = {(before.line, before.rule): new for before, new in pairs}
    lines, apart = text.splitlines(keepends=True), list[Expectation]()
    tables = [list(table) for _, table in groupby(entries, lambda entry: entry.line)]
    for table in reversed(tables):
        news = [after.get((entry.line, entry.rule), entry) for entry in table]
        apart[:0] = _change(lines, table, news)
    return "".join(lines), apart


def _change(lines: list[str], table: list[Expectation], news: list[Expectation | None]) -> list[Expectation]:
    """Change the lines of one table; return the entries that leave it, since its other rules keep what it says."""
    start, end = table[0].line - 1, _end(lines, table[0].line)
    kept = [old for old, new in zip(table, news, strict=True) if new == old]
    left = [new for new in news if new]
    alike = len(left) == len(table) and len({_parts(new) for new in left}) == 1
    if len(kept) == len(table):
        return []
    if kept or alike:
        lines[start:end] = _edited("".join(lines[start:end]), left[0] if alike else None, table, kept)
    else:
        while end < len(lines) and not lines[end].strip():
            end += 1
        del lines[start:end]
    return [] if alike else [new for new in left if new not in kept]


def _parts(entry: Expectation) -> tuple[Any, ...]:
    """Return what an update may change of an entry."""
    return entry.when, *entry.outcome, *entry.condition, entry.reason, *entry.saw


def _end(lines: Sequence[str], start: int) -> int:
    after = (place for place in range(start, len(lines)) if HEADER.match(lines[place]))
    inside = range(start, next(after, len(lines)))
    return max(place for place in inside if lines[place].strip() and not lines[place].lstrip().startswith("#")) + 1


def _edited(text: str, new: Expectation | None, table: list[Expectation], kept: list[Expectation]) -> list[str]:
    """Return a table's text as `new` says, or without the rules that are not kept.

    The table is parsed on its own, since tomlkit would set a new key behind the comments that follow.
    """
    document = tomlkit.parse(text if text.endswith("\n") else text + "\n")
    values = cast("Any", document)["expect"][0]
    if new and new.when != table[0].when:
        values["when"] = new.when
    if new and new.outcome != table[0].outcome:
        values["outcome"] = new.outcome
    if new and new.saw != table[0].saw:
        values["saw"] = _plain(new.saw)
    if new and new.reason != table[0].reason:
        values["reason"] = new.reason
    if new and new.condition != table[0].condition:
        values["condition"] = new.condition
    for entry in [] if new else table:
        if entry not in kept:
            values["rule"].remove(entry.rule)
    return tomlkit.dumps(document).splitlines(keepends=True)


def extended(text: str, entries: Sequence[Expectation], shared: Expectation) -> str:
    """Return the text with entries at its end, each without what the defaults say."""
    if not entries:
        return text
    tables = tomlkit.aot()
    for entry in entries:
        tables.append(_table(entry, shared))
    gap = "\n" if text.endswith("\n") else "\n\n" * bool(text)
    return text + gap + tomlkit.dumps({"expect": tables})


def _table(entry: Expectation, shared: Expectation) -> Table:
    made = tomlkit.table()
    rule = tomlkit.string(entry.rule)
    made.add("rule", rule if entry.line else rule.comment(f"seen {dt.datetime.now(tz=dt.UTC).date()}"))
    if entry.outcome != shared.outcome:
        made["outcome"] = _plain(entry.outcome)
    if entry.saw:
        made["saw"] = _plain(entry.saw)
    made["reason"] = entry.reason
    if entry.issue:
        made["issue"] = entry.issue
    if entry.when != shared.when:
        made["when"] = entry.when
    if entry.condition:
        made["condition"] = _plain(entry.condition)
    if entry.expires:
        made["expires"] = entry.expires
    return made


def _plain(words: list[str]) -> str | list[str]:
    """Return a single word without its list."""
    return words[0] if len(words) == 1 else words
