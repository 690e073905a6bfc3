"""What a rule that does not hold was seen to do, without what differs between two runs of the same program."""

import re

from hooklaw.results.records import Execution

_NOISE = (
    (re.compile(r" ?\[Falsifying .*\]$"), ""),  # which example is found first is chance
    (re.compile(r" \(\+\d+ lines\)"), ""),
    (re.compile(r"\b0x[0-9a-fA-F]{4,}"), "0x"),
    (re.compile(r"(?:[/\\][\w.+@~ -]+)*[/\\]([\w.+-]+\.\w+)"), r"\1"),  # a file's folders
    (re.compile(r"(\.\w+):\d+"), r"\1"),
    (re.compile(r"\b(line|pid|thread) \d+"), r"\1"),
    (re.compile(r"\bwithin [\d.]+ s\b"), "within s"),
)
_DECIMAL = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")


def seen(done: Execution) -> tuple[str, str, int | None]:
    """Return what two executions of a rule have in common if they fail in the same way."""
    return str(done.outcome), _normalized(done.detail), done.difference


def _normalized(detail: str) -> str:
    for pattern, instead in _NOISE:
        detail = pattern.sub(instead, detail)
    return _DECIMAL.sub(lambda found: f"{float(found[0]):.4g}", detail)
