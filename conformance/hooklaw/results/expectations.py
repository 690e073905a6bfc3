"""Expectation files: which rules a backend is known to break, and why.

A backend has one TOML file with an ``[[expect]]`` table for each known divergence: ``rule`` (one or several),
``saw`` (a phrase of what is seen, or several of which one is), ``reason``, and optionally ``outcome`` (one or several;
else ``fail``), ``issue``, ``when`` (``torch>=2.13,<2.14 and device==cuda``, as `hooklaw.results.when` describes),
``condition`` (one or several: the entry is for runs under these alone) and ``expires``.
A table ``[defaults]`` may say ``outcome`` and ``when`` for all entries that do not.

Before all tables, ``over`` may name a file that this file lies over: a shipped file by its stem (``torch-eager``), or
a relative path that ends in ``.toml``. The entries of that file hold too, in the versions that ``[defaults]`` names,
except for a rule that has an entry here. ``outcome = "pass"`` says that a rule of the lower file holds. Of several
files, in a list, an earlier one lies over a later one, and one that others lie over is below them all. With ``under``
the entries that a lower file has for a condition hold here in any run: the backend is always in that condition.
"""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
from msgspec import structs

from hooklaw.backend.conditions import find_condition
from hooklaw.errors import ExpectationFileError, UnknownConditionError, did_you_mean
from hooklaw.results import toml_tables, when
from hooklaw.results.toml_tables import Table
from hooklaw.results.verdict import Expectation, Outcome, Stale, unclear

EXPECTABLE = (Outcome.FAIL, Outcome.CRASH, Outcome.TIMEOUT)
HOLDS: list[str] = [Outcome.PASS]
"""The outcome of an entry that cancels an entry of the lower file."""
DEFAULTS = {"outcome": "fail", "when": ""}
FORM = toml_tables.TableForm("expectation file", "expect", ExpectationFileError, tuple(DEFAULTS), ("over", "under"))
KEYS = {"rule", "outcome", "saw", "reason", "issue", "when", "condition", "expires"}
BACKENDS = "hooklaw_backends"
"""The package with the shipped files; a string, since this package imports no backend."""


class ExpectationFile(NamedTuple):
    """A file as it is written: what its entries share, its own entries, and the files that it lies over."""

    shared: Expectation = Expectation("", [Outcome.FAIL], "")
    entries: Collection[Expectation] = ()
    lower: Sequence["ExpectationFile"] = ()

    def has(self, rule: str) -> bool:
        """Whether a rule has an entry here or in a lower file."""
        return any(entry.rule == rule for entry in self.entries) or any(file.has(rule) for file in self.lower)


class Expectations(msgspec.Struct):
    """The entries of a file and of its lower files that apply, by rule, and the stale ones."""

    known: dict[str, Expectation] = {}
    known_under: list[Expectation] = []
    """The entries that are limited to conditions; of two for a rule and condition the last one counts."""
    stale: list[Stale] = []
    holding: list[Expectation] = []
    """The entries that cancel one of a lower file."""

    @property
    def unclear(self) -> list[Stale]:
        """The entries for runs without a condition that a person must still complete."""
        return [stale for entry in (*self.known.values(), *self.holding) for stale in unclear(entry)]


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
    return _applying(_layers(load(path), versions), rules, today, versions)


def inherited(
    file: ExpectationFile, rules: Collection[str], versions: Mapping[str, str] | None, today: dt.date | None = None
) -> Expectations:
    """Return the entries of the lower files that apply, as `read` does."""
    return _applying(_layers(file, versions)[:-1], rules, today, versions)


def _layers(file: ExpectationFile, versions: Mapping[str, str] | None) -> list[ExpectationFile]:
    """Return a file and those below it that count in these versions, each once and below all that lie over it."""
    inherits = versions is None or applies(file.shared, versions)
    below = [layer for lower in reversed(file.lower) for layer in _layers(lower, versions)] if inherits else []
    return [*(layer for place, layer in enumerate(below) if layer not in below[:place]), file]


def _applying(
    layers: Iterable[ExpectationFile],
    rules: Collection[str],
    today: dt.date | None,
    versions: Mapping[str, str] | None,
) -> Expectations:
    found = Expectations()
    for file in layers:
        _add(found, file, rules, today or dt.datetime.now(tz=dt.UTC).date(), versions)
    return found


def _add(
    found: Expectations,
    file: ExpectationFile,
    rules: Collection[str],
    today: dt.date,
    versions: Mapping[str, str] | None,
) -> None:
    """Add the entries of a file that apply, in the place of those below it."""
    own = dict[str, Expectation]()
    for entry in file.entries:
        stale = _why_stale(entry, file, rules, today)
        if stale:
            found.stale.append(Stale(entry.rule, stale, entry.file, entry.line))
        elif entry.condition and (versions is None or applies(entry, versions)):
            found.known_under.append(entry)
        elif versions is None or applies(entry, versions):
            if entry.rule in own and versions is not None:
                _refuse_second(entry, own[entry.rule])
            own[entry.rule] = entry
    found.holding += [entry for entry in own.values() if entry.outcome == HOLDS]
    merged = found.known | own
    found.known = {rule: entry for rule, entry in merged.items() if entry.outcome != HOLDS}


def load(path: Path, above: Collection[Path] = ()) -> ExpectationFile:
    """Return a file with an entry for each rule of each table, and its lower files; `above` are those that led here.

    Raises ExpectationFileError if one is malformed.
    """
    file = toml_tables.read(path, FORM)
    over = _several(file.values.get("over", []))
    lower = [load(_lower(path, name, above), [*above, path.resolve()]) for name in over]
    if under := file.values.get("under"):
        _check_conditions([under], str(path))
        lower = [_as_under(each, under) for each in lower]
    named = {**DEFAULTS, **file.defaults.values, "rule": "any", "reason": "any"}
    shared = _entry(named, path, file.defaults.line, over=bool(over))
    plain = {"outcome": shared.outcome, "when": shared.when}
    tables = [Table({**plain, **table.values}, table.line) for table in file.tables]
    entries = [entry for table in tables for entry in _entries(table, path, over=bool(over))]
    _refuse_duplicates(entries)
    return ExpectationFile(shared, entries, lower)


def _lower(path: Path, over: Any, above: Collection[Path]) -> Path:
    """Return the path of the file that a file lies over."""
    shipped, name = _shipped(), str(over)
    if name not in shipped and not name.endswith(".toml"):
        known = ", ".join(sorted(shipped))
        raise ExpectationFileError(f"{path}: over = {over!r} names no file: write {known}, or a path to a .toml file")
    lower = shipped.get(name, path.parent / name)
    if lower.resolve() in {*above, path.resolve()}:
        raise ExpectationFileError(f"{path}: over = {over!r} goes in a circle: the file would lie over itself")
    return lower


def _as_under(file: ExpectationFile, condition: str) -> ExpectationFile:
    """Return a file whose entries for a condition hold in any run, in place of other entries for their rules."""
    own = [structs.replace(entry, condition=[]) for entry in file.entries if condition in entry.condition]
    replaced = {entry.rule for entry in own}
    others = [entry for entry in file.entries if entry.condition or entry.rule not in replaced]
    return file._replace(entries=[*others, *own], lower=[_as_under(each, condition) for each in file.lower])


def _shipped() -> dict[str, Path]:
    package = find_spec(BACKENDS)
    folders = package.submodule_search_locations or () if package else ()
    return {path.stem: path for folder in folders for path in Path(folder, "expectations").glob("*.toml")}


def _entries(table: Table, path: Path, *, over: bool) -> list[Expectation]:
    given = table.values.get("rule")
    rules: list[Any] = given if isinstance(given, list) and given else [given]
    return [_entry({**table.values, "rule": rule}, path, table.line, over=over) for rule in rules]


def _entry(table: dict[str, Any], path: Path, line: int, *, over: bool) -> Expectation:
    place = f"{path}:{line}"
    for key in ("rule", "outcome", "reason"):
        if not table.get(key):
            raise ExpectationFileError(f"{place}: the entry has no {key!r}: every entry names rule and reason")
    for key in table.keys() - KEYS:
        raise ExpectationFileError(f"{place}: unknown key {key!r}: an entry has {', '.join(sorted(KEYS))}")
    outcomes, conditions, saw = (_several(table.get(key, [])) for key in ("outcome", "condition", "saw"))
    if "saw" in table and not (saw and all(saw)):
        raise ExpectationFileError(f"{place}: saw is empty: write a phrase of what is seen, or leave it out")
    _check_conditions(conditions, place)
    sometimes = HOLDS if over or any(outcome in EXPECTABLE for outcome in outcomes) else []
    for outcome in outcomes:
        if outcome not in (*EXPECTABLE, *sometimes):
            raise ExpectationFileError(
                f"{place}: outcome {outcome!r} cannot be expected: write {', '.join(EXPECTABLE)}"
            )
    try:
        plain = {
            **table,
            "expires": str(table.get("expires", "")),
            "outcome": outcomes,
            "condition": conditions,
            "saw": saw,
        }
        entry = msgspec.convert({**plain, "file": str(path), "line": line}, Expectation)
    except msgspec.ValidationError as error:
        raise ExpectationFileError(f"{place}: {error}") from error
    if not when.is_valid(entry.when):
        example = "'torch>=2.13,<2.14', perhaps with ' and device==cuda', ' and os==linux' or ' and python>=3.12'"
        _fail(entry, f"when = {entry.when!r} is not a version range: write for example {example}")
    _expiry(entry)
    return entry


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_conditions(names: list[Any], place: str) -> None:
    try:
        for name in names:
            find_condition(str(name))
    except UnknownConditionError as error:
        raise ExpectationFileError(f"{place}: {error}") from error


def _refuse_duplicates(entries: list[Expectation]) -> None:
    seen: dict[tuple[str, str, str], Expectation] = {}
    for entry in entries:
        for condition in entry.condition or [""]:
            key = (entry.rule, entry.when, condition)
            if key in seen:
                _refuse_second(entry, seen[key])
            seen[key] = entry


def _refuse_second(entry: Expectation, first: Expectation) -> NoReturn:
    _fail(entry, f"rule {entry.rule!r} already has an entry in line {first.line}: merge the two")


def _why_stale(entry: Expectation, file: ExpectationFile, rules: Collection[str], today: dt.date) -> str:
    if entry.rule not in rules:
        near = did_you_mean(entry.rule, rules, "", likeness=0.85)
        return f"matches no rule ({near})" if near else "matches no rule"
    if entry.outcome == HOLDS and not any(lower.has(entry.rule) for lower in file.lower):
        return "cancels nothing: no lower file has an entry for the rule"
    expiry = _expiry(entry)
    return f"expired on {expiry}" if expiry and expiry < today else ""


def _expiry(entry: Expectation) -> dt.date | None:
    try:
        return dt.date.fromisoformat(entry.expires) if entry.expires else None
    except ValueError:
        _fail(entry, f"expires = {entry.expires!r} is not a date: write YYYY-MM-DD")


def applies(entry: Expectation, known: when.Facts) -> bool:
    """Whether an entry applies to these versions, on this device and operating system."""
    try:
        return when.applies(entry.when, known)
    except when.UnknownFactError as unknown:
        names = ", ".join(name for name in known if name not in {"os", "device", "cpu"})
        _fail(entry, f"when names {str(unknown)!r}, but the backend has versions of {names} only")


def everywhere(rule_id: str) -> dict[str, list[Expectation]]:
    """Return the entries for a rule in the shipped files, by the name of the file."""
    found = {
        name: [entry for entry in load(path).entries if entry.rule == rule_id] for name, path in _shipped().items()
    }
    return {name: found[name] for name in sorted(found) if found[name]}


def laid_over(name: str) -> ExpectationFile:
    """Return a file without entries, over the shipped file of this name if there is one."""
    lower = _shipped().get(name)
    return ExpectationFile(lower=[load(lower)] if lower else [])


def name_of(path: Path) -> str:
    """Return the name of a file as ``over`` and a record may give it: a shipped one by its stem."""
    shipped = _shipped().get(path.stem)
    return path.stem if shipped and shipped.resolve() == path.resolve() else path.name


def _fail(entry: Expectation, what: str) -> NoReturn:
    raise ExpectationFileError(f"{entry.file}:{entry.line}: {what}")
