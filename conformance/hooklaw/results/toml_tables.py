"""Files of TOML tables, such as expectation files and findings files, with the line of each table."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hooklaw.errors import HooklawError


class Table(NamedTuple):
    """A table of a file."""

    values: dict[str, Any]
    line: int


class TableForm(NamedTuple):
    """What such a file is called, the name of its tables, its error, and what else may stand in the file."""

    kind: str
    table: str
    error: type[HooklawError]
    defaults: Sequence[str]
    """The keys of ``[defaults]``, which says once what the tables share."""
    values: Sequence[str] = ()
    """Values that stand before all tables."""


class File(NamedTuple):
    """The content of a file."""

    tables: list[Table]
    defaults: Table
    values: dict[str, Any]


def read(path: Path, form: TableForm) -> File:
    """Read a file.

    Raises the error of the form, with file and line, if the file cannot be read, is not valid TOML or has another form.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise form.error(f"cannot read the {form.kind} {path}: {why}") from error
    except tomllib.TOMLDecodeError as error:
        raise form.error(f"{_place(path, error)}: the {form.kind} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise form.error(f"{path}: the {form.kind} is nested too deeply") from error
    tables, defaults = data.pop(form.table, []), _defaults(path, text, data.pop("defaults", {}), form)
    values = {name: data.pop(name) for name in form.values if name in data}
    if data or not isinstance(tables, list):
        article = "an" if form.kind[0] in "aeiou" else "a"
        allowed = ", ".join([*form.values, "[defaults]"]) + f" and [[{form.table}]] tables"
        found = ", ".join(data) or "a value"
        raise form.error(f"{path}:1: {article} {form.kind} has only {allowed}, found {found}")
    lines = _lines(text, rf"\[\[\s*{form.table}\s*\]\]")
    if len(lines) < len(tables):
        raise form.error(f"{path}:1: begin every entry with a line [[{form.table}]]")
    return File([Table(table, line) for table, line in zip(tables, lines, strict=False)], defaults, values)


def _defaults(path: Path, text: str, table: Any, form: TableForm) -> Table:
    line = next(iter(_lines(text, r"\[?\s*defaults\b")), 1)
    keys: list[str] = list(table) if isinstance(table, dict) else ["a value"]
    other = [key for key in keys if key not in form.defaults]
    if other:
        raise form.error(f"{path}:{line}: [defaults] has only {' and '.join(form.defaults)}, found {', '.join(other)}")
    return Table(table, line)


def _lines(text: str, header: str) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), start=1) if re.match(rf"\s*{header}", line)]


def _place(path: Path, error: tomllib.TOMLDecodeError) -> str:
    found = re.search(r"at line (\d+)", str(error))
    return f"{path}:{found[1]}" if found else str(path)
