"""Known findings: what a backend is known to do otherwise than documented, and why.

A backend has one TOML file with a ``[[finding]]`` table for each finding: ``flag`` (a departure of the reference
engine, or several) or ``fingerprint``, then ``reason``, ``rule``, and optionally ``issue`` and ``pattern``. The flag
supplies what an entry with a flag leaves out. ``also`` lists further fingerprints of the same finding. A table
``[defaults]`` may give the ``rule`` of entries with a fingerprint. Before all tables, ``includes`` may name another
such file in the same folder, whose entries hold too.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hooklaw.errors import FindingsFileError
from hooklaw.fuzz.program import Instruction, Program
from hooklaw.fuzz.replay.operations import OPERATIONS
from hooklaw.model import flags
from hooklaw.results import toml_tables
from hooklaw.results.toml_tables import Table

SILENT = "documentation silent"
"""Stands for a rule where no rule says anything about the finding."""
KINDS = ("differs", "crash", "hang", "error")
FORM = toml_tables.TableForm("findings file", "finding", FindingsFileError, ("rule",), ("includes",))


class KnownFinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of a file."""

    flag: str = ""
    fingerprint: str = ""
    reason: str = ""
    rule: str = ""
    """The rule that is broken, or `SILENT`."""
    issue: str = ""
    also: list[str] = []
    """Further fingerprints; a program with one of them is not shrunk."""
    pattern: list[str] = []
    """Operations, or several separated by ``|``, which the programs of this finding have in this order."""

    @property
    def how(self) -> str:
        """How the programs of this finding end."""
        return self.fingerprint.partition(":")[0]

    def fits(self, how: str, program: Sequence[Instruction], died_at: int | None = None) -> bool:
        """Whether a shrunk program that ended in this way matches the pattern."""
        return bool(self.pattern) and self.how == how and follows(self.pattern, program, died_at)


class KnownFindings(list[KnownFinding]):
    """The known findings of a backend."""

    def of_flag(self, flag: str) -> KnownFinding | None:
        """Return the entry of a flag."""
        return next((entry for entry in self if entry.flag == flag), None)

    def also(self, fingerprint: str) -> KnownFinding | None:
        """Return the entry that lists a fingerprint under ``also``."""
        return next((entry for entry in self if fingerprint in entry.also), None)

    def match(self, fingerprint: str, how: str, program: Program, died_at: int | None) -> KnownFinding | None:
        """Return the entry of a finding, by its fingerprint or else by its pattern."""
        exact = (entry for entry in self if fingerprint in (entry.fingerprint, *entry.also))
        alike = (entry for entry in self if entry.fits(how, program, died_at))
        return next(exact, None) or next(alike, None)

    def crash(self, program: Program) -> KnownFinding | None:
        """Return the entry of a crash that a program may cause: a read of foreign memory does not always crash."""
        crashes = (entry for entry in self if entry.how.startswith("crash"))
        return next((entry for entry in crashes if entry.fits(entry.how, program)), None)


def follows(pattern: Sequence[str], program: Sequence[Instruction], died_at: int | None = None) -> bool:
    """Whether a program has the operations of a pattern in their order.

    If the instruction at which the program died is known, it must match the pattern's last.
    """
    ops = [instruction.op for instruction in program]
    if died_at is not None:
        ops = ops[: died_at + 1]
        if not ops or ops[-1] not in pattern[-1].split("|"):
            return False
    rest = iter(ops)
    return all(any(op in step.split("|") for op in rest) for step in pattern)


def read(path: Path, rules: Collection[str]) -> KnownFindings:
    """Read a file.

    Raises FindingsFileError, with file and line, if the file cannot be read or an entry is malformed.
    """
    file = toml_tables.read(path, FORM)
    tables = [Table(values, table.line) for table in file.tables for values in _completed_by(table, file.defaults)]
    places = [f"{path}:{table.line}" for table in tables]
    entries = [_entry(table.values, place, rules) for table, place in zip(tables, places, strict=True)]
    _refuse_duplicates(entries, places)
    included = file.values.get("includes")
    return KnownFindings(entries + (_included(path, included, rules) if included else []))


def _completed_by(table: Table, defaults: Table) -> list[dict[str, Any]]:
    """Return the values for each flag of a table; a flag supplies its rule itself."""
    flag = table.values.get("flag")
    if flag is None:
        return [{**defaults.values, **table.values}]
    return [{**table.values, "flag": each} for each in (flag if isinstance(flag, list) else [flag])]


def _included(path: Path, name: Any, rules: Collection[str]) -> list[KnownFinding]:
    other = path.with_name(f"{name}")
    if other.resolve() == path.resolve():
        raise FindingsFileError(f"{path}: the findings file includes itself")
    return read(other, rules)


def of_flag(name: str) -> tuple[str, str, str]:
    """Return what a departure of the engine is, the rule that it breaks, and where it was reported."""
    flag = flags.TORCH[name]
    return flag.says, SILENT if flag.why == flags.SILENT else flag.why, flag.issue


def _entry(table: Mapping[str, Any], place: str, rules: Collection[str]) -> KnownFinding:
    try:
        entry = msgspec.convert(table, KnownFinding)
    except msgspec.ValidationError as error:
        fields = ", ".join(KnownFinding.__struct_fields__)
        raise FindingsFileError(f"{place}: {error}; an entry has {fields}") from error
    for complaint in _complaints(entry, rules):
        raise FindingsFileError(f"{place}: {complaint}")
    return _completed(entry) if entry.flag else entry


def _completed(entry: KnownFinding) -> KnownFinding:
    """Return the entry with what it leaves out and its flag supplies."""
    reason, rule, issue = of_flag(entry.flag)
    return msgspec.structs.replace(
        entry, reason=entry.reason or reason, rule=entry.rule or rule, issue=entry.issue or issue
    )


def _complaints(entry: KnownFinding, rules: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with an entry."""
    if bool(entry.flag) == bool(entry.fingerprint):
        yield "the entry has both a flag and a fingerprint, or neither: name one"
    if entry.rule and entry.rule not in rules and entry.rule != SILENT:
        yield f"no rule has the id {entry.rule!r}: `hooklaw list` shows all, or {SILENT!r}"
    try:
        flags.known(filter(None, [entry.flag]))
    except ValueError as error:
        yield str(error)
    for fingerprint in filter(None, [entry.fingerprint, *entry.also]):
        if fingerprint.partition(":")[0].partition(" ")[0] not in KINDS:
            yield f"{fingerprint!r} is not a fingerprint: begin it with {', '.join(KINDS)}"
    if not (entry.reason or entry.flag):
        yield "the entry has no reason: say in one sentence what happens"
    if not (entry.rule or entry.flag):
        yield f"no rule is named: write the id of the rule that is broken, or {SILENT!r}"
    yield from _complaints_of_pattern(entry)


def _complaints_of_pattern(entry: KnownFinding) -> Iterator[str]:
    if (entry.pattern or entry.also) and entry.flag:
        word = "pattern" if entry.pattern else "also"
        yield f"a flag has no {word}, since the engine finds the programs that need it"
    for op in (op for step in entry.pattern for op in step.split("|")):
        if op not in OPERATIONS:
            yield f"the pattern names {op!r}, which is not an operation"


def _refuse_duplicates(entries: Sequence[KnownFinding], places: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for entry, place in zip(entries, places, strict=True):
        name = entry.flag or entry.fingerprint
        if name in seen:
            raise FindingsFileError(f"{place}: {name!r} already has an entry in {seen[name]}: merge the two")
        seen[name] = place
