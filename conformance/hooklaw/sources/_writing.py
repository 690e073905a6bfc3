"""The kept table, renewed: fingerprints of what is installed and of the pages in a folder."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hooklaw.law.rule import Rule
from hooklaw.sources._reading import has_page, read_page
from hooklaw.sources.fingerprints import Standing, fingerprints, standing
from hooklaw.sources.installed import counted, import_torch
from hooklaw.sources.readings import load_readings
from hooklaw.sources.subjects import PAGES, speaks
from hooklaw.sources.table import Table, key_of, load_table, named_docstrings, page_key

HEAD = """\
# The sentences of each counted source of the documentation, as fingerprints in their order: no text is kept.
# `python -m hooklaw.sources --write` makes the docstrings from the installed torch, and with `--pages DIR` the pages
# from their sources, which are not part of torch: `commits` says where each was read.
"""
PER_LINE = 10


def renewed(rules: Sequence[Rule], pages: Path | None, commits: Mapping[str, str]) -> tuple[Table, list[str]]:
    """Return the table for what is installed, and a line for each sentence of a rule that moved or is gone.

    Pages are read below a folder; those that it lacks are the kept ones. Raises DocumentationError if torch does not
    import, or if neither the folder nor the kept table has a page that a rule names.
    """
    old = load_table()
    sources = [source for rule in rules for source in rule.sources]
    named = named_docstrings(rules)
    keys = {page_key(source) for source in sources if source.kind not in {"docstring", "observed"}} | {*PAGES}
    torch = import_torch()
    found = counted(named, load_readings())
    table = Table(
        torch=torch,
        commits=dict(sorted({**old.commits, **commits}.items())),
        docstring={name: fingerprints(found.get(name, "")) for name in sorted({*found, *named})},
        pages=_pages(sorted(keys), pages, old, {key_of(source) for source in sources}) if pages else old.pages,
    )
    return table, list(_shifted(rules, old, table))


def _pages(keys: Iterable[str], folder: Path, old: Table, named: Container[str]) -> dict[str, dict[str, list[str]]]:
    """Return the fingerprints of each page: of the sections that rules name, or that mention a subject."""
    found: dict[str, dict[str, list[str]]] = {}
    for key in keys:
        if has_page(folder, key) or key not in old.pages:
            texts = read_page(folder, key).items()
            found[key] = {
                at: marks for at, text in texts if (marks := fingerprints(text)) and _counts(key, at, text, named)
            }
        else:
            found[key] = old.pages[key]
    return found


def _counts(page: str, anchor: str, text: str, named: Container[str]) -> bool:
    return f"{page}#{anchor}" in named or speaks(text)


def text(table: Table) -> str:
    """Return the table as TOML."""
    lines = [HEAD, f'torch = "{table.torch}"', "", "[commits]"]
    lines += [f'"{page}" = "{commit}"' for page, commit in table.commits.items()]
    lines += ["", "[docstring]", *_lines(table.docstring)]
    for page, sections in table.pages.items():
        lines += ["", f'[pages."{page}"]', *_lines(sections)]
    return "\n".join([*lines, ""])


def _shifted(rules: Iterable[Rule], old: Table, new: Table) -> Iterator[str]:
    for rule in rules:
        for source in rule.sources:
            kept, found = old.find(source), new.find(source)
            for ordinal in source.sentences:
                where, now = standing(ordinal, kept, found) if ordinal <= len(kept) else (Standing.SAME, ordinal)
                if where is not Standing.SAME:
                    yield f"{rule.id}: {source}: sentence {ordinal} {f'is now {now}' if now else f'is {where}'}"


def _lines(found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name, marks in found.items():
        rows = [" ".join(marks[start : start + PER_LINE]) for start in range(0, len(marks), PER_LINE)]
        yield from [f'"{name}" = """', *rows, '"""'] if len(rows) > 1 else [f'"{name}" = "{"".join(rows)}"']
