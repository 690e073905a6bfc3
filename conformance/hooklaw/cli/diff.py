"""Compare two record files: which rules regressed, fail differently, were lost, are fixed, new or gone.

The outcomes are compared, whatever the expectation files say; of what fails in both, what was seen is compared. Runs
are compared by backend and condition; where a file has several runs of the same, by their versions. Two files with
one run each are compared whatever they judge.
Exit codes: 1 if a rule regressed, fails differently or lost its result, or a new rule fails that no entry expects;
2 if a rule is fixed; 3 if the suite or an adapter broke; else 0.

Example:
    hooklaw run --backend reference -k order --results=old.jsonl
    hooklaw run --backend reference -k order --results=new.jsonl
    hooklaw diff old.jsonl new.jsonl
"""

import argparse
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from hooklaw.cli import say
from hooklaw.results.diff import Change, Changed, Comparison, compare, exit_of_all
from hooklaw.results.naming import differing
from hooklaw.results.records import Result, Run, read_all
from hooklaw.results.text import code, markdown, name, printable
from hooklaw.results.verdict import Verdict

FORMATS = ("text", "json", "markdown")
SHOWN = [change for change in Change if change is not Change.UNCHANGED]
WHY = frozenset({Change.REGRESSED, Change.DIFFERENTLY, Change.LOST, Change.FIXED, Change.ALLOWED})
"""Changes of which what was seen is shown."""
MANY = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("old", type=Path, metavar="OLD", help="a file from `hooklaw run --results=FILE`")
    parser.add_argument("new", type=Path, metavar="NEW", help="the file to compare with it")
    parser.add_argument("--format", choices=FORMATS, default="text")


def main(args: argparse.Namespace) -> int:
    """Print what changed, and return the exit code."""
    found = compare(_read(args.old), _read(args.new))
    say({"text": _text, "json": _json, "markdown": _markdown}[args.format](found))
    return exit_of_all(found).code


def _read(path: Path) -> list[Run]:
    return read_all([path])


def _title(each: Comparison) -> str:
    titles = dict.fromkeys(run.header.title for run in (each.old, each.new) if run)
    return name(" -> ".join(titles))


def _versions(each: Comparison) -> list[str]:
    """Return the versions that differ, or else what was judged."""
    runs = [run for run in (each.old, each.new) if run]
    if each.old is None or each.new is None:
        return [name(runs[0].header.version), f"in {'OLD' if each.old else 'NEW'} only"]
    return _both(each.old, each.new)


def _both(old: Run, new: Run) -> list[str]:
    said = [
        name(f"{key} {old.header.versions.get(key, 'none')} -> {new.header.versions.get(key, 'none')}")
        for key in differing([old, new])
    ] or [name(new.header.version)]
    for what, before, after in (
        ("hooklaw", old.header.suite, new.header.suite),
        ("-k", old.header.selection or "all", new.header.selection or "all"),
        ("shard", str(old.header.shard or "all"), str(new.header.shard or "all")),
    ):
        if before != after:
            said.append(name(f"{what} {before} -> {after}"))
    not_run = {which: run.header.not_run for which, run in (("OLD", old), ("NEW", new)) if run.header.not_run}
    return said + [f"{which} was not run: {why}" for which, why in not_run.items()]


def _sums(each: Comparison) -> str:
    counts = each.counts
    return ", ".join(f"{counts[change]} {change.words}" for change in Change if counts[change]) or "nothing was judged"


def _text(found: Sequence[Comparison]) -> str:
    return "".join(f"{line}\n" for each in found for line in _lines(each))


def _lines(each: Comparison) -> list[str]:
    lines = [printable(f"{_title(each)} ({', '.join(_versions(each))}): {_sums(each)}")]
    for change, cells in groupby(_cells(each), key=lambda cell: cell.change):
        shown, left = _enough([*cells])
        for cell in shown:
            lines.append(f"  {change.words.upper():17} {name(cell.rule.id)} ({cell.rule.level})  {_outcomes(cell)}")
            lines += [f"  {'':17} {printable(line)}" for line in _said(cell)]
        lines += [f"  {change.words.upper():17} and {left} more"] if left else []
    return lines


def _enough(cells: list[Changed]) -> tuple[list[Changed], int]:
    """Return the cells to show, and how many are left out: of rules that came or went the first ones are enough."""
    telling = [cell for cell in cells if cell.verdict is not Verdict.AS_EXPECTED]
    if len(cells) <= MANY or cells[0].change not in {Change.NEW, Change.GONE}:
        return cells, 0
    return telling or cells[:MANY], len(cells) - len(telling or cells[:MANY])


def _cells(each: Comparison) -> list[Changed]:
    """Return the changed rules, the worst first; a run that has no like is one line."""
    if each.old is None or each.new is None or each.new.header.not_run or each.old.header.not_run:
        return [cell for cell in each.cells if cell.verdict is Verdict.REGRESSION and cell.change is Change.NEW]
    return sorted((cell for cell in each.cells if cell.change in SHOWN), key=lambda cell: SHOWN.index(cell.change))


def _outcomes(cell: Changed) -> str:
    before, after = (result.outcome if result else "" for result in (cell.old, cell.new))
    return before if before == after else f"{before or 'absent'} -> {after or 'absent'}"


def _said(cell: Changed) -> list[str]:
    old, new = cell.old, cell.new
    if cell.change is Change.DIFFERENTLY or (cell.change is Change.ALLOWED and old and new and old.detail):
        return [f"was: {_line(old)}", f"now: {_line(new)}"]
    if cell.change is Change.FIXED:
        return [f"was: {_line(old)}"]
    fails = cell.change is Change.NEW and cell.verdict is Verdict.REGRESSION
    return [_line(new)] if new and new.detail and (fails or cell.change in WHY) else []


def _line(result: Result | None) -> str:
    if result is None:
        return ""
    detail = result.detail or ("it holds" if result.outcome == "pass" else "")
    return detail + (f"  [{result.where}]" if result.where else "")


def _json(found: Sequence[Comparison]) -> str:
    made = [
        {
            "backend": _backend(each),
            "old": _run_as_data(each.old),
            "new": _run_as_data(each.new),
            "counts": {str(change): each.counts[change] for change in Change},
            "exit": each.exit.code,
            "cells": [
                {
                    "rule": cell.rule.id,
                    "level": cell.rule.level,
                    "change": cell.change,
                    "old": _result_as_data(cell.old),
                    "new": _result_as_data(cell.new),
                }
                for cell in each.cells
                if cell.change in SHOWN
            ],
        }
        for each in found
    ]
    return json.dumps(made, indent=1) + "\n"


def _backend(each: Comparison) -> str:
    run = each.new or each.old
    return run.header.backend if run else ""


def _run_as_data(run: Run | None) -> dict[str, Any] | None:
    if run is None:
        return None
    keys = ("run", "backend", "device", "condition", "versions", "suite", "selection", "started", "not_run")
    return {"file": run.file, **{key: getattr(run.header, key) for key in keys}}


def _result_as_data(result: Result | None) -> dict[str, Any] | None:
    return result and {"outcome": result.outcome, "detail": result.detail, "where": result.where}


COLUMNS = [change for change in SHOWN if change is not Change.ALLOWED]


def _markdown(found: Sequence[Comparison]) -> str:
    head = (
        f"| backend | versions | {' | '.join(change.words for change in COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}\n"
    )
    rows = [
        f"| {markdown(_title(each))} | {markdown(', '.join(_versions(each)))} | "
        f"{' | '.join(str(each.counts[change]) for change in COLUMNS)} |\n"
        for each in found
    ]
    cells = [_bullet(each, cell) for each in found for cell in _cells(each) if cell.change is not Change.STILL]
    return head + "".join(rows) + ("\n" + "".join(cells) if cells else "")


def _bullet(each: Comparison, cell: Changed) -> str:
    said = "; ".join(map(markdown, _said(cell)))
    rule = f"{code(cell.rule.id)} ({cell.rule.level})"
    head = f"- **{cell.change.words}** {rule} on {markdown(_title(each))}, {_outcomes(cell)}"
    return head + (f": {said}\n" if said else "\n")
