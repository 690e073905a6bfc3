"""Make docs/compatibility.md, and the tables of README and docs/torch-versions.md, from the published records.

`python tools/compatibility.py` renews the pages; `--check` exits with 1 if one does not say what the records say.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import api_statements

from hooklaw.law.collection import load_rules
from hooklaw.results.records import Run, RunKind, read
from hooklaw.results.summary import count, words
from hooklaw.results.verdict import JUDGED
from hooklaw_reports.marks import OUTCOMES
from hooklaw_reports.published import FOLDER

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
EAGER = "torch-eager"
RECORD = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)-(?P<stem>.+)")
COUNTS = ["hold", "known divergences", "MAY rules that differ", "regressions", "unsupported"]
HEAD = """\
# Which rules hold where

Made from the records in `reports/hooklaw_reports/published/` by `python tools/compatibility.py`.
`python tools/matrix.py` judges all backends that a machine can run, publishes their records and renews this page.

## The backends

Each row is one whole run, on the day that it names: on the CPU, or on an NVIDIA H200 where its name ends in `cuda`.
A rule that is unsupported is not counted: the backend said before the run what it lacks.

"""
LEGEND = """
## The rules

A chapter lists the rules that do not hold everywhere; each other rule holds on every backend that can be judged by it.

| sign | means |
|---|---|
| ✓ | the rule holds |
| ~ | a known divergence: the backend's expectation file says why |
| ≠ | a MAY rule that the backend leaves out |
| \u2013 | unsupported |
| ✗ or ! | it fails, or ends the process, and no file says why |

The column eager covers all its versions; where they differ, it says from which version on.
"""


class Record(NamedTuple):
    """A published run, with the stem of its file."""

    stem: str
    run: Run

    @property
    def version(self) -> str:
        """The judged version, without its local part."""
        return next(iter(self.run.header.versions.values()), "").partition("+")[0]

    @property
    def order(self) -> tuple[int, ...]:
        """What versions sort by."""
        return tuple(map(int, re.findall(r"\d+", self.version)))


def slug(backend: str) -> str:
    """Return the name of a backend as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "-", backend)


def published() -> list[Record]:
    """Return the published runs of rules, those of eager torch first and by version."""
    found: list[Record] = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        (run, *_) = read(path)
        if run.header.run_kind is RunKind.RULES:
            found.append(Record(path.stem[len("2026-11-22-") :], run))
    return sorted(found, key=lambda one: (_group(one.run.header.backend), one.run.header.backend, one.order))


def _group(backend: str) -> int:
    starts = ("torch-eager", "torch-mode", "torch-compile", "")
    return next(at for at, start in enumerate(starts) if backend.startswith(start))


def renew() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Return the text of each page that the records make, whole or between its marks."""
    records = published()
    eager = [one for one in records if one.run.header.backend == EAGER]
    versions = ROOT / "docs" / "torch-versions.md"
    readme = ROOT / "README.md"
    counts = table(["torch", *COUNTS[:4]], ([one.version, *figures(one)[:4]] for one in eager))
    return {
        PAGE: compatibility(records),
        versions: between(between(versions.read_text(), "counts", counts), "changes", changes(eager)),
        readme: between(readme.read_text(), "found", overview(records)),
    }


def between(text: str, name: str, new: str) -> str:
    """Return a page with what stands between two marks replaced."""
    begin, end = f"<!-- {name}: made by tools/compatibility.py -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"the marks {begin.strip()!r} and {end!r} are missing: put them around the table")
    return f"{before}{begin}\n{new}\n{end}{after}"


def compatibility(records: Sequence[Record]) -> str:
    """Return the page: a table of the runs, then one of each chapter."""
    seconds = (f"{one.run.footer.seconds:.0f} s" if one.run.footer else "" for one in records)
    rows = ([*named(one), *figures(one), took] for one, took in zip(records, seconds, strict=True))
    runs = table(["backend", "version", "day", *COUNTS, "took"], rows)
    return "".join([HEAD, runs, *documentation(records), LEGEND, *chapters(records)])


def documentation(records: Sequence[Record]) -> Iterator[str]:
    """Yield the section on what frameworks document, with a table for each framework that has a record."""
    yield api_statements.INTRO
    runs = {one.stem: one.run for one in records}
    found = api_statements.statements(api_statements.TABLE.read_text(), [each.rule for each in load_rules().values()])
    for framework, its in groupby(found, key=lambda one: one.framework):
        if framework in runs:
            rows = api_statements.rows(its, runs[framework])
            yield f"\n### {framework}\n\n{table(api_statements.HEADS, rows)}"


def overview(records: Sequence[Record]) -> str:
    """Return README's table: the newest record of each backend."""
    newest = {one.run.header.backend: one for one in records}
    usual = {one.run.header.backend: one for one in records if one.stem == slug(one.run.header.backend)}
    rows = ([*named(one)[:2], *figures(one)] for one in ({**newest, **usual}).values())
    return table(["backend", "version", *COUNTS], rows)


def named(record: Record) -> list[str]:
    """Return a record's backend, version and day."""
    header = record.run.header
    return [f"`{header.backend}`", header.version.partition("+")[0], header.started[:10]]


def figures(record: Record) -> list[str]:
    """Return what stands below COUNTS."""
    said = count(record.run)
    numbers = (said.known, said.differs, said.regressions, said.unsupported)
    return [f"{said.passed} of {said.judged}", *map(str, numbers)]


def changes(eager: Sequence[Record]) -> str:
    """Return a table of the rules whose outcome differs between versions."""
    rows: list[list[str]] = []
    for rule in eager[0].run.header.rules if eager else []:
        found = {one.version: str(one.run.outcome(rule.id)) for one in eager if rule.id in one.run.results}
        if len({*found.values()}) > 1:
            rows.append([f"`{rule.id}`", str(rule.level), spans([*found.values()], [*found])])
    return table(["rule", "level", "outcome"], rows)


def spans(values: Sequence[str], versions: Sequence[str]) -> str:
    """Return each value with its range of versions, e.g. ``fail on 2.4.1 to 2.8.0, pass on 2.9.1``."""
    said: list[str] = []
    for value, its in groupby(zip(values, versions, strict=True), key=itemgetter(0)):
        first, *rest = [name for _, name in its]
        said.append(f"{value} on {first}" + (f" to {rest[-1]}" if rest else ""))
    return ", ".join(said)


def chapters(records: Sequence[Record]) -> Iterator[str]:
    """Yield a section for each chapter in which a rule does not hold everywhere."""
    columns = {name: [*its] for name, its in groupby(records, key=lambda one: one.run.header.backend)}
    signs = {one.stem: words(one.run) for one in records}
    rules = {rule.id: rule for one in records for rule in one.run.header.rules}
    for chapter, its in groupby(sorted(rules.values(), key=lambda rule: rule.chapter), key=lambda rule: rule.chapter):
        all_rules = [*its]
        rows = [
            [f"`{rule.id}`", str(rule.level), *(sign(rule.id, column, signs) for column in columns.values())]
            for rule in all_rules
            if any(_parts(rule.id, one, signs) for one in records)
        ]
        holds = f"{len(all_rules) - len(rows)} of {len(all_rules)} rules hold everywhere.\n"
        heads = ["rule", "level", *(name.removeprefix("torch-") for name in columns)]
        yield f"\n### {chapter}\n\n{holds}" + (f"\n{table(heads, rows)}" if rows else "")


def _parts(rule: str, record: Record, signs: dict[str, dict[str, str]]) -> bool:
    return record.run.outcome(rule) in JUDGED and signs[record.stem].get(rule) != "pass"


def sign(rule: str, column: Iterable[Record], signs: dict[str, dict[str, str]]) -> str:
    """Return the sign of a rule in a column, with versions where they differ."""
    its = [(OUTCOMES[signs[one.stem].get(rule, "not-run")].glyph, one.version) for one in column]
    parts = [(glyph, next(group)[1]) for glyph, group in groupby(its, key=itemgetter(0))]
    first, *rest = parts
    return " ".join([first[0], *(f"{glyph} from {version}" for glyph, version in rest)])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:], ""])


def main(argv: Sequence[str]) -> int:
    """Renew the pages, or tell which does not say what the records say."""
    if "--check" not in argv:
        renew()
        return 0
    stale = [path.name for path, text in pages().items() if path.read_text(encoding="utf-8") != text]
    sys.stdout.writelines(f"{name} is not what the records say: run {__file__}\n" for name in stale)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
