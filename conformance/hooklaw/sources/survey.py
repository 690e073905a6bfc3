"""A survey: the rules, the readings and the kept table held against one version of the documentation."""

from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from hooklaw.errors import DocumentationError
from hooklaw.law.collection import load_rules
from hooklaw.law.rule import Rule
from hooklaw.packing.example import laws
from hooklaw.sources._reading import has_page, read_page
from hooklaw.sources.answers import answers, complaints, unsourced
from hooklaw.sources.coverage import Read, Sentence, Status, read_text, standings
from hooklaw.sources.installed import counted, import_torch
from hooklaw.sources.libraries import read_library
from hooklaw.sources.readings import Readings, load_readings
from hooklaw.sources.subjects import speaks
from hooklaw.sources.table import Table, load_table, named_docstrings


class Survey(msgspec.Struct, frozen=True):
    """What was found; `torch` is the version that was read, `pinned` the one that the rules were written from."""

    torch: str
    pinned: str
    sentences: list[Sentence]
    unsourced: list[str]
    """The documented rules that name no sentence."""
    complaints: list[str]
    """What is wrong with the readings."""
    unread: list[str]
    """Sources that could not be read, such as pages: their sentences stand as they are kept."""

    @property
    def drifted(self) -> bool:
        """Whether another version was read than the one that the rules were written from."""
        return self.torch != self.pinned

    def holds(self, *, strict: bool = False) -> bool:
        """Whether nothing is left over; what another version has or lacks counts only if this is strict."""
        left = any(each.status in {Status.UNCOVERED, Status.VANISHED} for each in self.sentences)
        return not (self.unsourced or self.complaints or (left and (strict or not self.drifted)))


def survey(pages: Path | None = None, library: Path | None = None) -> Survey:
    """Hold the installed torch, or the one of a wheel, and the pages in a folder, against the table and the readings.

    Raises DocumentationError if a docstring, a page or a reading cannot be read.
    """
    if library is None:
        import_torch()  # first, since `python -OO` leaves out the law too
    table, readings = load_table(), load_readings()
    rules = all_rules()
    version, docstrings = _docstrings(library, {*table.docstring, *named_docstrings(rules)}, readings)
    missing = [page for page in table.pages if pages and not has_page(pages, page)]
    if pages and len(missing) == len(table.pages):
        raise DocumentationError(f"{pages} has none of the pages: lay them out as docs/source of pytorch/pytorch")
    kept = table.sources()
    texts = {f"docstring {name}": text for name, text in docstrings.items()} | _pages(pages, missing, table)
    read = {key: [Read(mark) for mark in kept[key]] if text is None else read_text(text) for key, text in texts.items()}
    return Survey(
        torch=version,
        pinned=table.torch,
        sentences=standings(read, kept, answers(rules, readings, table)),
        unsourced=unsourced(rules),
        complaints=complaints(rules, readings, table),
        unread=sorted(key.partition("#")[0].removeprefix("docstring ") for key, text in texts.items() if text is None),
    )


def all_rules() -> list[Rule]:
    """Return every rule and every property of packers."""
    return [*(found.rule for found in load_rules().values()), *laws()]


def _docstrings(library: Path | None, named: set[str], readings: Readings) -> tuple[str, Mapping[str, str | None]]:
    if library is None:
        return import_torch(), counted(named, readings)
    found = read_library(library)
    return found.version, found.counted(named, readings)


def _pages(folder: Path | None, missing: Container[str], table: Table) -> dict[str, str | None]:
    """Return the text of the sections of the pages that are counted, None for those of a page that is not read."""
    found: dict[str, str | None] = {}
    for page, sections in table.pages.items():
        read = read_page(folder, page) if folder and page not in missing else None
        found |= {f"{page}#{at}": None if read is None else read.get(at, "") for at in sections}
        found |= {f"{page}#{at}": text for at, text in (read or {}).items() if speaks(text)}
    return found
