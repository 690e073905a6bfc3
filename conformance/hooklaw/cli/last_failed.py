"""What failed in the last run of a backend: kept in the temporary folder of the user, or read from a record."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from hooklaw.cli.summary import needing_a_look
from hooklaw.results.output import replace_file
from hooklaw.results.records import Run, read

Failed = dict[str, list[str]]
"""The ids of rules by condition."""


def failed_in(runs: Sequence[Run], backend: str) -> Failed:
    """Return the rules that were not as expected, or have no result, in the runs of a backend."""
    return {run.header.condition: found for run in runs if run.header.backend == backend and (found := _failed(run))}


def failed_in_file(path: Path, backend: str) -> Failed:
    """Return the same of a record file, whose run may have been interrupted."""
    return failed_in(read(path, incomplete=True), backend)


def remembered(backend: str, rules: str) -> Failed:
    """Return what failed in the last runs of a backend on this machine."""
    try:
        return msgspec.json.decode(_file(backend, rules).read_bytes(), type=Failed)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return {}


def remember(runs: Sequence[Run], rules: str) -> None:
    """Keep what failed; a rule that was not run keeps its place. A folder that cannot be written is no fault."""
    for backend in dict.fromkeys(run.header.backend for run in runs):
        before, after = remembered(backend, rules), Failed()
        after.update(before)
        for run in runs:
            if run.header.backend == backend:
                ran = {rule.id for rule in run.header.rules}
                left = [rule_id for rule_id in before.get(run.header.condition, []) if rule_id not in ran]
                after[run.header.condition] = [*left, *_failed(run)]
        kept = {condition: ids for condition, ids in after.items() if ids}
        if kept != before:
            with suppress(OSError):
                replace_file(_file(backend, rules), msgspec.json.encode(kept).decode())


def _failed(run: Run) -> list[str]:
    looked_at = {rule.id for _, rule, _ in needing_a_look(run)}
    return [rule.id for rule in run.header.rules if rule.id in looked_at or rule.id not in run.results]


def _file(backend: str, rules: str) -> Path:
    where = str(Path(rules).absolute()) if Path(rules).exists() else rules
    name = sha256(f"{backend}\0{where}".encode()).hexdigest()[:16]
    user = getattr(os, "getuid", lambda: "user")()
    return Path(tempfile.gettempdir(), f"hooklaw-{user}", f"failed-{name}.json")
