"""The kept table, renewed: fingerprints of what is installed and of the pages in a folder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hooklaw.errors import DocumentationError
from hooklaw.law.rule import Rule
from hooklaw.sources._reading import read_docstring, read_page
from hooklaw.sources.fingerprints import Standing, fingerprints, standing
from hooklaw.sources.table import Table, load_table, page_key

HEAD = """\
# The sentences of the documentation that rules name, as fingerprints in their order: no text is kept.
# `python -m hooklaw.sources --write` makes the docstrings from the installed torch, and with `--pages DIR` the pages
# from their sources, which are not part of torch: `commits` says where each was read.
"""
PER_LINE = 8


def renewed(rules: Sequence[Rule], pages: Path | None, commits: Mapping[str, str]) -> tuple[Table, list[str]]:
    """Return the table for what is installed, and a line for each sentence of a rule that moved or is gone.

    Pages are read below a folder, or are those of the kept table. Raises DocumentationError if torch is not installed.
    """
    old = load_table()
    sources = [source for rule in rules for source in rule.sources]
    names = sorted({source.name for source in sources if source.kind == "docstring"})
    keys = sorted({page_key(source) for source in sources if source.kind not in {"docstring", "observed"}})
    table = Table(
        torch=_installed_torch(),
        commits=dict(sorted({**old.commits, **commits}.items())),
        docstring={name: _installed(name) for name in names},
        pages={key: _marks(read_page(pages, key)) for key in keys} if pages else old.pages,
    )
    return table, list(_shifted(rules, old, table))


def text(table: Table) -> str:
    """Return the table as TOML."""
    lines = [HEAD, f'torch = "{table.torch}"', "", "[commits]"]
    lines += [f'"{page}" = "{commit}"' for page, commit in table.commits.items()]
    lines += ["", "[docstring]", *_arrays(table.docstring)]
    for page, sections in table.pages.items():
        lines += ["", f'[pages."{page}"]', *_arrays(sections)]
    return "\n".join([*lines, ""])


def _installed_torch() -> str:
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError as error:
        raise DocumentationError("torch is not installed, whose docstrings are compared: install it") from error


def _installed(name: str) -> list[str]:
    """Return the fingerprints of a docstring, none if the installed version does not have it."""
    try:
        return fingerprints(read_docstring(name))
    except DocumentationError:
        return []


def _marks(sections: Mapping[str, str]) -> dict[str, list[str]]:
    return {anchor: marks for anchor, content in sections.items() if (marks := fingerprints(content))}


def _shifted(rules: Iterable[Rule], old: Table, new: Table) -> Iterator[str]:
    for rule in rules:
        for source in rule.sources:
            kept, found = old.find(source), new.find(source)
            for ordinal in source.sentences:
                where, now = standing(ordinal, kept, found) if ordinal <= len(kept) else (Standing.SAME, ordinal)
                if where is not Standing.SAME:
                    yield f"{rule.id}: {source}: sentence {ordinal} {f'is now {now}' if now else f'is {where}'}"


def _arrays(arrays: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name, marks in arrays.items():
        yield f'"{name}" = ['
        for start in range(0, len(marks), PER_LINE):
            yield "  " + " ".join(f'"{mark}",' for mark in marks[start : start + PER_LINE])
        yield "]"
