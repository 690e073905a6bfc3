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


class Form(NamedTuple):
    """What such a file is called, the name of its tables, the values that may stand before them, and its error."""

    kind: str
    table: str
    error: type[HooklawError]
    values: Sequence[str] = ()


def read(path: Path, form: Form) -> tuple[list[Table], dict[str, Any]]:
    """Return the tables of a file, and the values that stand before them.

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
    tables, values = data.pop(form.table, []), {name: data.pop(name) for name in form.values if name in data}
    if data or not isinstance(tables, list):
        article = "an" if form.kind[0] in "aeiou" else "a"
        allowed = " and ".join([*form.values, f"[[{form.table}]] tables"])
        found = ", ".join(data) or "a value"
        raise form.error(f"{path}:1: {article} {form.kind} has only {allowed}, found {found}")
    header = re.compile(rf"\s*\[\[\s*{form.table}\s*\]\]")
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if header.match(line)]
    if len(lines) < len(tables):
        raise form.error(f"{path}:1: begin every entry with a line [[{form.table}]]")
    return [Table(table, line) for table, line in zip(tables, lines, strict=False)], values


def _place(path: Path, error: tomllib.TOMLDecodeError) -> str:
    found = re.search(r"at line (\d+)", str(error))
    return f"{path}:{found[1]}" if found else str(path)
