"""Reading files of known findings: what a backend is known to do otherwise than documented, and why.

One TOML file a backend, one ``[[finding]]`` table a finding: ``flag`` (a departure of the reference engine) or
``fingerprint``, then ``reason``, ``rule``, and where they apply ``issue`` and ``pattern``. What an entry with a flag
leaves out, the flag says of itself. What ``also`` names is the same finding. Before all tables, ``includes`` may name
another such file beside this one, whose entries hold too.
"""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hooklaw.errors import FindingsFileError
from hooklaw.fuzz.program import Instruction
from hooklaw.fuzz.replay.operations import OPERATIONS
from hooklaw.model import flags

SILENT = "documentation silent"
"""Stands in the place of a rule where no rule speaks of what was found."""
KINDS = ("differs", "crash", "hang", "error")


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a file."""

    flag: str = ""
    fingerprint: str = ""
    reason: str = ""
    rule: str = ""
    """The rule that is broken, or `SILENT`."""
    issue: str = ""
    also: list[str] = []
    """Further fingerprints, of whole programs too, which then are not shrunk."""
    pattern: list[str] = []
    """Instructions, each by one word or by several parted by ``|``, which a program of this kind has in this order."""

    def fits(self, how: str, program: Sequence[Instruction], died_at: int | None = None) -> bool:
        """Tell whether a shrunk program that ended in this way is of this kind, by the pattern."""
        kind = self.fingerprint.partition(":")[0]
        return bool(self.pattern) and kind == how and follows(self.pattern, program, died_at)


def follows(pattern: Sequence[str], program: Sequence[Instruction], died_at: int | None = None) -> bool:
    """Tell whether a program has a pattern's instructions in their order.

    Where it is known at which instruction it died, that must be the pattern's last.
    """
    ops = [one.op for one in program]
    if died_at is not None:
        ops = ops[: died_at + 1]
        if not ops or ops[-1] not in pattern[-1].split("|"):
            return False
    rest = iter(ops)
    return all(any(op in step.split("|") for op in rest) for step in pattern)


def read(path: Path, rules: Collection[str]) -> list[Known]:
    """Read a file.

    Raises FindingsFileError, naming file and line, where it cannot be read or an entry is malformed.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise FindingsFileError(f"cannot read the findings file {path}: {why}") from error
    except tomllib.TOMLDecodeError as error:
        raise FindingsFileError(f"{path}: the findings file is no TOML: {error}") from error
    tables: Any = data.pop("finding", [])
    included: Any = data.pop("includes", "")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*finding\s*\]\]", line)]
    if data or not isinstance(tables, list) or len(tables) != len(lines):
        found = ", ".join(data) or "a value"
        raise FindingsFileError(f"{path}: only includes and [[finding]] tables may stand here, found {found}")
    places = [f"{path}:{line}" for line in lines]
    entries = [_entry(table, place, rules) for table, place in zip(tables, places, strict=True)]
    _refuse_duplicates(entries, places)
    return entries + (_included(path, included, rules) if included else [])


def _included(path: Path, name: Any, rules: Collection[str]) -> list[Known]:
    other = path.with_name(f"{name}")
    if other.resolve() == path.resolve():
        raise FindingsFileError(f"{path}: the findings file includes itself")
    return read(other, rules)


def of_flag(name: str) -> tuple[str, str, str]:
    """Return what a departure of the engine is, the rule that it breaks, and where it was reported."""
    flag = flags.TORCH[name]
    return flag.says, SILENT if flag.why == flags.SILENT else flag.why, flag.issue


def _entry(table: Mapping[str, Any], place: str, rules: Collection[str]) -> Known:
    try:
        entry = msgspec.convert(table, Known)
    except msgspec.ValidationError as error:
        raise FindingsFileError(f"{place}: {error}; an entry has {', '.join(Known.__struct_fields__)}") from error
    if bool(entry.flag) == bool(entry.fingerprint):
        raise FindingsFileError(f"{place}: the entry has both a flag and a fingerprint, or neither: name one")
    if entry.rule:
        _check_rule(entry, place, rules)
    if entry.flag:
        entry = _completed(entry, place)
    for one in [entry.fingerprint] * bool(entry.fingerprint) + entry.also:
        if one.partition(":")[0].partition(" ")[0] not in KINDS:
            raise FindingsFileError(f"{place}: {one!r} is no fingerprint: one begins with {', '.join(KINDS)}")
    if not entry.reason:
        raise FindingsFileError(f"{place}: the entry has no reason: say in one sentence what happens")
    if not entry.rule:
        raise FindingsFileError(f"{place}: no rule is named: write the id of the one that is broken, or {SILENT!r}")
    _check_pattern(entry, place)
    return entry


def _completed(entry: Known, place: str) -> Known:
    """Let the flag say what the entry leaves out."""
    try:
        flags.known([entry.flag])
    except ValueError as error:
        raise FindingsFileError(f"{place}: {error}") from error
    reason, rule, issue = of_flag(entry.flag)
    return msgspec.structs.replace(
        entry, reason=entry.reason or reason, rule=entry.rule or rule, issue=entry.issue or issue
    )


def _check_rule(entry: Known, place: str, rules: Collection[str]) -> None:
    if entry.rule not in rules and entry.rule != SILENT:
        raise FindingsFileError(f"{place}: no rule has the id {entry.rule!r}: `hooklaw list` shows all, or {SILENT!r}")


def _check_pattern(entry: Known, place: str) -> None:
    if (entry.pattern or entry.also) and entry.flag:
        word = "pattern" if entry.pattern else "also"
        raise FindingsFileError(f"{place}: a flag has no {word}, since the engine tells which programs need it")
    for op in (op for step in entry.pattern for op in step.split("|")):
        if op not in OPERATIONS:
            raise FindingsFileError(f"{place}: no instruction is called {op!r}, as the pattern says")


def _refuse_duplicates(entries: Sequence[Known], places: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for entry, place in zip(entries, places, strict=True):
        name = entry.flag or entry.fingerprint
        if name in seen:
            raise FindingsFileError(f"{place}: {name!r} already has an entry in {seen[name]}: merge the two")
        seen[name] = place
