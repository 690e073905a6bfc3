"""Print PyTorch's own tests and the rules that state what they test: `python tools/upstream_tests.py [--write]`.

The table is upstream_tests.toml, beside this script. `--write` makes docs/upstream-tests.md from it.
The exit code is 1 if a row has neither a rule nor a reason, or names a rule or a reason that does not exist.
"""

import sys
import tomllib
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hooklaw.law.collection import load_rules

TABLE = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).parents[1] / "docs" / "upstream-tests.md"
READ = "22 November 2026"
"""The day on which the files were read."""
INTRO = """\
# PyTorch's own tests, and the rules that cover them

PyTorch tests hooks in {files} files that are listed here.
Each of their tests that concerns a hook, a saved tensor, a Node, a retained gradient or a checkpoint has a row:
the rules that state what the test expects, or why there is none.

| file | tests | with rules | no rule yet | no rule, with a reason |
|---|---|---|---|---|
{counts}

A row may have rules and a gap, or rules and a reason: the rules state a part of what the test expects.
Under `torch-compile:COMPILER` the rules are judged with a compiled forward,
under `torch-compile:COMPILER+compiled-autograd` with a compiled backward.
PyTorch too runs `TestAutograd` and `TestNestedCheckpoint` again under compiled autograd.
These runs have no rows of their own.

The files were read on {read}, each at the commit that is named beside it.
The commits differ: each is the most recent version of the file that could be read, which may lack newer tests.
paolodedios/pytorch and ROCm/pytorch are forks; the files under `torch/testing` are those of torch 2.13.0.

Not read yet: the tests of saved-tensor hooks in `test/functorch/test_aotdispatch.py`,
of checkpoints in `test/dynamo/test_higher_order_ops.py`, of hooks of scripted modules in `test/jit/test_hooks.py`,
and those in C++ in `test/cpp/api/autograd.cpp`.

`tools/upstream_tests.py` makes this page from `tools/upstream_tests.toml`.
"""


class Row(NamedTuple):
    """A test of PyTorch's: the rules that cover it, what no rule states yet, and a reason why there is no rule."""

    name: str
    rules: tuple[str, ...]
    gap: str
    reason: str


class File(NamedTuple):
    """A file of PyTorch's tests, and where it was read."""

    path: str
    repository: str
    commit: str
    rows: tuple[Row, ...]


def files(text: str) -> list[File]:
    """Return the files of a table, with the names of its reasons and gaps replaced by the sentences."""
    table = tomllib.loads(text)
    return [_file(entry, table) for entry in table["file"]]


def _file(entry: dict[str, Any], table: dict[str, Any]) -> File:
    tests = [(f"{group}.{name}", value) for group, rows in entry["tests"].items() for name, value in rows.items()]
    return File(entry["path"], entry["repository"], entry["commit"], tuple(_row(*test, table) for test in tests))


def _row(name: str, value: str | dict[str, str] | list[Any], table: dict[str, Any]) -> Row:
    if isinstance(value, str):
        return Row(name, (), "", table["reasons"].get(value, value))
    items = value if isinstance(value, list) else [value]
    rules = tuple(item for item in items if isinstance(item, str))
    parts = [part for item in items if isinstance(item, dict) for part in item.items()]
    gaps, reasons = (
        "; ".join(table[f"{kind}s"].get(said, said) for key, said in parts if key == kind) for kind in ("gap", "reason")
    )
    return Row(name, rules, gaps, reasons)


def problems(found: Iterable[File], known: Container[str]) -> Iterator[str]:
    """Yield what is wrong with the rows: an empty row, a rule that does not exist, a reason that is one word."""
    for row in (row for file in found for row in file.rows):
        if not any(row[1:]):
            yield f"{row.name}: neither a rule nor a reason"
        yield from (f"{row.name}: there is no rule {rule}" for rule in row.rules if rule not in known)
        yield from (f"{row.name}: no sentence: {said}" for said in (row.gap, row.reason) if said and " " not in said)


def page(found: list[File]) -> str:
    """Return the page that shows the table."""
    paths = {file.path for file in found}
    counts = "\n".join([*map(_count, found), _total(found)])
    parts = [INTRO.format(files=len(paths), counts=counts, read=READ), *map(_shown, found), _gaps(found)]
    return "\n".join(parts)


def numbers(rows: Iterable[Row]) -> tuple[int, int, int, int]:
    """Return how many rows there are, have rules, have only a gap, and have a reason."""
    rows = list(rows)
    ruled = sum(bool(row.rules) for row in rows)
    reasoned = sum(bool(row.reason) and not row.rules for row in rows)
    return len(rows), ruled, len(rows) - ruled - reasoned, reasoned


def _count(file: File) -> str:
    cells = " | ".join(map(str, numbers(file.rows)))
    return f"| [`{file.path}`]({_address(file)}) | {cells} |"


def _total(found: list[File]) -> str:
    cells = " | ".join(map(str, numbers(row for file in found for row in file.rows)))
    return f"| all | {cells} |"


def _address(file: File) -> str:
    return f"https://github.com/{file.repository}/blob/{file.commit}/{file.path}"


def _shown(file: File) -> str:
    read = f"Read at [{file.repository}@{file.commit[:12]}]({_address(file)})."
    lines = [f"## {file.path}", "", read, "", "| test | rules, or why there is none |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{row.name}` | {_said(row)} |" for row in file.rows), ""])


def _said(row: Row) -> str:
    said = [", ".join(f"`{rule}`" for rule in row.rules), row.gap and f"no rule yet: {row.gap}", row.reason]
    return "; ".join(filter(None, said))


def _gaps(found: list[File]) -> str:
    tests: dict[str, int] = {}
    for row in (row for file in found for row in file.rows if row.gap):
        tests[row.gap] = tests.get(row.gap, 0) + 1
    if not tests:
        return ""
    ordered = sorted(tests.items(), key=lambda item: -item[1])
    lines = ["## What no rule states yet", "", "| what | tests |", "|---|---|"]
    return "\n".join([*lines, *(f"| {gap} | {count} |" for gap, count in ordered), ""])


def main(*arguments: str) -> int:
    """Print what is wrong with the table, else how many rows it has."""
    found = files(TABLE.read_text(encoding="utf-8"))
    wrong = list(problems(found, load_rules()))
    if wrong:
        sys.stdout.write("\n".join([*wrong, ""]))
        return 1
    if "--write" in arguments:
        PAGE.write_text(page(found), encoding="utf-8")
    sys.stdout.write(f"{_total(found)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
