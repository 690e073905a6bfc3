"""Expectation files: which rules a backend is known to break, and why.

A backend has one TOML file with an ``[[expect]]`` table for each known divergence: ``rule`` (one or several),
``reason``, and optionally ``outcome`` (one or several; else ``fail``), ``issue``, ``when`` (e.g. ``torch>=2.13,<2.14``)
and ``expires``. A table ``[defaults]`` may say ``outcome`` and ``when`` for all entries that do not.
"""

import datetime as dt
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from hooklaw.errors import ExpectationFileError
from hooklaw.results import toml_tables
from hooklaw.results.verdict import Expectation, Outcome, Stale

EXPECTABLE = (Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT)
UNEXPLAINED = "unexplained: "
"""Prefix of a reason that `expect update` wrote and a person must replace."""
DEFAULTS = {"outcome": "fail", "when": ""}
FORM = toml_tables.TableForm("expectation file", "expect", ExpectationFileError, tuple(DEFAULTS))
KEYS = {"rule", "outcome", "reason", "issue", "when", "expires"}


class Expectations(msgspec.Struct):
    """The entries of a file that apply, by rule, and the stale ones."""

    known: dict[str, Expectation] = {}
    stale: list[Stale] = []


def read(
    path: Path,
    rules: Collection[str],
    versions: Mapping[str, str] | None,
    *,
    today: dt.date | None = None,
) -> Expectations:
    """Return the entries that apply to these versions, or all entries if `versions` is None.

    Raises ExpectationFileError, with file and line, if the file cannot be read, an entry is malformed, or two entries
    for the same rule apply.
    """
    found = Expectations()
    for entry in parse(path):
        stale = _why_stale(entry, rules, today or dt.datetime.now(tz=dt.UTC).date())
        if stale:
            found.stale.append(Stale(entry.rule, stale, entry.file, entry.line))
        elif versions is None or applies(entry, versions):
            if entry.rule in found.known and versions is not None:
                first = found.known[entry.rule].line
                _fail(entry, f"rule {entry.rule!r} already has an entry in line {first}: merge the two")
            found.known[entry.rule] = entry
    return found


def parse(path: Path) -> list[Expectation]:
    """Return an entry for each rule of each table, with the table's line; ExpectationFileError if one is malformed."""
    file = toml_tables.read(path, FORM)
    shared = _shared(path, file.defaults)
    plain = {"outcome": shared.outcome, "when": shared.when}
    entries = [entry for table in file.tables for entry in _entries({**plain, **table.values}, path, table.line)]
    _refuse_duplicates(entries)
    return entries


def defaults(path: Path) -> Expectation:
    """Return what an entry of a file is that names no rule; ExpectationFileError if this is malformed."""
    return _shared(path, toml_tables.read(path, FORM).defaults)


def _shared(path: Path, given: toml_tables.Table) -> Expectation:
    return _entry({**DEFAULTS, **given.values, "rule": "any", "reason": "any"}, path, given.line)


def _entries(table: dict[str, Any], path: Path, line: int) -> list[Expectation]:
    rules: list[Any] = table["rule"] if isinstance(table.get("rule"), list) and table["rule"] else [table.get("rule")]
    return [_entry({**table, "rule": rule}, path, line) for rule in rules]


def _entry(table: dict[str, Any], path: Path, line: int) -> Expectation:
    place = f"{path}:{line}"
    for key in ("rule", "outcome", "reason"):
        if not table.get(key):
            raise ExpectationFileError(f"{place}: the entry has no {key!r}: every entry names rule and reason")
    for key in table.keys() - KEYS:
        raise ExpectationFileError(f"{place}: unknown key {key!r}: an entry has {', '.join(sorted(KEYS))}")
    outcomes = table["outcome"] if isinstance(table["outcome"], list) else [table["outcome"]]
    for outcome in outcomes:
        if outcome not in EXPECTABLE:
            raise ExpectationFileError(
                f"{place}: outcome {outcome!r} cannot be expected: write {', '.join(EXPECTABLE)}"
            )
    try:
        plain = {**table, "expires": str(table.get("expires", "")), "outcome": outcomes}
        entry = msgspec.convert({**plain, "file": str(path), "line": line}, Expectation)
    except msgspec.ValidationError as error:
        raise ExpectationFileError(f"{place}: {error}") from error
    _requirement(entry)
    _expiry(entry)
    return entry


def _refuse_duplicates(entries: list[Expectation]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for entry in entries:
        if (entry.rule, entry.when) in seen:
            first = seen[entry.rule, entry.when]
            _fail(entry, f"rule {entry.rule!r} already has an entry in line {first}: merge the two")
        seen[entry.rule, entry.when] = entry.line


def _why_stale(entry: Expectation, rules: Collection[str], today: dt.date) -> str:
    if entry.rule not in rules:
        return "matches no rule"
    expiry = _expiry(entry)
    return f"expired on {expiry}" if expiry and expiry < today else ""


def _expiry(entry: Expectation) -> dt.date | None:
    try:
        return dt.date.fromisoformat(entry.expires) if entry.expires else None
    except ValueError:
        _fail(entry, f"expires = {entry.expires!r} is not a date: write YYYY-MM-DD")


def is_range(when: str) -> bool:
    """Whether a text is a name with a version range, and nothing more."""
    try:
        wanted = Requirement(when)
    except InvalidRequirement:
        return False
    return not (wanted.url or wanted.marker or wanted.extras)


def _requirement(entry: Expectation) -> Requirement | None:
    if entry.when and not is_range(entry.when):
        _fail(entry, f"when = {entry.when!r} is not a version range: write for example 'torch>=2.13,<2.14'")
    return Requirement(entry.when) if entry.when else None


def applies(entry: Expectation, versions: Mapping[str, str]) -> bool:
    """Whether an entry applies to these versions."""
    wanted = _requirement(entry)
    if wanted is None:
        return True
    if wanted.name not in versions:
        _fail(entry, f"when names {wanted.name!r}, but the backend has versions of {', '.join(versions)} only")
    try:
        return wanted.specifier.contains(versions[wanted.name], prereleases=True)
    except InvalidVersion:  # older releases of packaging raise for a version such as a GPU's name
        return False


def without(entry: Expectation, versions: Mapping[str, str]) -> str:
    """Return the entry's range without the current minor version, or "" if no other version is left."""
    wanted = _requirement(entry)
    if wanted is None:
        return ""
    major, minor = (*Version(versions[wanted.name]).release, 0)[:2]
    before = f"{major}.{minor - 1}" if minor else f"{max(major - 1, 0)}.99"
    if not any(wanted.specifier.contains(version) for version in (before, f"{major}.{minor + 1}", f"{major + 1}")):
        return ""
    return f"{entry.when},!={major}.{minor}.*"


def _fail(entry: Expectation, what: str) -> NoReturn:
    raise ExpectationFileError(f"{entry.file}:{entry.line}: {what}")
